"""The question: what a report answers, and how it fails."""

import math
import pickle
from dataclasses import replace

import numpy as np
import pytest

import lastiterate as li
from lastiterate.other_releases import Release
from lastiterate.profile import BestProfile
from lastiterate.profile.rounded import RoundedProfile, Rounding
from lastiterate.profile.selection import AverageProfile
from tests.readme_run import readme_run
from tests.slow import slow

RUN = li.TrainingRun(
    loss=li.Loss(smoothness=32.502, strong_convexity=0.002), sensitivity=10.0,
    batches=li.Cyclic(examples=60_000, batch_size=1_500), steps=2_000, step_size=0.05,
    noise_std=0.01,
)  # fmt: skip
SHUFFLED = RUN.replace(batches=li.ShuffledOnce(60_000, 1_500))


class TestReport:
    REPORT = li.account(RUN)

    def test_answers_in_every_notion_consistently(self):
        epsilon = self.REPORT.epsilon(delta=1e-5)
        assert round(epsilon, 4) == 4.3392
        assert self.REPORT.delta(epsilon) <= 1e-5
        mu = self.REPORT.gdp()
        assert self.REPORT.renyi(8.0) == pytest.approx(4 * mu**2, rel=1e-12)
        assert self.REPORT.tradeoff(0.05) == li.GaussianProfile(mu).tradeoff(0.05)
        assert self.REPORT.advantage() == self.REPORT.delta(0.0)

    def test_names_the_bound_used(self):
        assert self.REPORT.bound == "fixed-order/convex"
        assert self.REPORT.bound_at(0.1) == "fixed-order/convex"

    def test_is_a_profile(self):
        assert isinstance(self.REPORT, li.PrivacyProfile)
        epsilons = np.array([0.0, 1.0, 5.0])
        assert self.REPORT.deltas(epsilons).tolist() == [self.REPORT.delta(x) for x in epsilons]
        again = li.from_pld(self.REPORT.to_pld()).epsilon(1e-5)
        assert again == pytest.approx(self.REPORT.epsilon(1e-5), rel=1e-2)

    def test_one_bound_alone_composes_as_that_bound(self):
        alone = li.account(SHUFFLED, bounds="random-order/shuffled/average-once")
        inside = alone.all["random-order/shuffled/average-once"]
        assert alone.compose(alone).epsilon(1e-5) == li.compose(inside, inside).epsilon(1e-5)

    def test_its_representation_is_one_line(self):
        assert repr(self.REPORT) == (
            "PrivacyReport(epsilon=4.3392 at delta=1e-05, adjacency='replace', "
            "bound='fixed-order/convex', steps=2000)"
        )

    def test_composes_with_another_run(self):
        twice = self.REPORT.compose(self.REPORT)
        root = self.REPORT.gdp() * math.sqrt(2)
        assert twice.gdp() == pytest.approx(root, rel=1e-12)
        assert self.REPORT.compose(li.GaussianProfile(1.0)).gdp() < 1.5
        assert li.compose(self.REPORT, self.REPORT).gdp() == twice.gdp()
        both = self.REPORT.compose(li.account(SHUFFLED))
        assert self.REPORT.epsilon(1e-5) < both.epsilon(1e-5) < twice.epsilon(1e-5)
        assert both.gdp() == pytest.approx(root, rel=1e-6)

    def test_a_published_order_changes_nothing_for_fixed_orders(self):
        published = li.account(RUN.replace(releases="last-iterate-and-order"))
        assert published.gdp() == self.REPORT.gdp()


