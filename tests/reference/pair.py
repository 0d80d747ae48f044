"""Two laws on the line, and how far apart they are.

Each law has a density, known at the Gauss-Legendre nodes of panels, and two atoms.  The density
is a polynomial on a panel to rounding error, so the crossing of the two is found, not sampled.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np

NODES = 10


@cache
def gauss_legendre():
    """Nodes and weights on [-1, 1]."""
    return np.polynomial.legendre.leggauss(NODES)


@cache
def _to_legendre():
    """The matrix from values at the nodes to Legendre coefficients."""
    return np.linalg.inv(np.polynomial.legendre.legvander(gauss_legendre()[0], NODES - 1))


@dataclass(frozen=True)
class Pair:
    """Two laws: densities at the nodes of the panels, and atoms; the last axis is the world.

    `missing` is a density below which what the truncation dropped may tell.
    """

    lengths: np.ndarray
    densities: np.ndarray
    atoms: np.ndarray
    missing: float
    error: float = np.nan

    def _masses(self):
        return (self.lengths[:, None] * gauss_legendre()[1] / 2)[..., None] * self.densities

    def mass_defect(self):
        """The larger |total mass - 1|."""
        return float(np.abs(self._masses().sum(axis=(0, 1)) + self.atoms.sum(axis=0) - 1).max())

    def _hockey_stick(self, epsilon, world):
        tilt = np.exp(epsilon)
        excess = self.densities[..., world] - tilt * self.densities[..., 1 - world]
        atoms = self.atoms[:, world] - tilt * self.atoms[:, 1 - world]
        coefficients = excess @ _to_legendre().T
        mean, rest = coefficients[:, 0], np.abs(coefficients[:, 1:]).sum(axis=1)
        # |P_j| <= 1, so elsewhere the interpolant keeps the sign of its mean.
        mixed = (rest >= np.abs(mean)) & (rest * self.lengths > 1e-16)
        total = np.maximum(atoms, 0).sum() + (self.lengths * np.maximum(mean, 0))[~mixed].sum()
        for series, length in zip(coefficients[mixed], self.lengths[mixed], strict=True):
            total += length / 2 * _positive_part(series)
        return total

    def delta(self, epsilon):
        """Hockey-stick divergence of order e^epsilon, the larger of the two directions."""
        return float(max(self._hockey_stick(epsilon, 0), self._hockey_stick(epsilon, 1)))

    def renyi(self, order):
        """Renyi divergence, the larger direction; refuses where the truncation would tell."""
        masses, values = self._masses(), []
        for p, q in ((0, 1), (1, 0)):
            a, b = self.atoms[self.atoms[:, p] > 0][:, [p, q]].T
            with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
                ratio = np.log(self.densities[..., p]) - np.log(self.densities[..., q])
                terms = masses[..., p] * np.exp((order - 1) * ratio)
                terms = np.where(masses[..., p] > 0, terms, 0.0)
                doubt = np.minimum(1, self.missing / self.densities.max(axis=-1))
                total = terms.sum() + (a * (a / b) ** (order - 1)).sum()
            if not (terms * doubt).sum() <= 1e-7 * total < np.inf:
                raise ValueError(f"order {order} needs tails beyond the grid; lower lost_mass")
            values.append(np.log(total) / (order - 1))
        return float(max(values))


def _positive_part(series):
    """The integral over [-1, 1] of the positive part of a Legendre series."""
    legendre = np.polynomial.legendre
    roots = legendre.legroots(series / np.abs(series).max())
    real = roots[np.abs(roots.imag) < 1e-9].real
    cuts = np.concatenate([[-1.0], np.sort(real[np.abs(real) < 1]), [1.0]])
    pieces = np.diff(legendre.legval(cuts, legendre.legint(series)))
    return np.maximum(pieces, 0).sum()
