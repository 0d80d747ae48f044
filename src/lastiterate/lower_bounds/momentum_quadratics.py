r"""Runs with momentum, or with averages of iterates, on quadratic losses: results are Gaussian.

**Instances.** All examples share a loss of curvature :math:`\kappa`; the example in question has a
further linear term of slope L in one world.  With :math:`w_k` the effect of step k's gradient on
what is released, the two results are Gaussian and apart by

.. math:: \mu = \frac{\frac Lb \left|\sum_k V_k w_k\right|}{\sqrt{\sum_k (w_k\sigma_k)^2 + \rho^2}}.

**Curvature that varies.** If nothing bounds gradients, the common loss may be a quadratic of some
curvature strictly inside the admitted range, started so far away that the iterate's way from step
to step is longer than noise ever carries it.  Where it is at step k is then known, and all those
points differ.  On an interval around each of them, long beside the noise and short beside the way,
the curvature may be any admitted one, another in each step.  On the way between them the example's
linear term may change its sign, so that no participations cancel: :math:`\sum_k V_k |w_k|`.

**State.** It is the iterate x and the momentum's buffer, or x and the average of iterates.  A
gradient is `slope * x + pull` plus noise, so the state stays Gaussian; its means and covariances
are computed step by step.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy

from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, Array, down
from lastiterate.bounds import conditions
from lastiterate.bounds.bound import Citation, Hypothesis, LowerBound
from lastiterate.lower_bounds.participation import participation
from lastiterate.lower_bounds.quadratics import A_QUADRATIC, admitted_curvatures, seen_together
from lastiterate.profile.lower import BestLowerProfile, LowerProfile
from lastiterate.run.batch_rules.base import Resampling, rules
from lastiterate.run.loss import has_bounded_gradients, linear_gradients
from lastiterate.run.training_run import TrainingRun

_MAX_STEPS = 100_000
_MAX_QUICK_STEPS = 5_000
_CURVATURES = 9
_MAX_SEARCHED_STEPS = 400  # the last of the run, whose curvatures are searched one by one
_LATEST_POSITIONS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # from the end
_MAX_ITERATIONS = 60
State = tuple[float, float]

Covariance = tuple[float, float, float]
"""The variance of x, the covariance of the two vectors, and the variance of the other one."""

Entries = tuple[float, float, float, float, float, float]


def momentum_lower_bound(run: TrainingRun) -> BestLowerProfile:
    r"""The most exposed of the quadratics that a run with momentum, or an average, admits.

    **Bound.** The exact curve of :math:`\mu` above, at the most exposed of some positions, or of
    the mixture over the participations where these are drawn in secret.

    **Holds when.** the domain is unbounded and some quadratic has the stated smoothness, strong
    convexity and bound on gradients (where batches vary in size, one curved by the penalty alone).

    **Tight.** Within 1.3 of `fixed-order/momentum` for positions in the middle of an epoch.

    **Source.** This library.

    **Computed as** weights of all steps, backwards, for a grid of curvatures and for curvatures of
    single steps found by gradient ascent; rounded down.
    """
    with np.errstate(all="ignore"):  # weights beyond floating point are left out
        return BestLowerProfile(tuple(_profiles(run)))


def _profiles(run: TrainingRun) -> Iterator[LowerProfile]:
    """The lower bounds of some positions and curvatures."""
    steps, span, gradients = linear_steps(run), admitted_curvatures(run), linear_gradients(run)
    assert span is not None
    varies = span[0] < span[1] and not has_bounded_gradients(run)
    constants = np.linspace(*span, _CURVATURES if varies else 1).tolist()
    patterns = _patterns(run)
    for chosen, seen in patterns:
        rule = participation(run, position=chosen)
        designs = [np.full(run.steps, one) for one in constants]
        if varies:
            most = max(designs, key=lambda slopes: _mu(steps, slopes, seen))
            designs.append(improved_curvatures(steps, most, seen, span))
        for slopes in designs:
            weights = released_weights(steps, slopes)
            # A person's examples in one batch move it together.
            shifts = weights * (seen_together(run) * run.sensitivity / run.batches.batch_size)
            shifts = np.abs(shifts) if varies else shifts * np.sign(shifts.sum())
            if rule.by_chance and shifts.min() < 0.0:  # thresholds need not be good tests
                continue
            deviation = _deviation(steps, weights)
            if 0.0 < deviation < math.inf:
                told = down(shifts / deviation, MILLIONS_OF_ROUNDINGS)
                for one in gradients if rule.by_chance else gradients[:1]:
                    moves = one.moves(exact_size=run.batches.exact_size)
                    yield rule.lower_profile(told, moves)


def _patterns(run: TrainingRun) -> list[tuple[int | None, Array]]:
    """Positions of a fixed order with the steps that see them; else the chance of each step."""
    if run.batches.resampling is not Resampling.NEVER:
        return [(None, participation(run).expected(run.steps))]
    every = range(run.batches.position_count(run.steps))
    latest = {k: int(run.batches.participations(k, run.steps).max(initial=-1)) for k in every}
    order = sorted(every, key=lambda k: -latest[k])
    chosen = {order[k - 1] for k in (*_LATEST_POSITIONS, 1 + len(order) // 2) if k <= len(order)}
    patterns: list[tuple[int | None, Array]] = []
    for position in sorted(chosen):
        seen = np.zeros(run.steps)
        seen[run.batches.participations(position, run.steps)] = 1.0
        patterns.append((position, seen))
    return patterns


def _deviation(steps: LinearSteps, weights: Array) -> float:
    """The standard deviation of what is released."""
    return math.hypot(float(np.linalg.norm(weights * steps.noise_std)), steps.release_noise_std)


def _mu(steps: LinearSteps, slopes: Array, seen: Array) -> float:
    """mu for a sensitivity of 1 where nothing cancels."""
    weights = released_weights(steps, slopes)
    deviation = _deviation(steps, weights)
    return float(np.abs(weights) @ seen) / deviation if 0.0 < deviation < math.inf else 0.0


def improved_curvatures(
    steps: LinearSteps, slopes: Array, seen: Array, span: tuple[float, float]
) -> Array:
    """Curvatures that expose more, by gradient ascent on the logarithm of mu from these."""
    first = max(0, slopes.size - _MAX_SEARCHED_STEPS)

    def descent(last: Array) -> tuple[float, Array]:
        every = np.concatenate([slopes[:first], last])
        weights = released_weights(steps, every)
        gap, variance = float(np.abs(weights) @ seen), _deviation(steps, weights) ** 2
        if not (gap > 0.0 and 0.0 < variance < math.inf):
            return math.inf, np.zeros(last.size)
        noises = np.square(steps.noise_std)
        pulls = np.sign(weights) * seen / gap - weights * noises / variance
        # The mean state of a run whose gradients are pulled this way is the adjoint.
        states = steps.means((0.0, 0.0), 0, every, pulls)[:-1, 0]
        return -math.log(gap) + math.log(variance) / 2.0, -(weights * states)[first:]

    found = scipy.optimize.minimize(
        descent,
        slopes[first:],
        jac=True,
        method="L-BFGS-B",
        bounds=[span] * (slopes.size - first),
        options={"maxiter": _MAX_ITERATIONS},
    )
    return np.concatenate([slopes[:first], np.clip(found.x, *span)])


@dataclass(frozen=True)
class LinearSteps:
    """The entries of every step's recursion, and the standard deviation of its gradient's noise."""

    entries: tuple[Array, ...]
    noise_std: Array
    released: State
    release_noise_std: float

    def rows(self, first: int, count: int) -> list[Entries]:
        """The entries of the `count` steps from `first` on, one row for each step."""
        columns = (entry[first : first + count].tolist() for entry in self.entries)
        return list(zip(*columns, strict=True))

    def means(self, start: State, first: int, slopes: Array, pulls: Array) -> Array:
        """The mean state that each step from `first` on finds, and that after the last of them."""
        return np.array(list(self._means(start, first, slopes, pulls)))

    def covariances(self, start: Covariance, first: int, slopes: Array) -> Array:
        """The covariances of these states."""
        return np.array(list(self._covariances(start, first, slopes)))

    def _means(self, start: State, first: int, slopes: Array, pulls: Array) -> Iterator[State]:
        x, y = start
        yield start
        gradients = zip(slopes.tolist(), pulls.tolist(), strict=True)
        for row, (slope, pull) in zip(self.rows(first, slopes.size), gradients, strict=True):
            a00, a01, a10, a11, b0, b1 = row
            gradient = slope * x + pull
            x, y = a00 * x + a01 * y + b0 * gradient, a10 * x + a11 * y + b1 * gradient
            yield x, y

    def _covariances(self, start: Covariance, first: int, slopes: Array) -> Iterator[Covariance]:
        xx, xy, yy = start
        yield start
        noises = np.square(self.noise_std[first : first + slopes.size]).tolist()
        each = zip(self.rows(first, slopes.size), slopes.tolist(), noises, strict=True)
        for (a00, a01, a10, a11, b0, b1), slope, noise in each:
            p, r = a00 + slope * b0, a10 + slope * b1
            xx, xy, yy = (
                p * p * xx + 2.0 * p * a01 * xy + a01 * a01 * yy + noise * b0 * b0,
                p * r * xx + (p * a11 + a01 * r) * xy + a01 * a11 * yy + noise * b0 * b1,
                r * r * xx + 2.0 * r * a11 * xy + a11 * a11 * yy + noise * b1 * b1,
            )
            yield xx, xy, yy


def linear_steps(run: TrainingRun) -> LinearSteps:
    """The steps of a run with momentum, with an average of iterates, or with neither."""
    every = (run.steps,)
    noise = np.broadcast_to(np.asarray(run.noise_std, dtype=float), every)
    eta = np.broadcast_to(np.asarray(run.step_size, dtype=float), every)
    one, zero = np.ones(run.steps), np.zeros(run.steps)
    if run.average is not None:
        kept = np.array(run.average.decays(run.steps))
        entries = (one, zero, one - kept, kept, -eta, -(one - kept) * eta)
        return LinearSteps(entries, noise, (0.0, 1.0), run.release_noise_std)
    beta = np.array(np.broadcast_to(np.asarray(run.momentum, dtype=float), every))
    kept, new = beta.copy(), np.full(run.steps, 1.0 - run.dampening)
    # A step that finds no buffer stores the gradient itself.
    empty = [0, *(step - 1 for step in run.buffer_resets)]
    kept[empty], new[empty] = 0.0, 1.0
    if run.nesterov:
        entries = (one, -eta * beta * kept, zero, kept, -eta * (one + beta * new), new)
    else:
        entries = (one, -eta * kept, zero, kept, -eta * new, new)
    return LinearSteps(entries, noise, (1.0, 0.0), run.release_noise_std)


def released_weights(steps: LinearSteps, slopes: Array) -> Array:
    """The change of what is released for a change of each step's gradient by 1."""
    f, g = steps.released
    rows, weights = steps.rows(0, slopes.size), np.empty(slopes.size)
    each = slopes.tolist()
    for k in range(slopes.size - 1, -1, -1):
        a00, a01, a10, a11, b0, b1 = rows[k]
        weight = f * b0 + g * b1
        weights[k] = weight
        f, g = f * a00 + g * a10 + weight * each[k], f * a01 + g * a11
    return weights


