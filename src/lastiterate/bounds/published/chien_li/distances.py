"""Chien and Li's distances and energies of a run, in units of the step size."""

import math
from collections.abc import Sequence

import numpy as np

from lastiterate._numerics.arrays import Array
from lastiterate._numerics.rounding import FEW_ROUNDINGS, TENS_OF_THOUSANDS_OF_ROUNDINGS, up
from lastiterate.bounds import quantities
from lastiterate.bounds.published.chien_li.programme import least_energies
from lastiterate.run.training_run import TrainingRun

_LONGEST = 2_000


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


def forward_distances(run: TrainingRun, pattern: Array) -> Array:
    """D_t of Lemma A.2 before each step, capped by the diameter; inf where that is too far."""
    (rise, order), size = growth(run), run.batches.batch_size
    s, cap, most = (
        float(quantities.sensitivities(run)[0]),
        quantities.diameter(run),
        doubled_bound(run),
    )
    own, others = (s, 1.0) if math.isinf(most) else (most / size, (size - 1) / size)
    walked, z = np.zeros(run.steps), 0.0
    for k in range(run.steps):
        walked[k] = z
        if z > 1e60:
            walked[k:] = np.inf
            break
        grown = z + rise * z**order * (others if pattern[k] else 1.0) + (own if pattern[k] else 0.0)
        z = min(up(grown, FEW_ROUNDINGS), z + most, cap)
    return walked


def least_energy(run: TrainingRun, patterns: Sequence[Array], lengths: Array) -> Array:
    """The least energy of each pattern of participations, over starts and payments."""
    s, longest = float(quantities.sensitivities(run)[0]), int(lengths.max())
    starts = np.concatenate([forward_distances(run, pattern)[-lengths] for pattern in patterns])
    late = np.array([s * pattern[-longest:] for pattern in patterns])
    arrivals = np.repeat(late, lengths.size, axis=0)
    every = np.tile(lengths, len(patterns))
    energies = least_energies(arrivals, starts, every, *growth(run))
    least = energies.reshape(len(patterns), lengths.size).min(axis=1)
    # From the very start nothing but the arrivals is to be paid.
    composed = np.array([s * s * float(pattern.sum()) for pattern in patterns])
    return np.asarray(np.minimum(least, composed))


def some_lengths(steps: int, count: int) -> Array:
    """Some numbers of last steps to unroll; all are valid."""
    longest = min(steps, _LONGEST)
    return np.unique(np.append(np.geomspace(1.0, longest, count).astype(np.int64), longest))
