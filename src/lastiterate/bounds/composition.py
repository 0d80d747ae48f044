r"""The bounds by composition of all steps, as if every iterate were published.

**In any order** a step that sees the example is a Gaussian mechanism.  **Sampled** steps are
composed with amplification: by privacy loss distributions, or by moments.

**Moments.** With very many steps the rounding of Fourier transforms is too large.  Logarithms of
moments still add up, with small relative errors.  In one step let
:math:`m(z) = \sum_j w_j e^{a_j z - a_j^2/2}` be the likelihood ratio of :math:`E\,N(Y, 1)` to
N(0, 1), where Y is :math:`a_j \ge 0` with probability :math:`w_j`.  Let
:math:`\psi_\beta(x) = x^\beta - 1 - \beta(x - 1)`, which is convex.  The moment of order
:math:`\alpha`, minus 1, is an average over a normal z of

* :math:`\psi_\alpha(m)` and :math:`\psi_{1-\alpha}(m)`: the mixture against N(0, 1), and N(0, 1)
  against the mixture;
* :math:`m(-z)\,\psi_\alpha(m(z)/m(-z))`: the mixture against its mirror image;
* :math:`\psi_\alpha(m) + \psi_{1-\alpha}(m)` where :math:`m \ge 1`, else 0: the larger of both
  directions at every epsilon (C_p of Dong, Roth and Su 2022), by
  :math:`\alpha(\alpha-1)\int_1^\infty (\gamma^{\alpha-2} + \gamma^{-\alpha-1})
  H_\gamma\,d\gamma`.

Each of them falls and then rises in z, so in a cell it is at most its larger value at the ends.

**Large losses** make large moments, but are rare.  In terms with :math:`\psi_\alpha` results beyond
some z are truncated, and their probability over all T steps, :math:`\tau`, is added to delta.  The
remaining measures P' and Q' lack more of P than of Q.  So their moment is at most
:math:`(1 + e)^T`, where e is the average of the rest; and
:math:`\int \phi(P'/Q')\,dQ' \le (1 + e)^T - 1 + \alpha\tau` with the function of `renyi`.
Both ways from there to delta hold with the moment :math:`(1 + e)^T + \alpha\tau`.

**A quick lower bound** on the delta of this composition shows which other bounds can be skipped.
No statistic of all results distinguishes two data sets better than the results do.  This statistic
is the sum over the steps of rough log-likelihood ratios, in whole cells and modulo their number.
Its law is a power of a transform, and every threshold gives a lower bound on delta.
"""

from __future__ import annotations

import math
from collections import Counter
from enum import Enum
from functools import lru_cache, partial
from typing import TYPE_CHECKING, assert_never

import numpy as np
import scipy
from scipy.special import log_ndtr, ndtr

from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, TINY, Array, at_least, ulps, up
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import (
    GREY,
    ORANGE,
    Bound,
    Certainty,
    Citation,
    LineStyle,
    with_single_examples,
)
from lastiterate.profile.best import BestProfile, FallbackProfile
from lastiterate.profile.gaussian import GaussianProfile, SubsampledGaussian
from lastiterate.profile.group import for_group
from lastiterate.profile.pld import (
    LossDistributionProfile,
    composed_groups,
    least_discretization,
    require,
    to_pld,
)
from lastiterate.profile.profile import PrivacyProfile, check_order
from lastiterate.profile.renyi import log_deltas, rounded_up_exp
from lastiterate.run.batch_rules.base import RULES, BatchRule, Resampling
from lastiterate.run.batch_rules.drawn import PoissonSampled, SampledWithoutReplacement
from lastiterate.run.training_run import TrainingRun

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

_LARGEST_RATIO = 20.0  # of sensitivity and noise
_LARGEST_CELL = 50.0  # of privacy losses; with larger ones nothing is gained
_MAX_GROUP = 64  # examples of a person
_MAX_LEVELS = 12  # different levels of noise

