"""Runs of any length have an answer that grows with their length, without a jump and in memory."""

from itertools import pairwise

import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

import lastiterate as li
from lastiterate.bounds.catalogue import RECORDS
from lastiterate.bounds.composition import ComposedMomentsProfile, StepPair
from lastiterate.bounds.fixed_order.convex import latest_order_mu
from lastiterate.bounds.subsampling.average import residual_law
from lastiterate.lower_bounds.catalogue import LOWER_BOUNDS
from lastiterate.run.batch_rules.base import BatchRule
from lastiterate.shifts.optimal_shifts import optimal_shifts
from tests.slow import slow, slow_if

LENGTHS = (10**5, 9 * 10**6, 11 * 10**6, 10**9, 10**12)
SAMPLED = (li.SampledWithoutReplacement, li.PoissonSampled)


def _run(rule: type[BatchRule], steps: int, **changes: object) -> li.TrainingRun:
    described = {
        "loss": li.Loss(convex=False, lipschitz=1.0),
        "sensitivity": 2.0,
        "batches": rule(10**9, 1_000),
        "steps": steps,
        "step_size": 0.1,
        "noise_std": 0.002,
    }
    return li.TrainingRun(**(described | changes))  # type: ignore[arg-type]


class TestCompositionOfSampledSteps:
    @pytest.mark.parametrize("rule", slow_if(lambda rule: rule is li.PoissonSampled, SAMPLED))
    def test_there_is_no_cliff(self, rule: type[BatchRule]) -> None:
        found = [
            li.account(_run(rule, steps), bounds="composition/sampled").epsilon(1e-6)
            for steps in LENGTHS
        ]
        for (short, less), (long, more) in pairwise(zip(LENGTHS, found, strict=True)):
            assert less < more < less * 1.3 * max((long / short) ** 0.5, long / short / 20)

    @pytest.mark.parametrize("rule", SAMPLED)
    def test_no_remedy_names_another_rule(self, rule: type[BatchRule]) -> None:
        report = li.account(_run(rule, 10**12), bounds=["composition", "random-order"])
        for id_, reasons in report.unmet.items():
            if rule in li.CATALOGUE[id_].covers:
                named = [other for other in ("sampled", "poisson") if other not in rule.name]
                assert not any(f"random-order/{one}" in str(reasons) for one in named)

    @pytest.mark.parametrize(
        "relation, compared",
        [
            ("ADD_OR_REMOVE_ONE", StepPair.MIXTURE_AND_NORMAL),
            ("REPLACE_ONE", StepPair.MIRRORED_MIXTURES),
        ],
    )
    @pytest.mark.parametrize("chance, ratio", [(0.01, 1.0), (0.1, 0.5), slow(0.001, 2.0)])
    def test_moments_are_above_an_optimistic_account(
        self, relation: str, compared: StepPair, chance: float, ratio: float
    ) -> None:
        steps = 3_000
        optimistic = from_gaussian_mechanism(
            1.0 / ratio,
            sampling_prob=chance,
            pessimistic_estimate=False,
            value_discretization_interval=1e-4,
            use_connect_dots=False,
            neighboring_relation=dp_accounting.NeighboringRelation[relation],
        ).self_compose(steps)
        profile = ComposedMomentsProfile(
            np.array([0.0, ratio]), np.array([1.0 - chance, chance]), steps, compared
        )
        for delta in (1e-3, 1e-6):
            least = optimistic.get_epsilon_for_delta(delta)
            assert least <= profile.epsilon(delta) <= 1.6 * least


class TestManyEpochs:
    def test_blocks_of_epochs_cost_next_to_nothing_and_are_not_below(self) -> None:
        epochs = 60_000
        run = _run(
            li.ShuffledEachEpoch,
            2 * epochs,
            loss=li.Loss(smoothness=1.0),
            batches=li.ShuffledEachEpoch(10, 5),
        )
        last = [range(k + 1, k + 3) for k in range(2 * epochs - 40_000, 2 * epochs, 2)]
        arrivals = np.zeros(2 * epochs)
        arrivals[1::2] = 0.4
        whole = optimal_shifts(contraction=1.0, sensitivity=arrivals, noise=0.002).mu
        assert whole <= latest_order_mu(run, np.inf, last) <= 1.001 * whole

    def test_an_endless_shuffled_run_costs_hardly_more_than_in_one_order(self) -> None:
        run = _run(
            li.ShuffledEachEpoch,
            10**12,
            loss=li.Loss(smoothness=1.0),
            batches=li.ShuffledEachEpoch(10**7, 5),
            noise_std=0.4,
        )
        once = run.replace(batches=li.ShuffledOnce(10**7, 5))
        each, fixed = (li.account(one, bounds="fixed-order").gdp() for one in (run, once))
        assert each <= 1.01 * fixed


class TestEarlySteps:
    def test_what_is_left_of_the_past_does_not_grow_with_its_length(self) -> None:
        past = [
            residual_law(gap=1e-6, steps=steps, probability=1e-6, cap=np.inf)
            for steps in (12 * 10**6, 10**9, 10**12)
        ]
        means = [float(law.levels @ law.masses) for law in past]
        assert means[0] <= means[1] <= means[2] <= means[0] + 1e-2

    @pytest.mark.slow
    def test_hidden_ends_have_no_longest_run(self) -> None:
        run = _run(
            li.SampledWithoutReplacement,
            10**12,
            loss=li.Loss(smoothness=1.0, strong_convexity=1.0),
            batches=li.SampledWithoutReplacement(10_000, 100),
            noise_std=0.02,
        )
        bound = RECORDS["random-order/sampled/amplified-tail"]
        shorter = bound.profile(run.replace(steps=10**5)).epsilon(1e-6)
        assert bound.profile(run).epsilon(1e-6) <= 1.01 * shorter


class TestLowerBounds:
    @pytest.mark.parametrize("curvature, noise", [(0.0, 2e4), (1e-3, 1.0)])
    def test_a_cyclic_run_without_end_fits_into_memory(
        self, curvature: float, noise: float
    ) -> None:
        run = _run(
            li.Cyclic,
            10**12,
            loss=li.Loss(smoothness=1.0, strong_convexity=curvature),
            batches=li.Cyclic(100, 5),
            noise_std=noise,
        )
        report = li.account(run)
        lower = report.lower.epsilon(1e-6)
        assert 0.3 * report.epsilon(1e-6) < lower <= report.epsilon(1e-6)

    def test_the_closed_form_is_that_of_steps_one_by_one(self) -> None:
        run = _run(
            li.Cyclic,
            200_020,
            loss=li.Loss(smoothness=0.02, strong_convexity=0.02),
            batches=li.Cyclic(100, 5),
            noise_std=4.0,
        )
        long, short = (
            LOWER_BOUNDS["lower/quadratic"].profile(one).epsilon(1e-6)
            for one in (run, run.replace(steps=199_980))
        )
        assert long == pytest.approx(short, rel=1e-6)
