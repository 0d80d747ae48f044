"""The bounds that average over the steps in which a secretly drawn example takes part.

Given the participations V the last iterate is mu(V)-GDP; hockey-stick divergence is jointly convex,
so the average over V holds (`docs/tightness.md#averages`).  The law of mu(V) is that of
`docs/tightness.md#participation-energy`: the last steps are solved exactly, and what precedes them
is one distance.  Batches of random size are limited; the probability that some batch exceeds the
limit is added to delta.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from lastiterate._numerics.powers import log_of, power, sum_of_powers
from lastiterate._numerics.rounding import (
    FEW_ROUNDINGS,
    MILLIONS_OF_ROUNDINGS,
    THOUSANDS_OF_ROUNDINGS,
    Array,
    at_least,
    at_most,
    down,
    ulps,
    up,
)
from lastiterate._progress import track
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Bound, Certainty, Citation, with_single_examples
from lastiterate.bounds.fixed_order.convex import CONVEX_FIXED_ORDER
from lastiterate.bounds.subsampling.energy_law import law_with_release
from lastiterate.profile.best import BestProfile
from lastiterate.profile.gaussian import GaussianMixtureProfile, GaussianProfile, several_draws
from lastiterate.profile.group import for_group
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.run.batch_rules.base import BatchRule, Resampling, rules
from lastiterate.run.batch_rules.drawn import PoissonSampled, SampledWithoutReplacement
from lastiterate.run.loss import Loss
from lastiterate.run.training_run import Ball, TrainingRun

LONGEST_WINDOW = 8_000
_QUICK_WINDOW = 2_000  # steps, if a bound that hides participations is likely to be better
_SHORT_RUN = 500  # steps; runs up to it try several shares of the noise on release
_SUM_CELLS = 8192  # of the grid of a sum
_LEAST_GAP = 1e-15  # less contraction than this is not used
_MOST_RELEASE_NOISE = 1e9  # in units of a step's noise; more is not used
_USUAL_FAILURE = 1e-9  # the probability of a larger batch
# Probabilities of a larger batch that are tried, the first where contraction allows it.
_FAILURES = tuple(10.0**-i for i in range(14, 7, -1))
_LEAST_KEPT_CONTRACTION = Fraction(19, 20)  # share of the contraction that a larger limit must keep
_RATES = np.geomspace(1e-3, 300.0, 160)  # the largest weight is 1
_MOST_TERMS = 4096  # groups of participations by age
_LEVELS = 400  # of the law
_NEGLIGIBLE_MASS = 1e-15
_MEMORY = 60.0  # time constants; older participations are e^-60 of the whole
_BLOCKS_IN_MEMORY = 128  # in a time constant, or in the run
_RECURSION_MEMORY = 12  # time constants of the recursion
_RECURSION_CELLS = 32_768
_NEGLIGIBLE_CHANCE = 1e-16  # of binomial probabilities
_END_FOLDS = 30.0  # a distance exceeded with probability e^-30
_END_EXCEEDED = 1e-13  # an upper bound on that probability
_BLOCK_ROUNDING = 1e-12  # of the probabilities of one block
_SLOPES = (0.5, 0.8, 1.02, 1.05, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.3, 2.7, 3.2, 4.0)
_LONGEST_SECOND_WINDOW = 4_000  # of the second window
_WINDOW_MEMORY = 12.0  # time constants; older steps do not matter for the choice
_LEAST_POWER = math.exp(-700.0)  # smaller ones would underflow


def sampled_average(run: TrainingRun) -> PrivacyProfile:
    r"""The average of Gaussian curves over the participations of the differing example.

    **Bound.** :math:`\delta(\varepsilon) = E_V\,\delta_{\mu(V)}(\varepsilon)`, V independent
    Bernoulli(b/n), with :math:`\mu(V)^2 \le r^2 ((\sqrt{q_R} + \kappa Z)^2 + e)`: :math:`q_R` is
    the energy of shifts for the participations of the last R steps without contraction and the
    release, Z the residual distance of earlier ones after shifts of energy e (at most the
    diameter), and :math:`\kappa = c^R / \sqrt{1 + c^2 + .. + c^{2(R-1)} + h}` the cost of shifting
    it away over those steps and the release, which counts as h steps.  r = L/(b sigma).

    **Holds when.** every step draws its batch uniformly without replacement, independently and
    in secret; losses are convex and smooth, no step exceeds 2/smoothness, gradients are not
    changed by norm clipping; step size and noise are constant.

    **Tight.** For c = 1 and R = T the exact mixture up to the grid; contraction inside the
    window is not used.

    **Source.** Bok, Su and Altschuler 2024, Theorem C.3; the law of the faces of the convex
    minorant of an exchangeable walk, Abramson and Pitman 2011.

    **Computed as** the exact law by Fourier transforms, costs rounded up, truncated probability
    added to delta; Z by a law that dominates it.  The better of two choices of R and shifts.
    """
    hides = run.adjacency == "replace"
    return participation_mixture(run, longest=_QUICK_WINDOW if hides else LONGEST_WINDOW)


def poisson_average(run: TrainingRun) -> PrivacyProfile:
    r"""The average of Gaussian curves over participations, for batches of random size.

    **Bound.** As for batches of a fixed size, with the contraction that holds for every batch
    of at most K examples: :math:`1 - c = \min(\eta\lambda, 2 - \eta((M - \lambda) K/b +
    \lambda))`, :math:`\lambda` the shared regulariser, which alone counts since a batch may
    be empty.  K is the size to which batches are truncated, or, if steps on batches of that size
    contract less, one that hardly any exceeds and for which they are not too long; the
    probability of larger ones in any step, at most :math:`T\,P(\mathrm{Bin}(n, p) > K)`, is
    added to delta.

    **Holds when.** every step includes every example independently and in secret with probability p
    (b/n unless the rule states another), sums are divided by b, and larger batches are truncated
    uniformly at random (an example then takes part less often, which never costs more); losses are
    convex and smooth, no step exceeds 2/smoothness, gradients are not changed by norm clipping;
    step size and noise are constant.  An example is replaced by another, or left out, of a public
    number of examples.

    **Tight.** As for batches of a fixed size.

    **Source.** Bok, Su and Altschuler 2024, Theorem C.3, given the batches.

    **Computed as** for batches of a fixed size.
    """
    hides = run.adjacency == "zero-out" or run.gradient_bound is not None
    return _poisson_mixture(run, longest=_QUICK_WINDOW if hides else LONGEST_WINDOW)


def sampled_average_for_persons(run: TrainingRun) -> PrivacyProfile:
    """The average over the participations of all examples of a person, whose mus add up.

    One after the other, each is in a batch with probability at most b/(n - k + 1), whichever of
    the others are in it: as if each were drawn independently, from so many examples.
    """
    single, size = with_single_examples(run), run.examples_per_person
    rule = run.batches
    if not rule.exchangeable:
        return for_group(sampled_average(single), size)
    fewer = type(rule).of_sizes(max(rule.examples - size + 1, rule.batch_size), rule.batch_size)
    mixture = participation_mixture(single.replace(batches=fewer), longest=_QUICK_WINDOW)
    return _sum_of_independent(mixture, size)


def poisson_average_for_persons(run: TrainingRun) -> PrivacyProfile:
    """The average over a person's participations, for examples drawn independently; mus add up."""
    mixture = _poisson_mixture(with_single_examples(run), longest=_QUICK_WINDOW)
    return _sum_of_independent(mixture, run.examples_per_person)


