r"""Lower bounds from runs that can be solved: quadratic losses, whose iterates are Gaussian.

All examples but one have the loss :math:`\frac\kappa2|x|^2 + \langle g, x\rangle`; the one is
replaced by :math:`\frac\kappa2|x|^2 + \langle g - Lv, x\rangle`.  With
:math:`c_j = 1 - \eta_j\kappa` the last iterates are Gaussian with the same variance,

.. math:: \sum_k (\eta_k\sigma_k)^2 \prod_{j>k} c_j^2 + \rho^2, \qquad
          \text{their means apart by } \sum_k V_k \frac{\eta_k L}{b} \prod_{j>k} c_j.

Every curvature that the run's description admits is a valid instance.
"""

import math

import numpy as np
import scipy

from lastiterate._numerics.arrays import Array
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, down, ulps
from lastiterate.bounds import quantities
from lastiterate.bounds.bound import Citation, Hypothesis, LowerBound
from lastiterate.profile.lower import BestLowerProfile, MeansLowerProfile
from lastiterate.run.batches import (
    Cyclic,
    FixedOrder,
    FullBatch,
    SampledWithoutReplacement,
    ShuffledOnce,
)
from lastiterate.run.domain import Ball
from lastiterate.run.training_run import TrainingRun

_CURVATURES = 33
_MOST_STEPS = 200_000
_CELLS_TO_A_TERM = 64
_MOST_CELLS = 1 << 17
_MOST_MEANS = 400


def admitted_curvatures(run: TrainingRun) -> tuple[float, float] | None:
    """The least and largest curvature of quadratic losses that obey the description, or None.

    Beyond the regulariser a loss must be linear where its gradient is bounded, or Hoelder of an
    order below 1, or where the example may be left out altogether.
    """
    loss, longest = run.loss, float(np.max(run.step_size))
    linear = run.gradient_bound is not None or run.adjacency == "zero-out"
    rough = loss.holder is not None and loss.holder[1] < 1.0
    if linear or rough:
        low = high = 0.0
        if loss.convex and loss.strong_convexity > loss.regulariser:
            return None
    else:
        known = [] if loss.smoothness is None else [loss.smoothness - loss.regulariser]
        known += [] if loss.holder is None else [loss.holder[0]]
        high = min(known, default=1.0 / longest)
        low = max(loss.strong_convexity - loss.regulariser, 0.0) if loss.convex else -high
        if not low <= high:
            return None
    return low + loss.regulariser, high + loss.regulariser


def quadratic_lower_bound(run: TrainingRun) -> BestLowerProfile:
    r"""The most exposed of the quadratics that the run's description admits.

    **Bound.** The exact curve of the instance above; for a shuffled order that of the mixture
    over its place, for sampled batches over the steps in which it takes part, each by thresholds.

    **Holds when.** the domain is unbounded, and some quadratic has the stated smoothness, strong
    convexity and bound on gradients.

    **Tight.** Exact for full batches with step sizes at most 2/(M + m).

    **Source.** Bok, Su and Altschuler 2024, Theorems 4.2 and C.17.

    **Computed as** the largest over a grid of curvatures; rounded down.
    """
    span = admitted_curvatures(run)
    assert span is not None
    low, high = span
    shortest = 1.0 / float(np.max(run.step_size))
    curvatures = {*np.linspace(low, high, _CURVATURES).tolist(), low, high}
    if low <= shortest <= high:
        curvatures.add(shortest)
    profiles = tuple(_profile(run, curvature) for curvature in sorted(curvatures))
    return BestLowerProfile(tuple(profile for profile in profiles if profile is not None))


def _profile(run: TrainingRun, curvature: float) -> MeansLowerProfile | None:
    etas = quantities.every_step(quantities.step_sizes(run), run.steps)[-_MOST_STEPS:]
    factors = 1.0 - etas * curvature
    sigmas = quantities.every_step(np.atleast_1d(np.array(run.noise_std)), run.steps)[-etas.size :]
    with np.errstate(over="ignore", invalid="ignore"):
        reach = np.append(np.cumprod(factors[:0:-1])[::-1], 1.0)  # of step k at the end
        variance = float(np.sum((etas * sigmas * reach) ** 2)) + run.release_noise_std**2
    if run.steps > etas.size:
        # Earlier steps have added no more variance than this, and their arrivals are left out.
        variance += _earlier_variance(run, float(np.max(np.abs(factors))), float(reach[0] ** 2))
    if not (0.0 < variance < math.inf):
        return None
    shifts = etas * (run.sensitivity / run.batches.batch_size) * reach / math.sqrt(variance)
    weights, means = _means(run, down(shifts, MILLIONS_OF_ROUNDINGS))
    return None if weights is None else MeansLowerProfile(weights, means)


