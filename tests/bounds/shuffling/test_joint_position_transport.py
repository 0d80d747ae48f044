"""Joint transport of late positions: below separate transport, never below the truth."""

import math
from itertools import product

import numpy as np
import pytest

import lastiterate as li
from lastiterate.bounds.shuffling.joint_transport import JointTransport, TransportGrid
from lastiterate.bounds.shuffling.positions import PositionsEachEpoch, end_windows
from lastiterate.bounds.shuffling.transport import (
    positions_of,
    sensitivity_factors,
    shuffled_transport,
)
from lastiterate.shifts.optimal_shifts import optimal_shifts
from lastiterate.shifts.patterns import Spent
from tests.bounds.shuffling.test_position_transport import FOUND, described, exact, leaked
from tests.reference.all_orders import epochs_seen, hockey_sticks, means

EPSILONS = (0.0, 0.3, 0.8, 1.5, 2.5, 3.5)  # those of `exact`
ROUGH = TransportGrid(receiving=40, every_nth_knot=2, cells=400, step=0.25)
SHAPES = [  # examples, batch size, steps
    (3, 1, 3), (4, 1, 4), (5, 1, 5), (5, 2, 2), (4, 2, 4), (3, 1, 6), (3, 1, 7), (3, 1, 4),
    (4, 1, 6), (2, 1, 5), (2, 1, 6),
]  # fmt: skip
HIDDEN = "random-order/shuffled/joint-transport"


def plans(run, rng, count):
    """Some choices of positions, windows, shares and multipliers, for both orders of data sets."""
    positions = positions_of(run)
    total = positions.weights().size
    for _ in range(count):
        late = int(rng.integers(1, total))
        hidden, noise = int(rng.integers(1, late + 1)), float(rng.choice([0.3, 0.7, 1.0]))
        laws = [positions.joint_laws(late, hidden, noise, *one) for one in sensitivity_factors(run)]
        multiplier = float(rng.choice([1.0, 2.0, 4.0, 9.0]))
        yield laws, multiplier


def certified(laws, multiplier, epsilon):
    return max(
        JointTransport(one, one.retained_shares(epsilon, multiplier), epsilon, ROUGH).delta(epsilon)
        for one in laws
    )


def attack(count, seed):
    rng = np.random.default_rng(seed)
    worst, tried = 0.0, 0
    for _ in range(count):
        rule = [li.ShuffledOnce, li.ShuffledEachEpoch][rng.integers(2)]
        shape = SHAPES[rng.integers(len(SHAPES))]
        ratio, contraction = rng.choice([0.5, 1.0, 2.0]), rng.choice([1.0, 0.9, 0.6])
        adjacency = str(rng.choice(["replace", "zero-out"]))
        run = described(rule, shape, ratio, contraction, adjacency)
        truth = exact(rng, rule, shape, ratio, contraction, adjacency)
        for laws, multiplier in plans(run, rng, 2):
            for epsilon, delta in list(zip(EPSILONS, truth, strict=True))[1:]:
                if delta > 1e-9:
                    found = certified(laws, multiplier, epsilon)
                    worst, tried = max(worst, delta / found), tried + (found < 1.0)
    return worst, tried


class TestSoundness:
    def test_no_instance_leaks_more(self):
        worst, tried = attack(20, seed=0)
        assert worst <= 1.0 + 1e-9
        assert tried > 80

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(1, 21))
    def test_no_instance_leaks_more_in_a_long_search(self, seed):
        assert attack(250, seed)[0] <= 1.0 + 1e-9

    @pytest.mark.parametrize("name", FOUND)
    def test_nothing_is_charged_too_little(self, name):
        rule, shape, ratio, adjacency, epsilon, steps, added, other = FOUND[name]
        run = described(rule, shape, ratio, 0.3, adjacency)
        truth = leaked(rule, shape, steps, added, [other, *added[1:]], epsilon)
        for laws, multiplier in plans(run, np.random.default_rng(0), 12):
            assert truth <= certified(laws, multiplier, epsilon)


