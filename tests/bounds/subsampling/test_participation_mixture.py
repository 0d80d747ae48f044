"""Batches drawn anew every step: exact laws, simulations, the oracle, published theorems."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lastiterate as li
from lastiterate.bounds import quantities
from lastiterate.bounds.subsampling.average import fixed_size_majorant
from lastiterate.bounds.subsampling.bound import POISSON
from lastiterate.profile.gaussian import GaussianMixtureProfile
from tests.bounds.subsampling.participation_energy.test_energy_law import simulated_energies
from tests.readme_run import accounted, readme_run
from tests.reference.enumeration import law_of_mu
from tests.reference.grid import exact_pair
from tests.reference.instances import random_instance
from tests.slow import slow, slow_if


class TestSampled:
    @pytest.mark.slow
    @pytest.mark.parametrize("epochs, most, composition", [(50, 4.10, 4.4381)])
    def test_reference_values(self, epochs, most, composition):
        run = readme_run(li.SampledWithoutReplacement, epochs)
        report = accounted(run)
        assert report.bound == "random-order/sampled" or epochs > 50
        mixture = li.account(run, bounds="random-order/sampled/average").epsilon(1e-5)
        # The average solves no more than 2,000 steps exactly, as the other stage is better.
        assert report.epsilon(1e-5) <= min(mixture, most)
        assert mixture <= 1.05 * most
        assert report.all["composition/sampled"].epsilon(1e-5) == pytest.approx(
            composition, abs=1e-3
        )

    @pytest.mark.parametrize("epochs, most", [(50, 3.50)])
    def test_noise_on_release(self, epochs, most):
        run = readme_run(li.SampledWithoutReplacement, epochs, release_noise_std=0.00316)
        assert 3.0 < li.account(run).epsilon(1e-5) <= most

    @pytest.mark.slow
    @pytest.mark.parametrize("epochs, most", [(100, 5.35), (200, 7.65)])
    def test_more_noise_on_release(self, epochs, most):
        self.test_noise_on_release(epochs, most)

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "epochs, most, composition", [(100, 5.45, 6.6538), (200, 7.70, 10.1131)]
    )
    def test_more_reference_values(self, epochs, most, composition):
        self.test_reference_values(epochs, most, composition)

    @pytest.mark.slow
    def test_converges_where_composition_does_not(self):
        runs = [readme_run(li.SampledWithoutReplacement, epochs, 0.2) for epochs in (200, 20_000)]
        compared = ["random-order/sampled/average", "composition/sampled"]
        reports = [li.account(run, bounds=compared) for run in runs]
        short, long = (report.epsilon(1e-5) for report in reports)
        assert long == pytest.approx(short, rel=0.01)
        composed = [report.all["composition/sampled"].epsilon(1e-5) for report in reports]
        assert composed[1] > 10 * composed[0]

    def test_the_next_noise_level_uses_the_same_law(self, monkeypatch):
        run = readme_run(li.SampledWithoutReplacement, 5)
        assert li.account(run, bounds="random-order/sampled/average").epsilon(1e-5) > 0
        monkeypatch.setattr(
            "lastiterate.bounds.subsampling.energy_law.coefficients",
            lambda *_: pytest.fail("computed again"),
        )
        quieter = run.replace(noise_std=0.02)
        assert li.account(quieter, bounds="random-order/sampled/average").epsilon(1e-5) > 0

    def test_a_published_order_counts_as_always_taking_part(self):
        run = readme_run(li.SampledWithoutReplacement, 5, releases="last-iterate-and-order")
        report = li.account(run)
        assert set(report.all) == {"composition/fixed-order", "fixed-order/convex"}

    def test_every_iterate_keeps_amplification(self):
        report = li.account(readme_run(li.SampledWithoutReplacement, 5, releases="every-iterate"))
        assert report.bound == "composition/sampled"

    @pytest.mark.parametrize(
        "contraction, diameter",
        [
            (1.0, math.inf),
            slow(0.9, math.inf),
            slow(0.5, math.inf),
            slow(0.97, 1.5),
            slow(0.9, 1.5),
            (0.5, 1.5),
        ],
    )
    @pytest.mark.parametrize("worth", [0.0, 5.0])
    def test_not_below_enumeration(self, contraction, diameter, worth):
        steps, probability = (14 if math.isinf(diameter) else 9), 0.3
        run = li.TrainingRun(
            loss=li.Loss(smoothness=1.0, strong_convexity=1 - contraction),
            sensitivity=1.0,
            batches=li.SampledWithoutReplacement(10, 3),
            steps=steps,
            step_size=1.0,
            noise_std=1.0 / 3,
            release_noise_std=math.sqrt(worth) / 3,
            domain=li.Unbounded() if math.isinf(diameter) else li.Ball(diameter / 3),
        )
        mus, chances = law_of_mu(
            steps=steps,
            probability=probability,
            contraction=contraction,
            diameter=diameter,
            worth=worth,
        )
        exact = GaussianMixtureProfile(chances, mus)
        bound = li.account(run, bounds="random-order/sampled/average")
        for epsilon in (0.0, 0.5, 1.0, 3.0):
            assert bound.delta(epsilon) >= exact.delta(epsilon) * (1 - 1e-9)
        if contraction == 1.0 and math.isinf(diameter) and not worth:
            assert bound.delta(0.5) <= exact.delta(0.5) * 1.01

    def test_more_steps_never_more_private_but_for_the_grid(self):
        run = readme_run(li.SampledWithoutReplacement, 1, 0.0)
        epsilons = [
            li.account(run.replace(steps=steps), bounds="random-order/sampled/average").epsilon(
                1e-4
            )
            for steps in (20, 60, 120, 175, 185, 260)
        ]
        assert all(later >= 0.99 * earlier for earlier, later in pairwise(epsilons))

    def test_near_a_simulation_of_the_mixture(self):
        rng = np.random.default_rng(0)
        gap, steps = 0.05 * 0.02, 400
        energies = simulated_energies(rng, steps, 0.025, 1 - gap, 4000)
        exact = GaussianMixtureProfile(np.full(4000, 1 / 4000), 10 / 15 * np.sqrt(energies))
        run = readme_run(li.SampledWithoutReplacement, 10, 0.02)
        ours = li.account(run, bounds="random-order/sampled/average")
        for epsilon in (0.5, 1.0, 2.0):
            delta = exact.delta(epsilon)
            assert 0.9 * delta <= ours.delta(epsilon) <= 1.35 * delta


class TestOracle:
    """The exact law of a one-dimensional run with random batches."""

    @pytest.mark.parametrize("seed", slow_if(bool, range(34)))
    def test_sampled(self, seed):
        rng = np.random.default_rng(seed)
        for _ in range(6):
            steps, size = int(rng.integers(1, 6)), 3
            examples = int(rng.integers(4, 12))
            probability = size / examples
            half = rng.choice([math.inf, 0.5, 2.0])
            strong, eta = rng.choice([0.0, 0.3]), 0.5
            release = rng.choice([0.0, 1.5])
            rule = rng.choice([li.SampledWithoutReplacement, li.PoissonSampled])
            run = li.TrainingRun(
                loss=li.Loss(smoothness=2.0, strong_convexity=strong, regulariser=strong),
                sensitivity=size * rng.uniform(0.3, 2.0) / eta,
                batches=rule(examples, size),
                steps=steps,
                step_size=eta,
                noise_std=1.0 / eta,
                release_noise_std=release,
                domain=li.Unbounded() if math.isinf(half) else li.Ball(2 * half),
            )
            mixture = []
            for code in range(2**steps):
                seen = [k + 1 for k in range(steps) if code >> k & 1]
                chance = probability ** len(seen) * (1 - probability) ** (steps - len(seen))
                instance = random_instance(
                    np.random.default_rng(seed),
                    steps=steps,
                    slope_low=0.0,
                    slope_high=1 - eta * strong,
                    sensitivity=eta * run.sensitivity / size,
                    participations=seen,
                    noise_std=1.0,
                    domain=None if math.isinf(half) else (-half, half),
                    release_noise_std=release,
                    kind="linear",
                )
                mixture.append((chance, instance))
            pair = exact_pair(mixture)
            report = li.account(run)
            for epsilon in (0.0, 0.3, 1.0, 2.0):
                assert pair.delta(epsilon) <= report.delta(epsilon) + 1e-8


class TestPoisson:
    def run(self, **changes):
        return readme_run(li.SampledWithoutReplacement, 5).replace(
            loss=li.Loss(smoothness=32.502, regulariser=0.002),
            batches=li.PoissonSampled(60_000, 1_500),
            **changes,
        )

    def test_as_batches_of_a_fixed_size_where_large_ones_are_rare(self):
        # Steps contract on batches of up to 1,845 examples, nine standard deviations away.
        run = readme_run(li.SampledWithoutReplacement, 5)
        fixed = li.account(run, bounds="random-order/sampled/average")
        ours = li.account(self.run(), bounds="random-order")
        assert ours.epsilon(1e-5) == pytest.approx(fixed.epsilon(1e-5), rel=1e-3)

    def test_large_batches_are_charged(self):
        # Steps of 0.0600 contract on batches of up to 1,538 examples: a sixth are larger.
        run = self.run(step_size=0.06)
        assert li.account(run, bounds="random-order").delta(100.0) == 1.0
        cut = li.PoissonSampled(60_000, 1_500, 1_538)
        assert li.account(run.replace(batches=cut), bounds="random-order").delta(100.0) < 1e-6

    def test_only_the_regulariser_makes_steps_contract(self):
        # A batch may be empty, so that what strong convexity the examples have is no help.
        steep = self.run().replace(loss=li.Loss(smoothness=32.502, strong_convexity=1.0))
        flat = self.run().replace(loss=li.Loss(smoothness=32.502))
        least = [li.account(run, bounds="random-order").epsilon(1e-5) for run in (steep, flat)]
        assert least[0] == least[1]

    def test_report_offers_both(self):
        run = self.run(adjacency="zero-out", sensitivity=5.0)
        report = li.account(run)
        assert {"random-order/poisson", "composition/sampled"} <= set(report.all)
        revealed = li.account(run, bounds=["random-order/poisson/average"])
        assert all(revealed.delta(epsilon) >= report.delta(epsilon) for epsilon in (0.1, 1.0, 5.0))
        # The law of what is revealed takes seconds: it is not evaluated where it must be larger.
        assert POISSON.stages[1].is_above(run, report.epsilon(1e-5), 1e-5)
        assert len(POISSON.applying(run)) == 2


class TestPublished:
    """Theorems of Bok, Su and Altschuler, which ours should not lose to."""

    PAPER = "published/bok-su-altschuler"

    @pytest.mark.slow
    def test_strongly_convex(self):
        run = readme_run(li.SampledWithoutReplacement, 2000, 0.2)
        theirs = li.account(run, bounds=f"{self.PAPER}/sampled-strongly-convex").epsilon(1e-5)
        general = li.account(run, bounds=f"{self.PAPER}/sampled-shifts").epsilon(1e-5)
        composed = li.account(run, bounds="composition/sampled").epsilon(1e-5)
        ours = li.account(run, bounds="random-order").epsilon(1e-5)
        assert ours < 0.5 * theirs
        assert general <= theirs * (1 + 1e-6)
        assert theirs < 0.5 * composed

    def test_bounded_domain(self):
        run = readme_run(li.SampledWithoutReplacement, 1000, 0.0, domain=li.Ball(0.002))
        theirs = li.account(run, bounds=f"{self.PAPER}/sampled-bounded-domain").epsilon(1e-5)
        ours = li.account(run, bounds="random-order").epsilon(1e-5)
        composed = li.account(run, bounds="composition/sampled").epsilon(1e-5)
        assert ours < theirs < composed

    def test_one_step_is_the_theorem_by_hand(self):
        # T = 1: nothing earlier, so C_p(G(2 beta r)) and C_p(G(2 r)) for any beta > 1.
        run = readme_run(li.SampledWithoutReplacement, 1).replace(steps=1)
        theirs = li.account(run, bounds=f"{self.PAPER}/sampled-strongly-convex").delta(0.5)
        twice = run.replace(noise_std=run.noise_std / 2, steps=2)
        least = li.account(twice, bounds="composition/sampled").delta(0.5)
        assert least * (1 - 1e-6) <= theirs <= 1.1 * least

    @pytest.mark.parametrize("change", [{"adjacency": "zero-out"}, {"noise_std": 1e-6}])
    def test_says_why_not(self, change):
        run = readme_run(li.SampledWithoutReplacement, 1).replace(**change)
        with pytest.raises(li.NoBoundApplies, match="sampled-strongly-convex"):
            li.account(run, bounds=f"{self.PAPER}/sampled-strongly-convex")


SHARES, CURVATURES = [1e-6, 1e-4, 1e-2, 0.3, 1.0], [0.0, 1e-6, 1e-3, 0.1, 1.0]
MOVED, RELEASED = [1e-3, 0.3, 3.0], [0.0, 1.0, 30.0]
DOMAINS = [li.Unbounded(), li.Ball(1.0), li.Ball(1e-3)]
# Every value of every setting, and short runs of each length with and without chance.
REGIMES = [
    (1, 1.0, 0.0, 3.0, 0.0, li.Unbounded()),
    (2, 1e-6, 1.0, 0.3, 30.0, li.Ball(1e-3)),
    (17, 0.3, 1e-3, 3.0, 1.0, li.Ball(1.0)),
    (17, 1.0, 0.1, 0.3, 0.0, li.Ball(1e-3)),
    (300, 1e-2, 1e-6, 0.3, 0.0, li.Unbounded()),
    (300, 1e-4, 0.1, 1e-3, 1.0, li.Ball(1.0)),
    (300, 0.3, 0.0, 3.0, 30.0, li.Unbounded()),
]


def sampled_run(steps, share, strong, moved, release, domain):
    examples = 10**6
    size = max(1, round(share * examples))
    return li.TrainingRun(
        loss=li.Loss(smoothness=1.0, strong_convexity=strong),
        sensitivity=size * moved,
        batches=li.SampledWithoutReplacement(examples, size),
        steps=steps,
        step_size=1.0,
        noise_std=1.0,
        release_noise_std=release,
        domain=domain,
    )


def sampled_runs(lengths):
    settings = (lengths, SHARES, CURVATURES, MOVED, RELEASED, DOMAINS)
    return st.builds(sampled_run, *map(st.sampled_from, settings))


def mixture(run):
    rule = "poisson" if isinstance(run.batches, li.PoissonSampled) else "sampled"
    return li.account(run, bounds=f"random-order/{rule}/average").epsilon(1e-5)


class TestRegimes:
    """p T from 1e-6 to 1e6, p from 1e-6 to 1, T from 1 to 1e6."""

    GRID = 0.02

    def check(self, run, factor, rho):
        epsilon = mixture(run)
        assert not math.isnan(epsilon)
        assert li.account(run).epsilon(1e-5) < math.inf
        most = (1 + self.GRID) * epsilon + 1e-3
        assert mixture(run.replace(noise_std=factor)) <= most
        assert mixture(run.replace(sensitivity=run.sensitivity / factor)) <= most
        assert mixture(run.replace(release_noise_std=run.release_noise_std + rho)) <= most
        # Another length may be given another window.
        assert mixture(run.replace(steps=max(1, run.steps // 2))) <= 1.1 * epsilon + 1e-3

    @pytest.mark.parametrize("regime", slow_if(lambda regime: regime[0] > 2, REGIMES), ids=str)
    def test_each_setting(self, regime):
        self.check(sampled_run(*regime), 2.0, 10.0)

    def test_no_setting_is_left_out(self):
        settings = (SHARES, CURVATURES, MOVED, RELEASED, DOMAINS)
        for value, among in zip(list(zip(*REGIMES, strict=True))[1:], settings, strict=True):
            assert all(one in value for one in among)

    @pytest.mark.slow
    @given(run=sampled_runs([1, 2, 17, 300]), factor=st.floats(1.0, 4.0), rho=st.floats(0.0, 100.0))
    @settings(max_examples=20, deadline=None)
    def test_short_runs(self, run, factor, rho):
        self.check(run, factor, rho)

    @pytest.mark.slow
    @given(
        run=sampled_runs([3_000, 10**5, 10**6]), factor=st.floats(1.0, 4.0), rho=st.floats(0, 100)
    )
    @settings(max_examples=12, deadline=None)
    def test_long_runs(self, run, factor, rho):
        self.check(run, factor, rho)


class TestLargestBatch:
    """The size of Poisson batches beyond which nothing is promised."""

    @pytest.mark.parametrize("step_size", [0.3, 0.9, 1.2])
    @pytest.mark.parametrize("regulariser", [0.0, 0.05, 0.4])
    def test_smaller_ones_contract_and_larger_ones_are_charged(self, step_size, regulariser):
        examples, size, steps = 60, 12, 30
        run = li.TrainingRun(
            loss=li.Loss(smoothness=1.0, regulariser=regulariser),
            sensitivity=1.0,
            batches=li.PoissonSampled(examples, size),
            steps=steps,
            step_size=step_size,
            noise_std=1.0,
        )
        majorant = fixed_size_majorant(run)
        fixed, lost = majorant.run, majorant.exceeded
        own = 1.0 - regulariser
        largest = round((fixed.loss.smoothness - regulariser) / own * size)
        gap = float(quantities.gaps(fixed)[0])
        for batch in range(largest + 1):
            factor = 1.0 - step_size * (regulariser + own * batch / size)
            assert abs(factor) <= 1.0 - gap + 1e-12
        p = Fraction(size, examples)
        larger = sum(
            math.comb(examples, k) * p**k * (1 - p) ** (examples - k)
            for k in range(largest + 1, examples + 1)
        )
        assert min(steps * larger, 1) <= lost <= float(steps * larger) * 1.00001 + 1e-300

    def test_contraction_is_kept_where_there_is_room(self):
        loss = li.Loss(smoothness=32.7, regulariser=0.2)
        run = readme_run(li.PoissonSampled, 50).replace(
            loss=loss, sensitivity=5.0, adjacency="zero-out"
        )
        majorant = fixed_size_majorant(run)
        fixed, lost = majorant.run, majorant.exceeded
        assert float(quantities.gaps(fixed)[0]) == pytest.approx(0.05 * 0.2, rel=1e-9)
        assert 0.0 < lost < 1e-8

    def test_losses_of_a_penalty_alone(self):
        run = li.TrainingRun(
            loss=li.Loss(smoothness=1.5, regulariser=1.5),
            sensitivity=1.0,
            batches=li.PoissonSampled(60, 10),
            steps=20,
            step_size=1.0,
            noise_std=1.0,
        )
        majorant = fixed_size_majorant(run)
        fixed, lost = majorant.run, majorant.exceeded
        assert lost == 0.0
        assert float(quantities.gaps(fixed)[0]) == pytest.approx(0.5)
