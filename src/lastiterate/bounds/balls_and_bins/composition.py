"""The bound by composition of epochs in which every example draws one batch on its own."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import ndtr

from lastiterate._numerics.rounding import Array, IntArray, at_least, ulps
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import ORANGE, Bound, Certainty, Citation, Hypothesis, LineStyle
from lastiterate.bounds.composition import composed_delta_lower_bound
from lastiterate.profile.gaussian import normal_cells
from lastiterate.profile.group import for_group
from lastiterate.profile.losses import LossCells, Repeated, SummedLossesProfile
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.run.batch_rules.base import Resampling
from lastiterate.run.batch_rules.drawn import BallsAndBins, BallsAndBinsEachEpoch
from lastiterate.run.training_run import TrainingRun

LARGEST_RATIO = 20.0  # of sensitivity and noise, of all steps of one batch
_MOST_LEVELS = 8  # different levels of noise in an epoch
MOST_EPOCHS = 12  # different epochs
# Points of a grid in a standard deviation, for up to so many batches an epoch.
_CELLS = ((8, 400), (64, 160), (2_000, 80), (10**18, 50))
_FARTHEST_DEVIATION = 11.0  # standard deviations, beyond which there is 1e-28
_LEAST_MASS, _LEAST_MEAN = 1e-30, 1e-22  # what a grid need not hold, of the whole
_CELL_ROUNDINGS = 256.0  # of the mass of a cell of one term, times the cells of a deviation
_SUM_ROUNDINGS = 16.0  # of the value of a sum of two


def balls_and_bins_composition(run: TrainingRun) -> PrivacyProfile:
    r"""The profile of all iterates together, with amplification by the hidden batch of an epoch.

    **Bound.** Every epoch with its batches of ratios :math:`r_t = C/(b\sigma_t)` is dominated, in
    both directions, by the pair whose likelihood ratio is
    :math:`X = p_0 + p \sum_t \exp(r_t z_t - r_t^2/2)` with p = b/n and independent standard normal
    :math:`z_t`; :math:`p_0` is the probability of taking part in none of its steps.  Epochs are
    independent, and their losses add up.  If batches are drawn once, all epochs together are one,
    with :math:`r_t^2` summed over them.

    **Holds when.** every example draws one batch of an epoch independently and in secret, each with
    probability b/n, and no batch is cut; every step has noise; an example adds at most C to the sum
    of gradients, and is left out, or replaced.  All iterates may be released, but not the batches.
    Nothing else is known of the losses: later steps may depend on earlier results in any way.

    *Proof.* Given the batches of the others, the iterates of an epoch with the example have the
    likelihood ratio :math:`p_0 + p\sum_t \exp(a_t g_t - |a_t|^2/2)` to those without it, where
    :math:`a_t g_t` is an inner product, :math:`g_t` the noise of step t in units of its deviation,
    and :math:`a_t`, which is known before step t, has length at most :math:`r_t`.  Let :math:`h_t`
    be further independent standard normal variables.  Then
    :math:`a_t g_t + (r_t^2 - |a_t|^2)^{1/2} h_t` are :math:`r_t z_t` with independent standard
    normal :math:`z_t`, and the average of X over the :math:`h_t` is the ratio above.  Hockey-stick
    divergences are averages of convex functions of it, so X does not lower them (Jensen).  The same
    holds given all earlier epochs, so the pairs of the epochs compose.

    If an example is replaced, the run without either stands between the two: group privacy.

    **Tight** for an example that is left out, if all iterates are released and nothing else is
    known of the losses.

    **Source.** Chua et al. 2025, Theorem 3.1; Feldman and Shenfeld 2025, Theorem 3.4.

    **Computed as** the law of X on a geometric grid, larger in convex order, and sums of losses by
    Fourier transforms.  Noise that varies is rounded down to a few levels.
    """
    if run.adjacency == "replace":
        assert run.gradient_bound is not None
        left_out = run.replace(adjacency="zero-out", sensitivity=run.gradient_bound)
        return for_group(balls_and_bins_composition(left_out), 2)
    epochs = _epochs(run)
    share = run.batches.share
    return SummedLossesProfile(
        [Repeated(epoch_losses(epoch, share), times) for epoch, times in epochs.items()]
    )


def balls_and_bins_composition_delta_lower_bound(run: TrainingRun, epsilon: float) -> float:
    """A lower bound on the delta of composition: what the sum of each epoch's results shows.

    If the example is replaced, the two examples may pull in opposite directions.
    """
    length, resampling = run.batches.batches_per_epoch, run.batches.resampling
    epochs = run.steps // length
    if not (run.is_constant and epochs and np.max(run.noise_std) > 0.0):
        return 0.0
    change = run.sensitivity if run.adjacency != "replace" else run.gradient_bound
    assert change is not None
    ratio = change / run.batches.batch_size / float(np.max(run.noise_std)) / math.sqrt(length)
    once = resampling is not Resampling.EACH_EPOCH
    return composed_delta_lower_bound(
        min(length * run.batches.share, 1.0),
        ratio * math.sqrt(epochs) if once else ratio,
        1 if once else epochs,
        epsilon,
        mirrored=run.adjacency == "replace",
    )


def _ratio_if_left_out(run: TrainingRun) -> float:
    """The largest gradient over the noise; it may be longer than the difference of any two."""
    if run.adjacency != "replace" or run.gradient_bound is None:
        return quantities.ratio(run)
    return quantities.ratio(run) * max(run.gradient_bound / run.sensitivity, 1.0)


def _too_long_gradients(run: TrainingRun) -> str | None:
    if not np.min(run.noise_std) > 0.0:
        return None
    found = _ratio_if_left_out(run)
    return None if found <= LARGEST_RATIO else f"{found:.4g}"


def _too_little_noise(run: TrainingRun) -> str | None:
    """The steps of one batch, if it is drawn once, count as one step with less noise."""
    if run.batches.resampling is Resampling.EACH_EPOCH or not np.min(run.noise_std) > 0.0:
        return None
    epochs = -(-run.steps // run.batches.batches_per_epoch)
    found = _ratio_if_left_out(run) * math.sqrt(epochs)
    return None if found <= LARGEST_RATIO else f"{epochs} epochs, which make it {found:.4g}"


MORE_NOISE = "use more noise: below this, composition/fixed-order is as good"


ENOUGH_NOISE_OF_ALL_EPOCHS = Hypothesis(
    "sensitivity/(batch_size noise_std) sqrt(epochs) of a batch that is drawn once at most "
    f"{LARGEST_RATIO:g}",
    _too_little_noise,
    MORE_NOISE,
)


ENOUGH_NOISE_FOR_GRADIENTS = Hypothesis(
    f"the largest gradient over (batch_size noise_std) at most {LARGEST_RATIO:g}",
    _too_long_gradients,
    MORE_NOISE,
)


BALLS_AND_BINS_COMPOSITION = Bound(
    id="composition/balls-and-bins",
    gives="all iterates together, with amplification by the hidden batch of every epoch",
    covers=(BallsAndBins, BallsAndBinsEachEpoch),
    needs=(
        conditions.BOUNDED_GRADIENTS,
        conditions.SECRET_BATCHES,
        conditions.enough_noise(LARGEST_RATIO, remedy=MORE_NOISE),
        ENOUGH_NOISE_FOR_GRADIENTS,
        ENOUGH_NOISE_OF_ALL_EPOCHS,
    ),
    certainty=Certainty.UPPER,
    beyond_plain_steps=True,  # later steps only post-process the noisy gradients
    source=Citation(
        "Chua et al.",
        2025,
        "Balls-and-bins sampling for DP-SGD",
        "the dominating pair",
        also=Citation(
            "Feldman and Shenfeld", 2025, "Privacy amplification by random allocation", "the pair"
        ),
    ),
    evaluate=balls_and_bins_composition,
    delta_lower_bound=balls_and_bins_composition_delta_lower_bound,
    charges="charges every iterate, less for the batch that the example has drawn in secret",
    line_style=LineStyle(ORANGE),
)


def _epochs(run: TrainingRun) -> Counter[tuple[float, ...]]:
    """The ratios of the steps of each epoch, rounded up, and how many epochs have them.

    If batches are drawn once, all epochs together are one.
    """
    change, length = quantities.gradient_change(run), run.batches.batches_per_epoch
    if run.is_constant:
        ratio = rounded_up(change / float(np.max(run.noise_std)))
        whole, rest = divmod(run.steps, length)
        if run.batches.resampling is Resampling.EACH_EPOCH:
            return Counter({(ratio,) * length: whole}) + Counter({(ratio,) * rest: int(rest > 0)})
        more, fewer = (rounded_up(ratio * math.sqrt(k)) for k in (whole + 1, whole))
        return Counter([(more,) * rest + (fewer,) * (length - rest) * (whole > 0)])
    noise = quantities.every_step(np.array(run.noise_std), run.steps)
    ratios = np.full(-(-run.steps // length) * length, 0.0)
    ratios[: run.steps] = change / noise
    table = ratios.reshape(-1, length)
    if run.batches.resampling is not Resampling.EACH_EPOCH:
        table = np.sqrt(np.square(table).sum(axis=0, keepdims=True))
    epochs = [tuple(sorted(few_levels(row[row > 0.0], _MOST_LEVELS))) for row in table]
    if len(set(epochs)) > MOST_EPOCHS:
        largest = few_levels(table.max(axis=1), MOST_EPOCHS)
        epochs = [
            (ratio,) * int(np.count_nonzero(row)) for ratio, row in zip(largest, table, strict=True)
        ]
    return Counter(epochs)


def few_levels(ratios: Array, most: int) -> list[float]:
    """The ratios in their order, rounded up to at most `most` values."""
    if np.unique(ratios).size > most:
        levels = np.geomspace(ratios.min(), ratios.max(), most + 1)[1:]
        levels[-1] = ratios.max()
        ratios = levels[np.minimum(np.searchsorted(levels, ratios), most - 1)]
    return [rounded_up(float(one)) for one in ratios]


def rounded_up(ratio: float) -> float:
    """The ratio, raised by all roundings on the way to it."""
    return at_least(ratio, ulps=quantities.WIDENING)


@lru_cache(maxsize=64)
def epoch_losses(ratios: tuple[float, ...], share: float) -> tuple[LossCells, LossCells]:
    """The losses of one epoch, with the example against without it, and the other way round."""
    law = _law_of_sum(Counter(ratios))
    # Rounded, these two still add up to a mean of 1, to a few ulps, which are in the errors.
    absent = max(1.0 - share * len(ratios), 0.0)
    values = np.append(absent + share * law.points, absent)
    plain = np.append(law.masses, law.zero)
    zero = 0.0
    if not absent > 0.0:
        values, plain, zero = values[:-1], law.masses, law.zero
    logs = np.log(values)
    mass_error = law.mass_error + ulps(16)
    error = law.value_error + ulps(16 * len(ratios)) + ulps(4) * np.abs(logs)
    tilted = values * plain
    lows, highs = logs - error, logs + error
    tilted_off, plain_off = (mass_error + error) * tilted, mass_error * plain
    forwards = LossCells(
        lows, highs, tilted, plain, tilted_off, plain_off, at_least(share * law.infinite, ulps=8)
    )
    backwards = LossCells(-highs, -lows, plain, tilted, plain_off, tilted_off, zero)
    return forwards, backwards


def _law_of_sum(counts: Counter[float]) -> RatioLaw:
    """The law of the sum of likelihood ratios, counted by the ratio of sensitivity to noise."""
    length = sum(counts.values())
    cells = next(cells for most, cells in _CELLS if length <= most)
    largest = max(counts)
    total = None
    for ratio, times in counts.items():
        halvings = max(math.ceil(math.log2(largest / ratio)), 0)
        one = log_normal(ratio, largest / cells * 0.5**halvings)
        part = repeated(one, times, cells)
        total = part if total is None else sum_of(total, part)
    assert total is not None
    return total


@dataclass(frozen=True, eq=False)
class RatioLaw:
    r"""The law of a sum of independent likelihood ratios, on a geometric grid.

    The variables are :math:`e^{rz - r^2/2}` with standard normal z.  There are masses at the points
    :math:`e^{hn}`, h = step and n = first, first + 1, .., a mass `zero` at 0, and a mean `infinite`
    that lies beyond the last point.  Every value is replaced by its two neighbours on the grid,
    with the same mean, so the law on the grid is larger in convex order: all its hockey-stick
    divergences, in both directions, are upper bounds.  Values above the last point move there and
    leave the rest of their mean to infinity; values below the first point are divided between it
    and 0.

    The sum of two points of a grid, :math:`e^{hn}(1 + e^{hD})`, lies at the same distance from its
    neighbours for all n.  So a sum of two laws takes one product of vectors for each difference D.
    All terms are positive, and nothing cancels: small masses are as precise as large ones.

    `mass_error` bounds the relative error of every mass, and `value_error` the relative error of
    values: a weight that is off by w shifts the value that was divided by at most h w of itself.
    """

    step: float
    first: int
    masses: Array
    zero: float
    infinite: float
    mass_error: float
    value_error: float

    @property
    def points(self) -> Array:
        """The points of the grid."""
        return np.exp(self.step * (self.first + np.arange(self.masses.size, dtype=np.float64)))

    @property
    def log_spread(self) -> float:
        """The standard deviation of the logarithm, of what is not at 0."""
        logs = self.step * np.arange(self.masses.size, dtype=np.float64)
        total = float(self.masses.sum())
        mean = float(self.masses @ logs) / total
        return math.sqrt(float(self.masses @ np.square(logs - mean)) / total)


def log_normal(spread: float, step: float) -> RatioLaw:
    """The law of e^(r z - r^2/2), r = spread, on a grid with this step."""
    middle = spread * spread / 2.0
    first = math.floor((-_FARTHEST_DEVIATION * spread - middle) / step)
    last = math.ceil((_FARTHEST_DEVIATION * spread + middle) / step)
    logs = step * np.arange(first, last + 1, dtype=np.float64)
    edges = (logs + middle) / spread
    points = np.exp(logs)
    masses, _ = normal_cells(edges, edges[:-1] > 0.0)
    means, _ = normal_cells(edges - spread, edges[:-1] > spread)
    above = np.clip((means / points[:-1] - masses) / math.expm1(step), 0.0, masses)
    on_grid = np.append(masses - above, 0.0)
    on_grid[1:] += above
    # What lies outside counts at both neighbours in full, so nothing is subtracted.
    below_first, beyond_last = float(ndtr(edges[0])), float(ndtr(-edges[-1]))
    on_grid[0] += float(ndtr(edges[0] - spread)) / points[0]
    on_grid[-1] += beyond_last
    error = ulps(_CELL_ROUNDINGS * max(spread / step, 1.0))
    return RatioLaw(
        step,
        first,
        on_grid,
        zero=below_first,
        infinite=float(ndtr(spread - edges[-1])),
        mass_error=error,
        value_error=error,
    )


def repeated(law: RatioLaw, times: int, cells: int) -> RatioLaw:
    """The law of the sum of this many independent variables with this law.

    Grids become finer with the sums, to keep `cells` points in half a standard deviation or more.
    """
    total = None
    while True:
        if times & 1:
            total = law if total is None else sum_of(total, law)
        times >>= 1
        if not times:
            return total if total is not None else law
        law = sum_of(law, law)
        while law.step > 2.0 * law.log_spread / cells:
            law = _refine(law)


def sum_of(one: RatioLaw, other: RatioLaw) -> RatioLaw:
    """The law of the sum of two independent variables."""
    one, other = _on_one_grid(one, other)
    if one.masses.size < other.masses.size:
        one, other = other, one
    step, size, other_size = one.step, one.masses.size, other.masses.size
    offset = one.first - other.first
    differences = np.arange(1 - size - offset, other_size - offset, dtype=np.int64)
    points, weights = _neighbours(differences, step)
    # A sum is least, and largest, where both are; a rounding may move it by one point.
    first = one.first + int(points[size - 1]) - 1
    last = one.first + size + int(points[other_size - 1]) + 1
    total = np.zeros(last - first + 1)
    moved = zip((differences + offset).tolist(), points.tolist(), weights.tolist(), strict=True)
    for shift, point, weight in moved:
        start, stop = max(0, -shift), min(size, other_size - shift)
        pairs = one.masses[start:stop] * other.masses[start + shift : stop + shift]
        at = one.first + start + point - first
        above = weight * pairs
        total[at + 1 : at + 1 + pairs.size] += above
        pairs -= above
        total[at : at + pairs.size] += pairs
    zero = one.zero * other.zero
    for present, absent in ((one, other), (other, one)):
        below = min(max(first - present.first, 0), present.masses.size)
        at = max(present.first - first, 0)
        rest = present.masses[below:]
        total[at : at + rest.size] += absent.zero * rest
        heights = np.exp(step * (present.first - first + np.arange(below, dtype=np.float64)))
        total[0] += absent.zero * float(present.masses[:below] @ heights)
        zero += absent.zero * float(present.masses[:below].sum())
    return _trim(
        RatioLaw(
            step,
            first,
            total,
            zero=zero,
            infinite=one.infinite + other.infinite,
            mass_error=one.mass_error + other.mass_error + ulps(4.0 * (differences.size + 8)),
            value_error=max(one.value_error, other.value_error) + ulps(_SUM_ROUNDINGS),
        )
    )


def _neighbours(differences: IntArray, step: float) -> tuple[IntArray, Array]:
    """The grid point below 1 + e^(step D), and the weight of the point above."""
    near = np.floor(np.logaddexp(0.0, differences * step) / step)
    # In units of the larger of the two, nothing overflows.
    below = np.exp((near - np.maximum(differences, 0)) * step)
    value = 1.0 + np.exp(-np.abs(differences) * step)
    weights = np.clip((value / below - 1.0) / math.expm1(step), 0.0, 1.0)
    return near.astype(np.int64), weights


def _on_one_grid(one: RatioLaw, other: RatioLaw) -> tuple[RatioLaw, RatioLaw]:
    """Both laws on the finer grid; one step is a power of 2 of the other."""
    while one.step > other.step:
        one = _refine(one)
    while other.step > one.step:
        other = _refine(other)
    return one, other


def _refine(law: RatioLaw) -> RatioLaw:
    """The law on a grid twice as fine."""
    masses = np.zeros(2 * law.masses.size - 1)
    masses[::2] = law.masses
    return RatioLaw(
        law.step / 2.0,
        2 * law.first,
        masses,
        law.zero,
        law.infinite,
        law.mass_error,
        law.value_error,
    )


def _trim(law: RatioLaw) -> RatioLaw:
    """The law on the part of the grid that holds all but a negligible part of it."""
    masses, points = law.masses, law.points
    means = masses * points
    start = int(np.searchsorted(np.cumsum(masses), _LEAST_MASS))
    left = np.cumsum(means[::-1])[::-1]
    stop = int(np.searchsorted(-left, -_LEAST_MEAN * float(left[0])))
    start = min(start, masses.size - 2)
    stop = max(stop, start + 2)
    kept = masses[start:stop].copy()
    kept[0] += float(means[:start].sum()) / points[start]
    kept[-1] += float(masses[stop:].sum())
    return RatioLaw(
        law.step,
        law.first + start,
        kept,
        # What was moved counts here in full, so nothing is subtracted.
        law.zero + float(masses[:start].sum()),
        law.infinite + float(means[stop:].sum()),
        law.mass_error,
        law.value_error,
    )
