"""Losses on the line that are flat, then curved, then flat again; literal steps on them."""

import numpy as np


def gradient(x, *, bound, curvature, kink, end):
    """-bound up to the kink, rising from there to the end, and constant beyond."""
    return -bound + curvature * (np.clip(x, kink, end) - kink)


def batch_gradient(x, *, own, share, others, penalty):
    """Of a batch in which the example, of gradient `own`, has this share."""
    return share * own + (1.0 - share) * others(x) + penalty * x


def last_densities(*, start, moves, deviations, width=9.0, cells=40):
    """The grid and density of the last iterate: each move is a map, followed by Gaussian noise."""
    at, weights = np.array([start]), np.ones(1)
    for move, deviation in zip(moves, deviations, strict=True):
        to = move(at)
        heavy = to[weights > 1e-18 * weights.max()]
        grid = np.arange(
            heavy.min() - width * deviation, heavy.max() + width * deviation, deviation / cells
        )
        kernel = np.exp(-(((grid[:, None] - to) / deviation) ** 2) / 2.0)
        density = kernel @ weights / (deviation * np.sqrt(2.0 * np.pi))
        at, weights = grid, density * (grid[1] - grid[0])
    return at, weights


def hockey_stick(ours, theirs, epsilon):
    """Of two pairs (grid, weights), on the grid of the first; weights are of equal spacing."""
    (grid, mine), (other, his) = ours, theirs
    spacing, other_spacing = grid[1] - grid[0], other[1] - other[0]
    his = np.interp(grid, other, his / other_spacing, left=0.0, right=0.0) * spacing
    return float(np.maximum(mine - np.exp(epsilon) * his, 0.0).sum())


def torch_sgd(start, gradient_of, *, steps, lr, momentum, dampening, nesterov, average=None):
    """The parameters after the loop of torch.optim.SGD, noise left to `gradient_of(k, x)`."""
    x, buffer, mean = start, None, None
    for k in range(steps):
        g = gradient_of(k, x)
        if momentum:
            buffer = g if buffer is None else momentum * buffer + (1.0 - dampening) * g
            g = g + momentum * buffer if nesterov else buffer
        x = x - lr * g
        if average is not None:
            mean = x if mean is None else average * mean + (1.0 - average) * x
    return x if average is None else mean
