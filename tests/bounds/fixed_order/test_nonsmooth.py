"""Convex losses without smoothness: hinges, absolute values, quantiles."""

import numpy as np
import pytest

import lastiterate as li
from lastiterate.audit import exact
from lastiterate.bounds.catalogue import RECORDS
from lastiterate.lower_bounds.line_maps import PiecewiseLinear
from lastiterate.lower_bounds.participation import participation
from tests.slow import slow_if

EPSILONS = (0.0, 0.2, 1.0, 2.0, 4.0)
FIXED = RECORDS["fixed-order/non-smooth"]
AVERAGE = RECORDS["random-order/shuffled/average-non-smooth"]
HINGE = li.TrainingRun(
    loss=li.Loss(lipschitz=1.0),
    sensitivity=2.0,
    batches=li.Cyclic(10, 1),
    steps=300,
    step_size=0.05,
    noise_std=4.0,
    domain=li.Ball(1.0),
)


def some_run(rng, rule):
    size, length = int(rng.integers(1, 3)), int(rng.integers(1, 4))
    bound, penalty = float(rng.uniform(0.2, 1.5)), float(rng.choice([0.0, 0.3]))
    adjacency = str(rng.choice(["replace", "zero-out"]))
    return li.TrainingRun(
        loss=li.Loss(lipschitz=bound, regulariser=penalty),
        sensitivity=bound * (2.0 if adjacency == "replace" else 1.0),
        batches=rule(size * length, size),
        steps=int(rng.integers(1, 4 * length + 1)),
        step_size=1.0,
        noise_std=1.0,
        release_noise_std=float(rng.choice([0.0, 0.5])),
        domain=li.Ball(float(rng.uniform(0.5, 4.0))) if rng.random() < 0.6 else li.Unbounded(),
        adjacency=adjacency,
    )


def pair_of(run, rng):
    """Absolute values and hinges on the line; their corners are a little rounded."""
    half = run.domain.diameter / 2 if isinstance(run.domain, li.Ball) else 4.0
    bound, corner = run.loss.lipschitz, 0.15 * half
    size, penalty = run.batches.batch_size, run.loss.regulariser
    centre = float(rng.choice([0.0, rng.uniform(-0.3, 0.3)])) * half
    knots = (-half, centre - corner, centre + corner, half)
    low = float(rng.choice([-bound, 0.0]))
    others = np.array([low, low, bound, bound])
    pulls = rng.choice([-bound, bound]) * np.ones(4)
    own = (pulls, -pulls) if run.adjacency == "replace" else (pulls, np.zeros(4))

    def step_map(gradient):
        values = np.array(knots) * (1 - run.step_size * penalty) - run.step_size * gradient
        slope = 1 - run.step_size * penalty
        return PiecewiseLinear(knots, tuple(values), slope, slope)

    maps = [step_map(others)] + [step_map(((size - 1) * others + one) / size) for one in own]
    domain = (-half, half) if isinstance(run.domain, li.Ball) else None
    step = exact.Step(maps[0], (maps[1], maps[2]), run.step_size * run.noise_std, domain)
    start = float(rng.uniform(-0.5, 0.5)) * half
    return exact.Pair(start, [step] * run.steps, participation(run), run.release_noise_std)


class TestSoundness:
    @pytest.mark.parametrize("seed", slow_if(bool, range(20)))
    @pytest.mark.parametrize("bound", [FIXED, AVERAGE], ids=lambda bound: bound.id)
    def test_exact_instances(self, bound, seed):
        rng = np.random.default_rng(seed)
        ratios = []
        for number in range(6):
            kinds = (li.Cyclic, li.FullBatch) if bound is FIXED else ()
            kinds = kinds or (li.ShuffledOnce, li.ShuffledEachEpoch)
            rule = kinds[number % 2]
            chosen = (lambda n, size: li.FullBatch(n)) if rule is li.FullBatch else rule
            run = some_run(rng, chosen)
            curve, profile = exact.curve(pair_of(run, rng)), bound.profile(run)
            for epsilon in EPSILONS:
                shown, certified = curve.delta(epsilon).lower, profile.delta(epsilon)
                assert shown <= certified, (run, epsilon)
                ratios.append(shown / certified if certified > 1e-6 else 0.0)
        assert max(ratios) > 0.5


class TestTightness:
    def test_converges_where_composition_does_not(self):
        long = FIXED.profile(HINGE.replace(steps=4_000)).gdp()
        assert long == pytest.approx(FIXED.profile(HINGE.replace(steps=2_500)).gdp(), rel=0.05)
        assert long < li.account(HINGE.replace(steps=4_000), bounds="composition").gdp() / 3

    @pytest.mark.parametrize("steps", [1, 10, 40])
    @pytest.mark.parametrize("rule", [li.Cyclic, li.ShuffledOnce, li.ShuffledEachEpoch])
    def test_never_above_composition(self, rule, steps):
        run = HINGE.replace(steps=steps, batches=rule(10, 2))
        composed = li.account(run, bounds="composition").gdp()
        assert FIXED.profile(run).gdp() <= composed * (1 + 1e-9)

    def test_is_chosen(self):
        assert li.account(HINGE).bound == "fixed-order/non-smooth"
        shuffled = li.account(HINGE.replace(batches=li.ShuffledOnce(10, 1)))
        assert shuffled.bound == "random-order/shuffled"
        assert shuffled.epsilon(1e-5) < li.account(HINGE).epsilon(1e-5)


class TestRefusals:
    @pytest.mark.parametrize(
        "changes",
        [
            {"loss": li.Loss(convex=False, lipschitz=1.0)},
            {"loss": li.Loss()},
            {"loss": li.Loss(lipschitz=1.0, regulariser=30.0)},
            {"loss": li.Loss(lipschitz=2.0), "clip_norm": 1.0},
            {"releases": "every-iterate"},
            {"domain": li.Unbounded(), "steps": 5_000},
            {"batches": li.ShuffledEachEpoch(100, 1)},
        ],
    )
    def test_says_why(self, changes):
        assert FIXED.unmet(HINGE.replace(**changes))
