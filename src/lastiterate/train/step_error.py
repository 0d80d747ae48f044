r"""How far a computed step may be from the exact one, from public quantities alone.

Iterates are whole multiples of a unit g, products are float64, and a step computes

.. math:: F = gK - g\,\mathrm{rint}\Big(\frac\eta g\big(\tfrac1b\textstyle\sum_i r_i x_i^T
          + \lambda W\big)\Big), \qquad W = \mathrm{fl}(gK).

The exact step at the same point, on the same batch, is phi.  Rows are those that count: float64
numbers computed from each row alone, so that no error is made in them.  With
:math:`u = 2^{-53}` and :math:`\gamma_n = nu/(1 - nu)`, which bounds the error of a sum of n
products in any order, fused or not (Higham 2002, section 3.1), while |gK| is at most B,

=================  ===========================================================================
outputs            :math:`(\gamma_{d+8} + (2 + \sqrt K)u)(B\rho + |o|)`; the root is for logits less
                   another, each of which is rounded
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
from dataclasses import dataclass

import numpy as np

from lastiterate._numerics.rounding import THOUSANDS_OF_ROUNDINGS, Array, up
from lastiterate.errors import InvalidParameter
from lastiterate.run.training_run import Ball, TrainingRun
from lastiterate.train.objective import Objective

UNIT_ROUNDOFF = 2.0**-53
UNLIKELY_SIZE = 1e-30  # the probability of a batch beyond the largest that is charged for
LEAST_CENTRED = 0.04  # the least bound around a centre, in units of that on rows
_UNDERFLOW = 1e-290


def gamma(count: float) -> float:
    """The relative error of a sum of so many products; inf where that has no bound."""
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
