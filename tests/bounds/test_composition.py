"""Composition: every batch rule charged at its worst, and sampled batches as others have them."""

import math

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.pld.pld_privacy_accountant import PLDAccountant

import lastiterate as li
from lastiterate.bounds import composition as module
from lastiterate.profile import GaussianProfile
from lastiterate.profile.gaussian import SubsampledGaussian
from lastiterate.profile.pld import to_pld
from tests.bounds.runs import described, dp_sgd
from tests.readme_run import readme_run
from tests.reference.gaussian import delta_of_gaussian
from tests.reference.sampled_walk import hockey_stick, sampled_pair
from tests.slow import slow


def composed(batches, steps, noise_std=1.0):
    run = described(
        batches, steps, loss=li.Loss(convex=False), sensitivity=3.0, noise_std=noise_std
    )
    return li.account(run, bounds="composition").gdp()


@pytest.mark.parametrize(
    "batches, participations",
    [
        (li.FullBatch(60), 25), (li.Cyclic(60, 10), 5), (li.ShuffledOnce(65, 10), 5),
        (li.ShuffledEachEpoch(60, 10), 5), (li.SampledWithoutReplacement(60, 10), 25),
        (li.PoissonSampled(60, 10, 20), 25), (li.FixedOrder(60, 10, [1, 2, 3]), 3),
        (li.FixedOrder(60, 10, []), 0),
    ],
)  # fmt: skip
def test_counts_the_most_participations(batches, participations):
    mu = 3.0 / batches.batch_size * math.sqrt(participations)
    assert composed(batches, 25) == pytest.approx(mu, rel=1e-13)
    assert composed(batches, 25, [1.0] * 25) == pytest.approx(mu, rel=1e-13)


@pytest.mark.parametrize(
    "batches, worst",
    [
        (li.FullBatch(6), range(25)), (li.SampledWithoutReplacement(6, 1), range(25)),
        (li.Cyclic(6, 1), [0, 6, 12, 18, 24]), (li.ShuffledEachEpoch(6, 1), [0, 6, 12, 18, 24]),
        (li.FixedOrder(6, 1, [2, 9]), [1, 8]),
    ],
)  # fmt: skip
def test_a_schedule_is_charged_where_it_is_quietest(batches, worst):
    noise = np.linspace(1.0, 2.0, 25)
    mu = 3.0 / batches.batch_size * math.sqrt(sum(1 / noise[k] ** 2 for k in worst))
    assert composed(batches, 25, noise) == pytest.approx(mu, rel=1e-13)


@pytest.mark.parametrize("scale", [1e-250, 1e250])
def test_extreme_noise(scale):
    mu = composed(li.FullBatch(6), 4, [scale] * 4)
    assert mu == pytest.approx(0.5 * 2 / scale, rel=1e-12)


