"""Fixed maps from rows to features: they learn nothing, and bound the norm of every row they give.

A map is its parameters, all of them public.  Models and certificates hold them as data.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lastiterate._files import refuse_replacing
from lastiterate._numerics.rounding import Array, down, ulps_of
from lastiterate._progress import track
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.tables.plain_rows import plain_cells
from lastiterate.train.traceback_scrubbing import discreet

Floats = NDArray[np.float32]

# Products of counted roundings of float64, one rounding to float32, and the estimators' own
# rounding up of norms in float32 together stay below this relative amount.
_ROUNDING = ulps_of(np.float32, 8)
_LONGEST_FILE = 1 << 50  # bytes


@dataclass(frozen=True)
class FeatureMap(ABC):
    """A fixed map of rows; the norm of every row of features is at most `norm_bound`."""

    kind: ClassVar[str]
    norm_bound: ClassVar[float] = 1.0

    @property
    @abstractmethod
    def input_width(self) -> int:
        """The number of columns of the rows that are mapped."""

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of features."""

    @property
    @abstractmethod
    def block(self) -> int:
        """The number of rows that are mapped together."""

    @abstractmethod
    def map_block(self, rows: Array) -> Floats:
        """The features of some rows, which are finite, each computed from its numbers alone."""

    @discreet
    def apply(self, rows: NDArray[Any], out: Floats | None = None) -> Floats:
        """The features of all rows, block by block, in `out` if it is given."""
        self._check_columns(rows)
        shape = (len(rows), self.width)
        if out is None:
            out = np.empty(shape, dtype=np.float32)
        if not isinstance(out, np.ndarray) or out.shape != shape or out.dtype != np.float32:
            found = f"{type(out).__name__} {getattr(out, 'shape', '')} {getattr(out, 'dtype', '')}"
            raise InvalidParameter("out", must_be=f"a float32 array of shape {shape}", found=found)
        done = 0
        for features in self._blocks(rows):
            out[done : done + len(features)] = features
            done += len(features)
        return out

    @discreet
    def write(self, rows: NDArray[Any], path: Path) -> np.memmap[Any, Any]:
        """The features of all rows, written to a new file block by block and then mapped."""
        self._check_columns(rows)
        if not 0 < 4 * len(rows) * self.width < _LONGEST_FILE:
            must_be = "at least one, and no more than a file can hold"
            raise InvalidParameter("the number of rows", len(rows), must_be=must_be)
        # Mapped only after writing: pages that change while they are mapped stay in memory.
        refuse_replacing("path", path)
        with path.open("xb") as file:
            try:
                for features in self._blocks(rows):
                    file.write(np.ascontiguousarray(features).data)
            except BaseException:
                path.unlink(missing_ok=True)
                raise
        return np.memmap(path, dtype=np.float32, mode="r", shape=(len(rows), self.width))

    @discreet
    def check_finite(self, rows: NDArray[Any]) -> None:
        """Raise `InvalidParameter` or `InvalidType` if a cell is no finite number."""
        for start in range(0, len(rows) if rows.dtype.kind in "fO" else 0, self.block):
            _finite(rows[start : start + self.block])

    def as_record(self) -> dict[str, Any]:
        """The kind and all parameters, as JSON has them."""
        plain = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
        }
        return {"kind": self.kind, **plain, "norm bound": self.norm_bound}

    def _blocks(self, rows: NDArray[Any]) -> Iterator[Floats]:
        starts = range(0, len(rows), self.block)
        for start in track(f"{self.kind} features", starts):
            yield self._mapped(rows[start : start + self.block])

    @np.errstate(all="ignore")  # what raises must not depend on a row's size
    def _mapped(self, rows: NDArray[Any]) -> Floats:
        return self.map_block(_finite(rows))

    def _check_columns(self, rows: NDArray[Any]) -> None:
        if rows.ndim != 2 or rows.shape[1] != self.input_width:
            must_be = f"of shape (rows, {self.input_width})"
            raise InvalidParameter("X", must_be=must_be, found=f"shape {rows.shape}")
        if rows.dtype.kind not in "biufO":
            # One date with another unit would change the numbers of all.
            raise InvalidType("X", must_be="of numbers", found=str(rows.dtype))


@np.errstate(all="ignore")
def _finite(rows: NDArray[Any]) -> Array:
    """A copy in double precision and one layout: no row decides how another is computed."""
    plain = plain_cells("X", rows) if rows.dtype.kind == "O" else rows
    exact = np.array(plain, dtype=np.float64, order="C")
    # Only now: a long double may be finite and too large.
    if not np.isfinite(exact).all():
        must_be = "finite numbers throughout, without NaN and inf"
        raise InvalidParameter("X", must_be=must_be, found="a row that has others")
    return exact


def without_huge_entries(rows: Array, largest: float) -> Array:
    """The rows, of which each with a larger entry is scaled down to this one."""
    largest_of = np.maximum(rows.max(axis=1), -rows.min(axis=1))
    huge = np.flatnonzero(largest_of > largest)
    if huge.size:
        rows = rows.copy()
        rows[huge] *= (largest / largest_of[huge])[:, np.newaxis]
    return rows


def share_of_norm(entries: int) -> float:
    """1/sqrt(entries), less the roundings that may follow."""
    return down(1.0 / math.sqrt(entries), _ROUNDING)