def variance_along(weights: State, covariance: Covariance) -> float:
    """The variance of the sum of both vectors with these weights."""
    (f, g), (xx, xy, yy) = weights, covariance
    return max(f * f * xx + 2.0 * f * g * xy + g * g * yy, 0.0)


def _plain_steps(run: TrainingRun) -> str | None:
    return "plain steps" if run.has_plain_steps else None


def _momentum_and_average(run: TrainingRun) -> str | None:
    both = run.momentum != 0.0 and run.average is not None
    return f"momentum={run.momentum!r} and average={run.average!r}" if both else None


MOMENTUM_OR_AVERAGE = Hypothesis(
    "no average of iterates together with momentum",
    _momentum_and_average,
    "publish the last iterate",
)
LOWER_BOUNDS = (
    LowerBound(
        id="lower/momentum",
        gives="the exact privacy of quadratics under momentum, or of averages of iterates",
        covers=rules(*Resampling),
        needs=(
            conditions.UNBOUNDED,
            Hypothesis("momentum or an average of iterates", _plain_steps, "see lower/quadratic"),
            MOMENTUM_OR_AVERAGE,
            A_QUADRATIC,
            conditions.at_most_steps(_MAX_STEPS),
        ),
        beyond_plain_steps=True,
        source=Citation("lastiterate", 2026, "Tightness", "docs, tightness"),
        evaluate=momentum_lower_bound,
        gradients=linear_gradients,
        quick=lambda run: run.steps <= _MAX_QUICK_STEPS,
    ),
)
