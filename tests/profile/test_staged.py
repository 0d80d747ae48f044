"""Bounds are evaluated when they are looked at, and only where they may be the least."""

import math
import pickle

import pytest
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

import lastiterate as li
from lastiterate.bounds.bound import Bound, Certainty
from lastiterate.bounds.catalogue import RECORDS
from lastiterate.bounds.composition import composed_delta_lower_bound
from lastiterate.profile.best import LazyProfiles
from tests.reference.gaussian import delta_of_gaussian

RULES = [li.ShuffledOnce, li.ShuffledEachEpoch, li.SampledWithoutReplacement, li.PoissonSampled]
DELTAS = (1e-3, 1e-5, 1e-7)


def run_of(rule, noise_std=0.04, examples=2_000, **more):
    described = {
        "loss": li.Loss(smoothness=1.0, regulariser=0.01),
        "sensitivity": 1.0,
        "adjacency": "zero-out" if rule is li.PoissonSampled else "replace",
        "batches": rule(examples, 100),
        "steps": 400,
        "step_size": 1.0,
        "noise_std": noise_std,
    }
    return li.TrainingRun(**described | more)


def eagerly(run):
    """Every guarantee and stage, whether it may be the least or not."""
    applying = [
        id_
        for id_, bound in RECORDS.items()
        if not bound.unmet(run) and bound.certainty is Certainty.UPPER
    ]
    return {id_: RECORDS[id_].guarantee(run) for id_ in applying if "published" not in id_}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("noise_std", [0.01, 0.04])
def test_what_is_known_beforehand_is_never_above_the_bound(rule, noise_std):
    run = run_of(rule, noise_std)
    told = {id_: one for id_, one in eagerly(run).items() if RECORDS[id_].has_delta_lower_bound}
    assert told
    for id_, profile in told.items():
        for epsilon in (0.0, 0.1, 1.0, 3.0):
            assert RECORDS[id_].delta_lower_bound(run, epsilon) <= profile.delta(epsilon), (
                id_,
                epsilon,
            )


@pytest.mark.parametrize("rule", RULES)
def test_leaving_bounds_out_changes_no_answer(rule):
    run = run_of(rule)
    every, report = eagerly(run), li.account(run)
    for delta in DELTAS:
        epsilons = {id_: one.epsilon(delta) for id_, one in every.items()}
        assert report.epsilon(delta) == min(epsilons.values())
        assert epsilons[report.bound_at(delta)] == min(epsilons.values())


def test_a_bound_that_cannot_win_is_not_evaluated(monkeypatch):
    run = run_of(li.ShuffledOnce, examples=100_000, steps=3_000, noise_std=0.01)
    evaluated = []
    original = Bound.guarantee

    def watched(bound, run):
        evaluated.append(bound.id)
        return original(bound, run)

    monkeypatch.setattr(Bound, "guarantee", watched)
    report = li.account(run)
    assert evaluated == []
    epsilon = report.epsilon(1e-6)
    assert "random-order/shuffled/average-once" not in evaluated
    stages = report.all["random-order/shuffled"].stages
    assert stages["random-order/shuffled/average-once"].epsilon(1e-6) > epsilon
    assert stages["random-order/shuffled/average-once"].epsilon(1e-6) > epsilon
    assert evaluated.count("random-order/shuffled/average-once") == 1


def test_guarantees_that_were_not_looked_at_can_be_saved():
    report = li.account(run_of(li.ShuffledOnce))
    again = pickle.loads(pickle.dumps(report))
    assert again.epsilon(1e-5) == report.epsilon(1e-5)
    assert list(again.all) == list(report.all)


@pytest.mark.parametrize("id_", ["fixed-order/convex", "random-order/shuffled/joint-transport"])
def test_a_bound_is_saved_as_its_id(id_):
    assert pickle.loads(pickle.dumps(RECORDS[id_])) is RECORDS[id_]


def test_only_those_listed_are_there():
    listed = LazyProfiles({"one": 1.0}, li.GaussianProfile)
    assert list(listed) == ["one"]
    assert len(listed) == 1
    assert "two" not in listed
    with pytest.raises(KeyError):
        listed["two"]


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("ratio", [0.3, 1.0, 2.5])
def test_steps_that_always_see_the_example_are_a_gaussian(ratio, mirrored):
    """There the statistic is the best one, but for its cells."""
    mu = (2.0 if mirrored else 1.0) * ratio * math.sqrt(9)
    for epsilon in (0.5, 2.0):
        found = composed_delta_lower_bound(1.0, ratio, 9, epsilon, mirrored=mirrored)
        exact = float(delta_of_gaussian(mu, epsilon))
        assert 0.8 * exact < found <= exact * (1 + 1e-9)


@pytest.mark.parametrize("probability, ratio, steps", [(0.01, 1.0, 1_000), (0.2, 0.3, 50)])
def test_sampled_steps_tell_nearly_what_is_certified_of_them(probability, ratio, steps):
    """By dp-accounting."""
    one = from_gaussian_mechanism(
        1.0 / ratio, sampling_prob=probability, value_discretization_interval=1e-4
    )
    certified = one.self_compose(steps)
    for delta in (1e-3, 1e-5):
        epsilon = certified.get_epsilon_for_delta(delta)
        at = composed_delta_lower_bound(probability, ratio, steps, epsilon, mirrored=False)
        near = composed_delta_lower_bound(probability, ratio, steps, 0.95 * epsilon, mirrored=False)
        assert at <= delta * (1 + 1e-9) < near


def test_where_nothing_is_known_nothing_is_said():
    assert composed_delta_lower_bound(0.1, 1.0, 10**9, 1.0, mirrored=False) == 0.0
    assert composed_delta_lower_bound(0.1, 1.0, 10, 800.0, mirrored=False) == 0.0
    assert composed_delta_lower_bound(0.1, math.nan, 10, 1.0, mirrored=False) == 0.0
