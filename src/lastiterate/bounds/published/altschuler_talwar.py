r"""Altschuler and Talwar 2022: Renyi divergences by amplification through iteration.

Their noise is this library's sigma, and their L a Lipschitz constant, so that L = 2 L_AT.  Below
s = eta L/b, R is the number of unrolled steps, and z and 2 C are those of `sampled_gaussian`.
"""

import math
from functools import partial

import numpy as np

from lastiterate._numerics.arrays import Array
from lastiterate._numerics.geometric import log_of, sums_of_powers
from lastiterate._numerics.rounding import (
    TENS_OF_THOUSANDS_OF_ROUNDINGS,
    THOUSANDS_OF_ROUNDINGS,
    up,
)
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Bound, Certainty, Citation, Hypothesis, LowerBound
from lastiterate.bounds.fixed_order.convex import convex_without_domain
from lastiterate.bounds.published.sampled_gaussian import doubled_radius, sampled_gaussian
from lastiterate.profile.lower import OneTestLowerProfile
from lastiterate.profile.renyi import RenyiProfile, ZCDPProfile
from lastiterate.run.batch_rules.rules import (
    Cyclic,
    FullBatch,
    SampledWithoutReplacement,
    ShuffledOnce,
)
from lastiterate.run.domain import Ball
from lastiterate.run.loss import Loss
from lastiterate.run.training_run import TrainingRun
from lastiterate.shifts.optimal_shifts import optimal_shifts

PAPER = "published/altschuler-talwar"
_MOST_UNROLLED = 100_000
_LEAST_DIAMETER = 1e3  # c_D of footnote 11
_MOST_NOISE = 1e-3  # c_sigma
_POWER = 0.8999  # .99993 - .1
_SPLITS = 1.0 / (1.0 + np.exp(-np.linspace(-7.0, 7.0, 43)))


def cite(where: str) -> Citation:
    title = (
        "Privacy of noisy stochastic gradient descent: more iterations without more privacy loss"
    )
    return Citation("Altschuler and Talwar", 2022, title, where)


def iteration(run: TrainingRun) -> ZCDPProfile:
    r"""The original amplification by iteration, with the best shifts.

    **Bound.** :math:`R_\alpha \le \frac\alpha2\sum_k (a_k/\eta\sigma)^2`, the least over
    payments whose running sum never exceeds that of the arrivals and ends equal to it.

    **Holds when.** losses are convex and smooth, no step exceeds 2/M, the order is fixed.

    **Tight** for linear losses.

    **Source.** Proposition 2.17; Feldman, Mironov, Talwar and Thakurta 2018, Theorem 22.

    **Computed as** the shifts without contraction or diameter; rounded up.
    """
    flat = Loss(smoothness=run.loss.smoothness)
    mu = convex_without_domain(run.replace(loss=flat, release_noise_std=0.0, clip_norm=None)).mu
    return ZCDPProfile(up(mu * mu / 2.0, THOUSANDS_OF_ROUNDINGS))