# Powers of transforms multiply their rounding: above the first number of steps moments may be
# better, and above the second only moments are used.
_MAX_STEPS_WITHOUT_MOMENTS = 100_000
_MAX_TRANSFORMED_STEPS = 10_000_000
_NEAR_ROUNDING = 32.0  # times the rounding of transforms
_SMALL_DELTA = 1e-9
_ORDER_COUNT = 60  # number of orders
_CELLS_PER_DEVIATION = 150  # in a standard deviation
_LARGEST_Z = 38.0  # standard deviations, beyond which there is 1e-316
_TRUNCATED_PROBABILITIES = (
    0.0,
    *(10.0**-i for i in range(4, 17, 3)),
)  # probabilities of truncated results
_NEARLY_ONE = 1e-4  # beta (x - 1), below which the difference in psi would cancel
_LARGEST_LOG = 600.0
_STATISTIC_CELLS = 1 << 14
_RESULT_CELLS = 2000  # cells of the result of one step
_LARGEST_RESULT = 9.0  # standard deviations
_STATISTIC_REACH = 20.0  # standard deviations of the sum that have cells of their own
_MAX_STATISTIC_STEPS = 10**8  # beyond which rounding is larger than any delta
_LARGEST_STATISTIC_RATIO, _LARGEST_EPSILON = 30.0, 700.0


def worst_order_composition(run: TrainingRun) -> GaussianProfile:
    r"""mu-GDP with mu^2 the sum of (L/(b sigma_k))^2 over the most exposed participations.

    **Bound.** Each step in which the differing example takes part is a Gaussian mechanism;
    steps in which it does not are post-processing.

    **Holds when.** every step has noise, whatever the losses and whatever is released.  Batches
    sampled anew every step count as if the example were always in: there is no amplification.

    **Tight** if all iterates are released and nothing else is known about the losses.

    **Source.** Dong, Roth and Su 2022, Corollary 3.3; Bok, Su and Altschuler 2024,
    Theorems 4.1 and 4.4.

    **Computed as** a sum of squares, rounded up.
    """
    change = max(quantities.gradient_change(run), TINY)
    if run.is_constant:
        noise = float(np.max(run.noise_std))
        return quantities.gaussian(
            change / noise * math.sqrt(run.batches.most_participations(run.steps))
        )
    noise_std = quantities.every_step(np.array(run.noise_std), run.steps)
    largest = float((1.0 / noise_std).max())
    squares = (1.0 / noise_std / largest) ** 2
    mu = change * largest * math.sqrt(_worst_sum(run, squares))
    # numpy's pairwise sums of n terms are off by about log2 n ulps.
    return quantities.gaussian(up(mu, ulps(64)))


def _worst_sum(run: TrainingRun, squares: Array) -> float:
    """The largest sum of squares over the participations of one example."""
    resampling = run.batches.resampling
    match resampling:
        case Resampling.NEVER | Resampling.ONCE:
            return max(float(squares[steps].sum()) for steps in quantities.patterns(run))
        case Resampling.EACH_EPOCH:
            starts = np.arange(0, run.steps, run.batches.batches_per_epoch)
            return float(np.maximum.reduceat(squares, starts).sum())
        case Resampling.EACH_FEW_EPOCHS:
            return _worst_draws(run.batches, squares)
        case Resampling.EACH_STEP:
            return float(squares.sum())
        case _:
            assert_never(resampling)


def _worst_draws(rule: BatchRule, squares: Array) -> float:
    """The largest sum over sets of steps, as many of each draw as one example may take part in."""
    length = rule.steps_per_draw
    draws = (squares[start : start + length] for start in range(0, squares.size, length))
    return math.fsum(
        float(np.sort(draw)[::-1][: rule.most_participations(draw.size)].sum()) for draw in draws
    )


FIXED_ORDER_COMPOSITION = Bound(
    id="composition/fixed-order",
    gives="a Gaussian guarantee for all iterates together, growing with the square root of steps",
    covers=tuple(RULES.values()),
    needs=(conditions.NOISY,),
    certainty=Certainty.UPPER,
    beyond_plain_steps=True,  # later steps only post-process the noisy gradients
    source=Citation("Dong, Roth and Su", 2022, "Gaussian differential privacy", "Corollary 3.3"),
    evaluate=worst_order_composition,
    for_persons=worst_order_composition,  # most exposed with all examples in one batch
    charges="charges every step that sees the example, as if all iterates were published",
    line_style=LineStyle(GREY),
    given_order=True,
)


