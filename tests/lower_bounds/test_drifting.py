"""Drifting iterates: instances that are admitted, whose privacy is the engine's upper bound."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lastiterate as li
from lastiterate.lower_bounds.catalogue import LOWER_BOUNDS

DRIFTING = LOWER_BOUNDS["lower/drifting"]
CYCLIC = li.Cyclic(60_000, 1_500)
NON_CONVEX = li.Loss(smoothness=20.0, convex=False)
FALLING = (0.05 / (1 + np.arange(300) / 600)).tolist()


def example(batches, **changes):
    settings = {
        "loss": li.Loss(smoothness=32.502, strong_convexity=0.002), "sensitivity": 10.0,
        "batches": batches, "steps": 2_000, "step_size": 0.05, "noise_std": 0.01,
    }  # fmt: skip
    return li.TrainingRun(**{**settings, **changes})


def minorant_slopes(arrivals, noise):
    """Of each step, by the definition: the largest over starts of the least over ends."""
    sums, noises = np.cumsum(np.append(0.0, arrivals)), np.cumsum(np.append(0.0, noise))
    steps = len(arrivals)

    def slope(i, j):
        return (sums[j] - sums[i]) / (noises[j] - noises[i])

    return np.array(
        [
            max(min(slope(i, j) for j in range(k + 1, steps + 1)) for i in range(k + 1))
            for k in range(steps)
        ]
    )


def told_apart(slopes, shift, noise, seen):
    """mu of the last of x' = slope x + shift (where seen) + noise, step by step."""
    mean = variance = 0.0
    for slope, sees in zip(slopes, seen, strict=True):
        mean, variance = slope * mean + shift * sees, slope**2 * variance + noise**2
    return mean / math.sqrt(variance)


@given(
    pattern=st.lists(st.booleans(), min_size=1, max_size=10).filter(any),
    step=st.floats(0.2, 1.9),
    strong=st.floats(0.0, 0.9) | st.just(-1.0),  # non-convex
)
@settings(max_examples=60)
def test_equals_the_design_carried_through_every_step(pattern, step, strong):
    seen, steps = np.array(pattern), len(pattern)
    run = example(
        li.FixedOrder(10, 1, tuple((np.flatnonzero(seen) + 1).tolist())),
        loss=li.Loss(smoothness=1.0, strong_convexity=max(strong, 0.0), convex=strong >= 0.0),
        sensitivity=1.0, steps=steps, step_size=step, noise_std=0.7,
    )  # fmt: skip
    factors = 1 - step, 1 - step * strong
    c = max(map(abs, factors))
    least = 0.0 if factors[0] <= 0 <= factors[1] else min(map(abs, factors))
    shift, noise = step * 1.0, step * 0.7
    reach = c ** np.arange(steps - 1, -1, -1.0)
    weights = minorant_slopes(shift * reach * seen, np.square(noise * reach))
    for k in range(steps - 2, -1, -1):
        weights[k] = max(weights[k], weights[k + 1] * least / c)
    slopes = np.append(0.0, c * weights[:-1] / np.maximum(weights[1:], 1e-300))
    assert np.all(slopes[1:] <= c * (1 + 1e-12))
    assert np.all(slopes[1:] >= least * (1 - 1e-12))
    found = DRIFTING.profile(run).means[0]
    assert found >= told_apart(slopes, shift, noise, seen) * (1 - 1e-7)
    bound = "fixed-order/convex" if strong >= 0.0 else "fixed-order/non-convex"
    upper = li.account(run).all[bound].gdp()
    assert found <= upper
    if least == 0.0:
        assert found == pytest.approx(upper, rel=1e-7)


