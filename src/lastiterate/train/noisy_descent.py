r"""Noisy gradient descent, exactly as a `TrainingRun` describes it.

.. math:: x_k = \Pi_K\Big(x_{k-1} - \eta_k\big(\tfrac1b \sum_{i \in B_k}
          \nabla f_i(x_{k-1}) + N(0, \sigma_k^2 I)\big)\Big), \qquad x_0 = 0,

and then the noise on release.  Nothing else leaves: no loss, no iterate but the last.  Whoever
listens to its progress hears how many steps are done.

**On a grid.** Iterates are whole multiples of a unit, 2^-40 of the noise of the step, and so are
steps, rounded to the nearest, and noise, the floor of a Gaussian number (`noise.rounded_normals`).
`arithmetic` bounds how far all this is from the formula above.  That no whole number overflows
follows from public quantities, before the first step.  The noise of a step is drawn after its
gradient is computed, and none is drawn ahead: what rounds a gradient must not depend on noise that
is yet to be added.

How long a step takes may depend on the data and on the noise (clipped residuals are solved for,
noise is drawn by rejection), so whoever can time a training from nearby learns something that is
not accounted for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate._numerics.rounding import Array
from lastiterate._progress import track
from lastiterate.errors import InvalidParameter
from lastiterate.run.batch_rules.base import RULES, BatchRule, Resampling
from lastiterate.run.optimizer import require_plain_steps
from lastiterate.run.training_run import Ball, Domain, TrainingRun
from lastiterate.train.arithmetic import Problem, chosen_grid, problem_of
from lastiterate.train.compiled import compiled
from lastiterate.train.data import FAST, PROVED, AnyExamples, Batch, Examples, GradientSum
from lastiterate.train.discreet import clear_locals
from lastiterate.train.noise import Grid, Order, Randomness, project
from lastiterate.train.objectives import Objective, broken_promises
from lastiterate.train.product_probe import (
    check_products,
    check_sparse_products,
    check_thin_products,
    check_thread,
    padded,
    unrolled,
)
from lastiterate.train.rows import RowIndex, Rows, owners

_FREED_BYTES = 1 << 24
_MOST_FLOAT32_ROWS = 2_048  # in one product of float32
_ENTRIES_AT_ONCE = 1 << 18  # entries converted at a time
_ROWS_PER_OUTPUT, _MOST_ROWS_AT_ONCE = 2, 2_048  # so that sums of many outputs are added up seldom


@dataclass(frozen=True, eq=False)
class Published:
    """Parameters to go on from, how many steps led to them, and the runs that took them."""

    parameters: Array
    steps: int
    runs: tuple[TrainingRun, ...] = ()


def noisy_descent(
    run: TrainingRun,
    objective: Objective,
    examples: AnyExamples,
    randomness: Randomness | None = None,
    start: Published | None = None,
) -> Array:
    """The published parameters, one row for each output; the intercept's last.

    Parameters
    ----------
    run : TrainingRun
        What to do.  It must promise no more than `objective` and `examples` keep.
    objective : Objective
        What to descend, but for the penalty, which is the run's `loss.regulariser`.
    examples : Examples or Shards
        Rows with norms within a bound, here or elsewhere.
    randomness : Randomness, optional
        A secure one by default.
    start : Published, optional
        Where to begin instead of 0.  An order that is public goes on where it was left.
    """
    try:
        # Set to raise, underflow in one row would stop a training.
        with np.errstate(all="ignore"):
            return _descend(run, objective, examples, randomness, start)
    except BaseException as error:
        clear_locals(error)
        del examples, randomness
        raise


def _descend(
    run: TrainingRun,
    objective: Objective,
    examples: AnyExamples,
    randomness: Randomness | None,
    start: Published | None,
) -> Array:
    require_plain_steps(run, "this trainer")
    for broken in broken_promises(run, objective, examples.radius):
        raise broken
    if examples.precision == "float64":
        check_thread()
    randomness = Randomness() if randomness is None else randomness
    grid = _own_grid(run, problem_of(objective, examples), start)
    batches = _batch_gradients(run, objective, examples, randomness)
    shape = objective.outputs, examples.parameters
    # Both give the same numbers as numpy, so that many short steps are worth loading them for.
    in_all = run.steps * shape[0] * shape[1]
    compiled("rounded_normal", in_all)
    state = State(np.zeros(shape), run.domain, compiled("loops", in_all))
    if start is not None:
        state.parameters += start.parameters
        if run.batches.resampling is Resampling.NEVER:
            batches = islice(batches, start.steps % run.batches.batches_per_epoch, None)
    _keep_freed_memory()
    units, sizes, noises = (one.tolist() for one in (grid.units, grid.sizes, grid.noises))
    for done, gradient in zip(track("training", range(run.steps)), batches, strict=False):
        state.move_to(units[done])
        total = gradient(state.parameters)
        # Drawn only now, so that nothing that rounds the gradient knows it.
        noise = _draw_noise(randomness, noises[done], grid.bits, shape)
        state.step(run, total, noise, sizes[done])
    return _with_release_noise(run, state, grid, randomness)


def _own_grid(run: TrainingRun, problem: Problem, start: Published | None) -> Grid:
    """The part of the grid of all runs so far that is the last one's."""
    earlier = () if start is None else start.runs
    unknown = 0.0 if start is None or earlier else float(np.linalg.norm(start.parameters))
    grid, _ = chosen_grid((*earlier, run), problem, start=unknown)
    own = run.steps + (run.release_noise_std > 0.0)
    return Grid(grid.sizes[-own:], grid.noises[-own:], grid.bits)


