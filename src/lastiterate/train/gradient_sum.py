"""Sums of gradients over some of the examples, by two products with their rows.

Where the arithmetic is to be proved, products are of float64 rows as they count, and everything
else is float64, too: `step_error` bounds what rounding does.  Where it is to be fast, products are
in the precision of the rows, and sums over more than 2,048 rows in float64.  What float32 products
do to the guarantee is not charged: measured on MNIST (epsilon 1, 5,070 steps) they move a step by
3e-6 of the noise, but what can be proved of them is useless.
"""

from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate._numerics.rounding import Array
from lastiterate.errors import InvalidParameter
from lastiterate.train.compiled import compiled
from lastiterate.train.counted_rows import converted, stored_batch
from lastiterate.train.data import FAST, Batch, Examples
from lastiterate.train.objective import Objective
from lastiterate.train.product_probe import (
    check_products,
    check_sparse_products,
    check_thin_products,
    check_thread,
    padded,
    unrolled,
)
from lastiterate.train.rows import Rows, Selection

_SUMMED = 2_048  # rows, at most, in one product of float32


def gradient_sum(
    objective: Objective, own: Examples, chosen: Selection, parameters: Array
) -> Array:
    """The sum over some of the examples, without the penalty."""
    if own.arithmetic == FAST:
        return _sum_over(objective, own, own.batch(chosen), parameters)
    check_thread()
    stored = stored_batch(own, chosen)
    if (thin := _thin_products(stored, objective.outputs)) is not None:
        assert parameters.dtype == np.float64
        more = own.intercept > 0.0
        check_thin_products(thin, stored.rows.dtype, objective.outputs, more=more)
        return _sum_over(objective, own, stored, parameters, thin)
    total: Array | None = None
    for batch in converted(stored, objective.outputs):
        assert batch.rows.dtype == parameters.dtype == np.float64
        _check_products(batch, objective.outputs)
        part = _sum_over(objective, own, batch, parameters)
        total = part if total is None else np.add(total, part, out=total)
    assert total is not None
    return total


def _check_products(batch: Batch, outputs: int) -> None:
    """Refuse to go on where the products of `_sum_over` are not plain sums."""
    rows, (count, width) = batch.rows, batch.rows.shape
    if isinstance(rows, np.ndarray):
        check_products(padded(count), width, outputs)
        return
    kind: Any = type(rows)
    check_sparse_products(kind, outputs)
    if batch.mean is not None:
        check_products(outputs, width, 1)
        check_products(outputs, padded(count), 1)


def _thin_products(stored: Batch, outputs: int) -> ModuleType | None:
    """Compiled products that convert rows as they go, if any are to be, for so many outputs."""
    if not stored.scaled:
        return None
    thin = compiled("thin_products", stored.rows.size)
    return thin if thin is not None and outputs <= thin.MOST_OUTPUTS else None


def _sum_over(
    objective: Objective,
    own: Examples,
    batch: Batch,
    parameters: Array,
    thin: ModuleType | None = None,
) -> Array:
    """The sum over a batch; `thin` products take rows as they are stored."""
    intercept = own.intercept
    rows, width = batch.rows, batch.rows.shape[1]
    constants = intercept * parameters[:, width] if intercept else np.zeros(len(parameters))
    if thin is None:
        outputs = _outputs(parameters[:, :width], batch, constants)
    else:
        counted = rows, batch.factors, batch.shifts, batch.mean
        outputs = thin.outputs(*counted, parameters[:, :width], constants)
    if own.offset is not None:
        outputs += own.offset[:, np.newaxis]
    residual = objective.residual(outputs, batch.targets)
    if batch.silent is not None:
        residual[:, batch.silent] = 0.0
    if batch.weights is not None:
        residual *= batch.weights
    gradient = np.empty_like(parameters)
    if intercept:
        gradient[:, width] = intercept * np.add.reduce(residual, axis=1)
    if thin is not None:
        thin.sums(*counted, residual, gradient)
        return gradient
    gradient[:, :width] = _times(residual, rows, batch.factors if batch.scaled else None)
    if batch.shifts is not None and batch.mean is not None:
        gradient[:, :width] -= np.outer(residual @ batch.shifts, batch.mean)
    return gradient


def _outputs(weights: Array, batch: Batch, constants: Array) -> Array:
    """Outputs of the scaled, centred rows in float64, after products in the rows' precision."""
    # Long and thin is what BLAS does faster than short and wide.
    products = batch.rows @ weights.T.astype(batch.rows.dtype)
    at_centre = None if batch.mean is None else weights @ batch.mean
    if (fast := compiled("outputs", products.size)) is None:
        outputs = np.ascontiguousarray(products.T, dtype=np.float64)
        if batch.scaled:
            outputs *= batch.factors
        if at_centre is not None and batch.shifts is not None:
            outputs -= np.outer(at_centre, batch.shifts)
        outputs += constants[:, np.newaxis]
        return outputs
    outputs = np.empty((constants.size, len(products)))
    if at_centre is None:
        fast.outputs(products, batch.factors, constants, outputs)
    else:
        fast.centred(products, batch.factors, at_centre, batch.shifts, constants, outputs)
    return outputs


def _times(residual: Array, rows: Rows, factors: Array | None = None) -> NDArray[Any]:
    """(factors * residual) @ rows, with sums of many rows in float64.

    In float32 one example would change how the sums over all others round.
    """
    if not isinstance(rows, np.ndarray):
        left = residual if factors is None else residual * factors
        return np.asarray((rows.T @ left.T).T)
    outputs = residual.shape[0]
    whole = unrolled(outputs)
    left = np.empty((whole, len(rows)), rows.dtype)
    if whole > outputs:
        left[outputs:] = 0.0
    if factors is None:
        left[:outputs] = residual
    elif (fast := compiled("outputs", residual.size)) is not None:
        fast.weighed(residual, factors, left)
    else:
        np.multiply(residual, factors, out=left[:outputs], casting="same_kind")
    if rows.dtype == np.float64 or len(rows) <= _SUMMED:
        return (left @ rows)[:outputs]
    total = np.zeros((whole, rows.shape[1]))
    for start in range(0, len(rows), _SUMMED):
        part = slice(start, start + _SUMMED)
        total += left[:, part] @ rows[part]
    return total[:outputs]


def check_targets(objective: Objective, examples: Examples) -> None:
    """Raise unless the constants of the loss hold for these targets."""
    if not objective.admits(examples.targets):
        must_be = f"targets as {type(objective).__name__} codes them"
        raise InvalidParameter("examples.targets", must_be=must_be, found="others")
