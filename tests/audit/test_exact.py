"""The exact oracle: its own error, closed forms, and an oracle that shares nothing with it."""

import math
from itertools import product

import numpy as np
import pytest

import lastiterate as li
from lastiterate.audit import exact
from lastiterate.errors import InvalidParameter, NumericalFailure
from lastiterate.lower_bounds import line as quadrature
from lastiterate.lower_bounds import participation
from lastiterate.lower_bounds.line import PiecewiseLinear, bent, linear
from lastiterate.profile import GaussianProfile
from lastiterate.run.batch_rules.base import RULES, Resampling
from tests.reference.grid import exact_pair
from tests.reference.instances import random_instance
from tests.slow import slow_if

EPSILONS = (0.0, 0.3, 1.0, 3.0)


def random_pair(rng):
    """A pair with kinks, projection or release noise, now and then; and the tests' own form."""
    slopes = np.sort(rng.uniform(-0.9, 1.05, 2))
    half = rng.choice([math.inf, rng.uniform(0.5, 6.0)])
    steps = int(rng.integers(1, 15))
    instance = random_instance(
        rng,
        steps=steps,
        slope_low=slopes[0],
        slope_high=slopes[1],
        sensitivity=10 ** rng.uniform(-1, 0.3),
        participations=range(steps, 0, -int(rng.integers(1, 5))),
        noise_std=10 ** rng.uniform(-0.5, 0.5, steps),
        domain=None if half == math.inf else (-half, half),
        release_noise_std=float(rng.choice([0.0, rng.uniform(0.2, 2.0)])),
    )
    return translated(instance), instance


def translated(instance):
    made = []
    for step in instance.steps:
        maps = [
            PiecewiseLinear(phi.knots, phi.values, phi.left_slope, phi.right_slope)
            for phi in (step.phi, step.phi_other)
        ]
        made.append(exact.Step(maps[0], tuple(maps), step.noise_std, step.clip))
    return exact.Pair(instance.start, made, release_noise_std=instance.release_noise_std)


def shifting(slope, shift, noise_std=1.0, domain=None):
    return exact.Step(linear(slope), (linear(slope), linear(slope, shift)), noise_std, domain)


class TestError:
    @pytest.mark.parametrize("seed", slow_if(lambda seed: seed != 1, range(4)))
    def test_halving_the_grid_changes_delta_by_less_than_the_error(self, seed):
        """25 instances a seed, 100 in all, on grids from coarse to the default."""
        rng = np.random.default_rng(seed)
        for number in range(25):
            pair, _ = random_pair(rng)
            width = (2.0, 4.0, 6.0)[number % 3]
            whole, half = exact.curve(pair, width=width), exact.curve(pair, width=width / 2)
            for epsilon in EPSILONS:
                one, other = whole.delta(epsilon), half.delta(epsilon)
                assert abs(one.middle - other.middle) <= one.error
                assert width > 2.0 or one.error < 1e-8

    def test_the_error_of_a_coarse_grid_is_not_idle(self):
        pair = exact.Pair(0.0, [shifting(1.0, 0.5)] * 6)
        truth = GaussianProfile(0.5 * math.sqrt(6.0)).delta(1.0)
        coarse = exact.curve(pair, width=12.0).delta(1.0)
        assert abs(coarse.middle - truth) > 1e-9
        assert coarse.lower <= truth <= coarse.upper

    def test_lebesgue_constant(self):
        nodes = quadrature.rule()[0]
        x = np.linspace(-1.0, 1.0, 20_001)
        basis = np.polynomial.legendre.legvander(x, nodes.size - 1) @ quadrature.to_legendre()
        assert np.abs(basis).sum(axis=1).max() <= 2 * math.sqrt(nodes.size)


