"""Exact privacy of one-dimensional pairs, by pushing both laws through every step.

A law is a set of weighted points: Gauss-Legendre nodes on panels, with weight x density, and the
atoms that projection leaves at the ends of the domain.  Panel edges include every kink of the
next maps, and a panel is no wider than the Gaussians it has to resolve, so the quadrature error
is at rounding level.  Panels holding less than `lost_mass` under both laws are dropped; the
domain of an unbounded law is therefore truncated, at a cost below 1e-14 in total mass.
"""

from dataclasses import replace
from itertools import pairwise

import numpy as np
from scipy.special import ndtr

from .pair import Pair, gauss_legendre


def _panels(low, high, kinks, width):
    """Left ends and lengths of panels covering [low, high], split at the kinks."""
    cuts = np.unique([low, high, *(x for x in kinks if low < x < high)])
    edges = [np.linspace(a, b, int(np.ceil((b - a) / width)) + 1)[:-1] for a, b in pairwise(cuts)]
    edges = np.concatenate([*edges, cuts[-1:]])
    return edges[:-1], np.diff(edges)


def _density(y, centres, masses, std):
    """Densities at y of the Gaussian mixtures with the same centres; one column per law."""
    z = np.subtract.outer(y / std, centres / std)
    np.multiply(z, z, out=z)
    z *= -0.5
    return np.exp(z, out=z) @ masses / (std * np.sqrt(2 * np.pi))


def _after(law, step, y):
    """Densities at y, and the atoms below and above the clip, under both worlds."""
    points, masses = law
    images = [step.phi(points), step.phi_other(points)]
    if step.phi is step.phi_other or step.phi == step.phi_other:
        density = _density(y, images[0], masses, step.noise_std)
    else:
        columns = [_density(y, images[i], masses[:, i], step.noise_std) for i in (0, 1)]
        density = np.stack(columns, axis=1)
    low, high = step.clip or (-np.inf, np.inf)
    below = [ndtr((low - images[i]) / step.noise_std) @ masses[:, i] for i in (0, 1)]
    above = [ndtr((images[i] - high) / step.noise_std) @ masses[:, i] for i in (0, 1)]
    return density, np.array([below, above])


def _range_after(law, step, lost_mass):
    reach = step.noise_std * np.sqrt(-2 * np.log(lost_mass))
    images = np.concatenate([step.phi(law[0]), step.phi_other(law[0])])
    low, high = images.min() - reach, images.max() + reach
    if step.clip is not None:
        low, high = np.clip([low, high], *step.clip)
    return low, high


def _law_before_last(instance, width, lost_mass):
    """The pair of laws of the last iterate but one, and the last step."""
    steps = instance.noisy_steps()
    law = np.array([instance.start], float), np.ones((1, 2))
    nodes, weights = gauss_legendre()
    for step, following in pairwise(steps):
        maps = (following.phi, following.phi_other)
        steepest = max(np.abs(phi.slopes()).max() for phi in maps)
        scale = min(step.noise_std, following.noise_std / max(steepest, 1e-3))
        low, high = _range_after(law, step, lost_mass)
        kinks = [x for phi in maps for x in phi.knots]
        left, length = _panels(low, high, kinks, width * scale)
        y = left[:, None] + length[:, None] * (nodes + 1) / 2
        density, atoms = _after(law, step, y.ravel())
        masses = (length[:, None] * weights / 2)[..., None] * density.reshape(*y.shape, 2)
        held = np.flatnonzero(masses.sum(axis=1).max(axis=1) > lost_mass)
        kept = slice(held[0], held[-1] + 1) if len(held) else slice(0)
        points, masses = y[kept].ravel(), masses[kept].reshape(-1, 2)
        if step.clip is not None:
            points, masses = np.append(points, step.clip), np.concatenate([masses, atoms])
        law = points, masses
    return law, steps[-1]


def _pair(mixture, width, lost_mass):
    parts = [(weight, *_law_before_last(one, width, lost_mass)) for weight, one in mixture]
    if len({step.clip for _, _, step in parts}) > 1:
        raise ValueError("the components of a mixture must end with the same projection")
    ranges = [_range_after(law, step, lost_mass) for _, law, step in parts]
    scale = min(step.noise_std for _, _, step in parts)
    low, high = min(r[0] for r in ranges), max(r[1] for r in ranges)
    left, length = _panels(low, high, [], width * scale / 4)
    y = left[:, None] + length[:, None] * (gauss_legendre()[0] + 1) / 2
    density, atoms = np.zeros((y.size, 2)), np.zeros((2, 2))
    for weight, law, step in parts:
        part, ends = _after(law, step, y.ravel())
        density, atoms = density + weight * part, atoms + weight * ends
    return Pair(length, density.reshape(*y.shape, 2), atoms, lost_mass / scale)


def exact_pair(mixture, *, width=2.0, lost_mass=1e-18):
    """The pair of laws of the last iterate of an instance, or of [(weight, instance), ..].

    `error` is the defect of the total mass plus the largest change of delta(0), delta(1/2) and
    delta(2) when panels are 1.5 times wider.
    """
    if not isinstance(mixture, list):
        mixture = [(1.0, mixture)]
    fine, coarse = _pair(mixture, width, lost_mass), _pair(mixture, 1.5 * width, lost_mass)
    change = max(abs(fine.delta(e) - coarse.delta(e)) for e in (0.0, 0.5, 2.0))
    return replace(fine, error=fine.mass_defect() + change)
