"""The data of a training: rows that are never changed, and the factor that bounds each.

A row longer than the bound counts as if scaled down to it.  The factor is applied to a row's
outputs and to its residual instead of to the row, so that no look at any other row is needed.
Around a centre the row counts as its factor times itself less its shift times the centre.

Others may write to the rows meanwhile (another thread, another process into a mapped file).  So
factors are those of memory that nobody else has: a copy of the rows, made once, or the batch as it
was read from the file.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from lastiterate import _check
from lastiterate._numerics.rounding import Array
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.run.batch_rules.base import BatchRule
from lastiterate.train.centring import Centre, sum_in_units
from lastiterate.train.noise import Order, Randomness
from lastiterate.train.rows import (
    FAST_ROUNDING,
    PROVED_ROUNDING,
    SHORTEST,
    RowIndex,
    Rows,
    chunks,
    far_rows,
    is_mapped,
    norm_factors,
    own_copy,
    read,
    with_huge_rows_scaled,
    without_duplicates,
)

if TYPE_CHECKING:
    from lastiterate.train.objectives import Objective

PROVED, FAST = "proved", "fast"  # products in float64, or in the precision of the rows
LEAST_KEY_BYTES = 16
_MOST_KEY_BYTES = 64  # as BLAKE2b has it
_DIGEST_BYTES = 16
_DIGEST_PATTERN = re.compile(rf"[0-9a-f]{{{2 * _DIGEST_BYTES}}}")
GradientSum = Callable[[Array], Array]  # of one batch, at given parameters, without the penalty

# How intervals are recorded in a model and in its certificate.
MEASURED = ("interval_estimate_", "interval_covariance_")


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
        """The number of parameters of one output."""
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
        """Whether the rows are a sparse matrix, which stores no zeros."""
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
        """The numbers of rows that are far longer than the bound, and far shorter."""
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
        silent: NDArray[np.bool_] | None,
        offset: Array | None,
        centre: Centre | None,
    ) -> Examples:
        """A copy with these three fields set; the factors of rows are not computed again."""
        changed = replace(self, silent=silent, offset=offset, centre=centre)
        changed.__dict__["factors"] = self.factors
        return changed

    def own(self, order: Order | None = None) -> Examples:
        """The examples of `order` in memory that nobody else has, but for rows in a file."""
        chosen: RowIndex = slice(None) if order is None else order
        rows = self.rows if self.is_mapped else own_copy(self.rows, order)
        targets = self.targets[chosen].copy()
        silent = None if self.silent is None else self.silent[chosen].copy()
        weights = None if self.weights is None else self.weights[chosen].copy()
        return replace(self, rows=rows, targets=targets, silent=silent, weights=weights)

    def batch(self, chosen: RowIndex) -> Batch:
        """The chosen examples, ready for products."""
        if self.is_mapped:
            return self.read(chosen)._make_batch(slice(None))
        if not isinstance(chosen, slice) or self.least_factor < SHORTEST:
            return self._make_batch(chosen)
        # Views of the same memory in every epoch, which take longer to make than to look up.
        where = chosen.start, chosen.stop
        if where not in self._views:
            self._views[where] = self._make_batch(chosen)
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

    def read(self, chosen: RowIndex) -> Examples:
        """The chosen examples, with rows read from the file as they are now."""
        silent, weights = self.silent_and_weights(chosen)
        rows, targets = read(self.rows, chosen), self.targets[chosen]
        return replace(self, rows=rows, targets=targets, silent=silent, weights=weights)

    def silent_and_weights(self, chosen: RowIndex) -> tuple[NDArray[np.bool_] | None, Array | None]:
        """Which of the chosen examples are silent, and their weights; None for none."""
        silent = None if self.silent is None else self.silent[chosen]
        return silent, None if self.weights is None else self.weights[chosen]

    def _make_batch(self, chosen: RowIndex) -> Batch:
        rows, targets, factors = self.rows[chosen], self.targets[chosen], self.factors[chosen]
        least = self.least_factor
        silent, weights = self.silent_and_weights(chosen)
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


# Outputs of a published linear model on rows that are brought within its bounds as in training.


@np.errstate(all="ignore")  # what raises must not depend on a row's size
def linear_outputs(
    rows: Rows, coef: Array, intercept: Array, *, bound: float, centre: Centre | None
) -> Array:
    """One column for each output: `rows @ coef.T + intercept` for rows within the bounds."""
    if isinstance(rows, np.ndarray):
        # A product is rounded as rows lie in memory, which one odd cell can decide for all of them.
        rows = np.ascontiguousarray(rows)
    reaches = None
    if centre is None:
        factors = norm_factors(rows, bound)
    else:
        factors, reaches = centre.factors_and_reaches(rows, bound=bound)
    outputs = np.asarray(rows @ coef.T, dtype=np.float64)
    # By themselves, so that the products of all other rows are those of the same memory.
    huge = np.flatnonzero(factors < SHORTEST)
    if huge.size:
        exact = rows[huge].astype(np.float64)
        scaled, factors[huge] = with_huge_rows_scaled(exact, factors[huge], bound=bound)
        # Each by itself: how many there are must not change how a product is rounded.
        outputs[huge] = np.vstack([scaled[one : one + 1] @ coef.T for one in range(huge.size)])
    outputs *= factors[:, np.newaxis]
    if centre is None or reaches is None:
        return np.asarray(outputs + intercept)
    at_centre = centre.outputs(coef)
    return np.asarray((outputs - at_centre) * reaches[:, np.newaxis] + (intercept + at_centre))


# Digests by which data are recognised, and which tell nothing to those without the key.
#
# A plain digest of rows would let anybody who guesses them find out that the guess is right.  Under
# a secret key it tells whoever has the key whether rows are the same as before, and nobody else
# anything.  The key is the user's: no model and no certificate holds it.


def secret_key(key: Any) -> bytes:
    """The key, or what the file holds that a path names."""
    must_be = (
        f"a secret of {LEAST_KEY_BYTES} to {_MOST_KEY_BYTES} bytes, or the path of a file that "
        "holds one (as `openssl rand -out key 32` writes it)"
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
    if not LEAST_KEY_BYTES <= len(found) <= _MOST_KEY_BYTES:
        raise InvalidParameter(name, must_be=must_be, found=f"{len(found)} bytes")
    return found


def data_digest(examples: Examples, key: bytes) -> str:
    """Keyed digest of rows, targets, silent examples and weights, with types and order."""
    total = hashlib.blake2b(key=key, digest_size=_DIGEST_BYTES, person=b"lastiterate data")
    rows = examples.rows
    total.update(repr((rows.shape, str(rows.dtype), isinstance(rows, np.ndarray))).encode())
    for _, part in chunks(rows):
        held = [part] if isinstance(part, np.ndarray) else [part.indptr, part.indices, part.data]
        for array in held:
            total.update(_bytes_of(array))
    silent = np.zeros(0, dtype=bool) if examples.silent is None else examples.silent
    weights = () if examples.weights is None else (examples.weights,)
    for array in (examples.targets, silent, *weights):
        total.update(repr((array.shape, str(array.dtype))).encode() + _bytes_of(array))
    return total.hexdigest()


def row_digests(data: str, rows: Iterable[int], key: bytes) -> list[str]:
    """Keyed digests of rows, from the data's digest and row numbers; row contents are not used."""
    begun = hashlib.blake2b(
        data.encode(), key=key, digest_size=_DIGEST_BYTES, person=b"lastiterate row"
    )
    found = []
    for row in rows:
        one = begun.copy()
        one.update(int(row).to_bytes(8, "big"))
        found.append(one.hexdigest())
    return found


