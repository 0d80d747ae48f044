"""A run as JSON or TOML text and back, exactly.

Floats are written in the shortest form that reads back to the same bits, so a round
trip gives an equal run.  Unknown keys are refused: a misspelt one would silently change
the guarantee.
"""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields
from typing import Any, get_args

from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.run.batch_rules.base import RULES
from lastiterate.run.description import Description
from lastiterate.run.loss import Loss
from lastiterate.run.optimizer import Average
from lastiterate.run.training_run import LEFT_OUT_AT_DEFAULTS, Domain, TrainingRun

_KINDS = {
    "batches": {kind.__name__: kind for kind in RULES.values()},
    "domain": {kind.__name__: kind for kind in get_args(Domain)},
    "loss": {"Loss": Loss},
    "average": {kind.__name__: kind for kind in get_args(Average)},
}


def to_dict(run: TrainingRun) -> dict[str, Any]:
    """Plain dicts, lists, strings and numbers.

    What is None is left out, and so are persons, momentum and averages where there are none.
    """
    record: dict[str, Any] = {}
    for entry in fields(run):
        value = getattr(run, entry.name)
        if entry.name in _KINDS and value is not None:
            kind = {} if entry.name == "loss" else {"kind": type(value).__name__}
            value = kind | {f.name: _plain(getattr(value, f.name)) for f in fields(value) if f.init}
            value = {key: item for key, item in value.items() if item is not None}
        left_out = entry.name in LEFT_OUT_AT_DEFAULTS and value == entry.default
        if value is not None and not left_out:
            record[entry.name] = _plain(value)
    return record


def from_dict(record: Mapping[str, Any]) -> TrainingRun:
    """The run that `to_dict` described."""
    arguments = dict(_table("run", record))
    for name, kinds in _KINDS.items():
        if name in arguments:
            arguments[name] = _build(name, arguments[name], kinds)
    run: TrainingRun = _call("run", TrainingRun, arguments)
    return run


def to_json(run: TrainingRun) -> str:
    """The run as indented JSON."""
    return json.dumps(to_dict(run), indent=2) + "\n"


def from_json(text: str) -> TrainingRun:
    """The run that `to_json` wrote, or that the words of a `Description` describe."""
    return from_record(parsed("JSON", text))


def to_toml(run: TrainingRun) -> str:
    """The run as TOML, tables last."""
    record = to_dict(run)
    lines = [f"{key} = {_toml(v)}" for key, v in record.items() if not isinstance(v, dict)]
    for name, table in record.items():
        if isinstance(table, dict):
            lines += ["", f"[{name}]", *(f"{key} = {_toml(v)}" for key, v in table.items())]
    return "\n".join(lines) + "\n"


def from_toml(text: str) -> TrainingRun:
    """The run that `to_toml` wrote, or that the words of a `Description` describe."""
    return from_record(parsed("TOML", text))


def from_record(record: Mapping[str, Any]) -> TrainingRun:
    """The run of either form: as `to_dict` writes it, or in the words of a `Description`."""
    if is_written_out(record):
        return from_dict(record)
    return Description.from_words(_table("run", record)).run()


def is_written_out(record: object) -> bool:
    """Whether it has the tables of `to_dict`."""
    if not isinstance(record, Mapping):
        return False
    return "loss" in record or "domain" in record or isinstance(record.get("batches"), Mapping)


def words_to_toml(words: Mapping[str, Any]) -> str:
    """The words of a `Description` as TOML."""
    return "".join(f"{key} = {_toml(_plain(value))}\n" for key, value in words.items())


def parsed(language: str, text: str) -> Any:
    """The value of a text in "JSON" or "TOML", of any structure."""
    return _parse(language, unambiguous_json if language == "JSON" else tomllib.loads, text)


def _parse(language: str, loads: Any, text: str) -> Any:
    if not isinstance(text, str):
        raise InvalidType("text", text, must_be=f"a string of {language}")
    try:
        return loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidParameter("text", text, must_be=f"valid {language} ({error})") from error


def unambiguous_json(text: str) -> Any:
    """The value of JSON text; ValueError where a name occurs twice or a constant is no number."""
    return json.loads(
        text, object_pairs_hook=_without_repeated_names, parse_constant=_reject_constant
    )


def _without_repeated_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The JSON of a text without repeated keys: readers may take the first or the second value."""
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise ValueError("a name occurs twice")
    return dict(pairs)


def _reject_constant(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    # JSON and TOML agree on booleans, whole numbers and the strings used here, and a
    # float's repr is a TOML float as long as it has a point or an exponent.
    return json.dumps(value)


def _table(name: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidType(name, value, must_be="a table of names and values")
    return value


def _build(name: str, record: object, kinds: Mapping[str, type]) -> Any:
    arguments = dict(_table(name, record))
    kind = arguments.pop("kind", "Loss" if name == "loss" else None)
    if not isinstance(kind, str) or kind not in kinds:
        raise InvalidParameter(f"{name}.kind", kind, must_be="one of " + ", ".join(kinds))
    return _call(name, kinds[kind], arguments)


def _call(name: str, kind: Any, arguments: dict[str, Any]) -> Any:
    known = [f for f in fields(kind) if f.init]
    unknown = arguments.keys() - {f.name for f in known}
    if unknown:
        names = ", ".join(f.name for f in known)
        raise InvalidParameter(f"{name} key", min(unknown), must_be=f"one of {names}")
    try:
        return kind(**arguments)
    except InvalidParameter:
        raise
    except TypeError:
        missing = [f.name for f in known if f.name not in arguments and _is_required(f)]
        must_be = "complete; it lacks " + ", ".join(missing)
        raise InvalidType(name, sorted(arguments), must_be=must_be) from None


def _is_required(entry: Field[Any]) -> bool:
    return entry.default is MISSING and entry.default_factory is MISSING