def last_step_delta_lower_bound(run: TrainingRun, epsilon: float) -> float:
    """A lower bound on this bound's delta, from the very last step; 0 on a bounded domain."""
    if isinstance(run.domain, Ball):
        return 0.0
    noise = float(quantities.noises(run)[0])
    mu = float(quantities.sensitivities(run)[0]) / math.hypot(noise, quantities.release_noise(run))
    known = run.batches.share * GaussianProfile(mu).delta(epsilon)
    return float(down(known, THOUSANDS_OF_ROUNDINGS))


_CHARGES = "averages over the steps in which the secretly drawn example takes part"


_NEEDS = (
    conditions.SECRET_ORDER,
    *conditions.CONTRACTING,
    conditions.CONSTANT,
    conditions.NOISY,
)


_SOURCE = Citation(
    "Bok, Su and Altschuler",
    2024,
    "Shifted interpolation",
    "Theorem C.3 given the batches, and joint convexity",
    also=Citation(
        "Abramson and Pitman",
        2011,
        "Concave majorants of random walks and related Poisson processes",
        "the law of the faces",
    ),
)


SAMPLED_AVERAGE = Bound(
    id="random-order/sampled/average",
    gives="the average over the steps in which a secretly sampled example takes part",
    covers=rules(Resampling.EACH_STEP, exact_size=True),
    needs=_NEEDS,
    certainty=Certainty.UPPER,
    source=_SOURCE,
    evaluate=sampled_average,
    for_persons=sampled_average_for_persons,
    rests_on=(CONVEX_FIXED_ORDER,),
    charges=_CHARGES,
    delta_lower_bound=last_step_delta_lower_bound,
    quick=False,
)


