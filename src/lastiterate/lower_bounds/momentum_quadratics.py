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
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import scipy

from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, Array, down
from lastiterate.bounds import conditions
from lastiterate.bounds.bound import Citation, Hypothesis, LowerBound
from lastiterate.lower_bounds.admitted_maps import seen_together
from lastiterate.lower_bounds.linear_paths import (
    MOMENTUM_OR_AVERAGE,
    LinearSteps,
    linear_steps,
    released_weights,
)
from lastiterate.lower_bounds.participation import participation
from lastiterate.profile.lower import BestLowerProfile, LowerProfile
from lastiterate.run.batch_rules.base import Resampling, rules
from lastiterate.run.loss import has_bounded_gradients, linear_gradients, quadratic_curvatures
from lastiterate.run.training_run import TrainingRun

_MOST_STEPS = 100_000
_QUICK_STEPS = 5_000
_CURVATURES = 9
_IMPROVED_STEPS = 400  # the last of the run, whose curvatures are searched one by one
_LATEST = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # positions, from the end
_TRIES = 60


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
    steps, span, gradients = linear_steps(run), _curvatures(run), linear_gradients(run)
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
    chosen = {order[k - 1] for k in (*_LATEST, 1 + len(order) // 2) if k <= len(order)}
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
    first = max(0, slopes.size - _IMPROVED_STEPS)

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
        options={"maxiter": _TRIES},
    )
    return np.concatenate([slopes[:first], np.clip(found.x, *span)])


def _curvatures(run: TrainingRun) -> tuple[float, float] | None:
    """The admitted curvatures, or None; for batches of unknown size the penalty's alone."""
    span, penalty = quadratic_curvatures(run), run.loss.regulariser
    if span is None or run.batches.exact_size:
        return span
    return (penalty, penalty) if span[0] <= penalty <= span[1] else None


def _no_quadratic(run: TrainingRun) -> str | None:
    return None if _curvatures(run) is not None else "none"


def _plain(run: TrainingRun) -> str | None:
    return "plain steps" if run.has_plain_steps else None


LOWER_BOUNDS = (
    LowerBound(
        id="lower/momentum",
        gives="the exact privacy of quadratics under momentum, or of averages of iterates",
        covers=rules(*Resampling),
        needs=(
            conditions.UNBOUNDED,
            Hypothesis("momentum or an average of iterates", _plain, "see lower/quadratic"),
            MOMENTUM_OR_AVERAGE,
            Hypothesis(
                "a quadratic that the description admits",
                _no_quadratic,
                "state all of the strong convexity as a regulariser, or no bound on gradients",
            ),
            conditions.at_most_steps(_MOST_STEPS),
        ),
        beyond_plain_steps=True,
        source=Citation("lastiterate", 2026, "Tightness", "docs, tightness"),
        evaluate=momentum_lower_bound,
        gradients=linear_gradients,
        quick=lambda run: run.steps <= _QUICK_STEPS,
    ),
)
