r"""One noisy iteration on the line, on two adjacent data sets, and the laws of its last iterate.

.. math:: x_k = \mathrm{clip}(\phi_k(x_{k-1}) + N(0, n_k^2))

where :math:`\phi_k` is `still` when the example in question is not in the batch, and otherwise one
of the two maps of `takes`, according to the world.  Everything is in parameter space: slopes are
1 - eta f'', shifts are eta L/b, noise is eta sigma.  So a loss that is m-strongly convex and
M-smooth gives a piecewise-linear map with slopes in [1 - eta M, 1 - eta m].

**Laws.** Weighted points are pushed through every step.  After a step a law is a Gaussian mixture,
cut off by the projection: its density is summed over Gauss-Legendre nodes, and the projection's two
atoms are points of their own.  Panels end at every kink of the next maps, so that within one
everything is analytic.

The error is in two parts.  `absolute` bounds the mass that is misplaced: by the quadrature
(`integration_error`), beyond `REACH` standard deviations of a source, and in panels at either end
that hold less than `LOST`; a Markov kernel does not enlarge it.  `relative` bounds the rounding of
every density: all terms are positive.

**Quadrature.** If f is analytic in the Bernstein ellipse of parameter :math:`\varrho` about a panel
and at most K there, its Chebyshev series cut after degree d is off by at most
:math:`2K\varrho^{-d}/(\varrho - 1)`.  Quadrature with n nodes is exact for degree 2n - 1 and has
weights of sum 2, so it is off by at most :math:`8K\varrho^{1-2n}/(\varrho-1)` half lengths;
interpolation in the nodes by at most :math:`1 + \Lambda` times the cut of degree n - 1, where
:math:`\Lambda \le 2\sqrt n` is the Lebesgue constant.  This holds when f is a density of a
Gaussian mixture of standard deviation s, or that times the Gaussian density of the next step, whose
mean is linear on the panel: both are entire, and

.. math:: |\varphi_s(x + i\tau - u)| = e^{\tau^2/2s^2} \varphi_s(x - u).

The bound is computed as the least over :math:`\varrho`; a mixture's density is at most
:math:`1/(s\sqrt{2\pi})`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise

import numpy as np
from scipy.sparse import csc_array
from scipy.special import ndtr

from lastiterate import _check
from lastiterate._numerics.rounding import Array, ulps
from lastiterate.errors import InvalidParameter, InvalidType, NumericalFailure
from lastiterate.lower_bounds.participation import Always, Participation

Interval = tuple[float, float]
REACH = 9.5  # standard deviations
LOST = 1e-22  # mass
NODES = 16
_MASS_BEYOND_REACH = 2.0 * float(ndtr(-REACH))
_LONGEST_LAST_PANEL = 0.5  # standard deviations of the last noise to a panel
_MAX_NODES = 60_000
_MAX_KEPT_KERNELS = 24
_RHO = np.geomspace(1.2, 200.0, 400)
_REAL, _IMAGINARY = (_RHO + 1.0 / _RHO) / 2.0, (_RHO - 1.0 / _RHO) / 2.0
_ROOT_TWO_PI = float(np.sqrt(2.0 * np.pi))


@dataclass(frozen=True)
class PiecewiseLinear:
    """The map through (knots, values), with the given slopes outside the knots.

    Examples
    --------
    >>> hinge = PiecewiseLinear((0.0,), (0.0,), 0.0, 1.0)
    >>> hinge(np.array([-1.0, 2.0]))
    array([0., 2.])
    """

    knots: tuple[float, ...]
    values: tuple[float, ...]
    left_slope: float
    right_slope: float

    def __post_init__(self) -> None:
        for name in ("knots", "values"):
            numbers = _check.numbers(name, getattr(self, name), at_least=-1e300)
            object.__setattr__(self, name, tuple(numbers.tolist()))
        if len(self.values) != len(self.knots):
            must_be = f"as many as the {len(self.knots)} knots"
            raise InvalidParameter("values", self.values, must_be=must_be)
        if any(not a < b for a, b in pairwise(self.knots)):
            raise InvalidParameter("knots", self.knots, must_be="increasing numbers")
        for name in ("left_slope", "right_slope"):
            object.__setattr__(self, name, _check.number(name, getattr(self, name)))

    def __call__(self, x: Array) -> Array:
        inside = np.interp(x, self.knots, self.values)
        left, right = np.minimum(x - self.knots[0], 0.0), np.maximum(x - self.knots[-1], 0.0)
        return np.asarray(inside + self.left_slope * left + self.right_slope * right)

    @property
    def slopes(self) -> tuple[float, ...]:
        """The slope of every piece, from left to right."""
        inside = np.diff(self.values) / np.diff(self.knots)
        return (self.left_slope, *inside.tolist(), self.right_slope)

    @property
    def kinks(self) -> tuple[float, ...]:
        """The knots at which the slope changes."""
        slopes = self.slopes
        return tuple(x for x, a, b in zip(self.knots, slopes, slopes[1:], strict=False) if a != b)

    @property
    def steepest(self) -> float:
        """The largest slope, in absolute value."""
        return max(abs(slope) for slope in self.slopes)

    def shifted(self, amount: float) -> PiecewiseLinear:
        """The map plus a constant."""
        values = tuple(value + amount for value in self.values)
        return PiecewiseLinear(self.knots, values, self.left_slope, self.right_slope)


def linear(slope: float, offset: float = 0.0) -> PiecewiseLinear:
    """x -> slope x + offset: a gradient step on a quadratic."""
    return PiecewiseLinear((0.0,), (offset,), slope, slope)


def bent(inner: float, outer: float, half_width: float, centre: float = 0.0) -> PiecewiseLinear:
    """Slope `inner` within `half_width` of the centre, which stays, and `outer` beyond."""
    reach = inner * half_width
    ends = (centre - half_width, centre + half_width)
    return PiecewiseLinear(ends, (centre - reach, centre + reach), outer, outer)


IDENTITY = linear(1.0)


@dataclass(frozen=True)
class Step:
    """One step: the maps, the noise and the interval projected on, if any."""

    still: PiecewiseLinear
    takes: tuple[PiecewiseLinear, PiecewiseLinear]
    noise_std: float
    domain: Interval | None = None

    def __post_init__(self) -> None:
        _check.number("noise_std", self.noise_std, above=0.0)
        if self.domain is not None:
            low, high = self.domain
            _check.number("domain[0]", low)
            _check.number("domain[1]", high, above=low)

    @property
    def maps(self) -> tuple[PiecewiseLinear, ...]:
        return (self.still, *self.takes)


@dataclass(frozen=True)
class Pair:
    """A start, steps, when the example takes part, and the noise on release.

    After the release noise the domain of the last step is projected on once more.

    Examples
    --------
    >>> from lastiterate.audit import exact
    >>> from lastiterate.lower_bounds.line import linear
    >>> step = Step(linear(0.9), (linear(0.9), linear(0.9, offset=0.5)), noise_std=1.0)
    >>> exact.curve(Pair(0.0, [step] * 20)).epsilon(1e-5).lower
    9.5614...
    """

    start: float
    steps: tuple[Step, ...]
    participation: Participation = field(default_factory=Always)
    release_noise_std: float = 0.0

    def __init__(
        self,
        start: float,
        steps: Iterable[Step],
        participation: Participation | None = None,
        release_noise_std: float = 0.0,
    ) -> None:
        listed = tuple(steps)
        if not listed or not all(isinstance(step, Step) for step in listed):
            raise InvalidType("steps", listed, must_be="one or more Steps")
        chosen = Always() if participation is None else participation
        if not isinstance(chosen, Participation):
            raise InvalidType("participation", chosen, must_be="a Participation")
        noise = _check.number("release_noise_std", release_noise_std, at_least=0.0)
        object.__setattr__(self, "start", _check.number("start", start))
        object.__setattr__(self, "steps", listed)
        object.__setattr__(self, "participation", chosen)
        object.__setattr__(self, "release_noise_std", noise)
        domain = listed[-1].domain
        if domain is not None and not domain[0] <= self.start <= domain[1]:
            raise InvalidParameter("start", start, must_be=f"in the domain {domain}")

    @property
    def noisy_steps(self) -> tuple[Step, ...]:
        """The steps, the release among them as one that sees nobody."""
        if self.release_noise_std == 0.0:
            return self.steps
        domain = self.steps[-1].domain
        release = Step(IDENTITY, (IDENTITY, IDENTITY), self.release_noise_std, domain)
        return (*self.steps, release)


@dataclass(frozen=True)
class Laws:
    """Densities at the nodes of panels, and atoms; the last axis is the world."""

    edges: Array
    densities: Array
    atoms: Array
    absolute: float
    relative: float


def last_laws(pair: Pair, width: float) -> Laws:
    """The laws of the last iterate; panels are `width` standard deviations long."""
    steps, kernels = pair.noisy_steps, _Kernels()
    start = np.broadcast_to(pair.participation.start, (1, 2, pair.participation.start.size))
    law = _Points(np.array([pair.start]), start.copy())
    for k, step in enumerate(steps[:-1]):
        law = _push(law, step, steps[k + 1], _Fork.of(pair, k), kernels, width)
    last = steps[-1]
    longest = min(_LONGEST_LAST_PANEL, width) * last.noise_std
    edges = _window(law, last, longest, ())
    nodes, _ = nodes_of(edges)
    density, atoms, relative = _laws_after(
        law, last, _Fork.of(pair, len(steps) - 1), nodes.ravel(), kernels
    )
    absolute = law.absolute + 2 * _MASS_BEYOND_REACH + interpolation_error(edges, last.noise_std)
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


@dataclass
class _Points:
    """Weighted points: masses has axes point, world, hidden state."""

    points: Array
    masses: Array
    absolute: float = 0.0
    relative: float = 0.0


def _push(
    law: _Points, step: Step, following: Step, fork: _Fork, kernels: _Kernels, width: float
) -> _Points:
    """The law after one step, as points at the nodes of panels for the next."""
    steepest = max(chosen.steepest for chosen in following.maps)
    shortest = min(step.noise_std, following.noise_std / max(steepest, 1e-9))
    kinks = tuple(x for chosen in following.maps for x in chosen.kinks)
    edges = _window(law, step, width * shortest, kinks)
    nodes, weights = nodes_of(edges)
    density, atoms, relative = _laws_after(law, step, fork, nodes.ravel(), kernels)
    masses = weights[..., None, None] * density.reshape(*nodes.shape, *density.shape[1:])
    held, dropped = _panels_that_hold(masses.sum(axis=(1, 2, 3)))
    missed = integration_error(edges, step.noise_std, following.noise_std, steepest)
    points, masses = nodes[held].ravel(), masses[held].reshape(-1, *density.shape[1:])
    if step.domain is not None:
        points = np.concatenate([points, step.domain])
        masses = np.concatenate([masses, atoms])
    absolute = law.absolute + missed + 2 * _MASS_BEYOND_REACH + dropped
    return _Points(points, masses, absolute, law.relative + relative)


def _panels_that_hold(masses: Array) -> tuple[slice, float]:
    """The panels between those at the ends that hold less than `LOST`, and what those hold."""
    from_left, from_right = np.cumsum(masses), np.cumsum(masses[::-1])
    first = int(np.searchsorted(from_left, LOST))
    last = masses.size - int(np.searchsorted(from_right, LOST))
    if not first < last:
        return slice(0, masses.size), 0.0
    return slice(first, last), 2 * LOST


def _window(law: _Points, step: Step, longest: float, cuts: tuple[float, ...]) -> Array:
    """Panels over all that the step may reach, but for `_MASS_BEYOND_REACH`."""
    images = [chosen(law.points) for chosen in step.maps]
    reach = REACH * step.noise_std
    low = min(float(image.min()) for image in images) - reach
    high = max(float(image.max()) for image in images) + reach
    cut = step.domain or (-np.inf, np.inf)
    low, high = max(low, cut[0]), min(high, cut[1])
    if not low < high:  # all is projected onto one end
        low, high = cut
    if not (high - low) / longest < _MAX_NODES / NODES:
        raise NumericalFailure(
            f"the iterates spread over {(high - low) / longest:.3g} panels, too many for a grid; "
            "use fewer steps, or maps that expand less."
        )
    edges = panels(low, high, longest, (*cuts, *cut))
    return np.asarray(edges[(edges >= cut[0]) & (edges <= cut[1])])


def _laws_after(
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


def _branches(law: _Points, step: Step, fork: _Fork) -> list[tuple[PiecewiseLinear, int, Array]]:
    """(map, world, masses that go through it), for all that carry mass."""
    return [
        (chosen, world, masses)
        for world in (0, 1)
        for chosen, chances in ((step.still, fork.stays), (step.takes[world], fork.takes))
        if chances.any() and (masses := law.masses[:, world] @ chances).any()
    ]


@dataclass
class _Kernels:
    """Matrices from masses of sources to densities at targets, kept while they recur."""

    kept: dict[tuple[object, ...], tuple[csc_array, int]] = field(default_factory=dict)

    def between(self, centres: Array, targets: Array, std: float) -> tuple[csc_array, int]:
        """The matrix, and the most terms in one of its rows."""
        key = (centres.tobytes(), targets.tobytes(), std)
        if key not in self.kept:
            if len(self.kept) >= _MAX_KEPT_KERNELS:
                self.kept.pop(next(iter(self.kept)))
            self.kept[key] = _gaussian_kernel(centres, targets, std)
        return self.kept[key]


def _gaussian_kernel(centres: Array, targets: Array, std: float) -> tuple[csc_array, int]:
    """The matrix of `_Kernels.between`, without sources farther than `REACH`."""
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


def panels(low: float, high: float, longest: float, cuts: tuple[float, ...]) -> Array:
    """Edges of panels that cover [low, high], on a lattice, and split at the cuts."""
    first, last = np.floor(low / longest), np.ceil(high / longest)
    lattice = longest * np.arange(first, last + 1.0)
    return np.unique(np.concatenate([lattice, [x for x in cuts if lattice[0] < x < lattice[-1]]]))


def nodes_of(edges: Array) -> tuple[Array, Array]:
    """The nodes of every panel (a row each), and their weights."""
    nodes, weights = rule()
    half = np.diff(edges)[:, None] / 2.0
    return edges[:-1, None] + half * (nodes + 1.0), half * weights


@cache
def rule() -> tuple[Array, Array]:
    """Nodes and weights on [-1, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    return nodes, weights


@cache
def to_legendre() -> Array:
    """The matrix from values at the nodes to Legendre coefficients."""
    return np.asarray(np.linalg.inv(np.polynomial.legendre.legvander(rule()[0], NODES - 1)))


def integration_error(edges: Array, std: float, next_std: float, slope: float) -> float:
    """The error of the next law, in total mass, if this one is summed over its nodes."""
    half = float(np.diff(edges).max()) / 2.0
    height, spread = _IMAGINARY * half, 2.0 * slope * _REAL * half
    exponent = (height / std) ** 2 / 2.0 + (slope * height / next_std) ** 2 / 2.0
    logs = exponent + (1 - 2 * NODES) * np.log(_RHO) + np.log(8.0 / (_RHO - 1.0))
    with np.errstate(over="ignore"):
        each = np.exp(logs) * (1.0 + spread / (next_std * _ROOT_TWO_PI))
    return float(each.min() * (edges[-1] - edges[0]) / 2.0 / (std * _ROOT_TWO_PI))


def interpolation_error(edges: Array, std: float) -> float:
    """The largest error, in total mass, of the interpolants of a density."""
    half = float(np.diff(edges).max()) / 2.0
    exponent = (_IMAGINARY * half / std) ** 2 / 2.0
    logs = exponent + (1 - NODES) * np.log(_RHO) + np.log(2.0 / (_RHO - 1.0))
    with np.errstate(over="ignore"):
        least = float(np.exp(logs).min())
    lebesgue = 1.0 + 2.0 * np.sqrt(NODES)
    return float(lebesgue * least * (edges[-1] - edges[0]) / (std * _ROOT_TWO_PI))
