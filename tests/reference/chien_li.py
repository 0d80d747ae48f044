"""CL Theorems 3.1 and 3.7 as their own optimisation problems, solved numerically.

CL's symbols: T steps, step size eta, clip norm K, n examples, noise sigma added to the iterate,
diameter D, L-smooth or (L, lam)-Hoelder gradients.  The result is mu = sqrt(2 eps(alpha)/alpha).
"""

import numpy as np
from scipy.optimize import brentq, minimize


def contraction_nonconvex(*, eta, L):
    """c = 1 + eta L; 1 if convex with eta <= 2/L; 1 - eta m if m-strongly with eta <= 1/L."""
    return 1 + eta * L


def _log_weights(c, count):
    """log of c^{-2 (t - tau + 1)}, t = tau..T-1."""
    return -2 * np.log(c) * np.arange(1, count + 1)


def _least_over_beta(s, distance, c, count):
    """min over beta in [0, 1]^count of sum s^2/beta_t + distance^2 / sum (1 - beta_t) w_t.

    Convex.  Stationarity is beta_t = min(1, x / sqrt(w_t)) with x = (s/distance) sum (1-beta) w,
    whose right side decreases in x: one root.
    """
    if distance == 0:
        return count * s**2
    log_w = _log_weights(c, count)
    top = log_w.max()
    w, distance = np.exp(log_w - top), distance * np.exp(-top / 2)

    def beta(x):
        return np.minimum(1.0, x / np.sqrt(w))

    def gap(x):
        return (s / distance) * ((1 - beta(x)) * w).sum() - x

    x = brentq(gap, 0.0, 1.0, xtol=1e-300, rtol=1e-15)
    # The sum of (1 - beta) w is x distance / s there, and loses its digits as beta nears 1.
    return (s**2 / beta(x)).sum() + distance * s / x


def gdp_smooth(*, T, eta, K, n, sigma, D, c):
    """Theorem 3.1, the minimum over every tau in 0..T-1."""
    s, values = 2 * eta * K / n, []
    for tau in range(T):
        distance = min(s * (c ** np.arange(tau)).sum(), 2 * eta * K * tau, D)
        values.append(_least_over_beta(s, distance, c, T - tau))
    return float(np.sqrt(min(values)) / sigma)


def _inverse(eta_L, lam):
    """h, the inverse of g(x) = x + eta L x^lam, and its derivative."""

    def h(z):
        if z <= 0:
            return 0.0, 0.0 if lam < 1 else 1 / (1 + eta_L)
        if lam == 1:
            return z / (1 + eta_L), 1 / (1 + eta_L)
        if lam == 0.5:
            root = 2 * z / (eta_L + np.sqrt(eta_L**2 + 4 * z))
            x = root * root
        else:
            x, previous = 0.5 ** (1 / lam) * min(z, (z / eta_L) ** (1 / lam)), -1.0
            # g is concave and g(x) <= z at this start, so Newton's steps increase to the root.
            while x > max(previous, 0.0):
                previous = x
                x += (z - x - eta_L * x**lam) / (1 + eta_L * lam * x ** (lam - 1))
        return x, 1 / (1 + eta_L * lam * x ** (lam - 1)) if x > 0 else 0.0

    return h


def _accumulated(a, h):
    """A_tau from A_T = 0, A_{t-1} = h(A_t + a_{t-1}), and its gradient in a."""
    A, gradient = 0.0, np.zeros(len(a))
    for t in reversed(range(len(a))):
        A, slope = h(A + a[t])
        gradient[t] = 1.0
        gradient[t:] *= slope
    return A, gradient


def _cost(a, s):
    """sum s^2/beta_t + a_t^2/(1-beta_t) at the best beta_t = s/(s + a_t)."""
    beta = s / (s + a)
    rest = np.where(a > 0, a, 1.0) / (s + np.where(a > 0, a, 1.0))
    return (s**2 / beta + np.where(a > 0, a**2 / rest, 0.0)).sum()


def _least_over_shifts(s, distance, h, count, starts, rng):
    """min over a >= 0 with A_tau >= distance; not convex, hence several starts."""
    if distance == 0:
        return count * s**2
    profiles = [np.ones(count), np.arange(1.0, count + 1), np.eye(count)[0], np.eye(count)[-1]]
    profiles += [rng.exponential(size=count) for _ in range(starts)]
    values = []
    for profile in profiles:
        scale = distance / profile.sum()
        while _accumulated(scale * profile, h)[0] < distance:
            scale *= 2
        crossing = brentq(
            lambda x, p=profile: _accumulated(x * p, h)[0] - distance, 0.0, scale, rtol=1e-15
        )
        first = crossing * (1 + 1e-12) * profile
        values.append(_cost(first, s))
        unit = s + first.mean()
        found = minimize(
            lambda u, unit=unit: 0.5 * ((s / unit + u) ** 2).sum(),
            first / unit,
            jac=lambda u, unit=unit: s / unit + u,
            method="SLSQP",
            bounds=[(0, None)] * count,
            constraints={
                "type": "ineq",
                "fun": lambda u, unit=unit: _accumulated(u * unit, h)[0] / distance - 1,
                "jac": lambda u, unit=unit: _accumulated(u * unit, h)[1] * unit / distance,
            },
            options={"maxiter": 200, "ftol": 1e-15},
        )
        a = np.maximum(found.x, 0) * unit
        if _accumulated(a, h)[0] >= distance * (1 - 1e-9):
            values.append(_cost(a, s))
    return min(values)


