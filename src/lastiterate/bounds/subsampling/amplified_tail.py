r"""The bound for sampled batches whose participations stay hidden.

Early participations are hidden by transport to their subsets (`docs/tightness.md#sampled-batches`).
The last R steps are composed with amplification by sampling, with a share of their noise; the rest
of it serves the shifts (`docs/tightness.md#amplified-tail`).

Given the participations V the runs are :math:`\mu(V)`-GDP.  For every increasing g with
:math:`E\,g(\mu) \le e^\varepsilon`,

.. math:: \delta(\varepsilon) \le E\,\delta_\mu(\log g(\mu))

holds if V consists of independent events and more of them never lower mu.
`MixtureTransportProfile` needs a law that dominates that of mu.  `MomentTransportProfile` needs
only bounds on :math:`E\,e^{s\mu^2}` for several s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from lastiterate import _check
from lastiterate._numerics.powers import (
    fast_length,
    inverse_power,
    log_of,
    sum_of_inverse_powers,
    sum_of_powers,
    sums_of_powers,
)
from lastiterate._numerics.rounding import (
    FEW_ROUNDINGS,
    MILLIONS_OF_ROUNDINGS,
    Array,
    IntArray,
    at_least,
    down,
    suffix_sums,
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
from lastiterate.profile.best import BestProfile, FallbackProfile
from lastiterate.profile.curve import ParametricProfile
from lastiterate.profile.gaussian import (
    GaussianMixtureProfile,
    deltas_on_both_sides,
    deltas_on_grid,
    gaussian_deltas,
)
from lastiterate.profile.pld import LossDistributionProfile, losses_of
from lastiterate.profile.profile import PrivacyProfile, check_order
from lastiterate.run.batch_rules.drawn import SampledWithoutReplacement
from lastiterate.run.training_run import TrainingRun

_MOST_STEPS_BY_LAW = 300  # steps of a run whose whole law is computed quickly
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

# The split.
_SPLIT_DELTA = 1e-6  # at which splits are compared
_TAIL_STEPS = (
    *(1, 2, 5, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280, 1920),
    *(2560, 3840, 5120),
)
_TAIL_SHARES = (0.5, 0.6, 0.7, 0.8, 0.87, 0.93)
_ORDERS = 1.0 + np.geomspace(0.2, 2000.0, 60)
_NORMAL_GRID = np.linspace(-8.0, 40.0, 400)
_AGE_GROUPS = 60
_LONGEST_MEMORIES = 30.0  # older participations are neglected
_LARGEST_EXPONENT = 500.0
_TAIL_WEIGHT = 2.0  # by trial: moments underrate rare losses and overrate early ones
_SPLIT_GAIN = 0.99  # a split must gain a per cent, which composition costs

# Moments: the points are in units of a typical mu.
_LOW_POINTS = np.append(np.geomspace(0.03, 0.5, 9)[:-1], np.arange(0.5, 0.8, 0.03))
_HIGH_POINTS = np.arange(1.4, 2.06, 0.05)
_NEAR_POINTS = np.concatenate([[0.0], _LOW_POINTS, np.arange(0.8, 1.4, 0.001), _HIGH_POINTS])
_FAR_POINTS = (2.1, 40.0)
_FAR_SPACING = 1.14
_NEAR_CUTS, _FAR_CUT = (1.2, 1.5), 3  # in units of a typical mu; every third of the far points
_EXCHANGES = 8  # of the points of a line, at most
_LARGEST_LOG_WEIGHT = 600.0
_USUAL_RATE, _MOST_OVER_MEAN = 2.0, 1.3  # for a typical mu
_LARGEST_MU = 15.0  # above it nothing is certified

# The table.
_FINE_CELLS, _CELLS_OF_G = 1_750, 4  # cells of losses, and how many make one of log g
_TRANSFORM_ROUNDING = 1e-14  # of a Fourier transform of at most some thousand numbers up to 1
_REACH_OF_G = 16.0  # of log g, in standard deviations
_NEGLIGIBLE_TAIL, _NEGLIGIBLE_SHARE = 1e-16, 0.1  # that is cut, also as a share of the rounding
_RARE_LOSS = 1e-12  # losses rarer than that may be beyond the table
_MOST_CELLS = 3_500  # of losses
_FEW_ATOMS = 600  # for the larger mus
_LEAST_SLOPE = 1e-300
_LARGEST_LOG_G = 600.0
# In units of the typical mu.
_ROWS = np.concatenate([_LOW_POINTS, np.arange(0.8, 1.4, 0.012), _HIGH_POINTS])


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
    (`subsampling.energy_moments`), with one Lagrange multiplier; R and :math:`\theta` are
    chosen by rough moments, and any choice is valid.  For deltas near the rounding of the
    composition, R = 0.  In short runs, and where a single participation decides, also by the law of
    `random-order/sampled/average`, with R = 0.
    """
    replaced = _as_replacement(run)
    before, tail = _split_run(replaced, _best_split(replaced))
    profiles = [_moment_profile(before, tail)]
    if _uses_law(replaced):
        profiles += _law_profiles(replaced)
    usual = profiles[0] if len(profiles) == 1 else BestProfile(profiles)
    if tail is None:
        return usual
    return FallbackProfile(
        usual, below=near_rounding(tail), fallback=partial(_moment_profile, replaced, None)
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
    source=Citation(
        "lastiterate",
        2026,
        "Amplified tails of sampled runs",
        "docs, tightness; after Bok, Su and Altschuler 2024 and Dong, Roth and Su 2022",
    ),
    evaluate=sampled_amplified_tail,
    rests_on=(SAMPLED_AVERAGE,),
    charges="keeps hidden in which steps the secretly drawn example takes part",
    quick=False,
)


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