class TestAgreement:
    @pytest.mark.parametrize("seed", range(2))
    def test_with_an_independent_oracle(self, seed):
        rng = np.random.default_rng(50 + seed)
        for _ in range(12):
            pair, instance = random_pair(rng)
            curve, other = exact.curve(pair), exact_pair(instance)
            for epsilon in EPSILONS:
                found = curve.delta(epsilon)
                assert abs(found.middle - other.delta(epsilon)) <= 1e-11 + found.error

    @pytest.mark.parametrize(
        "slope, release",
        [(0.0, 0.7), (0.7, 0.0), (0.7, 0.7), (-0.7, 0.0), (1.0, 0.0), (1.1, 0.7)],
    )
    def test_with_quadratics(self, slope, release):
        steps, shift = 15, 0.4
        reach = slope ** np.arange(steps - 1, -1.0, -1.0)
        mu = abs(shift * reach.sum()) / math.sqrt((reach**2).sum() + release**2)
        curve = exact.curve(exact.Pair(3.0, [shifting(slope, shift)] * steps, None, release))
        gaussian = GaussianProfile(mu)
        for epsilon in EPSILONS:
            found = curve.delta(epsilon)
            assert found.lower <= gaussian.delta(epsilon) <= found.upper + 1e-15
            assert found.error < 1e-9
        found = curve.epsilon(1e-5)
        assert found.lower <= gaussian.epsilon(1e-5) <= found.upper
        assert found.upper - found.lower < 1e-3
        found = curve.tradeoff(0.05)
        assert found.lower <= gaussian.tradeoff(0.05) + 1e-12
        assert gaussian.tradeoff(0.05) <= found.upper <= found.lower + 2e-3
        assert 0.995 < curve.renyi(3.0) / gaussian.renyi(3.0) <= 1.0
        assert 0.999 < curve.lower.gdp() / mu <= 1.0
        assert curve.lower.epsilon(1e-5) == curve.epsilon(1e-5).lower

    def test_noise_that_varies(self):
        noises, slopes = (0.3, 2.0, 0.5), (1.0, 0.2, -0.5)
        steps = [shifting(c, 1.0, n) for c, n in zip(slopes, noises, strict=True)]
        reach = np.array([slopes[1] * slopes[2], slopes[2], 1.0])
        mu = abs(reach.sum()) / math.sqrt(((reach * noises) ** 2).sum())
        found = exact.curve(exact.Pair(0.0, steps)).delta(0.5)
        assert found.lower <= GaussianProfile(mu).delta(0.5) <= found.upper + 1e-15

    def test_everything_on_one_end(self):
        step = shifting(1.0, 0.0, 1e-3, (0.0, 1.0))
        away = exact.Step(linear(1.0, 5.0), (linear(1.0, 5.0), linear(1.0, 6.0)), 1e-3, (0.0, 1.0))
        assert exact.curve(exact.Pair(0.5, [step, away])).delta(0.0).upper < 1e-9


def enumerated(step, patterns):
    """The tests' oracle on the mixture over [(weight, steps taken part in)]."""
    from tests.reference.instances import Instance, Step, linear_map

    slope, shift = step.still.left_slope, step.takes[1].values[0]
    mixture = []
    for weight, seen in patterns:
        made = tuple(
            Step(linear_map(slope), linear_map(slope, shift * taken), step.noise_std, step.domain)
            for taken in seen
        )
        mixture.append((weight, Instance(0.0, made)))
    return exact_pair(mixture)


