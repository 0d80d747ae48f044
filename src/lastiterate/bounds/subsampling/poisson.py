r"""The bound for Poisson batches whose participations stay hidden.

The two laws of the last iterate are no easier to distinguish than a product of mixtures
:math:`E N(Y_g, 1)` against N(0, 1), or against :math:`E N(-Y_g, 1)` if the example is replaced.
:math:`Y_g` is the cost of the participations in one group of steps, by a plan that is linear in
them (`LinearPlan`).  `docs/tightness.md#poisson-batches` has the theorem.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise, product

import numpy as np

from lastiterate._numerics.powers import log_of, power, sum_of_powers
from lastiterate._numerics.rounding import (
    MILLIONS_OF_ROUNDINGS,
    TENS_OF_THOUSANDS_OF_ROUNDINGS,
    THOUSANDS_OF_ROUNDINGS,
    TINY,
    Array,
    IntArray,
    at_least,
    at_most,
    down,
    length_of,
    suffix_sums,
    ulps,
    up,
)
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Bound, Certainty, Citation
from lastiterate.bounds.fixed_order.convex import CONVEX_FIXED_ORDER
from lastiterate.bounds.subsampling.average import LimitedContraction, contractions_without_example
from lastiterate.profile.best import BestProfile
from lastiterate.profile.gaussian import sum_of_draws
from lastiterate.profile.losses import Repeated, SummedLossesProfile, shift_losses
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.run.batch_rules.drawn import PoissonSampled
from lastiterate.run.training_run import TrainingRun

_LARGEST_RATIO = 1e6  # of sensitivity and noise; above it nothing is certified
_LEAST_RATIO = 1e-12  # smaller ones are raised to it
_MOST_RELEASE_NOISE = 1e9  # in units of a step's noise; more is not used

# The shape of a plan.
_WINDOW_GROWTH = 2  # of windows, from the end on
_ZONES = 5  # groups of blocks with the same share of noise
_MOST_BLOCKS = 500  # up to the first edge
_LENGTH_BITS = 6  # significant ones of a length
_LARGEST_SQUARE = 8.0  # of a cost, for the urgency of a window
# In units of the memory -1/log c: shorter runs have windows only, and longer ones never do.
_BRIEF_MEMORIES, _LONG_MEMORIES = 0.7, 5.0
_FIRST_EDGES, _BETWEEN_EDGES = (0.5, 0.7, 0.9, 1.1, 1.3, 1.6, 2.0, 3.0), 0.4
_BULK_GROUPS = (1, 2, 4)  # numbers of bulk groups
_CAPPED_EDGES = (0.5, 1.0, 2.0, 4.0)  # first edges where a domain caps the oldest group
_RESERVED_PARTS = (0.0, 0.01, 0.03, 0.1)  # of the ages up to the first edge
RELEASE = -1  # the age of the noise on release

# The law of a discounted sum.
_GRID_CELLS = 1 << 14
_FEWEST_STEPS = 64  # fewer are not halved, for the sake of speed
_MOST_ON_GRID = 1_500.0  # participations on average; of more only tails are bounded
_NEGLIGIBLE_DISCOUNT = 4e-3  # minus the logarithm of c^i
_LONGEST_MEMORY = 14.0  # minus the logarithm of the share of the mean that older participations add
_BLOCKS = 1 << 9  # of steps, for moments
_DEVIATION_LEVELS = 40
_NEGLIGIBLE_MASS = 1e-19  # the binomial mass beyond the largest listed number
_CENTRE, _COARSENING = 2.5, 8.0  # standard deviations, beyond which levels are farther apart
_TILTS = np.linspace(0.02, 10.0, 100)  # over the standard deviation
_LARGEST_TILT = 500.0  # so that no power overflows


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


def _profile(run: TrainingRun, contraction: LimitedContraction) -> PrivacyProfile:
    """The profile of the best plan for this contraction, which holds but for its failure."""
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
    rough = _coarse_ratio(ratio)
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


def _coarse_ratio(ratio: float) -> float:
    """The ratio rounded to a coarse grid, so that nearby noise levels share windows and laws."""
    return math.exp(round(math.log(min(max(ratio, 1e-3), 1e3)) / 0.3) * 0.3)


@dataclass(frozen=True)
class NoiseAges:
    """The noise of the ages from `first` to `last`, in `blocks` of equal length."""

    first: int
    last: int
    blocks: int = 1


@dataclass(frozen=True)
class PlanGroup:
    """The `count` participations from age `first` on, and their shares of `NoiseAges`.

    `blocks` such groups follow one another, each with its own one of as many blocks of noise.
    """

    first: int
    count: int
    shares: tuple[tuple[int, float], ...]
    blocks: int = 1


@dataclass(frozen=True)
class LinearPlan:
    r"""Groups of the participations of all `steps`, and the ages of noise that they use.

    In units of the end, a participation of age a (a steps before the end) has size :math:`c^a`, the
    noise of age k has variance :math:`c^{2k}`, and noise on release counts as `release` more.  A
    participation may be shifted away by noise of its own age or younger, and by the release.  A
    *group* shifts all its participations in the same proportions, with shares of the noise of some
    ages that no other group uses.  Its cost is :math:`\sum_t V_t c^{a_t} / \sqrt S`, where V are
    the participations and S is the variance it uses.  Shifts of different groups are orthogonal.

    There are two kinds of groups.  *Windows* are one, two, four, .. up to a block of steps long,
    counted from the end, and the noise of each shifts the participations of the next older one.
    *Bulk* groups have the participations older than all windows, shifted by all younger noise.
    Every plan is a proof (`docs/tightness.md#poisson-batches`): it is checked that no noise is used
    twice and that no participation is shifted away before it happens.
    """

    gap: float
    steps: int
    release: float
    noise: tuple[NoiseAges, ...]
    groups: tuple[PlanGroup, ...]

    def __post_init__(self) -> None:
        self._check_noise()
        self._check_participations()

    @property
    def _log_c(self) -> float:
        return log_of(self.gap)

    def variance(self, group: PlanGroup) -> float:
        """The variance of the noise that the group uses, rounded down."""
        total = math.fsum(
            share * _variance(self._log_c, self.noise[number], self.release, group.blocks)
            for number, share in group.shares
        )
        return down(total, MILLIONS_OF_ROUNDINGS)

    def is_oldest(self, group: PlanGroup) -> bool:
        """Whether the group has all participations from some age on.

        Then no other distance is left at that age, and on a bounded domain the group has no more
        than the diameter and one participation.
        """
        return group.blocks == 1 and group.first + group.count == self.steps

    def cost(self, group: PlanGroup) -> float:
        """The cost of the youngest participation of the group, rounded up."""
        variance = self.variance(group)
        if not variance > 0.0:
            return math.inf
        return up(power(self._log_c, group.first) / math.sqrt(variance), MILLIONS_OF_ROUNDINGS)

    def _check_noise(self) -> None:
        ages = sorted((noise.first, noise.last) for noise in self.noise)
        overlap = any(younger[1] >= older[0] for younger, older in pairwise(ages))
        used = [0.0] * len(self.noise)
        for group in self.groups:
            for number, share in group.shares:
                used[number] += share
        if overlap or not all(0.0 <= share <= 1.0 for share in used):
            raise ValueError("the plan uses some noise twice")

    def _check_participations(self) -> None:
        expected = 0
        for group in sorted(self.groups, key=lambda one: one.first):
            if group.first != expected or group.count < 1:
                raise ValueError("the plan shifts some participations twice or never")
            expected += group.count * group.blocks
            for number, _ in group.shares:
                self._check_ages(group, self.noise[number])
        if expected != self.steps:
            raise ValueError("the plan shifts some participations twice or never")

    def _check_ages(self, group: PlanGroup, noise: NoiseAges) -> None:
        """Refuse noise older than the group; several blocks must match one by one."""
        if group.blocks == 1:
            early = noise.last > group.first
        else:
            length = noise.last - noise.first + 1
            early = (
                noise.blocks != group.blocks
                or length != group.count * group.blocks
                or noise.first + group.count - 1 > group.first
            )
        if early:
            raise ValueError("the plan shifts some participations before they happen")


@dataclass(frozen=True)
class PlanShape:
    """The shape of a plan; any is valid.

    Windows grow from `last` to `block` steps and end at age `edges[0]`.  Bulk groups begin at the
    ages `edges` and use no noise younger than `reserved`.  The oldest has no more participations
    than `full` steps have on average.
    """

    block: int
    edges: tuple[int, ...]
    reserved: int = 0
    last: int = 1
    full: float = math.inf


@lru_cache(maxsize=64)
def best_shape(
    *,
    gap: float,
    steps: int,
    probability: float,
    ratio: float,
    release: float,
    cap: float = math.inf,
) -> PlanShape:
    """The shape of least cost among a few dozen: first the edges, then the length of blocks.

    The oldest group never has more than `cap` participations.
    """

    def cost(shape: PlanShape) -> float:
        plan = plan_of_shape(shape, gap=gap, steps=steps, ratio=ratio, release=release)
        return _rough_cost(plan, probability, ratio, cap)

    full = cap / probability
    edges = _edge_candidates(gap, steps, full)
    best = min((replace(_with_edges(one, ratio, release), full=full) for one in edges), key=cost)
    for _ in range(2):
        longer = [_with_edges(best.edges, ratio * 2.0**i, release) for i in range(-3, 5)]
        shapes = [replace(best, block=one.block, last=one.last) for one in dict.fromkeys(longer)]
        best = min(shapes, key=cost)
        reserved = [math.floor(part * best.edges[0]) for part in _RESERVED_PARTS]
        best = min((replace(best, reserved=age) for age in dict.fromkeys(reserved)), key=cost)
    return best


def _edge_candidates(gap: float, steps: int, full: float) -> list[tuple[int, ...]]:
    """Candidates for the edges: windows only, or bulk groups from several ages on.

    The cap of the oldest group is reached, on average, in `full` steps.
    """
    log_c = log_of(gap)
    windows_only = (steps,)
    capped = [(max(1, math.floor(part * full)),) for part in _CAPPED_EDGES if part * full < steps]
    if not steps * -log_c > _BRIEF_MEMORIES:
        return [windows_only, *capped]
    candidates: list[tuple[int, ...]] = [windows_only] if steps * -log_c < _LONG_MEMORIES else []
    memory = -1.0 / log_c
    for first, bulks in product(_FIRST_EDGES, _BULK_GROUPS):
        apart = _halvable_length(max(1, math.floor(_BETWEEN_EDGES * memory)))
        start = max(1, math.floor(first * memory))
        edges = tuple(age for age in range(start, start + bulks * apart, apart) if age < steps)
        candidates += [edges] if edges else []
    return list(dict.fromkeys([*candidates, *capped])) or [windows_only]


def _with_edges(edges: tuple[int, ...], ratio: float, release: float) -> PlanShape:
    """The shape with these edges, and windows and reserve by a rule of thumb."""
    end = edges[0]
    block = max(ratio * math.sqrt(end) / 2.0, end / _MOST_BLOCKS, 1.0 + release)
    block = _halvable_length(max(1, math.floor(min(block, end / 4.0))))
    last = min(math.floor(1.0 + release), block)
    return PlanShape(block, edges, math.floor(_RESERVED_PARTS[1] * end), last)


def _halvable_length(count: int) -> int:
    """A length that can be halved until few are left, as `discounted_sum` does."""
    spare = max(count.bit_length() - _LENGTH_BITS, 0)
    return count >> spare << spare


def _rough_cost(plan: LinearPlan, probability: float, ratio: float, cap: float) -> float:
    """Roughly the logarithm of the mean likelihood ratio, for rare participations."""
    total = 0.0
    log_c = log_of(plan.gap)
    for group in plan.groups:
        mean = probability * sum_of_powers(log_c, group.count)
        if plan.is_oldest(group):
            mean = min(mean, cap)
        square = (plan.cost(group) * ratio) ** 2
        total += group.blocks * mean * mean * math.expm1(min(square, 50.0))
    return total


def plan_of_shape(
    shape: PlanShape, *, gap: float, steps: int, ratio: float, release: float
) -> LinearPlan:
    """The plan of this shape, with shares of noise in proportion to average shifts."""
    log_c = log_of(gap)
    noise, windows = _windows(shape)
    for edge in shape.edges:
        youngest, oldest = noise[-1].last + 1, min(edge, steps - 1)
        noise += [NoiseAges(youngest, oldest)] if youngest <= oldest else []
    variances = [_variance(log_c, ages, release) for ages in noise]
    claims = [_window_claim(window, log_c, variances, ratio) for window in windows]
    for start, end in pairwise((*shape.edges, steps)):
        if start < end:
            usable = {
                number: variances[number]
                for number, ages in enumerate(noise)
                if ages.last <= start and (ages.first == RELEASE or ages.last >= shape.reserved)
            }
            most = shape.full if end == steps else math.inf
            claims.append(_proportional_claim(start, end - start, log_c, usable, most=most))
    return LinearPlan(gap, steps, release, tuple(noise), _groups(claims, len(noise)))


@dataclass(frozen=True)
class _Claim:
    """Participations, and the weights of their claims to noise, by index of `NoiseAges`."""

    first: int
    count: int
    weights: dict[int, float]
    blocks: int = 1


def _windows(shape: PlanShape) -> tuple[list[NoiseAges], list[_Claim]]:
    """The windows of participations up to the first edge, and the noise that shifts each."""
    end = shape.edges[0]
    noise = [NoiseAges(RELEASE, RELEASE), NoiseAges(0, 0)]
    size = min(shape.last, shape.block, end)
    windows = [_Claim(0, size, {0: 1.0, 1: 1.0})]
    age = size
    while age < end:
        # Noise up to the window's own youngest age that no younger window uses.
        youngest = noise[-1].last + 1
        if age - youngest + 1 == shape.block <= (end - age) // 2:
            for blocks in _zones((end - age) // shape.block):
                youngest = noise[-1].last + 1
                noise.append(NoiseAges(youngest, youngest + blocks * shape.block - 1, blocks))
                windows.append(_Claim(age, shape.block, {len(noise) - 1: 1.0}, blocks))
                age += blocks * shape.block
            size = shape.block
        else:
            size = min(_WINDOW_GROWTH * size, shape.block, end - age)
            noise.append(NoiseAges(youngest, age))
            windows.append(_Claim(age, size, {len(noise) - 1: 1.0}))
            age += size
    return noise, windows


def _zones(blocks: int) -> list[int]:
    """The numbers of blocks in zones of about equal length."""
    zones = min(_ZONES, blocks)
    return [(blocks * (i + 1)) // zones - (blocks * i) // zones for i in range(zones)]


def _window_claim(claim: _Claim, log_c: float, variances: list[float], ratio: float) -> _Claim:
    """The claim of a window, larger if its participations are large for its noise."""
    usable = {number: variances[number] for number in claim.weights}
    plain = _proportional_claim(claim.first, claim.count, log_c, usable, claim.blocks)
    one = math.fsum(usable.values()) / claim.blocks
    square = min((ratio * power(log_c, claim.first)) ** 2 / one, _LARGEST_SQUARE)
    urgency = math.sqrt(math.expm1(square) / square) if square > 0.0 else 1.0
    return replace(plain, weights={n: urgency * one for n, one in plain.weights.items()})


def _proportional_claim(
    first: int,
    count: int,
    log_c: float,
    usable: dict[int, float],
    blocks: int = 1,
    most: float = math.inf,
) -> _Claim:
    """A claim for the average shift, to all usable noise in proportion to its variance."""
    mass = power(log_c, first) * min(sum_of_powers(log_c, count * blocks), most)
    whole = math.fsum(usable.values())
    weights = {n: mass * (one / whole) for n, one in usable.items() if one > 0.0}
    return _Claim(first, count, weights, blocks)


def _groups(claims: list[_Claim], noises: int) -> tuple[PlanGroup, ...]:
    """The groups with shares of noise in proportion to their claims."""
    totals = [math.fsum(claim.weights.get(n, 0.0) for claim in claims) for n in range(noises)]
    return tuple(
        PlanGroup(
            claim.first,
            claim.count,
            tuple(
                (n, down(weight / totals[n], THOUSANDS_OF_ROUNDINGS))
                for n, weight in claim.weights.items()
            ),
            claim.blocks,
        )
        for claim in claims
    )


def _variance(log_c: float, noise: NoiseAges, release: float, blocks: int = 1) -> float:
    """The variance of the noise of some ages; of its youngest block, if there are several."""
    if noise.first == RELEASE:
        return release
    count = (noise.last - noise.first + 1) // (noise.blocks if blocks > 1 else 1)
    return power(2.0 * log_c, noise.first) * sum_of_powers(2.0 * log_c, count)


@dataclass(frozen=True, eq=False)
class DiscountedSum:
    """A law: at most levels[i] with probability masses[i], or anything with the missing mass."""

    levels: Array
    masses: Array


@lru_cache(maxsize=512)
def discounted_sum(gap: float, count: int, probability: float) -> DiscountedSum:
    r"""The law of :math:`\sum_i V_i c^i`, i < `count`, rounded up, for c = 1 - `gap`.

    :math:`V_i` are independent and 1 with this probability.  Over so few steps that :math:`c^i` is
    nearly 1, the sum is at most the number of participations, which is binomial.  The law for twice
    as many steps is that of :math:`Z + c^k Z'`, rounded up to a grid, which is a convolution; its
    tail is no larger than Chernoff's bound.  With very many participations only that bound is used.
    """
    log_c = log_of(gap)
    kept, older = count, 0.0
    memory = _LONGEST_MEMORY - math.log(probability)
    if count * -log_c > memory:
        kept = math.ceil(memory / -log_c)
        if kept < count:  # as if all older steps had the example
            older = up(math.exp(kept * log_c) / gap, MILLIONS_OF_ROUNDINGS)
    whole = up(sum_of_powers(log_c, kept, gap=gap), MILLIONS_OF_ROUNDINGS)
    mean = probability * whole
    if probability >= 1.0:
        law = DiscountedSum(np.array([whole]), np.ones(1))
    elif kept * -log_c <= _NEGLIGIBLE_DISCOUNT and mean <= _MOST_ON_GRID:
        law = _binomial_law(kept, probability)
    elif mean > _MOST_ON_GRID:
        law = _chernoff_law(log_c, kept, probability)
    else:
        law = _grid_law(log_c, kept, probability, whole)
    return DiscountedSum(law.levels + older, law.masses)


def _binomial_law(count: int, probability: float) -> DiscountedSum:
    """The binomial law of the number of participations."""
    mean = count * probability
    most = min(count, math.ceil(mean + 10.0 * math.sqrt(mean) + 30.0))
    numbers = np.arange(most, dtype=np.float64)
    odds = math.log(probability) - math.log1p(-probability)
    logs = np.cumsum(np.log((count - numbers) / (numbers + 1.0)) + odds)
    masses = np.exp(np.append(0.0, logs) + count * math.log1p(-probability))
    beyond = 0.0 if most == count else _NEGLIGIBLE_MASS
    # Each logarithm is off by some ulps of 20, and up to two thousand are added.
    law = _masses_of_larger_tails(masses, relative=MILLIONS_OF_ROUNDINGS, absolute=beyond)
    return _on_few_levels(np.arange(most + 1.0), law)


def _grid_law(log_c: float, count: int, probability: float, whole: float) -> DiscountedSum:
    """The law by doubling on a grid, with tails at most those of Chernoff's bound."""
    variance = probability * (1.0 - probability) * sum_of_powers(2.0 * log_c, count)
    mean = probability * whole
    few = min(12.0, 45.0 / (1.0 + math.log1p(1.0 / mean)))  # for rare participations
    largest = min(whole, mean + 9.0 * math.sqrt(variance) + few)
    cells_per_unit = max(int((_GRID_CELLS - 64) / (largest + 1.0)), 1)
    law, off = _law_by_doubling(log_c, count, probability, cells_per_unit)
    levels = up(np.arange(law.size) / cells_per_unit, ulps(8))
    coarse = _on_few_levels(levels, _masses_of_larger_tails(law, relative=0.0, absolute=off))
    bounds = _chernoff_tails(log_c, count, probability, coarse.levels)
    beyond = off + max(1.0 - math.fsum(law), 0.0)  # and mass that left the grid
    above = np.append(suffix_sums(coarse.masses) + beyond, beyond)
    above[1:] = np.minimum(above[1:], bounds)
    above[0] = 1.0
    return DiscountedSum(coarse.levels, np.maximum(-np.diff(above), 0.0))


