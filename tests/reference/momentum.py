"""Momentum as torch runs it, its exact leak on quadratics, and a certificate in exact fractions.

Nothing here comes from the package.
"""

from fractions import Fraction

import numpy as np


def torch_sgd(gradients, *, lr, momentum, dampening, nesterov, start):
    """x after each step of `torch.optim.SGD`; gradients[k] maps x to the gradient of step k."""
    x, buffer, path = np.array(start, dtype=float), None, []
    for k, gradient in enumerate(gradients):
        g = gradient(x)
        buffer = g.copy() if buffer is None else momentum[k] * buffer + (1 - dampening[k]) * g
        x = x - lr[k] * (g + momentum[k] * buffer if nesterov else buffer)
        path.append(x.copy())
    return path


def averages(path, decay, start):
    """An exponential average after each step."""
    average, found = np.array(start, dtype=float), []
    for x, kept in zip(path, decay, strict=True):
        average = kept * average + (1 - kept) * x
        found.append(average)
    return found


def exact_leak(released, curvatures, pushes, noise, release_noise):
    """mu of two runs on quadratics that differ by `pushes` in their gradients.

    `released` maps a list of gradient functions to what is published; curvatures[k] is a symmetric
    matrix.  All of it is linear, so means and covariance follow from single impulses.
    """
    steps, size = len(curvatures), len(curvatures[0])

    def final(added):
        return released([lambda x, k=k: curvatures[k] @ x + added[k] for k in range(steps)])

    zero = np.zeros((steps, size))
    base = final(zero)
    difference = final(np.array(pushes)) - base
    covariance = release_noise**2 * np.eye(size)
    for k in range(steps):
        for j in range(size):
            impulse = zero.copy()
            impulse[k, j] = noise[k]
            moved = final(impulse) - base
            covariance += np.outer(moved, moved)
    return float(np.sqrt(difference @ np.linalg.solve(covariance, difference)))


def energy_in_fractions(steps, curvature, sensitivity, noise, release_noise, released, states):
    """mu^2 = sum s^2/kappa of a certificate, with the largest kappa, all in exact fractions.

    `steps` are (a00, a01, a10, a11, b0, b1) as fractions; raises where an inequality fails.
    """
    before, total = (Fraction(0),) * 3, Fraction(0)
    last = len(steps) - 1
    for k, (a00, a01, a10, a11, b0, b1) in enumerate(steps):
        own, variance = (b0 * b0, b0 * b1, b1 * b1), Fraction(noise[k]) ** 2
        kappas = []
        for end in curvature:
            p, q, r, t = a00 + Fraction(end) * b0, a01, a10 + Fraction(end) * b1, a11
            x, y, z = before
            image = (
                p * p * x + 2 * p * q * y + q * q * z,
                p * r * x + (p * t + q * r) * y + q * t * z,
                r * r * x + 2 * r * t * y + t * t * z,
            )
            if k < last:
                state = tuple(Fraction(v) for v in states[k])
                assert state[0] >= 0
                assert state[2] >= 0
                assert state[0] * state[2] >= state[1] ** 2
                left = [u + variance * v - w for u, v, w in zip(state, own, image, strict=True)]
                whole = left[0] * left[2] - left[1] ** 2
                assert left[0] >= 0
                assert left[2] >= 0
                assert whole >= 0
                mixed = left[0] * own[2] + left[2] * own[0] - 2 * left[1] * own[1]
                kappas.append(whole / mixed)
            else:
                first, second = (Fraction(v) for v in released)
                weights = (first * first, 2 * first * second, second * second)
                moved = sum(u * v for u, v in zip(weights, image, strict=True))
                pushed = sum(u * v for u, v in zip(weights, own, strict=True))
                room = variance * pushed + Fraction(release_noise) ** 2 - moved
                assert room >= 0
                kappas.append(room / pushed)
        if k < last:
            before = state
        if sensitivity[k] > 0:
            total += Fraction(sensitivity[k]) ** 2 / min(kappas)
    return float(total)