def sampled_composition(run: TrainingRun) -> PrivacyProfile:
    r"""The profile of all iterates together, with amplification by sampling.

    **Bound.** :math:`\bigotimes_t C_p(G(r_t))`, :math:`r_t = L/(b\sigma_t)`: every step is a
    Gaussian mechanism on a batch that has the differing example with probability p, b/n or the rate
    that Poisson batches state.

    For Poisson batches and an example being left out, the two directions of that step are
    composed separately; if it is replaced by another, and gradients are of norm at most C, the
    step has the mean C/(b sigma) with probability p, with opposite signs on the two data sets.

    **Holds when.** every step draws its batch uniformly without replacement (and an example is
    replaced), or includes every example independently, never cut (and an example is left
    out, or replaced where gradients are bounded), independently and in secret, and has noise.
    All iterates may be released, but not the batches.

    **Tight** for one step, if nothing else is known of the losses.

    **Source.** Dong, Roth and Su 2022, Theorem 9; Bok, Su and Altschuler 2024, Theorem 4.8 and
    Proposition D.4.

    **Computed as** a pessimistic privacy loss distribution of one step, composed by Fourier
    transforms.  Beyond 100,000 steps, and for deltas near the rounding of these, also by moments,
    without rare losses, and beyond ten million steps by moments alone.  A schedule of noise counts
    as at most 12 levels, each the least noise of some steps, and in moments as its least.  Losses
    too large for that are composed as in `composition/fixed-order`, as if every step had the
    example, which is never less.
    """
    profiles: list[PrivacyProfile] = []
    if run.steps <= _MAX_TRANSFORMED_STEPS:
        composed = composed_steps(run, run.steps)
        if composed is None:
            profiles.append(worst_order_composition(run))
        elif run.steps > _MAX_STEPS_WITHOUT_MOMENTS:
            profiles.append(composed)
        else:
            profiles.append(
                FallbackProfile(
                    composed, below=near_rounding(composed), fallback=partial(_moments, run)
                )
            )
    if run.steps > _MAX_STEPS_WITHOUT_MOMENTS:
        profiles.append(_moments(run))
    return profiles[0] if len(profiles) == 1 else BestProfile(profiles)


def sampled_composition_for_persons(run: TrainingRun) -> PrivacyProfile:
    """The composition for a person, of whose examples a step has a binomial number.

    In Poisson batches a step is a mixture of Gaussians against the step without the person, and the
    worst directions are the same for all numbers (Ganesh 2024; by Kahane's inequality).  In batches
    of a fixed size other examples take their place, and only group privacy is known.
    """
    size, single = run.examples_per_person, with_single_examples(run)
    if run.batches.exact_size or size > _MAX_GROUP:
        return for_group(sampled_composition(single), size)
    numbers = np.arange(size + 1, dtype=np.float64)
    chances = scipy.stats.binom.pmf(numbers, size, run.batches.share)
    ratio = _ratio(single, float(np.min(run.noise_std)))
    return ComposedMomentsProfile(
        numbers * ratio, up(chances, MILLIONS_OF_ROUNDINGS), run.steps, _step_pair(run)
    )


def _step_pair(run: TrainingRun) -> StepPair:
    if run.batches.exact_size:
        return StepPair.WORSE_DIRECTION
    replaced = run.adjacency == "replace"
    return StepPair.MIRRORED_MIXTURES if replaced else StepPair.MIXTURE_AND_NORMAL


def _moments(run: TrainingRun) -> PrivacyProfile:
    """The composition by moments, whose rounding errors do not add up."""
    probability, ratio = run.batches.share, _ratio(run, float(np.min(run.noise_std)))
    chances = np.array([max(1.0 - probability, 0.0), up(probability, ulps(1))])
    return ComposedMomentsProfile(np.array([0.0, ratio]), chances, run.steps, _step_pair(run))


