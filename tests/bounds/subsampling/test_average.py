"""Batches drawn anew every step: exact laws, simulations, and batches of random size."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

import lastiterate as li
from lastiterate.bounds import quantities
from lastiterate.bounds.catalogue import POISSON
from lastiterate.bounds.subsampling import energy_law
from lastiterate.bounds.subsampling.average import fixed_size_majorant
from lastiterate.profile import GaussianMixtureProfile
from tests.bounds.runs import described
from tests.bounds.subsampling.simulated import simulated_energies
from tests.readme_run import accounted, readme_run
from tests.reference.enumeration import law_of_mu
from tests.slow import slow

AVERAGE = "random-order/sampled/average"
PENALISED = li.Loss(smoothness=32.502, regulariser=0.002)


def epsilon(run, delta=1e-5, bounds=AVERAGE):
    return li.account(run, bounds=bounds).epsilon(delta)


class TestSampled:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        "epochs, most, composition", [(50, 4.10, 4.4381), (100, 5.45, 6.6538), (200, 7.70, 10.1131)]
    )
    def test_reference_values(self, epochs, most, composition):
        run = readme_run(li.SampledWithoutReplacement, epochs)
        report = accounted(run)
        assert report.bound == "random-order/sampled" or epochs > 50
        # The average solves no more than 2,000 steps exactly, as the other stage is better.
        assert report.epsilon(1e-5) <= min(epsilon(run), most)
        assert epsilon(run) <= 1.05 * most
        composed = report.all["composition/sampled"].epsilon(1e-5)
        assert composed == pytest.approx(composition, abs=1e-3)

    @pytest.mark.parametrize("epochs, most", [slow(50, 3.50), slow(100, 5.35), slow(200, 7.65)])
    def test_noise_on_release(self, epochs, most):
        run = readme_run(li.SampledWithoutReplacement, epochs, release_noise_std=0.00316)
        assert 3.0 < li.account(run).epsilon(1e-5) <= most

    @pytest.mark.slow
    def test_converges_where_composition_does_not(self):
        runs = [readme_run(li.SampledWithoutReplacement, epochs, 0.2) for epochs in (200, 20_000)]
        short, long = map(epsilon, runs)
        assert long == pytest.approx(short, rel=0.01)
        composed = [epsilon(run, bounds="composition/sampled") for run in runs]
        assert composed[1] > 10 * composed[0]

    def test_the_next_noise_level_uses_the_same_law(self, monkeypatch):
        run = readme_run(li.SampledWithoutReplacement, 5)
        assert epsilon(run) > 0
        monkeypatch.setattr(energy_law, "coefficients", lambda *_: pytest.fail("computed again"))
        assert epsilon(run.replace(noise_std=0.02)) > 0

    def test_what_is_released_beside_the_last_iterate(self):
        """A published order counts as always taking part; iterates keep amplification."""
        run = readme_run(li.SampledWithoutReplacement, 5)
        report = li.account(run.replace(releases="last-iterate-and-order"))
        assert set(report.all) == {"composition/fixed-order", "fixed-order/convex"}
        assert li.account(run.replace(releases="every-iterate")).bound == "composition/sampled"

    @pytest.mark.parametrize(
        "contraction, diameter",
        [
            (1.0, math.inf), slow(0.9, math.inf), slow(0.5, math.inf),
            slow(0.97, 1.5), slow(0.9, 1.5), (0.5, 1.5),
        ],
    )  # fmt: skip
    @pytest.mark.parametrize("worth", [0.0, 5.0])
    def test_not_below_enumeration(self, contraction, diameter, worth):
        steps, probability = (12 if math.isinf(diameter) else 7), 0.3
        run = described(
            li.SampledWithoutReplacement(10, 3), steps, noise_std=1.0 / 3,
            loss=li.Loss(smoothness=1.0, strong_convexity=1 - contraction),
            release_noise_std=math.sqrt(worth) / 3,
            domain=li.Unbounded() if math.isinf(diameter) else li.Ball(diameter / 3),
        )  # fmt: skip
        mus, chances = law_of_mu(
            steps=steps, probability=probability, contraction=contraction, diameter=diameter,
            worth=worth,
        )  # fmt: skip
        exact = GaussianMixtureProfile(chances, mus)
        bound = li.account(run, bounds=AVERAGE)
        for at in (0.0, 0.5, 1.0, 3.0):
            assert bound.delta(at) >= exact.delta(at) * (1 - 1e-9)
        if contraction == 1.0 and math.isinf(diameter) and not worth:
            assert bound.delta(0.5) <= exact.delta(0.5) * 1.01

    def test_more_steps_never_more_private_but_for_the_grid(self):
        run = readme_run(li.SampledWithoutReplacement, 1, 0.0)
        lengths = (20, 60, 120, 175, 185, 260)
        found = [epsilon(run.replace(steps=steps), 1e-4) for steps in lengths]
        assert all(later >= 0.99 * earlier for earlier, later in pairwise(found))

    def test_near_a_simulation_of_the_mixture(self):
        rng, many = np.random.default_rng(0), 4_000
        energies = simulated_energies(rng, 400, 0.025, 1 - 0.05 * 0.02, many)
        exact = GaussianMixtureProfile(np.full(many, 1 / many), 10 / 15 * np.sqrt(energies))
        ours = li.account(readme_run(li.SampledWithoutReplacement, 10, 0.02), bounds=AVERAGE)
        for at in (0.5, 1.0, 2.0):
            assert 0.9 * exact.delta(at) <= ours.delta(at) <= 1.35 * exact.delta(at)


class TestPoisson:
    def run(self, **changes):
        run = readme_run(li.PoissonSampled, 5)
        return run.replace(**({"loss": PENALISED} | changes))

    def test_as_batches_of_a_fixed_size_where_large_ones_are_rare(self):
        # Steps contract on batches of up to 1,845 examples, nine standard deviations away.
        fixed = epsilon(readme_run(li.SampledWithoutReplacement, 5))
        assert epsilon(self.run(), bounds="random-order") == pytest.approx(fixed, rel=1e-3)

    def test_large_batches_are_charged(self):
        # Steps of 0.0600 contract on batches of up to 1,538 examples: a sixth are larger.
        run = self.run(step_size=0.06)
        assert li.account(run, bounds="random-order").delta(100.0) == 1.0
        cut = li.PoissonSampled(60_000, 1_500, 1_538)
        assert li.account(run.replace(batches=cut), bounds="random-order").delta(100.0) < 1e-6

    def test_only_the_regulariser_makes_steps_contract(self):
        # A batch may be empty, so that what strong convexity the examples have is no help.
        losses = li.Loss(smoothness=32.502, strong_convexity=1.0), li.Loss(smoothness=32.502)
        steep, flat = (epsilon(self.run(loss=loss), bounds="random-order") for loss in losses)
        assert steep == flat

    def test_report_offers_both(self):
        run = self.run(adjacency="zero-out", sensitivity=5.0)
        report = li.account(run)
        assert {"random-order/poisson", "composition/sampled"} <= set(report.all)
        revealed = li.account(run, bounds=["random-order/poisson/average"])
        assert all(revealed.delta(at) >= report.delta(at) for at in (0.1, 1.0, 5.0))
        # The law of what is revealed takes seconds: it is not evaluated where it must be larger.
        assert POISSON.stages[1].is_above(run, report.epsilon(1e-5), 1e-5)
        assert len(POISSON.applying(run)) == 2


class TestLargestBatch:
    """The size of Poisson batches beyond which nothing is promised."""

    @pytest.mark.parametrize("step_size", [0.3, 0.9, 1.2])
    @pytest.mark.parametrize("regulariser", [0.0, 0.05, 0.4])
    def test_smaller_ones_contract_and_larger_ones_are_charged(self, step_size, regulariser):
        examples, size, steps = 60, 12, 30
        loss = li.Loss(smoothness=1.0, regulariser=regulariser)
        batches = li.PoissonSampled(examples, size)
        run = described(batches, steps, loss=loss, step_size=step_size)
        majorant = fixed_size_majorant(run)
        fixed, lost = majorant.run, majorant.exceeded
        own = 1.0 - regulariser
        largest = round((fixed.loss.smoothness - regulariser) / own * size)
        gap = float(quantities.gaps(fixed)[0])
        factors = 1.0 - step_size * (regulariser + own * np.arange(largest + 1) / size)
        assert np.all(np.abs(factors) <= 1.0 - gap + 1e-12)
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
        loss = li.Loss(smoothness=1.5, regulariser=1.5)
        run = described(li.PoissonSampled(60, 10), 20, loss=loss)
        majorant = fixed_size_majorant(run)
        fixed, lost = majorant.run, majorant.exceeded
        assert lost == 0.0
        assert float(quantities.gaps(fixed)[0]) == pytest.approx(0.5)