class TestVisit:
    """The exchanged example's visit to the receiving position must count."""

    def exact(self, epsilon):
        """Two batches of one; the other example marks the early position; step two contracts."""
        seen = epochs_seen(2, 1, 2, each=True)
        added, other = np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([[1.0, 1.0], [1.0, 0.0]])
        steps = np.array([1.0, 0.283])
        (ours, spread), (theirs, _) = means(seen, steps, added), means(seen, steps, other)
        return hockey_sticks(ours, theirs, spread, [epsilon])[0]

    def least(self, epsilon):
        run = described(li.ShuffledEachEpoch, (2, 1, 2), 1.0, 0.283)
        grid = product((0.7, 0.85, 0.9), (2.5, 3.5, 4.0))
        return min(
            certified([positions_of(run).joint_laws(1, 1, noise, 1.0, 1.0)], multiplier, epsilon)
            for noise, multiplier in grid
        )

    def test_counts(self):
        assert all(self.exact(epsilon) <= self.least(epsilon) for epsilon in (1.5, 2.3, 3.0))

    def test_without_it_the_claim_is_false(self, monkeypatch):
        true = PositionsEachEpoch._receiving_mus

        def without_visit(self, count, receiving, reserved):
            return true(self, count, 0.0, reserved)

        monkeypatch.setattr(PositionsEachEpoch, "_receiving_mus", without_visit)
        assert any(self.exact(epsilon) > self.least(epsilon) for epsilon in (1.5, 2.3, 3.0))


def mu_of(participations, steps, contraction, reserved):
    """mu by optimal shifts of all steps, with the noise that is not reserved."""
    sensitivity, noise = np.zeros(steps), np.ones(steps)
    for step, factor in participations:
        sensitivity[step] += factor
    noise[steps - reserved.steps :] = math.sqrt(1.0 - reserved.share)
    return optimal_shifts(contraction=contraction, sensitivity=sensitivity, noise=noise).mu


class TestCharged:
    """mus of receiving positions, against optimal shifts of all steps."""

    STEPS, LENGTH = 10, 4

    @pytest.mark.parametrize("receiving, late", [(1.0, 1.0), (1.0, 2.0), (2.0, 1.0)])
    def test_if_drawn_once(self, receiving, late):
        run = described(li.ShuffledOnce, (4, 1, self.STEPS), 1.0, 0.9)
        positions = positions_of(run)
        for count, hidden in ((1, 1), (2, 1), (2, 2), (3, 2)):
            laws = positions.joint_laws(count, hidden, 0.6, receiving, late)
            reserved = end_windows(np.arange(hidden), 0.6).reserved
            for number, tail in enumerate(range(count, 4)):
                seen = range(self.STEPS - 1 - tail, -1, -self.LENGTH)
                own = mu_of([(step, 1.0) for step in seen], self.STEPS, 0.9, reserved)
                assert own == pytest.approx(laws.receiving_mus[number], rel=1e-6)
                for other in range(hidden):
                    before = range(self.STEPS - 1 - other - self.LENGTH, -1, -self.LENGTH)
                    both = [(step, receiving) for step in seen] + [(step, late) for step in before]
                    residual = mu_of(both, self.STEPS, 0.9, reserved)
                    assert residual <= laws.residual_mus[number] * (1 + 1e-9)

    @pytest.mark.parametrize("receiving, late", [(1.0, 1.0), (1.0, 2.0), (2.0, 1.0)])
    def test_where_the_last_epoch_is_truncated(self, receiving, late):
        """Two steps of the third epoch; in the second, positions are 4 to 7, in the first at 3."""
        positions = positions_of(described(li.ShuffledEachEpoch, (4, 1, self.STEPS), 1.0, 0.9))
        for count, hidden in ((1, 1), (2, 2), (3, 1), (4, 3), (5, 2)):
            laws = positions.joint_laws(count, hidden, 0.6, receiving, late)
            reserved = end_windows(np.arange(hidden), 0.6).reserved
            before = count > 2
            for number, tail in enumerate(range(count, 6)):
                step = self.STEPS - 1 - tail
                shared = [(3, 1.0)] + ([(7, 1.0)] if step >= 8 else [])
                own = mu_of([*shared, (step, 1.0)], self.STEPS, 0.9, reserved)
                assert own == pytest.approx(laws.receiving_mus[number], rel=1e-6)
                visited = receiving if step >= 8 or before else 1.0
                residual = mu_of([*shared, (step, visited)], self.STEPS, 0.9, reserved)
                assert residual == pytest.approx(laws.residual_mus[number], rel=1e-6)
            total = laws.receiving.sum() + laws.separate.sum() + laws.hidden.sum()
            assert total == pytest.approx(1.0)

    def test_a_late_position_of_a_truncated_epoch_may_be_late_before_it_too(self):
        """The 2 latest positions of 4 in the epoch before are not receiving."""
        positions = positions_of(described(li.ShuffledEachEpoch, (4, 1, self.STEPS), 1.0, 0.9))
        laws = positions.joint_laws(4, 1, 0.6, 1.0, 1.0)
        both = laws.separate[-4:]
        assert both == pytest.approx([1 / 4 * 1 / 4] * 4)
        pairs = [(before, step) for step in (9, 8) for before in (7, 6)]
        spent = Spent(0, 0.0)
        own = [mu_of([(x, 1.0) for x in (3, *p)], self.STEPS, 0.9, spent) for p in pairs]
        assert laws.separate_mus[-4:] == pytest.approx(own, rel=1e-6)
        met = [mu_of([(x, 1.0) for x in (3, 5, *p)], self.STEPS, 0.9, spent) for p in pairs]
        assert laws.separate_transport_mus[-4:] == pytest.approx(met, rel=1e-6)
        assert laws.hidden == pytest.approx([1 / 4 * 2 / 4])


