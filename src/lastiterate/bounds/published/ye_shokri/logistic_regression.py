r"""Ye and Shokri 2022: logistic regression with norm-clipped gradients, on normalised features."""

from lastiterate import _check
from lastiterate._numerics.rounding import FEW_ROUNDINGS, up
from lastiterate.bounds import conditions
from lastiterate.bounds.bound import Bound, Certainty, Hypothesis
from lastiterate.bounds.conditions import SECRET_ORDER
from lastiterate.bounds.published.ye_shokri.noisy_descent_bounds import (
    ORDERED,
    PAPER,
    cite,
    shuffled,
)
from lastiterate.profile.renyi import RenyiProfile
from lastiterate.run.batch_rules.ordered import ShuffledOnce
from lastiterate.run.training_run import TrainingRun


def normalisation(*, noise_multiplier: float, order: float) -> float:
    r"""The Renyi divergence of noisy feature means and squared means: eps_norm of Corollary 5.3.

    :math:`\alpha/z^2`: two Gaussian mechanisms with noise z times the largest norm of one row.
    That counts a row that is *left out*.  Corollary 5.3 is about a row that is replaced, for which
    each of the two moves by up to twice as much, and the divergence is four times larger.

    Parameters
    ----------
    noise_multiplier : float
        z, the noise of each sum over the bound on one row's norm.
    order : float
        The order of the divergence.

    Returns
    -------
    float
        The divergence, to be added to that of the training.

    Examples
    --------
    >>> round(normalisation(noise_multiplier=8.0, order=10.0), 5)
    0.15625
    """
    z = _check.number("noise_multiplier", noise_multiplier, above=0.0)
    alpha = _check.number("order", order, above=1.0)
    return up(alpha / (z * z), FEW_ROUNDINGS)


def clipped_logistic(run: TrainingRun) -> RenyiProfile:
    r"""Renyi divergences of regularised logistic regression with norm-clipped gradients.

    **Bound.** As `shuffled`; with noise multiplier z, :math:`r^2/2 = 2/z^2`.

    **Holds when.** clipping the norm of the unregularised gradient keeps the step a contraction.
    That is so for two classes; their Proposition 5.2 claims it for any number, and for
    three or more it is false: hence as published only.

    **Tight.** As `shuffled`.

    **Source.** Corollary 5.3.

    **Computed as** `shuffled`.
    """
    return shuffled(run)


def _not_clipped(run: TrainingRun) -> str | None:
    return None if run.clip_norm is not None else "clip_norm=None"


BOUNDS = (
    Bound(
        id=f"{PAPER}/clipped-logistic",
        gives="Renyi divergences of shuffled logistic regression with norm clipping",
        covers=(ShuffledOnce,),
        needs=(
            SECRET_ORDER,
            Hypothesis("norm-clipped gradients", _not_clipped, "see published/ye-shokri/shuffled"),
            *(h for h in ORDERED if h is not conditions.NO_ACTIVE_CLIP),
        ),
        certainty=Certainty.AS_PUBLISHED,
        source=cite("Corollary 5.3"),
        evaluate=clipped_logistic,
    ),
)
