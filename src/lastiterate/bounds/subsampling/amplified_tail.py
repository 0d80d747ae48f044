r"""The bound for sampled batches whose participations stay hidden.

Early participations are hidden by transport to their subsets (`docs/tightness.md#sampled-batches`).
The last R steps are composed with amplification by sampling, with a share of their noise; the rest
of it serves the shifts (`docs/tightness.md#amplified-tail`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import product

import numpy as np

from lastiterate._numerics.powers import (
    inverse_power,
    log_of,
    sum_of_inverse_powers,
    sum_of_powers,
    sums_of_powers,
)
from lastiterate._numerics.rounding import (
    MILLIONS_OF_ROUNDINGS,
    Array,
    IntArray,
    at_least,
    down,
    ulps,
    up,
)
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Bound, Certainty, Citation
from lastiterate.bounds.composition import SAMPLED_COMPOSITION, composed_steps, near_rounding
from lastiterate.bounds.subsampling.average import (
    SAMPLED_AVERAGE,
    mixtures_of,
    participation_mixture,
)
from lastiterate.bounds.subsampling.energy_moments import energy_moments
from lastiterate.bounds.subsampling.hidden_mixture import (
    MixtureTransportProfile,
    MomentTransportProfile,
)
from lastiterate.profile.best import BestProfile, FallbackProfile
from lastiterate.profile.pld import LossDistributionProfile
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.run.batch_rules.drawn import SampledWithoutReplacement
from lastiterate.run.training_run import TrainingRun

_SHORT = 300  # steps of a run whose whole law is computed quickly

_LARGE_RATIO = 1.35  # of sensitivity and noise, above which a single participation may decide

# Exponents of the rates of moments; the larger the costs, the lower the rates that matter.
_RATES, _LOWER_RATES, _LOWEST_RATES = (
    np.arange(2, 8),
    np.array([-4, -2, *range(8)]),
    np.arange(-4, 6),
)

_SMALL_MU, _LOWEST_RATES_RATIO = 0.5, 1.2  # up to which and from which on rates are switched

_LEAST_GAP = 1e-15  # less contraction than this is not used

_LEAST_RATIO = 1e-6

_LARGEST_RATIO = 1e6

_MOST_RELEASE_NOISE = 1e6  # in units of a step's noise; more is not used

_MOST_STEPS_OF_RELEASE = 1e12

_TAIL_CELL = 1e-3  # of the privacy losses of the tail, at most


def sampled_amplified_tail(run: TrainingRun) -> PrivacyProfile:
    r"""The profile of hidden participations and of last steps amplified by sampling.

    **Bound.** :math:`E_V\,\delta_{(\mu(V))}(\log g(V))` for an increasing g with
    :math:`E\,g(V) \le e^\varepsilon`: V are the participations before the last R steps,
    :math:`\mu(V)` is the guarantee of `fixed-order/convex` for these with
    :math:`(1-\theta)\sum_{j\le R}c^{-2j}` steps' noise on release, and :math:`\delta_{(\mu)}` the
    curve of :math:`G(\mu) \otimes C_p(G(r/\sqrt\theta))^{\otimes R}`.  p = b/n, r = L/(b sigma).

    **Holds when.** both `random-order/sampled/average` and `composition/sampled` do.  If an example
    is left out, no gradient exceeds the sensitivity, L is twice that, and only the penalty counts
    as curvature.

    **Tight.** To some ten per cent if contraction is weak.

    **Source.** This library (`docs/tightness.md#amplified-tail`); Bok, Su and Altschuler 2024,
    Theorem C.3; Dong, Roth and Su 2022, Theorem 9; Harris 1960.

    **Computed as** exponential moments of :math:`\mu(V)^2`, by a recursion over few blocks of steps
    (`subsampling.participation_energy`), with one Lagrange multiplier; R and :math:`\theta` are
    chosen by rough moments, and any choice is valid.  For deltas near the rounding of the
    composition, R = 0.  In short runs, and where a single participation decides, also by the law of
    `random-order/sampled/average`, with R = 0.
    """
    replaced = _as_replacement(run)
    before, tail = _divided(replaced, _best_split(replaced))
    profiles = [_by_moments(before, tail)]
    if _uses_law(replaced):
        profiles += _by_law(replaced)
    usual = profiles[0] if len(profiles) == 1 else BestProfile(profiles)
    if tail is None:
        return usual
    return FallbackProfile(
        usual, below=near_rounding(tail), fallback=partial(_by_moments, replaced, None)
    )


def _uses_law(run: TrainingRun) -> bool:
    """Whether the law of the energy is more precise than its moments, or computed quickly."""
    return run.steps <= _SHORT or quantities.ratio(run) > _LARGE_RATIO


def _participations_in_memory(run: TrainingRun) -> float:
    """The average number of participations within the memory 1/(1 - c)."""
    gap = float(quantities.gaps(run)[0])
    return run.batches.share * min(float(run.steps), 1.0 / max(gap, _LEAST_GAP))


def _best_split(run: TrainingRun) -> TailSplit:
    ratio = float(quantities.sensitivities(run)[0]) / float(quantities.noises(run)[0])
    gap, share = float(quantities.gaps(run)[0]), run.batches.share
    return best_split(gap, run.steps, share, ratio, _relative_release_noise(run))


def _divided(
    run: TrainingRun, split: TailSplit
) -> tuple[TrainingRun, LossDistributionProfile | None]:
    """The run before the tail, and the composition of the tail.

    None stands for a tail whose losses are too large to be composed.
    """
    if not split.steps:
        return run, None
    typical = run.batches.share * quantities.ratio(run)
    cell = min(_TAIL_CELL, typical / 5)
    tail = composed_steps(run, split.steps, share=split.share, least_cell=cell)
    return run if tail is None else _before_the_tail(run, split), tail


def _by_law(run: TrainingRun) -> list[PrivacyProfile]:
    return [
        MixtureTransportProfile(law.weights, law.mus, lost=law.lost)
        for law in mixtures_of(participation_mixture(run))
    ]


def _by_moments(run: TrainingRun, tail: LossDistributionProfile | None) -> PrivacyProfile:
    noise = float(quantities.noises(run)[0])
    sensitivity = float(quantities.sensitivities(run)[0])
    ratio = at_least(sensitivity / noise, ulps=quantities.WIDENING)
    if not _LEAST_RATIO < ratio < _LARGEST_RATIO:
        return quantities.gaussian(math.inf)
    gap = float(quantities.gaps(run)[0])
    released = min(quantities.release_noise(run) / noise, _MOST_RELEASE_NOISE)
    # Half powers of 2, so that nearby noise levels share the moments.
    rates = 2.0 ** (0.5 * (math.floor(4.0 * math.log2(ratio)) + _exponents(run)))
    moments = energy_moments(
        gap=gap if gap > _LEAST_GAP else 0.0,
        steps=run.steps,
        probability=run.batches.share,
        release=_rounded_down(released * released),
        rates=tuple(rates.tolist()),
        cap=up(quantities.diameter(run) / sensitivity, MILLIONS_OF_ROUNDINGS),
    )
    return MomentTransportProfile(
        np.asarray(rates / (ratio * ratio)),
        moments.logs,
        lost=min(moments.lost, 1.0),
        extra_mu=moments.extra_mu * ratio,
        composed_with=tail,
    )


def _exponents(run: TrainingRun) -> IntArray:
    """The exponents of the rates of moments."""
    if quantities.ratio(run) > _LOWEST_RATES_RATIO:
        return _LOWEST_RATES
    typical = quantities.ratio(run) * math.sqrt(run.batches.share * _participations_in_memory(run))
    return _RATES if typical < _SMALL_MU else _LOWER_RATES


def _rounded_down(value: float) -> float:
    """The value, rounded down to four digits."""
    if not value > 0.0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(value)) - 3)
    return min(down(math.floor(value / unit) * unit, ulps(8)), value)


def _as_replacement(run: TrainingRun) -> TrainingRun:
    """The run in which an example that is left out is replaced by one without a gradient.

    If x' in the proof is the run without the example, its batch may lack one loss (all of them, if
    b = 1), so only the penalty is certain to curve the step.
    """
    if run.adjacency == "replace":
        return run
    return run.replace(
        adjacency="replace",
        sensitivity=2.0 * run.sensitivity,
        loss=replace(run.loss, strong_convexity=run.loss.regulariser),
    )


def _before_the_tail(run: TrainingRun, split: TailSplit) -> TrainingRun:
    """The steps before the tail, with the tail's noise for shifts as noise on release."""
    gap = float(quantities.gaps(run)[0])
    noise = float(quantities.noises(run)[0])
    for_shifts = down(split.release_in_steps(gap), MILLIONS_OF_ROUNDINGS)
    undone = down(inverse_power(2.0 * limited_log(gap), split.steps), MILLIONS_OF_ROUNDINGS)
    own = _relative_release_noise(run)
    in_steps = min(for_shifts + own * own * undone, _MOST_STEPS_OF_RELEASE)
    released = down(math.sqrt(in_steps) * quantities.unit(run) * noise, MILLIONS_OF_ROUNDINGS)
    return run.replace(steps=run.steps - split.steps, release_noise_std=released)


