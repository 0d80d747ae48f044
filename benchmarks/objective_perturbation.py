r"""Objective perturbation with Gaussian noise, for two classes.

Published is the exact minimum of
:math:`\sum_i \ell_i(w) + \tfrac\lambda2|w|^2 + \langle b, w\rangle` with b from
:math:`N(0, \sigma^2 I)`.

Kifer, Smith and Thakurta 2012, charged tightly as by Redberg, Koskela and Wang 2023, but under
replacement.  **Proof.**  The minimum w is published, and given the data it is a bijection of
:math:`b = -\sum_i\nabla\ell_i(w) - \lambda w`, Lipschitz both ways.  So the density of w is that of
b there times the determinant of :math:`\lambda I + \sum_i\nabla^2\ell_i`.  Let x and x' be
exchanged, residuals at most c with slope at most h, rows at most R.  Both determinants are that of
a matrix at least :math:`\lambda I` plus a matrix of rank one and norm at most :math:`hR^2`: their
ratio is at most :math:`1 + hR^2/\lambda`.  The two b differ by a v(w) in the span of x and x' of
length at most 2cR, so with :math:`\mu = 2cR/\sigma` the logarithm of the ratio of densities is at
most

.. math:: U = \log(1 + hR^2/\lambda) + \mu^2/2 + \mu\rho,

:math:`\rho` being the length of b's part in that plane over sigma, a Rayleigh variable.  As
:math:`(1 - e^{\varepsilon - u})_+` grows with u, :math:`\delta \le E(1 - e^{\varepsilon - U})_+`.

Nothing is added for a minimum that is not exact, which favours the method.
"""

import math
from functools import cache

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq, minimize
from scipy.special import expit

from lastiterate.train.objectives import Logistic

DELTA = 1e-5
INTERCEPT = 0.125
RADIUS = math.hypot(1.0, INTERCEPT)


def delta_of(epsilon, mu, determinants):
    """The bound above, for a logarithm of the ratio of determinants."""
    left = epsilon - determinants - mu * mu / 2
    start = max(0.0, left / mu)

    def integrand(r):
        return -r * math.exp(-r * r / 2) * math.expm1(min(left - mu * r, 0.0))

    # Beyond 40 standard deviations nothing is left.
    breaks = [start + 1.0, start + 6.0]
    return quad(integrand, start, start + 40.0, limit=200, epsabs=1e-15, points=breaks)[0]


@cache
def noise_std(epsilon, penalty, clip):
    """The least sigma, or infinity where the determinants alone exceed epsilon."""
    determinants = math.log1p(Logistic(clip=clip).curvature * RADIUS**2 / penalty)
    if determinants >= epsilon:
        return math.inf

    def too_much(log_mu):
        return math.log(max(delta_of(epsilon, math.exp(log_mu), determinants), 1e-300) / DELTA)

    return 2.0 * clip * RADIUS / math.exp(brentq(too_much, -12.0, 3.0, xtol=1e-6))


def accuracy(data, epsilon, passes, seed, *, penalty, clip):
    """On the test rows; `passes` say nothing here."""
    rows, labels, test_rows, test_labels = data
    noise = noise_std(epsilon, penalty, clip)
    if noise == math.inf:
        return 0.0
    rows = np.hstack([rows, np.full((len(rows), 1), INTERCEPT, rows.dtype)])
    signs = 2.0 * labels - 1.0
    tilt = noise * np.random.default_rng(seed).standard_normal(rows.shape[1])
    cut = math.log(clip / (1.0 - clip)) if clip < 1.0 else math.inf

    def value_and_gradient(w):
        wrong = -signs * (rows @ w.astype(rows.dtype))
        # Linear from where the residual is cut.
        within = np.minimum(wrong, cut)
        losses = np.logaddexp(0.0, within) + (clip * (wrong - within) if clip < 1.0 else 0.0)
        residual = (-signs * expit(within)).astype(rows.dtype)
        gradient = np.asarray(residual @ rows, dtype=np.float64) + penalty * w + tilt
        return losses.sum() + penalty * (w @ w) / 2 + tilt @ w, gradient

    found = minimize(
        value_and_gradient,
        np.zeros(rows.shape[1]),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 500, "ftol": 1e-10},
    )
    outputs = test_rows @ found.x[:-1] + INTERCEPT * found.x[-1]
    return float(((outputs > 0) == test_labels).mean())