class TestSelection:
    def test_by_id_and_by_family(self):
        assert set(li.account(RUN, bounds="composition/fixed-order").all) == {
            "composition/fixed-order"
        }
        assert set(li.account(RUN, bounds="fixed-order").all) == {"fixed-order/convex"}
        both = li.account(RUN, bounds=["composition", "fixed-order/convex"])
        assert len(both.all) == 2

    def test_nothing_more_is_included_by_default(self):
        default, none = li.account(RUN), li.account(RUN, including=None)
        assert list(none.all) == list(default.all)
        assert not any(id_.startswith("published") for id_ in none.all)
        assert len(li.account(RUN, including="published").all) > len(default.all)

    @pytest.mark.parametrize("bounds", ["nonsense", "fixed", ["composition", "x"], [], 3, [3]])
    def test_unknown_ids_are_refused_with_the_known_ones(self, bounds):
        with pytest.raises(li.InvalidParameter, match="bounds must be"):
            li.account(RUN, bounds=bounds)

    def test_where_nothing_applies_the_reasons_are_given(self):
        with pytest.raises(li.NoBoundApplies, match="needs batches of"):
            li.account(RUN, bounds="random-order/shuffled/average-once")
        silent = RUN.replace(noise_std=0.0, release_noise_std=1.0)
        with pytest.raises(li.NoBoundApplies, match="needs noise in every step"):
            li.account(silent.replace(batches=li.PoissonSampled(60_000, 1_500, 60_000)))

    @pytest.mark.parametrize("run", [None, 3, {"steps": 3}])
    def test_what_is_no_run(self, run):
        with pytest.raises(li.InvalidParameter, match="run must be a TrainingRun"):
            li.account(run)


@pytest.mark.parametrize("rule", [li.Cyclic, li.ShuffledOnce, li.ShuffledEachEpoch])
def test_reports_can_be_saved(rule):
    """As models are, which hold one."""
    report = li.account(readme_run(rule))
    assert str(report)  # which evaluates lower bounds
    assert pickle.loads(pickle.dumps(report)).epsilon(1e-5) == report.epsilon(1e-5)


class TestWhatIsCombinedHidesTheSameChange:
    ONE = li.TrainingRun.from_dp_sgd(
        examples=1_000, batch_size=100, epochs=5, clip_norm=2.0, noise_multiplier=5.0,
        batches="cyclic",
    )  # fmt: skip
    OTHERS = (ONE.under("replace"), ONE.replace(examples_per_person=5))

    @pytest.mark.parametrize("other", OTHERS, ids=["adjacency", "persons"])
    def test_or_is_refused(self, other):
        one, other = li.account(self.ONE), li.account(other)
        ways = [
            lambda: li.compose(one, other),
            lambda: one.compose(other),
            lambda: li.compose(one.compose(one), other),
            lambda: li.compose(li.GaussianProfile(1.0), one).compose(other),
            lambda: BestProfile([one, other]),
            lambda: RoundedProfile(one, Rounding(1e-6, 0.0)).compose(other),
            lambda: AverageProfile([one, other]),
        ]
        for way in ways:
            with pytest.raises(li.InvalidParameter, match="for one adjacency") as refused:
                way()
            assert str(one.protected) in str(refused.value)
            assert str(other.protected) in str(refused.value)

    def test_a_plain_profile_says_nothing(self):
        report = li.account(self.ONE)
        both = li.compose(report, li.GaussianProfile(1.0))
        assert both.protected == report.protected
        assert both.epsilon(1e-5) > report.epsilon(1e-5)
        assert li.compose(li.GaussianProfile(1.0), li.GaussianProfile(2.0)).protected is None

    @pytest.mark.parametrize("other", OTHERS, ids=["adjacency", "persons"])
    def test_unlearning(self, other):
        trained = self.ONE.replace(
            loss=li.Loss(smoothness=1.0, regulariser=0.1, lipschitz=2.0), step_size=0.1,
            batches=li.FullBatch(1_000), releases="last-iterate",
        )  # fmt: skip
        plan = li.unlearning(trained, extra_steps=20)
        assert plan.protected == li.account(self.ONE).protected._replace(removed=True)
        assert plan.compose(plan).protected == plan.protected
        for report in (li.account(other), li.account(self.ONE)):
            with pytest.raises(li.InvalidParameter, match="all examples or removed ones"):
                plan.compose(report)

    def test_a_release_moves_as_far_as_the_adjacency_lets_it(self):
        release = Release.of_mu("mean", 0.5, adjacency="zero-out")
        li.account(self.ONE, other_releases=[release])
        with pytest.raises(li.InvalidParameter, match=r"at least 2\.0 for 'mean'"):
            li.account(self.ONE.under("replace"), other_releases=[release])
        with pytest.raises(li.InvalidParameter, match=r"at least 2\.0 for 'mean'"):
            li.account(self.ONE.under("replace")).with_release(release)


