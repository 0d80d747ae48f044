"""Places hidden together: never below what is integrated, and feasibility is checked."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr

from lastiterate import InvalidParameter
from lastiterate.bounds.shuffling.joint_transport import Detail, Together, Worlds
from lastiterate.bounds.shuffling.shuffled_profile import HiddenTogetherProfile
from lastiterate.profile.gaussian import GaussianProfile

FINE = Detail(lenders=40, knots=1, cells=4000, step=0.1)
COARSE = Detail(lenders=1, knots=2, cells=300, step=0.25)
WORLDS = Worlds(
    lenders=np.array([0.3, 0.6]),
    own=np.array([0.3, 0.2]),
    beside=np.array([0.35, 0.25]),
    others=np.array([0.07]),
    home=np.array([0.5]),
    moved=np.array([0.55]),
    hidden=np.array([0.01, 0.02]),
    hidden_home=np.array([1.0, 0.7]),
    hidden_moved=np.array([1.1, 0.8]),
    windows=np.array([0, 1]),
    sizes=np.array([1.0, 0.6]),
)
STAY = np.array([0.1, 0.4])


def gaussian(mu, a):
    epsilon = np.log(a)
    return ndtr(mu / 2 - epsilon / mu) - a * ndtr(-mu / 2 - epsilon / mu)


def bracket(own, beside, moved, sizes, a):
    """E (e^(m G - m^2/2) + e^(n G - n^2/2) X - a)_+, by midpoints in three variables."""
    at = np.linspace(-8.0, 8.0, 241)
    z, masses = (at[1:] + at[:-1]) / 2, np.diff(ndtr(at))
    one, other = (w * np.exp(s * z - s * s / 2) for w, s in zip(moved, sizes, strict=True))
    total = 0.0
    for g, mass in zip(z, masses, strict=True):
        both = np.exp(beside * g - beside**2 / 2) * (one[:, None] + other[None, :])
        excess = np.maximum(np.exp(own * g - own**2 / 2) + both - a, 0.0)
        total += mass * (masses @ excess @ masses)
    return total


def literal(epsilon, price, kept):
    """The theorem, by quadrature, for what lenders keep and what is asked of others."""
    alpha = np.exp(epsilon)
    moved = WORLDS.hidden * (1 - STAY) / WORLDS.lenders.sum()
    stays = float(np.exp(min(0.0, epsilon - 0.5 * (price - 0.55 + 0.25))))
    asked = np.exp(0.55 * (price - 0.275))
    assert 0.07 * (1 - stays) * asked <= WORLDS.lenders @ (alpha - kept)
    total = sum(
        p * bracket(m, n, moved, WORLDS.sizes, a)
        for p, m, n, a in zip(WORLDS.lenders, WORLDS.own, WORLDS.beside, kept, strict=True)
    )
    total += 0.07 * stays * gaussian(0.5, alpha / stays)
    total += 0.07 * (1 - stays) * gaussian(0.55, asked)
    return total + np.sum(WORLDS.hidden * STAY * gaussian(WORLDS.hidden_home, alpha / STAY))


@pytest.mark.parametrize("epsilon", [0.6, 1.0])
def test_is_what_the_theorem_says(epsilon):
    together = Together(WORLDS, STAY, epsilon, FINE)
    found = together.delta(epsilon)
    truth = literal(
        epsilon, together.price, together._kept(epsilon, np.array([together.price]))[:, 0]
    )
    # The rule of midpoints is off, too.
    assert truth * (1 - 1e-3) <= found <= 1.02 * truth
    assert found <= Together(WORLDS, STAY, epsilon, COARSE).delta(epsilon)


def test_without_loans_it_is_the_integral():
    worlds = replace(
        WORLDS,
        lenders=np.array([0.31, 0.6]),
        hidden=np.array([0.03, 0.06]),
        others=np.array([1e-12]),
    )
    alpha, moved = np.exp(0.8), worlds.hidden / worlds.lenders.sum()
    truth = sum(
        p * bracket(m, n, moved, worlds.sizes, alpha)
        for p, m, n in zip(worlds.lenders, worlds.own, worlds.beside, strict=True)
    )
    for detail, most in ((FINE, 1.02), (COARSE, 4.0)):
        found = Together(worlds, np.zeros(2), 0.8, detail).delta(0.8)
        assert truth * (1 - 1e-3) <= found <= most * truth


def test_made_for_one_epsilon_it_holds_at_others():
    for epsilon in (0.5, 0.7, 0.9):
        best = Together(WORLDS, STAY, epsilon, FINE).delta(epsilon)
        assert Together(WORLDS, STAY, 0.7, FINE).delta(epsilon) >= best * (1 - 0.02)
    assert Together(WORLDS, STAY, 0.7, FINE).delta(5.0) == 1.0
    assert Together(WORLDS, STAY, 0.7, FINE).delta(0.0) == 1.0


class TestFeasibility:
    def test_what_is_lent_is_lent_once(self):
        """At the price that is taken everything needed is there, and hardly more."""
        together = Together(WORLDS, STAY, 0.8, FINE)
        together.delta(0.8)
        price, alpha = together.price, np.exp(0.8)
        kept = together._kept(0.8, np.array([price]))[:, 0]
        stays = np.exp(min(0.0, 0.8 - 0.5 * (price - 0.55 + 0.25)))
        needed = 0.07 * (1 - stays) * np.exp(0.55 * (price - 0.275))
        assert needed <= WORLDS.lenders @ (alpha - kept)
        assert not together._covered(0.8, np.array([price + 0.5]))[0]

    def test_to_the_last_digit_is_not_covered(self):
        price = np.array([3.3])
        together = Together(WORLDS, STAY, 0.8, FINE)
        (lent,) = together._lenders @ (1.0 - together._kept(0.8, price) * np.exp(-0.8))
        asked, stayed = together._terms(0.8, price)
        each = float(-np.expm1(stayed[0]) * np.exp(asked[0] - 0.8))
        for share, covered in ((1.0, False), (1.0 - 1e-6, True)):
            some = share * lent / each
            assert some < 0.07
            worlds = replace(
                WORLDS,
                others=np.array([some, 0.07 - some]),
                home=np.array([0.5, 0.0]),
                moved=np.array([0.55, 0.0]),
            )
            assert Together(worlds, STAY, 0.8, FINE)._covered(0.8, price)[0] == covered

    @pytest.mark.parametrize("stay", [[-0.1, 0.0], [0.0, 1.1], [np.nan, 0.0], [0.0]])
    def test_shares_that_are_none(self, stay):
        with pytest.raises(InvalidParameter, match="stay"):
            Together(WORLDS, np.array(stay), 0.8, COARSE)

    @pytest.mark.parametrize(
        "change",
        [
            {"lenders": np.array([0.3, 0.5])},
            {"others": np.array([0.0])},
            {"hidden": np.array([0.0, 0.02])},
            {"hidden": np.array([np.nan, 0.02])},
            {"lenders": np.array([-0.3, 1.2])},
        ],
    )
    def test_nobody_is_left_out(self, change):
        with pytest.raises(InvalidParameter, match="lenders"):
            replace(WORLDS, **change)


class TestProfile:
    class Failing:
        def delta(self, epsilon):
            return np.nan

    def test_a_choice_whose_arithmetic_fails_promises_nothing(self):
        alone = GaussianProfile(1.0)
        one = HiddenTogetherProfile(alone, [lambda epsilon, delta: self.Failing()])
        at = np.linspace(0.5, 4.0, 9)
        assert np.array_equal(one.deltas(at), alone.deltas(at))
        assert one.epsilon(1e-5) == alone.epsilon(1e-5)
