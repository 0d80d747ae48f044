r"""The cost of rounding: the distance between the computed run and the exact one.

**Bound.** The machine's iterate is :math:`M_k = F_k(M_{<k}) + \lfloor Z_k\rfloor`, F on the grid
of the step's noise, so that it is the floor of a process :math:`Y_k = F_k + Z_k` with exact
Gaussian noise.  The exact run is :math:`X_k = \phi_k(X_{k-1}) + Z_k`.  If F is within e of phi
(`step_errors`) and phi is c-Lipschitz, then :math:`|F_k - \phi_k(x)| \le c_k|x - y| + E_k` with
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

**How far from 0 iterates may be, whatever the data are.** Let f be convex and nonnegative with
:math:`f(0) \le f_0`, its gradients at most C long.  Then
:math:`\langle x, \nabla f(x)\rangle \ge f(x) - f(0) \ge -f_0`, so that a step with
:math:`\eta\lambda \le 1` has

.. math:: |\phi(x)|^2 \le |x|^2 + A, \qquad A = 2\eta f_0 + \eta^2 C^2

(on batches b'/b times as large as they should be, both times that, C squared).  Otherwise
:math:`|\phi(x)| \le |1 - \eta\lambda||x| + \eta C`, which is
:math:`|\phi|^2 \le (1 + \theta) \max(1, (1 - \eta\lambda)^2)|x|^2 + (1 + 1/\theta)\eta^2C^2`.

The machine's step F is within e of phi *while the iterate is within B*.  Let it be phi, rounded,
beyond B: that is another machine, which equals this one until an iterate leaves B.  Its iterate
is the floor of :math:`Y = F + Z`, at most :math:`g\sqrt D` away, so that with
:math:`\theta = 1/32T`

.. math:: |F_k|^2 \le (1 + \theta)^2\rho_k|Y_{k-1}|^2 + A'_k, \qquad
          A'_k = (1 + \theta)A_k + (1 + 1/\theta)\big(e_k^2 + (1 + \theta)g_{k-1}^2D\big).

Divide by the product P of all these factors up to k.  With :math:`N^2 = \sum n_k^2` and
:math:`1/\theta_k = 4N^2 - 2\sum_{j>k} n_j^2`, the identity
:math:`E e^{\theta|a + Z|^2} = (1 - 2\theta n^2)^{-D/2} e^{\theta|a|^2/(1 - 2\theta n^2)}`
telescopes to :math:`E e^{|Y|^2/4N^2} \le 2^{D/2} e^{\sum A'/2N^2}`, and so

.. math:: B^2 = P\big(2\textstyle\sum A'_k + 2|x_0|^2 + 2\ln 2\,N^2 D + 4N^2 t\big)

is exceeded at any of T steps with probability at most :math:`Te^{-t}`; t is 80.  Nothing here
compares the machine with exact arithmetic.  Without noise the bound is certain.  B is chosen so
that the errors e, which grow with it, leave it as it is.

**How far a computed step may be from the exact one,** from public quantities alone.  Iterates are
whole multiples of a unit g, products are float64, and a step computes

.. math:: F = gK - g\,\mathrm{rint}\Big(\frac\eta g\big(\tfrac1b\textstyle\sum_i r_i x_i^T
          + \lambda W\big)\Big), \qquad W = \mathrm{fl}(gK).

The exact step at the same point, on the same batch, is phi.  Rows are those that count: float64
numbers computed from each row alone, so that no error is made in them.  With :math:`u = 2^{-53}`
and :math:`\gamma_n = nu/(1 - nu)`, which bounds the error of a sum of n products in any order,
fused or not (Higham 2002, section 3.1), while |gK| is at most B,

=================  ===========================================================================
outputs            :math:`(\gamma_{d+8} + (2 + \sqrt K)u)(B\rho + |o|)`; the root is for logits
                   less another, each of which is rounded
residuals          curvature h times that, and :math:`e_r`, the objective's `residual_error`
sum                residual errors times R; :math:`\gamma_{2b'+16}` of the sum of
                   :math:`|r_i|\rho`: b' additions, and as many of parts (blocks, shards)
scaling            8u of every term, which are seven roundings at most: a weight in (0, 1] is one
                   of them; W instead of gK, :math:`2u(1 + c)B`
grid               half a unit a coordinate for rint, and half where the grid changes
ball               norm and scaling, twice :math:`\gamma_{D+8}` of its radius
=================  ===========================================================================

d features, K outputs, D parameters, o the offset of the outputs, R the radius of rows,
:math:`\rho \ge R` what the parts of a row may add up to, c the bound on residuals, b' the largest
batch.  Underflow adds less than 1e-290 to any number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from lastiterate._numerics.rounding import (
    MILLIONS_OF_ROUNDINGS,
    THOUSANDS_OF_ROUNDINGS,
    Array,
    at_least,
    up,
)
from lastiterate.accounting import PrivacyReport
from lastiterate.errors import InvalidParameter
from lastiterate.other_releases import Release
from lastiterate.profile.rounded import Rounding
from lastiterate.run.batch_rules.base import Resampling
from lastiterate.run.optimizer import require_plain_steps
from lastiterate.run.training_run import Ball, TrainingRun
from lastiterate.shifts.optimal_shifts import optimal_shifts
from lastiterate.train.data import AnyExamples
from lastiterate.train.noise import (
    BITS,
    LEAST_BITS,
    TOTAL_VARIATION,
    WHOLE_BITS,
    Grid,
    grid_of,
    publications,
    released_error,
    released_size,
)
from lastiterate.train.objectives import UNIT_ROUNDOFF, Objective

# Random words for a number, and for each time some are drawn; generously.
_WORDS_PER_NUMBER, _WORDS_PER_DRAW = 1.2, 128.0

_LARGEST_NOISE_STDS = 12.0
EXPONENT = 80.0  # t
_INVERSE_THETA_PER_STEP = 32.0  # theta is one over so many times the number of steps
_MAX_REACH_ROUNDS = 40
UNLIKELY_SIZE = 1e-30  # the probability of a batch beyond the largest that is charged for
LEAST_CENTRED = 0.04  # the least bound around a centre, in units of that on rows
_UNDERFLOW = 1e-290


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
    mu = math.hypot(_shift_cost(runs, problem, grid, limit), *(one.mu for one in others))
    failure = math.fsum([_failure_probability(runs, problem), *(one.failure for one in others)])
    widened = at_least(mu, ulps=2.0 * len(others) + 4.0)
    return Arithmetic(grid.bits, limit, widened, at_least(failure, ulps=2.0))


def release_rounding(
    release: Release, examples: int, features: int = 0, classes: int = 2
) -> Rounding:
    """The distance of a published statistic from the exact one with exact noise."""
    size = released_size(release.kind, features, classes)
    error = released_error(release, examples, size) / release.noise_std
    words = _WORDS_PER_NUMBER * size + _WORDS_PER_DRAW
    failure = size * TOTAL_VARIATION + _distinguishing_probability(words)
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

    The statistic may be one of more `examples`, those of the fit among them.
    """
    rounding = None
    if report.rounding is not None:
        rounding = release_rounding(release, max(report.run.batches.examples, examples))
    return report.with_release(release, rounding)


