r"""Iterates that drift past changing curvature: the instances that expose most.

**Instances.** All examples share one loss on the line, whose gradient is so large that in every
step the iterate travels much farther than noise ever carries it.  Where it is at step k is then
known, so the curvature that it meets may be any admitted one, another in every step: the factor
:math:`a_k = 1 - \eta_k\kappa_k` is free between :math:`1 - \eta_k M` and :math:`1 - \eta_k m`.  One
of the two examples has a further linear term, of slope L or, so that nothing cancels where factors
are negative, -L by turns (it bends where there is room).  Deviations from the way are a Gaussian
autoregression; with :math:`w_k = \prod_{j>k}|a_j|` the last iterates are Gaussian and apart by

.. math:: \mu(w) = \frac{\sum_k w_k s_k}{\sqrt{\sum_k (w_k\eta_k\sigma_k)^2 + \rho^2}},
          \qquad s_k = V_k\eta_k\frac Lb .

**Why it is exact.** Where a factor of 0 is admitted (:math:`\eta M \ge 1`), w is any sequence that
ends with 1 and has :math:`0 \le w_k \le c_{k+1} w_{k+1}`, c the largest factor in size.  In units
of the end these are the non-decreasing sequences, a convex cone, and the largest :math:`\mu(w)` is
the norm of the projection of the sensitivities onto it: their isotonic regression.  Its norm is
the cost of the best shifts in `shifts.optimal_shifts`.
"""

import math
from itertools import accumulate

import numpy as np
import scipy

from lastiterate._numerics.isotonic import isotonic, pooled_logs
from lastiterate._numerics.rounding import (
    MILLIONS_OF_ROUNDINGS,
    Array,
    IntArray,
    down,
    suffix_products,
    suffix_sums,
)
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Citation, Hypothesis, LowerBound
from lastiterate.lower_bounds.line import Step, linear
from lastiterate.lower_bounds.quadratics import Admitted, with_those_seen_together
from lastiterate.profile.lower import MeansLowerProfile
from lastiterate.run.batch_rules.base import Resampling, rules
from lastiterate.run.loss import linear_gradients, quadratic_curvatures
from lastiterate.run.training_run import TrainingRun

_MAX_STEPS = 1_000_000
_MAX_ENTRIES = 2_000_000  # steps times positions
_LARGEST_LOG_SQUARE = 600.0  # logarithm of a square that is told from a larger one
_POWERS = (1.0, 0.75, 0.5, 0.25, 0.0)
_NEGLIGIBLE_WEIGHT = 1e-12  # earlier steps weigh less
_MAX_SEARCHED_STEPS = 5_000


def drifting_lower_bound(run: TrainingRun) -> MeansLowerProfile:
    r"""The most exposed of the drifting instances that the run's description admits.

    **Bound.** :math:`\mu(w)` as above, w the isotonic regression of the sensitivities where that is
    admitted.

    **Holds when.** the order is fixed, nothing bounds single gradients, one example is replaced by
    another, and the domain is unbounded.

    **Tight.** Equal to `fixed-order/convex` and, for smooth losses, to
    `fixed-order/non-convex` where :math:`\eta M \ge 1`: there these cannot be improved without
    knowing more of the losses.

    **Source.** This library; the upper bounds' is Bok, Su and Altschuler 2024, Theorem C.3.

    **Computed as** isotonic regression (where some of the past must be kept, of powers of it,
    raised as needed), for the positions seen last, by logarithms where steps expand; rounded
    down.
    """
    run, span = with_those_seen_together(run), quadratic_curvatures(run)
    assert span is not None
    factors = 1.0 - quantities.step_sizes(run)[:, None] * np.array(span)
    largest = np.abs(factors).max(axis=1)
    crossed = (factors.min(axis=1) <= 0.0) & (factors.max(axis=1) >= 0.0)
    least = np.where(crossed, 0.0, np.abs(factors).min(axis=1))
    release = quantities.release_noise(run) ** 2
    if not least.any() and largest.min() > 1.0 and float(quantities.noises(run).min()) > 0.0:
        return MeansLowerProfile([1.0], [_mu_of_expanding(run, np.log(largest), release)])
    with np.errstate(all="ignore"):
        reach = suffix_products(quantities.every_step(largest, run.steps))
        sensitivities = reach * quantities.every_step(quantities.sensitivities(run), run.steps)
        noise = np.square(reach * quantities.every_step(quantities.noises(run), run.steps))
    if not (np.isfinite(sensitivities).all() and np.isfinite(noise).all()):
        return MeansLowerProfile([1.0], [0.0])
    kept = np.divide(least, largest, out=np.ones(least.size), where=largest > 0.0)
    kept = quantities.every_step(kept, run.steps)
    latest = _latest_patterns(run)
    mus = [_mu(seen, sensitivities[seen], noise, release, kept) for seen in latest]
    return MeansLowerProfile([1.0], [max(mus)])