def _best_split(run: TrainingRun) -> TailSplit:
    ratio = float(quantities.sensitivities(run)[0]) / float(quantities.noises(run)[0])
    gap, share = float(quantities.gaps(run)[0]), run.batches.share
    return best_split(gap, run.steps, share, ratio, _relative_release_noise(run))


def _split_run(
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


def _before_the_tail(run: TrainingRun, split: TailSplit) -> TrainingRun:
    """The steps before the tail, with the tail's noise for shifts as noise on release."""
    gap = float(quantities.gaps(run)[0])
    noise = float(quantities.noises(run)[0])
    for_shifts = down(split.release_in_steps(gap), MILLIONS_OF_ROUNDINGS)
    undone = down(inverse_power(2.0 * _limited_log(gap), split.steps), MILLIONS_OF_ROUNDINGS)
    own = _relative_release_noise(run)
    in_steps = min(for_shifts + own * own * undone, _MOST_STEPS_OF_RELEASE)
    released = down(math.sqrt(in_steps) * quantities.unit(run) * noise, MILLIONS_OF_ROUNDINGS)
    return run.replace(steps=run.steps - split.steps, release_noise_std=released)


def _relative_release_noise(run: TrainingRun) -> float:
    """The noise on release, as far as it is used, over that of a step."""
    noise = float(quantities.noises(run)[0])
    return min(run.release_noise_std / (quantities.unit(run) * noise), _MOST_RELEASE_NOISE)


def _moment_profile(run: TrainingRun, tail: LossDistributionProfile | None) -> PrivacyProfile:
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
        release=_round_down(released * released),
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


def _participations_in_memory(run: TrainingRun) -> float:
    """The average number of participations within the memory 1/(1 - c)."""
    gap = float(quantities.gaps(run)[0])
    return run.batches.share * min(float(run.steps), 1.0 / max(gap, _LEAST_GAP))


def _round_down(value: float) -> float:
    """The value, rounded down to four digits."""
    if not value > 0.0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(value)) - 3)
    return min(down(math.floor(value / unit) * unit, ulps(8)), value)


def _uses_law(run: TrainingRun) -> bool:
    """Whether the law of the energy is more precise than its moments, or computed quickly."""
    return run.steps <= _MOST_STEPS_BY_LAW or quantities.ratio(run) > _LARGE_RATIO


def _law_profiles(run: TrainingRun) -> list[PrivacyProfile]:
    return [
        MixtureTransportProfile(law.weights, law.mus, lost=law.lost)
        for law in mixtures_of(participation_mixture(run))
    ]


