r"""Bok, Su and Altschuler 2024: a lower bound for full batches and fixed orders.

It exhibits losses that the run's description admits, in one dimension.  r = L/(b sigma),
l = n // b.  (Their Theorem C.16, for bounded domains, is in `lower_bounds.drifting_walk`.)
"""

import math

import numpy as np

from lastiterate._numerics.powers import contraction_power, geometric_sum
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, down
from lastiterate.bounds import conditions
from lastiterate.bounds.bound import LowerBound
from lastiterate.bounds.published.bok_su_altschuler.paper import PAPER, cite
from lastiterate.bounds.quantities import sensitivity_over_noise
from lastiterate.profile.lower import MeansLowerProfile
from lastiterate.run.batch_rules.ordered import Cyclic, FullBatch
from lastiterate.run.loss import linear_gradients
from lastiterate.run.training_run import TrainingRun


def cyclic_lower_bound(run: TrainingRun) -> MeansLowerProfile:
    r"""The exact privacy of quadratics of the least curvature, the example in the last batch.

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


LOWER_BOUNDS = (
    LowerBound(
        id=f"{PAPER}/cyclic-lower",
        gives="the exact privacy of quadratics in a fixed order",
        covers=(FullBatch, Cyclic),
        needs=(*conditions.SQUARES, conditions.BEST_STEP_AT_MOST, conditions.WHOLE_EPOCHS),
        source=cite("Theorem C.17"),
        evaluate=cyclic_lower_bound,
        gradients=linear_gradients,
        listed_only=True,  # lower/quadratic
    ),
)