def _ratio(run: TrainingRun, noise: float) -> float:
    """The per-step sensitivity in units of this noise, rounded up."""
    change = quantities.gradient_change(run)
    if not run.batches.exact_size and run.adjacency == "replace":
        assert run.gradient_bound is not None
        change = run.gradient_bound / run.batches.batch_size
    return at_least(change / noise, ulps=quantities.WIDENING)


def composed_steps(
    run: TrainingRun, steps: int, *, share: float = 1.0, least_cell: float = 0.0
) -> LossDistributionProfile | None:
    """The composition of `steps` of the run, with this share of the variance of their noise.

    Losses are rounded to cells of at least `least_cell`.  None if they need cells so large that
    nothing is gained.
    """
    require("composition of sampled batches")
    probability, ratios = run.batches.share, _ratios(run, steps, share)
    largest = max(ratios)
    fine = max(cell_of_losses(probability, largest, steps), least_cell)
    whole = SubsampledGaussian(probability, largest)
    cell = max(fine, 1.1 * least_discretization(whole))
    if cell > _LARGEST_CELL:
        return None
    return composed_groups([(_step_losses(run, one, cell), often) for one, often in ratios.items()])


def _ratios(run: TrainingRun, steps: int, share: float) -> Counter[float]:
    """The ratios of sensitivity and noise, each rounded up, and how many steps have them."""
    if not isinstance(run.noise_std, tuple):
        return Counter({_ratio(run, run.noise_std * math.sqrt(share)): steps})
    if steps != run.steps:
        raise ValueError("steps of a schedule are composed all together")
    noises = np.sort(np.array(run.noise_std))
    if np.unique(noises).size > _MAX_LEVELS:
        # Equal ratios of one level to the next; each level counts as the least noise in it.
        edges = np.geomspace(noises[0], noises[-1], _MAX_LEVELS + 1)[:-1]
        edges[0] = noises[0]
        level = np.searchsorted(edges, noises, side="right")
        noises = noises[np.searchsorted(level, level)]
    return Counter(_ratio(run, float(one) * math.sqrt(share)) for one in noises)


def _step_losses(run: TrainingRun, ratio: float, cell: float) -> PrivacyLossDistribution:
    """The losses of one step with this ratio of sensitivity and noise, in cells of one size."""
    import dp_accounting
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    if run.batches.exact_size:
        return to_pld(SubsampledGaussian(run.batches.share, ratio), discretization=cell)
    relations = dp_accounting.NeighboringRelation
    replaced = run.adjacency == "replace"
    return from_gaussian_mechanism(
        1.0 / ratio,
        sampling_prob=run.batches.share,
        value_discretization_interval=cell,
        use_connect_dots=True,
        neighboring_relation=relations.REPLACE_ONE if replaced else relations.ADD_OR_REMOVE_ONE,
    )


def near_rounding(composed: LossDistributionProfile) -> float:
    """A delta below which another bound may be better than this composition."""
    return max(_NEAR_ROUNDING * composed.slack, _SMALL_DELTA)


def cell_of_losses(probability: float, ratio: float, steps: int) -> float:
    """A cell fine enough for the sum of all losses, and coarse enough to hold it."""
    spread = probability * math.sqrt(steps * math.expm1(min(ratio * ratio, 600.0)))
    mean = probability * steps
    most = min(mean + math.sqrt(60 * mean) + 30, steps)  # participations, up to e^-30
    reach = min(spread * spread / 2 + 10 * spread + 20 * ratio, most * ratio * (ratio / 2 + 10))
    return max(min(1e-4, max(probability * ratio / 5, 1e-9)), reach / 400_000)


class StepPair(Enum):
    """The pair of laws of one step."""

    MIXTURE_AND_NORMAL = "a mixture against N(0, 1), and N(0, 1) against the mixture"
    MIRRORED_MIXTURES = "a mixture against its mirror image"
    WORSE_DIRECTION = "a mixture and N(0, 1), in the worse direction at every epsilon"