POISSON_AVERAGE = Bound(
    id="random-order/poisson/average",
    gives="the same average for batches of random size",
    covers=(PoissonSampled,),
    needs=_NEEDS,
    certainty=Certainty.UPPER,
    source=_SOURCE,
    evaluate=poisson_average,
    for_persons=poisson_average_for_persons,
    rests_on=(CONVEX_FIXED_ORDER,),
    charges=_CHARGES,
    delta_lower_bound=last_step_delta_lower_bound,
    quick=False,
)


def _poisson_mixture(run: TrainingRun, *, longest: int) -> PrivacyProfile:
    """The mixture of the majorant with the run's own probability of a participation."""
    majorant, rate = fixed_size_majorant(run), run.batches.share
    return participation_mixture(majorant.run, majorant.exceeded, longest=longest, probability=rate)


def _sum_of_independent(single: PrivacyProfile, size: int) -> PrivacyProfile:
    return BestProfile([several_draws(mixture, size) for mixture in mixtures_of(single)])


def mixtures_of(profile: PrivacyProfile) -> list[GaussianMixtureProfile]:
    """The mixtures of a profile, each of which bounds the law of mu."""
    every = profile.profiles if isinstance(profile, BestProfile) else (profile,)
    return [part for part in every if isinstance(part, GaussianMixtureProfile)]


def participation_mixture(
    run: TrainingRun,
    lost: float = 0.0,
    *,
    longest: int = LONGEST_WINDOW,
    probability: float | None = None,
) -> PrivacyProfile:
    """The average over participations; a probability `lost` has no guarantee.

    At most the `longest` last steps are solved exactly.  An example takes part in a step with
    `probability`, by default the share of the examples that a batch has.
    """
    gap = float(quantities.gaps(run)[0])
    gap = gap if gap > _LEAST_GAP else 0.0
    probability = run.batches.share if probability is None else probability
    sensitivity, noise = float(quantities.sensitivities(run)[0]), float(quantities.noises(run)[0])
    cap = up(quantities.diameter(run) / sensitivity, THOUSANDS_OF_ROUNDINGS)
    relative = min(quantities.release_noise(run) / noise, _MOST_RELEASE_NOISE)
    release_in_steps = at_most(relative**2, ulps=8)
    ratio = at_least(sensitivity / noise, ulps=quantities.WIDENING)
    profiles: list[PrivacyProfile] = []
    for used in _used_releases(release_in_steps, run.steps):
        rough = float(f"{used:.1e}")  # so that nearby noise levels share a window
        for length, shift in best_windows(gap, run.steps, probability, cap, rough, longest):
            earlier = run.steps - length
            law = law_with_release(length, probability, used)
            residual = residual_law(
                gap=gap, steps=earlier, probability=probability, cap=cap, shift=shift
            )
            extra = cost_per_residual(gap, length, used) * residual.levels
            roots, masses = _sum_law(np.sqrt(law.energies), law.masses, extra, residual.masses)
            shifted = math.sqrt(shift_energy(gap, earlier, shift))
            mus = up(np.hypot(roots, shifted), ulps(4))
            all_lost = min(law.lost + residual.lost + lost, 1.0)
            profiles.append(GaussianMixtureProfile(masses, mus * ratio, lost=all_lost))
    return profiles[0] if len(profiles) == 1 else BestProfile(profiles)


