r"""Sampled batches: participations that stay hidden, the last of them by amplification.

The mixture of `sampled` reveals in which steps the example took part.  Here none are.

**Early participations.** Let D and D' differ in i, which D' has as i'.  Draw a batch without i for
every step, and one example u of it; with probability p = b/n, independently, i takes the place of
u: that is a uniform batch.  Given these, let V be the steps in which it does on D, and W those on
D'.  If :math:`W \subset V` the two runs differ only in the steps of V, there by what exchanging two
examples does (i for i', or i for u): they are :math:`\mu(V)`-GDP.  So
`subsampling.mixture_transport` applies: heavier V borrow from their subsets.  (If an example is
left out and not replaced, i against nothing is the sensitivity C, but i against u up to 2 C, which
is charged throughout.)

**The last participations** have no later noise to hide in, but composition with sampling never
reveals them.  So the last R steps are charged as in composition, with a share :math:`\theta` of
their noise, while the rest of it pays what is left of the distance.  `split` chooses R and
:math:`\theta`.

**Proof.** Let z be the distance, after T - R steps and given V and W so far, between the run on one
data set, x', and a third run, x~, as in `shifts.optimal_shifts`; the run on the other data set is
x.  Write the noise of a later step as A + B, independent, of variance :math:`\theta` and :math:`1 -
\theta` of it.  From x~ the third run goes on with the same losses, batch S and noise as x', plus a
shift of length at most a towards that: the distance becomes at most :math:`cz - a`, since both take
the same step.  Compare it with x:

* :math:`\phi^S(x) + A` against :math:`\phi'^S(x) + A`, S secret, is a Gaussian mechanism on a
  sampled batch with noise A, whatever x is;
* given that result, B against B plus a shift that depends on S, x~ and x' is, by joint
  convexity, at most a shift of length a with noise B.

Adaptive composition gives both, and the step is the sum of the two.  So the steps cost
:math:`C_p(G(r/\sqrt\theta))^{\otimes R}`, and the shifts are those of R more steps of the engine,
without arrivals and with noise B, which together are like noise on release.  The last steps are
independent of V and W, so for all of these the two runs are dominated by
:math:`G(\mu(V)) \otimes C_p(G(r/\sqrt\theta))^{\otimes R}`.

Projections are after the sum and bring nothing further apart.
"""

import math
from dataclasses import replace
from functools import partial

import numpy as np

from lastiterate._numerics.arrays import IntArray
from lastiterate._numerics.geometric import inverse_power
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, at_least, down, ulps, up
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Bound, Certainty, Citation
from lastiterate.bounds.composition.sampled_composition import SAMPLED_COMPOSITION, near_rounding
from lastiterate.bounds.subsampling.mixture_transport import HiddenMixtureProfile
from lastiterate.bounds.subsampling.moment_transport import HiddenMomentsProfile
from lastiterate.bounds.subsampling.participation_energy.energy_moments import energy_moments
from lastiterate.bounds.subsampling.participation_mixture import SAMPLED, mixture, parts_of
from lastiterate.bounds.subsampling.tail_split import (
    Split,
    best_split,
    log_cut,
    relative_release_noise,
)
from lastiterate.profile.best import BestProfile, FallbackProfile
from lastiterate.profile.pld import LossDistributionProfile
from lastiterate.profile.privacy_profile import PrivacyProfile
from lastiterate.run.batch_rules.rules import SampledWithoutReplacement
from lastiterate.run.training_run import TrainingRun

_SHORT = 300  # steps, of which the whole law is quickly found
_DECIDING = 1.35  # r of which a single participation may decide
_FEW = 1.5  # participations, of which little is known to be typical
_RATES, _LOWEST_RATES = np.arange(2, 8), np.arange(-4, 6)
_LOWER_RATES = np.array([-4, -2, *range(8)])
_SMALL, _LARGE = 0.5, 1.2  # a typical mu of which the first will do, and r of which only the last
_LEAST_GAP = 1e-15  # less contraction than this is not used
_LEAST_RATIO, _LARGEST_RATIO = 1e-6, 1e6
_MOST_RELEASED = 1e6  # more noise on release, relative to a step's, is not used