@dataclass(frozen=True)
class TailSplit:
    """The last `steps` are amplified, with a `share` of the variance of their noise."""

    steps: int
    share: float

    def release_in_steps(self, gap: float) -> float:
        """The rest of the last steps' noise as release noise, in units of a step's noise."""
        return (1.0 - self.share) * sum_of_inverse_powers(2.0 * _limited_log(gap), self.steps)


NO_TAIL = TailSplit(0, 1.0)


def best_split(
    gap: float, steps: int, probability: float, ratio: float, release_noise: float
) -> TailSplit:
    r"""The best split by rough moments; nearby noise levels share one.

    `ratio` is the per-step sensitivity over the noise of a step, and `release_noise` is in units of
    the latter.  Any split is valid.  At order a, and with :math:`s = a(a-1)/2`, the logarithm of
    the moment of earlier participations is about

    .. math:: s\,r^2 W^2/V + \sum_j p\,(e^{s r^2 c^{2j}/S_j} - 1) ,

    where W is their discounted mean, V the variance of all noise and :math:`S_j` that of the ages
    up to j; and each of the last steps has a moment of :math:`1 + p(e^{\rho Z - \rho^2/2} - 1)`.
    """
    if not _LEAST_RATIO < ratio < 1.0 / _LEAST_RATIO:
        return NO_TAIL
    rounded = math.exp(round(math.log(ratio) / 0.1) * 0.1)
    own = float(f"{release_noise**2:.1e}")
    return _best_of_splits(gap, steps, probability, rounded, own)


@lru_cache(maxsize=256)
def _best_of_splits(
    gap: float, steps: int, probability: float, ratio: float, own: float
) -> TailSplit:
    def epsilon(split: TailSplit) -> float:
        released = split.release_in_steps(gap) + own
        early = _early_log_moments(gap, steps - split.steps, probability, ratio, released)
        late = (
            _TAIL_WEIGHT
            * split.steps
            * _step_log_moments(probability, ratio / math.sqrt(split.share))
        )
        return float(np.min((early + late - math.log(_SPLIT_DELTA)) / (_ORDERS - 1.0)))

    splits = [TailSplit(length, share) for length, share in product(_TAIL_STEPS, _TAIL_SHARES)]
    epsilons = {split: epsilon(split) for split in splits if split.steps < steps}
    epsilons[NO_TAIL] = _SPLIT_GAIN * epsilon(NO_TAIL)
    return min(epsilons, key=epsilons.__getitem__)


def _early_log_moments(
    gap: float, steps: int, probability: float, ratio: float, released: float
) -> Array:
    """The logarithms of the moments of participations before the tail, for each order."""
    log_c = _limited_log(gap)
    span = min(float(steps), _LONGEST_MEMORIES / -log_c) if log_c < 0.0 else float(steps)
    edges = np.unique(np.rint(np.append(0.0, np.geomspace(1.0, max(span, 1.0), _AGE_GROUPS))))
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


def _limited_log(gap: float) -> float:
    """log c, for c of at least a tenth; a larger c only lowers the noise for shifts."""
    return log_of(min(gap, 0.9))


