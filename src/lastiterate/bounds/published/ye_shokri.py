r"""Ye and Shokri 2022: Renyi divergences of strongly convex descent.

They add noise sqrt(2 eta) sigma_YS to x, and S_g bounds the change of a *sum* of gradients, so
sigma_YS = sigma sqrt(eta/2), S_g = L and alpha eta S_g^2/(4 sigma_YS^2 b^2) = alpha r^2/2 with
r = L/(b sigma): what a Gaussian step costs.  Below c = 1 - eta lambda, l = n // b, K epochs and

.. math:: \rho_j = \frac{r^2}{2}\, \frac{c^{2(j-1)}}{1 + c^2 + .. + c^{2(j-1)}}.

The last section of the paper is logistic regression with norm-clipped gradients, on features that
are normalised with noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from lastiterate import _check
from lastiterate._numerics.powers import geometric_sum, log_of, logs_of_powers, sums_of_powers
from lastiterate._numerics.rounding import (
    FEW_ROUNDINGS,
    THOUSANDS_OF_ROUNDINGS,
    Array,
    at_least,
    up,
)
from lastiterate.bounds import conditions
from lastiterate.bounds.bound import Bound, Certainty, Citation, Hypothesis
from lastiterate.bounds.conditions import SECRET_ORDER
from lastiterate.bounds.quantities import constant_gap, epochs, sensitivity_over_noise
from lastiterate.profile.renyi import RenyiProfile, ZCDPProfile, averaged_at_orders
from lastiterate.run.batch_rules.drawn import SampledWithoutReplacement
from lastiterate.run.batch_rules.ordered import Cyclic, FullBatch, ShuffledOnce
from lastiterate.run.training_run import TrainingRun

PAPER = "published/ye-shokri"
_MAX_STEPS = 2_000_000


def cite(where: str) -> Citation:
    return Citation(
        "Ye and Shokri",
        2022,
        "Differentially private learning needs hidden state (or much faster convergence)",
        where,
    )


def naive(run: TrainingRun) -> ZCDPProfile:
    r"""Renyi divergences of full batches, each batch taken for a data set of its own.

    **Bound.** :math:`R_\alpha \le \alpha\, r^2 \frac{2}{\eta\lambda}
    (1 - e^{-\eta\lambda K/2})`.

    **Holds when.** losses are strongly convex and smooth, :math:`\eta \le 2/(\lambda+\beta)`,
    the order is fixed, epochs are whole.  (Implied by the shifts: K participations cost
    most where nothing lies between them, and then :math:`\frac12\frac{1-c^K}{1+c^K}
    \frac{1+c}{1-c}` is less.)

    **Tight.** Far from it: no use is made of the other batches.

    **Source.** Theorem 2.1.

    **Computed as** printed; rounded up.
    """
    x = constant_gap(run)
    rate = sensitivity_over_noise(run) ** 2 * (2.0 / x) * -math.expm1(-x * epochs(run) / 2.0)
    return ZCDPProfile(up(rate, THOUSANDS_OF_ROUNDINGS))


def full_batch(run: TrainingRun) -> ZCDPProfile:
    r"""Renyi divergences of the last iterate of full batches.

    **Bound.** :math:`R_\alpha \le \alpha\, r^2 \frac{2-x}{x}\big(1 - (1-\tfrac x2)^T\big)` with
    :math:`x = \eta\lambda`.  A step adds :math:`\alpha r^2`, the composition with half of its
    noise; under a log-Sobolev constant of :math:`\lambda/(2\sigma_{YS}^2)` the other half
    multiplies by :math:`1 - x/2`.

    **Holds when.** losses are strongly convex and smooth, :math:`\eta \le 2/(\lambda+\beta)`,
    every step sees every example.  (Implied by the shifts: with :math:`u = 1 - x/2` and
    :math:`c = 2u - 1`, :math:`u^T \le (1 + c^T)/2` by convexity, so half of
    :math:`(1 - c^T)/(1 + c^T)` is at most :math:`1 - u^T`.)

    **Tight** to a factor of 2 in long runs.

    **Source.** Theorem D.6, inferred: the text of their appendix is not at hand, and Bok, Su and
    Altschuler's code for their Figure 1 has these numbers.

    **Computed as** printed; rounded up.
    """
    x = constant_gap(run)
    grown = -math.expm1(run.steps * math.log1p(-x / 2.0))
    rate = sensitivity_over_noise(run) ** 2 * (2.0 - x) / x * grown
    return ZCDPProfile(up(rate, THOUSANDS_OF_ROUNDINGS))


def fixed_order(run: TrainingRun) -> ZCDPProfile:
    r"""Renyi divergences of the last iterate for the last batch, the most exposed.

    **Bound.** For an example in batch j of 0..l-1,
    :math:`R_\alpha \le \alpha\big(\rho_{\lfloor l/2\rfloor}
    \frac{1 - c^{2(K-1)(l-\lfloor l/2\rfloor)}}{1 - c^{2(l-\lfloor l/2\rfloor)}}
    + \rho_{l-j}\big)`.

    **Holds when.** losses are strongly convex and smooth, :math:`\eta \le 2/(\lambda+\beta)`,
    the order is fixed, there are two batches or more and epochs are whole.

    **Tight.** Above the shifts of Bok, Su and Altschuler 2024, Theorem 4.5.

    **Source.** Theorem 3.3.

    **Computed as** printed; rounded up.
    """
    common, rho = _rates(run)
    return ZCDPProfile(at_least(common + float(rho[0]), ulps=2))


def fixed_order_by_position(run: TrainingRun) -> Sequence[ZCDPProfile]:
    """The guarantee of each batch, in order."""
    common, rho = _rates(run)
    return [ZCDPProfile(at_least(common + float(one), ulps=2)) for one in rho[::-1]]


def _rates(run: TrainingRun) -> tuple[float, Array]:
    """The common first term, and rho_j for the steps j = 1..l left from a participation on."""
    x, length = constant_gap(run), run.batches.batches_per_epoch
    j = np.arange(1, length + 1)
    log_c = log_of(x)
    kept, sums = np.exp(logs_of_powers(2.0 * log_c, j - 1)), sums_of_powers(2.0 * log_c, j)
    rho = up(sensitivity_over_noise(run) ** 2 / 2.0 * kept / sums, THOUSANDS_OF_ROUNDINGS)
    half = length // 2
    later = length - half
    # (1 - c^{2 later (K-1)})/(1 - c^{2 later}).
    repeats = epochs(run) - 1
    grown = geometric_sum(-math.expm1(2.0 * later * log_c), repeats)
    return up(float(rho[half - 1] * grown), THOUSANDS_OF_ROUNDINGS), rho


def shuffled(run: TrainingRun) -> RenyiProfile:
    r"""Renyi divergences, averaged over a secret order that is drawn once.

    **Bound.** The first term of `fixed_order` plus
    :math:`\frac{1}{\alpha-1}\log\frac1l\sum_j e^{(\alpha-1)\alpha\rho_j}`.

    **Holds when.** as `fixed_order`, with the examples shuffled once and in secret.
    (By joint convexity, from `fixed_order`.)

    **Tight.** Above random-order/shuffled, which averages the curves themselves.

    **Source.** Theorem 4.2.  (The form of their footnote 4 lacks its factor 1/(alpha - 1); their
    code has it.)

    **Computed as** the largest term and what the others fall short of it; rounded up.
    """
    common, rho = _rates(run)
    weights = np.full(rho.size, 1.0 / rho.size)
    return RenyiProfile(partial(averaged_at_orders, weights, common + rho), at_once=True)


def sampled(run: TrainingRun) -> RenyiProfile:
    r"""Renyi divergences of batches drawn anew every step.

    **Bound.** :math:`R_\alpha \le \frac{1}{\alpha-1}\log S_T`, :math:`S_0 = 1`,
    :math:`S_{k+1} = \frac bn e^{\alpha(\alpha-1)r^2/2} S_k + (1-\frac bn) S_k^{c^2}`.

    **Holds when.** losses are strongly convex and smooth, :math:`\eta \le 2/(\lambda+\beta)`,
    batches are drawn without replacement and in secret.  (Implied by the shifts: given the
    batches the energy grows by at most :math:`r^2` in a step that takes part, by a shift of that
    size in the same step, and shrinks by :math:`c^2` in one that does not, by delaying every
    shift a step; by Jensen's inequality the recursion is above the average over batches.)

    **Tight.** Far from it where b/n is small.

    **Source.** Theorem 4.3.

    **Computed as** the logarithm of S, for all orders at once; rounded up.
    """
    return RenyiProfile(partial(_sampled_divergences, run), at_once=True)


def _sampled_divergences(run: TrainingRun, orders: Array) -> Array:
    """The logarithm of S_T over alpha - 1, at these orders."""
    less = orders - 1.0
    share = run.batches.batch_size / run.batches.examples
    lost = constant_gap(run) * (2.0 - constant_gap(run))
    cost = orders * sensitivity_over_noise(run) ** 2 / 2.0
    total = np.zeros_like(orders)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        for _ in range(run.steps):
            # log(q e^x + 1 - q)/(alpha - 1) on top of c^2 R, with x = (alpha - 1) rise.
            rise = cost + total * lost
            grown = total * (1.0 - lost) + _log_mean_exp(less, rise, share)
            if np.array_equal(grown, total):
                break
            total = grown
    return np.asarray(total * (up(1.0, THOUSANDS_OF_ROUNDINGS) + FEW_ROUNDINGS * run.steps))


def _log_mean_exp(less: Array, rise: Array, share: float) -> Array:
    """The mean log(1 + share (e^{less rise} - 1))/less; share rise where less is 0."""
    x = less * rise
    small = np.log1p(share * np.expm1(np.minimum(x, 50.0)))
    large = x + math.log(share) + np.log1p((1.0 / share - 1.0) * np.exp(-x))
    return np.where(less > 0.0, np.where(x < 50.0, small, large) / less, share * rise)


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


def _not_clipped(run: TrainingRun) -> str | None:
    return None if run.clip_norm is not None else "clip_norm=None"


_STEPS = (
    *conditions.GRADIENT_STEPS,
    conditions.STRONGLY_CONVEX,
    conditions.BEST_STEP_AT_MOST,
)
ORDERED = (*_STEPS, conditions.SEVERAL_BATCHES, conditions.WHOLE_EPOCHS)
BOUNDS = (
    Bound(
        id=f"{PAPER}/naive",
        gives="Renyi divergences that converge, slowly",
        covers=(Cyclic, ShuffledOnce),
        needs=(*_STEPS, conditions.WHOLE_EPOCHS),
        certainty=Certainty.UPPER,
        source=cite("Theorem 2.1"),
        evaluate=naive,
    ),
    Bound(
        id=f"{PAPER}/full-batch",
        gives="Renyi divergences of full batches that converge",
        covers=(FullBatch,),
        needs=_STEPS,
        certainty=Certainty.UPPER,
        source=cite("Theorem D.6, as inferred"),
        evaluate=full_batch,
    ),
    Bound(
        id=f"{PAPER}/fixed-order",
        gives="Renyi divergences that converge, by position",
        covers=(Cyclic, ShuffledOnce),
        needs=ORDERED,
        certainty=Certainty.UPPER,
        source=cite("Theorem 3.3"),
        evaluate=fixed_order,
        by_position=fixed_order_by_position,
    ),
    Bound(
        id=f"{PAPER}/shuffled",
        gives="Renyi divergences, averaged over a secret order",
        covers=(ShuffledOnce,),
        needs=(SECRET_ORDER, *ORDERED),
        certainty=Certainty.UPPER,
        source=cite("Theorem 4.2"),
        evaluate=shuffled,
    ),
    Bound(
        id=f"{PAPER}/sampled",
        gives="Renyi divergences, averaged over the batches of each step",
        covers=(SampledWithoutReplacement,),
        needs=(
            SECRET_ORDER,
            *_STEPS,
            conditions.at_most_steps(_MAX_STEPS, "see random-order/sampled"),
        ),
        certainty=Certainty.UPPER,
        source=cite("Theorem 4.3"),
        evaluate=sampled,
    ),
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
