"""How far apart two laws on the line are, in every notion, with an error of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lastiterate import _check
from lastiterate._numerics.rounding import Array, down, ulps, up
from lastiterate._numerics.search import bracket, least_met
from lastiterate.lower_bounds.line import NODES, Laws, to_legendre
from lastiterate.profile.lower import LowerProfile
from lastiterate.profile.profile import least_misses

_LARGEST_EPSILON = 100.0
_RESOLUTION = 1e-10  # of epsilon
_SUBCELLS = 8
_IGNORED_WEIGHT = 1e-16  # a panel whose integrand may change sign, but weighs less than this
_SERIES_ROUNDING = ulps(64 * NODES)  # in units of a panel's largest density


@dataclass(frozen=True)
class Bracket:
    """A number that is known to lie in [lower, upper]."""

    lower: float
    upper: float

    @property
    def middle(self) -> float:
        """Halfway."""
        return (self.lower + self.upper) / 2.0

    @property
    def error(self) -> float:
        """The most by which the middle can be off."""
        return (self.upper - self.lower) / 2.0


@dataclass(frozen=True, eq=False)
class ExactCurve:
    """The privacy of one pair of laws: every answer brackets the truth.

    `lower` says what no guarantee that covers the pair can deny.
    """

    laws: Laws

    def delta(self, epsilon: float) -> Bracket:
        """Hockey-stick divergence of order e^epsilon, the larger of the two directions."""
        value = _check.number("epsilon", epsilon, at_least=0.0, at_most=_LARGEST_EPSILON)
        parts = [self._hockey_stick(value, world) for world in (0, 1)]
        return Bracket(
            max(0.0, *(middle - error for middle, error in parts)),
            min(1.0, max(middle + error for middle, error in parts)),
        )

    def epsilon(self, delta: float) -> Bracket:
        """The least epsilon of (epsilon, delta)-DP of this pair; from above inf if unknown."""
        target = _check.number("delta", delta, above=0.0, at_most=1.0)
        below = above = self._epsilon_from_below(target)
        step = _RESOLUTION
        while self.delta(above).upper > target:
            above, step = above + step, 2.0 * step
            if above > _LARGEST_EPSILON:
                return Bracket(below, math.inf)
        kept = bracket(lambda one: self.delta(one).upper > target, below, above, apart=_RESOLUTION)
        return Bracket(below, kept[1])

    def _epsilon_from_below(self, target: float) -> float:
        """An epsilon at which delta was seen to be above the target, or 0."""
        if self.delta(0.0).lower <= target:
            return 0.0
        beyond = math.nextafter(target, math.inf)

        def missing(negated: float) -> float:
            shown = self.delta(-negated).lower
            return math.log(beyond / shown) if shown > 0.0 else math.inf

        found = least_met(missing, 0.0, tolerance=_RESOLUTION, farthest=_LARGEST_EPSILON)
        return -found if found is not None else 0.0

    def tradeoff(self, fpr: float) -> Bracket:
        """The least false-negative rate of any test with this false-positive rate.

        From above by tests on cells, from below by what delta allows at each epsilon.
        """
        alpha = _check.number("fpr", fpr, at_least=0.0, at_most=1.0)
        # Tests may be mixed, so rates between those of two tests are reached too.
        reached = [np.interp(alpha, *rates) for rates in self._tests]
        upper = 1.0 - float(max(reached)) + ulps(4)
        epsilons = np.concatenate([[0.0], np.geomspace(1e-2, 30.0, 60)])
        deltas = np.array([self.delta(epsilon).upper for epsilon in epsilons])
        lower = float(least_misses(alpha, epsilons, deltas).max())
        return Bracket(min(max(lower - ulps(8), 0.0), upper), upper)

    def renyi(self, order: float) -> float:
        """Renyi divergence of an order above 1, the larger direction, from below.

        It is that of the cells in which the iterate falls, and a coarser look only lowers it.
        """
        alpha = _check.number("order", order, above=1.0)
        least, most = self._cells
        best = 0.0
        for world in (0, 1):
            here, there = least[:, world], most[:, 1 - world]
            held = (here > 0.0) & (there > 0.0)
            logs = alpha * np.log(here[held]) + (1.0 - alpha) * np.log(there[held])
            if logs.size:
                total = float(logs.max() + np.log(np.exp(logs - logs.max()).sum()))
                best = max(best, (total - 1e-12 * (1.0 + abs(total))) / (alpha - 1.0))
        return best

    @cached_property
    def lower(self) -> LowerProfile:
        """The lower bounds that hold for every guarantee that covers this pair."""
        return ExactLowerProfile(self)

    @cached_property
    def _lengths(self) -> Array:
        return np.diff(self.laws.edges)

    @cached_property
    def _series(self) -> Array:
        """Legendre coefficients of the densities: panel, world, degree."""
        return np.asarray(np.swapaxes(self.laws.densities, 1, 2) @ to_legendre().T)

    @cached_property
    def _scale(self) -> Array:
        """Length times largest density, of every panel and world."""
        return np.asarray(self._lengths[:, None] * self.laws.densities.max(axis=1))

    @cached_property
    def _cells(self) -> tuple[Array, Array]:
        """Masses of equal parts of panels and of atoms, from below and from above."""
        ends = np.linspace(-1.0, 1.0, _SUBCELLS + 1)
        integrals = np.polynomial.legendre.legint(np.eye(NODES), axis=0)
        parts = np.diff(np.polynomial.legendre.legval(ends, integrals), axis=1)
        masses = np.einsum("pwd,dc->pcw", self._series, parts)
        masses *= self._lengths[:, None, None] / 2.0
        rounding = np.repeat(_SERIES_ROUNDING * self._scale, _SUBCELLS, axis=0)
        masses = np.concatenate([np.maximum(masses.reshape(-1, 2), 0.0), self.laws.atoms])
        error = np.concatenate([rounding, np.zeros((2, 2))]) + self.laws.absolute
        error += (self.laws.relative + ulps(8)) * masses
        return np.maximum(masses - error, 0.0), masses + error

    @cached_property
    def _tests(self) -> list[tuple[Array, Array]]:
        """False- and true-positive rates, increasing, of tests by cells; one for each direction."""
        least, most = self._cells
        found = []
        for world in (0, 1):
            order = np.argsort(-least[:, world] / most[:, 1 - world], kind="stable")
            rounding = ulps(order.size)
            false = up(np.cumsum(most[order, 1 - world]), rounding)
            true = down(np.cumsum(least[order, world]), rounding)
            kept = false < 1.0
            ends = [np.array([0.0]), np.array([1.0])]
            found.append(
                (
                    np.concatenate([ends[0], false[kept], ends[1]]),
                    np.concatenate([ends[0], np.minimum(true[kept], 1.0), ends[1]]),
                )
            )
        return found

    def _hockey_stick(self, epsilon: float, world: int) -> tuple[float, float]:
        """The divergence in one direction, and the most by which it is off."""
        tilt = math.exp(epsilon)
        series = self._series[:, world] - tilt * self._series[:, 1 - world]
        atoms = self.laws.atoms[:, world] - tilt * self.laws.atoms[:, 1 - world]
        mean, rest = series[:, 0], np.abs(series[:, 1:]).sum(axis=1)
        # |P_j| <= 1, so elsewhere the interpolant keeps the sign of its mean.
        mixed = rest >= np.abs(mean)
        small = mixed & (rest * self._lengths <= _IGNORED_WEIGHT)
        counted = np.where(mixed, 0.0, np.maximum(mean, 0.0)) * self._lengths
        total = float(np.maximum(atoms, 0.0).sum() + counted.sum())
        split = mixed & ~small
        total += float(self._lengths[split] / 2.0 @ _positive_parts(series[split]))
        error = float((rest * self._lengths)[small].sum())
        weighed = self._scale[:, world] + tilt * self._scale[:, 1 - world]
        error += _SERIES_ROUNDING * float(weighed[mixed | (mean > 0.0)].sum())
        # Where the tilted other is larger, a density's rounding matters only if it is near.
        error += 3.0 * self.laws.relative + self.laws.absolute * (1.0 + tilt)
        return total, error + ulps(mean.size + 8) * total


class ExactLowerProfile(LowerProfile):
    """The lower side of an exact curve."""

    def __init__(self, curve: ExactCurve) -> None:
        self.curve = curve

    def tests(self) -> tuple[Array, Array]:
        false, true = zip(*self.curve._tests, strict=True)
        return np.concatenate(false), np.concatenate(true)

    def _delta(self, epsilon: float) -> float:
        return self.curve.delta(epsilon).lower if epsilon <= _LARGEST_EPSILON else 0.0

    def epsilon(self, delta: float) -> float:
        """No (epsilon, delta) with a smaller epsilon is true."""
        return self.curve._epsilon_from_below(delta) if delta > 0.0 else super().epsilon(delta)


def _positive_parts(series: Array) -> Array:
    """The integrals over [-1, 1] of the positive parts of Legendre series, one in each row.

    Each is integrated between neighbouring cuts, of which the real parts of its roots are some;
    cuts that are no roots do no harm.
    """
    if not series.size:
        return np.zeros(0)
    legendre = np.polynomial.legendre
    matrices = _companions(series)
    cuts = np.clip(np.linalg.eigvals(matrices).real, -1.0, 1.0)
    ends = np.ones((len(series), 1))
    cuts = np.sort(np.concatenate([-ends, cuts, ends], axis=1), axis=1)
    integrals = legendre.legval(cuts.T, legendre.legint(series, axis=1).T[:, None], tensor=False)
    return np.asarray(np.maximum(np.diff(integrals, axis=0), 0.0).sum(axis=0))


def _companions(series: Array) -> Array:
    """Symmetrised companion matrices, whose eigenvalues are the roots."""
    degree = series.shape[1] - 1
    k = np.arange(1.0, degree)
    beside = k / np.sqrt((2.0 * k - 1.0) * (2.0 * k + 1.0))
    matrices = np.tile(np.diag(beside, 1) + np.diag(beside, -1), (len(series), 1, 1))
    # A leading coefficient of 0 would send a root to infinity, where any large number will do.
    floor = 1e-30 * np.abs(series).max(axis=1)
    lead = np.where(np.abs(series[:, -1]) > floor, series[:, -1], floor)
    scales = np.sqrt(2.0 * np.arange(degree) + 1.0)
    factor = degree / (2.0 * degree - 1.0) * scales[-1]
    matrices[:, :, -1] -= series[:, :-1] / lead[:, None] / scales * factor
    return np.asarray(matrices)
