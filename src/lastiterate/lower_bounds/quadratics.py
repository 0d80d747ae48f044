r"""Lower bounds from runs that can be solved: quadratic losses, whose iterates are Gaussian.

All examples but one have the loss :math:`\frac\kappa2|x|^2 + \langle g, x\rangle`; the one is
replaced by :math:`\frac\kappa2|x|^2 + \langle g - Lv, x\rangle`.  With
:math:`c_j = 1 - \eta_j\kappa` the last iterates are Gaussian with the same variance,

.. math:: \sum_k (\eta_k\sigma_k)^2 \prod_{j>k} c_j^2 + \rho^2, \qquad
          \text{their means apart by } \sum_k V_k \frac{\eta_k L}{b} \prod_{j>k} c_j.

Every curvature that the run's description admits is a valid instance.  Where the curvature may be
another in every step, `drifting` has the same with other slopes c.
"""

import math
from collections.abc import Iterator

import numpy as np

from lastiterate._numerics import powers as geometric
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, Array, down
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Citation, Hypothesis, LowerBound
from lastiterate.lower_bounds.admitted_maps import seen_together
from lastiterate.lower_bounds.participation import (
    Participation,
    participation,
    probability_of_a_step,
)
from lastiterate.lower_bounds.random_sums import Moves, law_of_sum
from lastiterate.lower_bounds.stationary_quadratics import (
    shift_over_deviation,
    steady_profile,
    unsteady,
)
from lastiterate.profile.lower import BestLowerProfile, LowerProfile, MeansLowerProfile
from lastiterate.run.batch_rules.base import Resampling, rules
from lastiterate.run.loss import linear_gradients, quadratic_curvatures
from lastiterate.run.training_run import TrainingRun

_CURVATURES = 33
_MOST_STEPS = 200_000


def autoregression_lower_profile(
    slopes: Array,
    shifts: Array,
    noise_stds: Array,
    release_noise_std: float,
    rule: Participation,
    moves: Moves = (1.0, 0.0),
) -> LowerProfile:
    """The lower bounds from an instance with these slopes, rounded down.

    A participation moves a step by the shift, times one of `moves` in each world.
    """
    weights = np.append(np.cumprod(slopes[:0:-1])[::-1], 1.0)
    variance = float(((weights * noise_stds) ** 2).sum()) + release_noise_std**2
    shifts_over_deviation = down(weights * shifts / math.sqrt(variance), MILLIONS_OF_ROUNDINGS)
    if rule.by_chance and shifts_over_deviation.min() < 0.0:  # thresholds need not be good tests
        return MeansLowerProfile([1.0], [0.0])
    return rule.lower_profile(shifts_over_deviation, moves)


def quadratic_lower_bound(run: TrainingRun) -> BestLowerProfile:
    r"""The most exposed of the quadratics that the run's description admits.

    **Bound.** The exact curve of the instance above; for a shuffled order that of the mixture
    over its position, for sampled batches over the steps in which it takes part, by thresholds.

    **Holds when.** the domain is unbounded, and some quadratic has the stated smoothness, strong
    convexity and bound on gradients (where batches vary in size, one curved by the penalty alone).

    **Tight.** Exact for full batches with step sizes at most 2/(M + m).

    **Source.** Bok, Su and Altschuler 2024, Theorems 4.2 and C.17.

    **Computed as** the largest over a grid of curvatures; where chance decides, by the Fourier
    series of the law of the last iterate, steps of nearly equal weight being taken together;
    rounded down.
    """
    span = _curvatures(run)
    assert span is not None
    if unsteady(run) is None:
        return steady_profile(run, span)
    if run.steps > _MOST_STEPS and run.is_constant and run.batches.period is not None:
        return BestLowerProfile(tuple(_endless_profiles(run, span, run.batches.period)))
    low, high = span
    shortest = 1.0 / float(np.max(run.step_size))
    curvatures = {*np.linspace(low, high, _CURVATURES).tolist(), low, high}
    if low <= shortest <= high:
        curvatures.add(shortest)
    profiles = tuple(_profile(run, curvature) for curvature in sorted(curvatures))
    return BestLowerProfile(tuple(profile for profile in profiles if profile is not None))


