"""Secret orders: the published numbers, exact mixtures, and the oracle with random batches."""

import math
from itertools import pairwise

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution

import lastiterate as li
from lastiterate import GaussianProfile
from lastiterate.profile.gaussian_mixture import GaussianMixtureProfile
from tests.engine.test_participation import simulated_energies
from tests.reference.enumeration import law_of_mu
from tests.reference.gaussian import delta_of_gaussian
from tests.reference.grid import exact_pair
from tests.reference.instances import random_instance


def mnist(batches, epochs, regulariser=0.002, **others):
    return li.TrainingRun(
        loss=li.Loss(smoothness=32.5 + regulariser, strong_convexity=regulariser),
        sensitivity=10.0,
        batches=batches(60_000, 1_500),
        steps=40 * epochs,
        step_size=0.05,
        noise_std=0.01,
        **others,
    )


class TestShuffled:
    @pytest.mark.parametrize(
        "regulariser, epochs, epsilon",
        [
            (0.002, 50, 3.483),
            (0.002, 100, 4.793),
            (0.002, 200, 6.882),
            (0.004, 50, 3.464),
            (0.004, 100, 4.691),
            (0.004, 200, 6.363),
        ],
    )
    def test_reference_values(self, regulariser, epochs, epsilon):
        once = li.account(mnist(li.ShuffledOnce, epochs, regulariser))
        assert once.epsilon(1e-5) == pytest.approx(epsilon, abs=2e-3)
        assert once.bound == "random-order/shuffled-once"
        each = li.account(mnist(li.ShuffledEachEpoch, epochs, regulariser)).epsilon(1e-5)
        assert once.epsilon(1e-5) <= each <= 1.01 * once.epsilon(1e-5)

    @pytest.mark.parametrize("epochs, epsilon", [(50, 3.1198), (100, 4.6127)])
    def test_with_noise_on_release(self, epochs, epsilon):
        run = mnist(li.ShuffledOnce, epochs, release_noise_std=0.002)
        assert li.account(run).epsilon(1e-5) == pytest.approx(epsilon, abs=5e-4)

    def test_is_the_average_over_positions(self):
        run = mnist(li.ShuffledOnce, 3)
        report = li.account(run)
        mus = [p.gdp() for p in report.by_position()]
        exact = sum(delta_of_gaussian(mu, 0.5) for mu in mus) / 40
        assert exact <= report.delta(0.5) <= exact * (1 + 1e-9)

    def test_examples_left_over_take_no_part(self):
        run = mnist(li.ShuffledOnce, 3)
        some = li.account(run.replace(batches=li.ShuffledOnce(62_000, 1_500), steps=41 * 3))
        all_ = li.account(run.replace(batches=li.ShuffledOnce(61_500, 1_500), steps=41 * 3))
        assert some.delta(1.0) == pytest.approx(all_.delta(1.0) * 61_500 / 62_000, rel=1e-6)

    @pytest.mark.parametrize("batches", [li.ShuffledOnce, li.ShuffledEachEpoch])
    def test_a_published_order_is_charged_at_its_worst(self, batches):
        run = mnist(batches, 50, releases="last-iterate-and-order")
        report = li.account(run)
        assert report.bound == "fixed-order/contractive"
        assert report.epsilon(1e-5) == pytest.approx(4.3392, abs=1e-4)
        assert "stays secret" in str(report.unmet[f"random-order/{_name(batches)}"][0])

    @pytest.mark.parametrize("steps", [4, 5, 7, 8])
    @pytest.mark.parametrize("schedule", [None, "random", "falling"])
    @pytest.mark.parametrize("diameter", [None, 0.3])
    def test_each_epoch_is_not_below_all_orders(self, steps, schedule, diameter):
        """4 batches of one: the exact average over every order of every epoch."""
        rng = np.random.default_rng(steps)
        sizes = 0.2 if schedule is None else rng.uniform(0.1, 0.5, steps)
        if schedule == "falling":
            sizes = np.tile([0.5, 0.05, 0.02, 0.01], 2)[:steps]
        run = li.TrainingRun(
            loss=li.Loss(smoothness=4.0, strong_convexity=0.5),
            sensitivity=1.0,
            batches=li.ShuffledEachEpoch(4, 1),
            steps=steps,
            step_size=sizes,
            noise_std=list(rng.uniform(0.5, 1.0, steps)) if schedule else 1.0,
            domain=li.Unbounded() if diameter is None else li.Ball(diameter),
        )
        mixed = li.account(run, bounds="random-order").delta(0.2)
        total = 0.0
        for first in range(4):
            for second in range(4):
                seen = [k + 1 for k in (first, 4 + second) if k < steps]
                order = run.replace(batches=li.FixedOrder(4, 1, seen))
                total += li.account(order, bounds="fixed-order").delta(0.2) / 16
        assert total <= mixed * (1 + 1e-9)
        assert mixed <= li.account(run, bounds="fixed-order").delta(0.2) * (1 + 1e-9)

    @pytest.mark.parametrize("release", [0.0, 1.0])
    def test_very_many_batches_are_grouped_on_the_safe_side(self, monkeypatch, release):
        run = mnist(li.ShuffledOnce, 1).replace(
            batches=li.ShuffledOnce(300, 1), steps=700, noise_std=10.0, release_noise_std=release
        )
        for batches in (li.ShuffledOnce(300, 1), li.ShuffledEachEpoch(300, 1)):
            exact = li.account(run.replace(batches=batches)).epsilon(1e-4)
            monkeypatch.setattr("lastiterate.bounds.fixed_order._MOST_ALONE", 20)
            grouped = li.account(run.replace(batches=batches)).epsilon(1e-4)
            monkeypatch.undo()
            assert exact * (1 - 1e-12) <= grouped <= exact * 1.05