def _earlier_variance(run: TrainingRun, largest: float, last: float) -> float:
    if largest > 1.0:
        return math.inf
    most = float(np.max(np.array(run.step_size) * np.max(run.noise_std))) ** 2
    count = run.steps - _MOST_STEPS
    kept = largest * largest
    return last * most * (count if kept == 1.0 else min(count, 1.0 / (1.0 - kept)))


def _means(run: TrainingRun, shifts: Array) -> tuple[list[float] | None, list[float]]:
    """How likely each distance between the means is."""
    rule, steps = run.batches, run.steps
    first = steps - shifts.size
    if isinstance(rule, SampledWithoutReplacement):
        probability = rule.batch_size / rule.examples
        if not np.all(shifts >= 0.0):
            return None, []
        # Earlier participations than those at hand only add to the distance.
        return law_of_sum(shifts, probability)
    patterns = [pattern[pattern >= first] - first for pattern in quantities.patterns(run)]
    means = [abs(float(np.sum(shifts[pattern]))) for pattern in patterns]
    if not isinstance(rule, ShuffledOnce):
        return [1.0], [max(means)]
    if not np.all(shifts >= 0.0):
        return None, []
    share = rule.batch_size / rule.examples
    rest = max(0.0, 1.0 - share * len(means))
    weights = [down(x, MILLIONS_OF_ROUNDINGS) for x in (*([share] * len(means)), rest)]
    return weights, [*means, 0.0]


def law_of_sum(terms: Array, probability: float) -> tuple[list[float], list[float]]:
    """Chances and values of the sum of those terms that are drawn, each with this probability.

    All rounded down: the terms to a grid, a sum that does not fit by wrapping around, and in the
    end sums to the least of a group.
    """
    all_but = down(1.0, MILLIONS_OF_ROUNDINGS)
    if probability == 1.0:
        return [all_but], [math.fsum(terms) * all_but]
    largest, total = float(terms.max()), float(terms.sum())
    spread = math.sqrt(probability * float(terms @ terms))
    most = min(total, probability * total + 12.0 * spread + 40.0 * largest)
    if not largest > 0.0:
        return [all_but], [0.0]
    width = largest / max(1, min(_CELLS_TO_A_TERM, int(_MOST_CELLS * largest / most)))
    sizes, counts = np.unique((terms / width).astype(np.int64), return_counts=True)
    cells = scipy.fft.next_fast_len(int(most / width) + 2, real=True)
    angles = (-2j * math.pi / cells) * np.arange(cells // 2 + 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = [
            n * np.log1p(probability * np.expm1(angles * k))
            for k, n in zip(sizes, counts, strict=True)
        ]
    # Of the angles and logarithms, and hence of the transform.
    rounding = ulps(4) * (terms.size + 64.0) * math.pi * _CELLS_TO_A_TERM
    law = scipy.fft.irfft(np.nan_to_num(np.exp(sum(logs))), cells) - rounding
    likely = np.flatnonzero(law > 0.0)
    groups = np.array_split(likely, min(_MOST_MEANS, likely.size))
    return [float(law[g].sum()) for g in groups], [float(g[0]) * width * all_but for g in groups]


def _bounded(run: TrainingRun) -> str | None:
    return f"{run.domain!r}" if isinstance(run.domain, Ball) else None


def _no_quadratic(run: TrainingRun) -> str | None:
    return None if admitted_curvatures(run) is not None else "none"


def _endless_sampling(run: TrainingRun) -> str | None:
    sampled = isinstance(run.batches, (SampledWithoutReplacement, ShuffledOnce))
    return f"steps={run.steps}" if sampled and run.steps > _MOST_STEPS else None


BOUNDS = (
    LowerBound(
        id="lower/quadratic",
        gives="the exact privacy of the most exposed quadratics",
        covers=(FullBatch, Cyclic, FixedOrder, SampledWithoutReplacement, ShuffledOnce),
        needs=(
            Hypothesis("an unbounded domain", _bounded, "see published/bok-su-altschuler"),
            Hypothesis(
                "a quadratic that the description admits",
                _no_quadratic,
                "state all of the strong convexity as a regulariser, or no bound on gradients",
            ),
            Hypothesis(f"at most {_MOST_STEPS} steps", _endless_sampling, "shorten the run"),
        ),
        source=Citation(
            "Bok, Su and Altschuler",
            2024,
            "Shifted interpolation for differential privacy",
            "Theorems 4.2 and C.17",
        ),
        evaluate=quadratic_lower_bound,
    ),
)
