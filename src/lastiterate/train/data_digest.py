"""Which data a model was trained on: digests that tell nothing to those without the key.

A plain digest of rows would let anybody who guesses them find out that the guess is right.  Under
a secret key it tells whoever has the key whether rows are the same as before, and nobody else
anything.  The key is the user's: no model and no certificate holds it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.train.data import Examples
from lastiterate.train.norms import chunks

LEAST_BYTES = 16
_MOST_BYTES = 64  # of a key of BLAKE2b
_SIZE = 16
_PATTERN = re.compile(rf"[0-9a-f]{{{2 * _SIZE}}}")


def secret_key(key: Any) -> bytes:
    """The key, or what the file holds that a path names."""
    must_be = (
        f"a secret of {LEAST_BYTES} to {_MOST_BYTES} bytes, or the path of a file that holds one "
        "(as `openssl rand -out key 32` writes it)"
    )
    if isinstance(key, str | Path):
        try:
            found, name = Path(key).read_bytes(), "the key in the file"
        except FileNotFoundError:
            found_none = f"{key}, which does not exist"
            raise InvalidParameter("key", must_be=must_be, found=found_none) from None
    elif isinstance(key, bytes | bytearray):
        found, name = bytes(key), "key"
    else:
        raise InvalidType("key", must_be=must_be, found=f"a {type(key).__name__}")
    if not LEAST_BYTES <= len(found) <= _MOST_BYTES:
        raise InvalidParameter(name, must_be=must_be, found=f"{len(found)} bytes")
    return found


def data_digest(examples: Examples, key: bytes) -> str:
    """Keyed digest of rows, targets, silent examples and weights, with types and order."""
    total = hashlib.blake2b(key=key, digest_size=_SIZE, person=b"lastiterate data")
    rows = examples.rows
    total.update(repr((rows.shape, str(rows.dtype), isinstance(rows, np.ndarray))).encode())
    for _, part in chunks(rows):
        held = [part] if isinstance(part, np.ndarray) else [part.indptr, part.indices, part.data]
        for array in held:
            total.update(_bytes(array))
    silent = np.zeros(0, dtype=bool) if examples.silent is None else examples.silent
    weights = () if examples.weights is None else (examples.weights,)
    for array in (examples.targets, silent, *weights):
        total.update(repr((array.shape, str(array.dtype))).encode() + _bytes(array))
    return total.hexdigest()


def row_digests(data: str, rows: Iterable[int], key: bytes) -> list[str]:
    """Keyed digests of rows, from the data's digest and row numbers; row contents are not used."""
    begun = hashlib.blake2b(data.encode(), key=key, digest_size=_SIZE, person=b"lastiterate row")
    found = []
    for row in rows:
        one = begun.copy()
        one.update(int(row).to_bytes(8, "big"))
        found.append(one.hexdigest())
    return found


def is_digest(text: object) -> bool:
    """Whether it looks like one of these."""
    return isinstance(text, str) and _PATTERN.fullmatch(text) is not None


def same(one: str, other: str) -> bool:
    """Compared in a time that does not tell where they differ."""
    return hmac.compare_digest(one, other)


def _bytes(array: NDArray[Any]) -> bytes:
    return np.ascontiguousarray(array).tobytes()
