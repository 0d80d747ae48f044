"""The files of saved models: how ours are recognised, and written whole or not at all."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate._files import IsOurs, is_record, is_sealed, refuse_replacing, write_files
from lastiterate.errors import InvalidParameter
from lastiterate.run.serialise import unambiguous_json

MODEL, CERTIFICATE = "model.json", "certificate.json"
_MOST_NAMES_TRIED = 100  # that are tried
_LEARNED = ("coef", "intercept", "center")
_LONGEST_HEADER = 10**8  # as the format has it

_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2",
          "I8": "|i1", "U8": "|u1", "BOOL": "|b1"}  # fmt: skip


# Files of tensors in the safetensors format, read with numpy alone.
#
# Eight bytes of the length of a header in JSON, the header, and the tensors, one after the other.


@dataclass(frozen=True)
class TensorFile:
    """The tensors of a file by name, and the texts beside them."""

    tensors: Mapping[str, NDArray[Any]]
    texts: Mapping[str, str]


def read_tensors(content: bytes) -> TensorFile:
    """The tensors of a file; `ValueError` for anything but a header and exactly what it names."""
    length = int.from_bytes(content[:8], "little")
    if not 2 <= length <= min(_LONGEST_HEADER, len(content) - 8):
        raise ValueError("no header of tensors")
    try:
        written = content[8 : 8 + length].decode("utf-8")
        header = unambiguous_json(written)
        # As the format's own writers have it: nothing between entries, and spaces up to a word.
        plain = json.dumps(header, separators=(",", ":"), ensure_ascii=False)
        if written != plain + " " * ((len(written) - len(plain)) % 8):
            raise TypeError
        texts = header.pop("__metadata__", {})
        if not all(isinstance(one, str) for one in texts.values()):
            raise TypeError
        if any(one.keys() != {"dtype", "shape", "data_offsets"} for one in header.values()):
            raise TypeError
        spans = sorted((*one["data_offsets"], name) for name, one in header.items())
        data, tensors, done = memoryview(content)[8 + length :], {}, 0
        for start, end, name in spans:
            kind, shape = np.dtype(_TYPES[header[name]["dtype"]]), header[name]["shape"]
            whole = all(type(one) is int and one >= 0 for one in (start, end, *shape))
            if not whole or start != done or end - start != math.prod(shape) * kind.itemsize:
                raise TypeError
            tensors[name] = np.frombuffer(data[start:end], dtype=kind).reshape(shape).copy()
            done = end
        if done != len(data):
            raise TypeError
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise ValueError("a header that does not describe what follows it") from None
    return TensorFile(tensors, texts)


def _are_tensors(known: Callable[[TensorFile], bool]) -> IsOurs:
    """Recognises files of tensors of which this is true."""

    def is_ours(content: bytes) -> bool:
        try:
            return known(read_tensors(content))
        except ValueError:
            return False

    return is_ours


OURS: Mapping[str, IsOurs] = {
    MODEL: is_record(lambda record: str(record.get("format")).startswith("lastiterate model ")),
    CERTIFICATE: is_record(lambda record: {"format", "guarantee", "run", "digest"} <= set(record)),
    "config.json": is_record(
        lambda record: str(record.get("layout")).startswith("lastiterate hub ")
    ),
    "model.safetensors": _are_tensors(
        lambda file: {"parameters"} <= set(file.tensors) <= {"parameters", *_LEARNED}
    ),
    "head.safetensors": _are_tensors(lambda file: "lastiterate" in file.texts),
    "README.md": is_sealed,
}


def refuse_replacing_in(
    name: str, folder: Path, names: tuple[str, ...], *, allowed: bool, remedy: str = ""
) -> None:
    """Raise unless files of these names can be written there without the loss of another's."""
    if folder.exists() and not folder.is_dir():
        must_be = "a folder, or a path where none exists"
        raise InvalidParameter(name, must_be=must_be, found=f"{folder}, which is a file")
    new = f"a folder without {' and '.join(names)}"
    for one in names:
        refuse_replacing(name, folder / one, OURS[one], allowed=allowed, new=new, remedy=remedy)


def write_together(
    name: str,
    folder: Path,
    texts: Mapping[str, str | bytes],
    *,
    allowed: bool,
    remedy: str = "",
) -> None:
    """Write all files of a folder or, if interrupted, none; ours are replaced where allowed."""
    created = [each for each in (folder, *folder.parents) if not each.exists()]
    contents = {folder / one: text for one, text in texts.items()}
    replaces = {folder / one: OURS[one] if allowed else None for one in texts}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_files(name, contents, replaces, remedy=remedy)
    except BaseException:
        with suppress(OSError):  # somebody else's files are in it by now
            for each in created:
                if each.is_dir():
                    each.rmdir()
        raise


def written(
    name: str, path: Path, write: Callable[[Path, bool], None], *, allowed: bool
) -> tuple[Path, list[InvalidParameter]]:
    """Path that `write` wrote, a free one beside it if it was taken since, and the errors.

    A model that privacy was spent on is not lost: it gets a free name, and the command raises the
    error, which says where the model is, at its end.
    """
    try:
        write(path, allowed)
    except (InvalidParameter, OSError) as error:
        near = path.resolve() if path.name in ("", "..") else path
        for number in range(2, _MOST_NAMES_TRIED):
            beside = near.parent / f"{near.stem}-{number}{near.suffix}"
            if os.path.lexists(beside):
                continue
            try:
                write(beside, False)
            except InvalidParameter:  # taken, too, in this very moment
                continue
            except OSError:
                break
            must_be = getattr(error, "must_be", "a path that can be written")
            found = f"{getattr(error, 'found', None) or error}: {beside} was written instead"
            return beside, [InvalidParameter(name, must_be=must_be, found=found)]
        raise
    return path, []
