"""The least of several: at every point, and evaluated only where it may be the least."""

import math
import pickle

import pytest
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

import lastiterate as li
from lastiterate.bounds.bound import Bound, Certainty
from lastiterate.bounds.catalogue import RECORDS
from lastiterate.bounds.composition import composed_delta_lower_bound
from lastiterate.profile import BestProfile, ZCDPProfile
from lastiterate.profile.best import LazyProfiles
from tests.reference.gaussian import delta_of_gaussian
from tests.slow import slow

RULES = [
    slow(li.ShuffledOnce), li.ShuffledEachEpoch, slow(li.SampledWithoutReplacement),
    li.PoissonSampled,
]  # fmt: skip


class TestBest:
    def test_is_the_best_at_every_point(self):
        gaussian, renyi = li.GaussianProfile(1.0), ZCDPProfile(0.4)
        best = BestProfile([gaussian, renyi])
        for delta in (1e-2, 1e-5, 1e-20):
            assert best.epsilon(delta) == min(gaussian.epsilon(delta), renyi.epsilon(delta))
        assert best.delta(3.0) == min(gaussian.delta(3.0), renyi.delta(3.0))
        assert best.tradeoff(0.05) == max(gaussian.tradeoff(0.05), renyi.tradeoff(0.05))
        assert (best.gdp(), best.renyi(2.0)) == (1.0, min(gaussian.renyi(2.0), renyi.renyi(2.0)))

    @pytest.mark.parametrize("profiles", [[], [1.0], None])
    def test_refuses_what_is_no_profile(self, profiles):
        with pytest.raises(li.InvalidParameter, match="profiles must be"):
            BestProfile(profiles)


def run_of(rule, noise_std=0.04, examples=2_000, steps=400):
    return li.TrainingRun(
        loss=li.Loss(smoothness=1.0, regulariser=0.01), sensitivity=1.0,
        adjacency="zero-out" if rule is li.PoissonSampled else "replace",
        batches=rule(examples, 100), steps=steps, step_size=1.0, noise_std=noise_std,
    )  # fmt: skip


def eagerly(run):
    """Every guarantee and stage, whether it may be the least or not."""
    applying = [
        id_
        for id_, bound in RECORDS.items()
        if not bound.unmet(run) and bound.certainty is Certainty.UPPER
    ]
    return {id_: RECORDS[id_].guarantee(run) for id_ in applying if "published" not in id_}


class TestEvaluatedLazily:
    @pytest.mark.parametrize("rule", RULES)
    def test_leaving_bounds_out_changes_no_answer(self, rule):
        """What is known beforehand is never above a bound, and the least bound is found."""
        run = run_of(rule)
        every, report = eagerly(run), li.account(run)
        for delta in (1e-3, 1e-5, 1e-7):
            epsilons = {id_: one.epsilon(delta) for id_, one in every.items()}
            assert report.epsilon(delta) == min(epsilons.values())
            assert epsilons[report.bound_at(delta)] == min(epsilons.values())
        for louder in (run, run_of(rule, 0.01)):
            told = [id_ for id_ in every if RECORDS[id_].has_delta_lower_bound]
            assert told
            for id_ in told:
                profile = every[id_] if louder is run else RECORDS[id_].guarantee(louder)
                for epsilon in (0.0, 0.1, 1.0, 3.0):
                    known = RECORDS[id_].delta_lower_bound(louder, epsilon)
                    assert known <= profile.delta(epsilon), (id_, epsilon)

    def test_a_bound_that_cannot_win_is_not_evaluated(self, monkeypatch):
        run = run_of(li.ShuffledOnce, examples=100_000, steps=3_000, noise_std=0.01)
        evaluated, original = [], Bound.guarantee

        def watched(bound, run):
            evaluated.append(bound.id)
            return original(bound, run)

        monkeypatch.setattr(Bound, "guarantee", watched)
        report = li.account(run)
        assert evaluated == []
        epsilon, average = report.epsilon(1e-6), "random-order/shuffled/average-once"
        assert average not in evaluated
        stages = report.all["random-order/shuffled"].stages
        for _ in range(2):
            assert stages[average].epsilon(1e-6) > epsilon
        assert evaluated.count(average) == 1

    def test_what_was_not_looked_at_can_be_saved(self):
        report = li.account(run_of(li.ShuffledOnce))
        again = pickle.loads(pickle.dumps(report))
        assert again.epsilon(1e-5) == report.epsilon(1e-5)
        assert list(again.all) == list(report.all)
        for id_ in ("fixed-order/convex", "random-order/shuffled/joint-transport"):
            assert pickle.loads(pickle.dumps(RECORDS[id_])) is RECORDS[id_]

    def test_only_those_listed_are_there(self):
        listed = LazyProfiles({"one": 1.0}, li.GaussianProfile)
        assert list(listed) == ["one"]
        assert len(listed) == 1
        assert "two" not in listed
        with pytest.raises(KeyError):
            listed["two"]


class TestKnownBeforehand:
    """Lower bounds on delta of composition, by which bounds are left out."""

    @pytest.mark.parametrize("mirrored", [False, True])
    @pytest.mark.parametrize("ratio", [0.3, 1.0, 2.5])
    def test_steps_that_always_see_the_example_are_a_gaussian(self, ratio, mirrored):
        """There the statistic is the best one, but for its cells."""
        mu = (2.0 if mirrored else 1.0) * ratio * math.sqrt(9)
        for epsilon in (0.5, 2.0):
            found = composed_delta_lower_bound(1.0, ratio, 9, epsilon, mirrored=mirrored)
            exact = float(delta_of_gaussian(mu, epsilon))
            assert 0.8 * exact < found <= exact * (1 + 1e-9)

    @pytest.mark.parametrize("probability, ratio, steps", [(0.01, 1.0, 1_000), (0.2, 0.3, 50)])
    def test_sampled_steps_tell_nearly_what_dp_accounting_certifies(
        self, probability, ratio, steps
    ):
        certified = from_gaussian_mechanism(
            1.0 / ratio, sampling_prob=probability, value_discretization_interval=1e-4
        ).self_compose(steps)
        for delta in (1e-3, 1e-5):
            epsilon = certified.get_epsilon_for_delta(delta)
            at, near = (
                composed_delta_lower_bound(probability, ratio, steps, part, mirrored=False)
                for part in (epsilon, 0.95 * epsilon)
            )
            assert at <= delta * (1 + 1e-9) < near

    @pytest.mark.parametrize(
        "ratio, steps, epsilon", [(1, 10**9, 1), (1, 10, 800), (math.nan, 9, 1)]
    )
    def test_where_nothing_is_known_nothing_is_said(self, ratio, steps, epsilon):
        found = composed_delta_lower_bound(0.1, ratio, steps, epsilon, mirrored=False)
        assert found == 0.0
