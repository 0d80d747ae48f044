"""Joint transport: never below quadrature, and feasibility is checked."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr

from lastiterate.bounds.shuffling.joint_transport import (
    JointTransport,
    PositionLaws,
    TransportGrid,
)
from lastiterate.bounds.shuffling.proof_search import ShuffledProfile
from lastiterate.errors import InvalidParameter
from lastiterate.profile.gaussian import GaussianProfile

FINE = TransportGrid(receiving=40, every_nth_knot=1, cells=4000, step=0.1)
COARSE = TransportGrid(receiving=1, every_nth_knot=2, cells=300, step=0.25)
LAWS = PositionLaws(
    receiving=np.array([0.3, 0.6]),
    receiving_mus=np.array([0.3, 0.2]),
    residual_mus=np.array([0.35, 0.25]),
    separate=np.array([0.07]),
    separate_mus=np.array([0.5]),
    separate_transport_mus=np.array([0.55]),
    hidden=np.array([0.01, 0.02]),
    hidden_mus=np.array([1.0, 0.7]),
    hidden_transport_mus=np.array([1.1, 0.8]),
    window_of=np.array([0, 1]),
    window_costs=np.array([1.0, 0.6]),
)
RETAINED = np.array([0.1, 0.4])


def gaussian(mu, a):
    epsilon = np.log(a)
    return ndtr(mu / 2 - epsilon / mu) - a * ndtr(-mu / 2 - epsilon / mu)


def divergence(own, residual, moved, costs, a):
    """E (e^(m G - m^2/2) + e^(n G - n^2/2) X - a)_+, by midpoints in three variables."""
    at = np.linspace(-8.0, 8.0, 241)
    z, masses = (at[1:] + at[:-1]) / 2, np.diff(ndtr(at))
    one, other = (w * np.exp(s * z - s * s / 2) for w, s in zip(moved, costs, strict=True))
    total = 0.0
    for g, mass in zip(z, masses, strict=True):
        both = np.exp(residual * g - residual**2 / 2) * (one[:, None] + other[None, :])
        excess = np.maximum(np.exp(own * g - own**2 / 2) + both - a, 0.0)
        total += mass * (masses @ excess @ masses)
    return total


def literal(epsilon, multiplier, kept):
    """The theorem by quadrature, for one multiplier and the kept arguments of B."""
    alpha = np.exp(epsilon)
    moved = LAWS.hidden * (1 - RETAINED) / LAWS.receiving.sum()
    retained = float(np.exp(min(0.0, epsilon - 0.5 * (multiplier - 0.55 + 0.25))))
    per_mass = np.exp(0.55 * (multiplier - 0.275))
    assert 0.07 * (1 - retained) * per_mass <= LAWS.receiving @ (alpha - kept)
    total = sum(
        p * divergence(m, n, moved, LAWS.window_costs, a)
        for p, m, n, a in zip(
            LAWS.receiving, LAWS.receiving_mus, LAWS.residual_mus, kept, strict=True
        )
    )
    total += 0.07 * retained * gaussian(0.5, alpha / retained)
    total += 0.07 * (1 - retained) * gaussian(0.55, per_mass)
    return total + np.sum(LAWS.hidden * RETAINED * gaussian(LAWS.hidden_mus, alpha / RETAINED))


@pytest.mark.parametrize("epsilon", [0.6, 1.0])
def test_is_what_the_theorem_says(epsilon):
    transport = JointTransport(LAWS, RETAINED, epsilon, FINE)
    found = transport.delta(epsilon)
    truth = literal(
        epsilon,
        transport.multiplier,
        transport._kept(epsilon, np.array([transport.multiplier]))[:, 0],
    )
    # The rule of midpoints is off, too.
    assert truth * (1 - 1e-3) <= found <= 1.02 * truth
    assert found <= JointTransport(LAWS, RETAINED, epsilon, COARSE).delta(epsilon)


def test_without_separate_positions_it_is_the_integral():
    laws = replace(
        LAWS,
        receiving=np.array([0.31, 0.6]),
        hidden=np.array([0.03, 0.06]),
        separate=np.array([1e-12]),
    )
    alpha, moved = np.exp(0.8), laws.hidden / laws.receiving.sum()
    truth = sum(
        p * divergence(m, n, moved, laws.window_costs, alpha)
        for p, m, n in zip(laws.receiving, laws.receiving_mus, laws.residual_mus, strict=True)
    )
    for grid, most in ((FINE, 1.02), (COARSE, 4.0)):
        found = JointTransport(laws, np.zeros(2), 0.8, grid).delta(0.8)
        assert truth * (1 - 1e-3) <= found <= most * truth


def test_made_for_one_epsilon_it_holds_at_others():
    for epsilon in (0.5, 0.7, 0.9):
        best = JointTransport(LAWS, RETAINED, epsilon, FINE).delta(epsilon)
        assert JointTransport(LAWS, RETAINED, 0.7, FINE).delta(epsilon) >= best * (1 - 0.02)
    assert JointTransport(LAWS, RETAINED, 0.7, FINE).delta(5.0) == 1.0
    assert JointTransport(LAWS, RETAINED, 0.7, FINE).delta(0.0) == 1.0


class TestFeasibility:
    def test_available_mass_is_used_once(self):
        """At the multiplier that is taken the needed mass is available, and hardly more."""
        transport = JointTransport(LAWS, RETAINED, 0.8, FINE)
        transport.delta(0.8)
        multiplier, alpha = transport.multiplier, np.exp(0.8)
        kept = transport._kept(0.8, np.array([multiplier]))[:, 0]
        retained = np.exp(min(0.0, 0.8 - 0.5 * (multiplier - 0.55 + 0.25)))
        needed = 0.07 * (1 - retained) * np.exp(0.55 * (multiplier - 0.275))
        assert needed <= LAWS.receiving @ (alpha - kept)
        assert not transport._feasible(0.8, np.array([multiplier + 0.5]))[0]

    def test_mass_that_is_needed_to_the_last_digit_is_not_feasible(self):
        multiplier = np.array([3.3])
        transport = JointTransport(LAWS, RETAINED, 0.8, FINE)
        (available,) = transport._receiving @ (
            1.0 - transport._kept(0.8, multiplier) * np.exp(-0.8)
        )
        per_mass, retained = transport._terms(0.8, multiplier)
        each = float(-np.expm1(retained[0]) * np.exp(per_mass[0] - 0.8))
        for share, feasible in ((1.0, False), (1.0 - 1e-6, True)):
            some = share * available / each
            assert some < 0.07
            laws = replace(
                LAWS,
                separate=np.array([some, 0.07 - some]),
                separate_mus=np.array([0.5, 0.0]),
                separate_transport_mus=np.array([0.55, 0.0]),
            )
            assert (
                JointTransport(laws, RETAINED, 0.8, FINE)._feasible(0.8, multiplier)[0] == feasible
            )

    @pytest.mark.parametrize("retained", [[-0.1, 0.0], [0.0, 1.1], [np.nan, 0.0], [0.0]])
    def test_shares_that_are_none(self, retained):
        with pytest.raises(InvalidParameter, match="retained"):
            JointTransport(LAWS, np.array(retained), 0.8, COARSE)

    @pytest.mark.parametrize(
        "change",
        [
            {"receiving": np.array([0.3, 0.5])},
            {"separate": np.array([0.0])},
            {"hidden": np.array([0.0, 0.02])},
            {"hidden": np.array([np.nan, 0.02])},
            {"receiving": np.array([-0.3, 1.2])},
        ],
    )
    def test_probabilities_that_do_not_sum_to_one(self, change):
        with pytest.raises(InvalidParameter, match="receiving"):
            replace(LAWS, **change)


class TestProfile:
    class Failing:
        def delta(self, epsilon):
            return np.nan

    def test_a_proof_whose_arithmetic_fails_certifies_nothing(self):
        quick = GaussianProfile(1.0)
        one = ShuffledProfile(quick, [lambda epsilon, delta: self.Failing()])
        at = np.linspace(0.5, 4.0, 9)
        assert np.array_equal(one.deltas(at), quick.deltas(at))
        assert one.epsilon(1e-5) == quick.epsilon(1e-5)
