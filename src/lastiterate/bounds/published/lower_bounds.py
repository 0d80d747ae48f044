r"""The papers' lower bounds, with their constants, in this library's convention.

Each exhibits losses that the run's description admits, in one dimension, and a test.
r = L/(b sigma), l = n // b, k = D b/(eta L).
"""

import math

import numpy as np
from scipy.special import ndtr

from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, down
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Hypothesis, LowerBound
from lastiterate.bounds.lower import admitted_curvatures
from lastiterate.bounds.published import (
    altschuler_talwar,
    bok_su_altschuler,
    chourasia_ye_shokri,
    needs,
)
from lastiterate.profile.lower import MeansLowerProfile, OneTestLowerProfile
from lastiterate.run.batches import Cyclic, FullBatch, SampledWithoutReplacement
from lastiterate.run.domain import Ball
from lastiterate.run.training_run import TrainingRun

_LEAST_DIAMETER = 1e3  # c_D of Altschuler and Talwar's footnote 11
_MOST_NOISE = 1e-3  # their c_sigma
_POWER = 0.8999  # their .99993 - .1


def bounded_lower_bound(run: TrainingRun) -> OneTestLowerProfile:
    r"""A walk that drifts to the right against one that does not, both kept in [-D/2, D/2].

    **Bound.** The test "x <= 0" has probability 1/2 without drift, and with it at most
    :math:`\min_R\ 2\bar\Phi\big(\frac{k - R}{w}\big) + \bar\Phi\big(\frac{R - k/2}{w}\big)`,
    :math:`w = \sqrt{Rl + h}/r` the walk's spread over the R last participations, in arrivals (h
    the noise on release, in steps): from the lowest point, the walk neither reaches the top
    nor stays below 0.

    **Holds when.** losses may be linear (not strongly convex, no regulariser), and iterates are
    projected onto a set of diameter D; full batches or a fixed order.  Where gradients are
    bounded by less than L, the others in a batch make up for the drift, so b >= 2.

    **Tight** to a constant factor of :math:`\mu`.

    **Source.** Theorem C.16.  Their constants are R = .8 k and Doob's inequality: any
    :math:`c_1 < \sqrt{.01/5.6}` and :math:`c_0 < c_1^2` small enough.  Here R is the best and
    Levy's inequality (the walk is symmetric) replaces Doob's.

    **Computed as** the least over R; rounded down.
    """
    length = run.batches.batches_per_epoch
    most = run.steps // length
    k = quantities.diameter(run) / float(quantities.arrivals(run)[0])
    R = np.unique(np.clip(np.linspace(k / 2.0, k, 400).astype(np.int64), 1, most)).astype(float)
    released = (run.release_noise_std / (quantities.unit(run) * float(np.max(run.noise_std)))) ** 2
    spread = np.sqrt(R * length + released) / needs.ratio(run)
    missed = 2.0 * ndtr(-(k - R) / spread) + ndtr(-(R - k / 2.0) / spread)
    least = min(1.0, float(missed.min()) / down(1.0, MILLIONS_OF_ROUNDINGS) + 1e-300)
    if not least < 0.5:
        return _nothing()
    return OneTestLowerProfile(fpr=least, power=down(0.5, MILLIONS_OF_ROUNDINGS))


def _nothing() -> OneTestLowerProfile:
    return OneTestLowerProfile(fpr=1.0, power=1.0)


def cyclic_lower_bound(run: TrainingRun) -> MeansLowerProfile:
    r"""Quadratics of the least curvature, the example in the last batch.

    **Bound.** :math:`\mu = r\sqrt{\frac{1-c^{lE}}{1+c^{lE}}\frac{1-c^2}{(1-c^l)^2}}`, exactly.

    **Holds when.** quadratics of curvature m obey the description, :math:`\eta \le 2/(M+m)`,
    the domain is unbounded and epochs are whole.

    **Tight.** Exact for these losses.

    **Source.** Theorem C.17.

    **Computed as** printed, from 1 - c; rounded down.
    """
    gap = float(np.max(run.step_size)) * run.loss.strong_convexity
    whole, one = (
        needs.forgotten(gap, run.steps),
        needs.forgotten(gap, run.batches.batches_per_epoch),
    )
    square = whole * (2.0 - gap) / (1.0 + needs.remembered(gap, run.steps)) / one**2
    mu = needs.ratio(run) * math.sqrt(square)
    return MeansLowerProfile([1.0], [down(mu, MILLIONS_OF_ROUNDINGS)])