class MixtureTransportProfile(ParametricProfile):
    r"""The profile of mu_i-GDP with probability weight_i, if i stays hidden.

    A probability `lost` has no guarantee.  The best g of the module's theorem has one Lagrange
    multiplier z: :math:`\log g = \mu (z - \mu/2)` up to :math:`\mu = z`, and constant from there.

    Examples
    --------
    >>> law = [0.999, 0.001], [0.1, 1.0]
    >>> hidden, revealed = MixtureTransportProfile(*law), GaussianMixtureProfile(*law)
    >>> hidden.epsilon(1e-6) < 0.5 < 2.0 < revealed.epsilon(1e-6)
    True
    """

    _knots, _largest_multiplier, _tolerance = 48, 40.0, 1e-5

    def __init__(self, weights: ArrayLike, mus: ArrayLike, *, lost: float = 0.0) -> None:
        parts = self._revealed = GaussianMixtureProfile(weights, mus, lost=lost)
        finite = np.isfinite(parts.mus)
        used = finite & (parts.weights > 0.0)
        self._mus, self._weights = parts.mus[used], parts.weights[used]
        self._lost = min(parts.lost + float(parts.weights[~finite].sum()), 1.0)

    def __repr__(self) -> str:
        return f"MixtureTransportProfile({self._revealed!r})"

    def renyi(self, order: float) -> float:
        """The Renyi divergence as if i were revealed."""
        return self._revealed.renyi(order)

    def gdp(self) -> float:
        """mu as if i were revealed."""
        return self._revealed.gdp()

    def _point_at(self, multiplier: float) -> tuple[float, float]:
        """An epsilon, and a delta that holds there."""
        capped = np.minimum(self._mus, multiplier)
        logs = capped * (multiplier - capped / 2)  # of g
        largest = float(logs.max(initial=0.0))  # which lost mass has, too
        terms = self._weights @ np.exp(logs - largest) + self._lost
        rounding = ulps(self._mus.size + 64 + 4 * largest)
        # g = 1 everywhere is exactly feasible at epsilon = 0.
        epsilon = largest + math.log(up(float(terms), rounding)) if multiplier > 0.0 else 0.0
        delta = float(self._weights @ gaussian_deltas(self._mus, logs)) + self._lost
        return max(epsilon, 0.0), min(up(delta, ulps(self._mus.size + 64)), 1.0)


