"""What can be charged: each kind of release as plain numbers, and the costs that follow from it.

A ledger hides one kind of change.  What was promised of another kind is converted where that is
known to be safe, and refused where it is not:

- A promise of leaving an example out, or of adding or removing one, holds twice over for replacing
  it: out with one, in with the other.  For a training, and for an event of dp-accounting, which is
  noise on a sum of values of bounded norm, that is twice the sensitivity.
- A training that was described for replacing examples is described anew for leaving them out, where
  gradients are known to be bounded: then an example that is left out moves a sum of gradients by no
  more than the bound.  The promise itself would not do, since an example without a gradient has not
  the curvature that all others were said to have.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from lastiterate import _check
from lastiterate._numerics.rounding import at_least
from lastiterate.accounting import PrivacyReport, account
from lastiterate.certificate.selection import selected
from lastiterate.errors import InvalidParameter
from lastiterate.ledger import events
from lastiterate.ledger.costs import Cost, cost_of
from lastiterate.profile.dp_accounting import event_distribution
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.profile.loss_distribution import from_pld
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.profile.pure import PureProfile
from lastiterate.profile.selection import Tries
from lastiterate.profile.twice import twice
from lastiterate.releases import KINDS as STATISTICS
from lastiterate.releases import Release
from lastiterate.releases import from_record as from_release
from lastiterate.run.serialise import from_dict, to_dict, unambiguous_json
from lastiterate.run.training_run import TrainingRun

Charge = Mapping[str, Any]
ADJACENCIES = ("replace", "zero-out")
_STATED_OF = (*ADJACENCIES, "add-remove")


def training(report: PrivacyReport) -> dict[str, Any]:
    """The charge of a run, and of what is published besides."""
    besides = [release.as_record() for release in report.besides]
    return {"kind": "training", "run": to_dict(report.run), "besides": besides}


def selection(tries: Tries, candidates: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The charge of the best of a random number of tries, each of one of the candidates."""
    return {
        "kind": "selection",
        "shape": tries.shape,
        "stop": tries.stop,
        "candidates": [{"run": one["run"], "besides": one["besides"]} for one in candidates],
    }


def statistic(release: Release, *, adjacency: str) -> dict[str, Any]:
    """The charge of a statistic with Gaussian noise, such as a score."""
    return {"kind": "statistic", "adjacency": adjacency, "release": release.as_record()}


def event(record: Mapping[str, Any]) -> dict[str, Any]:
    """The charge of a dp-accounting event."""
    return {"kind": "event", "event": dict(record)}


def stated(epsilon: float, delta: float, *, adjacency: str) -> dict[str, Any]:
    """The charge of a mechanism of which only (epsilon, delta) is known."""
    _check.choice("adjacency", adjacency, among=_STATED_OF)
    return {
        "kind": "stated",
        "adjacency": adjacency,
        "epsilon": _check.number("epsilon", epsilon, at_least=0.0, at_most=500.0),
        "delta": _check.number("delta", delta, at_least=0.0, below=1.0),
    }


def costs_of(charge: Charge, *, adjacency: str) -> list[Cost]:
    """What a charge costs in a ledger for this adjacency."""
    if charge.get("kind") not in KINDS:
        raise InvalidParameter("charge", charge.get("kind"), must_be=f"one of {', '.join(KINDS)}")
    return list(_costs(json.dumps(charge, sort_keys=True), adjacency))


@lru_cache(maxsize=1024)
def _costs(text: str, adjacency: str) -> tuple[Cost, ...]:
    charge = unambiguous_json(text)
    return tuple(KINDS[charge["kind"]](charge, adjacency))


def of_training(
    run: TrainingRun, besides: Sequence[Mapping[str, Any]], adjacency: str
) -> PrivacyReport:
    """The report of a run under the adjacency of a ledger."""
    releases = [from_release(one, adjacency=run.adjacency) for one in besides]
    if run.adjacency == adjacency:
        return account(run, besides=releases)
    if adjacency == "replace":
        doubled = run.replace(adjacency="replace", sensitivity=2.0 * run.sensitivity)
        return account(doubled, besides=[_replaced(release) for release in releases])
    if run.gradient_bound is None:
        raise _other_adjacency(
            run.adjacency,
            adjacency,
            "no bound on an example's gradient is known; train with adjacency='zero-out', or state "
            "loss.lipschitz",
        )
    left_out = run.replace(adjacency="zero-out", sensitivity=run.gradient_bound)
    return account(left_out, besides=releases)


