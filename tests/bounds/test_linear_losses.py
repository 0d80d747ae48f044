"""Losses without curvature have guarantees like those with next to none."""

import pytest

import lastiterate as li

RULES = [
    li.ShuffledOnce(400, 20),
    li.BallsAndBinsEachEpoch(400, 20),
]


def epsilon(batches, adjacency, smoothness):
    run = li.TrainingRun(
        loss=li.Loss(smoothness=smoothness, lipschitz=1.0, outputs=1),
        sensitivity=2.0 if adjacency == "replace" else 1.0,
        batches=batches,
        steps=45,
        step_size=0.1,
        noise_std=0.05,
        adjacency=adjacency,
    )
    return li.account(run).epsilon(1e-5)


@pytest.mark.parametrize("adjacency", ["zero-out", "replace"])
@pytest.mark.parametrize("batches", RULES, ids=lambda rule: type(rule).__name__)
def test_no_curvature_costs_at_most_what_little_does(batches, adjacency):
    straight = epsilon(batches, adjacency, 0.0)
    assert 0.0 < straight <= epsilon(batches, adjacency, 1e-4) * (1.0 + 1e-6)


def test_growth_beyond_floats_is_answered_without_a_warning():
    """Where losses are not convex, distances of early steps grow beyond all floats."""
    loss = li.Loss(smoothness=145.5, convex=False, regulariser=0.838, outputs=3)
    run = li.TrainingRun(
        loss=loss,
        sensitivity=2.1,
        batches=li.ShuffledEachEpoch(35, 6),
        steps=960,
        step_size=0.0042,
        noise_std=0.83,
    )
    composed = li.account(run).all["composition/fixed-order"].epsilon(1e-5) * (1.0 + 1e-9)
    assert 0.0 < li.account(run).epsilon(1e-5) <= composed
    varied = run.replace(step_size=tuple(0.4 + 0.001 * k for k in range(960)))
    assert 0.0 < li.account(varied).epsilon(1e-5) <= composed
