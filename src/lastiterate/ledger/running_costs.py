"""Costs that are composed as they come: one more costs as much however many there are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np

from lastiterate._numerics.rounding import at_least
from lastiterate.ledger.costs import Cost, key_of, losses_of_key, with_failures
from lastiterate.profile.best import BestProfile
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.profile.gaussian_mixture_pld import shift_losses
from lastiterate.profile.pld_convolution import Repeated
from lastiterate.profile.privacy_profile import PrivacyProfile
from lastiterate.profile.running_sum import RunningSum

_SCALE = 2200  # bits behind the point: every product of two floats has fewer


class RunningCosts:
    """Costs by what their composition needs; sums are exact, so that costs can be taken back."""

    def __init__(self) -> None:
        self._totals = _Totals()
        self._others = RunningSum(losses_of_key)

    def include(self, costs: Iterable[Cost], *, sign: int = 1) -> None:
        """Add costs, or take them back with the sign -1."""
        for cost in costs:
            self._totals.include(cost, sign)
            if not _by_mu_alone(cost):
                self._others.add(key_of(cost), sign * int(cost["times"]))

    def composed(self, more: Sequence[Cost], *, adaptive: bool) -> PrivacyProfile:
        """All of them and these; as `costs.composed`, up to the width of a grid."""
        totals = self._totals.copy()
        for cost in more:
            totals.include(cost, 1)
        ways: list[PrivacyProfile] = []
        if not totals.without_mu:
            ways.append(GaussianProfile(_root(totals.squares)))
        elif adaptive:
            return GaussianProfile(math.inf)
        others = [cost for cost in more if not _by_mu_alone(cost)]
        if not adaptive and (others or len(self._others)):
            parts = [Repeated(losses_of_key(key_of(cost)), cost["times"]) for cost in others]
            if totals.alone:
                gaussian = shift_losses(np.array([_root(totals.alone)]), np.ones(1))
                parts.append(Repeated(gaussian, 1))
            ways.append(self._others.profile(parts))
        whole = ways[0] if len(ways) == 1 else BestProfile(ways)
        return with_failures(whole, [_number(totals.failures)])


class _Totals:
    """Exact sums, in units of 2^-_SCALE."""

    def __init__(self) -> None:
        self.squares = 0  # of every mu
        self.alone = 0  # of the mu of costs that have nothing else
        self.failures = 0
        self.without_mu = 0  # how many

    def copy(self) -> _Totals:
        same = _Totals()
        same.__dict__.update(self.__dict__)
        return same

    def include(self, cost: Cost, sign: int) -> None:
        times = sign * int(cost["times"])
        self.failures += times * _scaled(cost.get("failure", 0.0), 1)
        if cost.get("mu") is None:
            self.without_mu += sign
            return
        square = times * _scaled(cost["mu"], 2)
        self.squares += square
        if _by_mu_alone(cost):
            self.alone += square


def _by_mu_alone(cost: Cost) -> bool:
    return set(cost) <= {"times", "mu", "failure"} and cost.get("mu") is not None


def _scaled(value: float, power: int) -> int:
    above, below = float(value).as_integer_ratio()
    return int(above**power) << (_SCALE - power * (below.bit_length() - 1))


def _number(total: int) -> float:
    try:
        return float(Fraction(total, 1 << _SCALE))
    except OverflowError:
        return math.inf


def _root(total: int) -> float:
    return at_least(math.sqrt(_number(total)), ulps=8.0)
