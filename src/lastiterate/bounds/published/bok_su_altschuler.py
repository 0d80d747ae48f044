r"""Bok, Su and Altschuler 2024: closed forms in f-DP, a lower bound, and estimates.

Their convention is this library's: L is the largest difference of two gradients, the noise is
sigma on the averaged gradient.  Below c = max(|1 - eta m|, |1 - eta M|), l = n // b batches an
epoch, E epochs, r = L/(b sigma), p = b/n, and k = D b/(eta L), the diameter in units of the
per-step sensitivity.

**Sampled batches.** :math:`C_p(G(\mu))` is one Gaussian mechanism on a sampled batch, and the noise
of a step is split into parts with :math:`1/\alpha^2 + 1/\beta^2 = 1` (their footnotes 10 and 11).
Every choice of the free parameters is valid; the one made is the best by the central limit
theorem, which only guides.

**The lower bound** exhibits losses that the run's description admits, in one dimension.  (Their
Theorem C.16, for bounded domains, is in `lower_bounds.drifting_walk`.)

**Estimates** are never bounds: G(mu, p)^T of a step with ratio mu tends to a Gaussian of
:math:`\sqrt2\,p\sqrt{T\,v(\mu)}`, :math:`v(\mu) = e^{\mu^2}\Phi(3\mu/2) + 3\Phi(-\mu/2) - 2`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from lastiterate._numerics.powers import contraction_power, geometric_sum, log_of, logs_of_powers
from lastiterate._numerics.rounding import (
    MILLIONS_OF_ROUNDINGS,
    THOUSANDS_OF_ROUNDINGS,
    at_least,
    down,
    up,
)
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import (
    Approximation,
    Bound,
    Certainty,
    Citation,
    Estimate,
    Hypothesis,
    LowerBound,
)
from lastiterate.bounds.composition import SAMPLED_COMPOSITION, cell_of_losses
from lastiterate.bounds.quantities import (
    constant_gap,
    diameter_over_sensitivity,
    epochs,
    gaussian,
    sensitivity_over_noise,
)
from lastiterate.profile.best import BestProfile
from lastiterate.profile.gaussian import GaussianMixtureProfile, GaussianProfile, SubsampledGaussian
from lastiterate.profile.lower import MeansLowerProfile
from lastiterate.profile.pld import (
    LossDistributionProfile,
    least_discretization,
    require,
    self_composed,
    to_pld,
)
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.run.batch_rules.drawn import SampledWithoutReplacement
from lastiterate.run.batch_rules.ordered import Cyclic, FullBatch, ShuffledOnce
from lastiterate.run.loss import linear_gradients
from lastiterate.run.training_run import TrainingRun

PAPER = "published/bok-su-altschuler"
_ALPHAS = np.geomspace(1.005, 12.0, 40)
_LARGEST_RATIO = 8.0
_LEAST_RATIO = 1e-4  # smaller ones are charged as this
_LARGEST_GAUSSIAN = 300.0


def cite(where: str) -> Citation:
    return Citation(
        "Bok, Su and Altschuler", 2024, "Shifted interpolation for differential privacy", where
    )


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


def full_batch_bounded(run: TrainingRun) -> GaussianProfile:
    r"""A Gaussian guarantee for the last iterate of full-batch descent on a bounded domain.

    **Bound.** :math:`\mu = r\sqrt{3k + \lceil k\rceil}`.

    **Holds when.** losses are convex and smooth, iterates are projected, :math:`T \ge k`.

    **Tight** to a constant factor (their Theorem C.16).

    **Source.** Theorem 4.3.

    **Computed as** printed; rounded up.
    """
    k, whole = _unrolled_distance(run)
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
    (k, whole), length = _unrolled_distance(run), run.batches.batches_per_epoch
    return gaussian(sensitivity_over_noise(run) * math.sqrt(1.0 + (3.0 * k + whole) / length))


def _unrolled_distance(run: TrainingRun) -> tuple[float, int]:
    """k = D/(eta L/b), rounded up, and the steps or epochs ceil(k) to unroll.

    The proof needs k^2/R <= k, which an R that is short of k by a relative 1e-12 violates by as
    much, and the first number makes up for; so parameters that divide evenly in decimals
    are not charged one more step.
    """
    k = diameter_over_sensitivity(run)
    return up(k, 4 * THOUSANDS_OF_ROUNDINGS), math.ceil(down(k, THOUSANDS_OF_ROUNDINGS))


def strongly_convex(run: TrainingRun, *, shares: tuple[float, ...] = (1.0,)) -> PrivacyProfile:
    r"""A guarantee for the last iterate on strongly convex losses.

    **Bound.** :math:`G(2\alpha r\frac{c^{k+1} - c^T}{1-c}) \otimes C_p(G(2\beta r)) \otimes
    C_p(G(2r))^{\otimes k}` for any k = 1..T (they write k = t - tau).

    **Holds when.** batches are sampled uniformly without replacement, in secret, an example is
    replaced, losses are strongly convex and smooth, steps are shorter than 2/M and all alike.

    **Tight.** Not known; composition without their factors 2 is better for short runs.

    **Source.** Theorem 4.9, with footnote 10.

    **Computed as** a pessimistic composition of privacy loss distributions.
    """
    ratio, gap, probability = _constants(run)
    steps = run.steps
    log_c = max(log_of(gap), -700.0)

    def hidden(length: int, share: float) -> float:
        """c z_(T-1) over eta L/b, rounded up."""
        early = math.exp((length + 1) * log_c) * -math.expm1((steps - length - 1) * log_c)
        late = (1.0 - share) * math.exp(log_c) * -math.expm1(length * log_c)
        return up((max(early, 0.0) + late) / gap, MILLIONS_OF_ROUNDINGS)

    plans = (
        _Plan(
            2.0 * alpha * ratio * hidden(length, share),
            ((2.0 * _beta(alpha) * ratio, 1), (2.0 * share * ratio, length)),
        )
        for length in _unrolled_lengths(steps)
        for share in shares
        for alpha in _ALPHAS.tolist()
    )
    return _best_guarantee(plans, probability)


def shifts(run: TrainingRun) -> PrivacyProfile:
    r"""A guarantee for the last iterate on strongly convex losses, with any shifts.

    **Bound.** :math:`G(2\alpha c z_{T-1}/(\eta\sigma)) \otimes C_p(G(2\beta r)) \otimes
    \bigotimes_k C_p(G(2a_k/(\eta\sigma)))`, with :math:`z_{T-1}` what shifts
    :math:`a_k \le \eta L/b` leave; here the last of them are one fraction of :math:`\eta L/b`, the
    others 0.

    **Holds when.** As for their Theorem 4.9, which is the fraction 1.

    **Tight.** Not known.

    **Source.** Theorem C.13, with footnote 10.

    **Computed as** a pessimistic composition of privacy loss distributions.
    """
    smaller = strongly_convex(run, shares=(0.9, 0.8, 0.65, 0.5, 0.35, 0.2, 0.1))
    return BestProfile([strongly_convex(run), smaller])


def bounded_domain(run: TrainingRun) -> PrivacyProfile:
    r"""A guarantee for the last iterate on a bounded domain.

    **Bound.** :math:`G(\frac{\alpha D}{\eta\sigma\sqrt k}) \otimes C_p(G(2\beta r))^{\otimes k}`
    for any k = 1..T (they write k = t - tau).

    **Holds when.** batches are sampled uniformly without replacement, in secret, an example is
    replaced, losses are convex and smooth, iterates are projected, steps are at most 2/M and
    all alike.

    **Tight** to constants as k = D n/(eta L) (their remark).

    **Source.** Theorem 4.10, with footnote 11.

    **Computed as** a pessimistic composition of privacy loss distributions.
    """
    ratio, _, probability = _constants(run)
    noise = float(quantities.noises(run)[0])
    across = at_least(quantities.diameter(run) / noise, ulps=quantities.WIDENING)
    plans = (
        _Plan(
            at_least(alpha * across / math.sqrt(length), ulps=8),
            ((2.0 * _beta(alpha) * ratio, length),),
        )
        for length in _unrolled_lengths(run.steps)
        for alpha in _ALPHAS.tolist()
    )
    return _best_guarantee(plans, probability)


def _constants(run: TrainingRun) -> tuple[float, float, float]:
    """The constants r, rounded up, 1 - c, rounded down, and p."""
    ratio = max(sensitivity_over_noise(run), _LEAST_RATIO)
    return ratio, max(constant_gap(run), 0.0), run.batches.share


def _beta(alpha: float) -> float:
    """The factor beta that belongs to alpha, rounded up."""
    return at_least(1.0 / math.sqrt(-math.expm1(-2.0 * math.log(alpha))), ulps=64)


def _unrolled_lengths(most: int) -> list[int]:
    """Some numbers of last steps to unroll; all are valid."""
    return sorted({min(most, round(1.08**k)) for k in range(300)} | {1, most})


class _Plan(NamedTuple):
    """G(gaussian) and, for each (mu, times), that many C_p(G(mu))."""

    gaussian: float
    sampled: tuple[tuple[float, int], ...]

    def guess(self, probability: float) -> float:
        """The square of the Gaussian parameter that the central limit theorem suggests."""
        total = min(self.gaussian, 1e100) ** 2
        for mu, times in self.sampled:
            total += times * 2.0 * probability**2 * growth(mu)
        return total

    def profile(self, probability: float) -> PrivacyProfile:
        """The guarantee of all parts composed, pessimistically."""
        require("this bound")
        from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

        mu, steps = max(mu for mu, _ in self.sampled), sum(times for _, times in self.sampled)
        parts = [SubsampledGaussian(probability, mu) for mu, _ in self.sampled]
        cells = [least_discretization(part) for part in parts]
        reach = self.gaussian * (self.gaussian / 2 + 10)
        cell = max(cell_of_losses(probability, mu, steps), reach / 400_000, 1.1 * max(cells))
        total, slack = None, 0.0
        for part, (_, times) in zip(parts, self.sampled, strict=True):
            composed = self_composed(to_pld(part, discretization=cell), times)
            slack += composed.slack
            total = composed.pld if total is None else total.compose(composed.pld)
        if total is None:
            raise ValueError("a plan has at least one sampled step")
        if self.gaussian > 0.0:
            one = from_gaussian_mechanism(
                1.0 / max(self.gaussian, _LEAST_RATIO),
                value_discretization_interval=cell,
                use_connect_dots=True,
            )
            total = total.compose(one)
        return LossDistributionProfile(total, slack=LossDistributionProfile(total).slack + slack)


def _best_guarantee(plans: Iterable[_Plan], probability: float) -> PrivacyProfile:
    """The guarantee of the plan that the central limit theorem prefers."""
    best = min(plans, key=lambda plan: plan.guess(probability))
    if best.gaussian > _LARGEST_GAUSSIAN:
        return GaussianMixtureProfile([1.0], [math.inf])  # nothing is promised
    return best.profile(probability)


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


def composition_estimate(run: TrainingRun) -> Estimate:
    """An estimate for all iterates: Lemma A.5, as in the last column of their Table 3."""
    return Estimate(limit(sensitivity_over_noise(run), run.batches.share, run.steps))


def strongly_convex_estimate(run: TrainingRun) -> Estimate:
    """An estimate for strongly convex descent: Proposition C.14, the best R = t - tau."""
    share, r = run.batches.share, sensitivity_over_noise(run)
    gap = constant_gap(run)
    R = np.arange(1.0, min(run.steps, 1_000_000) + 1)
    carried = r * np.exp(logs_of_powers(log_of(gap), R + 1.0)) / gap
    squares = 8.0 * carried**2 + 2.0 * share**2 * R * growth(2.0 * r)
    return Estimate(math.sqrt(float(squares.min())))


def bounded_estimate(run: TrainingRun) -> Estimate:
    """The estimate of mu on a bounded domain by Proposition C.15, with the best R = t - tau."""
    share, r = run.batches.share, sensitivity_over_noise(run)
    far = quantities.diameter(run) / float(np.max(run.noise_std))  # D/(eta sigma)
    spread = 2.0 * share**2 * growth(2.0 * math.sqrt(2.0) * r)
    best = math.sqrt(2.0) * far / math.sqrt(spread) if 0.0 < spread < math.inf else 1.0
    choices = {min(max(1.0, f(min(best, run.steps))), run.steps) for f in (math.floor, math.ceil)}
    return Estimate(math.sqrt(min(2.0 * far**2 / R + spread * R for R in choices)))


def limit(mu: float, probability: float, steps: float) -> float:
    """The Gaussian parameter to which this many steps of ratio mu tend."""
    return math.sqrt(2.0 * steps * growth(mu)) * probability


def growth(mu: float) -> float:
    """The function v(mu), about mu^2 where that is small, without cancelling."""
    if mu > 25.0:
        return math.inf
    # 3 Phi(-mu/2) - 2 as 3 (Phi(-mu/2) - 1/2) - 1/2, and error functions for the differences.
    bent = math.erf(1.5 * mu * math.sqrt(0.5)) - 3.0 * math.erf(0.5 * mu * math.sqrt(0.5))
    return math.expm1(mu * mu) * float(ndtr(1.5 * mu)) + bent / 2.0


def _too_early(run: TrainingRun) -> str | None:
    if conditions.BOUNDED.check(run) is not None or not run.is_constant:
        return None
    (_, whole), seen = _unrolled_distance(run), epochs(run)
    return None if seen >= whole else f"{seen} < {whole}"


def _loud_step(run: TrainingRun) -> str | None:
    least = float(np.min(run.noise_std))
    ratio = run.sensitivity / run.batches.batch_size / least if least > 0.0 else math.inf
    return None if ratio <= _LARGEST_RATIO else f"sensitivity/(batch_size noise_std) = {ratio:.4g}"


LONG_ENOUGH = Hypothesis(
    "at least diameter batch_size/(step_size sensitivity) epochs (full batch: steps)",
    _too_early,
    "see fixed-order/convex, which has no such limit",
)
_ORDERED = (Cyclic, ShuffledOnce)
_SAMPLED = (SampledWithoutReplacement,)
_EVERY_ITERATE = (conditions.CONSTANT, conditions.NOISY)
_BOUNDED = (*conditions.GRADIENT_STEPS, conditions.BOUNDED)
_SAMPLED_STEPS = (
    conditions.SECRET_ORDER,
    conditions.THEIR_ADJACENCY,
    *conditions.CONTRACTING,
    conditions.CONSTANT,
    Hypothesis(
        f"sensitivity/(batch_size noise_std) <= {_LARGEST_RATIO:g}", _loud_step, "use more noise"
    ),
)
_SAMPLED_STRONGLY_CONVEX = (*_SAMPLED_STEPS, conditions.STRONGLY_CONVEX)
BOUNDS = (
    Bound(
        id=f"{PAPER}/full-batch-composition",
        gives="a Gaussian guarantee for all iterates",
        covers=(FullBatch,),
        needs=_EVERY_ITERATE,
        certainty=Certainty.UPPER,
        source=cite("Theorem 4.1"),
        evaluate=full_batch_composition,
    ),
    Bound(
        id=f"{PAPER}/full-batch",
        gives="a Gaussian guarantee for the last iterate, exact for quadratics",
        covers=(FullBatch,),
        needs=(*conditions.GRADIENT_STEPS, conditions.STRONGLY_CONVEX),
        certainty=Certainty.UPPER,
        source=cite("Theorems 4.2 and C.5"),
        evaluate=full_batch_strongly_convex,
    ),
    Bound(
        id=f"{PAPER}/full-batch-bounded",
        gives="a Gaussian guarantee for the last iterate, the same for all long runs",
        covers=(FullBatch,),
        needs=(*_BOUNDED, LONG_ENOUGH),
        certainty=Certainty.UPPER,
        source=cite("Theorem 4.3"),
        evaluate=full_batch_bounded,
    ),
    Bound(
        id=f"{PAPER}/full-batch-bounded-from",
        gives="a Gaussian guarantee for the last iterate, unrolled as far as is best",
        covers=(FullBatch,),
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
    Bound(
        id=f"{PAPER}/sampled-strongly-convex",
        gives="the last iterate of sampled batches on strongly convex losses",
        covers=_SAMPLED,
        needs=_SAMPLED_STRONGLY_CONVEX,
        certainty=Certainty.UPPER,
        source=cite("Theorem 4.9"),
        evaluate=strongly_convex,
    ),
    Bound(
        id=f"{PAPER}/sampled-shifts",
        gives="the same with smaller shifts",
        covers=_SAMPLED,
        needs=_SAMPLED_STRONGLY_CONVEX,
        certainty=Certainty.UPPER,
        source=cite("Theorem C.13"),
        evaluate=shifts,
    ),
    Bound(
        id=f"{PAPER}/sampled-bounded-domain",
        gives="the last iterate of sampled batches on a bounded domain",
        covers=_SAMPLED,
        needs=(*_SAMPLED_STEPS, conditions.BOUNDED),
        certainty=Certainty.UPPER,
        source=cite("Theorem 4.10"),
        evaluate=bounded_domain,
    ),
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
APPROXIMATIONS = (
    Approximation(
        id=f"{PAPER}/sampled-composition-estimate",
        gives="an approximate mu for all iterates",
        covers=_SAMPLED,
        needs=(conditions.CONSTANT, conditions.NOISY),
        source=cite("Lemma A.5"),
        evaluate=composition_estimate,
    ),
    Approximation(
        id=f"{PAPER}/sampled-estimate",
        gives="an approximate mu for the last iterate",
        covers=_SAMPLED,
        needs=(*conditions.GRADIENT_STEPS, conditions.STRONGLY_CONVEX),
        source=cite("Proposition C.14"),
        evaluate=strongly_convex_estimate,
    ),
    Approximation(
        id=f"{PAPER}/sampled-bounded-estimate",
        gives="an approximate mu for the last iterate",
        covers=_SAMPLED,
        needs=(*conditions.GRADIENT_STEPS, conditions.BOUNDED),
        source=cite("Proposition C.15"),
        evaluate=bounded_estimate,
    ),
)
