"""What rounding costs: computed runs are no further from exact ones than is charged."""

import math

import numpy as np
import pytest
from scipy.special import ndtr

import lastiterate as li
from lastiterate.errors import InvalidParameter
from lastiterate.other_releases import Release
from lastiterate.profile import GaussianProfile
from lastiterate.profile.rounded import RoundedProfile, Rounding
from lastiterate.train import centring
from lastiterate.train.arithmetic import (
    LEAST_CENTRED,
    Problem,
    arithmetic,
    chosen_grid,
    contractions,
    exceeded_with,
    longest_steps,
)
from lastiterate.train.data import bounded
from lastiterate.train.defaults import default_releases, default_run
from lastiterate.train.noise import BITS, Randomness, SeededBits, grid_of
from lastiterate.train.noisy_descent import noisy_descent
from lastiterate.train.objectives import Huber, Logistic, Softmax
from lastiterate.train.settings import RunSettings

from .problems import run_of

RADIUS = math.hypot(1.0, 0.125)


def floored_gaussian(noise, unit, half):
    """Probabilities of floor(Z/unit) = -half, .., half - 1; the ends take what is beyond."""
    edges = np.arange(-half, half + 1) * unit / noise
    found = np.diff(ndtr(edges))
    # From the shorter tail, so that small probabilities keep their digits.
    upper = -np.diff(ndtr(-edges))
    found = np.where(edges[:-1] > 0, upper, found)
    found[0] += ndtr(edges[0])
    found[-1] += ndtr(-edges[-1])
    return found


class RoundedRun:
    """x -> c x + s, rounded somehow to a grid, plus the floor of Gaussian noise; from 0."""

    HALF = 600

    def __init__(self, rng, steps):
        self.c, self.noise = rng.uniform(0.3, 1.0, steps), np.ones(steps)
        self.unit = 2.0 ** -rng.integers(1, 4)
        self.rule = rng.integers(4)
        self.seen = rng.random(steps) < 0.5

    def law(self, shift):
        """The law of the last point, in units, exactly but for float64."""
        numbers = np.arange(-self.HALF, self.HALF)
        law = (numbers == 0).astype(float)
        floors = floored_gaussian(1.0, self.unit, self.HALF)
        for c, seen in zip(self.c, self.seen, strict=True):
            exact = c * numbers + shift * seen / self.unit
            moved = np.zeros_like(law)
            goals = np.clip(self._rounded(exact, numbers), -self.HALF, self.HALF - 1)
            np.add.at(moved, goals + self.HALF, law)
            law = np.convolve(moved, floors)[self.HALF : 3 * self.HALF]
        return law

    def _rounded(self, exact, numbers):
        """Nearest, down, up, or whichever way an adversary likes at this point."""
        down, up = np.floor(exact), np.ceil(exact)
        odd = (numbers % 2).astype(bool)
        return [np.rint(exact), down, up, np.where(odd, down, up)][self.rule].astype(int)

    def charged(self, shift):
        """The guarantee: that of the exact run, and the distance of the rounded one from it."""
        steps = self.c.size
        exact = li.optimal_shifts(
            contraction=self.c, sensitivity=np.where(self.seen, shift, 0.0), noise=np.ones(steps)
        ).mu
        before = np.where(np.arange(steps) > 0, self.unit, 0.0)
        errors = self.unit + self.c * before
        between = li.optimal_shifts(contraction=self.c, sensitivity=errors, noise=np.ones(steps)).mu
        return RoundedProfile(GaussianProfile(exact), Rounding(between, 0.0))


def violations(count, seed):
    rng, worst = np.random.default_rng(seed), 0.0
    epsilons = np.array([0.0, 0.05, 0.2, 0.5, 1.0, 2.0])
    for _ in range(count):
        run = RoundedRun(rng, int(rng.integers(1, 6)))
        shift = rng.uniform(0.0, 2.0)
        p, q = run.law(0.0), run.law(shift)
        promised = run.charged(shift).deltas(epsilons)
        for one, other in ((p, q), (q, p)):
            true = [np.maximum(one - math.exp(e) * other, 0.0).sum() for e in epsilons]
            worst = max(worst, float((np.array(true) - promised).max()))
    return worst


class TestTheorem:
    """Exactly solvable pairs whose steps are rounded on purpose, on coarse grids."""

    def test_no_violation(self):
        assert violations(60, seed=0) <= 1e-9

    @pytest.mark.slow
    def test_no_violation_in_2000(self):
        assert violations(2_000, seed=1) <= 1e-9

    def test_an_exact_guarantee_alone_would_be_violated(self, monkeypatch):
        monkeypatch.setattr(RoundedRun, "charged", lambda self, shift: GaussianProfile(
            li.optimal_shifts(contraction=self.c, noise=np.ones(self.c.size),
                              sensitivity=np.where(self.seen, shift, 0.0)).mu))  # fmt: skip
        assert violations(200, seed=2) > 1e-4


