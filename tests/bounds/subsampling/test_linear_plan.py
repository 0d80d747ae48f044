"""Linear plans: what the checks refuse, and that what passes can be paid step by step."""

import dataclasses
import math

import numpy as np
import pytest

from lastiterate.bounds.subsampling.linear_plan import RELEASE, Group, Plan, Stretch
from lastiterate.bounds.subsampling.shift_windows import Shape, best_shape, plan_of_shape

STRETCHES = (Stretch(RELEASE, RELEASE), Stretch(0, 0), Stretch(1, 4, 2), Stretch(5, 6))


def plan(groups, steps=9, stretches=STRETCHES):
    return Plan(gap=0.1, steps=steps, release=0.5, stretches=stretches, groups=tuple(groups))


GOOD = (
    Group(0, 2, ((0, 0.5), (1, 0.6))),
    Group(2, 2, ((2, 0.7),), 2),
    Group(6, 3, ((0, 0.5), (1, 0.4), (2, 0.3), (3, 1.0))),
)


class TestChecks:
    def test_a_plan_that_is_none_of_these(self):
        assert plan(GOOD).groups == GOOD

    @pytest.mark.parametrize(
        "number, shares",
        [
            (0, ((0, 0.51), (1, 0.6))),
            (1, ((2, 0.71),)),
            (2, ((3, 1.0), (3, 0.01))),
            (2, ((3, -0.1),)),
            (2, ((3, math.nan),)),
        ],
    )
    def test_noise_used_twice(self, number, shares):
        groups = list(GOOD)
        groups[number] = dataclasses.replace(groups[number], shares=shares)
        with pytest.raises(ValueError, match="some noise twice"):
            plan(groups)

    def test_stretches_that_overlap(self):
        overlapping = (*STRETCHES[:3], Stretch(4, 6))
        with pytest.raises(ValueError, match="some noise twice"):
            plan(GOOD, stretches=overlapping)

    @pytest.mark.parametrize(
        "changed",
        [
            [Group(0, 2, ((1, 0.6), (4, 0.1))), *GOOD[1:]],
            [GOOD[0], Group(2, 2, ((4, 0.1),), 2), GOOD[2]],
            [Group(0, 1, GOOD[0].shares), Group(1, 2, ((2, 0.7),), 2), Group(5, 4, GOOD[2].shares)],
            [GOOD[0], Group(2, 1, ((2, 0.7),), 4), GOOD[2]],
            [GOOD[0], GOOD[1], Group(6, 3, ((3, 1.0), (4, 1.0)))],
        ],
    )
    def test_paid_before_it_arrives(self, changed):
        with pytest.raises(ValueError, match="before they come"):
            plan(changed, stretches=(*STRETCHES, Stretch(7, 7)))

    @pytest.mark.parametrize(
        "changed, steps",
        [
            (GOOD[:2], 9),
            (GOOD[1:], 9),
            (GOOD, 10),
            (GOOD, 8),
            ((GOOD[0], GOOD[0], *GOOD[1:]), 9),
            ((GOOD[0], dataclasses.replace(GOOD[1], count=0, times=1), GOOD[2]), 9),
        ],
    )
    def test_paid_twice_or_never(self, changed, steps):
        halved = [
            dataclasses.replace(one, shares=tuple((n, s / 2) for n, s in one.shares))
            for one in changed
        ]
        with pytest.raises(ValueError, match="twice or never"):
            plan(halved, steps)


def walked(plan_, seen, contraction):
    """The energy of all payments, step by step; the distance must never be overdrawn and end at 0.

    Written out from the meaning of shares alone: payments in proportion to variance.
    """
    steps = plan_.steps
    payments = {}  # (age, group, block) -> length in final units, variance of the share
    for number, group in enumerate(plan_.groups):
        for block in range(group.times):
            first = group.first + block * group.count
            mass = sum(contraction**a for a in range(first, first + group.count) if seen[a])
            noise = []
            for stretch, share in group.shares:
                one = plan_.stretches[stretch]
                if one.first == RELEASE:
                    noise.append((RELEASE, share * plan_.release))
                    continue
                ages = np.arange(one.first, one.last + 1)
                if group.times > 1:
                    ages = np.array_split(ages, group.times)[block]
                noise += [(int(age), share * contraction ** (2 * int(age))) for age in ages]
            whole = sum(variance for _, variance in noise)
            for age, variance in noise:
                key = (age, number, block)
                payments[key] = (mass * variance / whole if mass else 0.0, variance)
    distance = 0.0
    for age in range(steps - 1, RELEASE - 1, -1):
        if age != RELEASE:
            distance += contraction**age * seen[age]
        distance -= sum(length for key, (length, _) in payments.items() if key[0] == age)
        assert distance >= -1e-12
    assert distance == pytest.approx(0.0, abs=1e-12)
    return sum(length**2 / variance for length, variance in payments.values() if length)


@pytest.mark.parametrize("seed", range(40))
def test_plans_pay_everything_in_time(seed):
    rng = np.random.default_rng(seed)
    steps, contraction = int(rng.integers(1, 60)), float(rng.choice([1.0, 0.97, 0.8]))
    edges = tuple(sorted(set(rng.integers(1, steps + 1, 3).tolist())))
    facts = {
        "gap": 1.0 - contraction,
        "steps": steps,
        "ratio": float(rng.choice([0.1, 1.0, 3.0])),
        "release": float(rng.choice([0.0, 0.4, 7.0])),
    }
    sizes = rng.integers((1, 0, 1), (6, 5, 4)).tolist()
    shape = Shape(sizes[0], edges, sizes[1], sizes[2])
    for chosen in (shape, best_shape(probability=0.1, **facts)):
        one = plan_of_shape(chosen, **facts)
        seen = rng.random(steps) < 0.4
        expected = 0.0
        for group in one.groups:
            for block in range(group.times):
                first = group.first + block * group.count
                arrived = sum(
                    contraction ** (age - first)
                    for age in range(first, first + group.count)
                    if seen[age]
                )
                expected += (arrived * one.size(group)) ** 2
        assert walked(one, seen, contraction) == pytest.approx(expected, rel=1e-6)
