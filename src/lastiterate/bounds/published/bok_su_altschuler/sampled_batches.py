r"""Bok, Su and Altschuler 2024: batches sampled anew every step.

Their convention is this library's.  Below r = L/(b sigma), p = b/n, c = max(|1 - eta m|,
|1 - eta M|), :math:`C_p(G(\mu))` is one Gaussian mechanism on a sampled batch, and the noise of a
step is split into parts with :math:`1/\alpha^2 + 1/\beta^2 = 1` (their footnotes 10 and 11).
Every choice of the free parameters is valid; the one made is the best by the central limit
theorem, which only guides.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from lastiterate._numerics.powers import log_of
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, at_least, up
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Bound, Certainty, Hypothesis
from lastiterate.bounds.composition import cell_of_losses
from lastiterate.bounds.conditions import SECRET_ORDER, THEIR_ADJACENCY
from lastiterate.bounds.published.bok_su_altschuler.estimates import growth
from lastiterate.bounds.published.bok_su_altschuler.paper import PAPER, cite
from lastiterate.bounds.quantities import constant_gap, sensitivity_over_noise
from lastiterate.profile.best import BestProfile
from lastiterate.profile.gaussian import GaussianMixtureProfile, SubsampledGaussian
from lastiterate.profile.pld import (
    LossDistributionProfile,
    least_discretization,
    require,
    self_composed,
    to_pld,
)
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.run.batch_rules.drawn import SampledWithoutReplacement
from lastiterate.run.training_run import TrainingRun

_SPLITS = np.geomspace(1.005, 12.0, 40)  # alpha
_LARGEST_RATIO = 8.0
_LEAST_RATIO = 1e-4  # smaller ones are charged as this
_LARGEST_GAUSSIAN = 300.0


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


def _least(plans: Iterable[_Plan], probability: float) -> PrivacyProfile:
    best = min(plans, key=lambda plan: plan.guess(probability))
    if best.gaussian > _LARGEST_GAUSSIAN:
        return GaussianMixtureProfile([1.0], [math.inf])  # nothing is promised
    return best.profile(probability)


def _lengths(most: int) -> list[int]:
    return sorted({min(most, round(1.08**k)) for k in range(300)} | {1, most})


def _other(alpha: float) -> float:
    """The factor beta that belongs to alpha, rounded up."""
    return at_least(1.0 / math.sqrt(-math.expm1(-2.0 * math.log(alpha))), ulps=64)


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
            ((2.0 * _other(alpha) * ratio, 1), (2.0 * share * ratio, length)),
        )
        for length in _lengths(steps)
        for share in shares
        for alpha in _SPLITS.tolist()
    )
    return _least(plans, probability)


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
            ((2.0 * _other(alpha) * ratio, length),),
        )
        for length in _lengths(run.steps)
        for alpha in _SPLITS.tolist()
    )
    return _least(plans, probability)


def _constants(run: TrainingRun) -> tuple[float, float, float]:
    """The constants r, rounded up, 1 - c, rounded down, and p."""
    probability = run.batches.share
    return (
        max(sensitivity_over_noise(run), _LEAST_RATIO),
        max(constant_gap(run), 0.0),
        probability,
    )


def _loud_step(run: TrainingRun) -> str | None:
    least = float(np.min(run.noise_std))
    ratio = run.sensitivity / run.batches.batch_size / least if least > 0.0 else math.inf
    return None if ratio <= _LARGEST_RATIO else f"sensitivity/(batch_size noise_std) = {ratio:.4g}"


_NEEDS = (
    SECRET_ORDER,
    THEIR_ADJACENCY,
    *conditions.CONTRACTING,
    conditions.CONSTANT,
    Hypothesis(
        f"sensitivity/(batch_size noise_std) <= {_LARGEST_RATIO:g}", _loud_step, "use more noise"
    ),
)
_STRONGLY_CONVEX = (*_NEEDS, conditions.STRONGLY_CONVEX)

BOUNDS = (
    Bound(
        id=f"{PAPER}/sampled-strongly-convex",
        gives="the last iterate of sampled batches on strongly convex losses",
        covers=(SampledWithoutReplacement,),
        needs=_STRONGLY_CONVEX,
        certainty=Certainty.UPPER,
        source=cite("Theorem 4.9"),
        evaluate=strongly_convex,
    ),
    Bound(
        id=f"{PAPER}/sampled-shifts",
        gives="the same with smaller shifts",
        covers=(SampledWithoutReplacement,),
        needs=_STRONGLY_CONVEX,
        certainty=Certainty.UPPER,
        source=cite("Theorem C.13"),
        evaluate=shifts,
    ),
    Bound(
        id=f"{PAPER}/sampled-bounded-domain",
        gives="the last iterate of sampled batches on a bounded domain",
        covers=(SampledWithoutReplacement,),
        needs=(*_NEEDS, conditions.BOUNDED),
        certainty=Certainty.UPPER,
        source=cite("Theorem 4.10"),
        evaluate=bounded_domain,
    ),
)