def squared_lower_bound(run: TrainingRun) -> MeansLowerProfile:
    r"""Full batches of quadratics.

    **Bound.** :math:`\mu = r\sqrt{(1 - e^{-xT})/x}`, :math:`x = \eta m`: their
    :math:`\frac{\alpha S_g^2}{4\sigma^2n^2}(1 - e^{-\eta K})` has curvature 1, and n^2
    where eta^2 is printed.

    **Holds when.** quadratics of curvature m obey the description, x < 1, the domain is
    unbounded.

    **Tight.** Below the exact :math:`\frac{2-x}{1+(1-x)^T}\cdot\frac{1-(1-x)^T}{x}`.

    **Source.** Theorem 3.

    **Computed as** printed; rounded down.
    """
    x = float(np.max(run.step_size)) * run.loss.strong_convexity
    square = -math.expm1(-x * run.steps) / x
    mu = needs.ratio(run) * math.sqrt(square)
    return MeansLowerProfile([1.0], [down(mu, MILLIONS_OF_ROUNDINGS)])


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


def _not_linear(run: TrainingRun) -> str | None:
    span = admitted_curvatures(run)
    if span is not None and span[0] <= 0.0 <= span[1]:
        return None
    return f"strong_convexity={run.loss.strong_convexity!r}"


def _no_room(run: TrainingRun) -> str | None:
    bound = run.gradient_bound
    if bound is None or bound >= run.sensitivity or run.batches.batch_size >= 2:
        return None
    return f"batch_size=1, gradients of at most {bound!r}"


def _too_early(run: TrainingRun) -> str | None:
    if not isinstance(run.domain, Ball):
        return None
    k = quantities.diameter(run) / float(quantities.arrivals(run)[0])
    seen = run.steps // run.batches.batches_per_epoch
    return None if k >= 2.0 and k / 2.0 < seen else f"{seen} epochs for {k:.4g}"


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


def _no_square(run: TrainingRun) -> str | None:
    span = admitted_curvatures(run)
    if span is not None and 0.0 < run.loss.strong_convexity <= span[1] and run.loss.convex:
        return None
    return f"strong_convexity={run.loss.strong_convexity!r}"


def _long_step(run: TrainingRun) -> str | None:
    x = float(np.max(run.step_size)) * run.loss.strong_convexity
    return None if x < 1.0 else f"step_size strong_convexity = {x!r}"


def _bounded(run: TrainingRun) -> str | None:
    return f"{run.domain!r}" if isinstance(run.domain, Ball) else None


def _released(run: TrainingRun) -> str | None:
    rho = run.release_noise_std
    return None if rho == 0.0 else f"release_noise_std={rho!r}"


_LINEAR = Hypothesis(
    "losses that may be linear: no strong convexity", _not_linear, "see lower/quadratic"
)
_SQUARE = (
    conditions.CONSTANT,
    conditions.NOISY,
    Hypothesis(
        "quadratics of curvature strong_convexity > 0 that the description admits",
        _no_square,
        "see lower/quadratic",
    ),
    Hypothesis("an unbounded domain", _bounded, "see published/bok-su-altschuler/bounded-lower"),
    Hypothesis("no noise on release", _released, "see lower/quadratic"),
)

BOUNDS = (
    LowerBound(
        id=f"{bok_su_altschuler.PAPER}/bounded-lower",
        gives="a drifting walk in an interval",
        covers=(FullBatch, Cyclic),
        needs=(
            conditions.CONSTANT,
            conditions.NOISY,
            conditions.BOUNDED,
            _LINEAR,
            Hypothesis("room for a drift in the batch", _no_room, "use larger batches"),
            Hypothesis(
                "more than k/2 >= 1 epochs, k = diameter batch_size/(step_size sensitivity)",
                _too_early,
                "lengthen the run",
            ),
        ),
        source=bok_su_altschuler.cite("Theorem C.16"),
        evaluate=bounded_lower_bound,
    ),
    LowerBound(
        id=f"{bok_su_altschuler.PAPER}/cyclic-lower",
        gives="the exact privacy of quadratics in a fixed order",
        covers=(FullBatch, Cyclic),
        needs=(*_SQUARE, needs.BEST_STEP_AT_MOST, needs.WHOLE_EPOCHS),
        source=bok_su_altschuler.cite("Theorem C.17"),
        evaluate=cyclic_lower_bound,
    ),
    LowerBound(
        id=f"{altschuler_talwar.PAPER}/bounded-lower",
        gives="a walk in an interval, with random drift",
        covers=(SampledWithoutReplacement,),
        needs=(
            conditions.CONSTANT,
            conditions.NOISY,
            conditions.BOUNDED,
            _LINEAR,
            Hypothesis(
                "a domain, noise and number of steps in the theorem's range, no noise on release",
                _outside_theorem_4_1,
                "none: the constants are the paper's",
            ),
        ),
        source=altschuler_talwar.cite("Theorem 4.1"),
        evaluate=sampled_bounded_lower_bound,
    ),
    LowerBound(
        id=f"{chourasia_ye_shokri.PAPER}/squared-lower",
        gives="nearly the exact privacy of squared losses",
        covers=(FullBatch,),
        needs=(*_SQUARE, Hypothesis("step_size strong_convexity < 1", _long_step, "shorten")),
        source=chourasia_ye_shokri.cite("Theorem 3"),
        evaluate=squared_lower_bound,
    ),
)