def realistic(number, rule):
    if number == 3:
        return li.TrainingRun(
            loss=li.Loss(smoothness=32.502, strong_convexity=0.002),
            sensitivity=10.0,
            batches=rule(60_000, 1_500),
            steps=2_000,
            step_size=0.05,
            noise_std=0.01,
        ), 1e-5
    examples, size, ratio, steps = {
        1: (10**6, 1_000, 1.0, 10**5),
        2: (60_000, 256, 0.390625, 4_687),
        4: (10**6, 100, 1.0, 10**5),
    }[number]
    return li.TrainingRun(
        loss=li.Loss(smoothness=1.0, strong_convexity=1e-4),
        sensitivity=ratio * size,
        batches=rule(examples, size),
        steps=steps,
        step_size=1.0,
        noise_std=1.0,
    ), 1e-6


class TestTightness:
    @pytest.mark.parametrize(
        "number, once, each",
        [(1, 0.64, 0.65), (2, 0.51, 0.515), (3, 3.41, 3.26), (4, 0.072, 0.082)],
    )
    def test_of_realistic_runs(self, number, once, each):
        for rule, most in ((li.ShuffledOnce, once), (li.ShuffledEachEpoch, each)):
            run, delta = realistic(number, rule)
            report = li.account(run, bounds=HIDDEN)
            found = report.epsilon(delta)
            assert found <= most
            assert found < shuffled_transport(run).epsilon(delta)

    def test_delta_and_epsilon_agree_and_many_are_no_better_than_few(self):
        run, _ = realistic(3, li.ShuffledEachEpoch)
        profile = li.account(run, bounds=HIDDEN).all[HIDDEN]
        epsilon = profile.epsilon(1e-5)
        assert profile.delta(epsilon) == pytest.approx(1e-5, rel=1e-6)
        many = epsilon * np.linspace(0.97, 1.03, 7)
        few = [profile.delta(float(one)) for one in many]
        assert np.all(np.diff(few) < 0.0)
        assert np.all(profile.deltas(many) >= 0.9 * np.array(few))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("ratio", [1e-300, 1e-6, 1e-3, 5.0, 20.0, 1e160])
@pytest.mark.parametrize("rule", [li.ShuffledOnce, li.ShuffledEachEpoch])
def test_extremes_are_finite_or_promise_nothing(rule, ratio):
    for contraction in (1.0, 0.9, 0.0):
        run = described(rule, (50, 1, 120), ratio, contraction)
        alone = shuffled_transport(run).epsilon(1e-6)
        together = li.account(run, bounds=HIDDEN).epsilon(1e-6)
        assert 0.0 <= together <= alone