def _draw_noise(
    randomness: Randomness, noise: float, bits: int, shape: tuple[int, ...]
) -> NDArray[np.int64]:
    return randomness.rounded_normals(shape, bits) if noise > 0.0 else np.zeros(shape, np.int64)


class State:
    """An iterate, as whole numbers of a unit and as the parameters that gradients are taken at."""

    def __init__(self, parameters: Array, domain: Domain, fast: ModuleType | None = None) -> None:
        self.parameters, self._domain, self._fast = parameters, domain, fast
        self._whole = np.zeros(parameters.shape, np.int64)
        self._unit = 0.0

    def move_to(self, unit: float) -> None:
        """Bring the iterate into the domain and to the grid of this unit."""
        bounded = isinstance(self._domain, Ball)
        if bounded:
            project(self.parameters, self._domain)
        if bounded or unit != self._unit:
            self._whole = np.rint(self.parameters / unit).astype(np.int64)
            self._unit = unit

    def step(
        self, run: TrainingRun, total: Array, noise: NDArray[np.int64], step_size: float
    ) -> None:
        """Subtract the step, rounded to the grid, and add the noise."""
        size, regulariser = run.batches.batch_size, run.loss.regulariser
        per_unit = step_size / self._unit
        if self._fast is not None:
            self._fast.step(
                self._whole,
                self.parameters,
                total,
                noise,
                size,
                regulariser,
                per_unit,
                self._unit,
            )
            return
        total /= size
        total += regulariser * self.parameters
        total *= per_unit
        self.add(noise - np.rint(total, out=total).astype(np.int64))

    def add(self, moved: NDArray[np.int64]) -> None:
        """Move by this many units."""
        self._whole += moved
        np.multiply(self._whole, self._unit, out=self.parameters)


def _batch_gradients(
    run: TrainingRun, objective: Objective, examples: AnyExamples, randomness: Randomness
) -> Iterator[GradientSum]:
    if not isinstance(examples, Examples):
        return examples.batches(run.batches, objective, randomness)
    own, batches = batch_sequence(run.batches, examples, randomness)
    check_targets(objective, own)
    own = counted_once(own) if own.arithmetic == PROVED else own
    return (partial(gradient_sum, objective, own, chosen) for chosen in batches)


def _keep_freed_memory() -> None:
    """Let the C library keep what a step frees for the next, as it does once so much was freed.

    Otherwise every step gives its arrays back to the system and fetches them again, page by page,
    which takes longer than computing them.
    """
    np.empty(_FREED_BYTES, dtype=np.uint8)


def _with_release_noise(
    run: TrainingRun, state: State, grid: Grid, randomness: Randomness
) -> Array:
    """Parameters with the noise on release, in the domain."""
    if run.release_noise_std > 0.0:
        state.move_to(float(grid.units[-1]))
        noise = float(grid.noises[-1])
        state.add(_draw_noise(randomness, noise, grid.bits, state.parameters.shape))
    project(state.parameters, run.domain)
    return state.parameters


# The batches: which examples each step sees.
#
# The examples are copied, so that nobody else can change them; shuffling once makes that copy a
# shuffled one, whose batches are contiguous.  A mapped file is read batch by batch, which rules
# whose batches are blocks of consecutive rows allow.


