"""Joint transport: never below quadrature nor the truth, below separate transport."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.special import ndtr

import lastiterate as li
from lastiterate.bounds.shuffling.joint_transport import (
    JointTransport,
    TransportGrid,
)
from lastiterate.bounds.shuffling.positions import PositionLaws, PositionsEachEpoch
from lastiterate.bounds.shuffling.proof_search import ShuffledProfile
from lastiterate.bounds.shuffling.transport import (
    positions_of,
    sensitivity_factors,
    shuffled_transport,
)
from lastiterate.errors import InvalidParameter
from lastiterate.profile import GaussianProfile
from tests.bounds.runs import described
from tests.bounds.shuffling.orders import FOUND, RULES, VISIT, VISITED, contracting, leaked
from tests.bounds.test_every_bound import TRIED, Attack
from tests.readme_run import readme_run
from tests.slow import slow_if

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
    at = np.linspace(-8.0, 8.0, 161)
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
        transport._kept_arguments(epsilon, np.array([transport.multiplier]))[:, 0],
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
        kept = transport._kept_arguments(0.8, np.array([multiplier]))[:, 0]
        retained = np.exp(min(0.0, 0.8 - 0.5 * (multiplier - 0.55 + 0.25)))
        needed = 0.07 * (1 - retained) * np.exp(0.55 * (multiplier - 0.275))
        assert needed <= LAWS.receiving @ (alpha - kept)
        assert not transport._feasible(0.8, np.array([multiplier + 0.5]))[0]

    def test_mass_that_is_needed_to_the_last_digit_is_not_feasible(self):
        multiplier = np.array([3.3])
        transport = JointTransport(LAWS, RETAINED, 0.8, FINE)
        (available,) = transport._receiving @ (
            1.0 - transport._kept_arguments(0.8, multiplier) * np.exp(-0.8)
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


class Failing:
    def delta(self, epsilon):
        return np.nan


def test_a_proof_whose_arithmetic_fails_certifies_nothing():
    quick = GaussianProfile(1.0)
    one = ShuffledProfile(quick, [lambda epsilon, delta: Failing()])
    at = np.linspace(0.5, 4.0, 9)
    assert np.array_equal(one.deltas(at), quick.deltas(at))
    assert one.epsilon(1e-5) == quick.epsilon(1e-5)


HIDDEN = "random-order/shuffled/joint-transport"
ROUGH = TransportGrid(receiving=40, every_nth_knot=2, cells=400, step=0.25)


def certified(laws, multiplier, epsilon):
    return max(
        JointTransport(one, one.retained_shares(epsilon, multiplier), epsilon, ROUGH).delta(epsilon)
        for one in laws
    )


def plans(run, rng, count):
    """Some choices of positions, windows, shares and multipliers, for both orders of data sets."""
    positions = positions_of(run)
    for _ in range(count):
        late = int(rng.integers(1, positions.weights().size))
        hidden, noise = int(rng.integers(1, late + 1)), float(rng.choice([0.3, 0.7, 1.0]))
        laws = [positions.joint_laws(late, hidden, noise, *one) for one in sensitivity_factors(run)]
        yield laws, float(rng.choice([1.0, 2.0, 4.0, 9.0]))


def least(epsilon):
    """Of some plans for the run whose visit must count."""
    positions = positions_of(VISITED)
    return min(
        certified([positions.joint_laws(1, 1, noise, 1.0, 1.0)], multiplier, epsilon)
        for noise, multiplier in product((0.7, 0.85, 0.9), (2.5, 3.5, 4.0))
    )


class TestOfRuns:
    @pytest.mark.parametrize("seed", slow_if(bool, range(20)))
    def test_no_instance_leaks_more_than_some_plan_says(self, seed):
        rng, tried = np.random.default_rng(seed), 0
        for number in range(20):
            attack = Attack(rng, RULES[number % 2])
            if attack.run.batches.batches_per_epoch < 3:
                continue
            leaks = dict(zip(TRIED, attack.leaked(rng), strict=True))
            for laws, multiplier in plans(attack.run, rng, 2):
                for epsilon in TRIED[1:]:
                    found = certified(laws, multiplier, epsilon)
                    assert leaks[epsilon] <= found * (1.0 + 1e-9) + 1e-9
                    tried += found < 1.0
        assert tried > 40

    @pytest.mark.parametrize("name", FOUND)
    def test_nothing_is_charged_too_little(self, name):
        rule, shape, ratio, adjacency, epsilon, steps, added, other = FOUND[name]
        run = contracting(rule, shape, ratio, 0.3, adjacency)
        truth = leaked(rule, shape, steps, added, other, epsilon)
        for laws, multiplier in plans(run, np.random.default_rng(0), 12):
            assert truth <= certified(laws, multiplier, epsilon)

    def test_the_visit_must_count(self, monkeypatch):
        epsilons = (1.5, 2.3, 3.0)
        assert all(leaked(*VISIT, epsilon) <= least(epsilon) for epsilon in epsilons)
        true = PositionsEachEpoch._receiving_mus
        monkeypatch.setattr(
            PositionsEachEpoch,
            "_receiving_mus",
            lambda self, count, receiving, reserved: true(self, count, 0.0, reserved),
        )
        assert any(leaked(*VISIT, epsilon) > least(epsilon) for epsilon in epsilons)

    @pytest.mark.parametrize(
        "examples, size, ratio, steps, mosts",
        [
            (10**6, 1_000, 1.0, 10**5, (0.64, 0.65)),
            (60_000, 256, 0.390625, 4_687, (0.51, 0.515)),
            (10**6, 100, 1.0, 10**5, (0.072, 0.082)),
        ],
    )
    def test_realistic_runs(self, examples, size, ratio, steps, mosts):
        loss = li.Loss(smoothness=1.0, strong_convexity=1e-4)
        for rule, most in zip(RULES, mosts, strict=True):
            run = described(rule(examples, size), steps, loss=loss, sensitivity=ratio * size)
            found = li.account(run, bounds=HIDDEN).epsilon(1e-6)
            assert found <= most
            assert found < shuffled_transport(run).epsilon(1e-6)

    def test_delta_and_epsilon_agree_and_many_are_no_better_than_few(self):
        run = readme_run(li.ShuffledEachEpoch)
        profile = li.account(run, bounds=HIDDEN).all[HIDDEN]
        epsilon = profile.epsilon(1e-5)
        assert epsilon <= 3.26
        assert li.account(readme_run(), bounds=HIDDEN).epsilon(1e-5) <= 3.41
        assert profile.delta(epsilon) == pytest.approx(1e-5, rel=1e-6)
        many = epsilon * np.linspace(0.97, 1.03, 7)
        few = [profile.delta(float(one)) for one in many]
        assert np.all(np.diff(few) < 0.0)
        assert np.all(profile.deltas(many) >= 0.9 * np.array(few))

    @pytest.mark.filterwarnings("error")
    @pytest.mark.parametrize("ratio", [1e-300, 1e-6, 1e-3, 5.0, 20.0, 1e160])
    @pytest.mark.parametrize("rule", RULES)
    def test_extremes_are_finite_or_promise_nothing(self, rule, ratio):
        for contraction in (1.0, 0.9, 0.0):
            run = contracting(rule, (50, 1, 120), ratio, contraction)
            together = li.account(run, bounds=HIDDEN).epsilon(1e-6)
            assert 0.0 <= together <= shuffled_transport(run).epsilon(1e-6)
