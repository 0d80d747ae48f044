"""Many seeded runs of a trainer in both worlds, kept in a file so that none is made twice.

Seeds are derived from the block's number, so that a result depends neither on how many processes
made it nor on whether the audit was interrupted.  The file has one JSON record a line: what is
audited, then one for each block; a last line that was cut short is made again.  Looking at results
before going on is noted too: each look is a chance to refute by accident.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate import _check
from lastiterate._files import IsOurs, write_whole
from lastiterate._numerics.rounding import Array
from lastiterate._progress import track
from lastiterate.errors import InvalidParameter, MissingExtra, NumericalFailure

Seeds = NDArray[np.uint64]
Trainer = Callable[[int, Seeds], Any]
Block = tuple[int, int]  # world, number

_FORMAT = "lastiterate audit 2"
_JUDGED = "judged after"


def outputs(
    trainer: Trainer,
    *,
    runs: int,
    seed: int = 0,
    block: int = 500,
    jobs: int = 1,
    file: Path | None = None,
    name: str = "",
) -> tuple[Array, Array]:
    """Outputs of `trainer(world, seeds)` in each of two worlds: a row for each of `runs` runs."""
    size = _check.count("block", block, at_least=1)
    count = _check.count("runs", runs, at_least=2)
    start = _check.count("seed", seed, at_least=0)
    lengths = [min(size, count - first) for first in range(0, count, size)]
    wanted = [(world, number) for number in range(len(lengths)) for world in (0, 1)]
    header = {"format": _FORMAT, "name": name, "seed": start, "block": size}
    done = {} if file is None else _resumed(file, header)
    # A last block of another length is made anew: an audit may go on to more runs.
    todo = [one for one in wanted if one not in done or len(done[one]) != lengths[one[1]]]

    def make(one: Block) -> tuple[Block, Array]:
        world, number = one
        state = np.random.SeedSequence([start, world, number])
        # 53 bits, which every generator takes and every float holds.
        seeds = state.generate_state(lengths[number], np.uint64).astype(np.uint64) >> np.uint64(11)
        return one, _checked(trainer(world, seeds), lengths[number])

    made = _made(make, todo, _check.count("jobs", jobs, at_least=1))
    for one, rows in track("runs of the trainer", made, len(todo)):
        done[one] = rows
        if file is not None:
            record = {"world": one[0], "number": one[1], "outputs": rows.tolist()}
            with file.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(record) + "\n")
    worlds = [
        np.concatenate([done[world, number] for number in range(len(lengths))]) for world in (0, 1)
    ]
    return worlds[0], worlds[1]


def _checked(released: Any, runs: int) -> Array:
    rows = np.asarray(released, dtype=float)
    rows = rows.reshape(runs, -1) if rows.size and rows.size % runs == 0 else rows
    if rows.ndim != 2 or rows.shape[0] != runs:
        must_be = f"an array with a row for each of {runs} seeds"
        raise InvalidParameter("trainer's result", must_be=must_be, found=f"shape {rows.shape}")
    if not np.isfinite(rows).all():
        raise NumericalFailure("a run of the trainer released numbers that are not finite.")
    return rows


def _made(
    make: Callable[[Block], tuple[Block, Array]], todo: list[Block], jobs: int
) -> Iterator[tuple[Block, Array]]:
    if jobs == 1 or len(todo) < 2:
        yield from map(make, todo)
        return
    try:
        from joblib import Parallel, delayed
    except ImportError:
        raise MissingExtra("an audit on several cores", "joblib", extra="audit") from None
    yield from Parallel(n_jobs=jobs, return_as="generator_unordered")(
        delayed(make)(one) for one in todo
    )


def _resumed(file: Path, header: dict[str, Any]) -> dict[Block, Array]:
    """The blocks that the file holds; its header is written, and a cut last line removed."""
    content = file.read_bytes() if file.exists() else b""
    if not content:
        write_whole("file", file, json.dumps(header) + "\n", _is(b""))
        return {}
    whole = content[: content.rfind(b"\n") + 1]
    records = [_parsed(file, line) for line in whole.splitlines()]
    if not records or records[0] != header:
        raise InvalidParameter("file", str(file), must_be=_other(records, header))
    if whole != content:
        write_whole("file", file, whole, _is(content))
    try:
        return {
            (one["world"], one["number"]): np.array(one["outputs"])
            for one in records[1:]
            if _JUDGED not in one
        }
    except (KeyError, TypeError) as error:
        raise InvalidParameter("file", str(file), must_be="the record of an audit") from error


def _is(content: bytes) -> IsOurs:
    """Recognises what was read."""
    return lambda found: found == content


def looks(file: Path, runs: int) -> list[int]:
    """After how many runs this record was judged, this time included, which is noted in it."""
    records = [_parsed(file, line) for line in file.read_text(encoding="utf-8").splitlines()]
    before = sorted({one[_JUDGED] for one in records if _JUDGED in one})
    if runs not in before:
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps({_JUDGED: runs}) + "\n")
    return sorted({*before, runs})


def _other(records: list[dict[str, Any]], header: dict[str, Any]) -> str:
    """In what a record is another audit's."""
    first = records[0] if records else {}
    differ = [name for name in header if first.get(name) != header[name]]
    told = {"name": "certificate"}
    return (
        "absent, or the record of the same audit; this one is of another "
        f"{' and '.join(told.get(name, name) for name in differ) or 'kind'}"
    )


def _parsed(file: Path, line: str | bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise InvalidParameter("file", str(file), must_be="one JSON object a line")
    return record