def _endless_profiles(
    run: TrainingRun, curvatures: tuple[float, float], period: int
) -> Iterator[LowerProfile]:
    """The last position of a fixed order, by sums of powers: of curvatures that never overshoot."""
    step = float(np.max(run.step_size))
    for curvature in np.linspace(*curvatures, _CURVATURES).tolist():
        gap = step * curvature
        if 0.0 <= gap < 1.0:
            visits = geometric.sum_of_powers(
                period * geometric.log_of(gap), -(-run.steps // period)
            )
            mean = seen_together(run) * shift_over_deviation(run, gap) * visits
            yield MeansLowerProfile([1.0], [down(mean, MILLIONS_OF_ROUNDINGS)])
    yield MeansLowerProfile([1.0], [0.0])


def _profile(run: TrainingRun, curvature: float) -> LowerProfile | None:
    etas = quantities.every_step(quantities.step_sizes(run), run.steps)[-_MOST_STEPS:]
    factors = 1.0 - etas * curvature
    sigmas = quantities.every_step(np.atleast_1d(np.array(run.noise_std)), run.steps)[-etas.size :]
    with np.errstate(over="ignore", invalid="ignore"):
        reach = np.append(np.cumprod(factors[:0:-1])[::-1], 1.0)  # of step k at the end
        variance = float(np.sum((etas * sigmas * reach) ** 2)) + run.release_noise_std**2
    if run.steps > etas.size:
        # Earlier steps have added no more variance than this, and their shifts are left out.
        variance += _earlier_variance(run, float(np.max(np.abs(factors))), float(reach[0] ** 2))
    if not (0.0 < variance < math.inf):
        return None
    each = seen_together(run) * run.sensitivity / run.batches.batch_size
    shifts = etas * each * reach / math.sqrt(variance)
    shifts = down(shifts, MILLIONS_OF_ROUNDINGS)
    if run.batches.resampling is Resampling.EACH_FEW_EPOCHS:
        (gradients,) = linear_gradients(run)
        if shifts.min() < 0.0 or run.steps > shifts.size:  # thresholds need not be good tests
            return None
        moves = gradients.moves(exact_size=run.batches.exact_size)
        return participation(run).lower_profile(shifts, moves)
    law = _means(run, shifts)
    return None if law is None else MeansLowerProfile(*law)


def _earlier_variance(run: TrainingRun, largest: float, last: float) -> float:
    if largest > 1.0:
        return math.inf
    most = float(np.max(np.array(run.step_size) * np.max(run.noise_std))) ** 2
    count = run.steps - _MOST_STEPS
    kept = largest * largest
    return last * most * (count if kept == 1.0 else min(count, 1.0 / (1.0 - kept)))


def _means(run: TrainingRun, shifts: Array) -> tuple[list[float], list[float]] | None:
    """How likely each distance between the means is; None where signs make them cancel."""
    rule, first = run.batches, run.steps - shifts.size
    if rule.resampling is not Resampling.NEVER and not np.all(shifts >= 0.0):
        return None
    if rule.resampling is Resampling.EACH_STEP:
        # Earlier participations than those at hand only add to the distance.
        return law_of_sum(shifts, probability_of_a_step(rule))
    means = _means_by_position(run, shifts, first)
    if rule.resampling is Resampling.NEVER:
        return [1.0], [max(means)]
    if rule.resampling is not Resampling.ONCE:
        raise ValueError(f"no law of the positions of {rule!r} is known")
    rest = max(0.0, 1.0 - rule.share * len(means))
    shares = [*([rule.share] * len(means)), rest]
    return [down(share, MILLIONS_OF_ROUNDINGS) for share in shares], [*means, 0.0]


def _means_by_position(run: TrainingRun, shifts: Array, first: int) -> list[float]:
    """The distance for each position that is seen from step `first` on."""
    period = run.batches.period
    if period is not None:
        # Not every step before has to be listed, nor every position.
        sums = np.bincount(np.arange(shifts.size) % period, shifts)
        return [abs(float(one)) for one in sums]
    late = (pattern[pattern >= first] - first for pattern in quantities.patterns(run))
    return [abs(float(np.sum(shifts[pattern]))) for pattern in late]


def _curvatures(run: TrainingRun) -> tuple[float, float] | None:
    """The admitted curvatures, or None; for batches of unknown size the penalty's alone."""
    span, penalty = quadratic_curvatures(run), run.loss.regulariser
    if span is None or run.batches.exact_size:
        return span
    return (penalty, penalty) if span[0] <= penalty <= span[1] else None


def _no_quadratic(run: TrainingRun) -> str | None:
    return None if _curvatures(run) is not None else "none"


def _no_law(run: TrainingRun) -> str | None:
    """The reason why schedules or expanding steps leave the law of positions unknown, or None."""
    reason = unsteady(run)
    if reason is None or run.batches.resampling is Resampling.NEVER:
        return None
    if run.batches.resampling is Resampling.EACH_FEW_EPOCHS and run.steps <= _MOST_STEPS:
        return None
    if run.batches.resampling is Resampling.EACH_EPOCH or not run.batches.exact_size:
        return f"{reason} with batches {run.batches.in_words}"
    return f"{reason} of {run.steps} steps" if run.steps > _MOST_STEPS else None


LOWER_BOUNDS = (
    LowerBound(
        id="lower/quadratic",
        gives="the exact privacy of the most exposed quadratics",
        covers=rules(*Resampling),
        needs=(
            conditions.UNBOUNDED,
            Hypothesis(
                "a quadratic that the description admits",
                _no_quadratic,
                "state all of the strong convexity as a regulariser, or no bound on gradients",
            ),
            Hypothesis(
                "constant steps on convex losses, or a law of the positions that few draws decide",
                _no_law,
                "keep step_size and noise_std fixed",
            ),
        ),
        source=Citation(
            "Bok, Su and Altschuler",
            2024,
            "Shifted interpolation for differential privacy",
            "Theorems 4.2 and C.17",
        ),
        evaluate=quadratic_lower_bound,
        gradients=linear_gradients,
    ),
)
