"""Persons with several examples: never below exactly solved runs, never above k-fold privacy."""

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

import lastiterate as li
from lastiterate.audit import exact
from lastiterate.bounds.bound import with_single_examples
from lastiterate.bounds.catalogue import RECORDS
from lastiterate.other_releases import Release
from lastiterate.profile import GaussianMixtureProfile, GaussianProfile
from lastiterate.profile.gaussian import SubsampledGaussian, several_draws
from lastiterate.profile.group import for_group
from lastiterate.run.batch_rules.base import BatchRule
from tests.bounds.runs import described
from tests.readme_run import accounted
from tests.reference import persons
from tests.slow import slow

EXAMPLES, SIZE, STEPS, STEP, PENALTY, NOISE = 6, 2, 5, 0.5, 0.4, 0.5
EPSILONS = np.array([0.0, 0.3, 1.0, 2.0, 4.0])
KEPT = 1.0 - STEP * PENALTY
WEIGHTS = [KEPT**age for age in range(STEPS - 1, -1, -1)]
Draw = Callable[[int], persons.Law]


def _law(draw: Callable[..., persons.Law], **how: bool) -> Draw:
    return lambda count: draw(EXAMPLES, SIZE, count, WEIGHTS, **how)


def _each_epoch(draw: Callable[..., persons.Law]) -> Draw:
    return lambda count: persons.of_every_epoch(draw, EXAMPLES, SIZE, count, WEIGHTS)


def _together(count: int) -> persons.Law:
    """As many as there is room for in the last batch, the others in that before."""
    there = min(count, SIZE)
    last, before = (persons.seen((STEPS - 1 - back) % 3, 3, WEIGHTS) for back in (0, 1))
    return {there * last + min(count - there, SIZE) * before: 1.0}


LAWS: dict[type[BatchRule], Draw] = {
    li.Cyclic: _together,
    li.ShuffledOnce: _law(persons.of_slots),
    li.ShuffledEachEpoch: _each_epoch(persons.of_slots),
    li.BallsAndBins: _law(persons.of_picks),
    li.BallsAndBinsEachEpoch: _each_epoch(persons.of_picks),
    li.SampledWithoutReplacement: _law(persons.of_steps, apart=False),
    li.PoissonSampled: _law(persons.of_steps, apart=True),
}


def _run(rule: type[BatchRule], adjacency: str, count: int) -> li.TrainingRun:
    return described(
        rule(EXAMPLES, SIZE), STEPS, step_size=STEP, noise_std=NOISE, adjacency=adjacency,
        loss=li.Loss(smoothness=0.5, regulariser=PENALTY, lipschitz=1.0),
        sensitivity=2.0 if adjacency == "replace" else 1.0, examples_per_person=count,
    )  # fmt: skip


QUICKLY_COMPARED = [
    (rule, adjacency, count)
    for rule in (li.Cyclic, li.ShuffledOnce, li.ShuffledEachEpoch)
    for adjacency in ("replace", "zero-out")
    for count in (2, 5)
] + [
    (li.BallsAndBins, "replace", 2),
    (li.PoissonSampled, "zero-out", 2),
    (li.SampledWithoutReplacement, "replace", 2),
]


@pytest.mark.parametrize(
    "rule, adjacency, count",
    [
        case if case in QUICKLY_COMPARED else slow(*case)
        for case in product(LAWS, ("replace", "zero-out"), (2, 3, 5))
    ],
)
def test_guarantees_lie_between_exact_instances_and_multiples(
    rule: type[BatchRule], adjacency: str, count: int
) -> None:
    run = _run(rule, adjacency, count)
    report, alone = li.account(run), accounted(run.replace(examples_per_person=1))
    deviation = STEP * NOISE * math.sqrt(sum(one * one for one in WEIGHTS))
    law = {STEP / SIZE * mean: p for mean, p in LAWS[rule](count).items()}
    exactly = persons.deltas(law, deviation, EPSILONS, mirrored=adjacency == "replace")
    growth = sum(np.exp(i * EPSILONS) for i in range(count))
    assert report.all.keys() == alone.all.keys()
    for id_, profile in report.all.items():
        assert np.all(profile.deltas(EPSILONS) >= exactly - 1e-9), id_
        naive = growth * alone.all[id_].deltas(EPSILONS)
        promised = profile.deltas(count * EPSILONS)
        assert np.all(promised <= np.minimum(naive, 1.0) * (1.0 + 1e-6)), id_


