"""Files of tensors in the safetensors format, read with numpy alone.

Eight bytes of the length of a header in JSON, the header, and the tensors, one after the other.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.run.serialise import unambiguous_json

_LONGEST_HEADER = 10**8  # as the format has it
_TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2",
          "I8": "|i1", "U8": "|u1", "BOOL": "|b1"}  # fmt: skip


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
