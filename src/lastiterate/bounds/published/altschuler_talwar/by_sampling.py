r"""Altschuler and Talwar 2022: amplification by sampling and by iteration, for sampled batches.

R is the number of unrolled steps; z and 2 C are those of `sampled_gaussian`.
"""

import math
from functools import partial

import numpy as np

from lastiterate._numerics.powers import log_of
from lastiterate._numerics.rounding import THOUSANDS_OF_ROUNDINGS, Array, up
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Bound, Certainty
from lastiterate.bounds.published.altschuler_talwar.by_iteration import PAPER, cite
from lastiterate.bounds.published.sampled_gaussian import doubled_radius, sampled_gaussian
from lastiterate.profile.renyi import RenyiProfile
from lastiterate.run.batch_rules.drawn import SampledWithoutReplacement
from lastiterate.run.training_run import TrainingRun

_SPLITS = 1.0 / (1.0 + np.exp(-np.linspace(-7.0, 7.0, 43)))


def sampled_bounded(run: TrainingRun) -> RenyiProfile:
    r"""Renyi divergences of sampled batches on a bounded domain.

    **Bound.** :math:`R_\alpha \le \min_R R\, S_\alpha\big(\tfrac bn, \tfrac{b\sigma_2}{2C}\big)
    + \frac{\alpha D^2}{2\eta^2\sigma_1^2 R}`, the least over
    :math:`\sigma_1^2 + \sigma_2^2 = \sigma^2` too, with S the larger of both directions.

    **Holds when.** we know of no proof.  As printed, with S the smaller direction, it is false
    outside the range of Theorem 3.1; with the larger no violation is known, but the proof
    conditions on noise that tells of the batch.  We have not seen the journal version (Altschuler,
    Bok and Talwar 2024).  Losses are to be convex and smooth, no step above 2/M, iterates
    projected.

    **Tight** to a constant factor, if true.

    **Source.** Theorem 3.1 through (3.6).

    **Computed as** the least over R, and over a grid of splits.
    """
    return RenyiProfile(partial(_sampled, run, 0.0), at_once=True)


def sampled_strongly_convex(run: TrainingRun) -> RenyiProfile:
    r"""Renyi divergences of sampled batches of strongly convex losses on a bounded domain.

    **Bound.** :math:`R_\alpha \le \min_R R\, S_\alpha\big(\tfrac bn, \tfrac{b\sigma_2}{2C}\big)
    + c^{2R}\frac{\alpha D^2}{2\eta^2\sigma_1^2}`, else as `sampled_bounded`.

    **Holds when.** we know of no proof; see `sampled_bounded`.

    **Tight** to logarithms, if true.

    **Source.** Theorem 5.1 through (5.3).

    **Computed as** the least over R, and over a grid of splits.
    """
    return RenyiProfile(partial(_sampled, run, quantities.constant_gap(run)), at_once=True)


def _sampled(run: TrainingRun, gap: float, orders: Array) -> Array:
    q = run.batches.batch_size / run.batches.examples
    z = float(np.max(run.noise_std)) * run.batches.batch_size / doubled_radius(run)
    far = quantities.diameter_over_sensitivity(run) * quantities.sensitivity_over_noise(run)
    best = np.full(orders.size, np.inf)
    for split in _SPLITS:
        one = sampled_gaussian(q, z * math.sqrt(split), orders)
        best = np.fmin(
            best, _unrolled_best(one, orders * far * far / 2.0 / (1.0 - split), gap, run)
        )
    return np.where(np.isnan(best), np.inf, up(best, THOUSANDS_OF_ROUNDINGS))


def _unrolled_best(one: Array, start: Array, gap: float, run: TrainingRun) -> Array:
    """The least over R of R one + start/R, or + start c^{2R}.

    Both are convex, so that the least is next to the stationary point.
    """
    log_c = log_of(gap)
    with np.errstate(all="ignore"):
        stationary = (
            np.sqrt(start / one)
            if gap == 0.0
            else np.log(one / (-2.0 * log_c * start)) / (2.0 * log_c)
        )
        centre = np.floor(np.clip(np.nan_to_num(stationary, nan=1.0), 1.0, run.steps))
        totals = []
        for R in (centre, np.minimum(centre + 1.0, run.steps)):
            share = 1.0 / R if gap == 0.0 else np.exp(2.0 * R * log_c)
            totals.append(R * one + start * share)
    return np.asarray(np.fmin(*totals))


_SAMPLED = (conditions.SECRET_ORDER, *conditions.GRADIENT_STEPS, conditions.BOUNDED)

BOUNDS = (
    Bound(
        id=f"{PAPER}/sampled-bounded",
        gives="Renyi divergences of sampled batches, the same for all long runs",
        covers=(SampledWithoutReplacement,),
        needs=_SAMPLED,
        certainty=Certainty.AS_PUBLISHED,
        source=cite("Theorem 3.1 through (3.6)"),
        evaluate=sampled_bounded,
    ),
    Bound(
        id=f"{PAPER}/sampled-strongly-convex",
        gives="Renyi divergences of sampled batches that converge",
        covers=(SampledWithoutReplacement,),
        needs=(*_SAMPLED, conditions.STRONGLY_CONVEX),
        certainty=Certainty.AS_PUBLISHED,
        source=cite("Theorem 5.1 through (5.3)"),
        evaluate=sampled_strongly_convex,
    ),
)