class TestCosts:
    """What rounding adds to epsilon, for runs as the rule makes them."""

    def rise(self, objective, settings, *, examples, width, radius=RADIUS, centred=True):
        features = width if centred else 0
        run = default_run(objective, settings, examples=examples, radius=radius, features=features)
        releases = default_releases(settings, run, features)
        found = arithmetic([run], Problem(objective, width, 1.0, 0.125), releases)
        exact = li.account(run, other_releases=releases)
        rise = exact.computed(found.rounding).epsilon(settings.delta)
        assert found.failure < 1e-15
        assert found.bits == BITS
        return rise - exact.epsilon(settings.delta)

    def test_adult(self):
        settings = RunSettings(epsilon=1.0, delta=1e-5)
        assert 0.0 < self.rise(Logistic(), settings, examples=32_561, width=140) <= 1e-6

    @pytest.mark.slow
    def test_mnist(self):
        settings = RunSettings(epsilon=1.0, delta=1e-5)
        assert 0.0 < self.rise(Softmax(classes=10), settings, examples=60_000, width=784) <= 1e-5

    @pytest.mark.slow
    def test_a_large_head(self):
        settings = RunSettings(epsilon=1.0, delta=1e-6)
        objective = Softmax(classes=1_000)
        assert self.rise(objective, settings, examples=1_281_167, width=2_048) <= 1e-3

    @pytest.mark.slow
    def test_a_million_rows(self):
        loss = li.Loss(smoothness=0.251, regulariser=0.001, lipschitz=1.0)
        run = li.TrainingRun.from_dp_sgd(
            batches=li.PoissonSampled(examples=1_000_000, batch_size=1_000), clip_norm=1.0,
            noise_multiplier=1.0, steps=100_000, step_size=0.5, adjacency="zero-out", loss=loss,
        )  # fmt: skip
        found = arithmetic([run], Problem(Logistic(clip=1.0), 100, 1.0, 0.0))
        exact = li.account(run)
        rise = exact.computed(found.rounding).epsilon(1e-6) - exact.epsilon(1e-6)
        assert 0.0 < rise <= 1e-5
        assert found.failure < 1e-15

    def test_float32_products_could_not_be_charged(self, monkeypatch):
        monkeypatch.setattr("lastiterate.train.arithmetic.UNIT_ROUNDOFF", 2.0**-24)
        run = default_run(Logistic(), RunSettings(), examples=32_561, radius=RADIUS)
        assert arithmetic([run], Problem(Logistic(), 140, 1.0, 0.125)).mu > 1.0


def plain_run(**changes):
    data = bounded(np.zeros((50, 4)), np.zeros(50, dtype=int), bound=1.0, intercept=0.125)
    return run_of(data, li.FullBatch(50), **changes)


PROBLEM = Problem(Logistic(), 4, 1.0, 0.125)


class TestGrid:
    def test_units_are_shares_of_the_noise_rounded_up(self):
        run = plain_run(step_size=0.3, noise_std=0.7, release_noise_std=0.5)
        grid = grid_of((run,), 40)
        assert (grid.noises[:-1] >= 0.3 * 0.7).all()
        np.testing.assert_allclose(grid.units, grid.noises * 2.0**-40)
        assert grid.sizes[-1] == 0.0

    def test_steps_without_noise_have_the_unit_of_the_next_that_has_some(self):
        run = plain_run(steps=4, noise_std=[0.0, 0.2, 0.0, 0.0], release_noise_std=0.5)
        units = grid_of((run,), 40).units * 2.0**40
        np.testing.assert_allclose(units, [0.2 * run.step_size] * 2 + [0.5] * 3)

    @pytest.mark.parametrize("noise", [1e-3, 1e-9, 1e-12])
    def test_no_whole_number_can_overflow(self, noise):
        run = plain_run(noise_std=noise)
        grid, limit = chosen_grid((run,), PROBLEM)
        longest = longest_steps(run, PROBLEM, grid.sizes, limit).max()
        assert (limit + longest) / grid.units.min() + 12 * 2.0**grid.bits < 2.0**62
        assert (grid.bits < BITS) == (noise < 1e-6)

    def test_noise_that_no_grid_holds_is_refused_before_training(self):
        with pytest.raises(InvalidParameter, match="noise_std must be larger"):
            chosen_grid((plain_run(noise_std=1e-17),), PROBLEM)


