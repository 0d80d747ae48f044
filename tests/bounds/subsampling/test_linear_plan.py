"""Linear plans: the checks refuse invalid ones, and valid ones shift everything away."""

import dataclasses
import math

import numpy as np
import pytest

from lastiterate.bounds.subsampling.poisson import (
    RELEASE,
    LinearPlan,
    NoiseAges,
    PlanGroup,
    PlanShape,
    best_shape,
    plan_of_shape,
)

NOISE = (NoiseAges(RELEASE, RELEASE), NoiseAges(0, 0), NoiseAges(1, 4, 2), NoiseAges(5, 6))


def plan(groups, steps=9, noise=NOISE):
    return LinearPlan(gap=0.1, steps=steps, release=0.5, noise=noise, groups=tuple(groups))


GOOD = (
    PlanGroup(0, 2, ((0, 0.5), (1, 0.6))),
    PlanGroup(2, 2, ((2, 0.7),), 2),
    PlanGroup(6, 3, ((0, 0.5), (1, 0.4), (2, 0.3), (3, 1.0))),
)


class TestChecks:
    def test_a_plan_that_is_none_of_these(self):
        assert plan(GOOD).groups == GOOD

    @pytest.mark.parametrize(
        "number, shares",
        [
            (0, ((0, 0.51), (1, 0.6))), (1, ((2, 0.71),)), (2, ((3, 1.0), (3, 0.01))),
            (2, ((3, -0.1),)), (2, ((3, math.nan),)),
        ],
    )  # fmt: skip
    def test_noise_used_twice(self, number, shares):
        groups = list(GOOD)
        groups[number] = dataclasses.replace(groups[number], shares=shares)
        with pytest.raises(ValueError, match="some noise twice"):
            plan(groups)

    def test_ages_that_overlap(self):
        overlapping = (*NOISE[:3], NoiseAges(4, 6))
        with pytest.raises(ValueError, match="some noise twice"):
            plan(GOOD, noise=overlapping)

    @pytest.mark.parametrize(
        "changed",
        [
            [PlanGroup(0, 2, ((1, 0.6), (4, 0.1))), *GOOD[1:]],
            [GOOD[0], PlanGroup(2, 2, ((4, 0.1),), 2), GOOD[2]],
            [
                PlanGroup(0, 1, GOOD[0].shares),
                PlanGroup(1, 2, ((2, 0.7),), 2),
                PlanGroup(5, 4, GOOD[2].shares),
            ],
            [GOOD[0], PlanGroup(2, 1, ((2, 0.7),), 4), GOOD[2]],
            [GOOD[0], GOOD[1], PlanGroup(6, 3, ((3, 1.0), (4, 1.0)))],
        ],
    )
    def test_shifted_before_it_happens(self, changed):
        with pytest.raises(ValueError, match="before they happen"):
            plan(changed, noise=(*NOISE, NoiseAges(7, 7)))

    @pytest.mark.parametrize(
        "changed, steps",
        [
            (GOOD[:2], 9), (GOOD[1:], 9), (GOOD, 10), (GOOD, 8), ((GOOD[0], GOOD[0], *GOOD[1:]), 9),
            ((GOOD[0], dataclasses.replace(GOOD[1], count=0, blocks=1), GOOD[2]), 9),
        ],
    )  # fmt: skip
    def test_shifted_twice_or_never(self, changed, steps):
        halved = [
            dataclasses.replace(one, shares=tuple((n, s / 2) for n, s in one.shares))
            for one in changed
        ]
        with pytest.raises(ValueError, match="twice or never"):
            plan(halved, steps)


def walked(plan_, seen, contraction):
    """The energy of all shifts, step by step; the distance must never be negative and end at 0.

    Written out from the meaning of shares alone: shifts in proportion to variance.
    """
    steps = plan_.steps
    shifts = {}  # (age, group, block) -> length in final units, variance of the share
    for number, group in enumerate(plan_.groups):
        for block in range(group.blocks):
            first = group.first + block * group.count
            mass = sum(contraction**a for a in range(first, first + group.count) if seen[a])
            noise = []
            for number_of_noise, share in group.shares:
                one = plan_.noise[number_of_noise]
                if one.first == RELEASE:
                    noise.append((RELEASE, share * plan_.release))
                    continue
                ages = np.arange(one.first, one.last + 1)
                if group.blocks > 1:
                    ages = np.array_split(ages, group.blocks)[block]
                noise += [(int(age), share * contraction ** (2 * int(age))) for age in ages]
            whole = sum(variance for _, variance in noise)
            for age, variance in noise:
                key = (age, number, block)
                shifts[key] = (mass * variance / whole if mass else 0.0, variance)
    distance = 0.0
    for age in range(steps - 1, RELEASE - 1, -1):
        if age != RELEASE:
            distance += contraction**age * seen[age]
        distance -= sum(length for key, (length, _) in shifts.items() if key[0] == age)
        assert distance >= -1e-12
    assert distance == pytest.approx(0.0, abs=1e-12)
    return sum(length**2 / variance for length, variance in shifts.values() if length)


@pytest.mark.parametrize("seed", range(25))
def test_plans_shift_everything_away_in_time(seed):
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
    shape = PlanShape(sizes[0], edges, sizes[1], sizes[2])
    for chosen in (shape, best_shape(probability=0.1, **facts)):
        one = plan_of_shape(chosen, **facts)
        seen = rng.random(steps) < 0.4
        expected = 0.0
        for group in one.groups:
            for block in range(group.blocks):
                first = group.first + block * group.count
                discounted = sum(
                    contraction ** (age - first)
                    for age in range(first, first + group.count)
                    if seen[age]
                )
                expected += (discounted * one.cost(group)) ** 2
        assert walked(one, seen, contraction) == pytest.approx(expected, rel=1e-6)