def _latest_patterns(run: TrainingRun) -> list[IntArray]:
    """The steps of each position, those seen last first, as many as are evaluated."""
    most = max(1, _MAX_ENTRIES // run.steps)
    return sorted(quantities.patterns(run), key=lambda seen: -int(seen.max(initial=-1)))[:most]


def _mu_of_expanding(run: TrainingRun, growth: Array, release: float) -> float:
    """The mu of expanding steps, by logarithms, since early shifts grow beyond floating point.

    Every factor of 0 is admitted, so the regression is one, and each of its pools adds the square
    of what arrives in it over its noise.
    """
    growths = quantities.every_step(growth, run.steps)
    reach = np.append(suffix_sums(growths[1:]), 0.0)
    sensitivities = reach + np.log(quantities.every_step(quantities.sensitivities(run), run.steps))
    noise = 2.0 * (reach + np.log(quantities.every_step(quantities.noises(run), run.steps)))
    noise[-1] = np.logaddexp(noise[-1], math.log(release) if release > 0.0 else -math.inf)
    latest = _latest_patterns(run)
    squares = [_square_of_pools(sensitivities[seen], noise, seen) for seen in latest if seen.size]
    # Logarithms as large as these are known to fewer digits.
    kept = down(1.0, MILLIONS_OF_ROUNDINGS) - 1e-14 * float(np.abs(noise).max())
    return math.sqrt(max(squares, default=0.0)) * max(kept, 0.0)


def _square_of_pools(masses: Array, noise: Array, seen: IntArray) -> float:
    between = np.logaddexp.reduceat(noise, seen)
    pools = pooled_logs(zip(masses.tolist(), between.tolist(), strict=True))
    return math.fsum(
        math.exp(min(2.0 * mass - width, _LARGEST_LOG_SQUARE)) for mass, width, _ in pools
    )


def _mu(seen: IntArray, masses: Array, noise: Array, release: float, kept: Array) -> float:
    """mu of the best instance found, for masses in final units at the steps seen; rounded down.

    A step keeps at least `kept` of what was before.
    """
    weights = noise.copy()
    weights[-1] += release  # which has no factor of its own
    weights = np.maximum(weights, 1e-12 * weights.max())  # any sequence is a valid instance
    if not (weights.max() > 0.0 and seen.size):
        return 0.0
    between = np.add.reduceat(weights, seen)
    best = np.zeros(noise.size)
    best[seen[0] :] = np.repeat(
        isotonic(masses / between, between), np.diff(seen, append=noise.size)
    )
    found = 0.0
    for power in _POWERS if kept.any() else _POWERS[:1]:
        x = _raise_to_kept(best**power, kept)
        hidden = float(np.square(x) @ noise) + float(x[-1] ** 2) * release
        if hidden > 0.0:
            mu = float(x[seen] @ masses) / math.sqrt(hidden)
            found = max(found, down(mu, MILLIONS_OF_ROUNDINGS))
    return found


def _raise_to_kept(wanted: Array, kept: Array) -> Array:
    """The least sequence above this one that a step diminishes to no less than `kept`."""
    if not kept.any():
        return wanted
    earlier = zip(wanted[-2::-1].tolist(), kept[:0:-1].tolist(), strict=True)
    raised = accumulate(
        earlier, lambda x, step: max(step[0], step[1] * x), initial=float(wanted[-1])
    )
    return np.array(list(raised))[::-1]


def exposing_slopes(may: Admitted, seen: Array, release_noise_std: float) -> Array:
    """Slopes that tell participations in the steps `seen` (0 or 1 each) apart best."""
    crossed = (may.gentlest <= 0.0) & (may.steepest >= 0.0)
    least = np.where(crossed, 0.0, np.minimum(np.abs(may.gentlest), np.abs(may.steepest)))
    most = np.maximum(np.abs(may.steepest), np.abs(may.gentlest))
    weights = _isotonic_weights(most, may.shifts * seen, may.noise_stds**2, release_noise_std)
    slopes = np.array(most)
    # The slope of a step makes the weight of the step before it.
    ahead = weights[1:]
    wanted = np.divide(weights[:-1], ahead, out=np.ones_like(ahead), where=ahead > 0.0)
    slopes[1:] = np.clip(wanted, least[1:], most[1:])
    if least.max() > 0.0 and slopes.size <= _MAX_SEARCHED_STEPS:
        slopes = _improve_slopes(slopes, (least, most), may, seen, release_noise_std)
    return slopes


def _isotonic_weights(most: Array, masses: Array, variances: Array, release: float) -> Array:
    """The best weights, up to a factor, with w_k at most `most` of step k + 1 times w_{k+1}."""
    reach = np.append(np.cumprod(most[:0:-1])[::-1], 1.0)
    kept = np.flatnonzero(reach > _NEGLIGIBLE_WEIGHT * reach.max())[0]
    scale, mass, variance = reach[kept:], masses[kept:], variances[kept:]
    values, counts = scale * mass, scale**2 * variance
    if release > 0.0:
        values, counts = np.append(values, 0.0), np.append(counts, release**2)
    counts = np.maximum(counts, 1e-30 * counts.max())
    fitted = scipy.optimize.isotonic_regression(values / counts, weights=counts).x[: scale.size]
    if not fitted.max() > 0.0:
        return reach
    return np.concatenate([np.zeros(kept), scale * fitted / fitted.max()])


def _improve_slopes(
    slopes: Array, ends: tuple[Array, Array], may: Admitted, seen: Array, release: float
) -> Array:
    """Slopes improved by gradient ascent on the logarithm of mu, in their logarithms."""
    low, high = (np.log(np.maximum(end, 1e-12)) for end in ends)
    masses, variances = may.shifts * seen, may.noise_stds**2

    def descent(logs: Array) -> tuple[float, Array]:
        weights = np.exp(np.append(np.cumsum(logs[:0:-1])[::-1], 0.0))
        gap, variance = weights @ masses, weights**2 @ variances + release**2
        each = weights * masses / gap - weights**2 * variances / variance
        gradient = np.concatenate([[0.0], np.cumsum(each)[:-1]])
        return float(-math.log(gap) + math.log(variance) / 2.0), -gradient

    start = np.clip(np.log(np.maximum(slopes, 1e-12)), low, high)
    found = scipy.optimize.minimize(
        descent, start, jac=True, method="L-BFGS-B", bounds=list(zip(low, high, strict=True))
    )
    return np.asarray(np.clip(np.exp(found.x), *ends))


def drifting_steps(slopes: Array, may: Admitted) -> list[Step]:
    """The deviation from the way, or the iterate where there is none."""
    each = zip(slopes, may.shifts, may.noise_stds, strict=True)
    ours, theirs = may.moves_alone()
    return [
        Step(
            linear(slope),
            (linear(slope, ours * shift), linear(slope, theirs * shift)),
            float(noise),
        )
        for slope, shift, noise in each
    ]


def _bounded_or_rigid(run: TrainingRun) -> str | None:
    if run.adjacency != "replace":
        return f"adjacency={run.adjacency!r}"
    if run.gradient_bound is not None:
        return f"gradients of at most {run.gradient_bound!r}"
    span = quadratic_curvatures(run)
    if span is None:
        return f"{run.loss!r}"
    rigid = span[0] == span[1] and float(np.max(run.step_size)) * span[1] > 1.0
    return f"losses of a single curvature, {span[1]!r}" if rigid else None


LOWER_BOUNDS = (
    LowerBound(
        id="lower/drifting",
        gives="the exact privacy of iterates that drift past changing curvature",
        covers=rules(Resampling.NEVER, exact_size=True),
        needs=(
            conditions.UNBOUNDED,
            Hypothesis(
                "losses of any gradient and of more than one curvature, one example being replaced",
                _bounded_or_rigid,
                "see lower/quadratic",
            ),
            conditions.at_most_steps(_MAX_STEPS),
        ),
        source=Citation("lastiterate", 2026, "Tightness", "docs, tightness"),
        evaluate=drifting_lower_bound,
        gradients=linear_gradients,
    ),
)
