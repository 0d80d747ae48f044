r"""Bok, Su and Altschuler 2024: closed forms in f-DP, for full batches and fixed orders.

Their convention is this library's: L is the largest difference of two gradients, the noise is
sigma on the averaged gradient.  Below c = max(|1 - eta m|, |1 - eta M|), l = n // b batches an
epoch, E epochs, r = L/(b sigma), and k = D b/(eta L), the diameter in units of the per-step
sensitivity.
"""

import math
from dataclasses import replace

from lastiterate._numerics.powers import contraction_power, geometric_sum
from lastiterate._numerics.rounding import THOUSANDS_OF_ROUNDINGS, down, up
from lastiterate.bounds import conditions
from lastiterate.bounds.bound import Bound, Certainty, Hypothesis
from lastiterate.bounds.composition import SAMPLED_COMPOSITION
from lastiterate.bounds.published.bok_su_altschuler.paper import PAPER, cite
from lastiterate.bounds.quantities import (
    constant_gap,
    diameter_over_sensitivity,
    epochs,
    gaussian,
    sensitivity_over_noise,
)
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.run.batch_rules.ordered import Cyclic, FullBatch, ShuffledOnce
from lastiterate.run.training_run import TrainingRun


def full_batch_composition(run: TrainingRun) -> GaussianProfile:
    r"""A Gaussian guarantee for all iterates of full-batch descent.

    **Bound.** :math:`\mu = r\sqrt T`.

    **Holds when.** every step sees every example and has the same noise.

    **Tight** for all iterates together.

    **Source.** Theorem 4.1.

    **Computed as** printed; rounded up.
    """
    return gaussian(sensitivity_over_noise(run) * math.sqrt(run.steps))


def full_batch_strongly_convex(run: TrainingRun) -> GaussianProfile:
    r"""A Gaussian guarantee for the last iterate of full-batch descent on strongly convex losses.

    **Bound.** :math:`\mu = r\sqrt{\frac{1-c^T}{1+c^T}\,\frac{1+c}{1-c}}`.

    **Holds when.** losses are strongly convex and smooth, every step sees every example, and
    steps are shorter than 2/M.

    **Tight.** Exact for :math:`\eta \le 2/(M+m)`.

    **Source.** Theorems 4.2 and C.5.

    **Computed as** printed, from 1 - c; rounded up.
    """
    gap = constant_gap(run)
    spread = geometric_sum(gap, run.steps) * (2.0 - gap)
    return gaussian(
        sensitivity_over_noise(run) * math.sqrt(spread / (1.0 + contraction_power(gap, run.steps)))
    )


def _unrolled(run: TrainingRun) -> tuple[float, int]:
    """k = D/(eta L/b), rounded up, and the steps or epochs ceil(k) to unroll.

    The proof needs k^2/R <= k, which an R that is short of k by a relative 1e-12 violates by as
    much, and the first number makes up for; so parameters that divide evenly in decimals
    are not charged one more step.
    """
    k = diameter_over_sensitivity(run)
    return up(k, 4 * THOUSANDS_OF_ROUNDINGS), math.ceil(down(k, THOUSANDS_OF_ROUNDINGS))


def full_batch_bounded(run: TrainingRun) -> GaussianProfile:
    r"""A Gaussian guarantee for the last iterate of full-batch descent on a bounded domain.

    **Bound.** :math:`\mu = r\sqrt{3k + \lceil k\rceil}`.

    **Holds when.** losses are convex and smooth, iterates are projected, :math:`T \ge k`.

    **Tight** to a constant factor (their Theorem C.16).

    **Source.** Theorem 4.3.

    **Computed as** printed; rounded up.
    """
    k, whole = _unrolled(run)
    return gaussian(sensitivity_over_noise(run) * math.sqrt(3.0 * k + whole))


def full_batch_bounded_from(run: TrainingRun) -> GaussianProfile:
    r"""A Gaussian guarantee for full-batch descent on a bounded domain, with the best unrolling.

    **Bound.** :math:`\mu = r\min_{1\le R\le T}(\sqrt R + k/\sqrt R)`.

    **Holds when.** losses are convex and smooth, and iterates are projected.

    **Tight** to a constant factor.

    **Source.** Theorem C.7.

    **Computed as** the less of the two whole numbers next to k, where the minimum is.
    """
    k = diameter_over_sensitivity(run)
    choices = {
        min(max(1, round_(min(k, run.steps))), run.steps) for round_ in (math.floor, math.ceil)
    }
    least = min(math.sqrt(R) + k / math.sqrt(R) for R in choices)
    return gaussian(sensitivity_over_noise(run) * least)


def cyclic_composition(run: TrainingRun) -> GaussianProfile:
    r"""A Gaussian guarantee for all iterates of cyclic descent.

    **Bound.** :math:`\mu = r\sqrt E`.

    **Holds when.** the batches of an epoch are disjoint, in a fixed order, epochs are whole.

    **Tight** for all iterates together.

    **Source.** Theorem 4.4.

    **Computed as** printed; rounded up.
    """
    return gaussian(sensitivity_over_noise(run) * math.sqrt(epochs(run)))