def _name(batches):
    return {"ShuffledOnce": "shuffled-once", "ShuffledEachEpoch": "shuffled-each-epoch"}[
        batches.__name__
    ]


class TestSampled:
    @pytest.mark.parametrize("epochs, most, composition", [(50, 4.10, 4.4381)])
    def test_reference_values(self, epochs, most, composition):
        report = li.account(mnist(li.SampledWithoutReplacement, epochs))
        assert report.bound == "random-order/sampled"
        assert 4.0 < report.epsilon(1e-5) <= most
        assert report.all["composition/sampled"].epsilon(1e-5) == pytest.approx(
            composition, abs=1e-3
        )

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "epochs, most, composition", [(100, 5.45, 6.6538), (200, 7.70, 10.1131)]
    )
    def test_more_reference_values(self, epochs, most, composition):
        self.test_reference_values(epochs, most, composition)

    def test_converges_where_composition_does_not(self):
        reports = [
            li.account(mnist(li.SampledWithoutReplacement, epochs, 0.2)) for epochs in (200, 20_000)
        ]
        short, long = (report.epsilon(1e-5) for report in reports)
        assert long == pytest.approx(short, rel=0.01)
        composed = [report.all["composition/sampled"].epsilon(1e-5) for report in reports]
        assert composed[1] > 10 * composed[0]

    def test_the_next_noise_level_uses_the_same_law(self, monkeypatch):
        run = mnist(li.SampledWithoutReplacement, 5)
        li.account(run)
        monkeypatch.setattr(
            "lastiterate.engine.participation._coefficient",
            lambda *_: pytest.fail("computed again"),
        )
        assert li.account(run.replace(noise_std=0.02)).epsilon(1e-5) > 0

    def test_a_published_order_counts_as_always_taking_part(self):
        run = mnist(li.SampledWithoutReplacement, 5, releases="last-iterate-and-order")
        report = li.account(run)
        assert set(report.all) == {"composition/fixed-order", "fixed-order/contractive"}

    def test_every_iterate_keeps_amplification(self):
        report = li.account(mnist(li.SampledWithoutReplacement, 5, releases="every-iterate"))
        assert report.bound == "composition/sampled"

    @pytest.mark.parametrize(
        "contraction, diameter",
        [(1.0, math.inf), (0.9, math.inf), (0.5, math.inf), (0.97, 1.5), (0.9, 1.5), (0.5, 1.5)],
    )
    def test_not_below_enumeration(self, contraction, diameter):
        steps, probability = 9, 0.3
        run = li.TrainingRun(
            loss=li.Loss(smoothness=1.0, strong_convexity=1 - contraction),
            sensitivity=1.0,
            batches=li.SampledWithoutReplacement(10, 3),
            steps=steps,
            step_size=1.0,
            noise_std=1.0 / 3,
            domain=li.Unbounded() if math.isinf(diameter) else li.Ball(diameter / 3),
        )
        mus, chances = law_of_mu(
            steps=steps, probability=probability, contraction=contraction, diameter=diameter
        )
        exact = GaussianMixtureProfile(chances, mus)
        bound = li.account(run, bounds="random-order/sampled")
        for epsilon in (0.0, 0.5, 1.0, 3.0):
            assert bound.delta(epsilon) >= exact.delta(epsilon) * (1 - 1e-9)
        if contraction == 1.0 and math.isinf(diameter):
            assert bound.delta(0.5) <= exact.delta(0.5) * 1.01

    def test_more_steps_never_more_private_but_for_the_grid(self):
        run = mnist(li.SampledWithoutReplacement, 1, 0.0)
        epsilons = [
            li.account(run.replace(steps=steps), bounds="random-order").epsilon(1e-4)
            for steps in (20, 60, 120, 175, 185, 260)
        ]
        assert all(later >= 0.99 * earlier for earlier, later in pairwise(epsilons))

    def test_near_a_simulation_of_the_mixture(self):
        rng = np.random.default_rng(0)
        gap, steps = 0.05 * 0.02, 400
        energies = simulated_energies(rng, steps, 0.025, 1 - gap, 4000)
        exact = GaussianMixtureProfile(np.full(4000, 1 / 4000), 10 / 15 * np.sqrt(energies))
        ours = li.account(mnist(li.SampledWithoutReplacement, 10, 0.02), bounds="random-order")
        for epsilon in (0.5, 1.0, 2.0):
            delta = exact.delta(epsilon)
            assert 0.9 * delta <= ours.delta(epsilon) <= 1.35 * delta


