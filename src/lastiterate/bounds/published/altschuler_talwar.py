r"""Altschuler and Talwar 2022: amplification by iteration, and by sampling, on a bounded domain.

Their noise is this library's sigma, and their L a Lipschitz constant, so that L = 2 L_AT.  For
sampled batches R is the number of unrolled steps; z and 2 C are those of `sampled_gaussian`.

Their lower bound has one gradient L and all others 0, so that one data set gives a symmetric walk
in an interval and the other one a walk that drifts by eta L/b with probability b/n in every step.
Tbar = .75 D n/(eta L) steps carry it across.

Their section 1.2 says in words how losses that their assumptions leave out may be made smooth and
Lipschitz; the last functions are the constants.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from lastiterate import _check
from lastiterate._numerics.powers import log_of
from lastiterate._numerics.rounding import (
    FEW_ROUNDINGS,
    TENS_OF_THOUSANDS_OF_ROUNDINGS,
    THOUSANDS_OF_ROUNDINGS,
    Array,
    up,
)
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Bound, Certainty, Citation, Hypothesis, LowerBound
from lastiterate.bounds.fixed_order.convex import convex_without_domain
from lastiterate.bounds.published.sampled_gaussian import (
    NOISE_SPLITS,
    doubled_radius,
    sampled_gaussian,
)
from lastiterate.profile.lower import OneTestLowerProfile
from lastiterate.profile.renyi import RenyiProfile, ZCDPProfile
from lastiterate.run.batch_rules.drawn import SampledWithoutReplacement
from lastiterate.run.batch_rules.ordered import Cyclic, FullBatch, ShuffledOnce
from lastiterate.run.loss import Gradients, Loss
from lastiterate.run.training_run import Ball, TrainingRun
from lastiterate.shifts.optimal_shifts import optimal_shifts

PAPER = "published/altschuler-talwar"
_MAX_UNROLLED_STEPS = 100_000
_LEAST_DIAMETER = 1e3  # c_D of footnote 11
_MOST_NOISE = 1e-3  # c_sigma
_RATE = 1e-7  # c_alpha
_ORDER = 100.0  # alpha bar
# Phi(.1/sqrt(.001)) = .99922, less 2 exp(-5.625) and exp(-5) for their event E to fail.
_POWER = 0.985


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
    steps = min(run.steps, _MAX_UNROLLED_STEPS // length * length or run.steps)
    pattern = np.zeros(steps)
    pattern[::-length] = float(quantities.sensitivities(run)[0])
    diameter = quantities.diameter(run)
    noise = float(quantities.noises(run)[0])
    mu = optimal_shifts(
        contraction=contraction, sensitivity=pattern, noise=noise, start=diameter, diameter=diameter
    ).mu
    return ZCDPProfile(up(mu * mu / 2.0, TENS_OF_THOUSANDS_OF_ROUNDINGS))


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
    return RenyiProfile(partial(_sampled_divergences, run, 0.0), at_once=True)


def sampled_strongly_convex(run: TrainingRun) -> RenyiProfile:
    r"""Renyi divergences of sampled batches of strongly convex losses on a bounded domain.

    **Bound.** :math:`R_\alpha \le \min_R R\, S_\alpha\big(\tfrac bn, \tfrac{b\sigma_2}{2C}\big)
    + c^{2R}\frac{\alpha D^2}{2\eta^2\sigma_1^2}`, else as `sampled_bounded`.

    **Holds when.** we know of no proof; see `sampled_bounded`.

    **Tight** to logarithms, if true.

    **Source.** Theorem 5.1 through (5.3).

    **Computed as** the least over R, and over a grid of splits.
    """
    return RenyiProfile(
        partial(_sampled_divergences, run, quantities.constant_gap(run)), at_once=True
    )


def _sampled_divergences(run: TrainingRun, gap: float, orders: Array) -> Array:
    """The divergences at these orders, the least over unrolled steps and splits of the noise."""
    q = run.batches.batch_size / run.batches.examples
    z = float(np.max(run.noise_std)) * run.batches.batch_size / doubled_radius(run)
    far = quantities.diameter_over_sensitivity(run) * quantities.sensitivity_over_noise(run)
    best = np.full(orders.size, np.inf)
    for split in NOISE_SPLITS:
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


def sampled_bounded_lower_bound(run: TrainingRun) -> OneTestLowerProfile:
    r"""One test that tells a walk with random drift from one without.

    **Bound.** The test "x >= 0" has probability 1/2 without the drift and .985 with it; so the run
    is not (.1, .01)-DP, nor (100, .005)-Renyi.

    **Holds when.** losses may be linear, iterates are projected, :math:`D \ge 1000\,\eta L`,
    :math:`\sigma^2 \le D^2/(1000\,\eta^2\bar T)` and :math:`T \ge \bar T = .75\,Dn/(\eta L)`.  L is
    the largest of one gradient, the other being 0.

    **Tight** to a constant factor in the Renyi divergence, at the largest noise allowed.

    **Source.** Theorem 4.1 and footnote 11, by what its proof shows: they allow .1 for an event
    whose probability they bound by .014, and then print .99993 for .99922.

    **Computed as** a constant; rounded down.
    """
    del run
    return OneTestLowerProfile(fpr=0.5, power=_POWER)


@dataclass(frozen=True)
class RenyiRate:
    """Lower bounds on the Renyi divergence of one order: as (4.1) prints it, and as proved."""

    order: float
    printed: float
    proved: float


def renyi_rate(run: TrainingRun) -> RenyiRate:
    r"""The rate of Theorem 4.1, as printed and as far as its proof goes.

    (4.1) is :math:`10^{-5} L^2 \min(T, \bar T)/(n\sigma)^2` at order 100.  The proof shows that
    Tbar steps are not (100, .005)-Renyi, whatever sigma is; for smaller sigma (4.1) is larger and
    remains unproved.  The test of `sampled_bounded_lower_bound` gives more than .005: the
    divergence of its two outcomes.  Shorter runs compose to one of Tbar steps, so they have at
    least their share of it, from the worst start.

    Parameters
    ----------
    run : TrainingRun
        Sampled batches on a ball, within the theorem's range but for the number of steps.

    Returns
    -------
    RenyiRate
        `printed` and `proved`, at order 100.

    Raises
    ------
    NoBoundApplies
        Where the run is outside the range of the theorem.
    """
    long = 0 if not isinstance(run.domain, Ball) or not run.is_constant else _long_run(run)
    BOUNDED_LOWER.profile(run.replace(steps=max(run.steps, long)))
    n, sigma = run.batches.examples, float(np.max(run.noise_std))
    printed = _RATE * _ORDER * (_one_gradient(run) / (n * sigma)) ** 2 * min(run.steps, long)
    power, less = math.log(_POWER), math.log1p(-_POWER)
    whole = np.logaddexp(_ORDER * power, _ORDER * less) / (_ORDER - 1.0) + math.log(2.0)
    return RenyiRate(_ORDER, printed, float(whole) / math.ceil(long / run.steps))


def _one_gradient(run: TrainingRun) -> float:
    bound = run.gradient_bound
    return run.sensitivity if bound is None else min(bound, run.sensitivity)


def _long_run(run: TrainingRun) -> int:
    """The number of steps Tbar, rounded up."""
    diameter = quantities.diameter(run)  # in units of the step size
    return math.ceil(0.75 * diameter * run.batches.examples / _one_gradient(run))


def gaussian_smoothed(*, lipschitz: float, width: float) -> Loss:
    r"""The loss :math:`E f(x + \text{width}\, Z)`, Z a standard Gaussian, for a convex f.

    Its gradient is :math:`E\,\nabla f(x + \text{width}\, Z)`, which is
    :math:`\sqrt{2/\pi}\,L/\text{width}`-Lipschitz: two Gaussians at distance d have total variation
    at most :math:`d/(\text{width}\sqrt{2\pi})`.  The loss rises by at most
    :math:`L\,\text{width}\sqrt{\text{dimension}}`.

    Parameters
    ----------
    lipschitz : float
        A bound on the gradients of f.
    width : float
        The standard deviation of the smoothing.

    Returns
    -------
    Loss
        Convex, smooth and with the same Lipschitz constant.

    Examples
    --------
    >>> round(gaussian_smoothed(lipschitz=1.0, width=0.5).smoothness, 4)
    1.5958
    """
    L = _check.number("lipschitz", lipschitz, above=0.0)
    s = _check.number("width", width, above=0.0)
    return Loss(smoothness=up(math.sqrt(2.0 / math.pi) * L / s, FEW_ROUNDINGS), lipschitz=L)


def moreau_smoothed(*, lipschitz: float, width: float) -> Loss:
    r"""The Moreau envelope :math:`\min_y f(y) + |x - y|^2/(2\,\text{width})` of a convex f.

    Its gradient is (x - y)/width at the minimising y, so a step is a proximal one.  It is
    1/width-smooth, and lies below f by at most :math:`L^2\,\text{width}/2`.

    Parameters
    ----------
    lipschitz : float
        A bound on the gradients of f.
    width : float
        The weight of f against the squared distance.

    Returns
    -------
    Loss
        Convex, smooth and with the same Lipschitz constant.

    Examples
    --------
    >>> round(moreau_smoothed(lipschitz=1.0, width=0.5).smoothness, 9)
    2.0
    """
    L = _check.number("lipschitz", lipschitz, above=0.0)
    s = _check.number("width", width, above=0.0)
    return Loss(smoothness=up(1.0 / s, FEW_ROUNDINGS), lipschitz=L)


def lipschitz_on_ball(*, smoothness: float, diameter: float) -> float:
    """The bound M D on gradients on the domain, if each of them vanishes somewhere in it.

    Two of them then differ by at most 2 L, which is the `sensitivity`.

    Parameters
    ----------
    smoothness : float
        A Lipschitz constant of every gradient.
    diameter : float
        The diameter of the domain.

    Returns
    -------
    float
        The bound.

    Examples
    --------
    >>> lipschitz_on_ball(smoothness=4.0, diameter=0.5)
    2.0
    """
    M = _check.number("smoothness", smoothness, above=0.0)
    return M * _check.number("diameter", diameter, above=0.0)


def _outside_theorem_4_1(run: TrainingRun) -> str | None:
    if not isinstance(run.domain, Ball) or not run.is_constant:
        return None
    D, sigma = quantities.diameter(run), float(np.max(run.noise_std))
    L, long = _one_gradient(run), _long_run(run)
    inside = _LEAST_DIAMETER * L <= D and sigma**2 * long <= _MOST_NOISE * D * D
    if inside and run.steps >= long and run.release_noise_std == 0.0:
        return None
    return f"D/(eta L) = {D / L:.4g}, {run.steps} steps for {long}"


_ORDERED = (FullBatch, Cyclic, ShuffledOnce)
_BOUNDED = (*conditions.GRADIENT_STEPS, conditions.BOUNDED)
_SAMPLED = (conditions.SECRET_ORDER, *conditions.GRADIENT_STEPS, conditions.BOUNDED)
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
BOUNDED_LOWER = LowerBound(
    id=f"{PAPER}/bounded-lower",
    gives="a walk in an interval, with random drift",
    covers=(SampledWithoutReplacement,),
    needs=(
        conditions.CONSTANT,
        conditions.NOISY,
        conditions.BOUNDED,
        conditions.MAY_BE_LINEAR,
        Hypothesis(
            "a domain, noise and number of steps in the theorem's range, no noise on release",
            _outside_theorem_4_1,
            "none: the constants are the paper's",
        ),
    ),
    source=cite("Theorem 4.1"),
    evaluate=sampled_bounded_lower_bound,
    gradients=lambda run: [Gradients(_one_gradient(run) / run.sensitivity, 0.0)],
)
LOWER_BOUNDS = (BOUNDED_LOWER,)