class MomentTransportProfile(ParametricProfile):
    r"""The profile of mu-GDP for a hidden mu, with log E e^(rates mu^2) at most `logs`.

    A probability `lost` has no guarantee, and mu itself may be larger by `extra_mu`.  The profile
    `composed_with` is that of a mechanism that is released as well, whatever mu is.

    An increasing f is averaged by

    .. math:: f(\mu) \le w_0 + w e^{s\mu^2} + w' e^{s'\mu^2} \text{ for all } \mu
              \implies E\,f(\mu) \le w_0 + w M(s) + w' M(s') ,

    where :math:`w_0` may be negative.  The last term bounds f at large mu, the others touch f where
    it matters: if f is concave as a function of :math:`e^{s\mu^2}`, they are as good as the
    knowledge that :math:`\mu^2 = \log M(s)/s`.  Here g is a step function: between consecutive
    points of a grid it has its value at the upper one, and :math:`\delta_\mu` is at most that of
    the upper one.

    Examples
    --------
    >>> always = MomentTransportProfile([0.5, 2.0, 8.0], [0.5, 2.0, 8.0])
    >>> 4.3772 < always.epsilon(1e-5) < 4.39
    True
    """

    _knots, _largest_multiplier, _tolerance = 40, 30.0, 1e-4

    def __init__(
        self,
        rates: Array,
        logs: Array,
        *,
        lost: float = 0.0,
        extra_mu: float = 0.0,
        composed_with: LossDistributionProfile | None = None,
    ) -> None:
        rates = _check.numbers("rates", rates)
        self._logs = np.array(logs, dtype=np.float64)
        finite = np.isfinite(self._logs)
        self._rates, self._logs = _with_middles(rates[finite], self._logs[finite])
        self._lost = _check.number("lost", lost, at_least=0.0, at_most=1.0)
        sizes = self._logs / self._rates
        modest = sizes < _LARGEST_MU**2
        self._rates, self._logs = self._rates[modest], self._logs[modest]
        if not self._rates.size:
            return
        typical = max(self._typical_square(), 1e-24)
        points = _mu_points(math.sqrt(typical))
        squares = typical * np.square(points)
        # Each interval has the value of its upper end; beyond the last point delta is 1.
        upper = np.sqrt(squares)[1:]
        self._upper = up(upper + extra_mu, ulps(4))
        self._table = LagrangianTable(math.sqrt(typical), composed_with)
        exponents = self._rates[:, None] * squares - self._logs[:, None]
        # Rounded down, since it is a divisor.
        self._weights = np.exp(np.clip(exponents, -_LARGEST_LOG_WEIGHT, _LARGEST_LOG_WEIGHT))
        self._weights = down(self._weights, MILLIONS_OF_ROUNDINGS)
        far = np.arange(_NEAR_POINTS.size, points.size - 1, _FAR_CUT)
        self._cuts = np.append(np.searchsorted(points, _NEAR_CUTS), far).tolist()

    def _typical_square(self) -> float:
        """A typical mu^2, at a usual rate but near the mean, which the least rate gives."""
        usual = int(np.argmin(np.abs(np.log(self._rates / _USUAL_RATE))))
        sizes = self._logs / self._rates
        return min(float(sizes[usual]), _MOST_OVER_MEAN * float(sizes[0]))

    def __repr__(self) -> str:
        return f"MomentTransportProfile({self._rates.size} moments, lost {self._lost:.1e})"

    def renyi(self, order: float) -> float:
        """inf, since the lost probability has no guarantee."""
        check_order(order)
        return math.inf

    def gdp(self) -> float:
        """inf, since the largest mu is not known."""
        return math.inf

    def _point_at(self, multiplier: float) -> tuple[float, float]:
        if not self._rates.size:
            return 0.0, 1.0
        logs, costs = self._table.at_multiplier(float(ndtr(-multiplier)), self._upper)
        logs = np.append(logs, logs[-1])
        largest = float(logs[-1])
        total = self._average(np.exp(logs - largest)) + self._lost
        rounding = ulps(logs.size + 64 + 4 * largest)
        epsilon = largest + math.log(up(total, rounding))
        delta = self._average(np.append(costs, 1.0)) + self._lost + self._table.lost
        return max(epsilon, 0.0), min(up(delta, ulps(64)), 1.0)

    def _average(self, values: Array) -> float:
        """An upper bound of E f, where f is values[i] from the i-th point up to the next."""
        rising = np.maximum.accumulate(values)
        least = min(float(rising[-1]), self._near_envelope(rising.size, rising))
        for cut in self._cuts:
            far = float(np.min(np.max(rising[cut:] / self._weights[:, cut:], axis=1)))
            if far < least:
                least = min(least, far + self._near_envelope(cut, rising))
        return up(least, MILLIONS_OF_ROUNDINGS)

    def _near_envelope(self, cut: int, rising: Array) -> float:
        """The concave envelope of f up to `cut` as a function of a weight, at the mean weight 1.

        Any line above f is valid.  The best one passes through two points of f on both sides of 1,
        which are exchanged until they do not change.
        """
        weights = self._weights[:, :cut]
        rows = np.arange(weights.shape[0])
        right = np.minimum(np.count_nonzero(weights <= 1.0, axis=1), cut - 1)
        left = np.maximum(right - 1, 0)
        least = np.full(rows.size, rising[cut - 1])
        for _ in range(_EXCHANGES):
            apart = weights[rows, right] - weights[rows, left]
            rise = rising[right] - rising[left]
            slopes = np.divide(rise, apart, out=np.zeros(rows.size), where=apart > 0.0)
            above = rising[:cut] - slopes[:, None] * weights
            touching = np.argmax(above, axis=1)
            line = above[rows, touching] + slopes
            # Lost probability has no weight: there a line may be below 0.
            line += np.maximum(-above[rows, touching], 0.0) * self._lost
            least = np.minimum(least, line)
            beyond = weights[rows, touching] > 1.0
            if np.all((touching == left) | (touching == right)):
                break
            right, left = np.where(beyond, touching, right), np.where(beyond, left, touching)
        return float(least.min())


def _with_middles(rates: Array, logs: Array) -> tuple[Array, Array]:
    """The rates and those in between, by chords: logarithms of moments are convex."""
    if rates.size < 2:
        return rates, logs
    middles = 0.5 * (rates[1:] + rates[:-1])
    every = np.sort(np.append(rates, middles))
    return every, np.asarray(np.interp(every, rates, logs))


def _mu_points(typical: float) -> Array:
    """A grid of mu in units of a typical mu, with far points for rare, large mus."""
    first, last = _FAR_POINTS
    last = max(last, _LARGEST_MU / typical)
    number = math.ceil(math.log(last / first) / math.log(_FAR_SPACING))
    return np.concatenate([_NEAR_POINTS, np.geomspace(first, last, number + 1)])


