r"""Limits of error rates from counts of test outcomes, and whether a certificate can be true.

A test rejects in h of n runs in the first world and fails to in m of n in the second.  By Clopper
and Pearson each rate is below its limit except with probability (1 - confidence)/2, so both are
with the confidence.  A certificate says that the second rate is at least f of the first, a
decreasing function: it is refuted where the limits say otherwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import ndtri
from scipy.stats import beta, binom

from lastiterate import _check
from lastiterate._numerics.rounding import Array
from lastiterate.profile.lower import OneTestLowerProfile
from lastiterate.profile.tradeoff import least_misses


class Certificate(Protocol):
    """Anything that says how well no test can do: profiles, reports, claims."""

    def tradeoff(self, fpr: float) -> float:
        """The least false-negative rate at this false-positive rate."""
        ...


@dataclass(frozen=True)
class Claim:
    """(epsilon, delta)-DP, as somebody states it.

    >>> round(Claim(1.0, 1e-5).tradeoff(0.1), 4)
    0.7282
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        _check.number("epsilon", self.epsilon, at_least=0.0, at_most=700.0)
        _check.number("delta", self.delta, at_least=0.0, at_most=1.0)

    def tradeoff(self, fpr: float) -> float:
        """The least false-negative rate of any test with this false-positive rate."""
        alpha = _check.number("fpr", fpr, at_least=0.0, at_most=1.0)
        allowed = least_misses(alpha, np.array([self.epsilon]), np.array([self.delta]))
        return max(0.0, float(allowed[0]))


def upper_limits(counts: Array, runs: int, confidence: float) -> Array:
    """Clopper and Pearson's limits: rates above are this unlikely to give so few."""
    limits = beta.ppf(confidence, np.asarray(counts) + 1.0, runs - np.asarray(counts))
    return np.where(np.asarray(counts) >= runs, 1.0, limits)


@dataclass(frozen=True)
class Evidence:
    """One test, fixed beforehand, tried on `runs` runs in each world."""

    runs: int
    false_positives: int
    false_negatives: int
    confidence: float

    @property
    def lower(self) -> OneTestLowerProfile:
        """The lower bound on every true guarantee that these counts prove, with the confidence."""
        false, missed = self.limits
        return OneTestLowerProfile(false, 1.0 - missed)

    @property
    def limits(self) -> tuple[float, float]:
        """The rates of false positives and negatives are both below, with the confidence."""
        counts = np.array([self.false_positives, self.false_negatives], dtype=float)
        false, missed = upper_limits(counts, self.runs, (1.0 + self.confidence) / 2.0)
        return float(false), float(missed)

    def refutes(self, certificate: Certificate) -> bool:
        """Whether no true certificate could say this, in either direction."""
        false, missed = self.limits
        return missed < certificate.tradeoff(false) or false < certificate.tradeoff(missed)


def margins(false: Array, missed: Array, certificate: Certificate) -> Array:
    """The amount by which pairs of limits contradict a certificate, in standard deviations."""
    edge = 1e-12
    grid = np.unique(np.concatenate([np.geomspace(1e-6, 0.5, 60), np.linspace(0.02, 1.0, 50)]))
    allowed = np.array([certificate.tradeoff(float(rate)) for rate in grid])
    found = []
    for one, other in ((false, missed), (missed, false)):
        least = np.clip(np.interp(one, grid, allowed), edge, 1.0 - edge)
        found.append(ndtri(least) - ndtri(np.clip(other, edge, 1.0 - edge)))
    return np.asarray(np.maximum(*found))


def power(
    fpr: float, fnr: float, certificate: Certificate, *, runs: int, confidence: float = 0.99
) -> float:
    """The chance that `runs` judged runs in each world refute, for a test of known error rates.

    >>> from lastiterate import GaussianProfile
    >>> round(power(0.2, 0.2, GaussianProfile(1.0), runs=1_000), 3)
    1.0
    """
    level = (1.0 + confidence) / 2.0
    spread = 8.0 * math.sqrt(runs * fpr * (1.0 - fpr)) + 8.0
    low, high = max(0, int(runs * fpr - spread)), min(runs, math.ceil(runs * fpr + spread))
    hits = np.unique(np.linspace(low, high, 200).astype(int))
    missed_limits = upper_limits(np.arange(runs + 1.0), runs, level)
    chances = []
    for limit in upper_limits(hits.astype(float), runs, level):
        needed = certificate.tradeoff(float(limit))
        most = int(np.searchsorted(missed_limits, needed)) - 1
        chances.append(float(binom.cdf(most, runs, fnr)))
    # More false positives never help, so between those looked at the later one's chance holds.
    below = np.diff(binom.cdf(hits, runs, fpr), prepend=0.0)
    return float(np.sum(below * np.array(chances)))
