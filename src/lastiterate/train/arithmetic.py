r"""The cost of rounding: the distance between the computed run and the exact one.

**Bound.** The machine's iterate is :math:`M_k = F_k(M_{<k}) + \lfloor Z_k\rfloor`, F on the grid
of the step's noise, so that it is the floor of a process :math:`Y_k = F_k + Z_k` with exact
Gaussian noise.  The exact run is :math:`X_k = \phi_k(X_{k-1}) + Z_k`.  If F is within e of phi
(`step_error`) and phi is c-Lipschitz, then :math:`|F_k - \phi_k(x)| \le c_k|x - y| + E_k` with
:math:`E_k = e_k + c_k g_{k-1}\sqrt D`.  Shifts of E in every step have a least cost `mu`
(`shifts`), and the two laws are mu-GDP from each other, in both directions, but for events of
probability `failure`: an iterate beyond `reach`, a batch beyond the largest that is charged for, a
noise beyond 11 standard deviations, and an AES keystream that is told from random words.
`profile.rounded` makes of that what the machine guarantees: the exact run's curve, between two of
these.

**Holds when.** Roundings do not depend on noise that is not yet used: it is drawn after the
gradient.  They may depend on anything else, as on the order of sums: none has to be reproducible.
`mu` depends on public quantities alone, so that it holds whatever was published before.

**Several models.** Runs that go on from each other publish a model each.  The errors of a run are
made up for before its publication, as one sees where the next run begins: mu^2 is the sum over the
runs.  That is more than the cost for the last model alone, where errors may be made up for later.

**Other releases** are one step each: `rint` of the statistic on the grid of its noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, at_least, up
from lastiterate.accounting import PrivacyReport
from lastiterate.errors import InvalidParameter
from lastiterate.other_releases import Release
from lastiterate.profile.rounded import Rounding
from lastiterate.run.batch_rules.base import Resampling
from lastiterate.run.optimizer import require_plain_steps
from lastiterate.run.training_run import TrainingRun
from lastiterate.shifts.optimal_shifts import optimal_shifts
from lastiterate.train.grid import BITS, LEAST_BITS, WHOLE_BITS, Grid, grid_of, publications
from lastiterate.train.objective import Objective
from lastiterate.train.reach import exceeded_with, reach
from lastiterate.train.release_noise import released_error, released_size
from lastiterate.train.rounded_normal import TOTAL_VARIATION
from lastiterate.train.shards import AnyExamples
from lastiterate.train.step_error import (
    UNLIKELY_SIZE,
    Problem,
    contractions,
    longest_steps,
    release_error,
    step_errors,
)

_WORDS = 1.2, 128.0  # for a number, and for each time some are drawn; generously
_LARGEST_NOISE = 12.0  # standard deviations


@dataclass(frozen=True)
class Arithmetic:
    """The arithmetic of a training, and its distance from exact arithmetic."""

    bits: int
    reach: float
    mu: float
    failure: float

    @property
    def rounding(self) -> Rounding:
        """The distance from exact arithmetic."""
        return Rounding(self.mu, self.failure)


def arithmetic(
    runs: Sequence[TrainingRun], problem: Problem, other_releases: Sequence[Release] = ()
) -> Arithmetic:
    """The arithmetic of runs of which each goes on from the last, and of other releases.

    Parameters
    ----------
    runs : sequence of TrainingRun
        A training, and those that follow it.  The grid is fine enough for all.
    problem : Problem
        What else is public.
    other_releases : sequence of Release
        Statistics of the same examples.

    Raises
    ------
    InvalidParameter
        If no grid is fine enough for the noise and wide enough for the iterates, or a run has
        momentum or publishes an average: rounding errors of a buffer are not along the noise.
    """
    for run in runs:
        require_plain_steps(run, "proved arithmetic")
    grid, limit = chosen_grid(runs, problem)
    examples, features = runs[0].batches.examples, problem.features
    classes = max(problem.objective.outputs, 2)
    others = [release_rounding(one, examples, features, classes) for one in other_releases]
    mu = math.hypot(_mu(runs, problem, grid, limit), *(one.mu for one in others))
    failure = math.fsum([_failure(runs, problem), *(one.failure for one in others)])
    widened = at_least(mu, ulps=2.0 * len(others) + 4.0)
    return Arithmetic(grid.bits, limit, widened, at_least(failure, ulps=2.0))


def release_rounding(
    release: Release, examples: int, features: int = 0, classes: int = 2
) -> Rounding:
    """How far a published statistic is from the exact one with exact noise."""
    size = released_size(release.kind, features, classes)
    error = released_error(release, examples, size) / release.noise_std
    words = _WORDS[0] * size + _WORDS[1]
    failure = size * TOTAL_VARIATION + _distinguishable(words)
    return Rounding(at_least(error, ulps=2.0), up(failure, MILLIONS_OF_ROUNDINGS))


def problem_of(objective: Objective, examples: AnyExamples) -> Problem:
    """The public quantities of training this objective on these examples."""
    offset = 0.0 if examples.offset is None else float(np.linalg.norm(examples.offset))
    return Problem(
        objective,
        examples.features,
        examples.feature_bound,
        examples.intercept,
        up(offset, MILLIONS_OF_ROUNDINGS),
        apart=examples.is_sparse and examples.centre is not None,
    )


def with_score(report: PrivacyReport, release: Release, examples: int = 0) -> PrivacyReport:
    """The report on a model and a statistic of the examples that it was fitted on.

    Of more `examples`, if others were counted, too.
    """
    rounding = None
    if report.rounding is not None:
        rounding = release_rounding(release, max(report.run.batches.examples, examples))
    return report.with_release(release, rounding)


def chosen_grid(
    runs: Sequence[TrainingRun], problem: Problem, *, start: float = 0.0
) -> tuple[Grid, float]:
    """The finest grid on which no whole number can overflow, up to `BITS`, and the reach.

    From 0, or, of the grid alone, from so far away.
    """
    bits = BITS
    while bits >= LEAST_BITS:
        grid = grid_of(runs, bits)
        limit = _reach(runs[0], problem, grid)
        longest = float(longest_steps(runs[0], problem, grid.sizes, limit).max())
        # In units of 2^bits.
        needed = (limit + 2.0 * start + longest) / grid.least_noise + _LARGEST_NOISE
        if not needed < 2.0**WHOLE_BITS:
            break
        spare = WHOLE_BITS - math.ceil(math.log2(needed))
        if bits <= spare:
            return grid, limit
        bits = spare
    must_be = (
        "larger for such step sizes, or the steps fewer: no grid holds both iterates and noise"
    )
    raise InvalidParameter("run.noise_std", must_be=must_be, found=f"{runs[0].noise_std!r}"[:80])


def _reach(run: TrainingRun, problem: Problem, grid: Grid) -> float:
    return reach(
        run,
        problem,
        grid.sizes,
        grid.noises,
        grid.units,
        lambda given: step_errors(run, problem, grid.sizes, grid.units, given),
    )


def _mu(runs: Sequence[TrainingRun], problem: Problem, grid: Grid, limit: float) -> float:
    """The least cost of an error in every step, if none is left where a run ends."""
    run, root = runs[0], math.sqrt(problem.dimension)
    constants = contractions(run, grid.sizes)
    before = np.concatenate([[0.0], grid.units[:-1]])
    errors = step_errors(run, problem, grid.sizes, grid.units, limit)
    for k in np.flatnonzero(grid.sizes == 0.0):
        errors[k] = release_error(run, problem, float(grid.units[k]), limit)
    errors = up(errors + constants * before * root, MILLIONS_OF_ROUNDINGS)
    ends = publications(runs)
    parts = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
    mus = [
        optimal_shifts(
            contraction=constants[part], sensitivity=errors[part], noise=grid.noises[part]
        ).mu
        for part in parts
    ]
    return at_least(math.hypot(*mus), ulps=len(mus) + 2.0)


def _failure(runs: Sequence[TrainingRun], problem: Problem) -> float:
    """The probability of all events that `mu` leaves out."""
    draws, words, found = 0.0, 0.0, 0.0
    for run in runs:
        draws += (run.steps + 1) * problem.dimension
        words += (run.steps + 1) * _WORDS[1] + _batch_words(run)
        found += exceeded_with(run.steps + 1)
        if not run.batches.exact_size:
            found += run.steps * UNLIKELY_SIZE
    words += _WORDS[0] * draws
    return up(
        found + draws * TOTAL_VARIATION + 2.0 * _distinguishable(words), MILLIONS_OF_ROUNDINGS
    )


def _distinguishable(words: float) -> float:
    """The probability of telling so much keystream from random words by equal blocks.

    A cipher's blocks of two words are all different, as random ones need not be.  Twice that of two
    parts is more than that of both together if one of them is short, as those of statistics are.
    """
    return (words / 2.0 + 1.0) ** 2 * 2.0**-129


def _batch_words(run: TrainingRun) -> float:
    """How many words decide the batches of a run, at most; keys that are equal are drawn again."""
    rule = run.batches
    times = {
        Resampling.NEVER: 0,
        Resampling.ONCE: 1,
        Resampling.EACH_EPOCH: -(-run.steps // rule.batches_per_epoch),
        Resampling.EACH_FEW_EPOCHS: run.steps,
        Resampling.EACH_STEP: run.steps,
    }[rule.resampling]
    return 2.0 * times * rule.examples