def batch_sequence(
    rule: BatchRule, examples: Examples, randomness: Randomness
) -> tuple[Examples, Iterator[RowIndex]]:
    """The examples in the order in which they are read, and the endless sequence of batches."""
    order, selections = order_and_selections(
        rule, len(examples), randomness, in_blocks=examples.is_mapped
    )
    return examples.own(order), selections


def order_and_selections(
    rule: BatchRule, examples: int, randomness: Randomness, *, in_blocks: bool
) -> tuple[Order | None, Iterator[RowIndex]]:
    """The order in which so many examples are laid out, and the batches as indices into it.

    The order is None if they stay as they are.
    """
    if in_blocks:
        return None, _block_selections(rule, randomness)
    _check_count(rule, examples)
    return rule.arrangement(randomness), rule.selections(randomness)


def _block_selections(rule: BatchRule, randomness: Randomness) -> Iterator[RowIndex]:
    if rule.in_blocks != rule.name:
        names = [kind.__name__ for kind in RULES.values() if kind.in_blocks == kind.name]
        must_be = f"one of {', '.join(names)} for a mapped file, or so many rows"
        raise InvalidParameter("batches", rule, must_be=must_be)
    # Rows after the last full batch of a file are always left out, so they must not count as
    # examples that might have been left out by chance.
    _check_count(rule, rule.batch_size * rule.batches_per_epoch)
    return rule.selections(randomness)


def _check_count(rule: BatchRule, expected: int) -> None:
    if rule.examples != expected:
        must_be = f"{expected}, the number of examples that the batches are drawn from"
        raise InvalidParameter("batches.examples", rule.examples, must_be=must_be)


# Sums of gradients over some of the examples, by two products with their rows.
#
# Where the arithmetic is to be proved, products are of float64 rows as they count, and everything
# else is float64, too: `step_errors` bounds what rounding does.  Where it is to be fast, products
# are in the precision of the rows, and sums over more than 2,048 rows in float64.  What float32
# products do to the guarantee is not charged: measured on MNIST (epsilon 1, 5,070 steps) they move
# a step by 3e-6 of the noise, but what can be proved of them is useless.


def gradient_sum(objective: Objective, own: Examples, chosen: RowIndex, parameters: Array) -> Array:
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
    thin = compiled("loops", stored.rows.size)
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
        outputs = thin.thin_outputs(*counted, parameters[:, :width], constants)
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
    gradient[:, :width] = _weighted_sum(residual, rows, batch.factors if batch.scaled else None)
    if batch.shifts is not None and batch.mean is not None:
        gradient[:, :width] -= np.outer(residual @ batch.shifts, batch.mean)
    return gradient


def _outputs(weights: Array, batch: Batch, constants: Array) -> Array:
    """Outputs of the scaled, centred rows in float64, after products in the rows' precision."""
    # Long and thin is what BLAS does faster than short and wide.
    products = batch.rows @ weights.T.astype(batch.rows.dtype)
    at_centre = None if batch.mean is None else weights @ batch.mean
    if (fast := compiled("loops", products.size)) is None:
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


def _weighted_sum(residual: Array, rows: Rows, factors: Array | None = None) -> NDArray[Any]:
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
    elif (fast := compiled("loops", residual.size)) is not None:
        fast.weighed(residual, factors, left)
    else:
        np.multiply(residual, factors, out=left[:outputs], casting="same_kind")
    if rows.dtype == np.float64 or len(rows) <= _MOST_FLOAT32_ROWS:
        return (left @ rows)[:outputs]
    total = np.zeros((whole, rows.shape[1]))
    for start in range(0, len(rows), _MOST_FLOAT32_ROWS):
        part = slice(start, start + _MOST_FLOAT32_ROWS)
        total += left[:, part] @ rows[part]
    return total[:outputs]


def check_targets(objective: Objective, examples: Examples) -> None:
    """Raise unless the constants of the loss hold for these targets."""
    if not objective.admits(examples.targets):
        must_be = f"targets as {type(objective).__name__} codes them"
        raise InvalidParameter("examples.targets", must_be=must_be, found="others")


# Rows as they count: float64 numbers, each row computed from itself and public numbers alone.
#
# A row x counts as :math:`\alpha x`, or :math:`\alpha x - \beta m` around a centre m, rounded entry
# by entry.  What is so computed *is* the row that the guarantee speaks of: its norm is within the
# bound, as factors are rounded down by more than this rounds, and no other row has any part in it.
# Sparse rows stay sparse: of them :math:`\alpha x` is computed, and the centre's part is subtracted
# from their outputs.


