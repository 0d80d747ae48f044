"""All that several examples of one person leave behind, by enumeration, for linear losses.

Imports nothing from the package.  A step that sees N of the person's examples moves the iterate by
N times an arrival, of which every later step keeps a share c.
"""

import math
from collections import defaultdict
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

Law = dict[float, float]
Floats = NDArray[np.float64]


def added(one: Law, other: Law) -> Law:
    law: Law = defaultdict(float)
    for x, p in one.items():
        for y, q in other.items():
            law[round(x + y, 12)] += p * q
    return dict(law)


def seen(place: int, length: int, weights: list[float]) -> float:
    return sum(weights[place::length])


def of_slots(examples: int, size: int, count: int, weights: list[float]) -> Law:
    """Distinct slots, drawn once for all the steps that `weights` are of."""
    length = examples // size
    law: Law = defaultdict(float)
    every = list(permutations(range(examples), count))
    for slots in every:
        places = [slot // size for slot in slots if slot // size < length]
        law[round(sum(seen(place, length, weights) for place in places), 12)] += 1.0 / len(every)
    return dict(law)


def of_picks(examples: int, size: int, count: int, weights: list[float]) -> Law:
    """Every example picks a batch on its own."""
    length = examples // size
    law: Law = {0.0: 1.0}
    for _ in range(count):
        one: Law = defaultdict(float)
        for place in range(length):
            one[round(seen(place, length, weights), 12)] += 1.0 / length
        law = added(law, dict(one))
    return law


def of_every_epoch(draw: object, examples: int, size: int, count: int, weights: list[float]) -> Law:
    length = examples // size
    law: Law = {0.0: 1.0}
    for start in range(0, len(weights), length):
        part = weights[start : start + length]
        law = added(law, draw(examples, size, count, part))  # type: ignore[operator]
    return law


def of_steps(examples: int, size: int, count: int, weights: list[float], *, apart: bool) -> Law:
    """Every step anew: distinct examples, or each example on its own (`apart`)."""
    law: Law = {0.0: 1.0}
    for weight in weights:
        if apart:
            p = size / examples
            chances = [
                math.comb(count, j) * p**j * (1.0 - p) ** (count - j) for j in range(count + 1)
            ]
        else:
            chances = [
                math.comb(count, j)
                * math.comb(examples - count, size - j)
                / math.comb(examples, size)
                if size - j >= 0
                else 0.0
                for j in range(count + 1)
            ]
        law = added(law, {round(j * weight, 12): p for j, p in enumerate(chances) if p > 0.0})
    return law


def deltas(law: Law, deviation: float, epsilons: Floats, *, mirrored: bool) -> Floats:
    """Of a normal result moved by the law against none, or against the mirrored; both ways."""
    top = max(law) / deviation + 12.0
    z = np.linspace(-top, top, 40_001)
    ours = sum(p * np.exp(-((z - x / deviation) ** 2) / 2.0) for x, p in law.items())
    theirs = ours[::-1] if mirrored else np.exp(-(z**2) / 2.0)
    ours, theirs = (one * (z[1] - z[0]) / math.sqrt(2.0 * math.pi) for one in (ours, theirs))
    return np.array(
        [
            max(
                np.maximum(ours - math.exp(epsilon) * theirs, 0.0).sum(),
                np.maximum(theirs - math.exp(epsilon) * ours, 0.0).sum(),
            )
            for epsilon in epsilons
        ]
    )