class TestParticipation:
    """Hidden states against the enumeration of all batches."""

    step = shifting(0.9, 0.8, domain=(-2.0, 2.5))

    def agrees(self, batches, patterns):
        steps = [self.step] * len(patterns[0][1])
        run = li.TrainingRun(
            loss=li.Loss(), sensitivity=1.0, batches=batches, steps=len(steps), step_size=1.0,
            noise_std=1.0,
        )  # fmt: skip
        rule = participation.participation(run)
        curve, other = exact.curve(exact.Pair(0.0, steps, rule)), enumerated(self.step, patterns)
        for epsilon in EPSILONS:
            assert curve.delta(epsilon).middle == pytest.approx(other.delta(epsilon), abs=1e-11)

    def test_sampled(self):
        patterns = [
            (0.3 ** sum(seen) * 0.7 ** (5 - sum(seen)), seen) for seen in product((0, 1), repeat=5)
        ]
        self.agrees(li.SampledWithoutReplacement(10, 3), patterns)

    def test_shuffled_once(self):
        patterns = [(0.3, [int(k % 3 == j) for k in range(7)]) for j in range(3)]
        patterns.append((0.1, [0] * 7))
        self.agrees(li.ShuffledOnce(10, 3), patterns)

    def test_shuffled_each_epoch(self):
        epochs = [(0.3, [1, 0, 0]), (0.3, [0, 1, 0]), (0.3, [0, 0, 1]), (0.1, [0, 0, 0])]
        patterns = [(a * b, x + y) for (a, x), (b, y) in product(epochs, repeat=2)]
        self.agrees(li.ShuffledEachEpoch(10, 3), patterns)

    def test_fixed_orders(self):
        self.agrees(li.FixedOrder(4, 1, [2, 4]), [(1.0, [0, 1, 0, 1])])
        self.agrees(li.Cyclic(3, 1), [(1.0, [1, 0, 0, 1])])
        self.agrees(li.FullBatch(3), [(1.0, [1, 1, 1, 1])])

    @pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
    def test_every_rule_is_a_chain_of_the_positions_it_states(self, rule):
        """How often each step sees an example, from the rule's own word for it."""
        batches = rule.of_sizes(7, 3) if rule.from_sizes and rule.ordered else None
        batches = batches or (rule(7) if rule.from_sizes else rule(7, 3, (1, 4, 6)))
        run = li.TrainingRun(
            loss=li.Loss(), sensitivity=1.0, batches=batches, steps=6, step_size=1.0, noise_std=1.0
        )
        chain = participation.participation(run)
        seen = chain.expected(6)
        if rule.resampling is Resampling.NEVER:
            assert set(np.flatnonzero(seen)) in [
                set(batches.participations(place, 6)) for place in range(batches.position_count(6))
            ]
            assert set(seen) <= {0.0, 1.0}
        else:
            assert seen == pytest.approx(np.full(6, batches.share))
        for k in range(6):
            assert sum(chain.step(k)).sum(axis=1) == pytest.approx(1.0)

    def test_another_position(self):
        run = li.TrainingRun(
            loss=li.Loss(), sensitivity=1.0, batches=li.Cyclic(3, 1), steps=7, step_size=1.0,
            noise_std=1.0,
        )  # fmt: skip
        assert participation.participation(run, position=1).positions == {2, 5}
        with pytest.raises(InvalidParameter, match="position must be"):
            participation.participation(run, position=3)


class TestRefusals:
    @pytest.mark.parametrize("noise", [0.0, -1.0, math.nan])
    def test_noise(self, noise):
        with pytest.raises(InvalidParameter, match="noise_std must be"):
            shifting(1.0, 1.0, noise)

    def test_a_start_outside(self):
        with pytest.raises(InvalidParameter, match="start must be in the domain"):
            exact.Pair(2.0, [shifting(1.0, 1.0, domain=(0.0, 1.0))])

    def test_knots_that_do_not_increase(self):
        with pytest.raises(InvalidParameter, match="knots must be increasing"):
            PiecewiseLinear((1.0, 1.0), (0.0, 1.0), 1.0, 1.0)

    @pytest.mark.parametrize("epsilon", [-1.0, math.nan, math.inf])
    def test_epsilon(self, epsilon):
        with pytest.raises(InvalidParameter, match="epsilon must be"):
            exact.curve(exact.Pair(0.0, [shifting(1.0, 1.0)])).delta(epsilon)

    def test_an_explosion(self):
        with pytest.raises(NumericalFailure, match="too many"):
            exact.curve(exact.Pair(0.0, [shifting(3.0, 1.0)] * 30))

    def test_kinks_are_where_the_slope_changes(self):
        assert bent(0.5, 1.0, 2.0).kinks == (-2.0, 2.0)
        assert linear(0.5).kinks == ()
