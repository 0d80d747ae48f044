"""What the page about momentum says in numbers."""

import json
import math
import re

import numpy as np
import pytest

import lastiterate as li
from lastiterate.bounds import momentum as momentum_positions
from lastiterate.report.sentences import advice
from lastiterate.shifts.momentum.certificate import common_norm
from lastiterate.shifts.optimal_shifts import optimal_shifts
from tests.reference import momentum as reference

from .claims import claim
from .pages import ROOT

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


def first_run():
    """The run at the top of the page."""
    return li.TrainingRun(
        loss=li.Loss(smoothness=0.26, strong_convexity=0.01),
        sensitivity=2.0,
        batches=li.Cyclic(examples=10_240, batch_size=512),
        steps=100,
        step_size=STEP,
        noise_std=4 / 512,
        momentum=BETA,
    )


@claim(
    PAGE,
    r"for the first run on this page noise of (0\.\d+) takes epsilon from (\d\.\d+) to (\d\.\d+)\.",
)
def recommended(noise, before, after):
    report = li.account(first_run())
    (said,) = advice(report, 1e-5)
    assert f"standard deviation {noise} on" in said
    assert round(report.epsilon(1e-5), 2) == float(before)
    assert round(float(re.search(r"epsilon = ([\d.]+):", said)[1]), 2) == float(after)


@claim(PAGE, r"That run needs (0\.\d+) for epsilon (\d):")
def least_release_noise(noise, epsilon):
    rounding = 0.00005
    enough, less = (
        li.account(first_run().replace(release_noise_std=float(noise) + off)).epsilon(1e-5)
        for off in (rounding, -rounding)
    )
    assert enough <= float(epsilon) < less


@claim(
    PAGE, r"participations in earlier epochs are charged (\d+) steps after the end of their epoch"
)
def delay(steps):
    assert int(steps) == momentum_positions._DELAY


@claim(
    PAGE,
    r"at epsilon ([\d.]+), ([\d.]+) and ([\d.]+) and with noise on release, the best of six "
    r"settings of plain steps was ahead of the best six of momentum 0\.5, of momentum 0\.9, of "
    r"Nesterov's form and of an exponential average every time: by ([\d.]+) to ([\d.]+) points "
    r"over the next best, with standard errors of ([\d.]+) to ([\d.]+) points, and by ([\d.]+) to "
    r"([\d.]+) points over momentum 0\.9",
)
def accuracies(low, middle, high, least, most, surest, vaguest, least_of_ball, most_of_ball):
    stored = json.loads((ROOT / "benchmarks" / "momentum_accuracy.json").read_text())
    assert set(stored) == {"mnist", "adult"}
    rows = [kinds for by_epsilon in stored.values() for kinds in by_epsilon.values()]
    asked = {float(one) for by_epsilon in stored.values() for one in by_epsilon}
    assert asked == {float(one) for one in (low, middle, high)}

    def ahead(kinds, others):
        best = max(kinds[kind]["accuracy"] for kind in others)
        return 100 * (kinds["plain"]["accuracy"] - best)

    others = set(rows[0]) - {"plain"}
    gaps = [ahead(kinds, others) for kinds in rows]
    of_ball = [ahead(kinds, ["momentum 0.9"]) for kinds in rows]
    errors = [100 * one["error"] for kinds in rows for one in kinds.values()]
    assert min(gaps) > 0.0
    assert [round(min(gaps), 2), round(max(gaps), 1)] == [float(least), float(most)]
    assert [round(min(of_ball), 1), round(max(of_ball), 1)] == [
        float(least_of_ball),
        float(most_of_ball),
    ]
    assert [round(min(errors), 2), round(max(errors), 2)] == [float(surest), float(vaguest)]