class TestReach:
    @pytest.mark.parametrize("objective", [Logistic(clip=1.0), Huber(clip=2.0)])
    @pytest.mark.parametrize("l2", [0.0, 0.4])
    def test_iterates_stay_within_it(self, objective, l2):
        """Also of rows that all push the same way, with targets far off."""
        rows = np.full((20, 4), 0.5)
        targets = np.full(20, 1e3) if isinstance(objective, Huber) else np.ones(20, dtype=int)
        data = bounded(rows, targets, bound=1.0, intercept=0.125)
        problem = Problem(objective, 4, 1.0, 0.125)
        for noise in (1e-3, 3.0):
            run = run_of(
                data, li.FullBatch(20), objective=objective, l2=l2, steps=300, noise_std=noise
            )
            _, limit = chosen_grid((run,), problem)
            end = noisy_descent(run, objective, data, Randomness(SeededBits(1)))
            assert np.linalg.norm(end) <= limit

    def test_is_certain_without_noise(self):
        run = plain_run(noise_std=0.0, release_noise_std=0.1, steps=50)
        _, limit = chosen_grid((run,), PROBLEM)
        # A step adds 2 eta log 2 + (eta c R)^2 to the squared norm, at most.
        added = 50 * (2 * run.step_size * math.log(2) + (run.step_size * 0.25 * RADIUS) ** 2)
        noise = 0.01 * (2 * math.log(2) * 5 + 4 * 80)
        assert math.sqrt(added) <= limit <= 1.1 * math.sqrt(2 * added + noise)

    def test_is_that_of_a_ball(self):
        run = plain_run(domain=li.Ball(0.3))
        assert chosen_grid((run,), PROBLEM)[1] <= 0.15 * (1 + 1e-5)

    def test_steps_that_blow_up_have_none(self):
        run = plain_run(l2=5.0, step_size=1.0, steps=2_000)
        with pytest.raises(InvalidParameter, match="noise_std must be"):
            arithmetic([run], PROBLEM)

    def test_is_hardly_ever_exceeded(self):
        assert exceeded_with(100_000) < 1e-29


class TestArithmetic:
    def test_longer_runs_and_more_releases_cost_more(self):
        run = plain_run(release_noise_std=0.5)
        alone = arithmetic([run], PROBLEM)
        longer = arithmetic([run, run.replace(steps=40)], PROBLEM)
        mean = Release("mean", 2.0, 5.0)
        assert alone.mu < longer.mu
        assert alone.failure < longer.failure
        assert alone.reach < longer.reach
        assert alone.mu < arithmetic([run], PROBLEM, [mean]).mu

    @pytest.mark.parametrize("count", [2, 5])
    def test_models_published_one_after_another_cost_the_root_of_the_sum_of_squares(self, count):
        """Whoever holds all of them sees each: no error may be made up for in a later run."""
        curved = plain_run().loss.smoothness
        loss = li.Loss(smoothness=curved, strong_convexity=0.1, regulariser=0.1)
        run = plain_run(steps=20, loss=loss, release_noise_std=0.001)
        alone = arithmetic([run], PROBLEM)
        every = arithmetic([run] * count, PROBLEM)
        assert every.bits == alone.bits
        # Each run by itself reaches less far, and has no larger errors.
        assert every.mu >= math.sqrt(count) * alone.mu
        assert every.mu <= 1.2 * math.sqrt(count) * alone.mu

    def test_contractions_allow_for_large_batches(self):
        """A batch that is larger than its expectation may expand."""
        data = bounded(np.zeros((50, 4)), np.zeros(50, dtype=int), bound=1.0, intercept=0.125)
        run = run_of(data, li.PoissonSampled(50, 5), l2=0.1)
        share = run.batches.size_exceeded_with(1e-30) / 5
        smooth = run.loss.smoothness - 0.1
        expected = max(
            abs(1 - run.step_size * 0.1), abs(1 - run.step_size * (0.1 + share * smooth))
        )
        found = contractions(run, np.array([run.step_size]))[0]
        assert expected <= found <= expected * (1 + 1e-9)

    def test_a_centre_has_the_least_bound_that_is_charged_for(self):
        assert centring._LEAST_BOUND * centring.REACH.times >= LEAST_CENTRED

    def test_sparse_rows_around_a_centre_cost_more(self):
        run = plain_run()
        thin = Problem(Logistic(), 4, 1.0, 0.125, apart=True)
        assert arithmetic([run], thin).mu > arithmetic([run], PROBLEM).mu
