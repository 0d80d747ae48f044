"""Means and covariances of the state of linear training steps, step by step.

The state is the iterate x and the momentum's buffer, or x and the average of iterates.  A gradient
is `slope * x + pull` plus noise, so the state stays Gaussian.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lastiterate._numerics.rounding import Array
from lastiterate.bounds.bound import Hypothesis
from lastiterate.run.training_run import TrainingRun

State = tuple[float, float]
Covariance = tuple[float, float, float]
"""The variance of x, the covariance of the two vectors, and the variance of the other one."""

Entries = tuple[float, float, float, float, float, float]


@dataclass(frozen=True)
class LinearSteps:
    """The entries of every step's recursion, and the standard deviation of its gradient's noise."""

    entries: tuple[Array, ...]
    noise_std: Array
    released: State
    release_noise_std: float

    def rows(self, first: int, count: int) -> list[Entries]:
        """The entries of the `count` steps from `first` on, one row for each step."""
        columns = (entry[first : first + count].tolist() for entry in self.entries)
        return list(zip(*columns, strict=True))

    def means(self, start: State, first: int, slopes: Array, pulls: Array) -> Array:
        """The mean state that each step from `first` on finds, and that after the last of them."""
        return np.array(list(self._means(start, first, slopes, pulls)))

    def covariances(self, start: Covariance, first: int, slopes: Array) -> Array:
        """The covariances of these states."""
        return np.array(list(self._covariances(start, first, slopes)))

    def _means(self, start: State, first: int, slopes: Array, pulls: Array) -> Iterator[State]:
        x, y = start
        yield start
        gradients = zip(slopes.tolist(), pulls.tolist(), strict=True)
        for row, (slope, pull) in zip(self.rows(first, slopes.size), gradients, strict=True):
            a00, a01, a10, a11, b0, b1 = row
            gradient = slope * x + pull
            x, y = a00 * x + a01 * y + b0 * gradient, a10 * x + a11 * y + b1 * gradient
            yield x, y

    def _covariances(self, start: Covariance, first: int, slopes: Array) -> Iterator[Covariance]:
        xx, xy, yy = start
        yield start
        noises = np.square(self.noise_std[first : first + slopes.size]).tolist()
        each = zip(self.rows(first, slopes.size), slopes.tolist(), noises, strict=True)
        for (a00, a01, a10, a11, b0, b1), slope, noise in each:
            p, r = a00 + slope * b0, a10 + slope * b1
            xx, xy, yy = (
                p * p * xx + 2.0 * p * a01 * xy + a01 * a01 * yy + noise * b0 * b0,
                p * r * xx + (p * a11 + a01 * r) * xy + a01 * a11 * yy + noise * b0 * b1,
                r * r * xx + 2.0 * r * a11 * xy + a11 * a11 * yy + noise * b1 * b1,
            )
            yield xx, xy, yy


def linear_steps(run: TrainingRun) -> LinearSteps:
    """The steps of a run with momentum, with an average of iterates, or with neither."""
    every = (run.steps,)
    noise = np.broadcast_to(np.asarray(run.noise_std, dtype=float), every)
    eta = np.broadcast_to(np.asarray(run.step_size, dtype=float), every)
    one, zero = np.ones(run.steps), np.zeros(run.steps)
    if run.average is not None:
        kept = np.array(run.average.decays(run.steps))
        entries = (one, zero, one - kept, kept, -eta, -(one - kept) * eta)
        return LinearSteps(entries, noise, (0.0, 1.0), run.release_noise_std)
    beta = np.array(np.broadcast_to(np.asarray(run.momentum, dtype=float), every))
    kept, new = beta.copy(), np.full(run.steps, 1.0 - run.dampening)
    # A step that finds no buffer stores the gradient itself.
    empty = [0, *(step - 1 for step in run.buffer_resets)]
    kept[empty], new[empty] = 0.0, 1.0
    if run.nesterov:
        entries = (one, -eta * beta * kept, zero, kept, -eta * (one + beta * new), new)
    else:
        entries = (one, -eta * kept, zero, kept, -eta * new, new)
    return LinearSteps(entries, noise, (1.0, 0.0), run.release_noise_std)


def released_weights(steps: LinearSteps, slopes: Array) -> Array:
    """The change of what is released for a change of each step's gradient by 1."""
    f, g = steps.released
    rows, weights = steps.rows(0, slopes.size), np.empty(slopes.size)
    each = slopes.tolist()
    for k in range(slopes.size - 1, -1, -1):
        a00, a01, a10, a11, b0, b1 = rows[k]
        weight = f * b0 + g * b1
        weights[k] = weight
        f, g = f * a00 + g * a10 + weight * each[k], f * a01 + g * a11
    return weights


def variance_along(weights: State, covariance: Covariance) -> float:
    """The variance of the sum of both vectors with these weights."""
    (f, g), (xx, xy, yy) = weights, covariance
    return max(f * f * xx + 2.0 * f * g * xy + g * g * yy, 0.0)


def _both(run: TrainingRun) -> str | None:
    both = run.momentum != 0.0 and run.average is not None
    return f"momentum={run.momentum!r} and average={run.average!r}" if both else None


MOMENTUM_OR_AVERAGE = Hypothesis(
    "no average of iterates together with momentum", _both, "publish the last iterate"
)
