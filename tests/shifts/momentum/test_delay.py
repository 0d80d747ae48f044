"""Participations charged later: directions against products of steps, energies against leaks."""

from itertools import product

import numpy as np
import pytest

from lastiterate.shifts.momentum.mu import Delays, EpochTails, MomentumEpochs
from lastiterate.shifts.momentum.recursion import Averaged, Momentum, as_matrix

CURVATURE = (0.1, 0.9)
STEPS = 7
FIRST = np.arange(STEPS) == 0  # the step with an empty buffer


def heavy_ball(beta, dampening=0.0):
    betas, dampenings = np.full(STEPS, beta), np.full(STEPS, dampening)
    betas[0] = dampenings[0] = 0.0
    return Momentum(np.full(STEPS, 0.5), betas, dampenings, FIRST)


def average(decay):
    decays = np.full(STEPS, decay)
    decays[0] = 0.0  # the first update copies the iterate
    return Averaged(np.full(STEPS, 0.5), decays)


RECURSIONS = {
    "heavy ball": heavy_ball(0.8),
    "dampened": heavy_ball(0.6, 0.5),
    "nesterov": Momentum(np.full(STEPS, 0.5), np.full(STEPS, 0.7), np.zeros(STEPS), FIRST, True),
    "average": average(0.9),
}


def steps_of(recursion):
    """B_k and the pairs A_k(m), A_k(M)."""
    a00, a01, a10, a11, b0, b1 = recursion.entries()
    pushes = np.stack([b0, b1], axis=1)
    both = [
        [np.array([[a00[k] + c * b0[k], a01[k]], [a10[k] + c * b1[k], a11[k]]]) for c in CURVATURE]
        for k in range(recursion.steps)
    ]
    return pushes, both


def images(recursion, first, charged):
    """B of step `first` after all products of steps up to `charged`, at the ends of curvature."""
    pushes, both = steps_of(recursion)
    for choice in product((0, 1), repeat=charged - first):
        vector = pushes[first - 1]
        for step, end in enumerate(choice, start=first):
            vector = both[step][end] @ vector
        yield vector


@pytest.mark.parametrize("name", RECURSIONS)
@pytest.mark.parametrize("charged", [4, 6])
class TestDirections:
    def test_none_of_these_steps_adds_more(self, name, charged):
        recursion = RECURSIONS[name]
        direction = as_matrix(Delays(recursion, CURVATURE).direction(charged - 3, charged - 2))
        largest = max(
            vector @ np.linalg.solve(direction, vector)
            for first in (2, 3)
            for vector in images(recursion, first, charged)
        )
        assert 0.0 < largest <= 1.0

    def test_nor_does_the_first_step(self, name, charged):
        recursion = RECURSIONS[name]
        delays = Delays(recursion, CURVATURE)
        direction = as_matrix(delays.first_step_direction(charged - 1))
        largest = max(
            vector @ np.linalg.solve(direction, vector) for vector in images(recursion, 1, charged)
        )
        assert 0.0 < largest <= 1.0


def leak(recursion, seen, curvatures, release):
    """(mean difference)^2/variance of what is released, on quadratics, for a sensitivity of 1."""
    pushes, both = steps_of(recursion)
    released = np.array(recursion.released)
    reach, after = np.zeros(recursion.steps), released
    for k in reversed(range(recursion.steps)):
        reach[k] = after @ pushes[k]
        after = after @ both[k][curvatures[k]]
    return np.sum(reach[list(seen)]) ** 2 / (np.sum(reach**2) + release**2)


@pytest.mark.parametrize("name", RECURSIONS)
@pytest.mark.parametrize("delay", [0, 1, 2, 3])
def test_energies_cover_every_pair_of_positions(name, delay):
    """Two epochs, of 4 and 3 steps; the first one's is charged where the last one's may be, too."""
    recursion, release = RECURSIONS[name], 0.3
    epochs = MomentumEpochs(recursion, CURVATURE, 1.0, release, 4, delay)
    for tail in range(3):
        energies = epochs.energies(EpochTails(tail, tail))
        worst = max(
            leak(recursion, (early, STEPS - 1 - tail), ends, release)
            for early in range(4)
            for ends in product((0, 1), repeat=STEPS)
        )
        assert worst <= energies.earlier + energies.group


def test_two_participations_in_one_step_are_charged_for_both():
    """Each direction alone would leave room for a larger kappa than both together."""
    recursion = RECURSIONS["heavy ball"]
    tail = 2  # step 5, in which the first epoch's participation is charged, too
    together = MomentumEpochs(recursion, CURVATURE, 1.0, 0.3, 4, 1).energies(EpochTails(tail, tail))
    alone = MomentumEpochs(recursion, CURVATURE, 1.0, 0.3, 4, 1).energies(None)
    assert together.earlier == pytest.approx(together.group)
    assert together.earlier > 1.2 * alone.earlier
