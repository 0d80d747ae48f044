"""Lower bounds: below every upper bound, above nothing that an instance does not show."""

import itertools
import math
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given, settings

import lastiterate as li
from lastiterate.bounds.bound import Certainty
from lastiterate.bounds.catalogue import CATALOGUE
from lastiterate.bounds.published import altschuler_talwar as random_walk_lower_bound
from lastiterate.lower_bounds.catalogue import LOWER_BOUNDS
from lastiterate.lower_bounds.drawn_sums import law_of_sum
from lastiterate.profile.lower import (
    BestLowerProfile,
    LowerProfile,
    MeansLowerProfile,
    OneTestLowerProfile,
)
from lastiterate.reproduce import runs as conventions
from lastiterate.run.loss import quadratic_curvatures
from tests.bounds.test_catalogue import runs
from tests.reference import gaussian, papers
from tests.reference.grid import exact_pair
from tests.reference.instances import Instance, Step, linear_map


def square(batches=None, **changes):
    settings = {
        "loss": li.Loss(smoothness=2.0, strong_convexity=0.5),
        "sensitivity": 1.0,
        "batches": batches or li.FullBatch(4),
        "steps": 12,
        "step_size": 0.3,
        "noise_std": 0.5,
    }
    return li.TrainingRun(**{**settings, **changes})


class TestProfiles:
    @pytest.mark.parametrize("mu", [1e-3, 0.3, 1.0, 5.0, 40.0])
    def test_a_single_mean_is_the_gaussian_pair_rounded_down(self, mu):
        lower, upper = MeansLowerProfile([1.0], [mu]), li.GaussianProfile(mu)
        for epsilon in (0.0, 0.1, 1.0, 5.0, 20.0):
            exact = float(gaussian.delta_of_gaussian(mu, epsilon))
            assert lower.delta(epsilon) <= exact
            assert lower.delta(epsilon) == pytest.approx(exact, rel=1e-9, abs=1e-15)
        for delta in (1e-8, 1e-3, 0.2):
            assert lower.epsilon(delta) <= upper.epsilon(delta)
            if upper.epsilon(delta) < 600:
                assert lower.epsilon(delta) == pytest.approx(upper.epsilon(delta), abs=1e-6)
        assert lower.gdp() == mu

    def test_a_test_is_read_in_both_directions(self):
        profile = OneTestLowerProfile(fpr=0.01, power=0.5)
        assert profile.delta(0.0) == pytest.approx(0.49)
        assert profile.epsilon(0.1) == pytest.approx(math.log(0.4 / 0.01))
        other = OneTestLowerProfile(fpr=0.5, power=0.99)
        assert other.epsilon(0.1) == pytest.approx(math.log(0.4 / 0.01))
        assert OneTestLowerProfile(fpr=0.5, power=0.5).epsilon(0.0) == 0.0

    def test_a_mixture_of_equal_means_is_one(self):
        one, two = MeansLowerProfile([1.0], [1.0]), MeansLowerProfile([0.5, 0.5], [1.0, 1.0])
        assert two.epsilon(1e-5) == pytest.approx(one.epsilon(1e-5), rel=1e-3)
        assert two.epsilon(1e-5) <= one.epsilon(1e-5)
        assert two.gdp() == pytest.approx(1.0, rel=1e-6)

    def test_missing_weight_tells_nothing(self):
        whole, part = MeansLowerProfile([1.0], [2.0]), MeansLowerProfile([0.3], [2.0])
        assert 0.0 < part.epsilon(1e-3) < whole.epsilon(1e-3)

    def test_of_none_nothing(self):
        nothing = BestLowerProfile(())
        assert nothing.epsilon(1e-5) == nothing.delta(0.0) == nothing.gdp() == 0.0
        assert nothing.tests()[0].size == 1

    def test_they_are_no_guarantees(self):
        assert not issubclass(LowerProfile, li.PrivacyProfile)
        with pytest.raises(li.InvalidParameter):
            li.compose(MeansLowerProfile([1.0], [1.0]))

    @pytest.mark.parametrize("epsilon", [-1.0, math.nan])
    def test_refusals(self, epsilon):
        with pytest.raises(li.InvalidParameter, match="epsilon must be"):
            MeansLowerProfile([1.0], [1.0]).delta(epsilon)
        with pytest.raises(li.InvalidParameter, match="delta must be"):
            OneTestLowerProfile(0.1, 0.2).epsilon(epsilon)
        with pytest.raises(ValueError, match="at most 1"):
            MeansLowerProfile([0.7, 0.7], [1.0, 1.0])


