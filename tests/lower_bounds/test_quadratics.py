"""Quadratic losses: what is told of them is what a pair of their runs shows."""

import itertools
import math

import numpy as np
import pytest

import lastiterate as li
from lastiterate.lower_bounds.catalogue import LOWER_BOUNDS
from lastiterate.lower_bounds.drawn_sums import law_of_sum
from lastiterate.lower_bounds.momentum_quadratics import linear_steps, released_weights
from lastiterate.profile.lower import MeansLowerProfile
from lastiterate.run.loss import quadratic_curvatures
from tests.lower_bounds.example_runs import dp_sgd, square
from tests.reference import all_orders
from tests.reference.grid import exact_pair
from tests.reference.instances import Instance, Step, linear_map

QUADRATIC = LOWER_BOUNDS["lower/quadratic"]


def instance(c, seen, shift, release=0.0):
    """x' = c x + shift (where seen) + noise .15, as steps of .3 with noise .5 give."""
    steps = tuple(Step(linear_map(c), linear_map(c, shift * float(v)), 0.15) for v in seen)
    return Instance(0.0, steps, release)


class TestAgainstDensities:
    """Both densities are pushed through every step."""

    def test_full_batches_are_exact(self):
        report = li.account(square())
        assert report.lower.gdp() == pytest.approx(report.gdp(), rel=1e-6)
        assert 1.0 <= report.ratio_to_lower_bound(1e-5) < 1.0 + 1e-6

    @pytest.mark.parametrize("seed", range(6))
    def test_cyclic_batches(self, seed):
        rng = np.random.default_rng(seed)
        steps, period, release = 9, int(rng.integers(1, 4)), float(rng.choice([0.0, 0.2]))
        batches = li.Cyclic(period, 1)
        run = square(batches, steps=steps, release_noise_std=release, sensitivity=0.8)
        seen = [(steps - k) % period == 0 for k in range(1, steps + 1)]
        pair = exact_pair(instance(1 - 0.3 * 0.5, seen, 0.3 * 0.8, release))
        lower = QUADRATIC.profile(run)
        for epsilon in (0.0, 0.5, 1.0):
            assert lower.delta(epsilon) >= pair.delta(epsilon) * (1 - 1e-6) - 1e-9

    def test_shuffled_once_is_a_mixture_over_positions(self):
        run = square(li.ShuffledOnce(4, 1), loss=li.Loss(smoothness=2.0))
        places = ([k % 4 == j for k in range(12)] for j in range(4))
        exact = exact_pair([(0.25, instance(1.0, seen, 0.3)) for seen in places]).delta(0.5)
        found = QUADRATIC.profile(run).profiles[0].delta(0.5)
        assert exact * (1 - 1e-3) <= found <= exact + 1e-9

    @pytest.mark.parametrize("steps, strong", [(5, 0.5), (6, 0.0)])
    def test_sampled_batches(self, steps, strong):
        loss = li.Loss(smoothness=2.0, strong_convexity=strong)
        run = square(li.SampledWithoutReplacement(4, 1), steps=steps, loss=loss)
        mixture = [
            (
                0.25 ** sum(seen) * 0.75 ** (steps - sum(seen)),
                instance(1 - 0.3 * strong, seen, 0.3),
            )
            for seen in itertools.product((0, 1), repeat=steps)
        ]
        pair, flattest = exact_pair(mixture), QUADRATIC.profile(run).profiles[0]
        for epsilon in (0.1, 0.5, 1.0):
            assert flattest.delta(epsilon) <= pair.delta(epsilon) + 1e-9
            assert flattest.delta(epsilon) == pytest.approx(pair.delta(epsilon), rel=0.05)

    def test_sampled_batches_of_linear_losses_are_binomial(self):
        run = square(li.SampledWithoutReplacement(4, 1), loss=li.Loss(smoothness=2.0))
        walk, counts = QUADRATIC.profile(run).profiles[0], np.arange(13)
        chances = [math.comb(12, k) * 0.25**k * 0.75 ** (12 - k) for k in counts]
        exact = MeansLowerProfile(chances, 0.3 * counts / (0.15 * math.sqrt(12)))
        for epsilon in (0.0, 0.5, 2.0):
            assert walk.delta(epsilon) == pytest.approx(exact.delta(epsilon), rel=1e-3)

    def test_an_expanding_run(self):
        report = li.account(square(loss=li.Loss(smoothness=1.0, convex=False)))
        assert 0.5 * report.gdp() < report.lower.gdp() <= report.gdp() * (1 + 1e-9)


class TestRandomSums:
    @pytest.mark.parametrize("seed", range(3))
    def test_against_all_subsets(self, seed):
        """Never above it, and near."""
        rng = np.random.default_rng(seed)
        terms, chance = rng.uniform(0.3, 1.0, 9), 0.3
        subsets = (np.arange(2**9)[:, None] >> np.arange(9)) & 1
        sums, sizes = subsets @ terms, subsets.sum(axis=1)
        exact = chance**sizes * (1 - chance) ** (9 - sizes)
        weights, values = map(np.array, law_of_sum(terms, chance))
        assert 1 - 1e-6 < weights.sum() <= 1
        for level in np.linspace(0.0, sums.max(), 23):
            above = exact[sums >= level].sum()
            assert weights[values >= level].sum() <= above + 1e-12
            assert weights[values >= level - 0.15].sum() >= above - 1e-6

    def test_of_terms_that_are_certain_or_too_many(self):
        assert law_of_sum(np.ones(2_000), 1.0)[1][0] == pytest.approx(2_000.0, rel=1e-6)
        for count in (2_000, 100_000):
            weights, values = law_of_sum(np.ones(count), 0.5)
            assert sum(weights) <= 1.0
            assert np.dot(weights, values) == pytest.approx(0.5 * count, rel=0.05)


