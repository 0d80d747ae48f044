r"""Lower bounds from runs that can be solved: quadratic losses, whose iterates are Gaussian.

All examples but one have the loss :math:`\frac\kappa2|x|^2 + \langle g, x\rangle`; the one is
replaced by :math:`\frac\kappa2|x|^2 + \langle g - Lv, x\rangle`.  With
:math:`c_j = 1 - \eta_j\kappa` the last iterates are Gaussian with the same variance,

.. math:: \sum_k (\eta_k\sigma_k)^2 \prod_{j>k} c_j^2 + \rho^2, \qquad
          \text{their means apart by } \sum_k V_k \frac{\eta_k L}{b} \prod_{j>k} c_j.

Every curvature that the run's description admits is a valid instance.  Where the curvature may be
another in every step, `drifting` has the same with other slopes c.

**Steady runs** have constant steps, batches that are drawn in secret, and losses of one curvature.
The example in question moves a step that sees it by :math:`g\,\eta L/b`, where g is `ours` in one
world and `theirs`, 1 less, in the other.  Every step keeps c = 1 - `gap` of the past, so that the
last iterate is Gaussian around :math:`g\,(\eta L/b) \sum c^{age}` over the steps that see it, and
these stay hidden.

**Admitted steps.** All examples share a loss; the one in question has another gradient, by the
sensitivity L, in the other world.  Where gradients are bounded (by a clip or a Lipschitz constant,
or since an example may be left out) that one's loss is linear, and only the others of its batch,
(b - 1)/b of the step, may be curved, as far as their gradients allow.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lastiterate._numerics.powers import log_of, sum_of_powers
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, Array, down, up
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Citation, Hypothesis, LowerBound
from lastiterate.errors import InvalidParameter
from lastiterate.lower_bounds.drawn_sums import (
    HiddenSteps,
    Moves,
    drawn_each_epoch,
    drawn_each_step,
    drawn_once,
    law_of_sum,
    threshold_profile,
)
from lastiterate.lower_bounds.participation import (
    Participation,
    left_out,
    participation,
    probability_of_a_step,
)
from lastiterate.profile.lower import BestLowerProfile, LowerProfile, MeansLowerProfile
from lastiterate.run.batch_rules.base import Resampling, rules
from lastiterate.run.loss import (
    gradient_reach,
    linear_gradients,
    local_curvatures,
    quadratic_curvatures,
)
from lastiterate.run.training_run import Ball, TrainingRun

_CURVATURES = 33
_MAX_STEPS = 200_000
_MAX_OTHER_GAPS = 3


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
    span = admitted_curvatures(run)
    assert span is not None
    if unsteady(run) is None:
        return steady_profile(run, span)
    if run.steps > _MAX_STEPS and run.is_constant and run.batches.period is not None:
        return BestLowerProfile(tuple(_endless_profiles(run, span, run.batches.period)))
    low, high = span
    shortest = 1.0 / float(np.max(run.step_size))
    curvatures = {*np.linspace(low, high, _CURVATURES).tolist(), low, high}
    if low <= shortest <= high:
        curvatures.add(shortest)
    profiles = tuple(_profile(run, curvature) for curvature in sorted(curvatures))
    return BestLowerProfile(tuple(profile for profile in profiles if profile is not None))


def admitted_curvatures(run: TrainingRun) -> tuple[float, float] | None:
    """The admitted curvatures, or None; for batches of unknown size the penalty's alone."""
    span, penalty = quadratic_curvatures(run), run.loss.regulariser
    if span is None or run.batches.exact_size:
        return span
    return (penalty, penalty) if span[0] <= penalty <= span[1] else None


def unsteady(run: TrainingRun) -> str | None:
    """Why a run is not one of these; None if it is."""
    rule = run.batches
    if rule.resampling is Resampling.NEVER:
        return "a fixed order"
    if rule.resampling is Resampling.EACH_FEW_EPOCHS:
        return "steps of several epochs that are drawn together"
    if not run.is_constant:
        return "a schedule"
    if not run.loss.convex:
        return "convex=False"
    if rule.resampling is Resampling.ONCE and rule.period != rule.batches_per_epoch:
        return "positions that return at different times"
    return None


