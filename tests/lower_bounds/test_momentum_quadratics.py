"""Quadratics under momentum: what a literal loop leaks, and below every upper bound."""

import math

import numpy as np
import pytest

import lastiterate as li
from lastiterate.lower_bounds.catalogue import LOWER_BOUNDS
from lastiterate.lower_bounds.momentum_quadratics import (
    improved_curvatures,
    linear_steps,
    released_weights,
)
from lastiterate.run.optimizer import ExponentialAverage
from tests.reference import all_orders, kinked_line

MOMENTUM = LOWER_BOUNDS["lower/momentum"]
OPTIMIZERS = (
    {"momentum": 0.9},
    {"momentum": 0.8, "dampening": 0.5},
    {"momentum": 0.7, "nesterov": True},
    {"average": ExponentialAverage(0.8)},
)


def run_of(batches, *, steps=12, **changes):
    settings = {
        "loss": li.Loss(smoothness=0.6, strong_convexity=0.05), "sensitivity": 2.0,
        "step_size": 0.3, "noise_std": 0.4,
    }  # fmt: skip
    return li.TrainingRun(batches=batches, steps=steps, **{**settings, **changes})


def literal_weights(run, curvatures):
    """The response of the loop of torch to a gradient of 1 more in each step."""
    average = None if run.average is None else run.average.decay
    return np.array(
        [
            kinked_line.torch_sgd(
                0.0,
                lambda k, x, unit=unit: curvatures[k] * x + unit[k],
                steps=run.steps, lr=run.step_size, momentum=run.momentum, dampening=run.dampening,
                nesterov=run.nesterov, average=average,
            )
            for unit in np.eye(run.steps)
        ]
    )  # fmt: skip


@pytest.mark.parametrize("optimizer", OPTIMIZERS, ids=lambda one: "-".join(one))
class TestLoop:
    def test_weights(self, optimizer):
        run = run_of(li.Cyclic(30, 10), **optimizer)
        curvatures = np.random.default_rng(0).uniform(0.05, 0.6, run.steps)
        found = released_weights(linear_steps(run), curvatures)
        assert found == pytest.approx(literal_weights(run, curvatures), rel=1e-9)

    def test_constant_curvature_with_bounded_gradients(self, optimizer):
        """Then only the penalty curves, and the most exposed position is known."""
        loss = li.Loss(smoothness=0.6, regulariser=0.05, lipschitz=1.0)
        run = run_of(li.Cyclic(30, 10), loss=loss, release_noise_std=0.1, **optimizer)
        weights = literal_weights(run, np.full(run.steps, 0.05))
        deviation = math.hypot(0.4 * np.linalg.norm(weights), 0.1)
        known = max(abs(weights[k::3].sum()) for k in range(3)) * 0.2 / deviation
        found = MOMENTUM.profile(run).gdp()
        assert found <= known
        assert found == pytest.approx(known, rel=1e-6)

    def test_shuffled_once_is_a_mixture_over_positions(self, optimizer):
        loss = li.Loss(smoothness=0.6, regulariser=0.05, lipschitz=1.0)
        run = run_of(li.ShuffledOnce(30, 10), loss=loss, **optimizer)
        weights = literal_weights(run, np.full(run.steps, 0.05))
        deviation = 0.4 * np.linalg.norm(weights)
        means = np.array([abs(weights[k::3].sum()) * 0.2 / deviation for k in range(3)])
        found, epsilons = MOMENTUM.profile(run), (0.1, 0.5)
        exact = all_orders.hockey_sticks(means, 0.0 * means, 1.0, epsilons)
        for epsilon, leak in zip(epsilons, exact, strict=True):
            assert 0.99 * leak <= found.delta(epsilon) <= leak * (1 + 1e-5)

    def test_searched_curvatures_are_admitted_and_expose_more(self, optimizer):
        run = run_of(li.FixedOrder(100, 10, (4, 8)), **optimizer)
        seen = np.isin(np.arange(12), (3, 7)).astype(float)
        flat = np.full(12, 0.05)
        found = improved_curvatures(linear_steps(run), flat, seen, (0.05, 0.6))
        assert found.min() >= 0.05
        assert found.max() <= 0.6

        def mu(curvatures):
            weights = literal_weights(run, curvatures)
            return np.abs(weights) @ seen * 0.2 / (0.4 * np.linalg.norm(weights))

        assert mu(found) > mu(flat)
        assert MOMENTUM.profile(run).gdp() >= mu(found) * (1 - 1e-6)
        assert MOMENTUM.profile(run).gdp() <= li.account(run).gdp()


@pytest.mark.parametrize(
    "changes, reason",
    [
        ({"momentum": 0.0}, "plain steps"),
        ({"domain": li.Ball(3.0)}, "Ball"),
        ({"average": ExponentialAverage(0.9)}, "average"),
        ({"loss": li.Loss(smoothness=0.6, strong_convexity=0.1, lipschitz=1.0)}, "none"),
    ],
)
def test_refusals(changes, reason):
    run = run_of(li.Cyclic(30, 10), momentum=0.9)
    assert not MOMENTUM.unmet(run)
    assert any(reason in str(one) for one in MOMENTUM.unmet(run.replace(**changes)))
