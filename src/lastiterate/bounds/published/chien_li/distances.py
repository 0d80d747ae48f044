"""Chien and Li's distances and energies of a run, in units of the step size."""

import math

import numpy as np

from lastiterate._numerics.rounding import FEW_ROUNDINGS, TENS_OF_THOUSANDS_OF_ROUNDINGS, Array, up
from lastiterate.bounds import quantities
from lastiterate.run.training_run import TrainingRun

LONGEST = 2_000
_FARTHEST = 1e60


def rate(run: TrainingRun, energy: float) -> float:
    """energy/(2 sigma^2)."""
    noise = float(quantities.noises(run)[0])
    return up(energy / (2.0 * noise**2), TENS_OF_THOUSANDS_OF_ROUNDINGS)


def doubled_bound(run: TrainingRun) -> float:
    """2 C in units of the step, inf where no bound on gradients is known."""
    pulled = float(np.max(run.step_size)) * run.loss.regulariser
    return math.inf if run.gradient_bound is None or pulled > 2.0 else 2.0 * run.gradient_bound


def growth(run: TrainingRun) -> tuple[float, float]:
    """(rise, order): the Hoelder constants in units of the step; smoothness is order 1."""
    eta = float(np.max(run.step_size))
    if run.loss.holder is not None:
        constant, order = run.loss.holder
        # The regulariser is not part of them; it moves points apart by no more than this.
        return up(constant * eta**order, TENS_OF_THOUSANDS_OF_ROUNDINGS), order
    assert run.loss.smoothness is not None
    return up(eta * run.loss.smoothness, TENS_OF_THOUSANDS_OF_ROUNDINGS), 1.0


def forward_distances(run: TrainingRun, patterns: Array, start: float = 0.0) -> Array:
    """D_t of Lemma A.2 before each step, capped by the diameter; inf where that is too far.

    The last axis of `patterns` are steps, 1 where the example takes part.
    """
    (rise, order), size = growth(run), run.batches.batch_size
    s, cap, most = (
        float(quantities.sensitivities(run)[0]),
        quantities.diameter(run),
        doubled_bound(run),
    )
    own, others = (s, 1.0) if math.isinf(most) else (most / size, (size - 1) / size)
    walked = np.zeros(patterns.shape)
    z = np.full(patterns.shape[:-1], start)
    for k in range(patterns.shape[-1]):
        walked[..., k] = z
        seen = patterns[..., k]
        with np.errstate(over="ignore", invalid="ignore"):
            grown = z + rise * z**order * np.where(seen > 0.0, others, 1.0) + own * seen
            z = np.minimum(np.minimum(up(grown, FEW_ROUNDINGS), z + most), cap)
        z = np.where(z <= _FARTHEST, z, np.inf)
    return walked


def some_lengths(steps: int, count: int) -> Array:
    """Some numbers of last steps to unroll; all are valid."""
    longest = min(steps, LONGEST)
    return np.unique(np.append(np.geomspace(1.0, longest, count).astype(np.int64), longest))
