"""The largest mu of Gaussian instances whose steps keep from `low` to `high` of earlier noise.

All examples share a loss whose curvature changes from step to step; the differing one adds a
constant to its gradient.  The last iterates of the two data sets are then Gaussian, and their
distance is sum w_k s_k / |(n_k w_k)|, with low_k w_k <= w_(k-1) <= high_k w_k: the length of the
projection of s/n onto a cone, by non-negative least squares.
"""

import numpy as np
from scipy.optimize import nnls


def largest_mu(sensitivities, noise, low, high):
    """mu of the best instance in the cone; `low` and `high` are of each step."""
    s, n = np.asarray(sensitivities, dtype=float), np.asarray(noise, dtype=float)
    count = s.size
    rows = [np.eye(count)[-1]]
    for k in range(1, count):
        for sign, factor in ((1.0, high[k]), (-1.0, low[k])):
            row = np.zeros(count)
            row[k - 1], row[k] = -sign / n[k - 1], sign * factor / n[k]
            rows.append(row / np.linalg.norm(row))
    faces = np.array(rows)
    multipliers, _ = nnls(faces.T, -s / n, maxiter=20_000)
    weights = (s / n + faces.T @ multipliers) / n
    # Rounding may leave the cone: the instance must not.
    for k in range(count - 1, 0, -1):
        weights[k - 1] = np.clip(weights[k - 1], low[k] * weights[k], high[k] * weights[k])
    spread = float(np.linalg.norm(n * weights))
    return float(s @ weights) / spread if spread > 0.0 else 0.0