def _used_releases(whole: float, steps: int) -> tuple[float, ...]:
    """Parts of the release noise to use: in short runs, with coarse laws, less may be better."""
    return (whole, whole / 4.0, 0.0) if whole > 0.0 and steps <= _SHORT_RUN else (whole,)


def cost_per_residual(gap: float, window: int, release_in_steps: float) -> float:
    """kappa, rounded up."""
    log_c = log_of(gap)
    kept = max(power(log_c, window), _LEAST_POWER)
    return at_least(
        kept / math.sqrt(sum_of_powers(2 * log_c, window) + release_in_steps), ulps=10_000
    )


def _sum_law(
    one: Array, probability: Array, other: Array, probability_of_other: Array
) -> tuple[Array, Array]:
    """The law of the sum of two independent variables, rounded up to a grid."""
    if other.size == 1 and other[0] == 0.0:
        return one, probability
    cell = (one.max() + other.max()) / (_SUM_CELLS - 1)
    index = np.ceil((one + other[:, None]) / cell).astype(np.int64)
    weights = probability * probability_of_other[:, None]
    masses = np.zeros(int(index.max()) + 1)
    np.add.at(masses, index.ravel(), weights.ravel())
    sums = cell * np.arange(masses.size, dtype=np.float64)
    return up(sums, THOUSANDS_OF_ROUNDINGS), masses


@dataclass(frozen=True)
class Majorant:
    """A `run` that is no more private, except with probability `exceeded`."""

    run: TrainingRun
    exceeded: float


def fixed_size_majorant(
    run: TrainingRun,
    counterpart: Callable[[int, int], BatchRule] = SampledWithoutReplacement,
    draws: int | None = None,
    failure: float = _USUAL_FAILURE,
) -> Majorant:
    """The run on batches of a fixed size whose steps contract no more than those on random ones.

    Random batches have a size of law Bin(n, p), where p is their share of the examples, and the
    participations of the `counterpart`.  There are `draws` of them, by default one in each step.

    Sums are divided by b whatever the size of a batch, so a step on a batch of k examples has
    smoothness (M - lambda) k/b + lambda, where lambda is the shared penalty.  The penalty is the
    only certain convexity, since a batch may be empty.  The majorant is exceeded if a batch is
    larger than a limit, which has about the probability `failure`.
    """
    batches, loss, draws = run.batches, run.loss, run.steps if draws is None else draws
    if loss.smoothness is None:
        raise ValueError("a run with a known smoothness is needed")
    size, cut = batches.batch_size, batches.largest_size
    own = Fraction(loss.smoothness) - Fraction(loss.regulariser)
    largest = _largest_size(run, own, draws, failure)
    smoothness = up(float(own * largest / size), ulps(4)) + loss.regulariser
    fixed = run.replace(
        clip_norm=None,  # it never acts
        loss=Loss(
            smoothness=up(smoothness, ulps(2)),
            strong_convexity=loss.regulariser,
            regulariser=loss.regulariser,
        ),
        batches=counterpart(batches.examples, size),
    )
    if not conditions.contracts_by_step_size(fixed):
        # Only by rounding up: a batch of the largest size does not make a step expand.
        longest = down(2.0 / quantities.unit(run), ulps(4))
        fixed = fixed.replace(loss=Loss(smoothness=longest))
    exceeded = 0.0
    if largest < cut:
        probability = float(scipy.stats.binom.sf(largest, batches.examples, batches.share))
        exceeded = min(up(draws * probability, 1e-6), 1.0)
    return Majorant(fixed, exceeded)


