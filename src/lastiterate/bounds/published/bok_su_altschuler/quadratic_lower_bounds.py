r"""Bok, Su and Altschuler 2024: lower bounds for full batches and fixed orders.

Each exhibits losses that the run's description admits, in one dimension, and a test.
r = L/(b sigma), l = n // b, k = D b/(eta L).
"""

import math

import numpy as np
from scipy.special import ndtr

from lastiterate._numerics.geometric import contraction_power, geometric_sum
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, down
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Hypothesis, LowerBound
from lastiterate.bounds.published.bok_su_altschuler.paper import PAPER, cite
from lastiterate.bounds.quantities import sensitivity_over_noise
from lastiterate.profile.lower import MeansLowerProfile, OneTestLowerProfile
from lastiterate.run.batch_rules.rules import Cyclic, FullBatch
from lastiterate.run.domain import Ball
from lastiterate.run.training_run import TrainingRun


def bounded_lower_bound(run: TrainingRun) -> OneTestLowerProfile:
    r"""A walk that drifts to the right against one that does not, both kept in [-D/2, D/2].

    **Bound.** The test "x <= 0" has probability 1/2 without drift, and with it at most
    :math:`\min_R\ 2\bar\Phi\big(\frac{k - R}{w}\big) + \bar\Phi\big(\frac{R - k/2}{w}\big)`,
    :math:`w = \sqrt{Rl + h}/r` the walk's spread over the R last participations, in arrivals (h
    the noise on release, in steps): from the lowest point, the walk neither reaches the top
    nor stays below 0.

    **Holds when.** losses may be linear (not strongly convex, no regulariser), and iterates are
    projected onto a set of diameter D; full batches or a fixed order.  Where gradients are
    bounded by less than L, the others in a batch make up for the drift, so b >= 2.

    **Tight** to a constant factor of :math:`\mu`.

    **Source.** Theorem C.16.  Their constants are R = .8 k and Doob's inequality: any
    :math:`c_1 < \sqrt{.01/5.6}` and :math:`c_0 < c_1^2` small enough.  Here R is the best and
    Levy's inequality (the walk is symmetric) replaces Doob's.

    **Computed as** the least over R; rounded down.
    """
    length = run.batches.batches_per_epoch
    most = run.steps // length
    k = quantities.diameter(run) / float(quantities.sensitivities(run)[0])
    R = np.unique(np.clip(np.linspace(k / 2.0, k, 400).astype(np.int64), 1, most)).astype(float)
    released = (run.release_noise_std / (quantities.unit(run) * float(np.max(run.noise_std)))) ** 2
    spread = np.sqrt(R * length + released) / sensitivity_over_noise(run)
    missed = 2.0 * ndtr(-(k - R) / spread) + ndtr(-(R - k / 2.0) / spread)
    least = min(1.0, float(missed.min()) / down(1.0, MILLIONS_OF_ROUNDINGS) + 1e-300)
    return (
        OneTestLowerProfile(fpr=least, power=down(0.5, MILLIONS_OF_ROUNDINGS))
        if least < 0.5
        else _nothing()
    )


def _nothing() -> OneTestLowerProfile:
    return OneTestLowerProfile(fpr=1.0, power=1.0)


def cyclic_lower_bound(run: TrainingRun) -> MeansLowerProfile:
    r"""Quadratics of the least curvature, the example in the last batch.

    **Bound.** :math:`\mu = r\sqrt{\frac{1-c^{lE}}{1+c^{lE}}\frac{1-c^2}{(1-c^l)^2}}`, exactly.

    **Holds when.** quadratics of curvature m obey the description, :math:`\eta \le 2/(M+m)`,
    the domain is unbounded and epochs are whole.

    **Tight.** Exact for these losses.

    **Source.** Theorem C.17.

    **Computed as** printed, from 1 - c; rounded down.
    """
    gap = float(np.max(run.step_size)) * run.loss.strong_convexity
    whole, one = (
        geometric_sum(gap, run.steps),
        geometric_sum(gap, run.batches.batches_per_epoch),
    )
    square = whole * (2.0 - gap) / (1.0 + contraction_power(gap, run.steps)) / one**2
    return MeansLowerProfile(
        [1.0], [down(sensitivity_over_noise(run) * math.sqrt(square), MILLIONS_OF_ROUNDINGS)]
    )


def _no_room(run: TrainingRun) -> str | None:
    bound = run.gradient_bound
    if bound is None or bound >= run.sensitivity or run.batches.batch_size >= 2:
        return None
    return f"batch_size=1, gradients of at most {bound!r}"


def _too_early(run: TrainingRun) -> str | None:
    if not isinstance(run.domain, Ball):
        return None
    k = quantities.diameter(run) / float(quantities.sensitivities(run)[0])
    seen = run.steps // run.batches.batches_per_epoch
    return None if k >= 2.0 and k / 2.0 < seen else f"{seen} epochs for {k:.4g}"


LOWER_BOUNDS = (
    LowerBound(
        id=f"{PAPER}/bounded-lower",
        gives="a drifting walk in an interval",
        covers=(FullBatch, Cyclic),
        needs=(
            conditions.CONSTANT,
            conditions.NOISY,
            conditions.BOUNDED,
            conditions.MAY_BE_LINEAR,
            Hypothesis("room for a drift in the batch", _no_room, "use larger batches"),
            Hypothesis(
                "more than k/2 >= 1 epochs, k = diameter batch_size/(step_size sensitivity)",
                _too_early,
                "lengthen the run",
            ),
        ),
        source=cite("Theorem C.16"),
        evaluate=bounded_lower_bound,
    ),
    LowerBound(
        id=f"{PAPER}/cyclic-lower",
        gives="the exact privacy of quadratics in a fixed order",
        covers=(FullBatch, Cyclic),
        needs=(*conditions.SQUARES, conditions.BEST_STEP_AT_MOST, conditions.WHOLE_EPOCHS),
        source=cite("Theorem C.17"),
        evaluate=cyclic_lower_bound,
    ),
)
