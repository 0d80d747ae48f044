"""The shift problem by general-purpose solvers.

A shift z_k travels by y_k = W_k(z_{k-1}), is paid down by a_k at the price (a_k / n_k)^2, is cut
at the diameter D, and must be 0 at the end: mu^2 is the least total price.  In parameter space:
shifts, noise and diameter have the units of the iterate.
"""

import numpy as np
from scipy.optimize import minimize, nnls


def forward_distances(*, contractions, shifts, start=0.0, diameter=np.inf):
    """z_0, .., z_T when nothing is paid."""
    z = [min(start, diameter)]
    for c, s in zip(contractions, shifts, strict=True):
        z.append(min(c * z[-1] + s, diameter))
    return np.array(z)


def _least_energy_from(z, c, s, n):
    """min sum (a/n)^2, z_k = c_k z_{k-1} + s_k - a_k >= 0, z_T = 0, a >= 0, from z_0 = z."""
    # The response of every z_k to a unit payment at every step, and the unpaid path.
    response, unpaid = np.zeros((len(c), len(c))), np.zeros(len(c))
    row, path = np.zeros(len(c)), z
    for k in range(len(c)):
        row, path = c[k] * row, c[k] * path + s[k]
        row[k] = 1.0
        response[k], unpaid[k] = row, path
    if unpaid[-1] == 0:
        return 0.0
    live = np.flatnonzero(unpaid > 0)
    matrix = (response * n)[np.ix_(live, live)] / unpaid[live, None]
    # In u = a / (n size) the price is |u|^2, and z_T = 0 reads <matrix[-1], u> = 1.  Asking for
    # >= 1 is enough: a plan that pays less is cheaper.
    size = 1 / np.linalg.norm(matrix[-1])
    matrix *= size
    rows = np.concatenate([matrix[-1:], -matrix[:-1], np.eye(len(live))])
    right = np.concatenate([[1.0], -np.ones(len(live) - 1), np.zeros(len(live))])
    return _least_norm_squared(rows, right) * size**2


def _least_norm_squared(rows, right):
    """min |u|^2 subject to rows u >= right: Lawson and Hanson's least distance programme."""
    norms = np.linalg.norm(rows, axis=1)
    rows, right = rows / norms[:, None], right / norms
    dual = np.concatenate([rows.T, right[None]])
    target = np.eye(len(dual))[-1]
    residual = dual @ nnls(dual, target, maxiter=10_000)[0] - target
    u = -residual[:-1] / residual[-1]
    violation = (right - rows @ u).max()
    if not violation < 1e-9:
        raise ArithmeticError(f"the solver left a violation of {violation:.1e}")
    return float(u @ u)


def gdp_of_linear_shifts(*, contractions, shifts, noise_stds, start=0.0, diameter=np.inf):
    """mu for W_k(z) = c_k z + s_k, the least over every time at which payment may start.

    Starting at tau means paying nothing before, hence the forward distance, at most D, there.
    """
    c, s, n = (np.asarray(x, float) for x in (contractions, shifts, noise_stds))
    z = forward_distances(contractions=c, shifts=s, start=start, diameter=diameter)
    starts = range(len(c)) if np.isfinite(diameter) else [0]
    return min(_least_energy_from(z[k], c[k:], s[k:], n[k:]) for k in starts) ** 0.5


def gdp_of_concave_shifts_bracket(*, moduli, noise_stds, start=0.0, diameter=np.inf, points=1000):
    """(lower, upper) around mu for non-decreasing moduli W_k, by dynamic programming on a grid.

    Upper: the next z is rounded up to the grid, so the plan is feasible.  Lower: z is rounded
    down, and a payment is charged as if it had reached the top of the cell it lands in.
    Both converge as points grows: the upper quadratically, the lower linearly.
    """
    path = [min(start, diameter)]
    for W in moduli:
        path.append(min(float(W(np.array([path[-1]]))[0]), diameter))
    top = max(path)
    if top == 0:
        return 0.0, 0.0
    z = np.linspace(0.0, top, points)
    cell = z[1]
    low = high = np.where(z == 0, 0.0, np.inf)
    for k in reversed(range(len(moduli))):
        y = moduli[k](z)[:, None]
        landed = np.append(z[1:], top)[None, :] if k < len(moduli) - 1 else z[None, :]
        below = np.maximum(y - landed, 0.0)
        above = np.maximum(y - z[None, :], 0.0)
        # At the diameter, and beyond every reachable z, the cut is free.
        below[:, -1] = above[:, -1] = 0.0
        below[z[None, :] > y] = above[z[None, :] - cell >= y] = np.inf
        low = ((below / noise_stds[k]) ** 2 + low).min(axis=1)
        high = ((above / noise_stds[k]) ** 2 + high).min(axis=1)
    position = min(path[0] / cell, points - 1)
    return float(low[int(np.floor(position))]) ** 0.5, float(high[int(np.ceil(position))]) ** 0.5


def gdp_of_linear_shifts_by_slsqp(*, contractions, shifts, noise_stds, start=0.0, diameter=np.inf):
    """The same by sequential quadratic programming: slower, and accurate to about 1e-7."""
    forward = forward_distances(
        contractions=contractions, shifts=shifts, start=start, diameter=diameter
    )
    energies = []
    for tau in range(len(contractions)):
        if tau == 0 or forward[tau] >= diameter:
            c, s, n = contractions[tau:], shifts[tau:], noise_stds[tau:]
            energies.append(_least_energy_by_slsqp(forward[tau], c, s, n))
    return np.sqrt(min(energies))


def _least_energy_by_slsqp(z, c, s, n):
    # In final units, arrivals m and payments u sqrt(v): the price is |u|^2.
    unit = np.append(np.cumprod(c[:0:-1])[::-1], 1.0)
    m, root = unit * s, unit * n
    m[0] += z * c[0] * unit[0]
    owed = np.cumsum(m[::-1])[::-1]
    live = np.flatnonzero(owed > 0)
    if not live.size:
        return 0.0
    size = (m / root).max()
    rows = np.triu(np.ones((len(m), len(m))))[live] * root * size / owed[live, None]
    result = minimize(
        lambda u: u @ u,
        m / root / size,
        jac=lambda u: 2 * u,
        bounds=[(0, None)] * len(m),
        constraints={"type": "ineq", "fun": lambda u: rows @ u - 1, "jac": lambda u: rows},
        method="SLSQP",
        options={"maxiter": 1000, "ftol": 1e-14},
    )
    return result.fun * size**2
