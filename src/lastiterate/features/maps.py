"""Fixed maps from rows to features: they learn nothing, and bound the norm of every row they give.

A map is its parameters, all of them public.  Models and certificates hold them as data.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lastiterate import _check
from lastiterate._files import refuse_replacing
from lastiterate._numerics.rounding import Array, IntArray, down, ulps_of
from lastiterate._progress import track
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.tables.column_rules import BINS, cut_points
from lastiterate.tables.plain_rows import plain_cells
from lastiterate.train.discreet import discreet

Floats = NDArray[np.float32]

# Products of counted roundings of float64, one rounding to float32, and the estimators' own
# rounding up of norms in float32 together stay below this relative amount.
_NORM_ROUNDING = ulps_of(np.float32, 8)

_MOST_FILE_BYTES = 1 << 50  # bytes
_NUMBERS_AT_ONCE = 1 << 19  # features of all rows of a block
_MOST_COLUMNS, _MOST_COMPONENTS, _LARGEST_SEED = 1 << 24, 1 << 20, 2**32 - 1
LARGEST_ENTRY = 1e6  # phases of longer rows would be rounding alone
LARGEST_SCALED_ENTRY = 1e100
_LARGEST_END = 1e300
PUBLIC_NAMES = {"components": "n_components"}  # as users know it


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
        if not 0 < 4 * len(rows) * self.width < _MOST_FILE_BYTES:
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
            _finite_copy(rows[start : start + self.block])

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
            yield self._map_rows(rows[start : start + self.block])

    @np.errstate(all="ignore")  # what raises must not depend on a row's size
    def _map_rows(self, rows: NDArray[Any]) -> Floats:
        return self.map_block(_finite_copy(rows))

    def _check_columns(self, rows: NDArray[Any]) -> None:
        if rows.ndim != 2 or rows.shape[1] != self.input_width:
            must_be = f"of shape (rows, {self.input_width})"
            raise InvalidParameter("X", must_be=must_be, found=f"shape {rows.shape}")
        if rows.dtype.kind not in "biufO":
            # One date with another unit would change the numbers of all.
            raise InvalidType("X", must_be="of numbers", found=str(rows.dtype))


@np.errstate(all="ignore")
def _finite_copy(rows: NDArray[Any]) -> Array:
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
    return down(1.0 / math.sqrt(entries), _NORM_ROUNDING)


# Fixed features of rows of numbers: random Fourier features, quadratic sketches, public bins.
#
# Seeds are public, and independent of the examples.  Random numbers are those of NumPy's
# `RandomState`, whose streams do not change from version to version, so that a model from a file
# predicts as it did.


@dataclass(frozen=True)
class RandomMap(FeatureMap):
    """A map of so many columns to so many random components, drawn by a public seed."""

    columns: int
    components: int

    def __post_init__(self) -> None:
        _set_checked(self, "columns", _check.count, at_least=1, at_most=_MOST_COLUMNS)
        _set_checked(self, "components", _check.count, at_least=1, at_most=_MOST_COMPONENTS)

    @property
    def input_width(self) -> int:
        return self.columns

    @property
    def width(self) -> int:
        return self.components

    @property
    def block(self) -> int:
        return max(1, _NUMBERS_AT_ONCE // max(self.components, self.columns))


@dataclass(frozen=True)
class FourierMap(RandomMap):
    r"""The map of `RandomFourierFeatures`: cosines and sines of m/2 random projections.

    A row is :math:`\sqrt{2/m} (\cos \theta_k, \sin \theta_k)_k`, whatever the phases
    :math:`\theta_k` are, so its norm is 1.  An odd number of components is one more without the
    last sine.
    """

    gamma: float
    seed: int

    kind: ClassVar[str] = "fourier"

    def __post_init__(self) -> None:
        super().__post_init__()
        _set_checked(self, "gamma", _check.number, at_least=1e-12, at_most=1e12)
        _set_checked(self, "seed", _check.count, at_least=0, at_most=_LARGEST_SEED)

    def map_block(self, rows: Array) -> Floats:
        """The cosines of some rows, followed by the sines."""
        half = (self.components + 1) // 2
        random = directions(self.columns, half, self.seed)
        phases = without_huge_entries(rows, LARGEST_ENTRY) @ random
        phases *= math.sqrt(2.0 * self.gamma)
        sines = np.sin(phases[:, : self.components - half])
        features = np.concatenate([np.cos(phases), sines], axis=1)
        return np.asarray(features * share_of_norm(half), dtype=np.float32)


@dataclass(frozen=True)
class QuadraticMap(RandomMap):
    r"""The map of `QuadraticSketch`: a sketch of all products of two entries of a row.

    A row x, scaled down to norm B if it is longer, becomes :math:`a = (x/B, 1)/\sqrt2`, whose norm
    is at most 1.  The m sums of its products, with random signs and in random cells, have about the
    inner products :math:`\langle a, a' \rangle^2`.  A row of them that is longer than 1 is scaled
    down to 1.
    """

    seed: int
    input_bound: float

    kind: ClassVar[str] = "quadratic"

    def __post_init__(self) -> None:
        super().__post_init__()
        _set_checked(self, "seed", _check.count, at_least=0, at_most=_LARGEST_SEED)
        _set_checked(self, "input_bound", _check.number, at_least=1e-12, at_most=1e12)

    def map_block(self, rows: Array) -> Floats:
        """The sketches of some rows."""
        from scipy.fft import irfft, rfft  # which helps of commands need not wait for

        scaled = without_huge_entries(rows, LARGEST_SCALED_ENTRY) / self.input_bound
        norms = np.sqrt(np.einsum("rk,rk->r", scaled, scaled))
        scaled /= np.maximum(norms, 1.0)[:, np.newaxis]
        longer = np.concatenate([scaled, np.ones((len(rows), 1))], axis=1)
        spectrum: Any = 0.5  # the square of 1/sqrt(2)
        for cells, signs in cells_and_signs(self.columns + 1, self.components, self.seed):
            counted = _count_in_cells(longer * signs, cells, self.components)
            spectrum = spectrum * rfft(counted, axis=1)
        sketch = irfft(spectrum, n=self.components, axis=1)
        norms = np.sqrt(np.einsum("rk,rk->r", sketch, sketch))
        factors = share_of_norm(1) / np.maximum(norms, 1.0)
        return np.asarray(sketch * factors[:, np.newaxis], dtype=np.float32)


@dataclass(frozen=True)
class BinsMap(FeatureMap):
    r"""The map of `PublicBins`: one feature for each bin of each of c columns.

    Every column has :math:`1/\sqrt c` in one of its bins and 0 in the others, so the norm is 1.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    bins: int

    kind: ClassVar[str] = "bins"

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            ends = tuple(
                _check.number(name, one, at_least=-_LARGEST_END, at_most=_LARGEST_END)
                for one in getattr(self, name)
            )
            object.__setattr__(self, name, ends)
        if len(self.low) != len(self.high) or not self.low:
            raise InvalidParameter("high", self.high, must_be=f"{len(self.low)} numbers, as low")
        for low, high in zip(self.low, self.high, strict=True):
            if not low < high:
                raise InvalidParameter("low", low, must_be=f"below high, {high:g}")
        _set_checked(self, "bins", _check.count, at_least=2, at_most=1_000)
        assert self.cuts

    @property
    def input_width(self) -> int:
        return len(self.low)

    @property
    def width(self) -> int:
        return self.bins * len(self.low)

    @property
    def block(self) -> int:
        return max(1, _NUMBERS_AT_ONCE // self.width)

    @property
    def cuts(self) -> tuple[tuple[float, ...], ...]:
        """The points that divide the range of each column."""
        ranges = zip(self.low, self.high, strict=True)
        return tuple(cut_points("bins", {BINS: self.bins}, ends) for ends in ranges)

    def map_block(self, rows: Array) -> Floats:
        """The bins of some rows."""
        features = np.zeros((len(rows), self.input_width, self.bins), dtype=np.float32)
        every = np.arange(len(rows))
        for k, cuts in enumerate(self.cuts):
            features[every, k, np.searchsorted(cuts, rows[:, k], side="right")] = 1.0
        features *= np.float32(share_of_norm(self.input_width))
        return features.reshape(len(rows), -1)


def _set_checked(of: Any, name: str, check: Any, **limits: Any) -> None:
    """Replace a field of a frozen record by its checked value."""
    object.__setattr__(of, name, check(PUBLIC_NAMES.get(name, name), getattr(of, name), **limits))


@lru_cache(maxsize=4)
def directions(columns: int, count: int, seed: int) -> Array:
    """Random directions of a public seed, one a column."""
    return np.random.RandomState(seed).standard_normal((columns, count))


@lru_cache(maxsize=4)
def cells_and_signs(columns: int, count: int, seed: int) -> tuple[tuple[IntArray, Array], ...]:
    """A random cell and a random sign for each column, for both factors of a product."""
    source = np.random.RandomState(seed)
    return tuple(
        (
            source.randint(count, size=columns).astype(np.intp),
            np.asarray(2.0 * source.randint(2, size=columns) - 1.0, dtype=np.float64),
        )
        for _ in range(2)
    )


def _count_in_cells(rows: Array, cells: IntArray, count: int) -> Array:
    """The sum of the entries of each row in each cell, column by column."""
    total = np.zeros((count, len(rows)))
    for column, cell in zip(rows.T, cells.tolist(), strict=True):
        total[cell] += column
    return total.T