def _law_by_doubling(
    log_c: float, count: int, probability: float, cells_per_unit: int
) -> tuple[Array, float]:
    """The law of the sum on a grid, and how far its tails may be off."""
    known: dict[int, tuple[Array, float]] = {}

    def law(steps: int) -> tuple[Array, float]:
        if steps not in known:
            if steps == 1 or steps * -log_c <= 1.01 * _NEGLIGIBLE_DISCOUNT:
                counted = _binomial_law(steps, probability)
                cells = np.rint(counted.levels * cells_per_unit).astype(np.int64)
                inside = cells < _GRID_CELLS
                known[steps] = _masses_in_cells(cells[inside], counted.masses[inside]), 0.0
            else:
                recent, older = law(steps // 2), law(steps - steps // 2)
                known[steps] = _sum_of_laws(recent, older, math.exp(steps // 2 * log_c))
        return known[steps]

    return law(_halvable_count(count, -_NEGLIGIBLE_DISCOUNT / log_c))


def _halvable_count(count: int, few: float) -> int:
    """A number of steps, at least `count`, that can be halved until few are left."""
    doublings = max(math.ceil(math.log2(max(count / max(few, _FEWEST_STEPS), 1.0))), 0)
    parts = 1 << doublings
    return -(-count // parts) * parts


def _sum_of_laws(
    one: tuple[Array, float], other: tuple[Array, float], factor: float
) -> tuple[Array, float]:
    """The law of one variable plus a multiple of another; mass that leaves the grid is dropped."""
    shrunk = np.ceil(np.arange(_GRID_CELLS) * up(factor, ulps(256))).astype(np.int64)
    a, b = one[0], _masses_in_cells(shrunk, other[0])[:_GRID_CELLS]
    none, none_of_other = a[0], b[0]
    # Without the atom at 0, which may be nearly 1, transforms have smaller rounding errors.
    some, some_of_other = np.append(0.0, a[1:]), np.append(0.0, b[1:])
    size = 2 * _GRID_CELLS
    product = np.fft.rfft(some, size) * np.fft.rfft(some_of_other, size)
    both = np.maximum(np.fft.irfft(product, size)[:_GRID_CELLS], 0.0)
    law = both + none * some_of_other + none_of_other * some
    law[0] = none * none_of_other
    norms = length_of(some) * length_of(some_of_other)
    return law, one[1] + other[1] + ulps(4.0 * math.log2(size) * math.sqrt(size)) * norms


def _masses_in_cells(cells: IntArray, masses: Array) -> Array:
    return np.asarray(np.bincount(cells, masses, _GRID_CELLS), dtype=np.float64)


def _chernoff_law(log_c: float, count: int, probability: float) -> DiscountedSum:
    """The law whose tails are Chernoff's bounds."""
    sizes, steps = _blocks(log_c, count)
    spread = math.sqrt(probability * (1.0 - probability) * float(steps @ sizes**2))
    tilts = np.minimum(_TILTS / spread, _LARGEST_TILT)
    grown = probability * np.expm1(tilts[:, None] * sizes)
    levels = np.maximum.accumulate((sizes * (grown + probability) / (1.0 + grown)) @ steps)
    above = np.minimum.accumulate(_chernoff_tails(log_c, count, probability, levels))
    # Mass between two levels is put at the higher one, and the last is never exceeded.
    levels = np.append(levels, max(float(sizes @ steps), float(levels[-1])))
    return DiscountedSum(levels, -np.diff(above, prepend=1.0, append=0.0))


def _chernoff_tails(log_c: float, count: int, probability: float, levels: Array) -> Array:
    """Upper bounds on the probability of exceeding each level."""
    sizes, steps = _blocks(log_c, count)
    spread = math.sqrt(probability * (1.0 - probability) * float(steps @ sizes**2))
    tilts = np.append(np.minimum(_TILTS / spread, _LARGEST_TILT), np.linspace(1.0, 60.0, 60))
    with np.errstate(over="ignore"):
        moments = np.log1p(probability * np.expm1(tilts[:, None] * sizes)) @ steps
    moments = up(moments, TENS_OF_THOUSANDS_OF_ROUNDINGS)
    logs = moments[:, None] - tilts[:, None] * levels
    return np.asarray(np.exp(np.minimum(logs, 0.0)).min(axis=0))


def _blocks(log_c: float, count: int) -> tuple[Array, Array]:
    """The largest discount in each block of steps, and the number of steps in it."""
    starts = np.unique(np.floor(np.linspace(0.0, count, _BLOCKS + 1)))
    return up(np.exp(log_c * starts[:-1]), ulps(512)), np.diff(starts)


def _masses_of_larger_tails(masses: Array, *, relative: float, absolute: float) -> Array:
    """Masses whose tails are larger by the stated errors; some goes beyond the last."""
    above = np.minimum(suffix_sums(masses) * (1.0 + relative) + absolute, 1.0)
    above[0] = 1.0
    return np.maximum(-np.diff(above, append=absolute), 0.0)


def _on_few_levels(levels: Array, masses: Array) -> DiscountedSum:
    """The law on levels a small part of a standard deviation apart, rounded up."""
    last = int(np.flatnonzero(masses > 0.0)[-1]) + 1
    levels, masses = levels[:last], masses[:last]
    mean = float(masses @ levels)
    spread = math.sqrt(max(float(masses @ (levels - mean) ** 2), 0.0))
    some = max(float(masses[levels > 0.0].sum()), _NEGLIGIBLE_MASS)
    # For rare participations the unit is the mean given that there is one.
    unit, parts = (
        (spread, _DEVIATION_LEVELS) if mean > spread else (0.5 * mean / some, 2 * _DEVIATION_LEVELS)
    )
    if last == 1 or not unit > parts * (levels[1] - levels[0]):
        return DiscountedSum(levels, masses)
    away = (levels - mean) / unit
    inner = np.clip(away, -_CENTRE, _CENTRE)
    group = np.ceil(parts * (inner + (away - inner) / _COARSENING)).astype(np.int64)
    group = np.where(levels == 0.0, group[0] - 1, group)
    ends = np.flatnonzero(np.diff(group, append=group[-1] + 1))
    sums = np.add.reduceat(masses, np.append(0, ends[:-1] + 1))
    return DiscountedSum(levels[ends], sums)