def _largest_size(run: TrainingRun, own: Fraction, draws: int, failure: float) -> int:
    """A size that hardly any batch exceeds, if possible without loss of contraction."""
    cut = run.batches.largest_size
    eta, shared = Fraction(quantities.unit(run)), Fraction(run.loss.regulariser)
    if own == 0 or own * cut * eta <= (2 - 2 * eta * shared) * run.batches.batch_size:
        return cut

    def largest(gap: Fraction) -> int:
        return math.floor((2 - eta * shared - gap) * run.batches.batch_size / (eta * own))

    hardly_any = run.batches.size_exceeded_with(failure / draws)
    return min(cut, largest(Fraction(0)), max(largest(eta * shared), hardly_any))


@dataclass(frozen=True)
class LimitedContraction:
    """1 - c of every step, except with probability `failure`."""

    gap: float
    failure: float


def contractions_without_example(run: TrainingRun) -> list[LimitedContraction]:
    """The contraction of the run without the differing example, for one or two limits.

    If a lower limit contracts more, the second limit is as low as is worthwhile, and the first has
    next to no probability of a larger batch.
    """
    batches, loss = run.batches, run.loss
    assert loss.smoothness is not None
    eta, shared = Fraction(float(quantities.step_sizes(run)[0])), Fraction(loss.regulariser)
    own = (Fraction(loss.smoothness) - shared) / batches.batch_size

    def gap(size: int) -> Fraction:
        return min(eta * shared, 2 - eta * (own * size + shared))

    # Below the largest batch: the differing examples displace no other example.
    most = max(batches.largest_size - run.examples_per_person, 0)
    sizes = [most]
    if own > 0 and gap(most) < eta * shared:  # a smaller batch contracts more
        not_expanding = math.floor((2 - eta * shared) / (eta * own))
        unhindered = math.floor((2 - 2 * eta * shared) / (eta * own))
        limits = [max(_size_hardly_exceeded(run, failure), unhindered) for failure in _FAILURES]
        worthwhile = [
            size for size in limits if gap(size) >= eta * shared * _LEAST_KEPT_CONTRACTION
        ]
        wanted = (limits[0], worthwhile[0] if worthwhile else limits[-1])
        sizes = [min(size, most, not_expanding) for size in dict.fromkeys(wanted)]
    contractions = []
    for size in dict.fromkeys(sizes):
        exact = float(gap(size))
        everyone = size >= batches.examples - run.examples_per_person
        failure = 0.0 if everyone else _larger_batch_probability(run, size)
        usable = float(np.nextafter(exact, 0.0)) if exact > _LEAST_GAP else 0.0
        contractions.append(LimitedContraction(usable, failure if exact >= 0.0 else 1.0))
    return contractions


def _size_hardly_exceeded(run: TrainingRun, failure: float) -> int:
    """The least number of other examples that a batch exceeds with at most this probability."""
    low, high = run.batches.batch_size, run.batches.examples - 1
    while low < high:
        middle = (low + high) // 2
        rare = _larger_batch_probability(run, middle) <= failure
        low, high = (low, middle) if rare else (middle + 1, high)
    return high


def _larger_batch_probability(run: TrainingRun, size: int) -> float:
    """The probability of more than `size` other examples in any step, by Chernoff's bound."""
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


class ExactWindow(NamedTuple):
    """The last `length` steps, and the shift in the step before them (c^j of it at age j)."""

    length: int
    shift: float


@lru_cache(maxsize=64)
def best_windows(
    gap: float,
    steps: int,
    probability: float,
    cap: float,
    release_in_steps: float,
    longest: int = LONGEST_WINDOW,
) -> tuple[ExactWindow, ...]:
    """The windows and shifts whose cost looks least, near the mean and far out."""
    problem = _WindowProblem(gap, steps, probability, cap, release_in_steps, longest)
    first, second = (
        _best_window(problem, quantiles) for quantiles in (_NEAR_QUANTILES, _FAR_QUANTILES)
    )
    return (
        (first,) if second == first or second.length > _LONGEST_SECOND_WINDOW else (first, second)
    )