def _relative_release_noise(run: TrainingRun) -> float:
    """The noise on release, as far as it is used, over that of a step."""
    noise = float(quantities.noises(run)[0])
    return min(run.release_noise_std / (quantities.unit(run) * noise), _MOST_RELEASE_NOISE)


_SOURCE = Citation(
    "lastiterate",
    2026,
    "Amplified tails of sampled runs",
    "docs, tightness; after Bok, Su and Altschuler 2024 and Dong, Roth and Su 2022",
)

SAMPLED_AMPLIFIED_TAIL = Bound(
    id="random-order/sampled/amplified-tail",
    gives="hidden participations, and the last steps with amplification by sampling",
    covers=(SampledWithoutReplacement,),
    needs=tuple(
        one
        for one in conditions.of_all(SAMPLED_AVERAGE, SAMPLED_COMPOSITION)
        if one is not conditions.THEIR_ADJACENCY
    ),
    certainty=Certainty.UPPER,
    source=_SOURCE,
    evaluate=sampled_amplified_tail,
    rests_on=(SAMPLED_AVERAGE,),
    charges="keeps hidden in which steps the secretly drawn example takes part",
    quick=False,
)


# The choice of the last steps of a sampled run to amplify, and of their share of the noise.
#
# Any choice is valid (`amplified_tail`); this one is made by rough moments.  At order a, and with
# :math:`s = a(a-1)/2`, the logarithm of the moment of earlier participations is about
#
# .. math:: s\,r^2 W^2/V + \sum_j p\,(e^{s r^2 c^{2j}/S_j} - 1) ,
#
# where W is their discounted mean, V the variance of all noise and :math:`S_j` that of the ages up
# to
# j; and each of the last steps has a moment of :math:`1 + p(e^{\rho Z - \rho^2/2} - 1)`.