def gdp_hoelder(*, T, eta, K, n, sigma, D, L, lam, starts=2, seed=0):
    """Theorem 3.7, the minimum over every tau in 0..T-1; for T up to about 25."""
    s, h, rng = 2 * eta * K / n, _inverse(eta * L, lam), np.random.default_rng(seed)
    values, distance = [], 0.0
    for tau in range(T):
        values.append(_least_over_shifts(s, distance, h, T - tau, starts, rng))
        grown = distance + eta * L * distance**lam + s
        distance = min(grown, distance + 2 * eta * K, D)
    return float(np.sqrt(min(values)) / sigma)


def forward_distances(pattern, *, eta, K, b, D, L, lam):
    """Lemma A.2, with the projection's D: W_inf(W_t, W_t') for t = 0..T-1."""
    distances = [0.0]
    met = False
    for t, seen in enumerate(pattern[:-1]):
        before = distances[t]
        if seen and not met:
            after, met = 2 * eta * K / b, True
        elif seen:
            grown = before + eta * L * (b - 1) / b * before**lam + 2 * eta * K / b
            after = min(grown, before + 2 * eta * K)
        elif met:
            after = min(before + eta * L * before**lam, before + 2 * eta * K)
        else:
            after = 0.0
        distances.append(min(after, D))
    return distances


def energy_of_order(pattern, *, eta, K, b, D, L, lam=1.0, starts=2, seed=0):
    """Theorem A.1 for one order: sigma^2 2 epsilon(alpha)/alpha, the minimum over every tau.

    pattern[t] says whether the example is in batch t.
    """
    rng, h = np.random.default_rng(seed), _inverse(eta * L, lam)
    D_t = forward_distances(pattern, eta=eta, K=K, b=b, D=D, L=L, lam=lam)
    values = []
    for tau in range(len(pattern)):
        s = 2 * eta * K / b * np.asarray(pattern[tau:], dtype=float)
        if D_t[tau] == 0:
            values.append((s**2).sum())  # a = 0, beta = 1
        elif lam == 1:
            values.append(_water_filling(s, D_t[tau], 1 + eta * L))
        else:
            values.append(_least_of_pattern(s, D_t[tau], h, starts, rng))
    return min(values)


def _water_filling(s, distance, c):
    """min of sum (s + a)^2, a >= 0, sum a_i c^-i >= distance: s + a = max(s, x c^-i)."""
    weights = c ** -np.arange(1.0, len(s) + 1)
    low, high = 0.0, (distance + (weights * s).sum()) / weights[-1] ** 2 + s.max() / weights[-1]
    for _ in range(300):
        x = (low + high) / 2
        enough = (weights * np.maximum(x * weights - s, 0)).sum() >= distance
        low, high = (low, x) if enough else (x, high)
    return (np.maximum(high * weights, s) ** 2).sum()


def _least_of_pattern(s, distance, h, starts, rng):
    """The same without a closed form: at the best beta = s/(s + a) the cost is sum (s + a)^2."""
    count, values = len(s), []
    profiles = [np.ones(count), np.arange(1.0, count + 1), 1.0 * (s == 0) + 0.01]
    profiles += [rng.exponential(size=count) for _ in range(starts)]
    for profile in profiles:
        scale = distance / profile.sum()
        while _accumulated(scale * profile, h)[0] < distance:
            scale *= 2
        found = minimize(
            lambda a: ((s + a) ** 2).sum(),
            scale * profile,
            jac=lambda a: 2 * (s + a),
            method="SLSQP",
            bounds=[(0, None)] * count,
            constraints={
                "type": "ineq",
                "fun": lambda a: _accumulated(a, h)[0] - distance,
                "jac": lambda a: _accumulated(a, h)[1],
            },
            options={"maxiter": 300, "ftol": 1e-15},
        )
        a = np.maximum(found.x, 0)
        if _accumulated(a, h)[0] >= distance * (1 - 1e-9):
            values.append(((s + a) ** 2).sum())
    return min(values)


def renyi_of_orders(alpha, energies, sigma):
    """Corollary A.3: orders are alike probable."""
    exponents = (alpha - 1) * alpha * np.asarray(energies) / (2 * sigma**2)
    top = exponents.max()
    return (top + np.log(np.mean(np.exp(exponents - top)))) / (alpha - 1)
