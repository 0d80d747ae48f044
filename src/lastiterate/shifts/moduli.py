r"""How far apart a step can drive two points: concave moduli.

A modulus of step k is a function with
:math:`|\phi_k(x) - \phi'_k(y)| \le W_k(|x - y|)` for the two data sets' updates.  Those of
smooth, Hoelder-smooth and clipped losses are minima of a few branches

.. math:: W(z) = \text{slope}\, z + \text{rise}\, z^{\text{order}} + \text{offset},
          \qquad 0 < \text{order} \le 1,

so they are concave, and a tangent of any branch lies above all of W: it is a (linear)
modulus too.  That is all the optimiser needs.
"""

from dataclasses import dataclass

import numpy as np

from lastiterate._numerics.rounding import Array, ulps, up


@dataclass(frozen=True)
class Branch:
    """One branch, for every step; all coefficients are at least 0."""

    slope: Array
    rise: Array
    offset: Array
    order: float = 1.0

    def __call__(self, z: Array) -> Array:
        return np.asarray(self.slope * z + self.rise * z**self.order + self.offset)

    def tangent(self, z: Array) -> tuple[Array, Array]:
        """Slope and offset of the tangent at z > 0, rounded up."""
        if self.order == 1.0:
            slope, offset = self.slope + self.rise, self.offset
        else:
            lift = self.rise * z**self.order
            slope = self.slope + self.order * lift / z
            offset = self.offset + (1.0 - self.order) * lift
        return up(slope, ulps(16)), up(offset, ulps(16))


@dataclass(frozen=True)
class Moduli:
    """The least of several branches, step by step."""

    branches: tuple[Branch, ...]

    def __call__(self, z: Array) -> Array:
        return np.asarray(np.min([branch(z) for branch in self.branches], axis=0))

    def tangent(self, z: Array) -> tuple[Array, Array]:
        """The tangent at z > 0 of the branch that is least there."""
        lowest = np.argmin([branch(z) for branch in self.branches], axis=0)
        tangents = [branch.tangent(z) for branch in self.branches]
        slopes, offsets = ([t[i] for t in tangents] for i in (0, 1))
        return np.choose(lowest, slopes), np.choose(lowest, offsets)