class TestTheCatalogueIsTheLibrarys:
    def test_it_cannot_be_changed(self):
        with pytest.raises(TypeError):
            li.CATALOGUE["mine/x"] = li.CATALOGUE["fixed-order/convex"]

    def test_bounds_may_be_given_instead_of_ids(self):
        bound = li.CATALOGUE["published/bok-su-altschuler/cyclic"]
        assert bound.id in li.account(RUN, including=bound).all
        assert bound.id in li.account(RUN, including=[bound, "fixed-order"]).all

    def test_others_are_refused_under_the_right_name(self):
        other = replace(li.CATALOGUE["fixed-order/convex"], id="mine/x")
        with pytest.raises(li.InvalidParameter, match="including must be of the catalogue"):
            li.account(RUN, including=other)
        with pytest.raises(li.InvalidParameter, match="including must be one of"):
            li.account(RUN, including="mine/x")
        with pytest.raises(li.InvalidParameter, match="including must be an id"):
            li.account(RUN, including=3)


def test_a_delta_of_1_promises_nothing_and_is_refused():
    with pytest.raises(li.InvalidParameter, match="delta must be"):
        li.account(RUN).epsilon(1)


def test_a_loss_that_is_its_penalty_alone():
    run = li.TrainingRun(
        loss=li.Loss(smoothness=1.5, regulariser=1.5), sensitivity=1.0, adjacency="zero-out",
        batches=li.PoissonSampled(100, 10), steps=5, step_size=1.0, noise_std=1.0,
    )  # fmt: skip
    report = li.account(run)
    lower = report.lower.epsilon(1e-5)
    assert lower <= report.epsilon(1e-5) < 0.06
    replaced = li.account(run.replace(adjacency="replace"))
    assert 0.0 < replaced.epsilon(1e-5) < math.inf


def test_expanding_maps_overflow_without_a_warning():
    """Warnings are errors in these tests."""
    run = li.TrainingRun(
        loss=li.Loss(smoothness=1.9, convex=False), sensitivity=8.0,
        batches=li.ShuffledEachEpoch(366 * 18, 18), steps=1830, step_size=1.0, noise_std=1.0,
    )  # fmt: skip
    assert li.account(run).epsilon(1e-5) < 5.0


@pytest.mark.parametrize(
    "rule", [li.BallsAndBinsEachEpoch, slow(li.BallsAndBins), slow(li.BalancedSampled)]
)
def test_draws_of_endless_runs_are_counted_and_not_listed(rule):
    run = li.TrainingRun.from_dp_sgd(
        examples=1_000, batch_size=100, epochs=1, clip_norm=1.0, noise_multiplier=5.0
    )
    longer = run.replace(batches=rule(1_000, 100), steps=10**12)
    assert li.account(longer, bounds="composition").epsilon(0.5) > 0.0
    found = li.calibrate(longer.replace(steps=10), epsilon=1.0, delta=1e-5, over="steps").steps
    assert 10 < found < 10**6


class TestACutLastEpoch:
    """Its example's position in the epoch before is as secret as it was."""

    @staticmethod
    def epsilon(rule, steps):
        run = li.TrainingRun(
            loss=li.Loss(smoothness=1.0, regulariser=0.01, lipschitz=1.0), sensitivity=1.0,
            batches=rule(5_000, 100), steps=steps, step_size=1.0, noise_std=0.015,
            adjacency="zero-out",
        )  # fmt: skip
        return li.account(run).epsilon(1e-5)

    @pytest.mark.parametrize("rule", [li.ShuffledBlocksEachEpoch, li.BallsAndBinsEachEpoch])
    def test_costs_little_more_than_a_whole_one(self, rule):
        whole = self.epsilon(rule, 500)
        assert self.epsilon(rule, 501) < 1.15 * whole
        assert self.epsilon(rule, 510) < 1.08 * whole
