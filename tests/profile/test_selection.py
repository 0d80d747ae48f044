"""The best of a random number of tries, against laws that are enumerated."""

import math
from fractions import Fraction
from functools import cache

import mpmath
import numpy as np
import pytest

from lastiterate.errors import InvalidParameter
from lastiterate.profile import GaussianProfile, PureProfile
from lastiterate.profile.selection import AverageProfile, SelectedProfile, Tries
from tests.profile.curves import Curve

SHAPES = (-0.9, -0.5, 0.0, 0.5, 1.0, 2.0, 5.0)
STOPS = (0.02, 0.1, 0.3, 0.9)
MOST = 2_000  # tries, beyond which there is next to no probability


@cache
def number_masses(tries, most):
    """P(K = k) from its definition by Gamma functions, not from the recursion."""
    eta, gamma = tries.shape, tries.stop
    if eta == 0.0:
        return np.array([(1 - gamma) ** k / (k * -math.log(gamma)) for k in range(1, most)])
    scale = gamma**-eta - 1
    logs = [
        k * math.log1p(-gamma) + math.lgamma(k + eta) - math.lgamma(k + 1) for k in range(1, most)
    ]
    # Gamma(eta) is negative for a negative shape, as is the scale.
    sign = math.copysign(1.0, eta)
    return sign * np.exp(np.array(logs) - math.lgamma(eta)) / scale


def words_of(*words):
    """A source of these words."""
    return iter(words).__next__


def first_bits(tries, most):
    """The first 128 bits of P(K <= k) for the first k, by Gamma functions."""
    with mpmath.workdps(80):
        eta, gamma = mpmath.mpf(tries.shape), mpmath.mpf(tries.stop)
        numbers = range(1, most + 1)
        if eta == 0:
            masses = [(1 - gamma) ** k / (k * -mpmath.log(gamma)) for k in numbers]
        else:
            scale = (gamma**-eta - 1) * mpmath.gamma(eta)
            masses = [
                (1 - gamma) ** k * mpmath.gamma(k + eta) / mpmath.factorial(k) / scale
                for k in numbers
            ]
        return [int(mpmath.floor(mpmath.fsum(masses[:k]) * 2**128)) for k in numbers]


def best_of(law, tries, ranks):
    """The law of the best, outcome by outcome, by summing over the number of tries.

    Of outcomes with the same rank the first that occurred is taken.
    """
    masses = number_masses(tries, MOST)
    numbers = np.arange(1, MOST)
    best = np.zeros(law.size)
    for rank in set(ranks):
        same = np.array([each == rank for each in ranks])
        if not law[same].sum() > 0.0:
            continue
        below = law[[each < rank for each in ranks]].sum()
        upto = below + law[same].sum()
        whole = masses @ (upto**numbers - below**numbers)
        best[same] = whole * law[same] / law[same].sum()
    return best


def hockey_stick(p, q, epsilon):
    return max(np.maximum(a - math.exp(epsilon) * b, 0.0).sum() for a, b in ((p, q), (q, p)))


def exactly(p, q):
    """The curve of two laws."""

    def deltas(epsilons):
        factors = np.exp(epsilons)[:, np.newaxis]
        ways = (p - factors * q, q - factors * p)
        return np.max([np.maximum(way, 0.0).sum(axis=1) for way in ways], axis=0)

    return Curve(deltas)


def instances(count):
    """Pairs of laws on a few outcomes: near and far ones, tails that only one of them has."""
    rng = np.random.default_rng(0)
    for _ in range(count):
        size = int(rng.integers(2, 6))
        p = rng.dirichlet(np.full(size, rng.choice([0.1, 1.0, 5.0])))
        if rng.random() < 0.5:
            q = p * np.exp(rng.normal(size=size) * rng.choice([0.1, 0.5, 1.5]))
        else:  # a rare outcome at the top, far rarer on the other side
            q = p.copy()
            q[-1] *= rng.choice([0.0, 0.01, 0.3])
        ranks = rng.integers(0, size, size) if rng.random() < 0.3 else np.arange(size)
        tries = Tries(float(rng.choice(SHAPES)), float(rng.choice(STOPS)))
        yield p / p.sum(), q / q.sum(), ranks.tolist(), tries


def violations(count=120):
    """How often the exact divergence of the best exceeds what is certified."""
    found = 0
    for p, q, ranks, tries in instances(count):
        selected = SelectedProfile(exactly(p, q), tries)
        best, other = (best_of(law, tries, ranks) for law in (p, q))
        assert best.sum() == pytest.approx(1.0, abs=1e-6)
        for epsilon in selected.shift + np.array([0.0, 0.05, 0.3, 1.0, 2.0]):
            exact = hockey_stick(best, other, epsilon)
            found += bool(exact > selected.delta(epsilon) + 1e-9)
    return found


