r"""A table of :math:`\delta_{(\mu)}(\log g)` and of the best g for every Lagrange multiplier.

:math:`\delta_{(\mu)}` is the curve of a Gaussian mechanism composed with another release.  For the
multiplier :math:`\lambda` the best g minimises :math:`\delta_{(\mu)}(\log g) + \lambda g`.  Any g
is valid, so it is chosen on a grid.

Between two mus of the table delta, for the same g, is at most its chord plus a correction.  Its
second derivative in mu at epsilon is :math:`a\,\varphi(a)\,(\varepsilon/\mu^2 + 1/2)`,
:math:`a = \varepsilon/\mu - \mu/2`, which is negative only for :math:`|\varepsilon| <
\mu^2/2`, and there above :math:`-0.4 \mu`: so the correction is a twentieth of :math:`\mu` times
the square of the distance of the two mus, if the loss of the other release leaves no more than that
of epsilon.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from lastiterate._numerics.powers import fast_length
from lastiterate._numerics.rounding import FEW_ROUNDINGS, Array, IntArray, suffix_sums, ulps, up
from lastiterate.profile.gaussian import deltas_on_both_sides, deltas_on_grid
from lastiterate.profile.pld import LossDistributionProfile, losses_of

_FINE, _CELLS_OF_G = 1_750, 4  # cells of losses, and how many make one of log g
_ROUNDING = 1e-14  # of a Fourier transform of at most some thousand numbers up to 1
_REACH = 16.0  # of log g, in standard deviations
_NEGLIGIBLE, _OF_ROUNDING = 1e-16, 0.1  # tails that are cut, also as a share of the rounding
_RARE = 1e-12  # losses rarer than that may be beyond the table
_MOST_CELLS = 3_500  # of losses
_FEW_ATOMS = 600  # for the larger mus
_LEAST_GAIN = 1e-300
_LARGEST_LOG = 600.0
LOW = np.append(np.geomspace(0.03, 0.5, 9)[:-1], np.arange(0.5, 0.8, 0.03))
HIGH = np.arange(1.4, 2.06, 0.05)
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

    def coarser(self, width: int) -> "_Atoms":
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
