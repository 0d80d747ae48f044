"""Transport between positions: below averages, never below the truth; the visit must count."""

import math

import numpy as np
import pytest

import lastiterate as li
from lastiterate.bounds.catalogue import RECORDS
from lastiterate.bounds.shuffling.transport import positions_of, shuffled_transport
from tests.reference.all_orders import epochs_seen, hockey_sticks, means

EPSILONS = (0.0, 0.3, 0.8, 1.5, 2.5, 3.5)
SHAPES = [  # examples, batch size, steps
    (2, 1, 2), (3, 1, 3), (4, 1, 4), (5, 1, 5), (4, 2, 2), (5, 2, 2), (4, 2, 4),
    (2, 1, 6), (3, 1, 6), (3, 1, 7), (3, 1, 4), (4, 1, 6), (2, 1, 5),
]  # fmt: skip


def described(rule, shape, ratio, contraction, adjacency="replace"):
    examples, size, steps = shape
    return li.TrainingRun(
        loss=li.Loss(smoothness=1.0 + 1e-9, strong_convexity=1.0 - contraction),
        sensitivity=ratio * size,
        batches=rule(examples, size),
        steps=steps,
        step_size=1.0,
        noise_std=1.0,
        adjacency=adjacency,
    )


def exact(rng, rule, shape, ratio, contraction, adjacency):
    """(delta by epsilon, one way and the other) of an instance that obeys the description.

    What examples add lies in an interval as long as the sensitivity (from minus to plus it, if one
    is left out), mostly at its ends, so that other examples mark positions; steps may contract.
    """
    examples, size, steps = shape
    seen = epochs_seen(examples, size, steps, rule is li.ShuffledEachEpoch)
    forget = rng.random(steps) < rng.choice([0.0, 0.3])
    factors = np.where(forget, rng.uniform(0.0, contraction, steps), contraction)
    low, high = (0.0, 1.0) if adjacency == "replace" else (-1.0, 1.0)
    added = (
        ratio
        * size
        * np.where(
            rng.random((examples, steps)) < 0.8,
            rng.choice([low, high], (examples, steps)),
            rng.uniform(low, high, (examples, steps)),
        )
    )
    if rng.random() < 0.5:  # the differing example always pulls the same way
        added[0] = ratio * size * high
    other = added.copy()
    other[0] = 0.0 if adjacency == "zero-out" else ratio * size - added[0]
    ours, spread = means(seen, factors, added)
    theirs, _ = means(seen, factors, other)
    return hockey_sticks(ours, theirs, spread, EPSILONS)


def attack(count, seed):
    rng = np.random.default_rng(seed)
    worst, gained = 0.0, 0
    for _ in range(count):
        rule = [li.ShuffledOnce, li.ShuffledEachEpoch][rng.integers(2)]
        shape = SHAPES[rng.integers(len(SHAPES))]
        ratio, contraction = rng.choice([0.5, 1.0, 2.0]), rng.choice([1.0, 0.9, 0.6])
        adjacency = rng.choice(["replace", "zero-out"])
        run = described(rule, shape, ratio, contraction, str(adjacency))
        revealed = {li.ShuffledOnce: "once", li.ShuffledEachEpoch: "each-epoch"}[rule]
        averaged = RECORDS[f"random-order/shuffled/average-{revealed}"].profile(run)
        hidden = shuffled_transport(run)
        truth = exact(rng, rule, shape, ratio, contraction, adjacency)
        for epsilon, delta in zip(EPSILONS, truth, strict=True):
            certified = hidden.delta(epsilon)
            if delta > 1e-9:
                worst = max(worst, delta / certified)
            gained += certified < 0.98 * averaged.delta(epsilon)
    return worst, gained


class TestSoundness:
    def test_no_instance_leaks_more(self):
        worst, gained = attack(60, seed=0)
        assert worst <= 1.0 + 1e-9
        assert gained > 20  # else nothing was tried

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(1, 21))
    def test_no_instance_leaks_more_in_a_long_search(self, seed):
        assert attack(250, seed)[0] <= 1.0 + 1e-9


class TestVisit:
    """The example whose position is taken visits the receiving position, which must count."""

    def exact(self, epsilon):
        """Two batches of one; the other example marks the early position; step two contracts."""
        seen = epochs_seen(2, 1, 2, each=True)
        added = np.array([[0.0, 0.0], [1.0, 0.0]])
        other = np.array([[1.0, 1.0], [1.0, 0.0]])
        factors = np.array([1.0, 0.283])
        ours, spread = means(seen, factors, added)
        theirs, _ = means(seen, factors, other)
        return hockey_sticks(ours, theirs, spread, [epsilon])[0]

    def run_(self):
        return described(li.ShuffledEachEpoch, (2, 1, 2), 1.0, 0.283)

    def test_counts(self):
        profile = shuffled_transport(self.run_())
        for epsilon in (1.5, 2.3, 3.0):
            assert self.exact(epsilon) <= profile.delta(epsilon)

    def test_without_it_the_claim_is_false(self, monkeypatch):
        from lastiterate.bounds.shuffling import positions as positions_each_epoch

        true = positions_each_epoch.PositionsEachEpoch.transport_mus

        def without_visit(self, count, receiving, late):
            return true(self, count, 0.0, late)

        monkeypatch.setattr(positions_each_epoch.PositionsEachEpoch, "transport_mus", without_visit)
        shuffled_transport.cache_clear()
        claimed = shuffled_transport(self.run_())
        shuffled_transport.cache_clear()
        assert any(self.exact(epsilon) > claimed.delta(epsilon) for epsilon in (2.3, 3.0))


