r"""Altschuler and Talwar 2022: amplification by iteration, for batches in a fixed order.

Their noise is this library's sigma, and their L a Lipschitz constant, so that L = 2 L_AT.
"""

import numpy as np

from lastiterate._numerics.rounding import (
    TENS_OF_THOUSANDS_OF_ROUNDINGS,
    THOUSANDS_OF_ROUNDINGS,
    up,
)
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Bound, Certainty, Citation
from lastiterate.bounds.fixed_order.convex import convex_without_domain
from lastiterate.profile.renyi import ZCDPProfile
from lastiterate.run.batch_rules.ordered import Cyclic, FullBatch, ShuffledOnce
from lastiterate.run.loss import Loss
from lastiterate.run.training_run import TrainingRun
from lastiterate.shifts.optimal_shifts import optimal_shifts

PAPER = "published/altschuler-talwar"
_MOST_UNROLLED = 100_000


def cite(where: str) -> Citation:
    title = (
        "Privacy of noisy stochastic gradient descent: more iterations without more privacy loss"
    )
    return Citation("Altschuler and Talwar", 2022, title, where)


def iteration(run: TrainingRun) -> ZCDPProfile:
    r"""Renyi divergences by the original amplification by iteration, with the best shifts.

    **Bound.** :math:`R_\alpha \le \frac\alpha2\sum_k (a_k/\eta\sigma)^2`, the least over shifts
    whose running sum never exceeds that of the per-step sensitivities and ends equal to it.

    **Holds when.** losses are convex and smooth, no step exceeds 2/M, the order is fixed.

    **Tight** for linear losses.

    **Source.** Proposition 2.17; Feldman, Mironov, Talwar and Thakurta 2018, Theorem 22.

    **Computed as** the shifts without contraction or diameter; rounded up.
    """
    flat = Loss(smoothness=run.loss.smoothness)
    mu = convex_without_domain(run.replace(loss=flat, release_noise_std=0.0, clip_norm=None)).mu
    return ZCDPProfile(up(mu * mu / 2.0, THOUSANDS_OF_ROUNDINGS))


def bounded_iteration(run: TrainingRun) -> ZCDPProfile:
    r"""Renyi divergences on a bounded domain, with the best number of unrolled steps.

    **Bound.** :math:`R_\alpha \le \frac\alpha2\sum_{k>\tau} (a_k/\eta\sigma)^2`, the least over
    the start :math:`\tau`, where the distance is D, and the shifts after it.

    **Holds when.** losses are convex and smooth, iterates are projected, the order is fixed.

    **Tight** to a constant factor.

    **Source.** Proposition 3.2.

    **Computed as** the shifts that begin at the diameter; rounded up.
    """
    return _from_the_diameter(run, 1.0)


def bounded_strongly_convex(run: TrainingRun) -> ZCDPProfile:
    r"""Renyi divergences of strongly convex losses on a bounded domain, in a fixed order.

    **Bound.** As `bounded_iteration`, with distances that shrink by c in every step:
    :math:`z_t = c^{t-\tau} D + \sum_{i=\tau+1}^t c^{t-i}(s_i - a_i)`.  For full batches this is
    :math:`\frac\alpha2 \min_R \frac{(c^R D + s\frac{1-c^R}{1-c})^2}
    {(\eta\sigma)^2\frac{1-c^{2R}}{1-c^2}}`.

    **Holds when.** losses are strongly convex and smooth, steps are shorter than 2/M, iterates
    are projected, the order is fixed.

    **Tight.** Above the shifts that begin at 0 where runs are short.

    **Source.** Proposition 5.6.

    **Computed as** the shifts that begin at the diameter; rounded up.
    """
    return _from_the_diameter(run, float(quantities.contractions(quantities.gaps(run))[0]))


def _from_the_diameter(run: TrainingRun, contraction: float) -> ZCDPProfile:
    """The guarantee of the last position, by the shifts that begin at the diameter."""
    length = run.batches.batches_per_epoch
    steps = min(run.steps, _MOST_UNROLLED // length * length or run.steps)
    pattern = np.zeros(steps)
    pattern[::-length] = float(quantities.sensitivities(run)[0])
    diameter = quantities.diameter(run)
    noise = float(quantities.noises(run)[0])
    mu = optimal_shifts(
        contraction=contraction, sensitivity=pattern, noise=noise, start=diameter, diameter=diameter
    ).mu
    return ZCDPProfile(up(mu * mu / 2.0, TENS_OF_THOUSANDS_OF_ROUNDINGS))


_ORDERED = (FullBatch, Cyclic, ShuffledOnce)
_BOUNDED = (*conditions.GRADIENT_STEPS, conditions.BOUNDED)

BOUNDS = (
    Bound(
        id=f"{PAPER}/iteration",
        gives="Renyi divergences of the last iterate of convex descent",
        covers=_ORDERED,
        needs=conditions.GRADIENT_STEPS,
        certainty=Certainty.UPPER,
        source=cite("Proposition 2.17"),
        evaluate=iteration,
    ),
    Bound(
        id=f"{PAPER}/bounded",
        gives="Renyi divergences of the last iterate, the same for all long runs",
        covers=_ORDERED,
        needs=_BOUNDED,
        certainty=Certainty.UPPER,
        source=cite("Proposition 3.2"),
        evaluate=bounded_iteration,
    ),
    Bound(
        id=f"{PAPER}/bounded-strongly-convex",
        gives="Renyi divergences of the last iterate that converge",
        covers=_ORDERED,
        needs=(*_BOUNDED, conditions.STRONGLY_CONVEX),
        certainty=Certainty.UPPER,
        source=cite("Proposition 5.6"),
        evaluate=bounded_strongly_convex,
    ),
)