class TestAgainstEnumeratedLaws:
    def test_no_violation(self):
        assert violations() == 0

    @pytest.mark.parametrize("mutant", ["one shift less", "no factor", "no condition"])
    def test_a_weaker_statement_is_violated(self, monkeypatch, mutant):
        if mutant == "one shift less":
            init = SelectedProfile.__init__

            def less(self, profile, tries):
                init(self, profile, tries)
                self.shift *= tries.shape / (tries.shape + 1.0) if tries.shape > 0 else 0.0

            monkeypatch.setattr(SelectedProfile, "__init__", less)
        elif mutant == "no factor":
            monkeypatch.setattr(Tries, "mean", 1.0)
        else:
            monkeypatch.setattr(SelectedProfile, "_least_epsilon", lambda self: 0.0)
        assert violations() > 0

    def test_pure_tries_are_as_in_the_papers(self):
        """(2 + shape) epsilon, as tries become many."""
        tries = Tries(1.0, 1e-4)
        selected = SelectedProfile(PureProfile(0.5), tries)
        assert selected.epsilon(0.0) == pytest.approx(1.5, rel=1e-3)


class TestNumberOfTries:
    @pytest.mark.parametrize("shape", SHAPES)
    @pytest.mark.parametrize("stop", [0.05, 0.5])
    def test_law(self, shape, stop):
        tries = Tries(shape, stop)
        masses = number_masses(tries, 5_000)
        assert masses.sum() == pytest.approx(1.0, rel=1e-9)
        assert tries.mean == pytest.approx(masses @ np.arange(1, 5_000), rel=1e-8)
        assert tries.missed(0.3) == pytest.approx(masses @ 0.7 ** np.arange(1, 5_000), rel=1e-8)
        cumulative = np.cumsum(masses)
        for uniform in (1e-9, 0.2, 0.5, 0.9, 0.999):
            k = tries.number(words_of(int(uniform * 2**64), 2**63))
            assert cumulative[k - 1] >= uniform * (1 - 1e-9)
            assert k == 1 or cumulative[k - 2] < uniform * (1 + 1e-9)

    @pytest.mark.parametrize("shape", SHAPES)
    @pytest.mark.parametrize("stop", [1e-3, 0.9])
    def test_decides_to_the_last_bit(self, shape, stop):
        """At 128 bits of a cumulative probability: below it one number, from it on the next."""
        tries = Tries(shape, stop)
        for k, edge in enumerate(first_bits(tries, 6), start=1):
            for beyond, number in ((-1, k), (1, k + 1)):
                first, second = divmod(edge + beyond, 2**64)
                word = words_of(first, second, 2**63)
                assert tries.number(word) == number

    def test_geometric_exactly(self):
        """3/4 is a cumulative probability itself: that number belongs to the next."""
        tries = Tries(1.0, 0.25)
        cumulative = Fraction(0)
        for k in range(1, 20):
            cumulative += Fraction(1, 4) * Fraction(3, 4) ** (k - 1)
            edge = cumulative * 2**64
            assert tries.number(words_of(math.ceil(edge) - 1, *[0] * 9)) == k
            assert tries.number(words_of(math.ceil(edge), *[2**63] * 9)) == k + 1

    def test_ends_for_every_uniform_number(self):
        assert Tries(0.0, 0.01).number(words_of(2**64 - 1, 2**64 - 1, 5)) < 20_000

    @pytest.mark.parametrize("mean", [1.5, 20.0, 1000.0])
    @pytest.mark.parametrize("shape", SHAPES)
    def test_of_a_mean(self, mean, shape):
        assert mean * (1 - 1e-6) <= Tries.of_mean(mean, shape=shape).mean <= mean

    @pytest.mark.parametrize("shape, stop", [(-1.0, 0.1), (1.0, 0.0), (1.0, 1.0), (math.nan, 0.1)])
    def test_refusals(self, shape, stop):
        with pytest.raises(InvalidParameter):
            Tries(shape, stop)


class TestCurve:
    def test_costs_more_than_one_try_and_less_than_all(self):
        one = GaussianProfile(0.3)
        selected = SelectedProfile(one, Tries.of_mean(20.0, shape=1.0))
        all_twenty = GaussianProfile(0.3 * math.sqrt(20.0))
        for delta in (1e-4, 1e-6):
            assert one.epsilon(delta) < selected.epsilon(delta) < all_twenty.epsilon(delta) / 2

    def test_below_the_published_conversion(self):
        """Papernot and Steinke's Theorem 2 on the same tries, as dp-accounting has it."""
        from dp_accounting import GaussianDpEvent, dp_event, rdp

        tries = Tries.of_mean(20.0, shape=1.0)
        accountant = rdp.RdpAccountant()
        event = dp_event.RepeatAndSelectDpEvent(GaussianDpEvent(1 / 0.3), tries.mean, 1.0)
        accountant.compose(event)
        ours = SelectedProfile(GaussianProfile(0.3), tries).epsilon(1e-5)
        assert ours < accountant.get_epsilon(1e-5)

    def test_says_nothing_below_its_shift(self):
        selected = SelectedProfile(GaussianProfile(0.3), Tries(1.0, 0.05))
        assert selected.delta(0.99 * selected.shift) == 1.0

    def test_the_average_of_several(self):
        average = AverageProfile([GaussianProfile(0.2), GaussianProfile(0.4)])
        halves = [GaussianProfile(mu).delta(0.5) / 2 for mu in (0.2, 0.4)]
        assert average.delta(0.5) == pytest.approx(sum(halves), rel=1e-9)
        assert average.delta(0.5) >= sum(halves)
        assert average.gdp() == 0.4