class TestGroupPrivacy:
    def test_what_no_epsilon_covers_is_reached_from_what_is_likely(self):
        """A set of no chance two steps away may be likely one step away."""
        curve = GaussianMixtureProfile([0.999], [1.0], lost=0.001)
        grouped = for_group(curve, 2)
        finite = min(grouped.delta(epsilon) for epsilon in (5.0, 20.0, 50.0))
        assert grouped.delta(math.inf) >= 0.9 * finite

    def test_gaussians_add_up(self) -> None:
        assert for_group(GaussianProfile(0.7), 3).gdp() == pytest.approx(2.1)

    def test_a_curve_that_is_gaussian_gives_nearly_that_of_the_sum(self) -> None:
        curve = GaussianMixtureProfile([0.5, 0.5], [0.6, 0.6])
        grouped = for_group(curve, 3)
        epsilons = np.array([0.0, 0.5, 2.0, 6.0])
        whole = GaussianProfile(1.8).deltas(epsilons)
        assert np.all(whole <= grouped.deltas(epsilons) * (1 + 1e-9))
        assert np.all(grouped.deltas(epsilons) <= 1.1 * whole)

    @pytest.mark.parametrize("probability, ratio", [(0.1, 1.0), (0.01, 3.0)])
    def test_it_covers_the_mixture_that_several_examples_make(
        self, probability: float, ratio: float
    ) -> None:
        count, epsilons = 3, np.array([0.0, 0.1, 0.5, 1.5, 4.0])
        law = {
            j * ratio: math.comb(count, j) * probability**j * (1 - probability) ** (count - j)
            for j in range(count + 1)
        }
        exactly = persons.deltas(law, 1.0, epsilons, mirrored=False)
        grouped = for_group(SubsampledGaussian(probability, ratio), count)
        assert np.all(grouped.deltas(epsilons) >= exactly - 1e-9)

    def test_draws_that_exclude_each_other_are_covered(self) -> None:
        """Two of four slots, of which one is worth 1: it is drawn half of the time."""
        law = several_draws(GaussianMixtureProfile([0.75, 0.25], [0.0, 1.0]), 2, density=4 / 3)
        assert float(law.weights[law.mus >= 1.0].sum()) >= 0.5
        assert law.weights.sum() == pytest.approx(1.0)


class TestBoundsThatSayNothingOfPersons:
    def test_they_refuse_to_evaluate_several_examples(self) -> None:
        run = _run(li.Cyclic, "replace", 2)
        for bound in li.CATALOGUE.values():
            with pytest.raises(ValueError, match="one example per person"):
                bound.evaluate(run)

    def test_who_is_left_out_does_not_curve_the_loss_of_others(self) -> None:
        """On the way to the second example the first is gone, and with it its curvature."""
        run = _run(li.ShuffledOnce, "zero-out", 2)
        curved = li.Loss(smoothness=0.5, strong_convexity=0.4, lipschitz=1.0)
        once = with_single_examples(run.replace(loss=curved))
        assert once.loss.strong_convexity == 0.0
        assert with_single_examples(run).loss.strong_convexity == PENALTY


@pytest.mark.parametrize("count", [2, slow(3), 5])
@pytest.mark.parametrize(
    "rule", [li.ShuffledOnce, li.SampledWithoutReplacement, li.PoissonSampled, li.BallsAndBins]
)
def test_secret_positions_are_worth_more_than_group_privacy(
    rule: type[BatchRule], count: int
) -> None:
    """Rarely seen examples are hardly ever seen together."""
    run = described(
        rule(100_000, 10), 200, loss=li.Loss(smoothness=1.0, lipschitz=1.0), sensitivity=2.0,
        step_size=0.5, noise_std=0.1, examples_per_person=count,
    )  # fmt: skip
    averages = [id_ for id_ in RECORDS if id_.startswith("random-order") and "/average" in id_]
    revealed = [id_ for id_ in averages if rule in RECORDS[id_].covers]
    report = li.account(run, bounds=revealed)
    one_by_one = for_group(li.account(with_single_examples(run), bounds=revealed), count)
    assert report.epsilon(1e-6) < 0.8 * one_by_one.epsilon(1e-6)


def test_a_fixed_order_costs_no_more_than_its_exact_worst_case() -> None:
    loss = li.Loss(smoothness=1.0, strong_convexity=0.1)
    run = described(li.Cyclic(100, 10), 200, loss=loss, examples_per_person=4)
    witness = exact.worst(run)
    assert 1.0 <= witness.ratio < 1.001
    assert witness.certified > exact.worst(run.replace(examples_per_person=1)).certified
    assert li.account(run).lower.epsilon(1e-5) <= witness.certified


class TestTheUnit:
    def test_is_stated(self) -> None:
        report = str(li.account(_run(li.Cyclic, "replace", 3)))
        assert "all examples of one person, at most 3, being replaced" in report
        assert "no person has more than 3 of the examples: nothing here checks" in report

    def test_is_kept_in_files_where_it_is_more_than_one(self) -> None:
        one, three = (_run(li.Cyclic, "replace", count) for count in (1, 3))
        assert "examples_per_person" not in one.to_toml() + one.to_json() + repr(one)
        for run in (one, three):
            assert li.TrainingRun.from_toml(run.to_toml()) == run
            assert li.TrainingRun.from_json(run.to_json()) == run

    @pytest.mark.parametrize("count", [0, -1, 1.5, 7, math.nan])
    def test_is_refused_where_it_means_nothing(self, count: float) -> None:
        with pytest.raises(li.InvalidParameter, match="examples_per_person"):
            _run(li.Cyclic, "replace", count)  # type: ignore[arg-type]

    def test_counts_for_other_releases(self) -> None:
        release = Release.of_mu("accuracy", 0.1, adjacency="replace")
        run = _run(li.Cyclic, "replace", 3)
        bound = "fixed-order/convex"
        alone, beside = (
            li.account(run, bounds=bound, other_releases=also).gdp() for also in ((), (release,))
        )
        assert beside == pytest.approx(math.hypot(alone, 0.3))

    def test_positions_are_those_of_persons(self) -> None:
        run = _run(li.Cyclic, "replace", 2)
        pairs = zip(
            li.account(run).by_position(),
            li.account(run.replace(examples_per_person=1)).by_position(),
            strict=True,
        )
        assert all(two.gdp() == pytest.approx(2 * one.gdp()) for two, one in pairs)
