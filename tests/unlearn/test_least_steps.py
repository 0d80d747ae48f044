"""The fewest extra steps: found exactly, from few accounts."""

import numpy as np
import pytest

import lastiterate as li
from lastiterate.linear_model import PrivateLogisticRegression, PrivateSelection
from lastiterate.other_releases import MEAN, Release
from lastiterate.unlearn import unlearning as module

MEAN_OF_ROWS = Release(MEAN, 2.0, 24.0)


def described(rule, *, penalty=0.01, **others):
    settings = {
        "loss": li.Loss(smoothness=0.26 + penalty, regulariser=penalty),
        "sensitivity": 1.0,
        "batches": rule,
        "steps": 200,
        "step_size": 2.0,
        "noise_std": 0.01,
        "adjacency": "zero-out",
    }
    return li.TrainingRun(**(settings | others))


@pytest.fixture
def accounts(monkeypatch):
    """How many accounts were made."""
    made = []

    def counted(*args, **settings):
        made.append(args)
        return account(*args, **settings)

    account = module.account
    monkeypatch.setattr(module, "account", counted)
    return made


@pytest.mark.parametrize("other_releases", [(), (MEAN_OF_ROWS,)], ids=["alone", "other_releases"])
@pytest.mark.parametrize("release", [0.0, 0.02])
@pytest.mark.parametrize("penalty", [0.01, 0.0])
@pytest.mark.parametrize("epsilon", [30.0, 2.9, 1.5, 0.6])
def test_one_step_less_is_not_enough(epsilon, penalty, release, other_releases, accounts):
    run = described(li.Cyclic(1_000, 10), penalty=penalty, release_noise_std=release)
    found = li.unlearning(run, epsilon=epsilon, delta=1e-5, other_releases=other_releases)
    assert found.epsilon(1e-5) <= epsilon
    assert len(accounts) <= 30
    if found.extra_steps:
        fewer = li.unlearning(run, extra_steps=found.extra_steps - 1, other_releases=other_releases)
        assert fewer.epsilon(1e-5) > epsilon


def test_slow_bounds_are_asked_at_the_end_only(accounts):
    run = described(li.ShuffledEachEpoch(2_000, 200))
    found = li.unlearning(run, epsilon=0.3, delta=1e-5)
    assert found.extra_steps > 5
    assert len(accounts) <= 10


def test_targets_that_steps_do_not_reach():
    run = described(li.FullBatch(1_000), penalty=0.0)
    with pytest.raises(li.UnreachableTarget, match="a penalty"):
        li.unlearning(run, epsilon=1e-7, delta=1e-9)


@pytest.mark.filterwarnings("ignore::lastiterate.errors.PrivacyWarning")
def test_what_was_chosen_among_several_is_refused():
    """Which of them was chosen depends on the rows, and stays."""
    X = np.random.default_rng(0).normal(size=(300, 2)) / 2
    y = X[:, 0] > 0.0
    base = PrivateLogisticRegression(
        batches="cyclic", batch_size=100, epochs=2, classes=[False, True], center=False, counting=0
    )
    chosen = PrivateSelection(base, {"l2": [0.1, 0.2]}, epsilon=3.0, random_state=0).fit(X, y)
    model = chosen.best_estimator_
    for asked in (
        lambda: model.plan_unlearning(1, epsilon=1.0),
        lambda: model.unlearn(X, y, rows=[3], epsilon=1.0, key=bytes(32)),
    ):
        with pytest.raises(li.InvalidParameter, match="the best of several trials"):
            asked()