def sampled_amplified_tail(run: TrainingRun) -> PrivacyProfile:
    r"""Hidden participations, followed by last steps whose batches stay hidden.

    **Bound.** :math:`E_V\,\delta_{(\mu(V))}(\log g(V))` for an increasing g with
    :math:`E\,g(V) \le e^\varepsilon`: V are the participations before the last R steps,
    :math:`\mu(V)` is the guarantee of `random-order/sampled` for these with
    :math:`(1-\theta)\sum_{j\le R}c^{-2j}` steps' noise on release, and :math:`\delta_{(\mu)}` the
    curve of :math:`G(\mu) \otimes C_p(G(r/\sqrt\theta))^{\otimes R}`.  p = b/n, r = L/(b sigma).

    **Holds when.** both `random-order/sampled` and `composition/sampled` do.  If an example is left
    out, no gradient exceeds the sensitivity, L is twice that, and only the penalty counts as
    curvature.

    **Tight.** To some ten per cent where the past lasts; the scoreboard in the docs has what is
    left.

    **Source.** This library; Bok, Su and Altschuler 2024, Theorem C.3; Dong, Roth and Su 2022,
    Theorem 9; Harris 1960.

    **Computed as** exponential moments of :math:`\mu(V)^2`, by a recursion over few blocks of steps
    (`subsampling.participation_energy`), with one price for what is borrowed; R and :math:`\theta`
    are chosen by rough moments, and any choice is valid.  For deltas near the rounding of what is
    composed, R = 0.  In short runs, and where a single participation decides, also by the law of
    `random-order/sampled`, with R = 0.
    """
    replaced = _as_replacement(run)
    before, tail = _divided(replaced, best_split(replaced))
    hidden = [_by_moments(before, tail)]
    if _has_law(replaced):
        hidden += _by_law(replaced)
    usual = hidden[0] if len(hidden) == 1 else BestProfile(hidden)
    if tail is None:
        return usual
    return FallbackProfile(
        usual, below=near_rounding(tail), fallback=partial(_by_moments, replaced, None)
    )


def _has_law(run: TrainingRun) -> bool:
    """Whether that of the energy says more than its moments, or is quickly found."""
    return run.steps <= _SHORT or quantities.ratio(run) > _DECIDING


def _remembered(run: TrainingRun) -> float:
    """Participations that are not forgotten, on average."""
    gap = float(quantities.gaps(run)[0])
    return run.batches.share * min(float(run.steps), 1.0 / max(gap, _LEAST_GAP))


def _divided(run: TrainingRun, split: Split) -> tuple[TrainingRun, LossDistributionProfile | None]:
    """The run before the tail, and the tail."""
    tail = split.tail(run) if split.steps else None
    return run if tail is None else _before_the_tail(run, split), tail


def _by_law(run: TrainingRun) -> list[PrivacyProfile]:
    return [
        HiddenMixtureProfile(part.weights, part.mus, lost=part.lost)
        for part in parts_of(mixture(run))
    ]


