"""Approximations: limit theorems and heuristics, which suggest a number and prove none."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from lastiterate import _check
from lastiterate._numerics.search import least_true
from lastiterate.bounds.bound import Statement
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.run.training_run import TrainingRun

_LARGEST_ESTIMATE = 700.0


@dataclass(frozen=True, kw_only=True, repr=False)
class Approximation(Statement):
    """A limit theorem or a heuristic that gives an estimate, which is no bound.

    Its `Estimate` has no epsilon.
    """

    evaluate: Callable[[TrainingRun], Estimate]

    def estimate(self, run: TrainingRun) -> Estimate:
        """The estimate, or `NoBoundApplies` with the reasons."""
        self._require(run)
        return self.evaluate(run)


@dataclass(frozen=True)
class Estimate:
    """mu of the Gaussian curve that a central limit theorem, or a heuristic, suggests.

    It is neither an upper nor a lower bound, so it has no `epsilon`.  `deltas` is the curve itself,
    where it is not Gaussian.
    """

    mu: float
    deltas: Callable[[float], float] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu", _check.number("mu", self.mu, at_least=0.0, infinite=True))

    def epsilon_estimate(self, delta: float) -> float:
        """The epsilon that is suggested at this delta; nobody may rely on it.

        Parameters
        ----------
        delta : float
            Of (epsilon, delta)-DP.

        Returns
        -------
        float
            The estimate, which may be too small.

        Examples
        --------
        >>> round(Estimate(1.0).epsilon_estimate(1e-5), 4)
        4.3772
        """
        _check.number("delta", delta, above=0.0, below=1.0)
        if self.deltas is None or self.mu == math.inf:
            return GaussianProfile(self.mu).epsilon(delta)
        curve, high = self.deltas, 1.0
        while curve(high) > delta:
            high *= 2.0
            if high > _LARGEST_ESTIMATE:
                return math.inf
        return least_true(lambda epsilon: curve(epsilon) <= delta, 0.0, high)
