"""Costs of charges, as the ledger keeps them, and the composition of all of them.

A cost is a table: how many `times`, and one way or more to say how much.  `mu` is of a Gaussian
guarantee, `curve` a table of deltas, `epsilon` and `delta` a promise of these alone, `event` one of
dp-accounting's.  `failure` is the probability of what the mu of a computed result leaves out.
Deriving a training's takes seconds, so its curve is kept; equal ones are composed by powers of one
Fourier transform.  `composed` composes all costs at once, `RunningCosts` as they come: one more
then takes as long however many there are.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, Array, at_least, down, ulps
from lastiterate.dp_accounting import losses_of
from lastiterate.profile.best import BestProfile
from lastiterate.profile.curve import Curve, tabulated
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.profile.losses import (
    LossCells,
    Repeated,
    RunningSum,
    SummedLossesProfile,
    shift_losses,
)
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.profile.rounded import RoundedProfile, Rounding, gdp_but_for_failure
from lastiterate.run.serialise import unambiguous_json

Cost = Mapping[str, Any]
_NEGLIGIBLE_GAIN = 1e-4
_COMPARED_DELTAS = (1e-3, 1e-6, 1e-9)
_FRACTION_BITS = 2200  # bits behind the point: every product of two floats has fewer


def cost_of(profile: PrivacyProfile, *, times: int = 1) -> dict[str, Any]:
    """The cost of a guarantee; a Gaussian one needs no curve."""
    rounding = getattr(profile, "rounding", None)
    mu = profile.gdp() if rounding is None else gdp_but_for_failure(profile)
    cost: dict[str, Any] = {"times": times, "mu": mu if math.isfinite(mu) else None}
    gaussian, least = GaussianProfile(mu), 1.0 - _NEGLIGIBLE_GAIN
    if any(gaussian.epsilon(d) * least > profile.epsilon(d) for d in _COMPARED_DELTAS):
        curve = tabulated(profile)
        cost["curve"] = {"cell": curve.cell, "deltas": curve.deltas.tolist()}
    if rounding is not None:
        cost["failure"] = rounding.failure
    return cost


def composed(costs: Iterable[Cost], *, adaptive: bool) -> PrivacyProfile:
    """The guarantee of all costs together; `adaptive` counts Gaussian guarantees alone."""
    times: Counter[str] = Counter()
    failures = []
    for cost in costs:
        times[key_of(cost)] += cost["times"]
        failures.append(cost["times"] * cost.get("failure", 0.0))
    return with_failures(_compose_kinds(times, adaptive=adaptive), failures)


def with_failures(profile: PrivacyProfile, failures: Sequence[float]) -> PrivacyProfile:
    """The guarantee if events of these probabilities are not included in it."""
    failure = min(at_least(math.fsum(failures), ulps=1.0), 1.0)
    return RoundedProfile(profile, Rounding(0.0, failure)) if failure > 0.0 else profile


def _compose_kinds(times: Mapping[str, int], *, adaptive: bool) -> PrivacyProfile:
    kinds = {key: unambiguous_json(key) for key in times}
    ways: list[PrivacyProfile] = []
    if all(kind.get("mu") is not None for kind in kinds.values()):
        ways.append(_gaussian_sum((kind["mu"], times[key]) for key, kind in kinds.items()))
    elif adaptive:
        return GaussianProfile(math.inf)
    if not adaptive and any(set(kind) != {"mu"} for kind in kinds.values()):
        ways.append(_summed_losses(kinds, times))
    return ways[0] if len(ways) == 1 else BestProfile(ways)


def _gaussian_sum(mus: Iterable[tuple[float, int]]) -> GaussianProfile:
    squares = [times * mu * mu for mu, times in mus]
    return GaussianProfile(at_least(math.sqrt(math.fsum(squares)), ulps=8.0))


def _summed_losses(kinds: Mapping[str, Cost], times: Mapping[str, int]) -> PrivacyProfile:
    alone = {key: kind for key, kind in kinds.items() if set(kind) == {"mu"}}
    results = [(losses_of_key(key), times[key]) for key in kinds if key not in alone]
    if alone:
        mu = _gaussian_sum((kind["mu"], times[key]) for key, kind in alone.items()).mu
        results.append((tuple(shift_losses(np.array([mu]), np.ones(1))), 1))
    both = max(len(directions) for directions, _ in results)
    return SummedLossesProfile(
        [Repeated(list(directions) * (both // len(directions)), n) for directions, n in results]
    )


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
        """The guarantee of these costs and `more`, up to a grid's width that of `composed`."""
        totals = self._totals.copy()
        for cost in more:
            totals.include(cost, 1)
        ways: list[PrivacyProfile] = []
        if not totals.without_mu:
            ways.append(GaussianProfile(_root_above(totals.squares)))
        elif adaptive:
            return GaussianProfile(math.inf)
        others = [cost for cost in more if not _by_mu_alone(cost)]
        if not adaptive and (others or len(self._others)):
            parts = [Repeated(losses_of_key(key_of(cost)), cost["times"]) for cost in others]
            if totals.alone:
                gaussian = shift_losses(np.array([_root_above(totals.alone)]), np.ones(1))
                parts.append(Repeated(gaussian, 1))
            ways.append(self._others.profile(parts))
        whole = ways[0] if len(ways) == 1 else BestProfile(ways)
        return with_failures(whole, [_as_float(totals.failures)])