def cyclic_strongly_convex(run: TrainingRun) -> GaussianProfile:
    r"""A Gaussian guarantee for the last iterate of cyclic descent on strongly convex losses.

    **Bound.** :math:`\mu^2 = r^2\big(1 + c^{2l-2}\frac{1-c^2}{(1-c^l)^2}
    \frac{1-c^{l(E-1)}}{1+c^{l(E-1)}}\big)`.

    **Holds when.** losses are strongly convex and smooth, steps shorter than 2/M, the order is
    fixed and epochs are whole.

    **Tight.** Not exactly, but see their Theorem C.17.

    **Source.** Theorem 4.5.

    **Computed as** printed, from 1 - c; rounded up.
    """
    gap, length = constant_gap(run), run.batches.batches_per_epoch
    earlier = length * (epochs(run) - 1)
    share = (2.0 - gap) * geometric_sum(gap, earlier) / (1.0 + contraction_power(gap, earlier))
    decay = contraction_power(gap, length - 1) / geometric_sum(gap, length)
    mu = sensitivity_over_noise(run) * math.sqrt(1.0 + decay * decay * share)
    return gaussian(up(mu, THOUSANDS_OF_ROUNDINGS))


def cyclic_bounded(run: TrainingRun) -> GaussianProfile:
    r"""A Gaussian guarantee for the last iterate of cyclic descent on a bounded domain.

    **Bound.** :math:`\mu = r\sqrt{1 + (3k + \lceil k\rceil)/l}`.

    **Holds when.** losses are convex and smooth, iterates are projected, the order is fixed,
    epochs are whole and :math:`E \ge k`.

    **Tight** to a constant factor.

    **Source.** Theorem 4.6.

    **Computed as** printed; rounded up.
    """
    (k, whole), length = _unrolled(run), run.batches.batches_per_epoch
    return gaussian(sensitivity_over_noise(run) * math.sqrt(1.0 + (3.0 * k + whole) / length))


def _too_early(run: TrainingRun) -> str | None:
    if conditions.BOUNDED.check(run) is not None or not run.is_constant:
        return None
    (_, whole), seen = _unrolled(run), epochs(run)
    return None if seen >= whole else f"{seen} < {whole}"


LONG_ENOUGH = Hypothesis(
    "at least diameter batch_size/(step_size sensitivity) epochs (full batch: steps)",
    _too_early,
    "see fixed-order/convex, which has no such limit",
)
_FULL, _ORDERED = (FullBatch,), (Cyclic, ShuffledOnce)
_EVERY_ITERATE = (conditions.CONSTANT, conditions.NOISY)
_BOUNDED = (*conditions.GRADIENT_STEPS, conditions.BOUNDED)

BOUNDS = (
    Bound(
        id=f"{PAPER}/full-batch-composition",
        gives="a Gaussian guarantee for all iterates",
        covers=_FULL,
        needs=_EVERY_ITERATE,
        certainty=Certainty.UPPER,
        source=cite("Theorem 4.1"),
        evaluate=full_batch_composition,
    ),
    Bound(
        id=f"{PAPER}/full-batch",
        gives="a Gaussian guarantee for the last iterate, exact for quadratics",
        covers=_FULL,
        needs=(*conditions.GRADIENT_STEPS, conditions.STRONGLY_CONVEX),
        certainty=Certainty.UPPER,
        source=cite("Theorems 4.2 and C.5"),
        evaluate=full_batch_strongly_convex,
    ),
    Bound(
        id=f"{PAPER}/full-batch-bounded",
        gives="a Gaussian guarantee for the last iterate, the same for all long runs",
        covers=_FULL,
        needs=(*_BOUNDED, LONG_ENOUGH),
        certainty=Certainty.UPPER,
        source=cite("Theorem 4.3"),
        evaluate=full_batch_bounded,
    ),
    Bound(
        id=f"{PAPER}/full-batch-bounded-from",
        gives="a Gaussian guarantee for the last iterate, unrolled as far as is best",
        covers=_FULL,
        needs=_BOUNDED,
        certainty=Certainty.UPPER,
        source=cite("Theorem C.7"),
        evaluate=full_batch_bounded_from,
    ),
    Bound(
        id=f"{PAPER}/cyclic-composition",
        gives="a Gaussian guarantee for all iterates",
        covers=_ORDERED,
        needs=(*_EVERY_ITERATE, conditions.WHOLE_EPOCHS),
        certainty=Certainty.UPPER,
        source=cite("Theorem 4.4"),
        evaluate=cyclic_composition,
    ),
    Bound(
        id=f"{PAPER}/cyclic",
        gives="a Gaussian guarantee for the last iterate that converges",
        covers=_ORDERED,
        needs=(*conditions.GRADIENT_STEPS, conditions.STRONGLY_CONVEX, conditions.WHOLE_EPOCHS),
        certainty=Certainty.UPPER,
        source=cite("Theorem 4.5"),
        evaluate=cyclic_strongly_convex,
    ),
    Bound(
        id=f"{PAPER}/cyclic-bounded",
        gives="a Gaussian guarantee for the last iterate, the same for all long runs",
        covers=_ORDERED,
        needs=(*_BOUNDED, conditions.WHOLE_EPOCHS, LONG_ENOUGH),
        certainty=Certainty.UPPER,
        source=cite("Theorem 4.6"),
        evaluate=cyclic_bounded,
    ),
    replace(
        SAMPLED_COMPOSITION,
        id=f"{PAPER}/sampled-composition",
        covers=SAMPLED_COMPOSITION.covers[:1],
        source=cite("Theorem 4.8 and Proposition D.4"),
    ),
)
