r"""Poisson batches whose participations are never revealed.

**Theorem** (the engine for mixtures).  Let gradients be of norm at most C, and compare everything
with the run without the differing example.  Given all other draws, the example takes part in step t
if :math:`V_t = 1`, independently with probability p.  Let :math:`a^V` be a plan, feasible for the
engine (`shifts.optimal_shifts`) and in units of the noise, that pays arrivals :math:`r =
C/(b\sigma)` at V. Then what is published on the two data sets, P and Q, obeys in both directions

.. math:: H(P, Q) \le H\big(E_V N(a^V, I_T), N(0, I_T)\big) \text{ if the example is left out,}
    \quad H\big(E_V N(a^V, I_T), E_V N(-a^V, I_T)\big) \text{ if it is replaced.}

*Proof.*  Let y be the run without the example, driven by noise :math:`\xi`.  For every V let x be
the run with it, driven by the same noise less :math:`v_k`, which has the direction of the distance
before it and at most the planned length :math:`a_k^V`: the distance obeys the engine's recursion,
and x ends where y does.  Under :math:`M_V\,dR`, :math:`M_V = \prod_k e^{\langle v_k, \xi_k\rangle -
|v_k|^2/2}`, x has the law of the run with V (Girsanov).  So the law of its last iterate is that of
:math:`y_T` under :math:`M_V\,dR`, for one and the same function :math:`y_T` of the noise, and
:math:`H(P, Q) \le E\,\phi(E_V M_V)` with a convex :math:`\phi`.  Of two V the inner products of the
:math:`v_k` are at most those of the planned lengths, and for the two sides of a replacement at
least minus that.  By Kahane's inequality (1985), applied step by step from the last one backwards,
given the noise before, :math:`E\,\phi` does not decrease if each :math:`v_k` is replaced by
:math:`a_k^V` times one fixed direction.  Draws of others are averaged over: H is jointly convex.

**Linear plans.**  Let :math:`a^V = \sum_g Y_g e_g` with orthonormal :math:`e_g`, where
:math:`Y_g = r \sum_{t \in g} V_t c^{a_t} / \sqrt{S_g}` depends on the participations of one group
only (`subsampling.linear_plan`).  Then both sides are products: the pair is a composition of
:math:`E N(Y_g, 1)` against :math:`N(0, 1)`, or against :math:`E N(-Y_g, 1)`.  (A share of the
variance of the noise is an independent part of the noise.)  On a bounded domain the oldest group,
which holds all arrivals from some age on and is paid from that age on, brings no more than the
diameter and the arrival of that age: nothing else is unpaid then.

**Which steps contract.**  Only the map of the run without the example must: its batch is what the
others draw.  With more than K of them in some step, or so many that batches are cut and the example
would take another's place, the run is charged delta = 1.

**Persons.**  Nothing needs V to be 0 or 1.  With k examples of one person, all left out of what
everything is compared with, :math:`V_t` is the number of them in step t, and :math:`Y_g` a sum of k
independent ones.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, TINY, at_least, at_most, up
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Bound, Certainty, Citation, Hypothesis
from lastiterate.bounds.fixed_order.convex import CONVEX_FIXED_ORDER
from lastiterate.bounds.subsampling.discounted_bernoulli_sum import arrived
from lastiterate.bounds.subsampling.participation_mixture import POISSON
from lastiterate.bounds.subsampling.shift_windows import best_shape, plan_of_shape
from lastiterate.profile.best import BestProfile
from lastiterate.profile.gaussian_mixture import sum_of_draws
from lastiterate.profile.gaussian_mixture_pld import shift_losses
from lastiterate.profile.pld_convolution import Repeated, SummedLossesProfile
from lastiterate.profile.privacy_profile import PrivacyProfile
from lastiterate.run.batch_rules.rules import PoissonSampled
from lastiterate.run.domain import Ball
from lastiterate.run.training_run import TrainingRun

_LEAST_GAP = 1e-15  # less contraction than this is not used
_LARGEST_RATIO = 1e6  # more, and nothing is promised
_LEAST_RATIO = 1e-12  # less is taken for that
_MOST_RELEASED = 1e9  # more noise on release, relative to a step's, is not used
_NEVER = tuple(10.0**-i for i in range(14, 7, -1))  # chances that hardly anyone notices
# With more of any, revealed participations may cost a little less.
_RARELY, _FEW, _DECIDING = 0.1, 60.0, 1.2
_FEW_THAT_LAST = 200.0  # the same where little is forgotten within the run
_WORTH = Fraction(19, 20)  # of the contraction, for a smaller one of these


def hidden_participations(run: TrainingRun) -> PrivacyProfile:
    r"""Participations stay hidden: a composition of few normal results, each moved by a random sum.

    **Bound.** :math:`\bigotimes_g \big(E\,N(Y_g, 1), N(0, 1)\big)`, :math:`Y_g = r\sum_{t\in g} V_t
    c^{a_t}/\sqrt{S_g}`: the arrivals of a group g of steps, as they have shrunk since, over the
    noise that pays them.  V are independent Bernoulli(p), r = C/(b sigma).  If the example is
    replaced, the second of each pair is :math:`E\,N(-Y_g, 1)`.  c is as in `random-order/poisson`.

    **Holds when.** every step includes every example independently and in secret with probability
    p (b/n unless the rule states another), and sums are divided by b; losses are convex and smooth,
    no step exceeds 2/smoothness, gradients are not changed by norm clipping; step size and noise
    are constant.  An example is left out, or replaced where gradients are bounded.

    **Tight.** Within a few per cent of linear losses' where the past lasts; what is left is
    in the last steps and in the shares of the noise.

    **Source.** This library; Kahane 1985; Bok, Su and Altschuler 2024, Theorem C.3.

    **Computed as** privacy losses in cells, composed by Fourier transforms, everything rounded up;
    the groups are chosen by a rule of thumb, and any choice that passes the checks is valid.
    """
    profiles = [_given(run, one) for one in _contractions(run)]
    return profiles[0] if len(profiles) == 1 else BestProfile(profiles)


@dataclass(frozen=True)
class _Contraction:
    """1 - c of every step, except with probability `lost`."""

    gap: float
    lost: float


def _given(run: TrainingRun, contraction: _Contraction) -> PrivacyProfile:
    noise = float(quantities.noises(run)[0])
    released = min(quantities.release_noise(run) / noise, _MOST_RELEASED)
    release = at_most(released * released, ulps=8)
    ratio = _ratio(run, noise)
    if not (ratio < _LARGEST_RATIO and contraction.lost < 1.0):
        return quantities.gaussian(math.inf)
    gap, probability = contraction.gap, run.batches.share
    size = run.examples_per_person
    # The diameter, and what comes in the first step that may pay for it.
    cap = up(quantities.diameter(run) / max(_moved(run), TINY), MILLIONS_OF_ROUNDINGS) + size
    rough = _roughly(ratio)
    steps = run.steps if gap < 1.0 else 1  # nothing is left of what was before
    shape = best_shape(
        gap=gap,
        steps=steps,
        probability=probability,
        ratio=rough,
        release=float(f"{release:.1e}"),
        cap=cap,
    )
    plan = plan_of_shape(shape, gap=gap, steps=steps, ratio=rough, release=release)
    two_sided = run.adjacency == "replace"
    results = []
    for group in plan.groups:
        law = arrived(gap, group.count, probability)
        arriving, masses = law.levels, law.masses
        if size > 1:
            arriving, masses = sum_of_draws(arriving, masses, size)
        brought = np.minimum(arriving, cap) if plan.is_oldest(group) else arriving
        levels = up(brought * (plan.size(group) * ratio), MILLIONS_OF_ROUNDINGS)
        losses = shift_losses(levels, masses, two_sided=two_sided)
        results.append(Repeated(losses, group.times))
    return SummedLossesProfile(results, lost=contraction.lost)


def _moved(run: TrainingRun) -> float:
    """C/b, of a single example."""
    if run.adjacency == "replace":
        assert run.gradient_bound is not None
        return run.gradient_bound / run.batches.batch_size
    return run.sensitivity / run.batches.batch_size


def _ratio(run: TrainingRun, noise: float) -> float:
    """C/(b sigma), rounded up."""
    return at_least(max(_moved(run) / noise, _LEAST_RATIO), ulps=quantities.WIDENING)


def _roughly(ratio: float) -> float:
    """The ratio rounded to a coarse grid, so that nearby noise levels share windows and laws."""
    return math.exp(round(math.log(min(max(ratio, 1e-3), 1e3)) / 0.3) * 0.3)


def _contractions(run: TrainingRun) -> list[_Contraction]:
    """For all batches but those too large to be expected.

    Where counting on fewer examples contracts more, once as far as that is worth it, and once so
    that next to nothing is lost.
    """
    batches, loss = run.batches, run.loss
    assert loss.smoothness is not None
    eta, shared = Fraction(float(quantities.step_sizes(run)[0])), Fraction(loss.regulariser)
    own = (Fraction(loss.smoothness) - shared) / batches.batch_size

    def gap(size: int) -> Fraction:
        return min(eta * shared, 2 - eta * (own * size + shared))

    # Fewer than the largest batch holds: the differing examples take nobody's place.
    most = max(batches.largest_size - run.examples_per_person, 0)
    sizes = [most]
    if gap(most) < eta * shared:
        not_too_long = math.floor((2 - eta * shared) / (eta * own))
        unhindered = math.floor((2 - 2 * eta * shared) / (eta * own))
        expected = [max(_hardly_exceeded(run, never), unhindered) for never in _NEVER]
        worth = [size for size in expected if gap(size) >= eta * shared * _WORTH]
        wanted = (expected[0], worth[0] if worth else expected[-1])
        sizes = [min(size, most, not_too_long) for size in dict.fromkeys(wanted)]
    found = []
    for size in dict.fromkeys(sizes):
        exact = float(gap(size))
        everyone = size >= batches.examples - run.examples_per_person
        lost = 0.0 if everyone else _exceeded(run, size)
        usable = float(np.nextafter(exact, 0.0)) if exact > _LEAST_GAP else 0.0
        found.append(_Contraction(usable, lost if exact >= 0.0 else 1.0))
    return found


def _hardly_exceeded(run: TrainingRun, never: float) -> int:
    """The least number of other examples that next to no batch exceeds."""
    low, high = run.batches.batch_size, run.batches.examples - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _exceeded(run, middle) <= never else (middle + 1, high)
    return high


def _exceeded(run: TrainingRun, size: int) -> float:
    """The probability that others are more than so many in any step, by Chernoff's bound."""
    count, share = run.batches.examples - 1, run.batches.share
    number = size + 1
    if number > count:
        return 0.0
    if number <= count * share:
        return 1.0
    part = number / count
    if part >= 1.0:
        log = count * math.log(share)
    else:
        log = -count * (
            part * math.log(part / share)
            + (1.0 - part) * math.log1p((share - part) / (1.0 - share))
        )
    return min(up(math.exp(min(log + math.log(run.steps), 0.0)), MILLIONS_OF_ROUNDINGS), 1.0)


