r"""Bounded gradients: iterates that travel along a slope and meet curvature shortly before the end.

**Instances.** All other examples share a loss on the line.  Its gradient is -G, the bound, up to a
kink p.  From there it rises with slope :math:`\kappa` until it reaches G, or until a second kink
after the example's last participation, and stays constant.  The example's loss is linear: its
gradient is -G in one world and L more in the other.  Until it passes p the iterate keeps as much of
the past as the penalty allows; then every step erases :math:`\eta(\kappa + \lambda)` of it.

**Law.** If it were certain between which steps the iterate passes the kinks, the last iterates
would be Gaussian, of equal variances.  So they are, but for the probability that some iterate is on
the wrong side of a kink, which is bounded by the sum over all steps.  It is taken off the power of
every test and added to its false positives.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, down
from lastiterate.bounds import conditions
from lastiterate.bounds.bound import Citation, Hypothesis, LowerBound
from lastiterate.lower_bounds.admitted_maps import seen_together
from lastiterate.lower_bounds.kink_passages import KinkedLosses, Passage
from lastiterate.lower_bounds.linear_paths import MOMENTUM_OR_AVERAGE
from lastiterate.profile.lower import BestLowerProfile, MeansLowerProfile, PerturbedLowerProfile
from lastiterate.run.batch_rules.base import Resampling, rules
from lastiterate.run.loss import Gradients, gradient_reach, has_bounded_gradients, local_curvatures
from lastiterate.run.training_run import TrainingRun

_MOST_STEPS = 200_000
_QUICK_STEPS = 5_000  # of those whose later positions need not be the most exposed
_CURVATURES = (1.0, 0.9, 0.8, 0.65, 0.5, 0.3)  # of the largest
_LATEST = (1, 2, 4, 8, 16, 32, 64)  # positions, from the end


def late_curvature_lower_bound(run: TrainingRun) -> BestLowerProfile:
    r"""The most exposed of the instances whose iterates meet their curvature late.

    **Bound.** :math:`\delta_\mu(\varepsilon) - (1 + e^\varepsilon)\tau`.  With :math:`w_k` the
    effect of step k's gradient on the result, :math:`\mu = |\sum_k w_k s_k| / \sqrt{\sum_k (w_k
    \sigma_k)^2 + \rho^2}` over the steps that see the example, and :math:`\tau` is the probability
    that an iterate is on the wrong side of a kink.

    **Holds when.** the order is fixed, gradients are bounded, losses may be linear, and the domain
    is unbounded.  Momentum or an average of iterates is allowed.

    **Tight.** For plain short steps, to some parts in a thousand, if the kink is passed clearly.

    **Source.** This library.

    **Computed as** a search over the first curved step and the curvature; rounded down.
    """
    return BestLowerProfile(
        tuple(
            PerturbedLowerProfile(
                MeansLowerProfile([1.0], [down(passage.mu, MILLIONS_OF_ROUNDINGS)]), passage.lost
            )
            for passage in passages(run)
        )
    )


def passages(run: TrainingRun) -> Iterator[Passage]:
    """The passage of each position and curvature that is lost least."""
    for position in _positions(run):
        losses = KinkedLosses(run, position)
        for share in _CURVATURES:
            found = losses.passages(share * losses.largest_curvature)
            best = min(found, key=lambda passage: passage.lost, default=None)
            if best is not None and best.lost < 1.0:
                yield best


def _positions(run: TrainingRun) -> list[int]:
    """The position seen last; with momentum, which delays a step's effect, some others too."""
    count = run.batches.position_count(run.steps)
    latest = [int(run.batches.participations(k, run.steps).max(initial=-1)) for k in range(count)]
    order = sorted((k for k in range(count) if latest[k] >= 0), key=lambda k: -latest[k])
    if run.has_plain_steps:
        return order[:1]
    return [order[k - 1] for k in _LATEST if k <= len(order)]


def _gradients(run: TrainingRun) -> list[Gradients]:
    bound = gradient_reach(run) / run.sensitivity
    return [Gradients(-bound, 1.0 - bound, (-bound, bound))]


def _unbounded_gradients(run: TrainingRun) -> str | None:
    return None if has_bounded_gradients(run) else "gradients of any size"


def _no_curvature(run: TrainingRun) -> str | None:
    span, penalty = local_curvatures(run), run.loss.regulariser
    if span is None or not span[0] <= penalty:
        return f"{run.loss!r}"
    if not (span[1] > penalty and float(np.max(run.step_size)) * penalty < 1.0):
        return f"no curvature but the penalty's, {penalty!r}"
    return None


def _alone(run: TrainingRun) -> str | None:
    alone = seen_together(run) == run.batches.batch_size
    return f"batch_size={run.batches.batch_size}" if alone else None


LOWER_BOUNDS = (
    LowerBound(
        id="lower/late-curvature",
        gives="the privacy of iterates that meet curvature shortly before the end",
        covers=rules(Resampling.NEVER, exact_size=True),
        needs=(
            conditions.UNBOUNDED,
            Hypothesis(
                "a bound on gradients", _unbounded_gradients, "see lower/drifting for plain steps"
            ),
            Hypothesis(
                "losses that may be linear but for the penalty, and curved elsewhere",
                _no_curvature,
                "see lower/quadratic",
            ),
            Hypothesis("other examples in each batch", _alone, "see lower/quadratic"),
            MOMENTUM_OR_AVERAGE,
            conditions.at_most_steps(_MOST_STEPS),
        ),
        beyond_plain_steps=True,
        source=Citation("lastiterate", 2026, "Tightness", "docs, tightness"),
        evaluate=late_curvature_lower_bound,
        gradients=_gradients,
        quick=lambda run: run.has_plain_steps or run.steps <= _QUICK_STEPS,
    ),
)