def leaked(rule, shape, factors, added, other, epsilon):
    seen = epochs_seen(*shape, rule is li.ShuffledEachEpoch)
    ours, spread = means(seen, np.array(factors), np.array(added, dtype=float))
    theirs, _ = means(seen, np.array(factors), np.array(other, dtype=float))
    return hockey_sticks(ours, theirs, spread, [epsilon])[0]


NOTHING = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
MARKS = [1, -1, 1, -1, 1, -1]
# By climbing: each leaks more than would be certified if one participation counted too little.
FOUND = {
    "i against u counts twice": (
        li.ShuffledOnce, (2, 1, 2), 1.0, "zero-out", 3.5,
        [0.3, 0.0], [[1, 1], [1, -1]], NOTHING[:2],
    ),
    "in either order of the data sets": (
        li.ShuffledOnce, (4, 1, 4), 1.0, "zero-out", 3.5, [0.0, 0.0, 0.2, 0.0],
        [[-1, -1, 1, 1], [-1, 1, -1, -1], [-1, 1, -1, -1], [0.586, 1, -1, -1]], NOTHING[:4],
    ),
    "both positions in earlier epochs": (
        li.ShuffledOnce, (4, 2, 6), 0.5, "zero-out", 2.0, [-0.2, 0.2, 0.3, 0.3, 0.3, 0.3],
        [[1] * 6, MARKS, [-1, *MARKS[1:]], [-1, *MARKS[1:]]], NOTHING,
    ),
    "the latest receiving position": (
        li.ShuffledEachEpoch, (3, 1, 6), 2.0, "replace", 3.5, [0.3, *[-0.3] * 5],
        [[0, 2, 0, 2, 0, 2], [2, 2, 0, 0, 2, 2], [0.545, 1.922, 0, 0, 2, 2]],
        [2, 0, 2, 0, 2, 0],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_nothing_is_charged_too_little(name):
    rule, shape, ratio, adjacency, epsilon, factors, added, other = FOUND[name]
    run = described(rule, shape, ratio, 0.3, adjacency)
    certified = shuffled_transport(run).delta(epsilon)
    truth = leaked(rule, shape, factors, added, [other, *added[1:]], epsilon)
    assert 0.01 * certified < truth <= certified


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("ratio", [1e-300, 1e-6, 1e3, 1e160, 1e300])
@pytest.mark.parametrize("rule", [li.ShuffledOnce, li.ShuffledEachEpoch])
def test_extremes_promise_little_or_nothing(rule, ratio):
    run = described(rule, (50, 1, 120), ratio, 0.9)
    profile = shuffled_transport(run)
    assert 0.0 <= profile.epsilon(1e-6) <= math.inf
    assert profile.epsilon(1e-6) < 1e-3 or ratio > 1.0


class TestPatterns:
    """mu of a late position against all receiving ones, by optimal shifts of all steps."""

    def mu(self, participations, steps):
        from lastiterate.shifts.optimal_shifts import optimal_shifts

        sensitivity = np.zeros(steps)
        for step, factor in participations:
            sensitivity[step] += factor
        return optimal_shifts(contraction=0.9, sensitivity=sensitivity, noise=np.ones(steps)).mu

    def pairs(self, receiving, late):
        """(late position, participations) of 4 batches in one epoch and a half; steps 0 to 5.

        In the first epoch f is the position of the late run, e that of the receiving run.
        """
        for t in (4, 5):
            for f in range(4):
                for e in range(4):  # which takes no part in the second epoch
                    first = [(f, 1.0)] if f == e else [(f, late), (e, receiving)]
                    yield t, [*first, (t, late)]
                for e in {4, 5} - {t}:
                    yield t, [(f, 1.0), (e, receiving), (t, late)]
        for t in range(4):
            for e in set(range(4)) - {t}:
                yield t, [(e, receiving), (t, late)]

    @pytest.mark.parametrize("receiving, late", [(1.0, 1.0), (1.0, 2.0), (2.0, 1.0)])
    def test_of_a_truncated_epoch(self, receiving, late):
        positions = positions_of(described(li.ShuffledEachEpoch, (4, 1, 6), 1.0, 0.9))
        order = [5, 4, 3, 2, 1, 0]  # from the latest
        for count in range(1, 6):
            charged = positions.transport_mus(count, receiving, late)
            for t, participations in self.pairs(receiving, late):
                other = max((step for step, _ in participations if step != t), default=-1)
                if t in order[:count] and other in order[count:]:
                    assert self.mu(participations, 6) <= charged[order.index(t)] * (1 + 1e-9)

    def test_both_orders_of_the_data_sets_are_computed(self):
        run = described(li.ShuffledOnce, (4, 1, 8), 1.0, 0.9, "zero-out")
        one, other = shuffled_transport(run)._directions
        assert not np.allclose(one[0]._transport_mus, other[0]._transport_mus)
