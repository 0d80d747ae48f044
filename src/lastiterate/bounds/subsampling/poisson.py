r"""The bound for Poisson batches whose participations stay hidden.

The two laws of the last iterate are no easier to distinguish than a product of mixtures
:math:`E N(Y_g, 1)` against N(0, 1), or against :math:`E N(-Y_g, 1)` if the example is replaced.
:math:`Y_g` is the cost of the participations in one group of steps, by a plan that is linear in
them (`subsampling.linear_plan`).  `docs/tightness.md#poisson-batches` has the theorem.
"""

import math

import numpy as np

from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, TINY, at_least, at_most, up
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Bound, Certainty, Citation
from lastiterate.bounds.fixed_order.convex import CONVEX_FIXED_ORDER
from lastiterate.bounds.subsampling.discounted_bernoulli_sum import discounted_sum
from lastiterate.bounds.subsampling.random_batch_sizes import (
    LimitedContraction,
    contractions_without_example,
)
from lastiterate.bounds.subsampling.shift_windows import best_shape, plan_of_shape
from lastiterate.profile.best import BestProfile
from lastiterate.profile.gaussian import sum_of_draws
from lastiterate.profile.losses import Repeated, SummedLossesProfile, shift_losses
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.run.batch_rules.drawn import PoissonSampled
from lastiterate.run.training_run import TrainingRun

_LARGEST_RATIO = 1e6  # of sensitivity and noise; above it nothing is certified
_LEAST_RATIO = 1e-12  # smaller ones are raised to it
_MOST_RELEASE_NOISE = 1e9  # in units of a step's noise; more is not used


def hidden_participations(run: TrainingRun) -> PrivacyProfile:
    r"""The profile of a product of mixtures, one for each group of hidden participations.

    **Bound.** :math:`\bigotimes_g \big(E\,N(Y_g, 1), N(0, 1)\big)`, :math:`Y_g = r\sum_{t\in g} V_t
    c^{a_t}/\sqrt{S_g}`: the discounted participations of a group g of steps over the noise that
    the group uses.  V are independent Bernoulli(p), r = C/(b sigma).  If the example is replaced,
    the second of each pair is :math:`E\,N(-Y_g, 1)`.  c is as in `random-order/poisson/average`.

    **Holds when.** every step includes every example independently and in secret with probability
    p (b/n unless the rule states another), and sums are divided by b; losses are convex and smooth,
    no step exceeds 2/smoothness, gradients are not changed by norm clipping; step size and noise
    are constant.  An example is left out, or replaced where gradients are bounded.

    **Tight.** Within a few per cent of the exact value for linear losses if contraction is weak.

    **Source.** This library (`docs/tightness.md#poisson-batches`); Kahane 1985; Bok, Su and
    Altschuler 2024, Theorem C.3.

    **Computed as** privacy losses in cells, composed by Fourier transforms, everything rounded up;
    the groups are chosen by a rule of thumb, and any choice that passes the checks is valid.
    """
    profiles = [_profile(run, one) for one in contractions_without_example(run)]
    return profiles[0] if len(profiles) == 1 else BestProfile(profiles)


def _profile(run: TrainingRun, contraction: LimitedContraction) -> PrivacyProfile:
    noise = float(quantities.noises(run)[0])
    released = min(quantities.release_noise(run) / noise, _MOST_RELEASE_NOISE)
    release = at_most(released * released, ulps=8)
    ratio = _ratio(run, noise)
    if not (ratio < _LARGEST_RATIO and contraction.failure < 1.0):
        return quantities.gaussian(math.inf)
    gap, probability = contraction.gap, run.batches.share
    size = run.examples_per_person
    # The diameter, and the participations of the step in which the oldest group begins.
    cap = up(quantities.diameter(run) / max(_gradient_change(run), TINY), MILLIONS_OF_ROUNDINGS)
    cap += size
    rough = _roughly(ratio)
    steps = run.steps if gap < 1.0 else 1  # gap 1 forgets all earlier steps
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
    factors = []
    for group in plan.groups:
        law = discounted_sum(gap, group.count, probability)
        sums, masses = law.levels, law.masses
        if size > 1:
            sums, masses = sum_of_draws(sums, masses, size)
        sums = np.minimum(sums, cap) if plan.is_oldest(group) else sums
        mus = up(sums * (plan.cost(group) * ratio), MILLIONS_OF_ROUNDINGS)
        losses = shift_losses(mus, masses, two_sided=two_sided)
        factors.append(Repeated(losses, group.blocks))
    return SummedLossesProfile(factors, lost=contraction.failure)


def _gradient_change(run: TrainingRun) -> float:
    """C/b of a single example."""
    if run.adjacency == "replace":
        assert run.gradient_bound is not None
        return run.gradient_bound / run.batches.batch_size
    return run.sensitivity / run.batches.batch_size


def _ratio(run: TrainingRun, noise: float) -> float:
    """C/(b sigma), rounded up."""
    return at_least(max(_gradient_change(run) / noise, _LEAST_RATIO), ulps=quantities.WIDENING)


def _roughly(ratio: float) -> float:
    """The ratio rounded to a coarse grid, so that nearby noise levels share windows and laws."""
    return math.exp(round(math.log(min(max(ratio, 1e-3), 1e3)) / 0.3) * 0.3)


HIDDEN_PARTICIPATIONS = Bound(
    id="random-order/poisson/hidden-participations",
    gives="hidden participations in batches of random size: a composition of few random sums",
    covers=(PoissonSampled,),
    needs=(
        conditions.SECRET_ORDER,
        *conditions.CONTRACTING,
        conditions.CONSTANT,
        conditions.NOISY,
        conditions.BOUNDED_GRADIENTS,
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
)