class _Totals:
    """Exact sums, in units of 2^-_FRACTION_BITS."""

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
    return int(above**power) << (_FRACTION_BITS - power * (below.bit_length() - 1))


def _as_float(total: int) -> float:
    try:
        return float(Fraction(total, 1 << _FRACTION_BITS))
    except OverflowError:
        return math.inf


def _root_above(total: int) -> float:
    return at_least(math.sqrt(_as_float(total)), ulps=8.0)


def key_of(cost: Cost) -> str:
    kind = {name: value for name, value in cost.items() if name not in ("times", "failure")}
    return json.dumps(kind, sort_keys=True, allow_nan=False)


@lru_cache(maxsize=4096)
def losses_of_key(key: str) -> tuple[LossCells, ...]:
    kind = unambiguous_json(key)
    if "event" in kind:
        return losses_of(json.dumps(kind["event"], sort_keys=True), kind["relation"])
    if "curve" in kind:
        return (Curve(kind["curve"]["cell"], np.array(kind["curve"]["deltas"])).losses(),)
    return (_two_losses(kind["epsilon"], kind["delta"]),)


def _two_losses(epsilon: float, delta: float) -> LossCells:
    """Losses of an (epsilon, delta) promise alone: randomised response, or all is known."""
    places = np.array([-epsilon, epsilon])
    masses = (1.0 - delta) / (1.0 + np.exp(-places))
    others = masses * np.exp(-places)
    return LossCells(places, places, masses, others, ulps(8) * masses, ulps(8) * others, delta)


def understated(stated: Cost, derived: Cost) -> bool:
    """Whether a cost is less than, or another than, the one that is derived of the same."""
    if set(stated) != set(derived) or stated["times"] != derived["times"]:
        return True
    for name in ("mu", "epsilon", "delta", "failure"):
        if name in derived and not _is_no_less(stated[name], derived[name]):
            return True
    if "curve" in derived:
        epsilons, deltas = _grid_and_deltas(derived["curve"])
        known = _on_chords(stated["curve"], epsilons)
        if not np.all(known >= down(deltas, MILLIONS_OF_ROUNDINGS)):
            return True
    return any(stated[name] != derived[name] for name in ("event", "relation") if name in derived)


def _is_no_less(stated: float | None, derived: float | None) -> bool:
    if derived is None or stated is None:
        return stated is derived
    return stated >= down(derived, MILLIONS_OF_ROUNDINGS)


def _grid_and_deltas(curve: Mapping[str, Any]) -> tuple[Array, Array]:
    deltas = np.array(curve["deltas"])
    return curve["cell"] * np.arange(deltas.size), deltas


def _on_chords(curve: Mapping[str, Any], epsilons: Array) -> Array:
    """The table at any epsilon, linear in e^epsilon."""
    at, deltas = _grid_and_deltas(curve)
    return np.asarray(np.interp(_growth(epsilons), _growth(at), deltas))


def _growth(epsilons: Array) -> Array:
    return np.expm1(np.minimum(epsilons, 700.0))