def _gradients_of_any_size(run: TrainingRun) -> str | None:
    if run.adjacency == "zero-out" or run.gradient_bound is not None:
        return None
    return f"adjacency={run.adjacency!r} and gradients of any size"


BOUNDED_GRADIENTS = Hypothesis(
    "adjacency='zero-out', or a bound on gradients",
    _gradients_of_any_size,
    "state that adjacency and its sensitivity, or loss.lipschitz",
)


def _superseded(run: TrainingRun) -> tuple[Bound, ...]:
    """The superseded bounds: `POISSON` where the participations that matter are few.

    It is not superseded where a single participation, a domain or a cut of batches decides.
    """
    share, gap = run.batches.share, float(quantities.gaps(run)[0])
    remembered = share * min(float(run.steps), 1.0 / max(gap, _LEAST_GAP))
    most = _FEW_THAT_LAST if run.steps * gap <= 1.0 else _FEW
    few = share <= _RARELY and remembered <= most and run.examples_per_person == 1
    bounded = isinstance(run.domain, Ball) or run.batches.largest_size < run.batches.examples
    decided = bounded or quantities.ratio(run) > _DECIDING
    return (POISSON,) if few and not decided else ()


HIDDEN_PARTICIPATIONS = Bound(
    id="random-order/poisson/hidden-participations",
    gives="hidden participations in batches of random size: a composition of few random sums",
    covers=(PoissonSampled,),
    needs=(
        conditions.SECRET_ORDER,
        *conditions.CONTRACTING,
        conditions.CONSTANT,
        conditions.NOISY,
        BOUNDED_GRADIENTS,
    ),
    certainty=Certainty.UPPER,
    source=Citation(
        "lastiterate",
        2026,
        "Hidden participations of Poisson batches",
        "docs, tightness; after Kahane 1985 and Bok, Su and Altschuler 2024, Theorem C.3",
    ),
    evaluate=hidden_participations,
    for_persons=hidden_participations,
    rests_on=(CONVEX_FIXED_ORDER,),
    charges="never reveals in which steps the secretly drawn example takes part",
    quick=False,
    supersedes=_superseded,
)
