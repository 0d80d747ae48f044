r"""A curve of deltas by a few hundred of its points, and the losses that these points admit.

Between its points a curve, convex in :math:`e^\varepsilon`, lies below its chords; beyond the last
it lies below the last.  The curve of chords is that of a pair whose losses are at the points: at
:math:`\varepsilon_j` the mass is :math:`e^{\varepsilon_j}` times the change of slope there.  Where
a curve that was rounded up bends the other way, the change counts as none, which is no less.
A guarantee is of both directions, so that the mass at :math:`-\varepsilon_j` is
:math:`e^{-\varepsilon_j}` of the mass at :math:`\varepsilon_j`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from lastiterate import _check
from lastiterate._numerics.rounding import Array, at_least, ulps
from lastiterate.errors import InvalidParameter
from lastiterate.profile import dp_accounting
from lastiterate.profile.gaussian_mixture_pld import LossCells
from lastiterate.profile.privacy_profile import PrivacyProfile

_POINTS = 200
_TAIL = 1e-14
_USUAL_DELTA = 1e-5


@dataclass(frozen=True, eq=False)
class Curve:
    """Deltas at 0, `cell`, 2 `cell`, ..; beyond the last they are no larger than it."""

    cell: float
    deltas: Array

    def __post_init__(self) -> None:
        _check.number("cell", self.cell, above=0.0)
        deltas = _check.numbers("deltas", self.deltas)
        if not (deltas.size >= 2 and deltas.max() <= 1.0 and np.all(np.diff(deltas) <= 0.0)):
            must_be = "at least two, at most 1 and falling"
            raise InvalidParameter("deltas", deltas, must_be=must_be)
        object.__setattr__(self, "deltas", deltas)

    def losses(self) -> LossCells:
        """The privacy losses that the points of the curve allow; both directions are alike."""
        at = self.cell * np.arange(self.deltas.size)
        shrunk, less = float(np.exp(-self.cell)), float(-np.expm1(-self.cell))
        falls = np.append(self.deltas[:-1] - self.deltas[1:], 0.0)
        right = np.maximum((falls[:-1] - shrunk * falls[1:]) / less, 0.0)
        off = ulps(16) / less * self.deltas[:-1]
        first, second = self.deltas[0], self.deltas[1]
        middle = 1.0 - (first * (1.0 + shrunk) - 2.0 * shrunk * second) / less
        middle_off = ulps(16) * (1.0 + first / less)
        factors = np.exp(-at[:0:-1])
        losses_at = np.concatenate([-at[:0:-1], at])
        masses = np.concatenate([factors * right[::-1], [max(middle, 0.0)], right])
        offs = np.concatenate([factors * off[::-1], [middle_off], off])
        others = masses * np.exp(-np.maximum(losses_at, -700.0))
        infinite = float(self.deltas[-1])
        return LossCells(losses_at, losses_at, masses, others, offs, ulps(4) * others, infinite)


def tabulated(profile: PrivacyProfile) -> Curve:
    """The curve of a guarantee, as far as anything of it is left."""
    from lastiterate.profile.pld import convex_envelope

    left = float(profile.deltas(np.array([1e9]))[0])
    reach = profile.epsilon(min(1.01 * left + _TAIL, 1.0 - _TAIL))
    cell = min(max(reach, ulps(1)), 1e9) / _POINTS
    usual = profile.epsilon(_USUAL_DELTA)
    if cell < usual < reach:
        # One point is where most ask, so that a budget of that epsilon holds this guarantee.
        cell = at_least(usual / math.floor(usual / cell), ulps=2)
    epsilons = cell * np.arange(_POINTS + 1, dtype=np.float64)
    deltas = np.minimum(profile.deltas(epsilons), 1.0)
    if cell < usual < reach:  # asked alone it is answered more exactly than among many
        step = round(usual / cell)
        exactly = max(profile.delta(float(epsilons[step])), _USUAL_DELTA)
        deltas[step] = min(deltas[step], exactly)
    falling = np.minimum.accumulate(deltas)
    return Curve(cell, convex_envelope(epsilons, falling))


def atoms(losses: dp_accounting.Losses) -> LossCells:
    """The losses of a distribution that dp-accounting made."""
    kept = losses.masses > 0.0
    losses_at = np.asarray(
        losses.cell * (losses.first + np.arange(losses.masses.size)[kept]), dtype=np.float64
    )
    masses = losses.masses[kept]
    others = masses * np.exp(-np.maximum(losses_at, -700.0))
    zero = np.zeros(masses.size)
    return LossCells(losses_at, losses_at, masses, others, zero, ulps(8) * others, losses.infinite)
