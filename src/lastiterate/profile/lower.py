r"""Lower bounds on the privacy loss of a published result, which hold for every guarantee.

A lower profile comes from an exhibited pair of adjacent data sets and a family of tests that
tells their results apart.  It is not a `PrivacyProfile`: its numbers are rounded *down*, and
nothing that certifies takes it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from lastiterate import _check
from lastiterate._numerics.rounding import Array, down, ulps, up
from lastiterate._numerics.search import last_true

_LARGEST_EPSILON = 700.0
_SLACK = ulps(256)


class LowerProfile(ABC):
    """A lower bound on delta(epsilon) of every true guarantee."""

    @abstractmethod
    def tests(self) -> tuple[Array, Array]:
        """False- and true-positive rates of some tests, in both directions."""

    def delta(self, epsilon: float) -> float:
        """No (epsilon, delta) with a smaller delta is true."""
        value = _check.number("epsilon", epsilon, at_least=0.0, infinite=True)
        return self._delta(value)

    def _delta(self, epsilon: float) -> float:
        if epsilon > _LARGEST_EPSILON:
            return 0.0
        false, true = self.tests()
        growth = math.exp(epsilon)
        gains = true - growth * false - _SLACK * (true + growth * false)
        return max(0.0, float(gains.max()))

    def epsilon(self, delta: float) -> float:
        """No (epsilon, delta) with a smaller epsilon is true."""
        target = _check.number("delta", delta, at_least=0.0, at_most=1.0)
        false, true = self.tests()
        gained = down(true, _SLACK) - target
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(gained) - np.log(up(false, _SLACK))
        found = logs[gained > 0.0]
        best = float(found.max()) if found.size else 0.0
        return max(0.0, down(min(best, _LARGEST_EPSILON), ulps(4)) - ulps(4))

    def gdp(self) -> float:
        """No mu-GDP with a smaller mu is true."""
        false, true = self.tests()
        with np.errstate(invalid="ignore"):
            gaps = ndtri(down(true, _SLACK)) - ndtri(np.minimum(up(false, _SLACK), 1.0))
        gaps = gaps[np.isfinite(gaps)]
        best = float(gaps.max()) if gaps.size else 0.0
        return max(0.0, down(best, 1e-13) - 1e-13)


@dataclass(frozen=True)
class OneTestLowerProfile(LowerProfile):
    """One test of `power`, at least, and false-positive rate `fpr`, at most."""

    fpr: float
    power: float

    def __post_init__(self) -> None:
        _check.number("fpr", self.fpr, at_least=0.0, at_most=1.0)
        _check.number("power", self.power, at_least=0.0, at_most=1.0)

    def tests(self) -> tuple[Array, Array]:
        # The second accepts where the first rejects, and tells the data sets the other way.
        return np.array([self.fpr, 1.0 - self.power]), np.array([self.power, 1.0 - self.fpr])


@dataclass(frozen=True)
class MeansLowerProfile(LowerProfile):
    """The lower bound of thresholds that separate N(0, 1) from a mixture of N(mean, 1).

    One mean is the Gaussian pair itself, and then every best test is a threshold.
    """

    weights: tuple[float, ...]
    means: tuple[float, ...]

    def __init__(self, weights: Sequence[float], means: Sequence[float]) -> None:
        chances = _check.numbers("weights", weights, length=len(means))
        _check.numbers("means", means)
        if not chances.sum() <= 1.0 + 1e-9:
            raise ValueError(f"weights must add up to at most 1; got {chances.sum()!r}.")
        object.__setattr__(self, "weights", tuple(map(float, weights)))
        object.__setattr__(self, "means", tuple(map(float, means)))

    def tests(self) -> tuple[Array, Array]:
        weights, means = np.array(self.weights), np.array(self.means)
        # Beyond 37 the false-positive rate is no longer a floating-point number.
        thresholds = np.concatenate([np.linspace(-9.0, 9.0, 400), np.linspace(0.0, 37.0, 800)])
        rest = max(0.0, 1.0 - float(weights.sum()))  # of these results no test makes anything
        hit, missed = np.empty(thresholds.size), np.empty(thresholds.size)
        for block in np.array_split(np.arange(thresholds.size), 1 + means.size // 256):
            beyond = means - thresholds[block, None]
            hit[block], missed[block] = ndtr(beyond) @ weights, ndtr(-beyond) @ weights + rest
        false = np.concatenate([ndtr(-thresholds), missed])
        return false, np.concatenate([hit, ndtr(thresholds)])

    def _delta(self, epsilon: float) -> float:
        if len(self.means) > 1 or not self.means[0] > 0.0 or self.weights[0] < 1.0:
            return super()._delta(epsilon)
        mu = self.means[0]
        threshold = epsilon / mu + mu / 2
        true, false = float(ndtr(mu - threshold)), float(ndtr(-threshold))
        if epsilon > _LARGEST_EPSILON:
            return 0.0
        growth = math.exp(epsilon)
        slack = (_SLACK + ulps(4) * threshold * threshold) * (true + growth * false)
        return max(0.0, true - growth * false - slack)

    def gdp(self) -> float:
        if len(self.means) == 1 and self.weights[0] >= 1.0:
            return self.means[0]
        return super().gdp()

    def epsilon(self, delta: float) -> float:
        target = _check.number("delta", delta, at_least=0.0, at_most=1.0)
        low = super().epsilon(target)
        if len(self.means) > 1 or self._delta(low) <= target:
            return low
        return last_true(lambda one: self._delta(one) > target, low, _LARGEST_EPSILON)


@dataclass(frozen=True)
class PerturbedLowerProfile(LowerProfile):
    """The lower bound of results that differ from those of `exact` with a probability of `lost`.

    That holds for each of the two data sets, so tests have that much less power and that many
    more false positives.
    """

    exact: LowerProfile
    lost: float

    def __post_init__(self) -> None:
        _check.number("lost", self.lost, at_least=0.0, at_most=1.0)

    def tests(self) -> tuple[Array, Array]:
        false, true = self.exact.tests()
        return np.minimum(false + self.lost, 1.0), np.maximum(true - self.lost, 0.0)

    def _delta(self, epsilon: float) -> float:
        if epsilon > _LARGEST_EPSILON:
            return 0.0
        lost = up(self.lost * (1.0 + math.exp(epsilon)), _SLACK)
        return max(0.0, self.exact.delta(epsilon) - lost, super()._delta(epsilon))

    def epsilon(self, delta: float) -> float:
        target = _check.number("delta", delta, at_least=0.0, at_most=1.0)
        low = super().epsilon(target)
        if self._delta(low) <= target:
            return low
        return last_true(lambda one: self._delta(one) > target, low, _LARGEST_EPSILON)


@dataclass(frozen=True)
class BestLowerProfile(LowerProfile):
    """The largest of several lower bounds; 0 for none."""

    profiles: tuple[LowerProfile, ...]

    def tests(self) -> tuple[Array, Array]:
        pairs = [(np.zeros(1), np.zeros(1)), *(profile.tests() for profile in self.profiles)]
        return np.concatenate([p[0] for p in pairs]), np.concatenate([p[1] for p in pairs])

    def delta(self, epsilon: float) -> float:
        return max((profile.delta(epsilon) for profile in self.profiles), default=0.0)

    def epsilon(self, delta: float) -> float:
        return max((profile.epsilon(delta) for profile in self.profiles), default=0.0)

    def gdp(self) -> float:
        return max((profile.gdp() for profile in self.profiles), default=0.0)
