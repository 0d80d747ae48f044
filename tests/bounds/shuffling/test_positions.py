"""Hidden positions: their windows and mus, against optimal shifts of all steps."""

import math
from itertools import product

import numpy as np
import pytest

import lastiterate as li
from lastiterate.bounds.shuffling import early_transport
from lastiterate.bounds.shuffling.positions import (
    EndWindows,
    early_edges,
    early_windows,
    end_windows,
)
from lastiterate.bounds.shuffling.transport import positions_of
from lastiterate.errors import InvalidParameter
from lastiterate.shifts.early_shifts import ShortSteps
from lastiterate.shifts.optimal_shifts import optimal_shifts
from tests.bounds.runs import described, short_run
from tests.bounds.shuffling.orders import FACTORS, RULES, contracting, mu_of


def distance_left(tail, window, cost, contraction, share):
    """The distance that is left of a participation of 1; tails count down to 0."""
    first, last = window
    weights = share * contraction ** (2.0 * np.arange(first, last))
    # In final units a step shifts in proportion to its variance, in all `cost` times its root.
    shifts = cost * weights / np.sqrt(weights.sum())
    distance = 1.0
    for step in range(tail, -1, -1):
        distance *= contraction if step < tail else 1.0
        if first <= step < last:
            distance = max(distance - shifts[step - first] / contraction**step, 0.0)
    return distance


@pytest.mark.parametrize("contraction", [1.0, 0.999, 0.8])
@pytest.mark.parametrize("share", [1.0, 0.4])
def test_every_participation_is_shifted_away_in_its_window(contraction, share):
    tails = np.array([0, 1, 2, 3, 5, 9, 17, 30])
    windows = end_windows(tails, share)
    costs = windows.costs(1.0 - contraction)
    for tail, chosen in zip(tails.tolist(), windows.window_of.tolist(), strict=True):
        window = windows.edges[chosen], windows.edges[chosen + 1]
        left = distance_left(tail, window, costs[chosen], contraction, share)
        assert left == pytest.approx(0.0, abs=1e-9)
        if tail == window[1] - 1:  # and none of it is for nothing
            assert distance_left(tail, window, 0.99 * costs[chosen], contraction, share) > 1e-4


def test_the_noise_of_all_windows_is_reserved():
    windows = end_windows(np.array([0, 4, 12]), 0.7)
    assert windows.reserved.steps == windows.edges[-1] >= 5
    assert windows.reserved.share == 0.7


def parts_of_a_participation(tail, window, kept, least, contraction):
    """Its sensitivity in each step of a window that may contain it, from the first step on.

    Parts of it are ahead of it, more and more of them; `kept` is `least` less what gradients drift.
    """
    first, last = window[0], window[1] - 1
    if tail > last:
        return [contraction ** (tail - last)] + [0.0] * (last - first)
    before, ages = last - tail, range(last - tail, 0, -1)
    since = sum(contraction ** (-2.0 * i) for i in range(tail - first + 1))
    whole = sum(kept ** (2 * i) for i in ages) + since
    ahead = [sum(kept ** (2 * k - i) for k in range(i, before + 1)) / whole for i in ages]
    centre, half = (contraction + least) / 2, (contraction - least) / 2
    earlier, parts = 0.0, []
    for one in [*ahead, 1.0]:
        parts.append(abs(one - centre * earlier) + (half + least - kept) * earlier)
        earlier = one
    return parts + [0.0] * (tail - first)


@pytest.mark.parametrize("contraction", [1.0, 0.999, 0.9])
@pytest.mark.parametrize("lost", [0.0, 0.05, 0.4, 1.0, 1.3])
@pytest.mark.parametrize("first", [1, 3, 8])
def test_windows_that_contain_participations_hide_them(contraction, lost, first):
    """The cost is that of optimal shifts of parts of the participation, within the window."""
    tails, share, kept = np.arange(12), 0.7, max(1.0 - lost, 0.0)
    if kept > contraction:
        return
    edges = early_edges(tails, first=first, most=15)
    windows = early_windows(edges, tails, share, gap=1.0 - contraction, lost=lost)
    costs = windows.position_costs(1.0 - contraction)
    assert edges[-1] <= 15
    for tail, chosen, cost in zip(tails.tolist(), windows.window_of.tolist(), costs, strict=True):
        window = int(edges[chosen]), int(edges[chosen + 1])
        assert window[0] <= tail
        parts = parts_of_a_participation(tail, window, kept, kept, contraction)
        noise = np.full(len(parts), np.sqrt(share))
        mu = optimal_shifts(contraction=contraction, sensitivity=parts, noise=noise).mu
        assert mu <= cost * (1.0 + 1e-9)
        assert cost <= mu * (1.0 + 1e-6)


