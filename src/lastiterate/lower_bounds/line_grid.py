r"""The two laws of the last iterate, by pushing weighted points through every step.

After a step a law is a Gaussian mixture, cut off by the projection: its density is summed over
Gauss-Legendre nodes, and the projection's two atoms are points of their own.  Panels end at every
kink of the next maps, so that within one everything is analytic.

The error is in two parts.  `absolute` bounds the mass that is misplaced: by the quadrature
(`quadrature.integration_error`), beyond `REACH` standard deviations of a source, and in panels at
either end that hold less than `LOST`; a Markov kernel does not enlarge it.  `relative` bounds the
rounding of every density: all terms are positive.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.sparse import csc_array
from scipy.special import ndtr

from lastiterate._numerics.rounding import Array, ulps
from lastiterate.errors import NumericalFailure
from lastiterate.lower_bounds import quadrature
from lastiterate.lower_bounds.line_maps import PiecewiseLinear
from lastiterate.lower_bounds.line_pair import Pair, Step

REACH = 9.5
LOST = 1e-22
_BEYOND = 2.0 * float(ndtr(-REACH))
_FINEST = 0.5  # standard deviations of the last noise to a panel
_MOST_NODES = 60_000
_KEPT_KERNELS = 24


@dataclass(frozen=True)
class Laws:
    """Densities at the nodes of panels, and atoms; the last axis is the world."""

    edges: Array
    densities: Array
    atoms: Array
    absolute: float
    relative: float


@dataclass
class _Points:
    """Weighted points: masses has axes point, world, hidden state."""

    points: Array
    masses: Array
    absolute: float = 0.0
    relative: float = 0.0


@dataclass
class _Kernels:
    """Matrices from masses of sources to densities at targets, kept while they recur."""

    kept: dict[tuple[object, ...], tuple[csc_array, int]] = field(default_factory=dict)

    def between(self, centres: Array, targets: Array, std: float) -> tuple[csc_array, int]:
        """The matrix, and the most terms in one of its rows."""
        key = (centres.tobytes(), targets.tobytes(), std)
        if key not in self.kept:
            if len(self.kept) >= _KEPT_KERNELS:
                self.kept.pop(next(iter(self.kept)))
            self.kept[key] = _gaussians(centres, targets, std)
        return self.kept[key]


def _gaussians(centres: Array, targets: Array, std: float) -> tuple[csc_array, int]:
    first = np.searchsorted(targets, centres - REACH * std)
    last = np.searchsorted(targets, centres + REACH * std)
    ends = np.concatenate([[0], np.cumsum(last - first)])
    rows = np.arange(ends[-1]) + np.repeat(first - ends[:-1], last - first)
    z = targets[rows]
    z -= np.repeat(centres, last - first)
    z /= std
    np.multiply(z, z, out=z)
    z *= -0.5
    np.exp(z, out=z)
    z /= std * np.sqrt(2.0 * np.pi)
    terms = int(np.bincount(rows, minlength=1).max())
    return csc_array((z, rows, ends), shape=(targets.size, centres.size)), terms


def last_laws(pair: Pair, width: float) -> Laws:
    """The laws of the last iterate; panels are `width` standard deviations long."""
    steps, kernels = pair.noisy_steps, _Kernels()
    start = np.broadcast_to(pair.participation.start, (1, 2, pair.participation.start.size))
    law = _Points(np.array([pair.start]), start.copy())
    for k, step in enumerate(steps[:-1]):
        law = _pushed(law, step, steps[k + 1], _Fork.of(pair, k), kernels, width)
    last = steps[-1]
    longest = min(_FINEST, width) * last.noise_std
    edges = _window(law, last, longest, ())
    nodes, _ = quadrature.nodes_of(edges)
    density, atoms, relative = _after(
        law, last, _Fork.of(pair, len(steps) - 1), nodes.ravel(), kernels
    )
    absolute = law.absolute + 2 * _BEYOND + quadrature.interpolation_error(edges, last.noise_std)
    if not (np.isfinite(density).all() and absolute < np.inf):
        raise NumericalFailure("the laws of the last iterate are not finite.")
    return Laws(
        edges,
        density.sum(axis=2).reshape(*nodes.shape, 2),
        atoms.sum(axis=2),
        absolute,
        float(np.expm1(law.relative + relative)),
    )


@dataclass(frozen=True)
class _Fork:
    """Chances of staying out and of taking part, from each hidden state to each."""

    stays: Array
    takes: Array

    @staticmethod
    def of(pair: Pair, k: int) -> _Fork:
        if k < len(pair.steps):
            return _Fork(*pair.participation.step(k))
        states = pair.participation.start.size
        return _Fork(np.eye(states), np.zeros((states, states)))


def _branches(law: _Points, step: Step, fork: _Fork) -> list[tuple[PiecewiseLinear, int, Array]]:
    """(map, world, masses that go through it), for all that carry mass."""
    return [
        (chosen, world, masses)
        for world in (0, 1)
        for chosen, chances in ((step.still, fork.stays), (step.takes[world], fork.takes))
        if chances.any() and (masses := law.masses[:, world] @ chances).any()
    ]


def _after(
    law: _Points, step: Step, fork: _Fork, targets: Array, kernels: _Kernels
) -> tuple[Array, Array, float]:
    """Densities at the targets, atoms below and above, and the rounding of a density."""
    std, states = step.noise_std, law.masses.shape[2]
    density, atoms = np.zeros((targets.size, 2, states)), np.zeros((2, 2, states))
    most_terms, farthest = 1, float(np.abs(targets).max())
    for chosen, world, masses in _branches(law, step, fork):
        centres = chosen(law.points)
        matrix, terms = kernels.between(centres, targets, std)
        density[:, world] += matrix @ masses
        most_terms = max(most_terms, terms)
        farthest = max(farthest, float(np.abs(centres).max()))
        if step.domain is not None:
            low, high = step.domain
            atoms[0, world] += ndtr((low - centres) / std) @ masses
            atoms[1, world] += ndtr((centres - high) / std) @ masses
            most_terms = max(most_terms, centres.size)
    # Terms of a sum, the exponential's own rounding, and that of points times its slope.
    rounding = ulps(most_terms + states + 128 + 3.0 * REACH * farthest / std)
    return density, atoms, rounding


def _window(law: _Points, step: Step, longest: float, cuts: tuple[float, ...]) -> Array:
    """Panels over all that the step may reach, but for `_BEYOND`."""
    images = [chosen(law.points) for chosen in step.maps]
    reach = REACH * step.noise_std
    low = min(float(image.min()) for image in images) - reach
    high = max(float(image.max()) for image in images) + reach
    cut = step.domain or (-np.inf, np.inf)
    low, high = max(low, cut[0]), min(high, cut[1])
    if not low < high:  # all is projected onto one end
        low, high = cut
    if not (high - low) / longest < _MOST_NODES / quadrature.NODES:
        raise NumericalFailure(
            f"the iterates spread over {(high - low) / longest:.3g} panels, too many for a grid; "
            "use fewer steps, or maps that expand less."
        )
    edges = quadrature.panels(low, high, longest, (*cuts, *cut))
    return np.asarray(edges[(edges >= cut[0]) & (edges <= cut[1])])


def _pushed(
    law: _Points, step: Step, following: Step, fork: _Fork, kernels: _Kernels, width: float
) -> _Points:
    steepest = max(chosen.steepest for chosen in following.maps)
    shortest = min(step.noise_std, following.noise_std / max(steepest, 1e-9))
    kinks = tuple(x for chosen in following.maps for x in chosen.kinks)
    edges = _window(law, step, width * shortest, kinks)
    nodes, weights = quadrature.nodes_of(edges)
    density, atoms, relative = _after(law, step, fork, nodes.ravel(), kernels)
    masses = weights[..., None, None] * density.reshape(*nodes.shape, *density.shape[1:])
    held, dropped = _held(masses.sum(axis=(1, 2, 3)))
    missed = quadrature.integration_error(edges, step.noise_std, following.noise_std, steepest)
    points, masses = nodes[held].ravel(), masses[held].reshape(-1, *density.shape[1:])
    if step.domain is not None:
        points = np.concatenate([points, step.domain])
        masses = np.concatenate([masses, atoms])
    absolute = law.absolute + missed + 2 * _BEYOND + dropped
    return _Points(points, masses, absolute, law.relative + relative)


def _held(masses: Array) -> tuple[slice, float]:
    """The panels between those at the ends that hold less than `LOST`, and what those hold."""
    from_left, from_right = np.cumsum(masses), np.cumsum(masses[::-1])
    first = int(np.searchsorted(from_left, LOST))
    last = masses.size - int(np.searchsorted(from_right, LOST))
    if not first < last:
        return slice(0, masses.size), 0.0
    return slice(first, last), 2 * LOST
