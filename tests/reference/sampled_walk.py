"""One-dimensional descent on sampled batches, exact to the resolution of a uniform grid.

x' = clip(slope x + drift + V shift + N(0, noise^2)), V = 1 with probability q, anew in every step:
the law after a step is a mixture of two kernels, so the batches need not be enumerated.
"""

import numpy as np
from scipy.special import ndtr


def _kernel(points, edges, slope, shift, noise):
    """Probabilities of moving from each point (a row) to each cell, the ends holding the rest."""
    centres = slope * points + shift
    heights = ndtr((edges[None, :] - centres[:, None]) / noise)
    heights[:, 0], heights[:, -1] = 0.0, 1.0
    return np.diff(heights, axis=1)


def sampled_pair(*, steps, slope, shifts, q, noise, low, high, cells, clip, drift=0.0):
    """The laws of the last iterate in two worlds, whose shifts when taking part are `shifts`.

    With `clip` the end cells are the atoms of the projection; else the range must hold all.
    """
    edges = np.linspace(low, high, cells + 1)
    points = (edges[:-1] + edges[1:]) / 2
    if clip:
        edges = np.concatenate([[-np.inf], edges, [np.inf]])
        points = np.concatenate([[low], points, [high]])
    still = _kernel(points, edges, slope, drift, noise)
    laws = []
    for shift in shifts:
        moved = still if shift == 0 else _kernel(points, edges, slope, drift + shift, noise)
        kernel = (1 - q) * still + q * moved
        law = np.zeros(points.size)
        law[np.argmin(np.abs(points))] = 1.0
        for _ in range(steps):
            law = law @ kernel
        laws.append(law)
    return laws


def renyi(p, q, order):
    """The larger direction; cells too light for floating point are left out, which lowers it."""
    values = []
    for a, b in ((p, q), (q, p)):
        held = (a > 1e-250) & (b > 1e-250)
        logs = order * np.log(a[held]) + (1 - order) * np.log(b[held])
        top = logs.max()
        values.append((top + np.log(np.exp(logs - top).sum())) / (order - 1))
    return max(values)


def hockey_stick(p, q, epsilon):
    """delta of two laws of cells, the larger direction."""
    growth = np.exp(epsilon)
    return max(np.maximum(p - growth * q, 0).sum(), np.maximum(q - growth * p, 0).sum())