class ComposedMomentsProfile(PrivacyProfile):
    """The profile of independent steps with mean levels[j] with probability masses[j].

    >>> levels, masses = np.array([0.0, 1.0]), np.array([1.0 - 1e-6, 1e-6])
    >>> few = ComposedMomentsProfile(levels, masses, 10**6, StepPair.MIXTURE_AND_NORMAL)
    >>> many = ComposedMomentsProfile(levels, masses, 10**10, StepPair.MIXTURE_AND_NORMAL)
    >>> few.epsilon(1e-6) < 0.01 < many.epsilon(1e-6) < 1.0
    True
    """

    def __init__(self, levels: Array, masses: Array, steps: int, pair: StepPair) -> None:
        levels, masses = levels[masses > 0.0], masses[masses > 0.0]
        self._parts = [
            _Part(levels, masses, steps, pair, truncated) for truncated in _TRUNCATED_PROBABILITIES
        ]

    def __repr__(self) -> str:
        return "ComposedMomentsProfile()"

    def deltas(self, epsilons: Array) -> Array:
        return np.array([min(part.delta(float(one)) for part in self._parts) for one in epsilons])

    def renyi(self, order: float) -> float:
        """inf, since some results are truncated."""
        check_order(order)
        return math.inf

    def gdp(self) -> float:
        """inf, since tails are heavier than those of a Gaussian."""
        return math.inf


class _Part:
    """Moments of all orders, without results of the probability `truncated` in all steps."""

    def __init__(
        self, levels: Array, masses: Array, steps: int, pair: StepPair, truncated: float
    ) -> None:
        end = _threshold_exceeded_with(levels, masses, truncated / steps)
        ratios = _Ratios(levels, masses, end)
        self._lost = min(up(steps * ratios.beyond, MILLIONS_OF_ROUNDINGS), 1.0)
        spread = math.sqrt(steps * math.exp(min(_log_excess(ratios, 2.0, pair), 100.0)))
        spread = min(max(spread, 1e-6), 1e3)
        self._orders = 1.0 + np.geomspace(0.02, 60.0, _ORDER_COUNT) / spread
        logs = np.array([_log_excess(ratios, float(one), pair) for one in self._orders])
        with np.errstate(over="ignore"):
            step_logs = np.where(logs > _LARGEST_LOG, logs, np.log1p(np.exp(logs)))
        moments = np.logaddexp(
            steps * step_logs, np.log(self._orders) + math.log(self._lost + TINY)
        )
        self._divergences = up(moments, MILLIONS_OF_ROUNDINGS) / (self._orders - 1.0)

    def delta(self, epsilon: float) -> float:
        log = float(log_deltas(self._divergences, self._orders, epsilon).min())
        return min(up(rounded_up_exp(log) + self._lost, ulps(2)), 1.0)


def _threshold_exceeded_with(levels: Array, masses: Array, probability: float) -> float:
    """The threshold that a result exceeds with about this probability."""
    top = float(levels.max()) + _LARGEST_Z
    edges = np.linspace(0.0, top, 4000)
    beyond = ndtr(levels - edges[:, None]) @ masses
    return float(edges[min(int(np.searchsorted(-beyond, -probability)), edges.size - 1)])


class _Ratios:
    """m - 1 and log m at the edges of cells up to `end`, and at those mirrored."""

    def __init__(self, levels: Array, masses: Array, end: float) -> None:
        edges = np.linspace(
            -_LARGEST_Z, end, math.ceil((end + _LARGEST_Z) * _CELLS_PER_DEVIATION) + 1
        )
        edges = np.sort(np.append(edges, 0.0))
        self.excess, self.log = _moment_ratio(levels, masses, edges)
        self.mirrored, self.log_mirrored = _moment_ratio(levels, masses, -edges)
        # Each cell lies on one side of 0, where differences of normal tails are precise.
        away = np.abs(edges)
        closer, farther = np.minimum(away[:-1], away[1:]), np.maximum(away[:-1], away[1:])
        tail = log_ndtr(-closer)
        with np.errstate(divide="ignore"):
            self.log_cells = tail + np.log(-np.expm1(log_ndtr(-farther) - tail))
        self.beyond = float(ndtr(levels - end) @ masses)
        self.below = float(ndtr(levels - _LARGEST_Z) @ masses)
        absent = float(masses[levels == 0.0].sum())
        self.least_log = math.log(absent) if absent > 0.0 else -math.inf


