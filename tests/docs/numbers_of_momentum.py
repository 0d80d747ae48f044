"""What the page about momentum says in numbers."""

import math

import numpy as np
import pytest

import lastiterate as li
from lastiterate.shifts.momentum.common_norm import common_norm
from lastiterate.shifts.optimal_shifts import optimal_shifts
from tests.reference import momentum as reference

from .claims import claim

PAGE = "docs/momentum.md"
BATCHES, BATCH, STEP, BETA, PENALTY = 98, 512, 0.05, 0.9, 0.01
SMOOTHNESS = 0.25 + PENALTY


def training(epochs, tail, z, release=0.0):
    """The run of the page, for an example at the position with so many steps after it."""
    steps = BATCHES * epochs
    seen = range(BATCHES - tail, steps + 1, BATCHES)
    return li.TrainingRun(
        loss=li.Loss(smoothness=SMOOTHNESS, strong_convexity=PENALTY),
        sensitivity=2.0,
        batches=li.FixedOrder(BATCHES * BATCH, BATCH, tuple(seen)),
        steps=steps,
        step_size=STEP,
        noise_std=z / BATCH,
        release_noise_std=release * STEP / (1 - BETA) * z / BATCH,
        momentum=BETA,
    )


def said_of(mu):
    epsilon = li.GaussianProfile(mu).epsilon(1e-5)
    return math.ceil(1e3 * epsilon) / 1e3


@claim(
    PAGE,
    r"\| the last position, noise multiplier 1 \| ([\d.]+) \| ([\d.]+) \|\n"
    r"\| the most exposed position, noise multiplier 1 \| ([\d.]+) \| ([\d.]+) \|\n"
    r"\| the most exposed position, noise multiplier 4 \| ([\d.]+) \| ([\d.]+) \|",
)
def release_noise(last, last_noisy, worst, worst_noisy, worst_4, worst_noisy_4):
    plain, noisy = ([training(10, tail, 1.0, r) for tail in range(12)] for r in (0.0, 1.0))
    at_last = li.account(plain[0]).gdp()
    assert said_of(at_last) == pytest.approx(float(last), abs=0.05)
    assert said_of(li.account(noisy[0]).gdp()) == pytest.approx(float(last_noisy), abs=0.01)
    mus = {tail: li.account(noisy[tail]).gdp() for tail in (5, 7, 8, 9, 11)}
    assert max(mus, key=mus.get) in (7, 8)
    assert said_of(max(mus.values())) == pytest.approx(float(worst_noisy), abs=0.01)
    assert worst == last  # without noise on release the last position is the most exposed one
    assert said_of(at_last / 4) == pytest.approx(float(worst_4), abs=0.01)
    assert said_of(max(mus.values()) / 4) == pytest.approx(float(worst_noisy_4), abs=0.01)


@claim(
    PAGE,
    r"plain steps have \$\\mu/r = (0\.\d+)\$, where \$r\$ is the sensitivity of a batch over the "
    r"noise\. Heavy ball leaks (0\.\d+) at a constant curvature\. The theorem gives (0\.\d+)\.",
)
def plain_steps_claim_too_little(plain, leak, certified):
    steps, middle = 3 * BATCHES, BATCHES // 2 - 1
    run = training(3, BATCHES - 1 - middle, 1.0)
    seen = np.zeros(steps)
    seen[middle::BATCHES] = 1.0
    h = STEP / (1 - BETA)
    shifts = optimal_shifts(
        contraction=1 - h * PENALTY, sensitivity=h * seen, noise=np.full(steps, h)
    )
    assert round(shifts.mu, 3) == float(plain)
    ratio = run.sensitivity / BATCH / run.noise_std
    assert round(li.account(run).gdp() / ratio, 3) == pytest.approx(float(certified), abs=0.001)
    moved, variance = 0.0, 0.0
    for k in range(steps):
        impulse = np.zeros((steps, 1))
        impulse[k] = 1.0
        path = reference.torch_sgd(
            [lambda x, g=g: PENALTY * x + g for g in impulse],
            lr=[STEP] * steps,
            momentum=[BETA] * steps,
            dampening=[0.0] * steps,
            nesterov=False,
            start=np.zeros(1),
        )
        moved, variance = moved + seen[k] * path[-1][0], variance + path[-1][0] ** 2
    assert round(abs(moved) / math.sqrt(variance), 3) == float(leak)
    assert float(plain) < float(leak) < float(certified)


@claim(PAGE, r"\(above: (0\.\d+) against (0\.\d+)\)")
def as_above(certified, leak):
    assert (certified, leak) == ("0.201", "0.171")


@claim(
    PAGE,
    r"The picture's run converges with steps up to (0\.\d+)\. With `regulariser=0\.001` it would "
    r"with steps up to (0\.\d+): steps of (0\.\d+) are then too long",
)
def thresholds(most, other, too_long):
    def rate(step, penalty):
        steps = [
            np.array([[1 - step * c, -step * BETA], [c, BETA]]) for c in (penalty, 0.25 + penalty)
        ]
        return common_norm((steps[0], steps[1])).rate

    def left(step, penalty):
        a, b = (step / (1 - BETA) * c for c in (penalty, 0.25 + penalty))
        return 2 * (1 - BETA) - (1 + BETA) * (a + b) + 4 * math.sqrt(BETA * a * b)

    for stated, penalty in ((most, PENALTY), (other, 0.001)):
        assert left(float(stated), penalty) > 0.0 > left(float(stated) + 0.001, penalty)
        assert rate(float(stated), penalty) < 1.0 <= rate(float(stated) + 0.001, penalty)
    assert rate(float(too_long), 0.001) >= 1.0