def steady_profile(run: TrainingRun, curvatures: tuple[float, float]) -> BestLowerProfile:
    """The most exposed curvature between these: the least, or one that erases earlier steps."""
    step = float(run.step_size)  # type: ignore[arg-type]  # no schedule
    least, most = (min(step * one, 1.0) for one in curvatures)
    gaps = {least, *(max(most * 10.0**-k, least) for k in range(_MAX_OTHER_GAPS))}
    profiles = []
    for gap in sorted(gaps) if most > least else [least]:
        whole, unit = hidden_steps(run, gap).whole, shift_over_deviation(run, gap)
        for gradients in linear_gradients(run):
            ours, theirs = gradients.moves(exact_size=run.batches.exact_size)
            profiles.append(threshold_profile(whole, unit * ours, unit * theirs))
    return BestLowerProfile(tuple(profiles))


def hidden_steps(run: TrainingRun, gap: float) -> HiddenSteps:
    """The steps that see an example, with the weight that each has in the end."""
    rule, length = run.batches, run.batches.batches_per_epoch
    if rule.resampling is Resampling.EACH_STEP:
        return drawn_each_step(gap, run.steps, probability_of_a_step(rule))
    draw = {Resampling.ONCE: drawn_once, Resampling.EACH_EPOCH: drawn_each_epoch}[rule.resampling]
    return draw(gap, run.steps, length, (1.0 - left_out(rule)) / length)


def shift_over_deviation(run: TrainingRun, gap: float) -> float:
    """(eta L/b) over the standard deviation of the last iterate, rounded down."""
    step, noise = float(run.step_size), float(run.noise_std)  # type: ignore[arg-type]  # no schedule
    log_c = log_of(gap)
    squares = up(sum_of_powers(2.0 * log_c, run.steps), MILLIONS_OF_ROUNDINGS)
    deviation = math.hypot(step * noise * math.sqrt(squares), run.release_noise_std)
    return down(step * run.sensitivity / run.batches.batch_size / deviation, MILLIONS_OF_ROUNDINGS)