def _moment_ratio(levels: Array, masses: Array, at: Array) -> tuple[Array, Array]:
    """m - 1 and log m at these results."""
    exponents = at[:, None] * levels - 0.5 * levels * levels
    top = exponents.max(axis=1)
    with np.errstate(over="ignore", under="ignore"):
        excess = np.expm1(np.minimum(exponents, _LARGEST_LOG)) @ masses
        direct = top + np.log(np.exp(exponents - top[:, None]) @ masses)
    # Near 1 the logarithm comes from the distance to 1, which elsewhere may overflow or cancel.
    near = np.abs(excess) < 0.5
    return excess, np.where(near, np.log1p(np.where(near, excess, 0.0)), direct)


def _log_excess(ratios: _Ratios, order: float, pair: StepPair) -> float:
    """The logarithm of the moment of one step minus 1, rounded up."""
    excess, log = ratios.excess, ratios.log
    if pair is StepPair.MIRRORED_MIXTURES:
        mirrored, other = ratios.mirrored, ratios.log_mirrored
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            near = (np.abs(excess) < 0.5) & (np.abs(mirrored) < 0.5)
            apart = np.where(near, (excess - mirrored) / (1.0 + mirrored), np.expm1(log - other))
        terms = [other + _log_psi(apart, log - other, order)]
    else:
        forwards, backwards = _log_psi(excess, log, order), _log_psi(excess, log, 1.0 - order)
        terms = [forwards, backwards]
        if pair is StepPair.WORSE_DIRECTION:
            terms = [np.where(excess >= 0.0, np.logaddexp(forwards, backwards), -np.inf)]
    inside = max(
        float(np.logaddexp.reduce(np.maximum(term[:-1], term[1:]) + ratios.log_cells))
        for term in terms
    )
    whole = float(np.logaddexp(inside, _log_outside(ratios, order)))
    return whole + MILLIONS_OF_ROUNDINGS * (1.0 + abs(whole))


def _log_outside(ratios: _Ratios, order: float) -> float:
    r"""The logarithm of a bound on the part of the moment outside the cells.

    Below them psi is at most the larger of twice the order and its value at the least ratio; if
    the mirrored ratio m is in it, that times the order, and one.  Above them
    :math:`\psi_{1-\alpha}(m)` is at most the order times m.
    """
    low = float(log_ndtr(-_LARGEST_Z))
    low += np.logaddexp((1.0 - order) * ratios.least_log, math.log(2.0 * order))
    return float(np.logaddexp(low, math.log(order * (ratios.below + ratios.beyond) + TINY)))


def _log_psi(excess: Array, log: Array, exponent: float) -> Array:
    """The logarithm of psi of a ratio, given by its excess over 1 and its logarithm; rounded up."""
    power = exponent * log
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        curved = math.log(exponent * (exponent - 1.0) / 2.0) + 2.0 * np.log(np.abs(excess))
        curved += np.maximum((exponent - 2.0) * log, 0.0)
        difference = np.expm1(np.minimum(power, _LARGEST_LOG)) - exponent * excess
        exact = np.log(np.maximum(difference, 0.0))
        huge = np.logaddexp(power, math.log(abs(exponent)) + np.maximum(log, 0.0))
        small = (1.0 + abs(exponent)) * np.abs(excess) < _NEARLY_ONE
    far = (power > 500.0) | (log > 500.0)
    return np.asarray(np.where(small, curved, np.where(far, huge, exact)) + MILLIONS_OF_ROUNDINGS)


def sampled_composition_delta_lower_bound(run: TrainingRun, epsilon: float) -> float:
    """A lower bound on the delta of `sampled_composition` at `epsilon`, by a rough statistic."""
    return composed_delta_lower_bound(
        run.batches.share,
        _ratio(run, float(np.max(run.noise_std))),
        run.steps,
        epsilon,
        mirrored=_step_pair(run) is StepPair.MIRRORED_MIXTURES,
    )


