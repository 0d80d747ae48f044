"""Charges: each kind of release as plain numbers, and the costs that follow from it.

A ledger has one unit of privacy (`Unit`): a kind of change, of so many examples, in which every
charge is counted.  What was promised of another kind, or of fewer examples, is converted where that
is known to be safe, and refused where it is not:

- A promise of leaving an example out, or of adding or removing one, holds twice over for replacing
  it: out with one, in with the other.  For a training, and for an event of dp-accounting, which is
  noise on a sum of values of bounded norm, that is twice the sensitivity.
- A training that was described for replacing examples is described anew for leaving them out, where
  gradients are known to be bounded: then an example that is left out moves a sum of gradients by no
  more than the bound.  The promise itself would not do, since an example without a gradient has not
  the curvature that all others were said to have.
- A training, or a selection of trainings, is accounted anew for as many examples of a person as the
  ledger counts.  A statistic and an event are of sums, which g examples move g times as far; an
  event for which that is not known, and a stated (epsilon, delta), get the group property.
- A charge for more examples than the ledger counts is refused: its release was made to protect
  persons, and a total of single examples would not.

`release_charge` makes charges of releases in the forms that users have them in.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from lastiterate import _check
from lastiterate import dp_accounting as events
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, at_least, down
from lastiterate.accounting import PrivacyReport, account
from lastiterate.certificate.fields import ARITHMETIC, is_charged, training_digest
from lastiterate.certificate.unlearning import UNLEARNING
from lastiterate.certificate.verify import candidate_roundings, read, selected, verified_certificate
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.ledger.costs import Cost, cost_of
from lastiterate.other_releases import Release, release_from_record, without_published
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.profile.group import for_group, for_pair
from lastiterate.profile.pld import event_distribution, from_pld
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.profile.renyi import PureProfile
from lastiterate.profile.rounded import RoundedProfile, Rounding
from lastiterate.profile.selection import Tries
from lastiterate.run.serialise import from_dict, to_dict, unambiguous_json
from lastiterate.run.training_run import ADD_REMOVE, ADJACENCIES, TrainingRun
from lastiterate.train.arithmetic import release_rounding

PER_PERSON = "examples_per_person"
Charge = Mapping[str, Any]
ROUNDING = "rounding"
_STATED_ADJACENCIES = (*ADJACENCIES, ADD_REMOVE)
_LARGEST_EPSILON = 500.0  # an epsilon, stated or by the group property
# Of a statistic of which neither is known; its rounding grows with both.
_MAX_EXAMPLES, _MAX_FEATURES = 2**32, 2**20
_MUST_BE = (
    "a certificate (text or file), a PrivacyReport, a PrivateScore or its release, a dp-accounting "
    "event, or a pair (epsilon, delta)"
)


@dataclass(frozen=True)
class Unit:
    """What changes between two data sets that a ledger keeps apart, and how many examples do."""

    adjacency: str = "replace"
    examples_per_person: int = 1

    def __post_init__(self) -> None:
        _check.choice("adjacency", self.adjacency, among=ADJACENCIES)
        _check.count(PER_PERSON, self.examples_per_person, at_least=1)

    def __str__(self) -> str:
        changed = "replaced" if self.adjacency == "replace" else "left out"
        if self.examples_per_person == 1:
            return f"one example {changed}"
        return f"all examples of one person, at most {self.examples_per_person:,}, {changed}"

    def groups_of(self, covered: int) -> int:
        """The number of groups of this many examples that the examples of a person fall into."""
        self.check(covered)
        return -(-self.examples_per_person // covered)

    def check(self, covered: int) -> None:
        """Refuse a promise for more examples of a person than the ledger counts."""
        if covered > self.examples_per_person:
            must_be = (
                f"at most {self.examples_per_person:,}, as the ledger's: its total would be of "
                f"fewer examples than a person has; open a ledger with {PER_PERSON}={covered}, and "
                "add there what was charged here"
            )
            raise InvalidParameter(PER_PERSON, covered, must_be=must_be)


def covered_by(charge: Mapping[str, Any]) -> int:
    """The number of examples of one person that a charge is for."""
    if charge["kind"] == "training":
        return _persons_of_run(charge["run"])
    if charge["kind"] == "selection":
        return max(_persons_of_run(one["run"]) for one in charge["candidates"])
    return _check.count(PER_PERSON, charge[PER_PERSON], at_least=1)


def _persons_of_run(run: Mapping[str, Any]) -> int:
    return _check.count(PER_PERSON, run.get(PER_PERSON, 1), at_least=1)


def training(report: PrivacyReport) -> dict[str, Any]:
    """The charge of a run and of its other releases."""
    other_releases = [release.as_record() for release in report.other_releases]
    charge = {"kind": "training", "run": to_dict(report.run), "other_releases": other_releases}
    return charge | rounded(report.rounding)


def rounded(rounding: Rounding | None) -> dict[str, Any]:
    """The part of a charge that says how far results are from exact ones, if that is charged."""
    if rounding is None:
        return {}
    return {ROUNDING: {"mu": rounding.mu, "failure": rounding.failure}}


def rounding_of(charge: Charge) -> Rounding | None:
    """The distance of results from exact ones that a charge states; None if it states none."""
    return Rounding(**charge[ROUNDING]) if ROUNDING in charge else None


def selection(
    tries: Tries,
    candidates: Sequence[Mapping[str, Any]],
    roundings: Sequence[Rounding | None] | None = None,
) -> dict[str, Any]:
    """The charge of the best of a random number of tries, each of one of the candidates."""
    roundings = [None] * len(candidates) if roundings is None else roundings
    return {
        "kind": "selection",
        "shape": tries.shape,
        "stop": tries.stop,
        "candidates": [
            {"run": one["run"], "other_releases": one["other_releases"]} | rounded(rounding)
            for one, rounding in zip(candidates, roundings, strict=True)
        ],
    }


def statistic(
    release: Release,
    *,
    adjacency: str,
    examples_per_person: int,
    rounding: Rounding | None = None,
) -> dict[str, Any]:
    """The charge of a statistic with Gaussian noise, such as a score.

    The sensitivity of a release is of one example; so many of a person were to be protected.
    """
    record = release.as_record()
    charge = {"kind": "statistic", "adjacency": adjacency, "release": record}
    return charge | _per_person(examples_per_person) | rounded(rounding)


def event(record: Mapping[str, Any], *, examples_per_person: int) -> dict[str, Any]:
    """The charge of a dp-accounting event, whose noise is for so many examples of a person."""
    return {"kind": "event", "event": dict(record)} | _per_person(examples_per_person)


def stated(
    epsilon: float, delta: float, *, adjacency: str, examples_per_person: int
) -> dict[str, Any]:
    """The charge of a mechanism of which only (epsilon, delta) is known, for so many examples."""
    _check.choice("adjacency", adjacency, among=_STATED_ADJACENCIES)
    return {
        "kind": "stated",
        "adjacency": adjacency,
        "epsilon": _check.number("epsilon", epsilon, at_least=0.0, at_most=_LARGEST_EPSILON),
        "delta": _check.number("delta", delta, at_least=0.0, below=1.0),
    } | _per_person(examples_per_person)


def _per_person(examples_per_person: int) -> dict[str, int]:
    return {PER_PERSON: _check.count(PER_PERSON, examples_per_person, at_least=1)}


def costs_of(charge: Charge, unit: Unit) -> list[Cost]:
    """Costs of a charge in a ledger of this unit; `InvalidParameter` if they are not known."""
    if charge.get("kind") not in _COST_FUNCTIONS:
        raise InvalidParameter(
            "charge", charge.get("kind"), must_be=f"one of {', '.join(_COST_FUNCTIONS)}"
        )
    unit.check(covered_by(charge))
    return list(_cached_costs(json.dumps(charge, sort_keys=True), unit))


@lru_cache(maxsize=1024)
def _cached_costs(text: str, unit: Unit) -> tuple[Cost, ...]:
    charge = unambiguous_json(text)
    return tuple(_COST_FUNCTIONS[charge["kind"]](charge, unit))


def report_of_run(
    run: TrainingRun, other_releases: Sequence[Mapping[str, Any]], unit: Unit
) -> PrivacyReport:
    """The report of a run in the unit of a ledger."""
    adjacency = unit.adjacency
    releases = [release_from_record(one, adjacency=run.adjacency) for one in other_releases]
    run = run.replace(examples_per_person=unit.examples_per_person)
    if run.adjacency == adjacency:
        return account(run, other_releases=releases)
    if adjacency == "replace":
        doubled = run.replace(adjacency="replace", sensitivity=2.0 * run.sensitivity)
        return account(doubled, other_releases=[one.under("replace") for one in releases])
    if run.gradient_bound is None:
        raise _other_adjacency(
            run.adjacency,
            adjacency,
            "no bound on an example's gradient is known; train with adjacency='zero-out', or state "
            "loss.lipschitz",
        )
    left_out = run.replace(adjacency="zero-out", sensitivity=run.gradient_bound)
    return account(left_out, other_releases=releases)


def _training_costs(charge: Charge, unit: Unit) -> list[Cost]:
    return [_cost_of("run", _report_as_computed(charge, unit))]


def _report_as_computed(charge: Charge, unit: Unit) -> PrivacyReport:
    """The report on a training or candidate as it was computed."""
    exact = report_of_run(from_dict(charge["run"]), charge["other_releases"], unit)
    rounding = rounding_of(charge)
    return exact if rounding is None else exact.computed(rounding)


def _selection_costs(charge: Charge, unit: Unit) -> list[Cost]:
    texts = [json.dumps(one, sort_keys=True) for one in charge["candidates"]]
    candidates = dict(zip(texts, charge["candidates"], strict=True))
    by_text = {text: _report_as_computed(one, unit) for text, one in candidates.items()}
    reports = [by_text[text] for text in texts]
    return [_cost_of("run", selected(reports, Tries(charge["shape"], charge["stop"])))]


def _statistic_costs(charge: Charge, unit: Unit) -> list[Cost]:
    release = release_from_record(charge["release"], adjacency=charge["adjacency"])
    if unit.adjacency == "replace" != charge["adjacency"]:
        release = release.under("replace")
    # The sensitivity is that of one example, whatever was to be protected.
    exact = for_group(GaussianProfile(release.mu), unit.examples_per_person)
    rounding = rounding_of(charge)
    return [_cost_of("release", exact if rounding is None else RoundedProfile(exact, rounding))]


def _event_costs(charge: Charge, unit: Unit) -> list[Cost]:
    groups = unit.groups_of(covered_by(charge))
    return [
        _event_cost(one, times, groups, unit.adjacency)
        for one, times in events.constituents(charge["event"])
    ]


def _event_cost(one: Mapping[str, Any], times: int, groups: int, adjacency: str) -> Cost:
    """An event is of a sum of values of bounded norm: a replacement moves it twice as far."""
    replaced = adjacency == "replace"
    far = 2 * groups if replaced else groups
    if one["name"] == "Gaussian":
        mu = at_least(far / one["noise_multiplier"], ulps=2.0)
        return cost_of(GaussianProfile(mu), times=times)
    relation = events.LEFT_OUT
    if (moved := events.moved_farther(one, far)) is not None:
        one, groups = moved, 1
    elif replaced and events.is_known(one, events.REPLACED):
        relation = events.REPLACED
    elif replaced:
        alone = from_pld(event_distribution(events.from_record(one), relation))
        return _cost_of("event", for_group(for_pair(alone), groups)) | {"times": times}
    if groups > 1:
        alone = from_pld(event_distribution(events.from_record(one), relation))
        return _cost_of("event", for_group(alone, groups)) | {"times": times}
    events.losses_of(json.dumps(one, sort_keys=True), relation)  # or it is refused
    return {"times": times, "mu": None, "event": dict(one), "relation": relation}


def _stated_costs(charge: Charge, unit: Unit) -> list[Cost]:
    epsilon, delta = charge["epsilon"], charge["delta"]
    changes = unit.groups_of(covered_by(charge))
    if _must_double(charge["adjacency"], unit.adjacency):
        changes *= 2
    if changes > 1:
        delta = _delta_of_group(epsilon, delta, changes)
        epsilon = at_least(changes * epsilon, ulps=1.0)
    if not epsilon <= _LARGEST_EPSILON:
        must_be = (
            f"at most {_LARGEST_EPSILON / changes:g}, as {changes:,} changes one by one are counted"
        )
        raise InvalidParameter("epsilon", charge["epsilon"], must_be=must_be)
    mu = PureProfile(epsilon).gdp() if delta == 0.0 else None
    return [{"times": 1, "mu": mu, "epsilon": epsilon, "delta": delta}]


def _delta_of_group(epsilon: float, delta: float, changes: int) -> float:
    """delta (1 + e^epsilon + .. + e^((changes - 1) epsilon)), rounded up; at most 1."""
    if delta == 0.0:
        return 0.0
    if changes * epsilon > _LARGEST_EPSILON:
        return 1.0
    if epsilon == 0.0:
        terms = float(changes)
    else:
        terms = math.expm1(changes * epsilon) / math.expm1(epsilon)
    # A rounding of the exponent is one of the power, times the exponent.
    return min(at_least(delta * terms, ulps=16.0 + 4.0 * changes * epsilon), 1.0)


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


def _cost_of(name: str, profile: PrivacyProfile) -> dict[str, Any]:
    if not profile.delta(1e9) < 1.0:
        found = "one of which nothing is promised"
        raise InvalidParameter(name, must_be="a release with a guarantee", found=found)
    return cost_of(profile)


_COST_FUNCTIONS: dict[str, Callable[[Charge, Unit], list[Cost]]] = {
    "training": _training_costs,
    "selection": _selection_costs,
    "statistic": _statistic_costs,
    "event": _event_costs,
    "stated": _stated_costs,
}


@dataclass(frozen=True)
class ReleaseCharge:
    """The charge of a release, and its certificate if it has one."""

    charge: Charge
    certificate: Mapping[str, Any] | None = None
    seeded: bool = False

    @property
    def digest(self) -> str | None:
        """Digest that tells this release from all others; None without a certificate."""
        return None if self.certificate is None else training_digest(self.certificate)


def release_charge(
    release: Any, *, adjacency: str, examples_per_person: int | None = None
) -> ReleaseCharge:
    """A release as a charge; certificates are derived again.

    `adjacency` and `examples_per_person` are what is said of a release that does not say them.
    """
    found = _release_charge(
        release, adjacency, 1 if examples_per_person is None else examples_per_person
    )
    own = covered_by(found.charge)
    if examples_per_person is not None and own != examples_per_person:
        must_be = f"{own}, as the release has it, or left out"
        raise InvalidParameter(PER_PERSON, examples_per_person, must_be=must_be)
    return found


def _release_charge(release: Any, adjacency: str, covered: int) -> ReleaseCharge:
    if isinstance(release, (str, Path)):
        record = read(release)
        if UNLEARNING in record:
            must_be = (
                "of a training: unlearn(.., ledger=..) charges the steps of a request before they "
                "are taken; charged alone, this one would leave out the models that it follows"
            )
            raise InvalidParameter("release", must_be=must_be, found="a request to be forgotten")
        found = verified_certificate(release)
        return ReleaseCharge(charge_of(record), record, found.seeded)
    if isinstance(release, PrivacyReport):
        if release.selected:
            must_be = (
                "its certificate: a report of the best of several tries does not hold the others"
            )
            raise InvalidParameter("release", must_be=must_be, found="such a report")
        if release.followed is not None:
            must_be = "of a training: unlearn(.., ledger=..) charges what follows it"
            raise InvalidParameter("release", must_be=must_be, found="a report of several models")
        return ReleaseCharge(training(release), seeded=release.seeded)
    inner = getattr(release, "release", release)
    if isinstance(inner, Release):
        covered = getattr(release, PER_PERSON, covered)  # a score knows
        if inner is release:
            rounding = release_rounding(inner, _MAX_EXAMPLES, _MAX_FEATURES)
        else:
            rounding = release.privacy.rounding
        charge = statistic(
            inner, adjacency="replace", examples_per_person=covered, rounding=rounding
        )
        return ReleaseCharge(charge)
    if isinstance(release, tuple) and len(release) == 2:
        charge = stated(*release, adjacency=adjacency, examples_per_person=covered)
        return ReleaseCharge(charge)
    if type(release).__name__.endswith("DpEvent"):
        return ReleaseCharge(event(events.as_record(release), examples_per_person=covered))
    raise InvalidType("release", release, must_be=_MUST_BE)


def charge_of(record: Mapping[str, Any]) -> Charge:
    """The charge of what a certificate is about."""
    if "selection" in record:
        chosen = record["selection"]
        tries = Tries(chosen["shape"], chosen["stop"])
        return selection(tries, chosen["candidates"], candidate_roundings(record))
    other_releases = [without_published(one) for one in record["other_releases"]]
    charge = {"kind": "training", "run": record["run"], "other_releases": other_releases}
    if not is_charged(record):
        return charge
    arithmetic = record[ARITHMETIC]
    return charge | rounded(Rounding(arithmetic["mu"], arithmetic["failure"]))


def is_charge_of(charge: Charge, record: Mapping[str, Any]) -> bool:
    """Whether a charge is of what a certificate is about, with no less rounding."""
    exact, roundings = _split_roundings(charge)
    certified, least = _split_roundings(charge_of(record))
    return exact == certified and all(map(_is_no_less, roundings, least))


def _split_roundings(charge: Charge) -> tuple[Charge, list[Rounding | None]]:
    """A charge of exact results, and the roundings of all of them."""
    exact = {name: value for name, value in charge.items() if name != ROUNDING}
    if "candidates" not in charge:
        return exact, [rounding_of(charge)]
    every = [_split_roundings(one) for one in charge["candidates"]]
    return exact | {"candidates": [one for one, _ in every]}, [found for _, (found,) in every]


def _is_no_less(stated: Rounding | None, least: Rounding | None) -> bool:
    if stated is None or least is None:
        return stated is least
    return stated.mu >= down(least.mu, MILLIONS_OF_ROUNDINGS) and stated.failure >= down(
        least.failure, MILLIONS_OF_ROUNDINGS
    )
