r"""Fixed features of rows of numbers: random Fourier features, quadratic sketches, public bins.

Seeds are public, and independent of the examples.  Random numbers are those of NumPy's
`RandomState`, whose streams do not change from version to version, so that a model from a file
predicts as it did.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from lastiterate import _check
from lastiterate._numerics.rounding import Array, IntArray
from lastiterate.errors import InvalidParameter
from lastiterate.features.feature_map import FeatureMap, Floats, share_of_norm, without_huge_entries
from lastiterate.tables.column_rules import BINS, cut_points

_NUMBERS = 1 << 19  # features of all rows of a block
_MOST_COLUMNS, _MOST_COMPONENTS, _LARGEST_SEED = 1 << 24, 1 << 20, 2**32 - 1
LARGEST_ENTRY = 1e6  # phases of longer rows would be rounding alone
LARGEST_SCALED_ENTRY = 1e100
_LARGEST_END = 1e300


@dataclass(frozen=True)
class FourierMap(FeatureMap):
    r"""The map of `RandomFourierFeatures`: cosines and sines of m/2 random projections.

    A row is :math:`\sqrt{2/m} (\cos \theta_k, \sin \theta_k)_k`, whatever the phases
    :math:`\theta_k` are, so its norm is 1.  An odd number of components is one more without the
    last sine.
    """

    columns: int
    components: int
    gamma: float
    seed: int

    kind: ClassVar[str] = "fourier"

    def __post_init__(self) -> None:
        _set(self, "columns", _check.count, at_least=1, at_most=_MOST_COLUMNS)
        _set(self, "components", _check.count, at_least=1, at_most=_MOST_COMPONENTS)
        _set(self, "gamma", _check.number, at_least=1e-12, at_most=1e12)
        _set(self, "seed", _check.count, at_least=0, at_most=_LARGEST_SEED)

    @property
    def input_width(self) -> int:
        return self.columns

    @property
    def width(self) -> int:
        return self.components

    @property
    def block(self) -> int:
        return max(1, _NUMBERS // max(self.components, self.columns))

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
class QuadraticMap(FeatureMap):
    r"""The map of `QuadraticSketch`: a sketch of all products of two entries of a row.

    A row x, scaled down to norm B if it is longer, becomes :math:`a = (x/B, 1)/\sqrt2`, whose norm
    is at most 1.  The m sums of its products, with random signs and in random cells, have about the
    inner products :math:`\langle a, a' \rangle^2`.  A row of them that is longer than 1 is scaled
    down to 1.
    """

    columns: int
    components: int
    seed: int
    input_bound: float

    kind: ClassVar[str] = "quadratic"

    def __post_init__(self) -> None:
        _set(self, "columns", _check.count, at_least=1, at_most=_MOST_COLUMNS)
        _set(self, "components", _check.count, at_least=1, at_most=_MOST_COMPONENTS)
        _set(self, "seed", _check.count, at_least=0, at_most=_LARGEST_SEED)
        _set(self, "input_bound", _check.number, at_least=1e-12, at_most=1e12)

    @property
    def input_width(self) -> int:
        return self.columns

    @property
    def width(self) -> int:
        return self.components

    @property
    def block(self) -> int:
        return max(1, _NUMBERS // max(self.components, self.columns))

    def map_block(self, rows: Array) -> Floats:
        """The sketches of some rows."""
        from scipy.fft import irfft, rfft  # which helps of commands need not wait for

        scaled = without_huge_entries(rows, LARGEST_SCALED_ENTRY) / self.input_bound
        norms = np.sqrt(np.einsum("rk,rk->r", scaled, scaled))
        scaled /= np.maximum(norms, 1.0)[:, np.newaxis]
        longer = np.concatenate([scaled, np.ones((len(rows), 1))], axis=1)
        spectrum: Any = 0.5  # the square of 1/sqrt(2)
        for cells, signs in cells_and_signs(self.columns + 1, self.components, self.seed):
            counted = _counted(longer * signs, cells, self.components)
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
        _set(self, "bins", _check.count, at_least=2, at_most=1_000)
        assert self.cuts

    @property
    def input_width(self) -> int:
        return len(self.low)

    @property
    def width(self) -> int:
        return self.bins * len(self.low)

    @property
    def block(self) -> int:
        return max(1, _NUMBERS // self.width)

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


def _set(of: Any, name: str, check: Any, **limits: Any) -> None:
    """Replace a field of a frozen record by its checked value."""
    object.__setattr__(of, name, check(_NAMES.get(name, name), getattr(of, name), **limits))


_NAMES = {"components": "n_components"}  # as users know it


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


def _counted(rows: Array, cells: IntArray, count: int) -> Array:
    """The sum of the entries of each row in each cell, column by column."""
    total = np.zeros((count, len(rows)))
    for column, cell in zip(rows.T, cells.tolist(), strict=True):
        total[cell] += column
    return total.T