USUAL_DELTA = 1e-6  # at which splits are compared

_STEPS = (
    *(1, 2, 5, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280, 1920),
    *(2560, 3840, 5120),
)

_SHARES = (0.5, 0.6, 0.7, 0.8, 0.87, 0.93)

_ORDERS = 1.0 + np.geomspace(0.2, 2000.0, 60)

_NORMAL_GRID = np.linspace(-8.0, 40.0, 400)

_AGES = 60  # groups of ages

_MEMORIES = 30.0  # older participations are neglected

_LARGEST_EXPONENT = 500.0

_TAIL_WEIGHT = 2.0  # by trial: moments underrate rare losses and overrate early ones

_LEAST_GAIN = 0.99  # a split must gain a per cent, which composition costs


@dataclass(frozen=True)
class TailSplit:
    """The last `steps` are amplified, with a `share` of the variance of their noise."""

    steps: int
    share: float

    def release_in_steps(self, gap: float) -> float:
        """The rest of the last steps' noise as release noise, in units of a step's noise."""
        return (1.0 - self.share) * sum_of_inverse_powers(2.0 * limited_log(gap), self.steps)


NO_TAIL = TailSplit(0, 1.0)


def best_split(
    gap: float, steps: int, probability: float, ratio: float, release_noise: float
) -> TailSplit:
    """The best split by rough moments; nearby noise levels share one.

    `ratio` is the per-step sensitivity over the noise of a step, and `release_noise` is in units of
    the latter.
    """
    if not _LEAST_RATIO < ratio < 1.0 / _LEAST_RATIO:
        return NO_TAIL
    rounded = math.exp(round(math.log(ratio) / 0.1) * 0.1)
    own = float(f"{release_noise**2:.1e}")
    return _best(gap, steps, probability, rounded, own)