GIVEN = {"edges": [0, 1, 3], "share": 0.5, "tails": [0, 2], "chosen": [0, 1], "lost": None}


def windows_of(**changes):
    """Windows that are valid but for what is changed."""
    edges, share, tails, chosen, lost = (GIVEN | changes).values()
    more = {} if lost is None else {"lost": lost}
    return EndWindows(np.array(edges), share, np.array(tails), np.array(chosen), **more)


@pytest.mark.parametrize(
    "changes",
    [
        {"tails": [0, 1]},  # begins before the participation
        {"chosen": [0, 2]},  # no window
        {"chosen": [-1, 1]},
        {"edges": [0, 2, 1], "tails": [2], "chosen": [0]},  # overlap
        {"edges": [0, 1, 1], "tails": [2], "chosen": [0]},
        {"edges": [-1, 1, 3], "tails": [2], "chosen": [0]},  # after the end of the run
        {"share": 1.1},  # more noise than there is
        {"share": 0.0},
        {"share": np.nan},
        {"edges": [0, 8], "tails": [3], "chosen": [0]},  # contains it, for steps of any length
        {"edges": [4, 8], "tails": [3], "chosen": [0], "lost": 0.2},  # begins after it
    ],
)
def test_invalid_windows_are_refused(changes):
    assert windows_of().edges[-1] == 3
    assert windows_of(edges=[0, 8], tails=[3], chosen=[0], lost=0.2).position_costs(0.0)[0] < 1.0
    with pytest.raises(InvalidParameter):
        windows_of(**changes)


class TestTransported:
    """mu of a late position against all receiving ones."""

    def pairs(self, receiving, late):
        """(late position, participations) of 4 batches in one epoch and a half; steps 0 to 5.

        In the first epoch f is the position of the late run, e that of the receiving run.
        """
        for t in (4, 5):
            for f, e in product(range(4), repeat=2):  # e takes no part in the second epoch
                first = [(f, 1.0)] if f == e else [(f, late), (e, receiving)]
                yield t, [*first, (t, late)]
            for f, e in product(range(4), {4, 5} - {t}):
                yield t, [(f, 1.0), (e, receiving), (t, late)]
        for t in range(4):
            for e in set(range(4)) - {t}:
                yield t, [(e, receiving), (t, late)]

    @pytest.mark.parametrize("receiving, late", FACTORS)
    def test_of_a_truncated_epoch(self, receiving, late):
        positions = positions_of(contracting(li.ShuffledEachEpoch, (4, 1, 6), 1.0, 0.9))
        mus = [
            (t, max((step for step, _ in pair if step != t), default=-1), mu_of(pair, 6, 0.9))
            for t, pair in self.pairs(receiving, late)
        ]
        for count in range(1, 6):  # of the latest
            charged = positions.transport_mus(count, receiving, late)
            for t, other, mu in mus:
                if other < 6 - count <= t:
                    assert mu <= charged[5 - t] * (1 + 1e-9)