class TestRecords:
    @pytest.mark.parametrize("bound", LOWER_BOUNDS.values(), ids=lambda bound: bound.id)
    def test_are_complete(self, bound):
        assert bound.certainty is Certainty.LOWER
        assert bound.id not in CATALOGUE
        assert bound.gives
        assert str(bound.source)
        for heading in (
            "**Bound.**",
            "**Holds when.**",
            "**Tight",
            "**Source.**",
            "**Computed as**",
        ):
            assert heading in bound.evaluate.__doc__

    def test_are_refused_as_upper_bounds(self):
        with pytest.raises(li.InvalidParameter, match="bounds must be"):
            li.account(square(), bounds="lower/quadratic")


@pytest.mark.parametrize("count", [100, pytest.param(300, marks=pytest.mark.slow)])
def test_no_upper_bound_below_any_lower_bound(count):
    """Over runs of every kind, at several deltas."""
    compared = set()

    def epsilons(profile):
        return np.array([profile.epsilon(delta) for delta in (1e-6, 1e-2)])

    def check(run):
        known = {b.id: epsilons(b.profile(run)) for b in LOWER_BOUNDS.values() if not b.unmet(run)}
        upper = [b for b in CATALOGUE.values() if b.certainty is Certainty.UPPER and known]
        for bound in upper:
            if bound.unmet(run) or "chien-li" in bound.id:  # which take long
                continue
            certified = epsilons(bound.profile(run)) * (1 + 1e-12)
            for id_, least in known.items():
                compared.add((bound.id, id_))
                assert np.all(least <= certified), (bound.id, id_)

    settings(max_examples=count)(given(run=runs())(check))()
    for rule in (li.Cyclic, li.ShuffledOnce, li.SampledWithoutReplacement):
        check(square(rule(6, 2), noise_std=2.0, steps=4))
    assert {id_ for _, id_ in compared} >= {"lower/quadratic"}
    assert len({id_ for id_, _ in compared}) >= 12