def ways_of_seeing(batches, steps):
    """The steps that see an example, with their chances: every way there is."""
    length = batches.batches_per_epoch
    if isinstance(batches, li.PoissonSampled):
        for pattern in itertools.product((0, 1), repeat=steps):
            seen = sum(pattern)
            yield batches.share**seen * (1 - batches.share) ** (steps - seen), pattern
        return
    draws = {
        li.BallsAndBins: [length],
        li.BallsAndBinsEachEpoch: [length] * -(-steps // length),
        li.BalancedSampled: [batches.steps_per_draw] * -(-steps // batches.steps_per_draw),
    }[type(batches)]
    often = getattr(batches, "epochs", 1)
    choices = [list(itertools.combinations(range(one), often)) for one in draws]
    ways = list(itertools.product(*choices))
    for way in ways:
        pattern = np.zeros(sum(draws))
        for number, chosen in enumerate(way):
            pattern[number * draws[0] + np.array(chosen)] = 1
        yield 1 / len(ways), np.resize(pattern, steps)


@pytest.mark.parametrize("adjacency", ["replace", "zero-out"])
@pytest.mark.parametrize("optimizer", [{}, {"momentum": 0.6}], ids=["plain", "momentum"])
@pytest.mark.parametrize(
    "batches",
    [
        li.PoissonSampled(12, 4),
        li.BallsAndBins(12, 4),
        li.BallsAndBinsEachEpoch(12, 4),
        li.BalancedSampled(12, 4, epochs=2),
        li.BalancedSampled(12, 4, epochs=1),
    ],
    ids=repr,
)
def test_batches_of_random_size_against_every_way(batches, optimizer, adjacency):
    loss = li.Loss(smoothness=0.5, regulariser=0.3, strong_convexity=0.3, lipschitz=1.0)
    run = dp_sgd(
        batches, steps=8, loss=loss, step_size=0.5, adjacency=adjacency, noise_multiplier=1.5,
        **optimizer,
    )  # fmt: skip
    weights = released_weights(linear_steps(run), np.full(8, 0.3))
    shifts = np.abs(weights) * run.sensitivity / 4 / (run.noise_std * np.linalg.norm(weights))
    chances, patterns = map(np.array, zip(*ways_of_seeing(batches, 8), strict=True))
    moves, epsilons = patterns @ shifts, (0.1, 0.6)
    ours, theirs = (0.5, -0.5) if adjacency == "replace" else (1.0, 0.0)
    found = LOWER_BOUNDS["lower/momentum" if optimizer else "lower/quadratic"].profile(run)
    exact = all_orders.hockey_sticks(ours * moves, theirs * moves, 1.0, epsilons, chances)
    for epsilon, leak in zip(epsilons, exact, strict=True):
        assert 0.98 * leak <= found.delta(epsilon) <= leak * (1 + 1e-5)


def test_balanced_batches_in_long_runs_count_the_last_steps():
    run = dp_sgd(li.BalancedSampled(1_000, 10, epochs=20), steps=4_000, momentum=0.9)
    report = li.account(run)
    assert 0.0 < report.lower.epsilon(1e-5) <= report.epsilon(1e-5)


@pytest.mark.parametrize(
    "loss, others, expected",
    [
        (li.Loss(smoothness=2.0, strong_convexity=0.5), {}, (0.5, 2.0)),
        (li.Loss(smoothness=2.0, regulariser=0.5, lipschitz=1.0), {}, (0.5, 0.5)),
        (li.Loss(smoothness=2.0, strong_convexity=0.5, lipschitz=1.0), {}, None),
        (li.Loss(smoothness=2.0, convex=False), {}, (-2.0, 2.0)),
        (li.Loss(smoothness=2.0, regulariser=0.5, convex=False), {}, (-1.0, 2.0)),
        (li.Loss(holder=(1.0, 0.5)), {}, (0.0, 0.0)),
        (li.Loss(holder=(1.0, 1.0)), {}, (0.0, 1.0)),
        (li.Loss(smoothness=2.0), {"adjacency": "zero-out"}, (0.0, 0.0)),
        (li.Loss(smoothness=2.0), {"clip_norm": 3.0}, (0.0, 0.0)),
        (li.Loss(), {}, (0.0, 1.0 / 0.3)),
        (li.Loss(strong_convexity=5.0), {}, (5.0, 5.0)),
        (li.Loss(strong_convexity=5.0, holder=(1.0, 1.0)), {}, None),
        (li.Loss(strong_convexity=0.5, holder=(1.0, 0.5)), {}, None),
    ],
)
def test_only_losses_that_the_description_admits(loss, others, expected):
    assert quadratic_curvatures(square(loss=loss, **others)) == expected