def chosen_grid(
    runs: Sequence[TrainingRun], problem: Problem, *, start: float = 0.0
) -> tuple[Grid, float]:
    """The finest grid, up to `BITS`, on which no whole number can overflow, and the reach from 0.

    The grid is one on which iterates may begin at a distance of `start` from 0.
    """
    bits = BITS
    while bits >= LEAST_BITS:
        grid = grid_of(runs, bits)
        limit = reach(runs[0], problem, grid)
        longest = float(longest_steps(runs[0], problem, grid.sizes, limit).max())
        # In units of 2^bits.
        needed = (limit + 2.0 * start + longest) / grid.least_noise + _LARGEST_NOISE_STDS
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


def _shift_cost(runs: Sequence[TrainingRun], problem: Problem, grid: Grid, limit: float) -> float:
    """The least cost mu of shifts that make up for all errors of a run before the run ends."""
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


def _failure_probability(runs: Sequence[TrainingRun], problem: Problem) -> float:
    """The probability of all events that `mu` leaves out."""
    draws, words, failure = 0.0, 0.0, 0.0
    for run in runs:
        draws += (run.steps + 1) * problem.dimension
        words += (run.steps + 1) * _WORDS_PER_DRAW + _batch_words(run)
        failure += exceeded_with(run.steps + 1)
        if not run.batches.exact_size:
            failure += run.steps * UNLIKELY_SIZE
    words += _WORDS_PER_NUMBER * draws
    return up(
        failure + draws * TOTAL_VARIATION + 2.0 * _distinguishing_probability(words),
        MILLIONS_OF_ROUNDINGS,
    )


