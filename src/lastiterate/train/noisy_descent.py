r"""Noisy gradient descent, exactly as a `TrainingRun` describes it.

.. math:: x_k = \Pi_K\Big(x_{k-1} - \eta_k\big(\tfrac1b \sum_{i \in B_k}
          \nabla f_i(x_{k-1}) + N(0, \sigma_k^2 I)\big)\Big), \qquad x_0 = 0,

and then the noise on release.  Nothing else leaves: no loss, no iterate but the last.  Whoever
listens to its progress hears how many steps are done.

**On a grid.** Iterates are whole multiples of a unit, 2^-40 of the noise of the step, and so are
steps, rounded to the nearest, and noise, the floor of a Gaussian number (`rounded_normal`).
`arithmetic` bounds how far all this is from the formula above.  That no whole number overflows
follows from public quantities, before the first step.  The noise of a step is drawn after its
gradient is computed, and none is drawn ahead: what rounds a gradient must not depend on noise that
is yet to be added.

How long a step takes may depend on the data and on the noise (clipped residuals are solved for,
noise is drawn by rejection), so whoever can time a training from nearby learns something that is
not accounted for.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from lastiterate._numerics.rounding import Array
from lastiterate._progress import track
from lastiterate.run.batch_rules.base import Resampling
from lastiterate.run.optimizer import require_plain_steps
from lastiterate.run.training_run import Ball, Domain, TrainingRun
from lastiterate.train.arithmetic import chosen_grid, problem_of
from lastiterate.train.batching import batch_sequence
from lastiterate.train.compiled import compiled
from lastiterate.train.counted_rows import counted_once
from lastiterate.train.data import PROVED, Examples
from lastiterate.train.gradient_sum import check_targets, gradient_sum
from lastiterate.train.grid import Grid
from lastiterate.train.noise import Randomness
from lastiterate.train.objective import Objective
from lastiterate.train.product_probe import check_thread
from lastiterate.train.release_noise import project
from lastiterate.train.run_claims import broken_promises
from lastiterate.train.shards import AnyExamples, GradientSum
from lastiterate.train.step_error import Problem
from lastiterate.train.traceback_scrubbing import clear_locals

_KEPT = 1 << 24  # bytes


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
            return _descended(run, objective, examples, randomness, start)
    except BaseException as error:
        clear_locals(error)
        del examples, randomness
        raise


def _descended(
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
    grid = _grid(run, problem_of(objective, examples), start)
    batches = _batches(run, objective, examples, randomness)
    shape = objective.outputs, examples.parameters
    # Both give the same numbers as numpy, so that many short steps are worth loading them for.
    in_all = run.steps * shape[0] * shape[1]
    compiled("rounded_normal", in_all)
    state = State(np.zeros(shape), run.domain, compiled("step", in_all))
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
        noise = _drawn(randomness, noises[done], grid.bits, shape)
        state.step(run, total, noise, sizes[done])
    return _published(run, state, grid, randomness)


def _grid(run: TrainingRun, problem: Problem, start: Published | None) -> Grid:
    """The part of the grid of all runs so far that is the last one's."""
    earlier = () if start is None else start.runs
    unknown = 0.0 if start is None or earlier else float(np.linalg.norm(start.parameters))
    grid, _ = chosen_grid((*earlier, run), problem, start=unknown)
    own = run.steps + (run.release_noise_std > 0.0)
    return Grid(grid.sizes[-own:], grid.noises[-own:], grid.bits)


def _drawn(
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
        """Move by so many units."""
        self._whole += moved
        np.multiply(self._whole, self._unit, out=self.parameters)


def _batches(
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

    Else, where nothing large was freed before, every step has its arrays given back to the system
    and fetched again, page by page, which takes longer than computing them.
    """
    np.empty(_KEPT, dtype=np.uint8)


def _published(run: TrainingRun, state: State, grid: Grid, randomness: Randomness) -> Array:
    """Parameters with the noise on release, in the domain."""
    if run.release_noise_std > 0.0:
        state.move_to(float(grid.units[-1]))
        noise = float(grid.noises[-1])
        state.add(_drawn(randomness, noise, grid.bits, state.parameters.shape))
    project(state.parameters, run.domain)
    return state.parameters