class LagrangianTable:
    r"""A table of :math:`\delta_{(\mu)}(\log g)` and of the best g for every Lagrange multiplier.

    :math:`\delta_{(\mu)}` is the curve of a Gaussian mechanism composed with another release, for
    mus around a typical one.  For the multiplier :math:`\lambda` the best g minimises
    :math:`\delta_{(\mu)}(\log g) + \lambda g`.  Any g is valid, so it is chosen on a grid.

    Between two mus of the table delta, for the same g, is at most its chord plus a correction.  Its
    second derivative in mu at epsilon is :math:`a\,\varphi(a)\,(\varepsilon/\mu^2 + 1/2)`,
    :math:`a = \varepsilon/\mu - \mu/2`, which is negative only for :math:`|\varepsilon| <
    \mu^2/2`, and there above :math:`-0.4 \mu`: so the correction is a twentieth of :math:`\mu`
    times the square of the distance of the two mus, if the loss of the other release leaves no more
    than that of epsilon.
    """

    def __init__(self, typical: float, composed_with: LossDistributionProfile | None) -> None:
        self._alone = composed_with is None
        atoms = (
            _Atoms(1.0, 0, np.ones(1), 0.0) if composed_with is None else _atoms_of(composed_with)
        )
        size = math.hypot(typical, atoms.spread)
        reach = max(size * (_REACH_OF_G + size), atoms.quantile(_RARE_LOSS))
        if composed_with is not None:
            fine = max(size * _REACH_OF_G / _FINE_CELLS, reach / _MOST_CELLS)
            atoms = atoms.coarser(max(1, math.floor(fine / atoms.cell)))
        self._atoms, self.lost, self._spread = atoms, atoms.lost, atoms.spread
        few = atoms.coarser(max(1, math.ceil(atoms.masses.size / _FEW_ATOMS)))
        self._few = few.cell * (few.first + np.arange(few.masses.size)), few.masses
        if self._alone:
            return
        self._mus = typical * _ROWS
        reach = min(reach, _LARGEST_LOG_G)
        cells = _CELLS_OF_G * np.arange(math.ceil(reach / atoms.cell / _CELLS_OF_G) + 2)
        self._logs = atoms.cell * cells
        self._amounts = np.exp(self._logs)
        self._costs = self._table(atoms, cells)
        # delta falls by so much for a little more of g; less and less, as it is convex.
        gains = -np.diff(self._costs, axis=1) / np.diff(self._amounts)
        gains = np.log(np.maximum(gains, _LEAST_SLOPE))
        self._gains = np.minimum.accumulate(gains, axis=1)

    def _table(self, atoms: _Atoms, cells: IntArray) -> Array:
        """delta by mu and by g, whose logarithm is in `cells`."""
        last = atoms.first + atoms.masses.size - 1
        first, top = -last, int(cells[-1]) - atoms.first
        low = min(first, 0)
        curves = deltas_on_grid(self._mus, atoms.cell, low, max(top, 0))[:, first - low :]
        size = fast_length(curves.shape[1])
        spectra = np.fft.rfft(curves, size, axis=1) * np.fft.rfft(atoms.masses, size)
        sums = np.fft.irfft(spectra, size, axis=1)[:, atoms.masses.size - 1 + cells]
        return np.asarray(np.clip(sums + _TRANSFORM_ROUNDING, 0.0, 1.0))

    def _loss_exceeds(self, amounts: Array) -> Array:
        """The probability that the other release's loss exceeds these amounts."""
        atoms = self._atoms
        above = np.append(suffix_sums(atoms.masses), 0.0)
        cell = np.floor(amounts / atoms.cell) - atoms.first
        cell = np.clip(cell, 0, atoms.masses.size).astype(np.int64)
        return np.asarray(up(above[cell], ulps(atoms.masses.size)))

    def at_multiplier(self, multiplier: float, mus: Array) -> tuple[Array, Array]:
        """log g, which increases with mu, and delta there, for increasing mus."""
        if self._alone:
            return self._at_far_mus(multiplier, mus, 0.0)
        near = int(np.searchsorted(mus, self._mus[-1], side="right"))
        logs = np.interp(mus[:near], self._mus, self._best_logs(multiplier))
        upper = np.clip(np.searchsorted(self._mus, mus[:near]), 1, self._mus.size - 1)
        low, high = self._mus[upper - 1], self._mus[upper]
        share = np.clip((mus[:near] - low) / (high - low), 0.0, 1.0)
        cell = np.searchsorted(self._logs, logs, side="right") - 1
        cell = np.minimum(cell, self._logs.size - 2)
        step = self._amounts[cell + 1] - self._amounts[cell]
        part = np.clip((np.exp(logs) - self._amounts[cell]) / step, 0.0, 1.0)
        costs = np.zeros(near)
        for row, weight in ((upper - 1, 1.0 - share), (upper, share)):
            chord = self._costs[row, cell] * (1.0 - part) + self._costs[row, cell + 1] * part
            costs += weight * chord
        costs += (
            0.05 * high * np.square(high - low) * self._loss_exceeds(logs - 0.5 * np.square(high))
        )
        far, more = self._at_far_mus(multiplier, mus[near:], float(logs[-1]))
        return np.append(logs, far), np.append(up(costs, ulps(16)), more)

    def _best_logs(self, multiplier: float) -> Array:
        """The best log g for the mus of the table, between the middles of two cells."""
        wanted = math.log(max(multiplier, _LEAST_SLOPE))
        rows, last = np.arange(self._gains.shape[0]), self._gains.shape[1] - 1
        after = np.clip(np.count_nonzero(self._gains > wanted, axis=1), 1, last)
        more, less = self._gains[rows, after - 1], self._gains[rows, after]
        apart = np.maximum(more - less, FEW_ROUNDINGS)
        steps = after + np.clip((more - wanted) / apart, 0.0, 1.0) - 0.5
        return np.maximum.accumulate(self._logs[1] * steps)

    def _at_far_mus(self, multiplier: float, mus: Array, least: float) -> tuple[Array, Array]:
        """log g and delta of larger mus, g as if the other release were Gaussian."""
        limit = -float(ndtri(multiplier)) if multiplier > 0.0 else math.inf
        capped = np.minimum(np.hypot(mus, self._spread), max(limit, 0.0))
        logs = np.maximum(capped * (limit - capped / 2), least)
        at, masses = self._few
        after = logs[:, None] - at
        curves = deltas_on_both_sides(np.broadcast_to(mus[:, None], after.shape), after)
        return logs, up(curves @ masses, ulps(masses.size + 16))