def stored_batch(own: Examples, chosen: RowIndex) -> Batch:
    """The chosen examples with rows as they are stored, and what they count as.

    `scaled` is whether dense rows have yet to be converted.  Sparse rows are converted already, but
    for the centre.
    """
    if own.is_mapped:
        own, chosen = own.read(chosen), slice(None)
    rows, targets = own.rows[chosen], own.targets[chosen]
    silent, weights = own.silent_and_weights(chosen)
    shifts, mean = None, None
    dense = isinstance(rows, np.ndarray)
    if own.centre is not None and not (own.counted and dense):
        shifts, mean = own.shifts[chosen], own.centre.mean
    if own.counted:
        return Batch(rows, targets, np.ones(targets.size), silent, False, shifts, mean, weights)
    factors = own.row_factors[chosen]
    if not dense:
        rows, factors = _scaled_sparse(rows, factors), np.ones(targets.size)
    as_they_are = shifts is None and rows.dtype == np.float64 and bool((factors == 1.0).all())
    scaled = dense and not as_they_are
    return Batch(rows, targets, factors, silent, scaled, shifts, mean, weights)


def counted_batches(own: Examples, chosen: RowIndex) -> Iterator[Batch]:
    """The chosen examples as they count, at least one batch, of as many as are quick to convert."""
    yield from converted(stored_batch(own, chosen))


def dense_rows(own: Examples) -> Array:
    """All rows as they count, together: how many a batch has depends on whether any is long."""
    assert own.centre is None or isinstance(own.rows, np.ndarray)  # not subtracted from sparse rows
    found, done = np.empty(own.rows.shape), 0
    for batch in counted_batches(own, slice(None)):
        rows = batch.rows if isinstance(batch.rows, np.ndarray) else batch.rows.toarray()
        found[done : done + len(rows)] = rows
        done += len(rows)
    return found


def converted(stored: Batch, outputs: int = 1) -> Iterator[Batch]:
    """The parts of a stored batch, as it counts; they are larger if there are many outputs."""
    if not stored.scaled:
        yield stored
        return
    rows, targets, factors, silent, _, shifts, mean, weights = stored
    stride = max(
        1,
        _ENTRIES_AT_ONCE // max(rows.shape[1], 1),
        min(outputs * _ROWS_PER_OUTPUT, _MOST_ROWS_AT_ONCE),
    )
    room = np.empty((min(stride, targets.size), rows.shape[1]))
    for start in range(0, max(targets.size, 1), stride):
        part = slice(start, start + stride)
        some = rows[part]
        found = room[: len(some)]
        _convert(some, factors[part], None if shifts is None else shifts[part], mean, found)
        hidden = None if silent is None else silent[part]
        own = None if weights is None else weights[part]
        yield Batch(found, targets[part], np.ones(len(some)), hidden, False, weights=own)


def counted_once(own: Examples) -> Examples:
    """Examples in one's own memory, whose rows of float64 are overwritten by those that count."""
    if own.counted or own.is_mapped or own.rows.dtype != np.float64:
        return own
    if isinstance(own.rows, np.ndarray):
        stride = max(1, _ENTRIES_AT_ONCE // max(own.features, 1))
        mean = None if own.centre is None else own.centre.mean
        for start in range(0, len(own), stride):
            part = slice(start, start + stride)
            shifts = None if own.centre is None else own.shifts[part]
            _convert(own.rows[part], own.row_factors[part], shifts, mean, own.rows[part])
        return replace(own, counted=True)
    scaled = replace(own, rows=_scaled_sparse(own.rows, own.row_factors), counted=True)
    if own.centre is not None:
        scaled.__dict__["shifts"] = own.shifts
    return scaled


def _convert(
    rows: NDArray[Any], factors: Array, shifts: Array | None, mean: Array | None, out: Array
) -> None:
    if (fast := compiled("loops", rows.size)) is not None:
        if shifts is None or mean is None:
            fast.scaled_rows(rows, factors, out)
        else:
            fast.centred_rows(rows, factors, shifts, mean, out)
        return
    np.multiply(rows, factors[:, np.newaxis], out=out)
    if shifts is not None and mean is not None:
        out -= np.outer(shifts, mean)


def _scaled_sparse(rows: Rows, factors: Array) -> Rows:
    data = rows.data * factors[owners(rows)]
    return type(rows)((data, rows.indices, rows.indptr), shape=rows.shape)
