"""The papers' formulas as they print them, in their own symbols; slow, literal, independent."""

import math

import numpy as np
from scipy.integrate import quad


def ys_naive(*, alpha, S_g, lam, sigma, b, eta, K):
    """YS Theorem 2.1."""
    return alpha * S_g**2 / (lam * sigma**2 * b**2) * (1 - math.exp(-lam * eta * K / 2))


def ys_eps0(j, *, alpha, eta, S_g, sigma, b, lam):
    """YS Theorem 3.3's epsilon_0^j."""
    c = 1 - eta * lam
    one = alpha * eta * S_g**2 / (4 * sigma**2 * b**2)
    return one * c ** (2 * (j - 1)) / sum(c ** (2 * s) for s in range(j))


def _ys_first(*, n, K, eta, lam, b, **symbols):
    c, half = 1 - eta * lam, n // b // 2
    rest = n // b - half
    geometric = sum(c ** (2 * rest * k) for k in range(K - 1))
    return ys_eps0(half, eta=eta, lam=lam, b=b, **symbols) * geometric


def ys_fixed_order(j0, *, n, K, **symbols):
    """YS Theorem 3.3 for batch j0."""
    last = ys_eps0(n // symbols["b"] - j0, **symbols)
    return _ys_first(n=n, K=K, **symbols) + last


def ys_shuffled(*, n, K, **symbols):
    """YS Theorem 4.2; overflows where they say it might."""
    alpha, length = symbols["alpha"], n // symbols["b"]
    terms = [math.exp((alpha - 1) * ys_eps0(length - j, **symbols)) for j in range(length)]
    return _ys_first(n=n, K=K, **symbols) + math.log(sum(terms) / length) / (alpha - 1)


def ys_sampled(*, alpha, n, K, eta, lam, S_g, sigma, b):
    """YS Theorem 4.3."""
    S, q = 1.0, b / n
    for _ in range(K * (n // b)):
        jump = math.exp((alpha - 1) * alpha * eta * S_g**2 / (4 * sigma**2 * b**2))
        S = q * jump * S + (1 - q) * S ** ((1 - eta * lam) ** 2)
    return math.log(S) / (alpha - 1)


def cys_corollary_1(*, alpha, S_g, lam, sigma, n, eta, K):
    return alpha * S_g**2 / (lam * sigma**2 * n**2) * (1 - math.exp(-lam * eta * K / 2))


def cys_corollary_2(*, alpha, S_g, sigma, n, eta, K):
    """Squared loss of curvature 1."""
    limit = alpha * S_g**2 / ((2 - eta) * sigma**2 * n**2)
    return limit * (1 - math.exp(-(2 - eta) / 2 * eta * K))


def cys_theorem_3(*, alpha, S_g, sigma, n, eta, K):
    """The lower bound, with n^2 where eta^2 is printed."""
    return alpha * S_g**2 / (4 * sigma**2 * n**2) * (1 - math.exp(-eta * K))


def cys_exact(*, alpha, S_g, sigma, n, eta, K):
    """What the proof of Theorem 3 computes before its last step."""
    c = (1 - eta) ** K
    return alpha * S_g**2 / (4 * sigma**2 * n**2) * (2 - eta) / (1 + c) * (1 - c)


def sampled_gaussian(alpha, q, sigma, *, printed):
    """D_alpha(N(0) || mixture) as AT 2.10 and CL 3.11 print it, or the other direction."""

    def log_densities(x):
        zero = -(x**2) / (2 * sigma**2)
        one = -((x - 1) ** 2) / (2 * sigma**2)
        return zero, np.logaddexp(math.log1p(-q) + zero, math.log(q) + one)

    def integrand(x):
        zero, mixed = log_densities(x)
        p, r = (zero, mixed) if printed else (mixed, zero)
        return math.exp(alpha * p + (1 - alpha) * r)

    reach = 1 + alpha + 14 * sigma * math.sqrt(1 + alpha)
    total, _ = quad(integrand, -reach, reach, limit=400, points=[0.0, 1.0, float(alpha)])
    return math.log(total / (sigma * math.sqrt(2 * math.pi))) / (alpha - 1)


def at_3_6(*, alpha, T, D, L, b, n, eta, sigma, printed, split=None):
    """AT (3.6): the least over tau and, unless given, the split of the noise."""
    splits = np.linspace(0.02, 0.98, 49) if split is None else [split]
    best = math.inf
    for share in splits:
        one = sampled_gaussian(
            alpha, b / n, b * sigma * math.sqrt(share) / (2 * L), printed=printed
        )
        for R in range(1, T + 1):
            rest = alpha * D**2 / (2 * eta**2 * sigma**2 * (1 - share) * R)
            best = min(best, R * one + rest)
    return best