def _by_moments(run: TrainingRun, tail: LossDistributionProfile | None) -> PrivacyProfile:
    noise = float(quantities.noises(run)[0])
    arrival = float(quantities.sensitivities(run)[0])
    ratio = at_least(arrival / noise, ulps=quantities.WIDENING)
    if not _LEAST_RATIO < ratio < _LARGEST_RATIO:
        return quantities.gaussian(math.inf)
    gap = float(quantities.gaps(run)[0])
    released = min(quantities.release_noise(run) / noise, _MOST_RELEASED)
    # Half powers of 2, so that noise levels near each other share the moments.
    rates = 2.0 ** (0.5 * (math.floor(4.0 * math.log2(ratio)) + _powers(run)))
    moments = energy_moments(
        gap=gap if gap > _LEAST_GAP else 0.0,
        steps=run.steps,
        probability=run.batches.share,
        release=_rounded_down(released * released),
        rates=tuple(rates.tolist()),
        cap=up(quantities.diameter(run) / arrival, MILLIONS_OF_ROUNDINGS),
    )
    return HiddenMomentsProfile(
        np.asarray(rates / (ratio * ratio)),
        moments.logs,
        lost=min(moments.lost, 1.0),
        more=moments.older * ratio,
        followed_by=tail,
    )


def _powers(run: TrainingRun) -> IntArray:
    """The larger the costs, the lower the rates that matter."""
    if quantities.ratio(run) > _LARGE:
        return _LOWEST_RATES
    typical = quantities.ratio(run) * math.sqrt(run.batches.share * _remembered(run))
    return _RATES if typical < _SMALL else _LOWER_RATES


def _rounded_down(value: float) -> float:
    """To four digits."""
    if not value > 0.0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(value)) - 3)
    return min(down(math.floor(value / unit) * unit, ulps(8)), value)


def _as_replacement(run: TrainingRun) -> TrainingRun:
    """The run in which an example that is left out is replaced by one without a gradient.

    In the tail both the third run and x' take the step of x'.  If that is the run without the
    example, its batch may lack one loss (all of them, if b = 1), so only the penalty is certain to
    curve the step.
    """
    if run.adjacency == "replace":
        return run
    return run.replace(
        adjacency="replace",
        sensitivity=2.0 * run.sensitivity,
        loss=replace(run.loss, strong_convexity=run.loss.regulariser),
    )


def _before_the_tail(run: TrainingRun, split: Split) -> TrainingRun:
    """The steps before it, with as much noise on release as the tail pays with, and the run's."""
    gap = float(quantities.gaps(run)[0])
    noise = float(quantities.noises(run)[0])
    paying = down(split.release_in_steps(gap), MILLIONS_OF_ROUNDINGS)
    unshrunk = down(inverse_power(2.0 * log_cut(gap), split.steps), MILLIONS_OF_ROUNDINGS)
    own = relative_release_noise(run)
    in_steps = min(paying + own * own * unshrunk, 1e12)
    released = down(math.sqrt(in_steps) * quantities.unit(run) * noise, MILLIONS_OF_ROUNDINGS)
    return run.replace(steps=run.steps - split.steps, release_noise_std=released)


def _superseded(run: TrainingRun) -> tuple[Bound, ...]:
    """The superseded bounds: `SAMPLED` where moments are used, and for the same sensitivity."""
    alike = run.adjacency == "replace" and run.examples_per_person == 1
    many = run.steps > _SHORT and _remembered(run) >= _FEW
    return (SAMPLED,) if alike and many and quantities.ratio(run) <= _DECIDING else ()


_SOURCE = Citation(
    "lastiterate",
    2026,
    "Hidden ends of sampled runs",
    "docs, tightness; after Bok, Su and Altschuler 2024 and Dong, Roth and Su 2022",
)

SAMPLED_AMPLIFIED_TAIL = Bound(
    id="random-order/sampled/amplified-tail",
    gives="that law, kept hidden, and the last steps with amplification by sampling",
    covers=(SampledWithoutReplacement,),
    needs=tuple(
        one
        for one in conditions.of_all(SAMPLED, SAMPLED_COMPOSITION)
        if one is not conditions.THEIR_ADJACENCY
    ),
    certainty=Certainty.UPPER,
    source=_SOURCE,
    evaluate=sampled_amplified_tail,
    rests_on=(SAMPLED,),
    charges="keeps hidden in which steps the secretly drawn example takes part",
    quick=False,
    supersedes=_superseded,
)
