r"""Chourasia, Ye and Shokri 2021: Renyi divergences of full-batch descent as a diffusion.

They add noise sqrt(2 eta) sigma_CYS to x, and S_g bounds the change of the *sum* of gradients:
sigma_CYS = sigma sqrt(eta/2), S_g = L and S_g^2/(sigma_CYS^2 n^2) = 2 r^2/eta with
r = L/(n sigma).  Their squared loss has curvature 1; with curvature m, eta m takes the place of
eta, since only that product enters.
"""

import math

from lastiterate._numerics.rounding import THOUSANDS_OF_ROUNDINGS, up
from lastiterate.bounds import conditions
from lastiterate.bounds.bound import Bound, Certainty, Citation, Hypothesis
from lastiterate.bounds.published import needs
from lastiterate.profile.zcdp import ZCDPProfile
from lastiterate.run.batches import FullBatch
from lastiterate.run.training_run import TrainingRun

PAPER = "published/chourasia-ye-shokri"


def cite(where: str) -> Citation:
    return Citation(
        "Chourasia, Ye and Shokri",
        2021,
        "Differential privacy dynamics of Langevin diffusion and noisy gradient descent",
        where,
    )


def linear(run: TrainingRun) -> ZCDPProfile:
    r"""All iterates.

    **Bound.** :math:`R_\alpha \le \alpha r^2 T/2`.

    **Holds when.** every step sees every example and has the same noise.

    **Tight** for all iterates together.

    **Source.** Theorem 1.

    **Computed as** printed; rounded up.
    """
    return ZCDPProfile(up(needs.ratio(run) ** 2 * run.steps / 2.0, THOUSANDS_OF_ROUNDINGS))


def strongly_convex(run: TrainingRun) -> ZCDPProfile:
    r"""The last iterate on strongly convex losses.

    **Bound.** :math:`R_\alpha \le \alpha\, r^2 \frac{2}{\eta\lambda}
    (1 - e^{-\eta\lambda T/2})`.

    **Holds when.** losses are strongly convex and smooth and :math:`\eta \le 2/(\lambda+\beta)`.
    (They ask for eta < 1/beta and a Gaussian start; the shifts imply the statement without.)

    **Tight** to a factor of about 4 (their Theorem 3 has a quarter of the limit).

    **Source.** Theorem 2 and Corollary 1.

    **Computed as** printed; rounded up.
    """
    x = needs.gap(run)
    rate = needs.ratio(run) ** 2 * (2.0 / x) * -math.expm1(-x * run.steps / 2.0)
    return ZCDPProfile(up(rate, THOUSANDS_OF_ROUNDINGS))


def squared_loss(run: TrainingRun) -> ZCDPProfile:
    r"""The last iterate on losses that are all equally curved squares.

    **Bound.** :math:`R_\alpha \le \alpha\, r^2 \frac{2}{x(2-x)}
    (1 - e^{-x(2-x)T/2})` with :math:`x = \eta m`.

    **Holds when.** smoothness = strong_convexity = m and x < 2.

    **Tight** to a factor of about 4.

    **Source.** Corollary 2.

    **Computed as** printed; rounded up.
    """
    x = needs.gap(run)  # or 2 - eta m, which gives the same
    bend = x * (2.0 - x)
    rate = needs.ratio(run) ** 2 * (2.0 / bend) * -math.expm1(-bend * run.steps / 2.0)
    return ZCDPProfile(up(rate, THOUSANDS_OF_ROUNDINGS))


def _not_squared(run: TrainingRun) -> str | None:
    if run.loss.smoothness == run.loss.strong_convexity:
        return None
    return f"smoothness={run.loss.smoothness!r}, strong_convexity={run.loss.strong_convexity!r}"


_CONTRACTING = (*needs.GRADIENT_STEPS, needs.STRONGLY_CONVEX)

BOUNDS = (
    Bound(
        id=f"{PAPER}/linear",
        gives="Renyi divergences of all iterates",
        covers=(FullBatch,),
        needs=(conditions.CONSTANT, conditions.NOISY),
        certainty=Certainty.UPPER,
        source=cite("Theorem 1"),
        evaluate=linear,
    ),
    Bound(
        id=f"{PAPER}/strongly-convex",
        gives="Renyi divergences of the last iterate that converge",
        covers=(FullBatch,),
        needs=(*_CONTRACTING, needs.BEST_STEP_AT_MOST),
        certainty=Certainty.UPPER,
        source=cite("Theorem 2 and Corollary 1"),
        evaluate=strongly_convex,
    ),
    Bound(
        id=f"{PAPER}/squared-loss",
        gives="Renyi divergences of the last iterate for squared losses",
        covers=(FullBatch,),
        needs=(
            *_CONTRACTING,
            Hypothesis(
                "smoothness equal to strong_convexity",
                _not_squared,
                "see published/chourasia-ye-shokri/strongly-convex",
            ),
        ),
        certainty=Certainty.UPPER,
        source=cite("Corollary 2"),
        evaluate=squared_loss,
    ),
)