class _Quantiles(NamedTuple):
    """Quantiles at which residuals, in e-folds, and energies, in variances, are compared."""

    residual: float
    energy: float


_NEAR_QUANTILES, _FAR_QUANTILES = _Quantiles(0.5, 3.0), _Quantiles(3.0, 8.0)


class _WindowProblem(NamedTuple):
    gap: float
    steps: int
    probability: float
    cap: float
    release_in_steps: float
    longest: int


def _best_window(problem: _WindowProblem, quantiles: _Quantiles) -> ExactWindow:
    gap, steps, probability = problem[:3]
    # Older steps are neglected, so that very long runs all have the same window.
    steps = min(steps, math.ceil(_WINDOW_MEMORY / gap)) if gap > 0.0 else steps
    longest = min(steps, problem.longest)
    lengths = sorted({max(1, round(longest * 0.9**k)) for k in range(90)})
    # Shifts before the window help if its length is comparable with the memory of the run.
    memory = min(1.0 / gap, 2.0 * longest) if gap > 0.0 else 2.0 * longest
    choices = [ExactWindow(length, 0.0) for length in lengths] + [
        ExactWindow(length, slope * probability * power(log_of(gap), length))
        for length in lengths
        if length < steps and 0.2 * memory <= length <= 3.0 * memory and gap < 0.5
        for slope in _SLOPES
    ]
    shorter = problem._replace(steps=steps)
    return min(choices, key=lambda choice: _window_cost(choice, shorter, quantiles))


def _window_cost(window: ExactWindow, problem: _WindowProblem, quantiles: _Quantiles) -> float:
    gap, steps, probability, cap, release_in_steps, _ = problem
    length, shift = window
    spread = probability * (1 - probability) * (math.log1p(length / (1 + release_in_steps)) + 0.58)
    inside = math.sqrt(probability**2 * length + quantiles.energy * spread)
    left = min(cap, _residual_quantile(problem, steps - length, shift, quantiles.residual))
    return math.hypot(
        inside + cost_per_residual(gap, length, release_in_steps) * left,
        math.sqrt(shift_energy(gap, steps - length, shift)),
    )


def _residual_quantile(problem: _WindowProblem, steps: int, shift: float, folds: float) -> float:
    """A quantile of the residual distance, roughly."""
    if steps == 0:
        return 0.0
    listed = terms(problem.gap, steps, most=256)
    rates = _RATES[::6]
    largest = peaks(listed, problem.probability, shift, rates)
    return float(np.min((largest + folds) / rates))


class ResidualLaw(NamedTuple):
    """A law: Z is at most levels[i] with probability masses[i], or anything with `lost`."""

    levels: Array
    masses: Array
    lost: float


@lru_cache(maxsize=16)
def residual_law(
    *, gap: float, steps: int, probability: float, cap: float, shift: float = 0.0
) -> ResidualLaw:
    r"""A law that dominates that of min(Z, cap), the distance that earlier participations leave.

    The last R steps are solved exactly, with the energy q.  Earlier participations leave the
    distance Z after shifts of energy e, and then

    .. math:: \mu^2 \le (\sqrt q + \kappa Z)^2 + e , \qquad
        \kappa = c^R / \sqrt{1 + c^2 + .. + c^{2(R-1)} + h}

    (`docs/tightness.md#participation-energy`).  Every choice of R and of shifts is valid.  Steps
    are counted backwards, j = 0 the latest.  Shifts are :math:`g c^{2j}` in units of the end,
    g = `shift`, or the whole distance if it is smaller.  Two laws dominate Z:

    * for c < 1 the recursion :math:`z \leftarrow (c^m z - G)^+ + N`, N binomial, over blocks of m
      steps in which only the distance before the block is shifted, on a grid and rounded up;
    * always, as :math:`Z = \max_k \sum_{j < k} (c^j V_j - g c^{2j})`, the maximal inequality for
      martingales, :math:`P(Z > z) \le \exp(\max_k \Psi_k(\theta) - \theta z)` for every
      :math:`\theta`, where :math:`\Psi_k` is the logarithm of the moment of the sum to k.
    """
    listed = terms(gap, steps)
    top = min(float(listed.weights @ listed.counts), cap)
    if top == 0.0:
        return ResidualLaw(np.zeros(1), np.ones(1), 0.0)
    if 0.0 < gap < 0.5:
        return _by_recursion(gap, steps, probability, cap, shift, top)
    return _by_moments(listed, probability, cap, shift, top)