class TestReceiving:
    """mus of receiving positions beside windows."""

    STEPS, LENGTH = 10, 4

    @pytest.mark.parametrize("receiving, late", FACTORS)
    def test_if_drawn_once(self, receiving, late):
        run = contracting(li.ShuffledOnce, (4, 1, self.STEPS), 1.0, 0.9)
        positions = positions_of(run)
        for count, hidden in ((1, 1), (2, 1), (2, 2), (3, 2)):
            laws = positions.joint_laws(count, hidden, 0.6, receiving, late)
            reserved = end_windows(np.arange(hidden), 0.6).reserved
            for number, tail in enumerate(range(count, 4)):
                seen = range(self.STEPS - 1 - tail, -1, -self.LENGTH)
                own = mu_of([(step, 1.0) for step in seen], self.STEPS, 0.9, reserved.steps, 0.6)
                assert own == pytest.approx(laws.receiving_mus[number], rel=1e-6)
                for other in range(hidden):
                    before = range(self.STEPS - 1 - other - self.LENGTH, -1, -self.LENGTH)
                    both = [(step, receiving) for step in seen] + [(step, late) for step in before]
                    residual = mu_of(both, self.STEPS, 0.9, reserved.steps, 0.6)
                    assert residual <= laws.residual_mus[number] * (1 + 1e-9)

    @pytest.mark.parametrize("receiving, late", FACTORS)
    def test_where_the_last_epoch_is_truncated(self, receiving, late):
        """Two steps of the third epoch; in the second, positions are 4 to 7, in the first at 3."""
        positions = positions_of(contracting(li.ShuffledEachEpoch, (4, 1, self.STEPS), 1.0, 0.9))
        for count, hidden in ((1, 1), (2, 2), (3, 1), (4, 3), (5, 2)):
            laws = positions.joint_laws(count, hidden, 0.6, receiving, late)
            reserved = end_windows(np.arange(hidden), 0.6).reserved
            before = count > 2
            for number, tail in enumerate(range(count, 6)):
                step = self.STEPS - 1 - tail
                shared = [(3, 1.0)] + ([(7, 1.0)] if step >= 8 else [])
                own = mu_of([*shared, (step, 1.0)], self.STEPS, 0.9, reserved.steps, 0.6)
                assert own == pytest.approx(laws.receiving_mus[number], rel=1e-6)
                visited = receiving if step >= 8 or before else 1.0
                residual = mu_of([*shared, (step, visited)], self.STEPS, 0.9, reserved.steps, 0.6)
                assert residual == pytest.approx(laws.residual_mus[number], rel=1e-6)
            total = laws.receiving.sum() + laws.separate.sum() + laws.hidden.sum()
            assert total == pytest.approx(1.0)

    def test_a_late_position_of_a_truncated_epoch_may_be_late_before_it_too(self):
        """The 2 latest positions of 4 in the epoch before are not receiving."""
        positions = positions_of(contracting(li.ShuffledEachEpoch, (4, 1, self.STEPS), 1.0, 0.9))
        laws = positions.joint_laws(4, 1, 0.6, 1.0, 1.0)
        both = laws.separate[-4:]
        assert both == pytest.approx([1 / 4 * 1 / 4] * 4)
        pairs = [(before, step) for step in (9, 8) for before in (7, 6)]
        own = [mu_of([(x, 1.0) for x in (3, *p)], self.STEPS, 0.9) for p in pairs]
        assert laws.separate_mus[-4:] == pytest.approx(own, rel=1e-6)
        met = [mu_of([(x, 1.0) for x in (3, 5, *p)], self.STEPS, 0.9) for p in pairs]
        assert laws.separate_transport_mus[-4:] == pytest.approx(met, rel=1e-6)
        assert laws.hidden == pytest.approx([1 / 4 * 2 / 4])


def hidden_early(tail, before, kept, least, contraction, reserved=0, share=0.0):
    """(tail, sensitivity) of the parts of a participation, so many of them in steps before it.

    `kept` is what is left of `least`, the least factor of a step, after the drift of gradients.
    """
    centre, half = (contraction + least) / 2, (contraction - least) / 2
    leak = least - kept
    since = sum(
        (1.0 - share * (i < reserved)) * contraction ** (2.0 * (i - tail)) for i in range(tail + 1)
    )
    whole = sum(kept ** (2 * i) for i in range(1, before + 1)) + since
    ages = range(before, -1, -1)
    parts = [sum(kept ** (2 * k - i) for k in range(i, before + 1)) / whole for i in ages]
    theta, earlier, result = [*parts[:-1], 1.0], 0.0, []
    for one, age in zip(theta, ages, strict=True):
        result.append((tail + age, abs(one - centre * earlier) + (half + leak) * earlier))
        earlier = one
    return result


