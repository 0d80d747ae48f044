"""Transport between positions: never below the truth, and far below averages."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lastiterate as li
from lastiterate.bounds.catalogue import RECORDS
from lastiterate.bounds.shuffling.positions import PositionsEachEpoch
from lastiterate.bounds.shuffling.transport import TransportProfile, shuffled_transport
from lastiterate.errors import InvalidParameter
from lastiterate.profile import GaussianMixtureProfile
from tests.bounds.shuffling.orders import FOUND, RULES, VISIT, VISITED, contracting, leaked
from tests.reference.all_orders import hockey_sticks

EPSILONS = (0.0, 0.1, 0.5, 1.0, 2.0, 4.0)


@st.composite
def positions(draw):
    """(weights, means on one data set, means on the other), the late positions first."""
    count = draw(st.integers(2, 6))
    late = draw(st.integers(1, count - 1))
    shares = np.array(draw(st.lists(st.floats(0.01, 1.0), min_size=count, max_size=count)))
    shares[:late] *= draw(st.sampled_from([1.0, 1e-2, 1e-4]))
    scale = draw(st.sampled_from([0.1, 1.0, 3.0]))
    ours, theirs = (
        scale * np.array(draw(st.lists(st.floats(-1, 1), min_size=count, max_size=count)))
        for _ in range(2)
    )
    return shares / shares.sum(), ours, theirs, late


def hidden(weights, ours, theirs, late):
    """The profile of N(ours_j, 1) against N(theirs_j, 1), either way round."""
    directions = [
        [np.abs(one[:k, None] - other[None, k:]).max(axis=1) for k in {1, late}]
        for one, other in ((ours, theirs), (theirs, ours))
    ]
    return TransportProfile(weights, np.abs(ours - theirs), directions)


class TestSoundness:
    @settings(max_examples=80)
    @given(positions())
    def test_no_mixture_leaks_more(self, drawn):
        weights, ours, theirs, _ = drawn
        profile = hidden(*drawn)
        found = hockey_sticks(ours, theirs, 1.0, EPSILONS, weights)
        for epsilon, exact in zip(EPSILONS, found, strict=True):
            assert exact <= profile.delta(epsilon) * (1 + 1e-9) + 1e-12

    @settings(max_examples=8)
    @given(positions())
    def test_epsilon_and_many_deltas_agree_with_delta(self, drawn):
        profile = hidden(*drawn)
        for delta in (1e-2, 1e-5, 1e-290, 1e-305):
            epsilon = profile.epsilon(delta)
            assert profile.delta(epsilon) <= delta * (1 + 1e-12)
        many = np.linspace(0.0, 5.0, 60)
        chords = profile.deltas(many)
        for k in (0, 7, 31, 59):
            alone = profile.delta(float(many[k]))
            # Far below any delta in use the searches may find transports of different quality.
            assert chords[k] >= alone * (1 - (1e-9 if alone > 1e-15 else 0.01))

    @pytest.mark.parametrize("scale", [1e-200, 1e-18, 1e-9])
    def test_next_to_no_leak_is_not_rounded_to_less(self, scale):
        mus = np.array([1.0, 0.5, 0.1]) * scale
        profile = TransportProfile([0.1, 0.2, 0.7], mus, [[1.1 * mus[:1]]])
        many = np.linspace(0.0, 5.0 * scale, 30)
        for epsilon, chord in zip(many.tolist(), profile.deltas(many), strict=True):
            assert chord >= profile.delta(epsilon) * (1 - 1e-9)


class TestTightness:
    def test_of_one_step_it_is_amplification_by_sampling(self):
        """Takes part with probability p or not at all: p delta(log(1 + (e^epsilon - 1)/p))."""
        p, mu, epsilon = 0.01, 1.0, 0.2
        profile = TransportProfile([p, 1 - p], [mu, 0.0], [[np.array([mu])]])
        shifted = math.log1p(math.expm1(epsilon) / p)
        exact = p * GaussianMixtureProfile([1.0], [mu]).delta(shifted)
        assert profile.delta(epsilon) == pytest.approx(exact, rel=1e-3)

    def test_is_never_above_the_average(self):
        weights, mus = [0.001, 0.1, 0.899], [2.0, 0.5, 0.1]
        profile = TransportProfile(weights, mus, [[np.array([2.1])]])
        average = GaussianMixtureProfile(weights, mus)
        for epsilon in EPSILONS:
            assert profile.delta(epsilon) <= average.delta(epsilon)
        assert profile.epsilon(1e-6) < 0.5 * average.epsilon(1e-6)
        assert profile.gdp() == average.gdp()
        assert profile.renyi(4.0) == average.renyi(4.0)


class TestFeasibility:
    def test_mass_that_is_needed_to_the_last_digit_is_not_feasible(self):
        """One late position: at some multiplier exactly the available mass is needed."""
        profile = TransportProfile([0.3, 0.7], [2.0, 0.1], [[np.array([2.0])]])
        (transport,) = profile._directions[0]
        low, high = 0.0, 60.0
        for _ in range(200):
            multiplier = (low + high) / 2
            kept, per_mass, retained = transport._terms(1.0, multiplier)
            available = 0.7 * -math.expm1(float(kept[0]) - 1.0)
            needed = 0.3 * -math.expm1(float(retained[0])) * math.exp(float(per_mass[0]) - 1.0)
            low, high = (multiplier, high) if needed < available else (low, multiplier)
        around = np.nextafter(high, [-np.inf, np.inf])
        assert not transport._feasible(1.0, np.array([[around[0]], [high], [around[1]]])).any()
        assert transport._feasible(1.0, np.array([[high - 1e-6]])).all()

    @pytest.mark.parametrize("transport_mus", [[], [1.0, 1.0], [math.nan], [math.inf]])
    def test_transports_of_no_or_all_positions_are_refused(self, transport_mus):
        with pytest.raises(InvalidParameter, match="transport_mus"):
            TransportProfile([0.5, 0.5], [1.0, 0.5], [[np.array(transport_mus)]])


class TestOfRuns:
    def test_the_visit_must_count(self, monkeypatch):
        def exceeded():
            shuffled_transport.cache_clear()
            profile = shuffled_transport(VISITED)
            shuffled_transport.cache_clear()
            return [leaked(*VISIT, epsilon) > profile.delta(epsilon) for epsilon in (1.5, 2.3, 3.0)]

        assert not any(exceeded())
        true = PositionsEachEpoch.transport_mus
        monkeypatch.setattr(
            PositionsEachEpoch,
            "transport_mus",
            lambda self, count, receiving, late: true(self, count, 0.0, late),
        )
        assert any(exceeded())

    @pytest.mark.parametrize("name", FOUND)
    def test_nothing_is_charged_too_little(self, name):
        rule, shape, ratio, adjacency, epsilon, factors, added, other = FOUND[name]
        run = contracting(rule, shape, ratio, 0.3, adjacency)
        certified = shuffled_transport(run).delta(epsilon)
        truth = leaked(rule, shape, factors, added, other, epsilon)
        assert 0.01 * certified < truth <= certified

    @pytest.mark.filterwarnings("error")
    @pytest.mark.parametrize("ratio", [1e-300, 1e-6, 1e3, 1e160, 1e300])
    @pytest.mark.parametrize("rule", RULES)
    def test_extremes_promise_little_or_nothing(self, rule, ratio):
        profile = shuffled_transport(contracting(rule, (50, 1, 120), ratio, 0.9))
        assert 0.0 <= profile.epsilon(1e-6) <= math.inf
        assert profile.epsilon(1e-6) < 1e-3 or ratio > 1.0

    def test_both_orders_of_the_data_sets_are_computed(self):
        run = contracting(li.ShuffledOnce, (4, 1, 8), 1.0, 0.9, "zero-out")
        one, other = shuffled_transport(run)._directions
        assert not np.allclose(one[0]._transport_mus, other[0]._transport_mus)

    @pytest.mark.parametrize(
        "rule, stage", [(li.ShuffledOnce, "once"), (li.ShuffledEachEpoch, "each-epoch")]
    )
    def test_is_below_the_average(self, rule, stage):
        run = contracting(rule, (5, 1, 5), 1.0, 0.9)
        average = RECORDS[f"random-order/shuffled/average-{stage}"].profile(run)
        assert shuffled_transport(run).delta(1.5) < 0.98 * average.delta(1.5)
