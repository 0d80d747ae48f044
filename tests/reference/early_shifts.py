"""Early shifts by the letter: every step written out, nothing summed in closed form.

A participation of sensitivity s in step t may be spread over earlier steps.  With theta_k >= 0 of
it in step k (theta_0 = 0, theta_t = 1), step k adds s (|theta_k - a theta_(k-1)| + (h + c kappa)
theta_(k-1)) to the distance, where a and h are the middle and half the width of [l, c].
"""

import numpy as np


def added_distances(*, steps, sensitivity, theta, participation, low, high, kappa):
    """What each step adds; `theta` is that of steps 0, 1, .., and 1 at the participation."""
    middle, half = (high + low) / 2, (high - low) / 2
    added = np.zeros(steps)
    for k in range(1, participation + 1):
        now, before = theta[k], theta[k - 1]
        leak = (half + high * kappa) * before
        added[k - 1] = sensitivity * (abs(now - middle * before) + leak)
    return added


def kept_for_the_last(*, steps, sensitivity, participation, window, low, high, kappa, release=0.0):
    """theta and shifts, all noise being 1, where `window` steps before the participation shift.

    Shifts are in proportion to the noise that is left of each step at the participation, or, from
    it on, to the distance that is removed there by a shift of 1.
    """
    kept = low - high * kappa
    weight = np.zeros(steps + 1)  # the last one is the release
    for k in range(participation - window, participation):
        weight[k - 1] = kept ** (participation - k)
    for k in range(participation, steps + 1):
        weight[k - 1] = high ** -(k - participation)
    weight[steps] = release * high ** -(steps - participation)
    squares = [w * w for w in weight[:steps]]
    whole = sum(squares) + (weight[steps] ** 2 / release if release else 0.0)
    shifts = sensitivity / whole * weight
    theta = np.zeros(participation + 1)
    for k in range(1, participation):
        theta[k] = kept * theta[k - 1] + shifts[k - 1] / sensitivity
    theta[participation] = 1.0
    return theta, shifts


def distances_left(*, added, shifts, high):
    """z_1, .., z_T and the distance after the release, which does not contract."""
    z, path = 0.0, []
    for k, one in enumerate(added):
        z = high * z + one - shifts[k]
        path.append(z)
    return np.array([*path, z - shifts[-1]])


def linear_mu(maps, pushes, noises):
    """mu of x' = A_k x + push_k + noise, started at 0, against the same without pushes."""
    dimension = maps[0].shape[0]
    mean, covariance = np.zeros(dimension), np.zeros((dimension, dimension))
    for one, push, noise in zip(maps, pushes, noises, strict=True):
        mean = one @ mean + push
        covariance = one @ covariance @ one.T + noise**2 * np.eye(dimension)
    return float(np.sqrt(mean @ np.linalg.solve(covariance, mean)))