def is_digest(text: object) -> bool:
    """Whether this is text that looks like a digest of data or of a row."""
    return isinstance(text, str) and _DIGEST_PATTERN.fullmatch(text) is not None


def _bytes_of(array: NDArray[Any]) -> bytes:
    return np.ascontiguousarray(array).tobytes()


# Examples that lie elsewhere: all that a training may ask of them, and all that leaves them.
#
# Batches, noise, steps and projections are drawn and taken where the loop runs, once a step.
# Wherever the rows are, only sums over examples are computed there, and the same question has the
# same answer: one that is asked again, by whatever failure, changes nothing.


class Shards(Protocol):
    """Examples with the same public facts as `Examples`, of which only sums are to be had."""

    def __len__(self) -> int: ...

    @property
    def features(self) -> int: ...

    @property
    def feature_bound(self) -> float: ...

    @property
    def intercept(self) -> float: ...

    @property
    def offset(self) -> Array | None: ...

    @property
    def centre(self) -> Centre | None: ...

    @property
    def parameters(self) -> int: ...

    @property
    def radius(self) -> float: ...

    @property
    def is_mapped(self) -> bool: ...

    @property
    def is_sparse(self) -> bool: ...

    @property
    def precision(self) -> str: ...

    def around(self, centre: Centre) -> Shards:
        """The examples, with rows counted around this centre."""
        ...

    def in_units(self) -> NDArray[np.int64]:
        """The result of `centring.sum_in_units` for the rows."""
        ...

    def far_rows(self) -> tuple[int, int]:
        """The result of `rows.far_rows` for the rows."""
        ...

    def batches(
        self, rule: BatchRule, objective: Objective, chance: Randomness
    ) -> Iterator[GradientSum]:
        """The endless sequence of batches that the rule makes of them, drawn as it is asked for."""
        ...


AnyExamples = Examples | Shards


def interval_digest(estimate: Array, covariance: Array) -> str:
    """The digest of an estimate and the covariance of its error, as certificates state it."""
    both = np.append(estimate.ravel(), covariance.ravel())
    return hashlib.sha256(np.ascontiguousarray(both, dtype="<f8").tobytes()).hexdigest()