def _replaced(release: Release) -> Release:
    least = at_least(STATISTICS[release.kind].sensitivity("replace"), ulps=1.0)
    return replace(release, sensitivity=max(release.sensitivity, least))


def _training_costs(charge: Charge, adjacency: str) -> list[Cost]:
    report = of_training(from_dict(charge["run"]), charge["besides"], adjacency)
    return [_cost("run", report)]


def _selection_costs(charge: Charge, adjacency: str) -> list[Cost]:
    known: dict[str, PrivacyReport] = {}
    for one in charge["candidates"]:
        text = json.dumps(one, sort_keys=True)
        if text not in known:
            known[text] = of_training(from_dict(one["run"]), one["besides"], adjacency)
    reports = [known[json.dumps(one, sort_keys=True)] for one in charge["candidates"]]
    return [_cost("run", selected(reports, Tries(charge["shape"], charge["stop"])))]


def _statistic_costs(charge: Charge, adjacency: str) -> list[Cost]:
    release = from_release(charge["release"], adjacency=charge["adjacency"])
    if adjacency == "replace" != charge["adjacency"]:
        release = _replaced(release)
    return [_cost("release", GaussianProfile(release.mu))]


def _event_costs(charge: Charge, adjacency: str) -> list[Cost]:
    return [
        _event_cost(one, times, adjacency) for one, times in events.taken_apart(charge["event"])
    ]


def _event_cost(one: Mapping[str, Any], times: int, adjacency: str) -> Cost:
    """An event is of a sum of values of bounded norm: a replacement moves it twice as far."""
    replaced = adjacency == "replace"
    if one["name"] == "Gaussian":
        mu = at_least((2.0 if replaced else 1.0) / one["noise_multiplier"], ulps=2.0)
        return cost_of(GaussianProfile(mu), times=times)
    if not replaced:
        relation = events.LEFT_OUT
    elif (moved := events.moved_twice_as_far(one)) is not None:
        one, relation = moved, events.LEFT_OUT
    elif events.is_known(one, events.REPLACED):
        relation = events.REPLACED
    else:
        alone = from_pld(event_distribution(events.from_record(one), events.LEFT_OUT))
        return cost_of(twice(alone), times=times)
    events.losses_of(json.dumps(one, sort_keys=True), relation)  # or it is refused
    return {"times": times, "mu": None, "event": dict(one), "relation": relation}


def _stated_costs(charge: Charge, adjacency: str) -> list[Cost]:
    epsilon, delta = charge["epsilon"], charge["delta"]
    if _must_double(charge["adjacency"], adjacency):
        delta = min(at_least(delta * (1.0 + math.exp(epsilon)), ulps=8.0), 1.0)
        epsilon = 2.0 * epsilon
    mu = PureProfile(epsilon).gdp() if delta == 0.0 else None
    return [{"times": 1, "mu": mu, "epsilon": epsilon, "delta": delta}]


def _must_double(stated_of: str, adjacency: str) -> bool:
    if stated_of == adjacency:
        return False
    if stated_of == "replace":
        raise _other_adjacency(
            stated_of,
            adjacency,
            "that leaving an example out is one of the replacements is not known of it",
        )
    return True


def _other_adjacency(of: str, adjacency: str, why: str) -> InvalidParameter:
    must_be = (
        f"{adjacency!r}, as the ledger's: a promise of {of!r} cannot be converted, because {why}"
    )
    return InvalidParameter("adjacency", of, must_be=must_be)


def _cost(name: str, profile: PrivacyProfile) -> dict[str, Any]:
    if not profile.delta(1e9) < 1.0:
        found = "one of which nothing is promised"
        raise InvalidParameter(name, must_be="a release with a guarantee", found=found)
    return cost_of(profile)


KINDS: dict[str, Callable[[Charge, str], list[Cost]]] = {
    "training": _training_costs,
    "selection": _selection_costs,
    "statistic": _statistic_costs,
    "event": _event_costs,
    "stated": _stated_costs,
}
