"""Guarantees of last iterates among `dp_accounting`'s events and accountants, and its other events.

    accountant = LastIterateAccountant(NeighboringRelation.REPLACE_ONE)
    accountant.compose(LastIterateDpEvent.of(run)).compose(GaussianDpEvent(5.0)).get_epsilon(1e-5)

An event holds its run, with the adjacency that its guarantee is for: "zero-out" is
REPLACE_SPECIAL, "replace" is REPLACE_ONE, and an accountant of another relation refuses it.  Where
examples take part independently of each other, "zero-out" is ADD_OR_REMOVE_ONE as well.  Other
accountants do not know this event.  A report of "zero-out" with a finite mu becomes a plain
GaussianDpEvent instead, which is for REPLACE_SPECIAL alone: dp-accounting's accountant for Renyi
divergences does not double it under REPLACE_ONE (google/differential-privacy#378).

A ledger keeps the events of other mechanisms, which may be made of events, as plain records.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from lastiterate import _check
from lastiterate._numerics.rounding import at_most
from lastiterate.accounting import PrivacyReport, account
from lastiterate.errors import InvalidParameter, MissingExtra
from lastiterate.profile import pld
from lastiterate.profile.curve import atoms
from lastiterate.profile.losses import LossCells
from lastiterate.profile.pld import (
    LossDistributionProfile,
    accountant_cell,
    accountant_losses,
    compose_losses,
    is_without_privacy,
    self_composed,
)
from lastiterate.run.serialise import unambiguous_json
from lastiterate.run.training_run import ADD_REMOVE, TrainingRun, known_adjacency

try:
    import attr
    from dp_accounting import dp_event
    from dp_accounting.dp_event import DpEvent, GaussianDpEvent
    from dp_accounting.pld.pld_privacy_accountant import PLDAccountant
    from dp_accounting.privacy_accountant import NeighboringRelation
except ImportError as error:
    raise MissingExtra.of(error, "lastiterate.dp_accounting", extra="") from error

LEFT_OUT, REPLACED = "REPLACE_SPECIAL", "REPLACE_ONE"
RELATIONS = {"zero-out": LEFT_OUT, "replace": REPLACED}
# By the parts of their names before "DpEvent": which numbers they have, and what these must be.
_LIMITS: dict[str, dict[str, Any]] = {
    "Gaussian": {"noise_multiplier": {"above": 0.0}},
    "Laplace": {"noise_multiplier": {"above": 0.0}},
    "PoissonSampled": {"sampling_probability": {"above": 0.0, "at_most": 1.0}},
    "DiscreteLaplace": {"noise_parameter": {"above": 0.0}},
    "SelfComposed": {},
    "Composed": {},
    "NoOp": {},
}
_COUNT_NAMES = {"SelfComposed": "count", "DiscreteLaplace": "sensitivity"}
_HOLD_ONE_EVENT = ("PoissonSampled", "SelfComposed")
_MUST_BE = "made of dp-accounting's " + ", ".join(f"{name}DpEvent" for name in _LIMITS)


@attr.s(frozen=True, slots=True, auto_attribs=True)
class LastIterateDpEvent(DpEvent):
    """The release of the last iterate of a run, which is held as JSON."""

    run: str

    @classmethod
    def of(cls, run: TrainingRun) -> LastIterateDpEvent:
        """The event of this run."""
        return cls(run.to_json())

    def relations(self) -> set[str]:
        """The neighbouring relations, by their names there, that its guarantee is for."""
        run = TrainingRun.from_json(self.run)
        named = {RELATIONS[run.adjacency]}
        try:
            if known_adjacency(ADD_REMOVE, run.batches) == run.adjacency:
                named.add("ADD_OR_REMOVE_ONE")
        except InvalidParameter:  # adding or removing one would change others' batches
            pass
        return named


class LastIterateAccountant(PLDAccountant):
    """dp-accounting's accountant by privacy loss distributions, which knows one more event.

    Distributions are pessimistic, and answers include the rounding of composing those of last
    iterates.
    """

    _slack = 0.0
    _examples_per_person: int | None = None

    def get_epsilon(self, target_delta: float) -> float:
        """The least epsilon; inf where there is none."""
        return math.inf if is_without_privacy(self) else self._losses().epsilon(target_delta)

    def get_delta(self, target_epsilon: float) -> float:
        """The least delta."""
        return 1.0 if is_without_privacy(self) else self._losses().delta(target_epsilon)

    def _losses(self) -> LossDistributionProfile:
        distribution = accountant_losses(self)
        whole = LossDistributionProfile(distribution)
        return LossDistributionProfile(distribution, slack=whole.slack + self._slack)

    def _maybe_compose(self, event: Any, count: int, do_compose: bool) -> Any:
        if not isinstance(event, LastIterateDpEvent):
            return super()._maybe_compose(event, count, do_compose)
        own = NeighboringRelation(self.neighboring_relation).name
        if own not in event.relations():
            stated = " or ".join(sorted(event.relations()))
            return self.CompositionErrorDetails(
                invalid_event=event,
                error_message=f"the guarantee is for {stated}, this accountant for {own}",
            )
        persons = TrainingRun.from_json(event.run).examples_per_person
        if self._examples_per_person not in (None, persons):
            return self.CompositionErrorDetails(
                invalid_event=event,
                error_message=f"the guarantee is for examples_per_person={persons}, that of an "
                f"event before it for {self._examples_per_person}",
            )
        if do_compose:
            self._examples_per_person = persons
            one = _losses_of(event.run, accountant_cell(self))
            all_together = self_composed(one, count)
            compose_losses(self, all_together.pld)
            self._slack += all_together.slack
        return None


@lru_cache(maxsize=64)
def _losses_of(run: str, cell: float) -> Any:
    return account(TrainingRun.from_json(run)).to_pld(discretization=cell)


def event_of(report: PrivacyReport) -> Any:
    """The event of a report, see `PrivacyReport.to_dp_event`."""
    if report.rounding is not None:
        must_be = (
            "of exact arithmetic: an event cannot hold the rounding of a computed result; use "
            "report.to_pld(), which includes it"
        )
        raise InvalidParameter("report", report, must_be=must_be)
    mu = report.gdp()
    if report.run.adjacency == "zero-out" and 0.0 < mu < math.inf:
        return GaussianDpEvent(math.nextafter(1.0 / mu, 0.0))
    if report.other_releases or report.of_more_than_the_run:
        must_be = (
            "of a run alone: an event holds one run, and not other releases, a selection or the "
            "steps of unlearning requests; use report.to_pld(), which includes them"
        )
        raise InvalidParameter("report", report, must_be=must_be)
    return LastIterateDpEvent.of(report.run)


def as_record(event: Any) -> dict[str, Any]:
    """An event as plain numbers and words."""
    name = type(event).__name__.removesuffix("DpEvent")
    if name not in _LIMITS or not type(event).__module__.startswith("dp_accounting"):
        raise InvalidParameter("event", event, must_be=_MUST_BE)
    record: dict[str, Any] = {"name": name}
    for each, limits in _LIMITS[name].items():
        record[each] = _check.number(each, getattr(event, each), **limits)
    if name in _COUNT_NAMES:
        record[_COUNT_NAMES[name]] = _check.count(
            _COUNT_NAMES[name], getattr(event, _COUNT_NAMES[name]), at_least=1
        )
    if name in _HOLD_ONE_EVENT:
        record["event"] = as_record(event.event)
    if name == "Composed":
        record["events"] = [as_record(each) for each in event.events]
    return record


def from_record(record: Mapping[str, Any]) -> Any:
    """The event itself."""
    arguments = {key: value for key, value in record.items() if key != "name"}
    if "event" in arguments:
        arguments["event"] = from_record(arguments["event"])
    if "events" in arguments:
        arguments["events"] = [from_record(each) for each in arguments["events"]]
    if record.get("name") not in _LIMITS:
        raise InvalidParameter("event", dict(record), must_be=_MUST_BE)
    try:
        return getattr(dp_event, f"{record['name']}DpEvent")(**arguments)
    except TypeError as error:
        raise InvalidParameter("event", dict(record), must_be=f"{_MUST_BE} ({error})") from None


def constituents(
    record: Mapping[str, Any], times: int = 1
) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Yields the events that a composition consists of, and how often each occurs."""
    name = record["name"]
    if name == "SelfComposed":
        yield from constituents(record["event"], times * record["count"])
    elif name == "Composed":
        for each in record["events"]:
            yield from constituents(each, times)
    elif name != "NoOp":
        yield record, times


def moved_farther(record: Mapping[str, Any], times: int) -> Mapping[str, Any] | None:
    """The event whose sum a change moves `times` as far; None if it is not known to be of a sum."""
    if record["name"] == "Laplace":
        noise = record["noise_multiplier"]
        less = noise if times == 1 else at_most(noise / times, ulps=1.0)
        return {**record, "noise_multiplier": less}
    if record["name"] == "DiscreteLaplace":
        return {**record, "sensitivity": times * record["sensitivity"]}
    return None


def is_known(record: Mapping[str, Any], relation: str) -> bool:
    """Whether dp-accounting knows the losses of an event for this relation."""
    return pld.is_supported(from_record(record), relation)


@lru_cache(maxsize=1024)
def losses_of(text: str, relation: str) -> tuple[LossCells, ...]:
    """Privacy losses of an event in JSON, in both directions or, where they are equal, in one."""
    event = from_record(unambiguous_json(text))
    distribution = pld.event_distribution(event, relation)
    return tuple(map(atoms, pld.losses_of(distribution)))
