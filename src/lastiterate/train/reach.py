r"""How far from 0 iterates may be, whatever the data are.

**Bound.** Let f be convex and nonnegative with :math:`f(0) \le f_0`, its gradients at most C long.
Then :math:`\langle x, \nabla f(x)\rangle \ge f(x) - f(0) \ge -f_0`, so that a step with
:math:`\eta\lambda \le 1` has

.. math:: |\phi(x)|^2 \le |x|^2 + A, \qquad A = 2\eta f_0 + \eta^2 C^2

(on batches b'/b times as large as they should be, both times that, C squared).  Otherwise
:math:`|\phi(x)| \le |1 - \eta\lambda||x| + \eta C`, which is :math:`|\phi|^2 \le (1 + \theta)
\max(1, (1 - \eta\lambda)^2)|x|^2 + (1 + 1/\theta)\eta^2C^2`.

The machine's step F is within e of phi *while the iterate is within B*.  Let it be phi, rounded,
beyond B: that is another machine, which equals this one until an iterate leaves B.  Its iterate is
the floor of :math:`Y = F + Z`, at most :math:`g\sqrt D` away, so that with :math:`\theta = 1/32T`

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
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, Array, up
from lastiterate.run.training_run import Ball, TrainingRun
from lastiterate.train.step_error import Problem, largest_share

EXPONENT = 80.0
_SHARE = 32.0  # theta is one over so many times the number of steps
_ATTEMPTS = 40


def exceeded_with(steps: int) -> float:
    """The probability that any of so many iterates is beyond the reach."""
    return up(steps * math.exp(-EXPONENT), MILLIONS_OF_ROUNDINGS)


def reach(
    run: TrainingRun,
    problem: Problem,
    sizes: Array,
    noises: Array,
    units: Array,
    errors: Callable[[float], Array],
) -> float:
    """B for steps of these sizes and noises (size 0 adds noise alone), from 0; inf if none is.

    `errors` are those of the steps, given a reach.
    """
    steps = sizes.size
    theta = 1.0 / (_SHARE * steps)
    growth, drift = _growth_and_drift(run, problem, sizes, theta)
    dimension = problem.dimension
    variance = float((noises**2).sum())
    spread = variance * (2.0 * math.log(2.0) * dimension + 4.0 * EXPONENT)
    before = np.concatenate([[0.0], units[:-1]])
    floors = (1.0 + theta) * dimension * before**2
    log_factor = float(np.log(growth).sum()) + 2.0 * steps * math.log1p(theta)
    if not log_factor < 600.0:
        return _within(run, math.inf)

    def with_errors(given: float) -> float:
        added = (1.0 + theta) * drift + (1.0 + 1.0 / theta) * (errors(given) ** 2 + floors)
        squared = math.exp(log_factor) * (2.0 * float(added.sum()) + spread)
        floor = float(units.max()) * math.sqrt(dimension)
        return up(math.sqrt(squared) + floor, MILLIONS_OF_ROUNDINGS)

    return _within(run, _stable(with_errors))


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


def _stable(with_errors: Callable[[float], float]) -> float:
    """A number that is not below what it gives; inf if none is found."""
    found = with_errors(0.0)
    for _ in range(_ATTEMPTS):
        given = found * 1.0001
        found = with_errors(given)
        if found <= given:
            return given
    return math.inf


def _within(run: TrainingRun, found: float) -> float:
    """In a ball, to which points are brought before each step, no further than that."""
    if isinstance(run.domain, Ball):
        return min(found, up(run.domain.diameter / 2.0, 1e-6))
    return found