class TestCompositionOfSampledSteps:
    def test_one_step_is_the_subsampled_gaussian(self):
        run = readme_run(li.SampledWithoutReplacement, 1).replace(steps=1)
        report = li.account(run, bounds="composition/sampled")
        p, r = 1 / 40, 10 / 15
        for epsilon in (0.1, 0.5, 1.0):
            exact = p * delta_of_gaussian(r, math.log1p(math.expm1(epsilon) / p))
            assert exact <= report.delta(epsilon) <= exact * 1.01 + 1e-9

    def test_always_taking_part_is_gaussian_composition(self):
        run = readme_run(li.SampledWithoutReplacement, 1).replace(
            batches=li.SampledWithoutReplacement(1_500, 1_500), steps=25
        )
        report = li.account(run, bounds="composition/sampled")
        exact = GaussianProfile(5 * 10 / 15).epsilon(1e-5)
        assert exact <= report.epsilon(1e-5) <= exact * 1.01

    def test_poisson_is_what_dp_accounting_says(self):
        run = dp_sgd(li.PoissonSampled(1000, 20), 200, noise=1.3)
        pld = privacy_loss_distribution.from_gaussian_mechanism(1.3, sampling_prob=0.02)
        expected = pld.self_compose(200).get_epsilon_for_delta(1e-5)
        report = li.account(run)
        assert report.bound == "composition/sampled"
        assert report.epsilon(1e-5) == pytest.approx(expected, rel=1e-4)

    @pytest.mark.parametrize("adjacency", ["zero-out", slow("replace")])
    @pytest.mark.parametrize("levels", [3, slow(20)])
    def test_a_schedule_is_composed_level_by_level(self, adjacency, levels):
        """dp_accounting, step by step: as good with few levels, rounded down with many."""
        noises = np.random.default_rng(levels).permutation(np.linspace(0.8, 1.6, levels))
        run = self.scheduled(li.PoissonSampled(200, 10), adjacency, noises)
        relations = NeighboringRelation
        relation = relations.REPLACE_ONE if adjacency == "replace" else relations.ADD_OR_REMOVE_ONE
        accountant = PLDAccountant(relation, 1e-3)
        for noise in noises:
            accountant.compose(PoissonSampledDpEvent(0.05, GaussianDpEvent(float(noise))))
        exact = accountant.get_epsilon(1e-5)
        found = li.account(run, bounds="composition/sampled").epsilon(1e-5)
        least = li.account(run.replace(noise_std=min(run.noise_std)), bounds="composition/sampled")
        assert exact * (1 - 2e-3) <= found <= exact * (1.002 if levels == 3 else 1.08)
        assert found < 0.9 * least.epsilon(1e-5)

    @pytest.mark.parametrize("levels", [3, slow(20)])
    def test_batches_of_a_fixed_size_under_a_schedule(self, levels):
        noises = np.linspace(0.8, 1.6, levels)
        run = self.scheduled(li.SampledWithoutReplacement(200, 10), "replace", noises)
        most, found, least = (
            li.account(run.replace(noise_std=noise), bounds="composition/sampled").epsilon(1e-5)
            for noise in (min(run.noise_std), run.noise_std, max(run.noise_std))
        )
        assert least < found < 0.9 * most

    def test_levels_are_never_above_the_noise(self):
        noises = np.geomspace(0.5, 5.0, 1_000)
        run = self.scheduled(li.PoissonSampled(2_000, 10), "zero-out", noises)
        counts = module._ratios(run, run.steps, 1.0)
        assert counts.total() == 1_000
        assert len(counts) == 12
        ratios = np.repeat(list(counts), list(counts.values()))
        assert np.all(np.sort(ratios)[::-1] >= 1.0 / noises)
        assert np.all(np.sort(ratios)[::-1] <= 10 ** (1 / 12) * 1.001 / noises)

    @staticmethod
    def scheduled(batches, adjacency, multipliers):
        noise = np.array(multipliers) / batches.batch_size
        run = dp_sgd(batches, len(multipliers), adjacency=adjacency)
        return run.replace(noise_std=noise)

    @pytest.mark.parametrize(
        "batches, adjacency",
        [
            (li.SampledWithoutReplacement(1000, 20), "zero-out"),
            (li.PoissonSampled(1000, 20, 40), "zero-out"),
            (li.PoissonSampled(1000, 20, 40), "replace"),
        ],
    )
    def test_other_adjacencies_are_not_covered(self, batches, adjacency):
        run = dp_sgd(batches, 200, noise=1.3, adjacency=adjacency)
        assert "adjacency" in str(li.account(run).unmet["composition/sampled"][0])

    def test_poisson_batches_of_gradients_of_any_size_are_not_covered(self):
        run = readme_run(li.PoissonSampled, 5)
        assert "any size" in str(li.account(run).unmet["composition/sampled"][0])

    @pytest.mark.parametrize("seed", [0, slow(1), slow(9), 11])
    def test_a_replaced_example_of_poisson_batches(self, seed):
        """Linear losses on a grid, with gradients of any two sizes up to the clip."""
        rng = np.random.default_rng(seed)
        steps, q, clip, size = int(rng.integers(1, 8)), 0.2, 1.5, 4
        run = described(
            li.PoissonSampled(20, size), steps, loss=li.Loss(convex=False), sensitivity=2 * clip,
            clip_norm=clip, noise_std=0.3,
        )  # fmt: skip
        report = li.account(run, bounds="composition/sampled")
        near = 0.0
        for shifts in ((-clip, clip), tuple(rng.uniform(-clip, clip, 2)), (0.0, clip)):
            room = 3.0 * math.sqrt(steps) + steps * clip / size
            laws = sampled_pair(
                steps=steps, slope=1.0, shifts=[shift / size for shift in shifts], q=q, noise=0.3,
                low=-room, high=room, cells=500, clip=False,
            )  # fmt: skip
            for epsilon in (0.1, 0.5, 1.0):
                exact = hockey_stick(*laws, epsilon)
                assert exact <= report.delta(epsilon) * (1 + 1e-4) + 1e-7
                near = max(near, exact / report.delta(epsilon))
        if steps == 1:
            assert near > 0.99

    @pytest.mark.parametrize("p, r", [(0.01, 3.5355), (0.5, 3.0), (1e-3, 1e-9)])
    def test_one_step_as_losses_is_the_curve_itself(self, p, r):
        """Large losses must not cancel, small ones must not take much memory."""
        one = SubsampledGaussian(p, r)
        pld = to_pld(one, discretization=max(2e-4 * min(r, 1.0), 1e-13))
        losses = li.from_pld(pld)
        assert losses.pld._pmf_remove.size < 10**6
        for epsilon in (0.0, 0.1 * r, r, 2 * r):
            exact = one.delta(epsilon)
            assert exact <= losses.delta(epsilon) <= exact * 1.001 + 1e-10

    def test_a_million_steps_that_hide_nothing(self):
        # The sum of linear losses tells the two worlds apart by 60 standard deviations.
        batches = li.SampledWithoutReplacement(10**6, 300_000)
        run = described(batches, 10**6, loss=li.Loss(), sensitivity=60_000.0)
        assert li.account(run).advantage() == 1.0

    @pytest.mark.parametrize(
        "ratio, steps, probability",
        [
            (1e-3, 1, 1e-6), (0.5, 1, 1e-2), (20.0, 1, 1.0), (10.0, 1000, 1e-6),
            (0.5, 1000, 1e-2), (20.0, 1000, 1e-2), (1e-3, 10**6, 1e-6), (20.0, 10**6, 1.0),
            *(slow(ratio, 10**6, 1e-2) for ratio in (1e-3, 0.5, 10.0, 20.0)),
        ],
    )  # fmt: skip
    def test_extremes_are_answered(self, ratio, probability, steps):
        size = round(probability * 10**6)
        batches = li.SampledWithoutReplacement(10**6, size)
        run = described(batches, steps, loss=li.Loss(), sensitivity=ratio * size)
        report = li.account(run)
        assert 0.0 <= report.epsilon(1e-5) <= report.all["composition/fixed-order"].epsilon(1e-5)
        # Linear losses: Bin(T, p) r + N(0, T) against N(0, T); one participation at the least.
        leaked = -math.expm1(steps * math.log1p(-probability)) if probability < 1 else 1.0
        once = math.erf(ratio / math.sqrt(steps) / math.sqrt(8))
        assert report.advantage() >= leaked * once * (1 - 1e-6) - 1e-9

    def test_endless_runs_are_left_to_the_last_iterate(self):
        loss = li.Loss(smoothness=1.0, strong_convexity=1e-2)
        batches = li.SampledWithoutReplacement(1000, 20)
        run = described(batches, 10**9, loss=loss, sensitivity=20.0)
        report = li.account(run)
        assert report.bound == "random-order/sampled"
        assert report.epsilon(1e-5) < report.all["composition/sampled"].epsilon(1e-5) < math.inf

    def test_too_little_noise_is_left_to_plain_composition(self):
        run = readme_run(li.SampledWithoutReplacement, 1).replace(noise_std=1e-5)
        assert "composition/sampled" in li.account(run).unmet