def composed_delta_lower_bound(
    probability: float, ratio: float, steps: int, epsilon: float, *, mirrored: bool
) -> float:
    """A lower bound on delta at `epsilon` after `steps` steps; 0 if nothing is known.

    Each step has the mean `ratio` with this probability on one data set, else 0, and noise 1.  On
    the other data set the mean is 0, or if `mirrored` -`ratio` with this probability.
    """
    if not (
        0.0 < probability <= 1.0
        and 0.0 < ratio < _LARGEST_STATISTIC_RATIO
        and 1 <= steps <= _MAX_STATISTIC_STEPS
    ):
        return 0.0
    first, second = _tails(probability, ratio, steps, mirrored)
    if not epsilon < _LARGEST_EPSILON:
        return 0.0
    # The transform is off by a rounding a step, and sums of its cells by as many.
    off = ulps(64.0 * (steps + _STATISTIC_CELLS))
    forwards = first - off - math.exp(epsilon) * (second + off)
    backwards = 1.0 - second - off - math.exp(epsilon) * (1.0 - first + off)
    return max(float(forwards.max()), float(backwards.max()), 0.0)


@lru_cache(maxsize=16)
def _tails(probability: float, ratio: float, steps: int, mirrored: bool) -> tuple[Array, Array]:
    """The probabilities of exceeding each threshold, on one data set and on the other."""
    ends = np.linspace(-_LARGEST_RESULT - mirrored * ratio, ratio + _LARGEST_RESULT, _RESULT_CELLS)
    logs = _log_ratio(0.5 * (ends[1:] + ends[:-1]), probability, ratio)
    absent, present = _masses(ends), _masses(ends - ratio)
    one = (1.0 - probability) * absent + probability * present
    other = absent
    if mirrored:
        logs = logs - _log_ratio(-0.5 * (ends[1:] + ends[:-1]), probability, ratio)
        other = (1.0 - probability) * absent + probability * _masses(ends + ratio)
    spread = math.sqrt(float(one @ np.square(logs - one @ logs)) + 1e-300)
    cell = max(spread / 3.0, _STATISTIC_REACH * spread * math.sqrt(steps) / _STATISTIC_CELLS)
    cells = np.floor(logs / cell)
    cells -= cells.min()
    middle = steps * 0.5 * float((one + other) @ cells)
    turn = (
        math.floor(middle) + np.arange(_STATISTIC_CELLS) - _STATISTIC_CELLS // 2
    ) % _STATISTIC_CELLS
    tails = []
    for masses in (one, other):
        law = np.bincount(
            (cells % _STATISTIC_CELLS).astype(np.int64), masses, minlength=_STATISTIC_CELLS
        )
        summed = np.fft.irfft(np.fft.rfft(law) ** steps, _STATISTIC_CELLS)[turn]
        tails.append(np.cumsum(summed[::-1])[::-1])
    return tails[0], tails[1]


def _masses(ends: Array) -> Array:
    """The standard normal probabilities between these ends; the outer two include the tails."""
    below = ndtr(ends)
    below[0], below[-1] = 0.0, 1.0
    return np.diff(below)


def _log_ratio(results: Array, probability: float, ratio: float) -> Array:
    """The log-likelihood ratio of a step that may contain the example to one that does not."""
    present = ratio * results - ratio * ratio / 2.0 + math.log(probability)
    absent = math.log1p(-probability) if probability < 1.0 else -math.inf
    return np.asarray(np.logaddexp(present, absent))


SAMPLED_COMPOSITION = Bound(
    id="composition/sampled",
    gives="all iterates together, with amplification by sampling",
    covers=(SampledWithoutReplacement, PoissonSampled),
    needs=(
        conditions.THEIR_ADJACENCY,
        conditions.SECRET_BATCHES,
        conditions.enough_noise(
            _LARGEST_RATIO, remedy="use more noise: below this, composition/fixed-order is as good"
        ),
    ),
    certainty=Certainty.UPPER,
    beyond_plain_steps=True,  # later steps only post-process the noisy gradients
    source=Citation("Dong, Roth and Su", 2022, "Gaussian differential privacy", "Theorem 9"),
    evaluate=sampled_composition,
    for_persons=sampled_composition_for_persons,
    delta_lower_bound=sampled_composition_delta_lower_bound,
    given_order=True,
    charges="charges every iterate, less for the example's chance to be left out",
    line_style=LineStyle(ORANGE),
)