class TestShortSteps:
    """Every mu is that of some plan: parts of a participation in steps before it, and shifts."""

    STEPS, LENGTH, LEAST, CONTRACTION = 18, 6, 0.8, 0.95

    def positions(self, rule, early=True):
        loss = li.Loss(
            smoothness=1.0 - self.LEAST, strong_convexity=1.0 - self.CONTRACTION, outputs=1
        )
        run = described(rule(self.LENGTH, 1), self.STEPS, loss=loss)
        constant = ShortSteps(
            steps=self.STEPS, gap=1.0 - self.CONTRACTION, curvature=1.0 - self.LEAST, ratio=1.0,
            drift=1e-300, dimension=2,
        )  # fmt: skip
        return positions_of(run, constant if early else None)

    def least(self, others, tail, times, reserved=0, share=0.0):
        """The least mu of plans that keep some steps before the last participation for it."""
        room = min((one for one, _ in others), default=self.STEPS) - tail - 1
        found = []
        for before in range(room + 1):
            steps = self.LEAST, self.LEAST, self.CONTRACTION
            parts = hidden_early(tail, before, *steps, reserved, share)
            tails = others + [(at, times * size) for at, size in parts]
            every = [(self.STEPS - 1 - at, size) for at, size in tails]
            found.append(mu_of(every, self.STEPS, self.CONTRACTION, reserved, share))
        return min(found)

    @pytest.mark.parametrize("receiving, late", FACTORS)
    def test_if_drawn_each_epoch(self, receiving, late):
        positions = self.positions(li.ShuffledEachEpoch)
        ends = [(2 * self.LENGTH, 1.0), (self.LENGTH, 1.0)]
        later = self.positions(li.ShuffledEachEpoch, early=False)
        for tail in range(self.LENGTH):
            assert self.least(ends, tail, 1.0) <= positions.mus()[tail] * (1 + 1e-9)
            assert positions.mus()[tail] <= later.mus()[tail] * (1 + 1e-12)
        assert positions.mus()[0] < 0.85 * later.mus()[0]
        for count in (1, 2, 4):
            mus = positions.transport_mus(count, receiving, late)
            for tail in range(count):
                others = [*ends, (count, receiving)]
                assert self.least(others, tail, late) <= mus[tail] * (1 + 1e-9)

    @pytest.mark.parametrize("receiving, late", FACTORS)
    @pytest.mark.parametrize("rule", RULES)
    def test_of_receiving_positions_beside_windows(self, rule, receiving, late):
        positions = self.positions(rule)
        once = rule is li.ShuffledOnce
        for count, hidden, first in ((2, 1, 1), (3, 2, 4), (4, 4, 3)):
            laws = positions.joint_laws(count, hidden, 0.6, receiving, late, first)
            steps = int(positions.window_edges(np.arange(hidden), first, count)[-1])
            assert steps <= count
            for number, tail in enumerate(range(count, self.LENGTH)):
                own = [((j + 1) * self.LENGTH + tail * once, 1.0) for j in (1, 0)]
                found = self.least(own, tail, 1.0, steps, 0.6)
                assert found <= laws.receiving_mus[number] * (1 + 1e-9)
                size = late + receiving if once else 1.0
                others = [((j + 1) * self.LENGTH, size) for j in (1, 0)]
                found = self.least(others, tail, receiving, steps, 0.6)
                assert found <= laws.residual_mus[number] * (1 + 1e-9)

    @pytest.mark.parametrize("late", [1.0, 2.0])
    @pytest.mark.parametrize("outputs", [1, 10])
    def test_windows_lose_what_gradients_drift(self, late, outputs):
        """l' = 1 - eta M - c kappa; the radius has the shifts of windows and of all others."""
        run = short_run(li.ShuffledEachEpoch, outputs=outputs)
        positions = positions_of(run, early_transport._exchange_steps(run))
        windows = positions.windows(np.array([0, 8]), np.arange(5), 0.9, late, beside=0.7)
        q = math.sqrt(2.0 * math.log(run.steps / positions.failure))
        radius = math.sqrt(2 * outputs) + q + late + 0.7
        kappa = 0.5 * 0.25 / (512 * late) * radius
        kept = 1.0 - 0.5 * 0.26 - (1.0 - 0.5 * 0.01) * kappa
        assert kept - 1e-9 <= 1.0 - windows.lost <= kept