class Terms(NamedTuple):
    """Weights c^j, shifts for g = 1, the number of each, and the sum of the oldest weights.

    If there are many they are grouped: each group has its largest weight and its least shift.
    """

    weights: Array
    shifts: Array
    counts: Array
    rest: float


def terms(gap: float, steps: int, most: int = _MOST_TERMS) -> Terms:
    """The weights of participations by age, and the shifts for each unit of g."""
    if gap >= 1.0 or gap == 0.0:
        count = float(steps if gap == 0.0 else min(steps, 1))
        return Terms(np.ones(1), np.ones(1), np.array([count]), 0.0)
    log_c = log_of(gap)
    last = min(steps, math.ceil(_MEMORY / gap))
    edges = np.unique(np.linspace(0, last, min(last, most) + 1).astype(np.int64))
    rest = power(log_c, last) * min(float(steps - last), 1.0 / gap)
    weights = np.exp(edges[:-1] * log_c)
    shifts = down(np.exp(2 * (edges[1:] - 1) * log_c), THOUSANDS_OF_ROUNDINGS)
    return Terms(weights, shifts, np.diff(edges).astype(float), rest)


def peaks(listed: Terms, probability: float, shift: float, rates: Array) -> Array:
    """The largest Psi_k for each rate: at the end of a group, as it is linear within."""
    result = np.empty(rates.size)
    for i, rate in enumerate(rates):
        each = np.log1p(probability * np.expm1(rate * listed.weights))
        each = up(each, THOUSANDS_OF_ROUNDINGS)
        sums = np.cumsum(listed.counts * (each - rate * shift * listed.shifts))
        result[i] = max(0.0, sums.max())
    return result


def shift_energy(gap: float, steps: int, shift: float) -> float:
    """The energy of the shifts, rounded up."""
    if not shift:
        return 0.0
    return up(shift**2 * sum_of_powers(2 * log_of(gap), steps), MILLIONS_OF_ROUNDINGS)


def _by_recursion(
    gap: float, steps: int, probability: float, cap: float, shift: float, top: float
) -> ResidualLaw:
    size = max(1, int(min(1.0 / gap, steps) / _BLOCKS_IN_MEMORY))
    kept = min(math.ceil(steps / size), math.ceil(_RECURSION_MEMORY / (gap * size)))
    log_c = log_of(gap)
    decay = up(power(log_c, size), THOUSANDS_OF_ROUNDINGS)
    before = max(steps - kept * size, 0)
    most_older = _sum_hardly_exceeded(gap, before, probability) if before else 0.0
    older = power(log_c, kept * size) * min(most_older, 1.0 / gap)
    shifted = down(shift * sum_of_powers(2 * log_c, size), MILLIONS_OF_ROUNDINGS)
    counts = np.arange(size + 1)
    chances = scipy.stats.binom.pmf(counts, size, probability)
    common = np.flatnonzero(chances > _NEGLIGIBLE_CHANCE)
    lost = kept * (size * _NEGLIGIBLE_CHANCE + _BLOCK_ROUNDING) + (_END_EXCEEDED if before else 0.0)
    reach = _negligible_distance(gap, steps, probability, top) + float(common[-1]) + 1.0
    cells = max(1, int(_RECURSION_CELLS / reach))  # in one participation
    length = math.ceil(reach * cells) + 1
    level = np.arange(length) / cells
    law = np.zeros(length)
    law[0] = 1.0
    most = min(math.ceil(min(cap * cells, length)), length - 1)
    for block in track("residual of earlier steps", range(kept - 1, -1, -1)):
        less = np.maximum(decay * level - shifted * power(log_c, block * size), 0.0)
        index = np.ceil(down(less * cells, FEW_ROUNDINGS)).astype(np.int64)
        moved = np.bincount(index, weights=law, minlength=length)
        law = np.zeros(length)
        for count in common:
            added = int(count) * cells
            law[added:] += chances[count] * moved[: length - added]
        law[most] += law[most + 1 :].sum()
        law[most + 1 :] = 0.0
    lost += abs(1.0 - float(law.sum()))
    ends = _few_cells(law)
    masses = np.diff(np.cumsum(law)[ends], prepend=0.0)
    levels = up(np.minimum(level[ends] + older, cap), THOUSANDS_OF_ROUNDINGS)
    return ResidualLaw(levels, np.maximum(masses, 0.0), lost + 1e-12)


