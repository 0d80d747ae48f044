"""The data of a training: rows that are never changed, and the factor that bounds each.

A row longer than the bound counts as if scaled down to it.  The factor is applied to a row's
outputs and to its residual instead of to the row, so that no look at any other row is needed.
Around a centre the row counts as its factor times itself less its shift times the centre.

Others may write to the rows meanwhile (another thread, another process into a mapped file).  So
factors are those of memory that nobody else has: a copy of the rows, made once, or the batch as it
was read from the file.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lastiterate import _check
from lastiterate._numerics.rounding import Array
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.train.centring import Centre, sum_in_units
from lastiterate.train.noise import Order
from lastiterate.train.norms import (
    FAST_ROUNDING,
    PROVED_ROUNDING,
    SHORTEST,
    far_rows,
    norm_factors,
    with_huge_rows_scaled,
)
from lastiterate.train.rows import Rows, Selection, is_mapped, own_copy, read, without_duplicates

PROVED, FAST = "proved", "fast"  # products in float64, or in the precision of the rows


class Batch(NamedTuple):
    """Rows, and for each its target and the factor that brings its norm within the bound.

    Around a centre, `shifts` is how much of its `mean` is subtracted from each.  Unless `scaled`,
    all factors are 1.  Residuals are multiplied by `weights`, if there are any.
    """

    rows: Rows
    targets: NDArray[Any]
    factors: Array
    silent: NDArray[np.bool_] | None
    scaled: bool
    shifts: Array | None = None
    mean: Array | None = None
    weights: Array | None = None


@dataclass(frozen=True, eq=False)
class Examples:
    """Features and targets; `intercept` is the constant that every row is followed by, 0 for none.

    Made by `bounded`.  Products are float64 unless `arithmetic` is "fast".  Examples that are
    `silent` count, but have gradient 0 whatever the model.  An example's gradient is multiplied by
    its weight, in (0, 1], if there are `weights`.  To the outputs, one for each row of parameters,
    `offset` is added.
    """

    rows: Rows
    targets: NDArray[Any]
    feature_bound: float
    intercept: float
    silent: NDArray[np.bool_] | None = None
    centre: Centre | None = None
    offset: Array | None = None
    arithmetic: str = PROVED
    counted: bool = False  # whether rows were overwritten by those that count
    weights: Array | None = None

    def __len__(self) -> int:
        return int(self.targets.size)

    @property
    def features(self) -> int:
        return int(self.rows.shape[1])

    @property
    def parameters(self) -> int:
        """How many parameters one output has."""
        return self.features + (self.intercept > 0.0)

    @property
    def radius(self) -> float:
        """A bound on the norms of rows, the constant of the intercept included."""
        return math.hypot(self.feature_bound, self.intercept)

    @property
    def is_mapped(self) -> bool:
        """Whether the rows lie in a file, to be read one batch at a time."""
        return is_mapped(self.rows)

    @property
    def is_sparse(self) -> bool:
        """Whether entries of 0 are left out."""
        return not isinstance(self.rows, np.ndarray)

    @property
    def precision(self) -> str:
        """Floating-point type of products with the rows."""
        return "float64" if self.arithmetic == PROVED else str(self.rows.dtype)

    @property
    def rounding(self) -> float:
        """The relative rounding of what is computed with factors, by the arithmetic alone."""
        return PROVED_ROUNDING if self.arithmetic == PROVED else FAST_ROUNDING

    def around(self, centre: Centre) -> Examples:
        """The examples, with rows counted around this centre."""
        return replace(self, centre=centre)

    def in_units(self) -> NDArray[np.int64]:
        """The exact sum, in integer units and before noise, from which the centre is published."""
        return sum_in_units(self.rows, bound=self.feature_bound, silent=self.silent)

    def far_rows(self) -> tuple[int, int]:
        """How many are far longer than the bound, and far shorter."""
        return far_rows(self.rows, self.feature_bound)

    @cached_property
    def factors(self) -> Array:
        """The factor that brings the norm of each row within the bound."""
        if self.centre is None:
            return norm_factors(self.rows, self.feature_bound, rounding=self.rounding)
        return self._factors_and_reaches[0]

    @cached_property
    def least_factor(self) -> float:
        return float(self.factors.min(initial=1.0))

    @cached_property
    def reaches(self) -> Array:
        """The factor that brings each row within the bound around the centre."""
        return self._factors_and_reaches[1]

    def but(
        self,
        *,
        silent: NDArray[np.bool_] | None = None,
        offset: Array | None = None,
        centre: Centre | None = None,
    ) -> Examples:
        """A copy with these three fields replaced; the factors of rows are not computed again."""
        changed = replace(self, silent=silent, offset=offset, centre=centre)
        changed.__dict__["factors"] = self.factors
        return changed

    def own(self, order: Order | None = None) -> Examples:
        """The examples of `order` in memory that nobody else has, but for rows in a file."""
        chosen: Selection = slice(None) if order is None else order
        rows = self.rows if self.is_mapped else own_copy(self.rows, order)
        targets = self.targets[chosen].copy()
        silent = None if self.silent is None else self.silent[chosen].copy()
        weights = None if self.weights is None else self.weights[chosen].copy()
        return replace(self, rows=rows, targets=targets, silent=silent, weights=weights)

    def batch(self, chosen: Selection) -> Batch:
        """Some of them."""
        if self.is_mapped:
            return self.read(chosen)._made(slice(None))
        if not isinstance(chosen, slice) or self.least_factor < SHORTEST:
            return self._made(chosen)
        # Views of the same memory in every epoch, which take longer to make than to look up.
        where = chosen.start, chosen.stop
        if where not in self._views:
            self._views[where] = self._made(chosen)
        return self._views[where]

    @cached_property
    def _views(self) -> dict[tuple[int, int], Batch]:
        return {}

    @cached_property
    def _factors_and_reaches(self) -> tuple[Array, Array]:
        assert self.centre is not None
        return self.centre.factors_and_reaches(
            self.rows, bound=self.feature_bound, rounding=self.rounding
        )

    @cached_property
    def shifts(self) -> Array:
        """The share of the centre that is subtracted from each row."""
        assert self.centre is not None
        return self.reaches * (self.feature_bound / self.centre.bound)

    @cached_property
    def row_factors(self) -> Array:
        """The factor of each row before its share of the centre is subtracted."""
        return self.factors if self.centre is None else self.factors * self.shifts

    def read(self, chosen: Selection) -> Examples:
        """The chosen examples, with rows read from the file as they are now."""
        silent = None if self.silent is None else self.silent[chosen]
        weights = None if self.weights is None else self.weights[chosen]
        rows, targets = read(self.rows, chosen), self.targets[chosen]
        return replace(self, rows=rows, targets=targets, silent=silent, weights=weights)

    def _made(self, chosen: Selection) -> Batch:
        rows, targets, factors = self.rows[chosen], self.targets[chosen], self.factors[chosen]
        least = self.least_factor
        silent = None if self.silent is None else self.silent[chosen]
        shifts, mean = None, None
        if self.centre is not None:
            shifts, mean = self.shifts[chosen], self.centre.mean
        if least < SHORTEST:
            rows, factors = with_huge_rows_scaled(
                rows, factors, bound=self.feature_bound, rounding=self.rounding
            )
            factors = factors if shifts is None else factors * shifts
        elif shifts is not None:
            factors = self.row_factors[chosen]
        weights = None if self.weights is None else self.weights[chosen]
        scaled = least < 1.0 or mean is not None
        return Batch(rows, targets, factors, silent, scaled, shifts, mean, weights)


def checked_bounds(
    bound: float, intercept: float, *, names: tuple[str, str] = ("feature_bound", "intercept")
) -> tuple[float, float]:
    """A bound on rows and a constant feature with which nothing in training overflows float32."""
    return (
        _check.number(names[0], bound, at_least=1e-12, at_most=1e12),
        _check.number(names[1], intercept, at_least=0.0, at_most=1e12),
    )


def bounded(rows: Rows, targets: NDArray[Any], *, bound: float, intercept: float) -> Examples:
    """The examples, each row's norm to be brought within `bound`; all must be finite."""
    bound, intercept = checked_bounds(bound, intercept)
    if rows.dtype not in (np.float32, np.float64):
        raise InvalidType("X", must_be="of float32 or float64", found=str(rows.dtype))
    if targets.dtype.kind == "f" and not np.isfinite(targets).all():
        raise InvalidParameter("y", must_be="finite throughout", found="a target that is not")
    examples = Examples(without_duplicates(rows), targets, bound, intercept)
    assert examples.factors.size == len(examples)  # looked at, so that all are finite
    return examples