def _distinguishing_probability(words: float) -> float:
    """The probability of telling this much keystream from random words by equal blocks.

    A cipher's blocks of two words are all different, as random ones need not be.  Twice that of two
    parts is more than that of both together if one of them is short, as those of statistics are.
    """
    return (words / 2.0 + 1.0) ** 2 * 2.0**-129


def _batch_words(run: TrainingRun) -> float:
    """The most words that decide the batches of a run; equal keys are drawn again."""
    rule = run.batches
    times = {
        Resampling.NEVER: 0,
        Resampling.ONCE: 1,
        Resampling.EACH_EPOCH: -(-run.steps // rule.batches_per_epoch),
        Resampling.EACH_FEW_EPOCHS: run.steps,
        Resampling.EACH_STEP: run.steps,
    }[rule.resampling]
    return 2.0 * times * rule.examples


# How far from 0 iterates may be, whatever the data are.


def exceeded_with(steps: int) -> float:
    """The probability that any of this many iterates is beyond the reach."""
    return up(steps * math.exp(-EXPONENT), MILLIONS_OF_ROUNDINGS)


def reach(run: TrainingRun, problem: Problem, grid: Grid) -> float:
    """B for the steps of a grid, from 0; inf if none is.  Steps of size 0 add noise alone."""
    sizes, units = grid.sizes, grid.units
    steps = sizes.size
    theta = 1.0 / (_INVERSE_THETA_PER_STEP * steps)
    growth, drift = _growth_and_drift(run, problem, sizes, theta)
    dimension = problem.dimension
    variance = float((grid.noises**2).sum())
    spread = variance * (2.0 * math.log(2.0) * dimension + 4.0 * EXPONENT)
    before = np.concatenate([[0.0], units[:-1]])
    floors = (1.0 + theta) * dimension * before**2
    log_factor = float(np.log(growth).sum()) + 2.0 * steps * math.log1p(theta)
    if not log_factor < 600.0:
        return _within_the_ball(run, math.inf)

    def with_errors(given: float) -> float:
        errors = step_errors(run, problem, sizes, units, given)
        added = (1.0 + theta) * drift + (1.0 + 1.0 / theta) * (errors**2 + floors)
        squared = math.exp(log_factor) * (2.0 * float(added.sum()) + spread)
        floor = float(units.max()) * math.sqrt(dimension)
        return up(math.sqrt(squared) + floor, MILLIONS_OF_ROUNDINGS)

    return _within_the_ball(run, _stable_reach(with_errors))


def _growth_and_drift(
    run: TrainingRun, problem: Problem, sizes: Array, theta: float
) -> tuple[Array, Array]:
    """The factor of each step for the squared norm, and what it may add."""
    share, objective = largest_share(run), problem.objective
    steepest = sizes * objective.gradient_bound(radius=problem.radius) * share
    left = 1.0 - sizes * run.loss.regulariser
    start = objective.loss_at_start(problem.offset)
    kept = (left >= 0.0) & np.isfinite(start)
    growth = np.where(kept, 1.0, (1.0 + theta) * np.maximum(1.0, left**2))
    near = 2.0 * sizes * share * (start if math.isfinite(start) else 0.0) + steepest**2
    return growth, np.where(kept, near, (1.0 + 1.0 / theta) * steepest**2)


def _stable_reach(with_errors: Callable[[float], float]) -> float:
    """A reach that is not below what its own errors lead to; inf if none is found."""
    found = with_errors(0.0)
    for _ in range(_MAX_REACH_ROUNDS):
        given = found * 1.0001
        found = with_errors(given)
        if found <= given:
            return given
    return math.inf


def _within_the_ball(run: TrainingRun, found: float) -> float:
    """A reach, which in a ball is no more than its radius: points are brought there first."""
    if isinstance(run.domain, Ball):
        return min(found, up(run.domain.diameter / 2.0, 1e-6))
    return found


# How far a computed step may be from the exact one, from public quantities alone.


def gamma(count: float) -> float:
    """The relative error of a sum of this many products; inf where it has no bound."""
    share = count * UNIT_ROUNDOFF
    return share / (1.0 - share) if share < 0.5 else math.inf


@dataclass(frozen=True)
class Problem:
    """The public quantities of a linear model's training, beside its run."""

    objective: Objective
    features: int
    bound: float
    intercept: float
    offset: float = 0.0  # the norm of what is added to the outputs
    apart: bool = False  # whether a centre is subtracted from outputs and not from rows (sparse)

    @property
    def dimension(self) -> int:
        """D: how many parameters there are."""
        return self.objective.outputs * (self.features + (self.intercept > 0.0))

    @property
    def radius(self) -> float:
        """A bound on the norms of rows, the constant of the intercept included."""
        return math.hypot(self.bound, self.intercept)

    @property
    def length(self) -> float:
        """The largest sum of the norms of the parts of a row."""
        row = 2.0 * self.bound / LEAST_CENTRED if self.apart else self.bound
        return up(row + self.intercept, THOUSANDS_OF_ROUNDINGS)


def largest_share(run: TrainingRun) -> float:
    """The largest batch that is charged for, over the batch size."""
    return run.batches.size_exceeded_with(UNLIKELY_SIZE) / run.batches.batch_size


def contractions(run: TrainingRun, sizes: Array) -> Array:
    """Lipschitz constants of steps of these sizes, however large batches are."""
    loss, share = run.loss, largest_share(run)
    if loss.smoothness is None:
        raise InvalidParameter("run.loss.smoothness", None, must_be="known, as in training")
    steep = (loss.smoothness - loss.regulariser) * share + loss.regulariser
    ends = np.abs(1.0 - sizes * loss.regulariser), np.abs(1.0 - sizes * steep)
    return np.asarray(up(np.maximum(*ends), THOUSANDS_OF_ROUNDINGS))


def longest_steps(run: TrainingRun, problem: Problem, sizes: Array, reach: float) -> Array:
    """Bounds on the lengths of steps of these sizes, without noise."""
    steepest = problem.objective.residual_bound * problem.length * largest_share(run)
    return np.asarray(up(sizes * (steepest + run.loss.regulariser * reach), 1e-3))


def step_errors(
    run: TrainingRun, problem: Problem, sizes: Array, units: Array, reach: float
) -> Array:
    """Bounds on the errors of steps of these sizes, on grids of these units, within the reach."""
    objective, length, share = problem.objective, problem.length, largest_share(run)
    u, root = UNIT_ROUNDOFF, math.sqrt(problem.dimension)
    largest = share * run.batches.batch_size
    outputs = gamma(problem.features + 8) + (2.0 + math.sqrt(objective.outputs)) * u
    outputs = outputs * (reach * length + problem.offset) + _UNDERFLOW * problem.features
    residual = objective.curvature * outputs + objective.residual_error
    summed = gamma(2.0 * largest + 16) * (objective.residual_bound + residual) * length
    gradient = share * (residual * problem.radius + summed + _UNDERFLOW * (1.0 + length))
    scaling = 8.0 * u * (share * objective.residual_bound * length + run.loss.regulariser * reach)
    moved = 2.0 * u * (1.0 + contractions(run, sizes)) * reach + 4.0 * u * reach
    found = sizes * (gradient + scaling) + moved + units * root
    return np.asarray(up(found + _ball_error(run, problem) + _UNDERFLOW, 1e-6))


def release_error(run: TrainingRun, problem: Problem, unit: float, reach: float) -> float:
    """The error of moving the last iterate to the grid of the noise on release."""
    root = math.sqrt(problem.dimension)
    return up(4.0 * UNIT_ROUNDOFF * reach + 0.5 * unit * root + _ball_error(run, problem), 1e-6)


def _ball_error(run: TrainingRun, problem: Problem) -> float:
    if not isinstance(run.domain, Ball):
        return 0.0
    # Twice: what is published is brought into the ball, and so is where the next run begins.
    return gamma(problem.dimension + 8) * run.domain.diameter