class TestOracle:
    """The exact law of a one-dimensional run with random batches."""

    @pytest.mark.parametrize("seed", range(4))
    def test_sampled(self, seed):
        rng = np.random.default_rng(seed)
        for _ in range(6):
            steps, size = int(rng.integers(1, 6)), 3
            examples = int(rng.integers(4, 12))
            probability = size / examples
            half = rng.choice([math.inf, 0.5, 2.0])
            strong, eta = rng.choice([0.0, 0.3]), 0.5
            run = li.TrainingRun(
                loss=li.Loss(smoothness=2.0, strong_convexity=strong),
                sensitivity=size * rng.uniform(0.3, 2.0) / eta,
                batches=li.SampledWithoutReplacement(examples, size),
                steps=steps,
                step_size=eta,
                noise_std=1.0 / eta,
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
                    kind="linear",
                )
                mixture.append((chance, instance))
            pair = exact_pair(mixture)
            report = li.account(run)
            for epsilon in (0.0, 0.3, 1.0, 2.0):
                assert pair.delta(epsilon) <= report.delta(epsilon) + 1e-8


class TestCompositionOfSampledSteps:
    def test_one_step_is_the_subsampled_gaussian(self):
        run = mnist(li.SampledWithoutReplacement, 1).replace(steps=1)
        report = li.account(run, bounds="composition/sampled")
        p, r = 1 / 40, 10 / 15
        for epsilon in (0.1, 0.5, 1.0):
            exact = p * delta_of_gaussian(r, math.log1p(math.expm1(epsilon) / p))
            assert exact <= report.delta(epsilon) <= exact * 1.01 + 1e-9

    def test_always_taking_part_is_gaussian_composition(self):
        run = mnist(li.SampledWithoutReplacement, 1).replace(
            batches=li.SampledWithoutReplacement(1_500, 1_500), steps=25
        )
        report = li.account(run, bounds="composition/sampled")
        exact = GaussianProfile(5 * 10 / 15).epsilon(1e-5)
        assert exact <= report.epsilon(1e-5) <= exact * 1.01

    def test_poisson_is_what_dp_accounting_says(self):
        run = li.TrainingRun.from_dp_sgd(
            loss=li.Loss(convex=False),
            batches=li.PoissonSampled(1000, 20),
            clip_norm=1.0,
            noise_multiplier=1.3,
            steps=200,
            step_size=0.1,
            adjacency="zero-out",
        )
        pld = privacy_loss_distribution.from_gaussian_mechanism(1.3, sampling_prob=0.02)
        expected = pld.self_compose(200).get_epsilon_for_delta(1e-5)
        report = li.account(run)
        assert report.bound == "composition/sampled"
        assert report.epsilon(1e-5) == pytest.approx(expected, rel=1e-4)

    @pytest.mark.parametrize(
        "batches, adjacency",
        [
            (li.SampledWithoutReplacement(1000, 20), "zero-out"),
            (li.PoissonSampled(1000, 20), "replace"),
            (li.PoissonSampled(1000, 20, 40), "zero-out"),
        ],
    )
    def test_other_adjacencies_are_not_covered(self, batches, adjacency):
        run = li.TrainingRun.from_dp_sgd(
            loss=li.Loss(convex=False),
            batches=batches,
            clip_norm=1.0,
            noise_multiplier=1.3,
            steps=200,
            step_size=0.1,
            adjacency=adjacency,
        )
        assert "adjacency" in str(li.account(run).unmet["composition/sampled"][0])

    def test_a_million_steps_that_hide_nothing(self):
        # The sum of linear losses tells the two worlds apart by 60 standard deviations.
        run = li.TrainingRun(
            loss=li.Loss(),
            sensitivity=60_000.0,
            steps=10**6,
            step_size=1.0,
            noise_std=1.0,
            batches=li.SampledWithoutReplacement(10**6, 300_000),
        )
        assert li.account(run).advantage() == 1.0

    @pytest.mark.parametrize("ratio", [1e-3, 0.5, 10.0, 20.0])
    @pytest.mark.parametrize("probability", [1e-6, 1e-2, 1.0])
    @pytest.mark.parametrize("steps", [1, 1000, 10**6])
    def test_extremes_are_answered(self, ratio, probability, steps):
        size = round(probability * 10**6)
        run = li.TrainingRun(
            loss=li.Loss(),
            sensitivity=ratio * size,
            steps=steps,
            step_size=1.0,
            noise_std=1.0,
            batches=li.SampledWithoutReplacement(10**6, size),
        )
        report = li.account(run)
        assert 0.0 <= report.epsilon(1e-5) <= report.all["composition/fixed-order"].epsilon(1e-5)
        # Linear losses: Bin(T, p) r + N(0, T) against N(0, T); one participation at the least.
        leaked = -math.expm1(steps * math.log1p(-probability)) if probability < 1 else 1.0
        once = math.erf(ratio / math.sqrt(steps) / math.sqrt(8))
        assert report.advantage() >= leaked * once * (1 - 1e-6) - 1e-9

    def test_endless_runs_are_left_to_the_last_iterate(self):
        run = li.TrainingRun(
            loss=li.Loss(smoothness=1.0, strong_convexity=1e-2),
            sensitivity=20.0,
            steps=10**9,
            step_size=1.0,
            noise_std=1.0,
            batches=li.SampledWithoutReplacement(1000, 20),
        )
        report = li.account(run)
        assert report.bound == "random-order/sampled"
        assert "composition/sampled" in report.unmet

    def test_too_little_noise_is_left_to_plain_composition(self):
        run = mnist(li.SampledWithoutReplacement, 1).replace(noise_std=1e-5)
        assert "composition/sampled" in li.account(run).unmet
