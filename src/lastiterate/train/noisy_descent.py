r"""Noisy gradient descent, exactly as a `TrainingRun` describes it.

.. math:: x_k = \Pi_K\Big(x_{k-1} - \eta_k\big(\tfrac1b \sum_{i \in B_k}
          \nabla f_i(x_{k-1}) + N(0, \sigma_k^2 I)\big)\Big), \qquad x_0 = 0,

and then the noise on release.  Nothing else leaves: no loss, no iterate but the last.  Whoever
listens to its progress hears how many steps are done.

Two matrix products a step, in the precision of the rows; everything else, and sums over more than
2,048 rows, in float64.  What the rounding of those products does to the guarantee is *not*
charged.  Measured on MNIST in float32 (epsilon 1, 5,070 steps) it moves a step by 3e-6 of the
noise; were every step's rounding an adversary's choice, that would add 4e-4 to a mu of 0.27.  The
worst case that can be proved is larger; with float64 rows both are smaller by nine orders of
magnitude.  How long a step takes may depend on the data (clipped residuals are solved for, very
long rows are copied), so whoever can time a training from nearby learns something that is not
accounted for.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate._numerics.arrays import Array
from lastiterate._progress import track
from lastiterate.errors import InvalidParameter
from lastiterate.run.batch_rules.rules import Resampling
from lastiterate.run.training_run import TrainingRun
from lastiterate.train.batching import batch_sequence
from lastiterate.train.compiled import compiled
from lastiterate.train.data import Batch, Examples
from lastiterate.train.noise import Randomness
from lastiterate.train.objectives import Objective
from lastiterate.train.release_noise import on_grid, project
from lastiterate.train.rows import Rows, Selection
from lastiterate.train.run_claims import broken_promises
from lastiterate.train.shards import AnyExamples, GradientSum
from lastiterate.train.traceback_scrubbing import forget_locals

_SUMMED = 2_048  # rows, at most, in one product of float32
_UNROLLED = 4  # rows of the left factor that BLAS takes at a time
_DRAWN = 1 << 16  # normal numbers, about
_KEPT = 1 << 24  # bytes


@dataclass(frozen=True, eq=False)
class Published:
    """Parameters to go on from, and how many steps led to them."""

    parameters: Array
    steps: int


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
        return _descended(run, objective, examples, randomness, start)
    except BaseException as error:
        forget_locals(error)
        del examples, randomness
        raise


def _descended(
    run: TrainingRun,
    objective: Objective,
    examples: AnyExamples,
    randomness: Randomness | None,
    start: Published | None,
) -> Array:
    for broken in broken_promises(run, objective, examples.radius):
        raise broken
    randomness = Randomness() if randomness is None else randomness
    batches = _batches(run, objective, examples, randomness)
    parameters = np.zeros((objective.outputs, examples.parameters))
    if start is not None:
        parameters += start.parameters
        if run.batches.resampling is Resampling.NEVER:
            batches = islice(batches, start.steps % run.batches.batches_per_epoch, None)
    steps, noises = _each_step(run.step_size), _each_step(run.noise_std)
    normal = _normal_draws(run, randomness, parameters.shape)
    size, regulariser = run.batches.batch_size, run.loss.regulariser
    fast = compiled("step", size * objective.outputs)
    _keep_freed_memory()
    for done, gradient in zip(track("training", range(run.steps)), batches, strict=False):
        noise = noises(done)
        direction = gradient(parameters)
        if fast is not None and noise > 0.0:
            fast.step(parameters, direction, next(normal), size, regulariser, noise, steps(done))
        else:
            direction /= size
            if regulariser:
                direction += regulariser * parameters
            if noise > 0.0:
                direction += noise * next(normal)
            direction *= steps(done)
            parameters -= direction
        project(parameters, run.domain)
    return _published(run, parameters, randomness)


def _normal_draws(
    run: TrainingRun, randomness: Randomness, shape: tuple[int, ...]
) -> Iterator[Array]:
    """One for each step; several at a time where no batch is drawn in between."""
    at_once = 1
    if run.batches.resampling in (Resampling.NEVER, Resampling.ONCE):
        at_once = max(_DRAWN // math.prod(shape), 1)
    for done in range(0, run.steps, at_once):
        yield from randomness.normals(shape, min(at_once, run.steps - done))


def _batches(
    run: TrainingRun, objective: Objective, examples: AnyExamples, randomness: Randomness
) -> Iterator[GradientSum]:
    if not isinstance(examples, Examples):
        return examples.batches(run.batches, objective, randomness)
    own, batches = batch_sequence(run.batches, examples, randomness)
    check_targets(objective, own)
    return (partial(gradient_sum, objective, own, chosen) for chosen in batches)


def gradient_sum(
    objective: Objective, own: Examples, chosen: Selection, parameters: Array
) -> Array:
    """The sum over some of the examples, without the penalty."""
    batch, intercept = own.batch(chosen), own.intercept
    rows, width = batch.rows, batch.rows.shape[1]
    constants = intercept * parameters[:, width] if intercept else np.zeros(len(parameters))
    outputs = _outputs(parameters[:, :width], batch, constants)
    if own.offset is not None:
        outputs += own.offset[:, np.newaxis]
    residual = objective.residual(outputs, batch.targets)
    if batch.silent is not None:
        residual[:, batch.silent] = 0.0
    gradient = np.empty_like(parameters)
    if intercept:
        gradient[:, width] = intercept * np.add.reduce(residual, axis=1)
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
    # Rows beyond a multiple of four would be multiplied one by one; one row alone is no matter.
    padded = outputs if outputs == 1 else -(-outputs // _UNROLLED) * _UNROLLED
    left = np.empty((padded, len(rows)), rows.dtype)
    if padded > outputs:
        left[outputs:] = 0.0
    if factors is None:
        left[:outputs] = residual
    elif (fast := compiled("outputs", residual.size)) is not None:
        fast.weighed(residual, factors, left)
    else:
        np.multiply(residual, factors, out=left[:outputs], casting="same_kind")
    if rows.dtype == np.float64 or len(rows) <= _SUMMED:
        return (left @ rows)[:outputs]
    total = np.zeros((padded, rows.shape[1]))
    for start in range(0, len(rows), _SUMMED):
        part = slice(start, start + _SUMMED)
        total += left[:, part] @ rows[part]
    return total[:outputs]


def _keep_freed_memory() -> None:
    """Let the C library keep what a step frees for the next, as it does once so much was freed.

    Else, where nothing large was freed before, every step has its arrays given back to the system
    and fetched again, page by page, which takes longer than computing them.
    """
    np.empty(_KEPT, dtype=np.uint8)


def _published(run: TrainingRun, parameters: Array, randomness: Randomness) -> Array:
    """Parameters with release noise, projected, and rounded to a grid far below the noise."""
    if run.release_noise_std > 0.0:
        parameters += run.release_noise_std * randomness.release_normal(parameters.shape)
        project(parameters, run.domain)
    last = _each_step(run.step_size)(run.steps - 1) * _each_step(run.noise_std)(run.steps - 1)
    return on_grid(parameters, noise=max(run.release_noise_std, last))


def _each_step(schedule: float | tuple[float, ...]) -> Callable[[int], float]:
    return schedule.__getitem__ if isinstance(schedule, tuple) else lambda _: schedule


def check_targets(objective: Objective, examples: Examples) -> None:
    """That they are such as the constants of the loss hold for."""
    if not objective.admits(examples.targets):
        must_be = f"targets as {type(objective).__name__} codes them"
        raise InvalidParameter("examples.targets", must_be=must_be, found="others")
