r"""The law of a sum of independent log-normal variables, on a geometric grid.

The variables are likelihood ratios :math:`e^{rz - r^2/2}` with a standard normal z.  A law has
masses at the points :math:`e^{hn}`, a mass at 0, and a mean `infinite` that lies beyond the last
point.  Every value is replaced by its two neighbours on the grid, with the same mean, so the law on
the grid is larger in convex order: all its hockey-stick divergences, in both directions, are upper
bounds.  Values above the last point move there and leave the rest of their mean to infinity; values
below the first point are divided between it and 0.

The sum of two points of a grid, :math:`e^{hn}(1 + e^{hD})`, lies at the same distance from its
neighbours for all n.  So a sum of two laws takes one product of vectors for each difference D.
All terms are positive, and nothing cancels: small masses are as precise as large ones.

**Rounding.**  `mass_error` bounds the relative error of every mass, and `value_error` the relative
error of values: a weight that is off by w shifts the value that was divided by at most h w of
itself.
"""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from lastiterate._numerics.rounding import Array, IntArray, ulps
from lastiterate.profile.gaussian import normal_cells

_FARTHEST = 11.0  # standard deviations, beyond which there is 1e-28
_LEAST_MASS, _LEAST_MEAN = 1e-30, 1e-22  # what a grid need not hold, of the whole
_CELL_ROUNDINGS = 256.0  # of the mass of a cell of one term, times the cells of a deviation
_SUM_ROUNDINGS = 16.0  # of the value of a sum of two


@dataclass(frozen=True, eq=False)
class RatioLaw:
    """Masses at e^(step n) for n = first, first + 1, .., at 0, and a mean beyond the last."""

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
    first = math.floor((-_FARTHEST * spread - middle) / step)
    last = math.ceil((_FARTHEST * spread + middle) / step)
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
    return _trimmed(
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


def repeated(law: RatioLaw, times: int, cells: int) -> RatioLaw:
    """The law of the sum of so many independent variables with this law.

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
            law = _refined(law)


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
        one = _refined(one)
    while other.step > one.step:
        other = _refined(other)
    return one, other


def _refined(law: RatioLaw) -> RatioLaw:
    """Returns the same law on a grid with a point between every two."""
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


def _trimmed(law: RatioLaw) -> RatioLaw:
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
