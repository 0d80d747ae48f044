"""A participation that is charged later, with its growth, never costs less than it does."""

import numpy as np
import pytest

from lastiterate.bounds.fixed_order.nonconvex import StepValues, late_charges
from lastiterate.shifts.optimal_shifts import Branch, Moduli, optimal_shifts


def moduli(slope, rise, offset, order=1.0):
    return Moduli((Branch(np.array(slope), np.array(rise), np.array(offset), order),))


@pytest.mark.parametrize("seed", range(40))
def test_linear_moduli(seed):
    rng = np.random.default_rng(seed)
    steps = int(rng.integers(2, 10))
    contraction = rng.uniform(0.7, 1.4, steps)
    sensitivity, noise = rng.uniform(0.2, 1.0, steps), rng.uniform(0.3, 2.0, steps)
    first = int(rng.integers(0, steps))
    last = int(rng.integers(first, steps))
    idle = moduli(contraction, np.zeros(steps), np.zeros(steps))
    charge = late_charges(idle, sensitivity.tolist(), range(first, last + 1))[-1]
    others = (rng.random(steps) < 0.3) * sensitivity
    others[first : last + 1] = 0.0
    diameter = rng.choice([np.inf, rng.uniform(0.2, 2.0)])

    def mu(at, arriving):
        pattern = others.copy()
        pattern[at] = arriving
        return optimal_shifts(
            contraction=contraction, sensitivity=pattern, noise=noise, diameter=diameter
        ).mu

    late = mu(last, charge)
    each = [mu(at, sensitivity[at]) for at in range(first, last + 1)]
    assert max(each) <= late * (1 + 1e-9)


def test_an_early_participation_grows_where_steps_expand():
    # Twice 1.5 z: what came in the first step is 2.25 by the third.
    idle = moduli([1.5] * 3, [0.0] * 3, [0.0] * 3)
    assert late_charges(idle, [1.0] * 3, range(3)) == pytest.approx([1.0, 1.5, 2.25])
    # Unchanged it would cost less than it does: 2.25 z in the end, hidden by all three.
    noise = np.array([1.0, 1.0, 1.0])
    early = optimal_shifts(contraction=1.5, sensitivity=[1.0, 0.0, 0.0], noise=noise).mu
    moved = optimal_shifts(contraction=1.5, sensitivity=[0.0, 0.0, 0.7], noise=noise).mu
    assert moved < early


@pytest.mark.parametrize("order", [0.3, 0.5, 1.0])
def test_no_difference_grows_faster(order):
    rng = np.random.default_rng(0)
    idle = Moduli(
        (
            Branch(np.array([0.9]), np.array([0.7]), np.array([0.0]), order),
            Branch(np.array([1.0]), np.array([0.0]), np.array([0.5]), 1.0),
        )
    )
    values = StepValues(idle)
    for _ in range(500):
        distance, more = 10 ** rng.uniform(-6, 2, 2)
        assert values(0, distance + more) - values(0, distance) <= values.increase(0, more) + 1e-12


def test_is_the_modulus_of_its_step():
    idle = moduli([0.5, 2.0], [0.1, 0.3], [0.2, 0.0], 0.5)
    expected = [0.5 * 4 + 0.1 * 2 + 0.2, 2.0 * 4 + 0.3 * 2]
    assert [StepValues(idle)(k, 4.0) for k in (0, 1)] == pytest.approx(expected, rel=1e-12)