def _endless_profiles(
    run: TrainingRun, curvatures: tuple[float, float], period: int
) -> Iterator[LowerProfile]:
    """The last position of a fixed order, by sums of powers: of curvatures that never overshoot."""
    step = float(np.max(run.step_size))
    for curvature in np.linspace(*curvatures, _CURVATURES).tolist():
        gap = step * curvature
        if 0.0 <= gap < 1.0:
            visits = sum_of_powers(period * log_of(gap), -(-run.steps // period))
            mean = seen_together(run) * shift_over_deviation(run, gap) * visits
            yield MeansLowerProfile([1.0], [down(mean, MILLIONS_OF_ROUNDINGS)])
    yield MeansLowerProfile([1.0], [0.0])


def _profile(run: TrainingRun, curvature: float) -> LowerProfile | None:
    """The lower bound from quadratics of this curvature; None where it says nothing."""
    etas = quantities.every_step(quantities.step_sizes(run), run.steps)[-_MAX_STEPS:]
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
    """The most variance that steps before the last `_MAX_STEPS` leave; inf where steps expand."""
    if largest > 1.0:
        return math.inf
    most = float(np.max(np.array(run.step_size) * np.max(run.noise_std))) ** 2
    count = run.steps - _MAX_STEPS
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


@dataclass(frozen=True)
class Admitted:
    """The maps and shifts that a run's description admits; arrays have an entry for each step.

    `gentlest` and `steepest` are the least and largest slope of a step without the example, and
    `plain` is the slope by the regulariser alone.  `share` is the part of a batch that keeps its
    curvature when the example joins.  `bound` is the largest gradient norm, and `drift` the largest
    gradient that all other examples may share.  `has_instances` says whether any instance exists;
    the example's loss is linear where gradients are bounded.
    """

    step_sizes: Array
    noise_stds: Array
    shifts: Array
    gentlest: Array
    steepest: Array
    plain: Array
    share: float
    bound: float
    drift: float
    may_be_left_out: bool
    domain: tuple[float, float] | None
    sensitivity: float
    has_instances: bool

    @property
    def is_free(self) -> bool:
        """Whether nothing bounds the iterates' way or the gradients, so that slopes may drift."""
        return self.domain is None and math.isinf(self.bound)

    @property
    def has_one_curvature(self) -> bool:
        """Whether all losses are equally curved, and everywhere."""
        return np.array_equal(self.gentlest, self.steepest)

    def moves_alone(self) -> tuple[float, float]:
        """The moves of a step by the example in each world, in shifts, if all others are alike."""
        if self.drift > 0.0 or self.may_be_left_out or math.isinf(self.bound):
            return 0.0, 1.0
        return -self.bound / self.sensitivity, 1.0 - self.bound / self.sensitivity

    def own_move(self, k: int, push: float) -> float:
        """How far the example, in the first world, moves step k beyond the others of its batch.

        The others are pushed by `push`; in the second world it moves by the shift more.
        """
        if math.isinf(self.bound):
            return 0.0
        most = self.bound * float(self.shifts[k]) / self.sensitivity
        like_others = push * (1.0 - self.share)
        if self.may_be_left_out:
            return -like_others
        return min(max(like_others, -most), most - float(self.shifts[k])) - like_others


def admitted(run: TrainingRun) -> Admitted:
    """The steps that obey the description, or as many of them as are known."""
    if not run.has_plain_steps:
        raise InvalidParameter(
            "run", run, must_be="one of plain steps whose last iterate is published"
        )
    etas = np.broadcast_to(np.asarray(run.step_size, dtype=float), (run.steps,))
    together = seen_together(run)
    size, penalty = run.batches.batch_size, run.loss.regulariser
    limit = gradient_reach(run)
    bounded = math.isfinite(limit)
    span = local_curvatures(run)
    linear = span is not None and span[0] <= penalty
    sized = run.batches.exact_size  # how curved a batch of unknown size is, is unknown too
    low, high = span if span is not None and sized else (penalty, penalty)
    half = run.domain.diameter / 2.0 if isinstance(run.domain, Ball) else math.inf
    return Admitted(
        step_sizes=etas,
        noise_stds=etas * np.asarray(run.noise_std, dtype=float),
        shifts=etas * (together * run.sensitivity) / size,
        gentlest=1.0 - etas * high,
        steepest=1.0 - etas * low,
        plain=1.0 - etas * penalty,
        share=(size - together) / size if bounded else 1.0,
        bound=limit,
        drift=limit if sized else 0.0,
        may_be_left_out=run.adjacency == "zero-out",
        domain=None if math.isinf(half) else (-half, half),
        sensitivity=run.sensitivity,
        has_instances=linear if bounded or not sized else span is not None,
    )


def seen_together(run: TrainingRun) -> int:
    """How many of a person's examples a batch that has one may have, in every step that does.

    All of them in a fixed order, if a batch has room.  Where chance decides one is enough to be
    a valid instance.
    """
    if run.batches.resampling is not Resampling.NEVER:
        return 1
    return min(run.examples_per_person, run.batches.batch_size)


def with_those_seen_together(run: TrainingRun) -> TrainingRun:
    """The run with no more examples a person than a batch can have of them."""
    return run.replace(examples_per_person=seen_together(run))


def _no_quadratic(run: TrainingRun) -> str | None:
    return None if admitted_curvatures(run) is not None else "none"


def _no_law(run: TrainingRun) -> str | None:
    """The reason why schedules or expanding steps leave the law of positions unknown, or None."""
    reason = unsteady(run)
    if reason is None or run.batches.resampling is Resampling.NEVER:
        return None
    if run.batches.resampling is Resampling.EACH_FEW_EPOCHS and run.steps <= _MAX_STEPS:
        return None
    if run.batches.resampling is Resampling.EACH_EPOCH or not run.batches.exact_size:
        return f"{reason} with batches {run.batches.in_words}"
    return f"{reason} of {run.steps} steps" if run.steps > _MAX_STEPS else None


A_QUADRATIC = Hypothesis(
    "a quadratic that the description admits",
    _no_quadratic,
    "state all of the strong convexity as a regulariser, or no bound on gradients",
)
LOWER_BOUNDS = (
    LowerBound(
        id="lower/quadratic",
        gives="the exact privacy of the most exposed quadratics",
        covers=rules(*Resampling),
        needs=(
            conditions.UNBOUNDED,
            A_QUADRATIC,
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