@lru_cache(maxsize=256)
def _best(gap: float, steps: int, probability: float, ratio: float, own: float) -> TailSplit:
    def epsilon(split: TailSplit) -> float:
        released = split.release_in_steps(gap) + own
        early = _early_log_moments(gap, steps - split.steps, probability, ratio, released)
        late = (
            _TAIL_WEIGHT
            * split.steps
            * _step_log_moments(probability, ratio / math.sqrt(split.share))
        )
        return float(np.min((early + late - math.log(USUAL_DELTA)) / (_ORDERS - 1.0)))

    splits = [TailSplit(length, share) for length, share in product(_STEPS, _SHARES)]
    epsilons = {split: epsilon(split) for split in splits if split.steps < steps}
    epsilons[NO_TAIL] = _LEAST_GAIN * epsilon(NO_TAIL)
    return min(epsilons, key=epsilons.__getitem__)


def _early_log_moments(
    gap: float, steps: int, probability: float, ratio: float, released: float
) -> Array:
    """The logarithms of the moments of participations before the tail, for each order."""
    log_c = limited_log(gap)
    span = min(float(steps), _MEMORIES / -log_c) if log_c < 0.0 else float(steps)
    edges = np.unique(np.rint(np.append(0.0, np.geomspace(1.0, max(span, 1.0), _AGES))))
    ages, lengths = edges[:-1], np.diff(edges)
    since = sums_of_powers(2.0 * log_c, ages + 1.0) + released
    mean = probability * sum_of_powers(log_c, steps)
    whole = mean * mean / (sum_of_powers(2.0 * log_c, steps) + released)
    scale = 0.5 * _ORDERS * (_ORDERS - 1.0) * ratio * ratio
    exponents = scale[:, None] * (np.exp(2.0 * log_c * ages) / since)
    single = np.expm1(np.minimum(exponents, _LARGEST_EXPONENT)) @ lengths
    return np.asarray(scale * whole + probability * single)


@lru_cache(maxsize=64)
def _step_log_moments(probability: float, ratio: float) -> Array:
    """The logarithms of the moments of one amplified step, for each order."""
    exponents = np.minimum(ratio * _NORMAL_GRID - 0.5 * ratio * ratio, _LARGEST_EXPONENT)
    with np.errstate(divide="ignore"):  # the logarithm of 0 is -inf, and adds nothing
        logs = np.log1p(probability * np.expm1(exponents))
    terms = _ORDERS[:, None] * logs - 0.5 * np.square(_NORMAL_GRID)
    top = terms.max(axis=1)
    sums = np.exp(terms - top[:, None]).sum(axis=1) * (_NORMAL_GRID[1] - _NORMAL_GRID[0])
    return np.asarray(np.maximum(top + np.log(sums) - 0.5 * math.log(2.0 * math.pi), 0.0))


def limited_log(gap: float) -> float:
    """log c, for c of at least a tenth; a larger c only lowers the noise for shifts."""
    return log_of(min(gap, 0.9))
