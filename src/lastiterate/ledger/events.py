"""Other mechanisms, as dp-accounting calls them: events, and events made of events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from lastiterate import _check
from lastiterate._numerics.rounding import at_most
from lastiterate.errors import InvalidParameter
from lastiterate.profile import dp_accounting
from lastiterate.profile.delta_table import atoms
from lastiterate.profile.gaussian_mixture_pld import LossCells
from lastiterate.run.serialise import unambiguous_json

LEFT_OUT, REPLACED = "REPLACE_SPECIAL", "REPLACE_ONE"
# By the parts of their names before "DpEvent": which numbers they have, and what these must be.
_NUMBERS: dict[str, dict[str, Any]] = {
    "Gaussian": {"noise_multiplier": {"above": 0.0}},
    "Laplace": {"noise_multiplier": {"above": 0.0}},
    "PoissonSampled": {"sampling_probability": {"above": 0.0, "at_most": 1.0}},
    "DiscreteLaplace": {"noise_parameter": {"above": 0.0}},
    "SelfComposed": {},
    "Composed": {},
    "NoOp": {},
}
_COUNTS = {"SelfComposed": "count", "DiscreteLaplace": "sensitivity"}
_INSIDE = ("PoissonSampled", "SelfComposed")
_MUST_BE = "made of dp-accounting's " + ", ".join(f"{name}DpEvent" for name in _NUMBERS)


def as_record(event: Any) -> dict[str, Any]:
    """An event as plain numbers and words."""
    name = type(event).__name__.removesuffix("DpEvent")
    if name not in _NUMBERS or not type(event).__module__.startswith("dp_accounting"):
        raise InvalidParameter("event", event, must_be=_MUST_BE)
    record: dict[str, Any] = {"name": name}
    for each, limits in _NUMBERS[name].items():
        record[each] = _check.number(each, getattr(event, each), **limits)
    if name in _COUNTS:
        record[_COUNTS[name]] = _check.count(
            _COUNTS[name], getattr(event, _COUNTS[name]), at_least=1
        )
    if name in _INSIDE:
        record["event"] = as_record(event.event)
    if name == "Composed":
        record["events"] = [as_record(each) for each in event.events]
    return record


def from_record(record: Mapping[str, Any]) -> Any:
    """The event itself."""
    dp_accounting.require("a ledger with events")
    from dp_accounting import dp_event

    arguments = {key: value for key, value in record.items() if key != "name"}
    if "event" in arguments:
        arguments["event"] = from_record(arguments["event"])
    if "events" in arguments:
        arguments["events"] = [from_record(each) for each in arguments["events"]]
    if record.get("name") not in _NUMBERS:
        raise InvalidParameter("event", dict(record), must_be=_MUST_BE)
    try:
        return getattr(dp_event, f"{record['name']}DpEvent")(**arguments)
    except TypeError as error:
        raise InvalidParameter("event", dict(record), must_be=f"{_MUST_BE} ({error})") from None


def taken_apart(
    record: Mapping[str, Any], times: int = 1
) -> Iterator[tuple[Mapping[str, Any], int]]:
    """The events of which it is composed, and how often each occurs."""
    name = record["name"]
    if name == "SelfComposed":
        yield from taken_apart(record["event"], times * record["count"])
    elif name == "Composed":
        for each in record["events"]:
            yield from taken_apart(each, times)
    elif name != "NoOp":
        yield record, times


def moved_farther(record: Mapping[str, Any], times: int) -> Mapping[str, Any] | None:
    """The event of a sum that a change moves so many times as far, if that is one of them."""
    if record["name"] == "Laplace":
        noise = record["noise_multiplier"]
        less = noise if times == 1 else at_most(noise / times, ulps=1.0)
        return {**record, "noise_multiplier": less}
    if record["name"] == "DiscreteLaplace":
        return {**record, "sensitivity": times * record["sensitivity"]}
    return None


def is_known(record: Mapping[str, Any], relation: str) -> bool:
    """Whether dp-accounting knows the losses of an event for this relation."""
    return dp_accounting.is_supported(from_record(record), relation)


@lru_cache(maxsize=1024)
def losses_of(text: str, relation: str) -> tuple[LossCells, ...]:
    """Privacy losses of an event in JSON, in both directions or, where they are equal, in one."""
    event = from_record(unambiguous_json(text))
    distribution = dp_accounting.event_distribution(event, relation)
    return tuple(map(atoms, dp_accounting.losses_of(distribution)))
