r"""Privacy profiles of secret participations V that stay hidden, from the law of mu(V).

Given V the runs are :math:`\mu(V)`-GDP.  For every increasing g with :math:`E\,g(\mu) \le
e^\varepsilon`,

.. math:: \delta(\varepsilon) \le E\,\delta_\mu(\log g(\mu))

holds if V consists of independent events and more of them never lower mu
(`docs/tightness.md#sampled-batches` has the theorem).  The best g has one Lagrange multiplier z:
:math:`\log g = \mu (z - \mu/2)` up to :math:`\mu = z`, and constant from there.

`MixtureTransportProfile` needs a law that dominates that of mu.  `MomentTransportProfile` needs
only bounds on :math:`E\,e^{s\mu^2}` for several s.  It averages an increasing f by

.. math:: f(\mu) \le w_0 + w e^{s\mu^2} + w' e^{s'\mu^2} \text{ for all } \mu
          \implies E\,f(\mu) \le w_0 + w M(s) + w' M(s') ,

where :math:`w_0` may be negative.  The last term bounds f at large mu, the others touch f where it
matters: if f is concave as a function of :math:`e^{s\mu^2}`, they are as good as the knowledge that
:math:`\mu^2 = \log M(s)/s`.  There g is a step function: between consecutive points of a grid it
has its value at the upper one, and :math:`\delta_\mu` is at most that of the upper one.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from lastiterate import _check
from lastiterate._numerics.powers import fast_length
from lastiterate._numerics.rounding import (
    FEW_ROUNDINGS,
    MILLIONS_OF_ROUNDINGS,
    Array,
    IntArray,
    down,
    suffix_sums,
    ulps,
    up,
)
from lastiterate.profile.curve import ParametricProfile
from lastiterate.profile.gaussian import (
    GaussianMixtureProfile,
    deltas_on_both_sides,
    deltas_on_grid,
    gaussian_deltas,
)
from lastiterate.profile.pld import LossDistributionProfile, losses_of
from lastiterate.profile.profile import check_order

LOW = np.append(np.geomspace(0.03, 0.5, 9)[:-1], np.arange(0.5, 0.8, 0.03))

HIGH = np.arange(1.4, 2.06, 0.05)

_NEAR_POINTS = np.concatenate([[0.0], LOW, np.arange(0.8, 1.4, 0.001), HIGH])

_FAR_POINTS = (2.1, 40.0)

_FAR_SPACING = 1.14

_NEAR_CUTS, _FAR_CUT = (1.2, 1.5), 3  # in units of a typical mu; every third of the far points

_EXCHANGES = 8  # of the points of a line, at most

_LARGEST_EXPONENT = 600.0

_USUAL_RATE, _MOST_OVER_MEAN = 2.0, 1.3  # for a typical mu

_LARGEST_MU = 15.0  # above it nothing is certified


class MixtureTransportProfile(ParametricProfile):
    """The profile of mu_i-GDP with probability weight_i, if i stays hidden.

    A probability `lost` has no guarantee.

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

    def _at(self, multiplier: float) -> tuple[float, float]:
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
    """The profile of mu-GDP for a hidden mu, with log E e^(rates mu^2) at most `logs`.

    A probability `lost` has no guarantee, and mu itself may be larger by `extra_mu`.  The profile
    `composed_with` is that of a mechanism that is released as well, whatever mu is.

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
        self._rates, self._logs = _between(rates[finite], self._logs[finite])
        self._lost = _check.number("lost", lost, at_least=0.0, at_most=1.0)
        sizes = self._logs / self._rates
        modest = sizes < _LARGEST_MU**2
        self._rates, self._logs = self._rates[modest], self._logs[modest]
        if not self._rates.size:
            return
        typical = max(self._typical_square(), 1e-24)
        points = _points(math.sqrt(typical))
        squares = typical * np.square(points)
        # Each interval has the value of its upper end; beyond the last point delta is 1.
        upper = np.sqrt(squares)[1:]
        self._upper = up(upper + extra_mu, ulps(4))
        self._table = LagrangianTable(math.sqrt(typical), composed_with)
        exponents = self._rates[:, None] * squares - self._logs[:, None]
        # Rounded down, since it is a divisor.
        self._weights = np.exp(np.clip(exponents, -_LARGEST_EXPONENT, _LARGEST_EXPONENT))
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

    def _at(self, multiplier: float) -> tuple[float, float]:
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
        least = min(float(rising[-1]), self._near(rising.size, rising))
        for cut in self._cuts:
            far = float(np.min(np.max(rising[cut:] / self._weights[:, cut:], axis=1)))
            if far < least:
                least = min(least, far + self._near(cut, rising))
        return up(least, MILLIONS_OF_ROUNDINGS)

    def _near(self, cut: int, rising: Array) -> float:
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


def _between(rates: Array, logs: Array) -> tuple[Array, Array]:
    """The rates and those in between, by chords: logarithms of moments are convex."""
    if rates.size < 2:
        return rates, logs
    middles = 0.5 * (rates[1:] + rates[:-1])
    every = np.sort(np.append(rates, middles))
    return every, np.asarray(np.interp(every, rates, logs))


def _points(typical: float) -> Array:
    """A grid of mu in units of a typical mu, with far points for rare, large mus."""
    first, last = _FAR_POINTS
    last = max(last, _LARGEST_MU / typical)
    number = math.ceil(math.log(last / first) / math.log(_FAR_SPACING))
    return np.concatenate([_NEAR_POINTS, np.geomspace(first, last, number + 1)])


# A table of :math:`\delta_{(\mu)}(\log g)` and of the best g for every Lagrange multiplier.
#
# :math:`\delta_{(\mu)}` is the curve of a Gaussian mechanism composed with another release.  For
# the
# multiplier :math:`\lambda` the best g minimises :math:`\delta_{(\mu)}(\log g) + \lambda g`.  Any g
# is valid, so it is chosen on a grid.
#
# Between two mus of the table delta, for the same g, is at most its chord plus a correction.  Its
# second derivative in mu at epsilon is :math:`a\,\varphi(a)\,(\varepsilon/\mu^2 + 1/2)`,
# :math:`a = \varepsilon/\mu - \mu/2`, which is negative only for :math:`|\varepsilon| <
# \mu^2/2`, and there above :math:`-0.4 \mu`: so the correction is a twentieth of :math:`\mu` times
# the square of the distance of the two mus, if the loss of the other release leaves no more than
# that
# of epsilon.

_FINE, _CELLS_OF_G = 1_750, 4  # cells of losses, and how many make one of log g

_ROUNDING = 1e-14  # of a Fourier transform of at most some thousand numbers up to 1

_REACH = 16.0  # of log g, in standard deviations

_NEGLIGIBLE, _OF_ROUNDING = 1e-16, 0.1  # tails that are cut, also as a share of the rounding

_RARE = 1e-12  # losses rarer than that may be beyond the table

_MOST_CELLS = 3_500  # of losses

_FEW_ATOMS = 600  # for the larger mus

_LEAST_GAIN = 1e-300

_LARGEST_LOG = 600.0

_ROWS = np.concatenate([LOW, np.arange(0.8, 1.4, 0.012), HIGH])  # in units of the typical mu


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
    negligible = max(_NEGLIGIBLE, _OF_ROUNDING * profile.slack)
    below = np.cumsum(losses.masses) <= negligible
    above = suffix_sums(losses.masses) <= negligible
    first, last = int(np.count_nonzero(below)), losses.masses.size - np.count_nonzero(above)
    masses = losses.masses[first:last].copy()
    masses[0] += losses.masses[:first].sum()
    lost = profile.slack + losses.infinite + float(losses.masses[last:].sum())
    return _Atoms(losses.cell, losses.first + first, masses, lost)


class LagrangianTable:
    """The table for mus around a typical one, composed with another release."""

    def __init__(self, typical: float, composed_with: LossDistributionProfile | None) -> None:
        self._alone = composed_with is None
        atoms = (
            _Atoms(1.0, 0, np.ones(1), 0.0) if composed_with is None else _atoms_of(composed_with)
        )
        size = math.hypot(typical, atoms.spread)
        reach = max(size * (_REACH + size), atoms.quantile(_RARE))
        if composed_with is not None:
            fine = max(size * _REACH / _FINE, reach / _MOST_CELLS)
            atoms = atoms.coarser(max(1, math.floor(fine / atoms.cell)))
        self._atoms, self.lost, self._spread = atoms, atoms.lost, atoms.spread
        few = atoms.coarser(max(1, math.ceil(atoms.masses.size / _FEW_ATOMS)))
        self._few = few.cell * (few.first + np.arange(few.masses.size)), few.masses
        if self._alone:
            return
        self._mus = typical * _ROWS
        reach = min(reach, _LARGEST_LOG)
        cells = _CELLS_OF_G * np.arange(math.ceil(reach / atoms.cell / _CELLS_OF_G) + 2)
        self._logs = atoms.cell * cells
        self._amounts = np.exp(self._logs)
        self._costs = self._table(atoms, cells)
        # delta falls by so much for a little more of g; less and less, as it is convex.
        gains = -np.diff(self._costs, axis=1) / np.diff(self._amounts)
        gains = np.log(np.maximum(gains, _LEAST_GAIN))
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
        return np.asarray(np.clip(sums + _ROUNDING, 0.0, 1.0))

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
        wanted = math.log(max(multiplier, _LEAST_GAIN))
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
