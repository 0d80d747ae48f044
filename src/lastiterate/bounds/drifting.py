r"""Lower bounds from iterates that drift past changing curvature.

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
the norm of the projection of the arrivals onto it: their isotonic regression, whose norm is the
price of the best shifts in `engine.shifts`.
"""

import math
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from lastiterate._numerics.arrays import Array
from lastiterate._numerics.pools import isotonic, pooled_logs
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, down
from lastiterate._numerics.sums import suffix_products, suffix_sums
from lastiterate.bounds import quantities
from lastiterate.bounds.bound import Citation, Hypothesis, LowerBound
from lastiterate.bounds.lower import admitted_curvatures
from lastiterate.profile.lower import MeansLowerProfile
from lastiterate.run.batches import Cyclic, FixedOrder, FullBatch
from lastiterate.run.domain import Ball
from lastiterate.run.training_run import TrainingRun

_MOST_STEPS = 1_000_000
_MOST_ENTRIES = 2_000_000  # steps times positions
_LARGEST = 600.0  # logarithm of a square that is told from a larger one
_POWERS = (1.0, 0.75, 0.5, 0.25, 0.0)


def drifting_lower_bound(run: TrainingRun) -> MeansLowerProfile:
    r"""The most exposed of the drifting instances that the run's description admits.

    **Bound.** :math:`\mu(w)` as above, w the isotonic regression of the arrivals where that is
    admitted.

    **Holds when.** the order is fixed, nothing bounds single gradients, one example is replaced by
    another, and the domain is unbounded.

    **Tight.** Equal to `fixed-order/contractive` and, for smooth losses, to
    `fixed-order/non-convex` where :math:`\eta M \ge 1`: there these cannot be improved without
    knowing more of the losses.

    **Source.** This library; the upper bounds' is Bok, Su and Altschuler 2024, Theorem C.3.

    **Computed as** isotonic regression (where some of the past must be kept, of powers of it,
    raised as needed), for the positions seen last, by logarithms where steps expand; rounded
    down.
    """
    span = admitted_curvatures(run)
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
        arrivals = reach * quantities.every_step(quantities.arrivals(run), run.steps)
        noise = np.square(reach * quantities.every_step(quantities.noises(run), run.steps))
    if not (np.isfinite(arrivals).all() and np.isfinite(noise).all()):
        return MeansLowerProfile([1.0], [0.0])
    kept = np.divide(least, largest, out=np.ones(least.size), where=largest > 0.0)
    kept = quantities.every_step(kept, run.steps)
    most = max(1, _MOST_ENTRIES // run.steps)
    latest = sorted(quantities.patterns(run), key=lambda seen: -int(seen.max(initial=-1)))[:most]
    mus = [_mu(seen, arrivals[seen], noise, release, kept) for seen in latest]
    return MeansLowerProfile([1.0], [max(mus)])


def _mu_of_expanding(run: TrainingRun, growth: Array, release: float) -> float:
    """By logarithms: what arrived long ago is larger at the end than floating point has numbers.

    Every factor of 0 is admitted, so the regression is one, and each of its pools adds the square
    of what arrives in it over its noise.
    """
    growths = quantities.every_step(growth, run.steps)
    reach = np.append(suffix_sums(growths[1:]), 0.0)
    arrivals = reach + np.log(quantities.every_step(quantities.arrivals(run), run.steps))
    noise = 2.0 * (reach + np.log(quantities.every_step(quantities.noises(run), run.steps)))
    noise[-1] = np.logaddexp(noise[-1], math.log(release) if release > 0.0 else -math.inf)
    most = max(1, _MOST_ENTRIES // run.steps)
    latest = sorted(quantities.patterns(run), key=lambda seen: -int(seen.max(initial=-1)))[:most]
    squares = [_square_of_pools(arrivals[seen], noise, seen) for seen in latest if seen.size]
    # Logarithms as large as these are known to fewer digits.
    kept = down(1.0, MILLIONS_OF_ROUNDINGS) - 1e-14 * float(np.abs(noise).max())
    return math.sqrt(max(squares, default=0.0)) * max(kept, 0.0)


def _square_of_pools(masses: Array, noise: Array, seen: NDArray[np.intp]) -> float:
    between = np.logaddexp.reduceat(noise, seen)
    pools = pooled_logs(zip(masses.tolist(), between.tolist(), strict=True))
    return math.fsum(math.exp(min(2.0 * mass - width, _LARGEST)) for mass, width, _ in pools)


def _mu(seen: NDArray[np.intp], masses: Array, noise: Array, release: float, kept: Array) -> float:
    """Of what arrives in the steps seen, in units of the end.

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
        x = _raised(best**power, kept)
        hidden = float(np.square(x) @ noise) + float(x[-1] ** 2) * release
        if hidden > 0.0:
            mu = float(x[seen] @ masses) / math.sqrt(hidden)
            found = max(found, down(mu, MILLIONS_OF_ROUNDINGS))
    return found


def _raised(wanted: Array, kept: Array) -> Array:
    """The least sequence above this one that a step diminishes to no less than `kept`."""
    if not kept.any():
        return wanted
    earlier = zip(wanted[-2::-1].tolist(), kept[:0:-1].tolist(), strict=True)
    raised = accumulate(
        earlier, lambda x, step: max(step[0], step[1] * x), initial=float(wanted[-1])
    )
    return np.array(list(raised))[::-1]


def _bounded_gradients(run: TrainingRun) -> str | None:
    if run.adjacency != "replace":
        return f"adjacency={run.adjacency!r}"
    if run.gradient_bound is not None:
        return f"gradients of at most {run.gradient_bound!r}"
    span = admitted_curvatures(run)
    if span is None:
        return f"{run.loss!r}"
    rigid = span[0] == span[1] and float(np.max(run.step_size)) * span[1] > 1.0
    return f"losses of a single curvature, {span[1]!r}" if rigid else None


def _bounded(run: TrainingRun) -> str | None:
    return f"{run.domain!r}" if isinstance(run.domain, Ball) else None


def _long(run: TrainingRun) -> str | None:
    return f"steps={run.steps}" if run.steps > _MOST_STEPS else None


BOUNDS = (
    LowerBound(
        id="lower/drifting",
        gives="the exact privacy of iterates that drift past changing curvature",
        covers=(FullBatch, Cyclic, FixedOrder),
        needs=(
            Hypothesis("an unbounded domain", _bounded, "see published/bok-su-altschuler"),
            Hypothesis(
                "losses of any gradient and of more than one curvature, one example being replaced",
                _bounded_gradients,
                "see lower/quadratic",
            ),
            Hypothesis(f"at most {_MOST_STEPS} steps", _long, "shorten the run"),
        ),
        source=Citation("lastiterate", 2026, "Tightness", "docs, tightness"),
        evaluate=drifting_lower_bound,
    ),
)
