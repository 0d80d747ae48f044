r"""The costs of Gaussian guarantees composed with other releases, for every multiplier.

A guarantee mu that asks for g times the other distribution costs :math:`\delta_{(\mu)}(\log g)`,
the curve of a Gaussian mechanism composed with all other releases.  At the price
:math:`\lambda` the best g is where cost and :math:`\lambda g` together are least.  Any g is valid,
so it is looked for on a grid.

Between two mus of a table the cost, for the same g, is at most the chord's and a correction.  Its
second derivative in mu at epsilon is :math:`a\,\varphi(a)\,(\varepsilon/\mu^2 + 1/2)`,
:math:`a = \varepsilon/\mu - \mu/2`, which is negative only for :math:`|\varepsilon| <
\mu^2/2`, and there above :math:`-0.4 \mu`: so the correction is a twentieth of :math:`\mu` times
the square of the distance of the two mus, for all losses of what follows that leave no more.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from lastiterate._numerics.arrays import Array, IntArray
from lastiterate._numerics.fourier import fast_length
from lastiterate._numerics.rounding import FEW_ROUNDINGS, ulps, up
from lastiterate._numerics.sums import suffix_sums
from lastiterate.profile.dp_accounting import losses_of
from lastiterate.profile.gaussian import deltas_on_both_sides, deltas_on_grid
from lastiterate.profile.pld import LossDistributionProfile

_FINE, _EACH = 1_750, 4  # cells of losses, and how many make one of what is asked for
_ROUNDING = 1e-14  # of a Fourier transform of at most some thousand numbers up to 1
_REACH = 16.0  # in standard deviations, what is asked for at most
_NEVER, _OF_ROUNDING = 1e-16, 0.1
_RARE = 1e-12
_MOST = 3_500  # cells of losses
_FEW = 600  # atoms, for the larger mus
_LEAST_GAIN = 1e-300
_LARGEST_LOG = 600.0
LOW = np.append(np.geomspace(0.03, 0.5, 9)[:-1], np.arange(0.5, 0.8, 0.03))
HIGH = np.arange(1.4, 2.06, 0.05)
_ROWS = np.concatenate([LOW, np.arange(0.8, 1.4, 0.012), HIGH])  # in units of the typical mu


class _Atoms(NamedTuple):
    """Masses at consecutive multiples of `cell`, from the `first` on; what is beyond is `lost`."""

    cell: float
    first: int
    masses: Array
    lost: float

    @property
    def spread(self) -> float:
        at = self.cell * (self.first + np.arange(self.masses.size))
        mean = float(self.masses @ at)
        return math.sqrt(max(float(self.masses @ np.square(at - mean)), 0.0))

    def quantile(self, chance: float) -> float:
        """A value that is exceeded with at most this probability, apart from what is `lost`."""
        beyond = np.count_nonzero(suffix_sums(self.masses) > chance)
        return self.cell * (self.first + beyond)

    def coarser(self, width: int) -> "_Atoms":
        """Cells so many times as wide, losses rounded up."""
        places = -((-self.first - np.arange(self.masses.size)) // width)
        masses = np.bincount(places - places[0], self.masses)
        return _Atoms(self.cell * width, int(places[0]), np.asarray(masses), self.lost)


def _atoms_of(profile: LossDistributionProfile) -> _Atoms:
    directions = losses_of(profile.pld)
    if len(directions) > 1:
        raise ValueError("results that follow must be as private in both directions")
    losses = directions[0]
    # What transforms leave in cells that nothing reaches is a part of their rounding.
    never = max(_NEVER, _OF_ROUNDING * profile.slack)
    below = np.cumsum(losses.masses) <= never
    above = suffix_sums(losses.masses) <= never
    first, last = int(np.count_nonzero(below)), losses.masses.size - np.count_nonzero(above)
    masses = losses.masses[first:last].copy()
    masses[0] += losses.masses[:first].sum()
    lost = profile.slack + losses.infinite + float(losses.masses[last:].sum())
    return _Atoms(losses.cell, losses.first + first, masses, lost)


class Borrowed:
    """The costs of mus around a typical one, for every amount asked for on a grid."""

    def __init__(self, typical: float, followed_by: LossDistributionProfile | None) -> None:
        self._alone = followed_by is None
        atoms = _Atoms(1.0, 0, np.ones(1), 0.0) if followed_by is None else _atoms_of(followed_by)
        size = math.hypot(typical, atoms.spread)
        reach = max(size * (_REACH + size), atoms.quantile(_RARE))
        if followed_by is not None:
            fine = max(size * _REACH / _FINE, reach / _MOST)
            atoms = atoms.coarser(max(1, math.floor(fine / atoms.cell)))
        self._atoms, self.lost, self._spread = atoms, atoms.lost, atoms.spread
        few = atoms.coarser(max(1, math.ceil(atoms.masses.size / _FEW)))
        self._few = few.cell * (few.first + np.arange(few.masses.size)), few.masses
        if self._alone:
            return
        self._mus = typical * _ROWS
        reach = min(reach, _LARGEST_LOG)
        asked = _EACH * np.arange(math.ceil(reach / atoms.cell / _EACH) + 2)
        self._logs = atoms.cell * asked
        self._amounts = np.exp(self._logs)
        self._costs = self._table(atoms, asked)
        # What a little more costs less; convex curves make it decrease.
        gains = -np.diff(self._costs, axis=1) / np.diff(self._amounts)
        gains = np.log(np.maximum(gains, _LEAST_GAIN))
        self._gains = np.minimum.accumulate(gains, axis=1)

    def _table(self, atoms: _Atoms, asked: IntArray) -> Array:
        last = atoms.first + atoms.masses.size - 1
        first, top = -last, int(asked[-1]) - atoms.first
        low = min(first, 0)
        curves = deltas_on_grid(self._mus, atoms.cell, low, max(top, 0))[:, first - low :]
        size = fast_length(curves.shape[1])
        spectra = np.fft.rfft(curves, size, axis=1) * np.fft.rfft(atoms.masses, size)
        sums = np.fft.irfft(spectra, size, axis=1)[:, atoms.masses.size - 1 + asked]
        return np.asarray(np.clip(sums + _ROUNDING, 0.0, 1.0))

    def _left_beyond(self, amounts: Array) -> Array:
        """The chance that what follows leaves so little of these."""
        atoms = self._atoms
        above = np.append(suffix_sums(atoms.masses), 0.0)
        place = np.floor(amounts / atoms.cell) - atoms.first
        place = np.clip(place, 0, atoms.masses.size).astype(np.int64)
        return np.asarray(up(above[place], ulps(atoms.masses.size)))

    def at_price(self, price: float, mus: Array) -> tuple[Array, Array]:
        """log g, increasing with mu, and what it costs, for increasing mus."""
        if self._alone:
            return self._at_price_far(price, mus, 0.0)
        near = int(np.searchsorted(mus, self._mus[-1], side="right"))
        logs = np.interp(mus[:near], self._mus, self._asked(price))
        upper = np.clip(np.searchsorted(self._mus, mus[:near]), 1, self._mus.size - 1)
        low, high = self._mus[upper - 1], self._mus[upper]
        share = np.clip((mus[:near] - low) / (high - low), 0.0, 1.0)
        place = np.searchsorted(self._logs, logs, side="right") - 1
        place = np.minimum(place, self._logs.size - 2)
        step = self._amounts[place + 1] - self._amounts[place]
        part = np.clip((np.exp(logs) - self._amounts[place]) / step, 0.0, 1.0)
        costs = np.zeros(near)
        for row, weight in ((upper - 1, 1.0 - share), (upper, share)):
            chord = self._costs[row, place] * (1.0 - part) + self._costs[row, place + 1] * part
            costs += weight * chord
        costs += (
            0.05 * high * np.square(high - low) * self._left_beyond(logs - 0.5 * np.square(high))
        )
        far, more = self._at_price_far(price, mus[near:], float(logs[-1]))
        return np.append(logs, far), np.append(up(costs, ulps(16)), more)

    def _asked(self, price: float) -> Array:
        """log g for the mus of the table: between the middles of two cells."""
        wanted = math.log(max(price, _LEAST_GAIN))
        rows, last = np.arange(self._gains.shape[0]), self._gains.shape[1] - 1
        after = np.clip(np.count_nonzero(self._gains > wanted, axis=1), 1, last)
        more, less = self._gains[rows, after - 1], self._gains[rows, after]
        apart = np.maximum(more - less, FEW_ROUNDINGS)
        steps = after + np.clip((more - wanted) / apart, 0.0, 1.0) - 0.5
        return np.maximum.accumulate(self._logs[1] * steps)

    def _at_price_far(self, price: float, mus: Array, least: float) -> tuple[Array, Array]:
        """log g and cost of larger mus, g as if other releases were Gaussian; exact without."""
        limit = -float(ndtri(price)) if price > 0.0 else math.inf
        capped = np.minimum(np.hypot(mus, self._spread), max(limit, 0.0))
        logs = np.maximum(capped * (limit - capped / 2), least)
        at, masses = self._few
        after = logs[:, None] - at
        curves = deltas_on_both_sides(np.broadcast_to(mus[:, None], after.shape), after)
        return logs, up(curves @ masses, ulps(masses.size + 16))
