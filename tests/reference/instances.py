"""One-dimensional pairs of noisy iterations: piecewise-linear maps, noise, projection.

x_k = clip(phi_k(x_{k-1}) + N(0, n_k^2)) in one world, phi'_k in the other; both start at x_0.
Everything is in parameter space: slopes are 1 - eta f'', shifts are eta L / b.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class PiecewiseLinear:
    """The continuous map through (knots, values), with the given slopes outside the knots."""

    knots: tuple
    values: tuple
    left_slope: float
    right_slope: float

    def __call__(self, x):
        xs, ys = np.asarray(self.knots, float), np.asarray(self.values, float)
        inside = np.interp(x, xs, ys)
        left, right = np.minimum(x - xs[0], 0.0), np.maximum(x - xs[-1], 0.0)
        return inside + self.left_slope * left + self.right_slope * right

    def slopes(self):
        """The slope of every piece, from left to right."""
        inside = np.diff(self.values) / np.diff(self.knots)
        return np.concatenate([[self.left_slope], inside, [self.right_slope]])


@dataclass(frozen=True)
class Step:
    """One update in both worlds; `clip` is the interval projected on, or None."""

    phi: PiecewiseLinear
    phi_other: PiecewiseLinear
    noise_std: float
    clip: tuple | None = None


@dataclass(frozen=True)
class Instance:
    """A start and its steps; the release noise is followed by the last step's projection."""

    start: float
    steps: tuple
    release_noise_std: float = 0.0

    def noisy_steps(self):
        """The steps, the release included as a step with the identity map."""
        if self.release_noise_std == 0:
            return self.steps
        identity = PiecewiseLinear((0.0,), (0.0,), 1.0, 1.0)
        last = Step(identity, identity, self.release_noise_std, self.steps[-1].clip)
        return (*self.steps, last)


def linear_map(slope, offset=0.0):
    """x -> slope x + offset."""
    return PiecewiseLinear((0.0,), (float(offset),), float(slope), float(slope))


def _map_from_slopes(knots, slopes, centre):
    """The map with the given knots and slopes that sends the centre, or a knot, to the centre."""
    values = np.concatenate([[0.0], np.cumsum(slopes[1:-1] * np.diff(knots))])
    values += centre - np.interp(centre, knots, values)
    return PiecewiseLinear(tuple(knots), tuple(values), float(slopes[0]), float(slopes[-1]))


def _moved(phi, start, slope_range, sensitivity, rng):
    """phi + d with d(left) = start, |d| <= sensitivity, every slope of phi + d in the range."""
    gaps, slopes = np.diff(phi.knots), phi.slopes()[1:-1]
    shift = [start]
    for gap, slope in zip(gaps, slopes, strict=True):
        change = (rng.uniform(*slope_range) - slope) * gap
        # Moving d only part of the way to an admissible value keeps the slope admissible.
        shift.append(float(np.clip(shift[-1] + change, -sensitivity, sensitivity)))
    values = tuple(np.asarray(phi.values) + shift)
    return PiecewiseLinear(phi.knots, values, phi.left_slope, phi.right_slope)


def random_instance(
    rng,
    *,
    steps,
    slope_low,
    slope_high,
    sensitivity,
    participations,
    noise_std,
    domain=None,
    release_noise_std=0.0,
    kind=None,
):
    """A pair with slopes in [slope_low, slope_high] and |phi' - phi| <= sensitivity.

    participations: the step numbers (1..steps) at which phi' differs from phi.
    sensitivity, noise_std: numbers, or sequences of length steps.
    domain: (low, high) or None.  kind: "linear" (the extreme slope everywhere, shifts of one
    sense), "near" (the same where the mass is, other slopes outside) or "wild"; random if None.
    """
    kind = kind or rng.choice(["linear", "near", "wild"])
    sensitivities = np.broadcast_to(np.asarray(sensitivity, float), steps)
    noise_stds = np.broadcast_to(np.asarray(noise_std, float), steps)
    participations = set(participations)
    chosen = [k in participations for k in range(1, steps + 1)]
    slope_range = (slope_low, slope_high)
    extreme = max(slope_range, key=abs)
    reach = sensitivities[chosen].sum() + 3 * np.sqrt((noise_stds**2).sum())
    middle = 0.0 if domain is None else sum(domain) / 2
    # Where each world starts from its side of the middle, a bounded domain binds latest.
    balance = rng.choice([0.0, 0.5])

    sense, made = rng.choice([-1.0, 1.0]), []
    for s, n, differs in zip(sensitivities, noise_stds, chosen, strict=True):
        sense *= np.sign(extreme) or 1.0
        knots = middle + np.array([-reach, reach])
        slopes = np.full(3, float(extreme))
        if kind == "near":
            slopes[[0, -1]] = rng.choice([slope_low, rng.uniform(*slope_range)], 2)
        if kind == "wild":
            knots = middle + np.sort(rng.uniform(-reach, reach, rng.integers(2, 6)))
            slopes = rng.choice([slope_low, slope_high, rng.uniform(*slope_range)], len(knots) + 1)
            slopes[rng.permutation(len(slopes))[:2]] = slope_range
        phi = _map_from_slopes(knots, slopes, middle)
        if not differs:
            made.append(Step(phi, phi, float(n), domain))
            continue
        base = _shifted(phi, -sense * balance * s)
        if kind == "wild" and rng.random() < 0.5:
            other = _moved(base, rng.uniform(-s, s), slope_range, s, rng)
        else:
            other = _shifted(base, sense * s)
        made.append(Step(base, other, float(n), domain))
    return Instance(middle, tuple(made), release_noise_std)


def _shifted(phi, amount):
    values = tuple(np.asarray(phi.values) + amount)
    return PiecewiseLinear(phi.knots, values, phi.left_slope, phi.right_slope)