class TestQuadratics:
    def test_exact_for_full_batches(self):
        run = square()
        report = li.account(run)
        assert report.lower.gdp() == pytest.approx(report.gdp(), rel=1e-6)
        assert 1.0 <= report.ratio_to_lower_bound(1e-5) < 1.0 + 1e-6

    def test_reference_value_of_a_cyclic_run(self):
        run = li.TrainingRun(
            loss=li.Loss(smoothness=32.502, strong_convexity=0.002),
            sensitivity=10.0,
            batches=li.Cyclic(60_000, 1_500),
            steps=2_000,
            step_size=0.05,
            noise_std=0.01,
        )
        lower = LOWER_BOUNDS["lower/quadratic"].profile(run)
        assert lower.epsilon(1e-5) == pytest.approx(3.126, abs=5e-4)

    @pytest.mark.parametrize("seed", range(6))
    def test_is_what_the_instance_shows(self, seed):
        """By pushing both densities through every step."""
        rng = np.random.default_rng(seed)
        steps, period, release = 9, int(rng.integers(1, 4)), float(rng.choice([0.0, 0.2]))
        run = square(
            batches=li.Cyclic(period, 1), steps=steps, release_noise_std=release, sensitivity=0.8
        )
        c, s = 1 - 0.3 * 0.5, 0.3 * 0.8
        made = []
        for k in range(1, steps + 1):
            differs = (steps - k) % period == 0
            made.append(Step(linear_map(c), linear_map(c, s * differs), 0.15))
        pair = exact_pair(Instance(0.0, tuple(made), release))
        lower = LOWER_BOUNDS["lower/quadratic"].profile(run)
        for epsilon in (0.0, 0.5, 1.0):
            assert lower.delta(epsilon) >= pair.delta(epsilon) * (1 - 1e-6) - 1e-9

    def test_shuffled_and_sampled_mixtures(self):
        run = square(batches=li.ShuffledOnce(4, 1), loss=li.Loss(smoothness=2.0))
        mixture = [
            (
                0.25,
                Instance(
                    0.0,
                    tuple(
                        Step(linear_map(1.0), linear_map(1.0, 0.3 * (k % 4 == j)), 0.15)
                        for k in range(12)
                    ),
                ),
            )
            for j in range(4)
        ]
        pair = exact_pair(mixture)
        profile = LOWER_BOUNDS["lower/quadratic"].profile(run)
        flat = profile.profiles[0]
        assert flat.delta(0.5) == pytest.approx(pair.delta(0.5), rel=1e-3)
        assert flat.delta(0.5) <= pair.delta(0.5) + 1e-9
        sampled = run.replace(batches=li.SampledWithoutReplacement(4, 1))
        walk = LOWER_BOUNDS["lower/quadratic"].profile(sampled).profiles[0]
        counts = np.arange(13)
        chances = [math.comb(12, k) * 0.25**k * 0.75 ** (12 - k) for k in counts]
        exact = MeansLowerProfile(chances, 0.3 * counts / (0.15 * math.sqrt(12)))
        for epsilon in (0.0, 0.5, 2.0):
            assert walk.delta(epsilon) == pytest.approx(exact.delta(epsilon), rel=1e-3)

    @pytest.mark.parametrize("seed", range(3))
    def test_the_law_of_a_random_sum(self, seed):
        """Against all subsets: never above it, and near."""
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

    def test_a_sum_of_terms_that_are_certain_or_too_many(self):
        assert law_of_sum(np.ones(2_000), 1.0)[1][0] == pytest.approx(2_000.0, rel=1e-6)
        for count in (2_000, 100_000):
            weights, values = law_of_sum(np.ones(count), 0.5)
            assert sum(weights) <= 1.0
            assert np.dot(weights, values) == pytest.approx(0.5 * count, rel=0.05)

    @pytest.mark.parametrize("steps, strong", [(5, 0.5), (6, 0.0)])
    def test_sampled_batches_are_what_the_instance_shows(self, steps, strong):
        run = square(
            batches=li.SampledWithoutReplacement(4, 1),
            steps=steps,
            loss=li.Loss(smoothness=2.0, strong_convexity=strong),
        )
        c = 1 - 0.3 * strong
        mixture = [
            (
                0.25 ** sum(seen) * 0.75 ** (steps - sum(seen)),
                Instance(
                    0.0,
                    tuple(Step(linear_map(c), linear_map(c, 0.3 * v), 0.15) for v in seen),
                ),
            )
            for seen in itertools.product((0, 1), repeat=steps)
        ]
        pair = exact_pair(mixture)
        flattest = LOWER_BOUNDS["lower/quadratic"].profile(run).profiles[0]
        for epsilon in (0.1, 0.5, 1.0):
            assert flattest.delta(epsilon) <= pair.delta(epsilon) + 1e-9
            assert flattest.delta(epsilon) == pytest.approx(pair.delta(epsilon), rel=0.05)

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
    def test_only_losses_that_the_description_admits(self, loss, others, expected):
        assert quadratic_curvatures(square(loss=loss, **others)) == expected

    def test_an_expanding_run(self):
        run = square(loss=li.Loss(smoothness=1.0, convex=False))
        report = li.account(run)
        assert report.lower.gdp() <= report.gdp() * (1 + 1e-9)
        assert report.lower.gdp() > 0.5 * report.gdp()


