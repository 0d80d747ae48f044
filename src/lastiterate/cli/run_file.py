"""A run in a file: read, changed by flags, and written."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lastiterate._files import refuse_replacing
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.run.description import Description
from lastiterate.run.serialise import from_dict, from_toml, is_written_out, parsed, words_to_toml
from lastiterate.run.training_run import TrainingRun

_KINDS = {".toml": "TOML", ".json": "JSON"}
_ANSWERS = {"delta", "epsilon", "run"}  # what `account --json` and `calibrate --json` both have


def read_run(path: Path, changes: Mapping[str, Any]) -> Description | TrainingRun:
    """The run in a file, with `changes`; a `TrainingRun` if it is written out and unchanged."""
    if path.suffix not in _KINDS:
        raise InvalidParameter("run", str(path), must_be="a file that ends in .toml or .json")
    said = parsed(_KINDS[path.suffix], path.read_text(encoding="utf-8"))
    record = _run_in(said, path)
    if not isinstance(record, Mapping):
        raise InvalidType("run", record, must_be="a table of names and values")
    if not is_written_out(record):
        return Description.from_words(record).changed(changes)
    run = from_dict(record)
    return Description.of(run).changed(changes) if changes else run


def check_new(path: Path) -> None:
    """Before the work, not after it."""
    if path.suffix != ".toml":
        raise InvalidParameter("save", str(path), must_be="a file that ends in .toml")
    refuse_replacing("save", path)


def as_toml(described: Description | None, run: TrainingRun) -> str:
    """The run in the words in which it was described, where they say all of it."""
    if described is not None:
        usual = Description()
        words = {
            one.name: getattr(described, one.name)
            for one in dataclasses.fields(Description)
            if getattr(described, one.name) != getattr(usual, one.name)
        }
        words |= {"batches": run.batches.name, "adjacency": run.adjacency}
        if "domain" not in words and isinstance(described.batches, str | None):
            text = words_to_toml(words)
            return text if from_toml(text) == run else run.to_toml()
    return run.to_toml()


def _run_in(record: Any, path: Path) -> Any:
    """The run of a file, which may be an answer of the command about it."""
    if not isinstance(record, Mapping) or "run" not in record:
        return record
    if "guarantee" in record:
        must_be = "a run; a certificate is for `lastiterate verify`"
        raise InvalidParameter("run", str(path), must_be=must_be)
    if record.get("other_releases"):
        must_be = "of a training alone; this answer includes statistics published beside it"
        raise InvalidParameter("run", str(path), must_be=must_be)
    return record["run"] if set(record) >= _ANSWERS else record