class TestTightness:
    """These bounds cannot be improved for losses of which no more is known."""

    @pytest.mark.parametrize(
        "run",
        [
            example(CYCLIC),
            example(CYCLIC, release_noise_std=0.002),
            example(CYCLIC, steps=1_990),
            example(li.Cyclic(60_700, 1_500)),
            example(CYCLIC, loss=li.Loss(smoothness=32.7, strong_convexity=0.2)),
            example(CYCLIC, loss=li.Loss(smoothness=40.0, strong_convexity=0.3)),
            example(li.FullBatch(60_000)),
            example(CYCLIC, steps=300, step_size=FALLING, loss=li.Loss(smoothness=35.0)),
            example(li.Cyclic(6_000, 1_000), steps=12, loss=NON_CONVEX),
            # What arrives first has grown by 1e190, and by 1e795, at the end.
            example(li.Cyclic(6_000, 1_000), steps=631, loss=NON_CONVEX),
            example(CYCLIC, steps=400, loss=NON_CONVEX, release_noise_std=0.002),
        ],
        ids=lambda run: f"{type(run.batches).__name__}-{run.steps}",
    )
    def test_the_ratio_is_one(self, run):
        for delta in (1e-2, 1e-5):
            assert 1.0 <= li.account(run).ratio_to_lower_bound(delta) < 1.0 + 1e-6

    def test_hardly_any_noise(self):
        run = example(CYCLIC, loss=NON_CONVEX, noise_std=1e-150)
        assert 1e100 < DRIFTING.profile(run).means[0] < math.inf

    def test_short_steps_leave_a_gap(self):
        run = example(CYCLIC, step_size=0.01)
        assert 1.01 < li.account(run).ratio_to_lower_bound(1e-5) < 1.25


@pytest.mark.parametrize(
    "changes",
    [
        {"domain": li.Ball(1.0)},
        {"adjacency": "zero-out"},
        {"clip_norm": 5.0},
        {"loss": li.Loss(smoothness=32.5, lipschitz=5.0)},
        {"steps": 2_000_000},
        {"batches": li.ShuffledOnce(60_000, 1_500)},
        # The gradient of a loss of a single curvature cannot change sign along the way.
        {"loss": li.Loss(smoothness=30.0, strong_convexity=30.0)},
    ],
)
def test_only_what_the_description_admits(changes):
    assert DRIFTING.unmet(example(**{"batches": CYCLIC, **changes}))


def test_losses_that_drift():
    """Convex, 1-smooth losses on the line, run many times: the example is second of two."""
    run = example(
        li.Cyclic(2, 1), loss=li.Loss(smoothness=1.0), sensitivity=2.0, steps=4, step_size=1.0,
        noise_std=1.0,
    )  # fmt: skip
    mu = DRIFTING.profile(run).means[0]
    # It arrives in steps 2 and 4: one arrival over two steps' noise, then one over one step's.
    assert mu == pytest.approx(2.0 * math.sqrt(1 / 2 + 1), rel=1e-6)
    assert mu == pytest.approx(li.account(run).gdp(), rel=1e-6)
    speed, room, curvatures = 1e5, 100.0, (1.0, 1.0, 0.0, 0.5)  # forget; keep; keep half

    def gradient(x, places):
        rise = sum(k * np.clip(x - p, -room, room) for k, p in zip(curvatures, places, strict=True))
        return rise - speed

    places = [0.0]
    for _ in range(3):
        known = [*places, *[1e12] * (4 - len(places))]
        places.append(places[-1] - float(gradient(np.array(places[-1]), known)))
    slopes = np.diff(gradient(np.linspace(-1e5, 5e5, 20_001), places)) / 30.0
    assert slopes.min() >= 0.0  # convex
    assert slopes.max() <= 1.0 + 1e-9  # and 1-smooth
    rng, ends = np.random.default_rng(0), []
    for sign in (1, -1):
        x = np.zeros(200_000)
        for k in range(1, 5):
            own = sign * 1.0 if k % 2 == 0 else 0.0  # half of the sensitivity either way
            x = x - gradient(x, places) - own + rng.standard_normal(x.size)
        ends.append(x)
    apart = abs(ends[0].mean() - ends[1].mean()) / np.std(ends[0])
    assert apart == pytest.approx(mu, rel=0.02)


def test_a_step_that_erases_everything():
    run = example(CYCLIC, loss=li.Loss(smoothness=20.0, strong_convexity=20.0))
    assert DRIFTING.profile(run).means[0] == pytest.approx(li.account(run).gdp(), rel=1e-6)