class _Atoms(NamedTuple):
    """Masses at consecutive multiples of `cell`, from the `first` on; `lost` is beyond them."""

    cell: float
    first: int
    masses: Array
    lost: float

    @property
    def spread(self) -> float:
        at = self.cell * (self.first + np.arange(self.masses.size))
        mean = float(self.masses @ at)
        return math.sqrt(max(float(self.masses @ np.square(at - mean)), 0.0))

    def quantile(self, probability: float) -> float:
        """A value that is exceeded with at most this probability, apart from `lost`."""
        beyond = np.count_nonzero(suffix_sums(self.masses) > probability)
        return self.cell * (self.first + beyond)

    def coarser(self, width: int) -> _Atoms:
        """The atoms in cells `width` times as wide, losses rounded up."""
        cells = -((-self.first - np.arange(self.masses.size)) // width)
        masses = np.bincount(cells - cells[0], self.masses)
        return _Atoms(self.cell * width, int(cells[0]), np.asarray(masses), self.lost)


def _atoms_of(profile: LossDistributionProfile) -> _Atoms:
    directions = losses_of(profile.pld)
    if len(directions) > 1:
        raise ValueError("the other release must be as private in both directions")
    losses = directions[0]
    # Masses that transforms leave in unreachable cells are a part of their rounding.
    negligible = max(_NEGLIGIBLE_TAIL, _NEGLIGIBLE_SHARE * profile.slack)
    below = np.cumsum(losses.masses) <= negligible
    above = suffix_sums(losses.masses) <= negligible
    first, last = int(np.count_nonzero(below)), losses.masses.size - np.count_nonzero(above)
    masses = losses.masses[first:last].copy()
    masses[0] += losses.masses[:first].sum()
    lost = profile.slack + losses.infinite + float(losses.masses[last:].sum())
    return _Atoms(losses.cell, losses.first + first, masses, lost)