def bounded_iteration(run: TrainingRun) -> ZCDPProfile:
    r"""Amplification by iteration on a bounded domain, with the best number of unrolled steps.

    **Bound.** :math:`R_\alpha \le \frac\alpha2\sum_{k>\tau} (a_k/\eta\sigma)^2`, the least over
    the start :math:`\tau`, where the distance is D, and payments after it.

    **Holds when.** losses are convex and smooth, iterates are projected, the order is fixed.

    **Tight** to a constant factor.

    **Source.** Proposition 3.2.

    **Computed as** the shifts that begin at the diameter; rounded up.
    """
    length = run.batches.batches_per_epoch
    steps = min(run.steps, _MOST_UNROLLED // length * length or run.steps)
    pattern = np.zeros(steps)
    pattern[::-length] = float(quantities.sensitivities(run)[0])
    diameter = quantities.diameter(run)
    noise = float(quantities.noises(run)[0])
    mu = optimal_shifts(
        contraction=1.0, sensitivity=pattern, noise=noise, start=diameter, diameter=diameter
    ).mu
    return ZCDPProfile(up(mu * mu / 2.0, TENS_OF_THOUSANDS_OF_ROUNDINGS))


def bounded_strongly_convex(run: TrainingRun) -> ZCDPProfile:
    r"""Full batches of strongly convex losses on a bounded domain.

    **Bound.** :math:`R_\alpha \le \frac\alpha2 \min_R
    \frac{(c^R D + s\frac{1-c^R}{1-c})^2}{(\eta\sigma)^2\frac{1-c^{2R}}{1-c^2}}`.

    **Holds when.** losses are strongly convex and smooth, steps shorter than 2/M, iterates are
    projected, every step sees every example.

    **Tight.** Above the shifts that begin at 0 where runs are short.

    **Source.** Proposition 5.6, with the best payments (in proportion to :math:`c^{T-k}`).

    **Computed as** the least over R, which all are valid; rounded up.
    """
    gap, k = quantities.constant_gap(run), quantities.diameter_over_sensitivity(run)
    R = _unrolled(run.steps).astype(float)
    log_c = log_of(gap)
    mass = k * np.exp(R * log_c) + sums_of_powers(log_c, R, gap=gap)
    spread = sums_of_powers(2.0 * log_c, R, gap=gap * (2.0 - gap))
    rate = quantities.sensitivity_over_noise(run) ** 2 * float(np.min(mass * mass / spread)) / 2.0
    return ZCDPProfile(up(rate, TENS_OF_THOUSANDS_OF_ROUNDINGS))


def _unrolled(steps: int) -> Array:
    """Numbers of steps to unroll: every small one, then ever fewer."""
    small = np.arange(1, min(steps, 2_000) + 1)
    if steps <= 2_000:
        return small.astype(np.float64)
    large = np.unique(np.geomspace(2_000, steps, 4_000).astype(np.int64))
    return np.unique(np.concatenate([small, large, [steps]])).astype(np.float64)


def sampled_bounded(run: TrainingRun) -> RenyiProfile:
    r"""Sampled batches on a bounded domain.

    **Bound.** :math:`R_\alpha \le \min_R R\, S_\alpha\big(\tfrac bn, \tfrac{b\sigma_2}{2C}\big)
    + \frac{\alpha D^2}{2\eta^2\sigma_1^2 R}`, the least over
    :math:`\sigma_1^2 + \sigma_2^2 = \sigma^2` too, with S the larger of both directions.

    **Holds when.** nobody has proved it.  As printed, with S the smaller direction, it is false;
    with the larger no violation is known, but the proof conditions on noise that tells of the
    batch.  Losses are to be convex and smooth, no step above 2/M, iterates projected.

    **Tight** to a constant factor, if true.

    **Source.** Theorem 3.1 through (3.6).

    **Computed as** the least over R, and over a grid of splits.
    """
    return RenyiProfile(partial(_sampled, run, 0.0), at_once=True)


def sampled_strongly_convex(run: TrainingRun) -> RenyiProfile:
    r"""Sampled batches of strongly convex losses on a bounded domain.

    **Bound.** :math:`R_\alpha \le \min_R R\, S_\alpha\big(\tfrac bn, \tfrac{b\sigma_2}{2C}\big)
    + c^{2R}\frac{\alpha D^2}{2\eta^2\sigma_1^2}`, else as `sampled_bounded`.

    **Holds when.** nobody has proved it; see `sampled_bounded`.

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
    """min over R of R one + start/R, or + start c^{2R}: convex, so next to the stationary point."""
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
    r"""Sampled batches: a walk with random drift against one without.

    **Bound.** The test "x >= 0" has probability 1/2 without the drift and .8999 with it; so the run
    is not (.1, .01)-DP, nor (100, .005)-Renyi.

    **Holds when.** losses may be linear, iterates are projected, :math:`D \ge 1000\,\eta L`,
    :math:`\sigma^2 \le D^2/(1000\,\eta^2\bar T)` and :math:`T \ge \bar T = .75\,Dn/(\eta L)`.  L is
    the largest of one gradient, the other being 0.

    **Tight** to a constant factor in the Renyi divergence.

    **Source.** Theorem 4.1 and footnote 11.

    **Computed as** printed.
    """
    del run
    return OneTestLowerProfile(fpr=0.5, power=_POWER)


def _outside_theorem_4_1(run: TrainingRun) -> str | None:
    if not isinstance(run.domain, Ball) or not run.is_constant:
        return None
    bound = run.gradient_bound
    L = run.sensitivity if bound is None else min(bound, run.sensitivity)
    D, eta, sigma = run.domain.diameter, quantities.unit(run), float(np.max(run.noise_std))
    long = 0.75 * D * run.batches.examples / (L * eta)
    inside = _LEAST_DIAMETER * eta * L <= D and sigma**2 * eta**2 * long <= _MOST_NOISE * D * D
    if inside and run.steps >= long and run.release_noise_std == 0.0:
        return None
    return f"D/(eta L) = {D / (eta * L):.4g}, {run.steps} steps for {long:.4g}"


_ORDERED = (FullBatch, Cyclic, ShuffledOnce)
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
        needs=(*conditions.GRADIENT_STEPS, conditions.BOUNDED),
        certainty=Certainty.UPPER,
        source=cite("Proposition 3.2"),
        evaluate=bounded_iteration,
    ),
    Bound(
        id=f"{PAPER}/bounded-strongly-convex",
        gives="Renyi divergences of the last iterate that converge",
        covers=(FullBatch,),
        needs=(*conditions.GRADIENT_STEPS, conditions.BOUNDED, conditions.STRONGLY_CONVEX),
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

LOWER_BOUNDS = (
    LowerBound(
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
    ),
)