def _sum_hardly_exceeded(gap: float, steps: int, probability: float) -> float:
    """A sum of weights that participations exceed with probability at most `_END_EXCEEDED`."""
    listed = terms(gap, steps, most=512)
    return (
        _negligible_distance(gap, steps, probability, float(listed.weights @ listed.counts))
        + listed.rest
    )


def _negligible_distance(gap: float, steps: int, probability: float, top: float) -> float:
    """A distance that Z exceeds with negligible probability, with or without shifts."""
    listed = terms(gap, steps, most=512)
    levels = (peaks(listed, probability, 0.0, _RATES) + _END_FOLDS) / _RATES
    return min(float(levels.min()) * 1.01, top)


def _few_cells(law: Array) -> NDArray[np.int64]:
    """The indices of few cells, to which mass between them is moved up."""
    used = np.flatnonzero(law > _NEGLIGIBLE_MASS / law.size)
    first, last = int(used[0]), int(np.flatnonzero(law)[-1])
    return np.unique(np.append(np.linspace(first, used[-1], 2 * _LEVELS).astype(np.int64), last))


def _by_moments(
    listed: Terms, probability: float, cap: float, shift: float, top: float
) -> ResidualLaw:
    largest = peaks(listed, probability, shift, _RATES)
    coarse = np.geomspace(min(1e-6 * top, 1e-2), top, _LEVELS)
    exceeded = _tail(largest, coarse)
    low = coarse[exceeded >= 0.99][-1] if exceeded[0] >= 0.99 else 0.0
    high = (
        min(1.1 * coarse[exceeded > _NEGLIGIBLE_MASS][-1], top)
        if exceeded[0] > _NEGLIGIBLE_MASS
        else top
    )
    single = [1.0] if high > 1.0 else []
    levels = np.unique(np.concatenate([[0.0, top], single, np.linspace(low, high, _LEVELS)]))
    tail = _tail(largest, levels)
    at_least_one = probability * float(listed.counts.sum())
    tail[0] = min(tail[0], at_least_one)
    tail = np.minimum.accumulate(np.minimum(tail, 1.0))
    tail[-1] = 0.0  # neither its largest value nor the cap is exceeded
    masses = -np.diff(tail, prepend=1.0)
    needed = masses > 0.0
    levels = up(np.minimum(levels + listed.rest, cap)[needed], THOUSANDS_OF_ROUNDINGS)
    return ResidualLaw(levels, masses[needed], 0.0)


def _tail(largest: Array, levels: Array) -> Array:
    """An upper bound on P(Z > level)."""
    logs = np.min(largest[:, None] - _RATES[:, None] * levels, axis=0)
    return np.asarray(up(np.exp(np.minimum(logs, 0.0)), MILLIONS_OF_ROUNDINGS))
