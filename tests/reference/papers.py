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


def ys_full_batch(*, alpha, S_g, lam, sigma, n, eta, K):
    """YS Theorem D.6 as inferred: each step composes half its noise, the other half shrinks."""
    total = 0.0
    for _ in range(K):
        composed = alpha * eta * S_g**2 / (2 * sigma**2 * n**2)
        total = (total + composed) * (1 - eta * lam / 2)
    return total


def cys_theorem_1(*, alpha, S_g, sigma, n, eta, K):
    return alpha * S_g**2 / (4 * sigma**2 * n**2) * eta * K


def cys_66(*, alpha, S_g, sigma, n, eta, K, c, gamma):
    """(66), for any log-Sobolev constant c and any gamma in (0, 1)."""
    factor = alpha * S_g**2 / (8 * gamma * (1 - gamma) * c * sigma**4 * n**2)
    return factor * (1 - math.exp(-2 * (1 - gamma) * sigma**2 * c * eta * K))


def cys_71(*, alpha, epsilon, L, beta, lam, n, d):
    """Theorem 4 for a Renyi target: noise variance, step size, number of steps, risk (74)."""
    variance, eta = 4 * alpha * L**2 / (lam * epsilon * n**2), lam / (2 * beta**2)
    K = math.ceil(2 * beta**2 / lam**2 * math.log(n**2 * epsilon / (alpha * d)))
    risk = 2 * beta * L**2 / lam**2 * math.exp(-lam * eta * K) + 2 * beta * d * variance / lam
    return variance, eta, K, risk


def at_conditions_of_2_12(alpha, q, sigma):
    """The two right-hand sides that an order of Lemma 2.12 may not exceed."""
    M = math.log(1 + 1 / (q * (alpha - 1)))
    return (
        M * sigma**2 / 2 - math.log(sigma**2),
        (M**2 * sigma**2 / 2 - math.log(5 * sigma**2))
        / (M + math.log(q * alpha) + 1 / (2 * sigma**2)),
    )


def at_by_iteration(*, alpha, sensitivities, noise, c=1.0, D=None):
    """AT Propositions 2.17 (D None), 3.2 (c = 1) and 5.6: the least over tau and a_t.

    x_t = c^{T-t} a_t; the sums of x from tau are at most D c^{T-tau} plus those of the
    sensitivities, with equality at T: the least energy is that of a convex minorant.
    """
    T, best = len(sensitivities), math.inf
    for tau in range(T) if D is not None else (0,):
        left = [c ** (T - t) * s for t, s in enumerate(sensitivities[tau:], tau + 1)]
        if D is not None:
            left[0] += D * c ** (T - tau)
        variances = [(c ** (T - t) * noise) ** 2 for t in range(tau + 1, T + 1)]
        best = min(best, _least_energy(left, variances))
    return alpha / 2 * best


def _least_energy(masses, variances):
    """The sum of (block mass)^2/(block variance) over the faces of the convex minorant."""
    blocks = []
    for mass, variance in zip(masses, variances, strict=True):
        blocks.append([mass, variance])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] >= blocks[-1][0] / blocks[-1][1]:
            mass_, variance_ = blocks.pop()
            blocks[-1][0] += mass_
            blocks[-1][1] += variance_
    return sum(mass**2 / variance for mass, variance in blocks)


def at_5_3(*, alpha, T, D, L, b, n, eta, sigma, c):
    """AT (5.3), with the larger direction: the least over tau and the split of the noise."""
    best = math.inf
    for share in np.linspace(0.01, 0.99, 99):
        z = b * sigma * math.sqrt(share) / (2 * L)
        one = sampled_gaussian(alpha, b / n, z, printed=False)
        for R in range(1, T + 1):
            rest = c ** (2 * R) * alpha * D**2 / (2 * eta**2 * sigma**2 * (1 - share))
            best = min(best, R * one + rest)
    return best


def cl_3_12(*, alpha, T, D, K, L, b, n, eta, sigma, c=None):
    """CL (19) with the larger direction, sqrt(beta), one beta for all steps, smooth losses.

    c is 1 + eta L unless losses are convex (1) or strongly convex (1 - eta m).
    """
    grows = 1 + eta * L * (b - 1) / b if c is None else c
    c = 1 + eta * L if c is None else c
    distances = [0.0]
    for _ in range(T - 1):
        z = distances[-1]
        distances.append(min(grows * z + 2 * eta * K / b, z + 2 * eta * K, D))
    best = T * sampled_gaussian(alpha, b / n, sigma * b / (2 * eta * K), printed=False)
    for beta in np.linspace(0.01, 0.99, 99):
        z = math.sqrt(beta) * sigma * b / (2 * eta * K)
        one = sampled_gaussian(alpha, b / n, z, printed=False)
        for tau in range(T):
            weight = sum(c ** (-2 * i) for i in range(1, T - tau + 1))
            rest = alpha * distances[tau] ** 2 / weight / (2 * sigma**2 * (1 - beta))
            best = min(best, (T - tau) * one + rest)
    return best


def balle_theorem_5(i, *, alpha, n, C, sigma, eta, beta, rho):
    """Balle et al. 2019, one pass of n steps: the i-th of 1..n examples."""
    if i == n:
        return alpha * 2 * C**2 / sigma**2
    shrinks = (1 - 2 * eta * beta * rho / (beta + rho)) ** ((n - i + 1) / 2)
    return alpha * 2 * C**2 / ((n - i) * sigma**2) * shrinks