class TestPublished:
    @pytest.mark.parametrize("K", [1, 30, 400])
    def test_chourasia_theorem_3(self, K):
        symbols = {"S_g": 4.0, "sigma": 0.02, "n": 5000, "eta": 0.02, "K": K}
        run = li.TrainingRun(
            loss=li.Loss(smoothness=1.0, strong_convexity=1.0),
            **conventions.chourasia_ye_shokri(sigma=0.02, S_g=4.0, step_size=0.02),
            batches=li.FullBatch(5000),
            steps=K,
            step_size=0.02,
        )
        mu = LOWER_BOUNDS["published/chourasia-ye-shokri/squared-lower"].profile(run).gdp()
        printed = papers.cys_theorem_3(alpha=10.0, **symbols)
        assert 10.0 * mu**2 / 2 == pytest.approx(printed, rel=1e-8)
        assert printed <= papers.cys_exact(alpha=10.0, **symbols)

    def test_theorem_c_17(self):
        run = square(batches=li.Cyclic(4, 1))
        c, r, steps = 0.85, 2.0, 12
        printed = r * math.sqrt((1 - c**steps) / (1 + c**steps) * (1 - c**2)) / (1 - c**4)
        mu = LOWER_BOUNDS["published/bok-su-altschuler/cyclic-lower"].profile(run).gdp()
        assert mu == pytest.approx(printed, rel=1e-8)

    BOUNDED: ClassVar = {
        "loss": li.Loss(smoothness=1.0),
        "domain": li.Ball(4.0),
        "step_size": 1.0,
        "sensitivity": 1.0,
        "noise_std": 0.15,
    }

    @pytest.mark.parametrize("period, release", [(1, 0.0), (3, 0.0), (2, 0.3)])
    def test_theorem_c_16_is_below_its_instance(self, period, release):
        batches = li.Cyclic(period, 1) if period > 1 else li.FullBatch(1)
        steps = 8 * period
        run = square(**self.BOUNDED, batches=batches, steps=steps, release_noise_std=release)
        lower = LOWER_BOUNDS["published/bok-su-altschuler/bounded-lower"].profile(run)
        made = [
            Step(
                linear_map(1.0),
                linear_map(1.0, float((steps - k) % period == 0)),
                0.15,
                (-2.0, 2.0),
            )
            for k in range(1, steps + 1)
        ]
        pair = exact_pair(Instance(0.0, tuple(made), release))
        for epsilon in (0.0, 1.0, 3.0):
            assert lower.delta(epsilon) <= pair.delta(epsilon) + 1e-9
            assert lower.delta(epsilon) >= 0.98 * pair.delta(epsilon)
        assert lower.gdp() <= li.account(run).gdp()

    def test_theorem_c_16_by_the_law_of_the_walk(self):
        """k = 20, r = 1, T = 60: "x <= 0" alone has 6.6e-10 under drift; mu is within a tenth."""
        run = square(
            loss=li.Loss(smoothness=1.0), domain=li.Ball(20.0), step_size=1.0, sensitivity=1.0,
            noise_std=1.0, batches=li.FullBatch(1), steps=60,
        )  # fmt: skip
        lower = LOWER_BOUNDS["published/bok-su-altschuler/bounded-lower"].profile(run)
        by_levy, by_law = lower.profiles
        assert by_levy.epsilon(1e-5) == pytest.approx(0.69, abs=0.01)
        false, true = by_law.tests()
        sign = false[np.flatnonzero(true == true[-1])[-1]]
        assert true[-1] == pytest.approx(0.5)
        assert math.log(0.5 / sign) == pytest.approx(20.44, abs=0.01)
        assert by_law.epsilon(1e-5) > 37.0
        assert 0.9 * li.account(run).gdp() < lower.gdp() < li.account(run).gdp()

    def test_theorem_c_16_of_long_runs_restarts_at_the_ends(self):
        """The restarted walks give no more than walks from the centre, and nearly as much."""
        long = square(
            loss=li.Loss(smoothness=1.0), domain=li.Ball(6.0), step_size=1.0, sensitivity=0.5,
            noise_std=1.0, batches=li.Cyclic(2, 1), steps=4_000,
        )  # fmt: skip
        bound = LOWER_BOUNDS["published/bok-su-altschuler/bounded-lower"]
        short = bound.profile(long.replace(steps=600))
        assert bound.profile(long).gdp() == pytest.approx(short.gdp(), rel=1e-6)

    def test_theorem_c_16_is_below_the_shifts_and_meets_them_in_short_runs(self):
        rng, ratios = np.random.default_rng(7), []
        bound = LOWER_BOUNDS["published/bok-su-altschuler/bounded-lower"]
        for _ in range(40):
            length, size = int(rng.choice([1, 1, 2, 3])), int(rng.choice([1, 2]))
            run = square(
                loss=li.Loss(smoothness=1.0), domain=li.Ball(10 ** rng.uniform(-1.5, 1.5)),
                step_size=10 ** rng.uniform(-1.0, 0.2), noise_std=1.0,
                sensitivity=size * 10 ** rng.uniform(-1.0, 0.5),
                steps=int(10 ** rng.uniform(0.0, 1.7)),
                batches=li.Cyclic(length * size, size) if length > 1 else li.FullBatch(size),
                release_noise_std=float(rng.choice([0.0, 0.3])),
            )  # fmt: skip
            lower, report = bound.profile(run), li.account(run)
            for delta in (1e-6, 1e-3, 0.1):
                assert lower.epsilon(delta) <= report.epsilon(delta) * (1 + 1e-9)
            ratios.append(lower.gdp() / report.gdp())
        assert 0.999 < max(ratios) <= 1.0

    def test_theorem_c_16_grows_as_the_upper_bound_does(self):
        """Both are of the order of sqrt(L D/(eta n))/sigma: the ratio stays within a constant."""
        ratios = []
        for noise in (0.3, 0.1, 0.03):
            run = square(**{**self.BOUNDED, "noise_std": noise}, batches=li.FullBatch(1), steps=100)
            report = li.account(run)
            ratios.append(report.gdp() / report.lower.gdp())
        assert max(ratios) < 20
        assert min(ratios) >= 1

    def test_theorem_c_16_needs_room_for_the_drift(self):
        bounded = {**self.BOUNDED, "loss": li.Loss(smoothness=1.0, lipschitz=0.5)}
        bound = LOWER_BOUNDS["published/bok-su-altschuler/bounded-lower"]
        assert bound.unmet(square(**bounded, batches=li.FullBatch(1), steps=20))
        assert not bound.unmet(square(**bounded, batches=li.FullBatch(2), steps=20))
        strong = {**self.BOUNDED, "loss": li.Loss(smoothness=1.0, strong_convexity=0.1)}
        assert bound.unmet(square(**strong, batches=li.FullBatch(1), steps=20))

    def test_theorem_4_1(self):
        run = li.TrainingRun(
            loss=li.Loss(smoothness=1.0),
            sensitivity=1.0,
            batches=li.SampledWithoutReplacement(20, 2),
            steps=20_000,
            step_size=1.0,
            noise_std=0.25,
            domain=li.Ball(1e3),
        )
        bound = LOWER_BOUNDS["published/altschuler-talwar/bounded-lower"]
        lower = bound.profile(run)
        assert lower.delta(0.1) > 0.01
        assert lower.delta(0.1) == pytest.approx(0.5 - math.exp(0.1) * 0.015, rel=1e-9)
        assert bound.unmet(run.replace(steps=14_000))
        assert bound.unmet(run.replace(domain=li.Ball(900.0)))
        assert bound.unmet(run.replace(noise_std=30.0))
        # Their event E fails with at most 2 exp(-5.625) + exp(-5); then N(.1, .001) decides.
        failing = 2 * math.exp(-(0.15**2) * 0.75 * 1000 / 3) + math.exp(-(0.1**2) / (2 * 0.001))
        assert 0.5 + math.erf(0.1 / math.sqrt(0.002)) / 2 - failing >= 0.985
        rate = random_walk_lower_bound.renyi_rate(run)
        assert rate.printed == pytest.approx(1e-7 * 100 / (20 * 0.25) ** 2 * 15_000)
        # The divergence of a coin of .985 from a fair one, which the test exhibits.
        fair = (100 * math.log(0.985) + 99 * math.log(2)) / 99
        assert rate.proved == pytest.approx(fair, rel=1e-9)
        shorter = random_walk_lower_bound.renyi_rate(run.replace(steps=4_000))
        assert shorter.proved == pytest.approx(fair / 4, rel=1e-9)
        assert shorter.printed == pytest.approx(1e-7 * 100 / (20 * 0.25) ** 2 * 4_000)
        with pytest.raises(li.NoBoundApplies):
            random_walk_lower_bound.renyi_rate(run.replace(noise_std=30.0))
        assert li.account(run, bounds="composition").epsilon(0.01) > lower.epsilon(0.01)

    def test_a_report_has_the_best(self):
        run = square(**self.BOUNDED, batches=li.FullBatch(1), steps=100)
        report = li.account(run)
        assert 1.0 < report.ratio_to_lower_bound(1e-5) < math.inf
        assert report.lower.epsilon(1e-5) > 0.0

    def test_no_lower_bound_is_an_infinite_gap(self):
        run = square(batches=li.PoissonSampled(40, 4))
        assert li.account(run).ratio_to_lower_bound(1e-5) == math.inf
