"""BSA's formulas as they print them, in their symbols; slow, literal, independent.

L is the gradient sensitivity, sigma the noise of the averaged gradient, c the contraction.
"""

# ruff: noqa: E741  # l is theirs

import math

import numpy as np
from scipy.optimize import brentq
from scipy.stats import norm


def theorem_4_1(*, t, L, n, sigma):
    return L / (n * sigma) * math.sqrt(t)


def theorem_4_2(*, t, c, L, n, sigma):
    return math.sqrt((1 - c**t) / (1 + c**t) * (1 + c) / (1 - c)) * L / (n * sigma)


def theorem_4_3(*, L, n, sigma, eta, D):
    inside = 3 * L * D / (eta * n) + (L / n) ** 2 * math.ceil(D * n / (eta * L) - 1e-9)
    return math.sqrt(inside) / sigma


def theorem_c_7(*, t, L, n, sigma, eta, D):
    """The least over tau of what is paid for t - tau steps and for the diameter."""
    return min((L / n * math.sqrt(R) + D / (eta * math.sqrt(R))) / sigma for R in range(1, t + 1))


def theorem_4_4(*, E, L, b, sigma):
    return L / (b * sigma) * math.sqrt(E)


def theorem_4_5(*, E, c, l, L, b, sigma):
    late = (1 - c ** (l * (E - 1))) / (1 + c ** (l * (E - 1)))
    rest = c ** (2 * l - 2) * (1 - c**2) / (1 - c**l) ** 2 * late
    return L / (b * sigma) * math.sqrt(1 + rest)


def theorem_4_6(*, l, L, b, sigma, eta, D):
    whole = math.ceil(D * b / (eta * L) - 1e-9)
    inside = (L / b) ** 2 + 3 * L * D / (eta * b * l) + (L / b) ** 2 / l * whole
    return math.sqrt(inside) / sigma


def e_star_of_their_code(*, l, L_over_b, eta):
    """Multiplies (L/b)^2 and (L/b)^2/l k where Theorem 4.6 adds them; D = 1."""
    k = math.ceil(1 / (L_over_b * eta) - 1e-9)
    total = 3 * L_over_b / (eta * l) + L_over_b**2 * L_over_b**2 / l * k
    return math.ceil(total / L_over_b**2 - 1e-9)


def theorem_c_17(*, E, c, l, L, b, sigma):
    end = (1 - c ** (l * E)) / (1 + c ** (l * E))
    return L / (b * sigma) * math.sqrt(end * (1 - c**2) / (1 - c**l) ** 2)


def _limit(p, mu, count):
    """Lemma A.5 for C_p(G(mu)) composed `count` times."""
    inside = math.exp(mu**2) * norm.cdf(1.5 * mu) + 3 * norm.cdf(-0.5 * mu) - 2
    return math.sqrt(2 * inside * count) * p


def lemma_a_5(*, t, p, L, b, sigma):
    return _limit(p, L / (b * sigma), t)


def proposition_c_14(*, t, c, p, L, b, sigma):
    """The least over nu = t - tau, with the split alpha = beta = sqrt(2) of the first step."""
    r = L / (b * sigma)
    return min(
        math.hypot(2 * math.sqrt(2) * r * c ** (nu + 1) / (1 - c), _limit(p, 2 * r, nu))
        for nu in range(1, t + 1)
    )


def proposition_c_15(*, t, p, L, b, sigma, eta, D):
    r = L / (b * sigma)
    return min(
        math.hypot(math.sqrt(2 / nu) * D / (eta * sigma), _limit(p, 2 * math.sqrt(2) * r, nu))
        for nu in range(1, t + 1)
    )


def _gaussian_delta(epsilon, mu):
    return norm.cdf(-epsilon / mu + mu / 2) - np.exp(epsilon) * norm.cdf(-epsilon / mu - mu / 2)


def _losses_above(p, mu, t):
    """P(privacy loss > t) of C_p(G(mu)), from Proposition D.4's curve: delta - delta'."""
    s = np.abs(t)
    u = np.log((p - 1 + np.exp(s)) / p)
    slope = -np.exp(s) * norm.cdf(-u / mu - mu / 2)
    right = p * _gaussian_delta(u, mu) - slope
    return np.where(t > 0, right, 1 + np.exp(-s) * slope)


def composed_epsilon(delta, *, gaussian, sampled, cell=2e-3, reach=24.3):
    """Epsilon of G(gaussian) with C_p(G(mu)), each (p, mu) so many times; losses on a grid.

    inf where the losses do not fit.
    """
    if gaussian * (gaussian / 2 + 6) > reach / 2:
        return math.inf
    edges = cell * (np.arange(-round(reach / cell), round(reach / cell) + 2) - 0.5)
    total = np.zeros(edges.size - 1, complex) + 1
    for (p, mu), times in sampled:
        total = total * np.fft.fft(np.fft.ifftshift(-np.diff(_losses_above(p, mu, edges)))) ** times
    if gaussian > 0:
        tail = norm.sf((edges - gaussian**2 / 2) / gaussian)
        total = total * np.fft.fft(np.fft.ifftshift(-np.diff(tail)))
    masses = np.fft.fftshift(np.fft.ifft(total).real)
    losses = (edges[1:] + edges[:-1]) / 2

    def excess(epsilon):
        kept = losses > epsilon
        return float((masses[kept] * -np.expm1(epsilon - losses[kept])).sum()) - delta

    if excess(reach / 2) > 0:
        return math.inf
    return brentq(excess, 0.0, reach / 2) if excess(0.0) > 0 else 0.0


def theorem_4_9_plan(*, t, k, alpha, c, L, b, n, sigma):
    """G(2 alpha r (c^{k+1} - c^t)/(1 - c)), C_p(G(2 beta r)) and C_p(G(2 r))^k."""
    r, p = L / (b * sigma), b / n
    beta = 1 / math.sqrt(1 - 1 / alpha**2)
    early = 2 * alpha * r * (c ** (k + 1) - c**t) / (1 - c)
    return {
        "gaussian": max(early, 0.0),
        "sampled": [((p, 2 * beta * r), 1), ((p, 2 * r), k)],
    }


def theorem_c_13_plan(*, t, k, alpha, share, c, L, b, n, sigma):
    """Shifts of `share` eta L/b in k steps before the last; z_{t-1} is what they leave."""
    r, p, z = L / (b * sigma), b / n, 0.0
    for step in range(1, t):
        z = c * z + 1.0 - (share if step >= t - k else 0.0)
    beta = 1 / math.sqrt(1 - 1 / alpha**2)
    return {
        "gaussian": 2 * alpha * r * c * z,
        "sampled": [((p, 2 * beta * r), 1), ((p, 2 * share * r), k)],
    }


def theorem_4_10_plan(*, k, alpha, L, b, n, sigma, eta, D):
    r, p = L / (b * sigma), b / n
    beta = 1 / math.sqrt(1 - 1 / alpha**2)
    return {
        "gaussian": alpha * D / (eta * sigma * math.sqrt(k)),
        "sampled": [((p, 2 * beta * r), k)],
    }
