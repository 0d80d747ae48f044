r"""The quantities of a run that shifts need: contractions, sensitivities and noise.

Distances are in parameter space, in units of the largest step size.  mu is
proportional to sensitivities over noise, so the single roundings made here move mu by a few
ulps, which `WIDENING` covers.  Contractions are rounded towards 1.
"""

import math
from collections.abc import Iterator

import numpy as np

from lastiterate._numerics.rounding import TINY, Array, IntArray, at_least, two_minus_product
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.run.training_run import Ball, TrainingRun

WIDENING = 16  # ulps


def widened(mu: float) -> float:
    """A mu computed from a run's rounded sensitivities and noise, rounded up."""
    return at_least(mu, ulps=WIDENING)


def gaussian(mu: float) -> GaussianProfile:
    """The profile of such a mu."""
    return GaussianProfile(widened(mu))


def gradient_change(run: TrainingRun) -> float:
    """k L/b: how far a person's examples, all in one batch, may move its averaged gradient."""
    return run.examples_per_person * run.sensitivity / run.batches.batch_size


def ratio(run: TrainingRun) -> float:
    """r = L/(b sigma) for the least noise of any step, as the nearest float."""
    return gradient_change(run) / float(np.min(run.noise_std))


def sensitivity_over_noise(run: TrainingRun) -> float:
    """r = L/(b sigma) of a run with constant noise, rounded up."""
    noise = float(np.max(run.noise_std))
    return at_least(max(run.sensitivity / run.batches.batch_size / noise, TINY), ulps=4)


def unit(run: TrainingRun) -> float:
    """The largest step size."""
    return float(np.max(run.step_size))


def step_sizes(run: TrainingRun) -> Array:
    """One entry if constant, else one for each step."""
    return np.atleast_1d(np.array(run.step_size))


def relative_step_sizes(run: TrainingRun) -> Array:
    """Step sizes in units of the largest."""
    return np.asarray(np.maximum(step_sizes(run) / unit(run), TINY))


def gaps(run: TrainingRun) -> Array:
    r"""1 - c for each step size, rounded down; negative where a step may expand.

    c = max(|1 - eta m|, |1 - eta M|) for m-strongly convex, M-smooth losses (Bok, Su and
    Altschuler 2024, Lemma 2.8), so 1 - c = min(eta m, 2 - eta M) while that is at most 1.
    """
    if run.loss.smoothness is None:
        raise ValueError("gaps need a smoothness")
    eta = step_sizes(run)
    smooth = np.full(eta.size, run.loss.smoothness)
    flat = np.nextafter(eta * run.loss.strong_convexity, -np.inf).clip(0.0)
    return np.asarray(np.minimum(flat, two_minus_product(eta, smooth)))


def constant_gap(run: TrainingRun) -> float:
    """1 - c of a run with a constant step size, rounded down."""
    return float(gaps(run)[0])


def contractions(gap: Array) -> Array:
    """c = 1 - gap, rounded up."""
    return np.where(gap == 0.0, 1.0, np.nextafter(1.0 - gap, np.inf))


def sensitivities(run: TrainingRun) -> Array:
    """The per-step sensitivity: the distance that a participation adds at each step."""
    return np.asarray(np.maximum(relative_step_sizes(run) * max(gradient_change(run), TINY), TINY))


def noises(run: TrainingRun) -> Array:
    """Noise of each step."""
    return np.asarray(step_sizes(run) / unit(run) * np.array(run.noise_std))


def release_noise(run: TrainingRun) -> float:
    """Noise on release, in units of the largest step size."""
    return run.release_noise_std / unit(run)


def diameter(run: TrainingRun) -> float:
    """D in units of the largest step size; inf without a bounded domain."""
    if not isinstance(run.domain, Ball):
        return math.inf
    return max(run.domain.diameter / unit(run), TINY)


def diameter_over_sensitivity(run: TrainingRun) -> float:
    """D/(eta L/b), rounded up."""
    return at_least(diameter(run) / float(sensitivities(run)[0]), ulps=8)


def every_step(values: Array, steps: int) -> Array:
    """Values that are constant or written out, with an entry for each step."""
    return np.broadcast_to(values, (steps,))


def epochs(run: TrainingRun) -> int:
    """The number of whole passes over the batches that the run makes."""
    return run.steps // run.batches.batches_per_epoch


def position_count(run: TrainingRun) -> int:
    """The number of positions that an example may have in the order of the batches."""
    return run.batches.position_count(run.steps)


def patterns(run: TrainingRun) -> Iterator[IntArray]:
    """The steps, counted from 0, in which the examples of each position take part."""
    for position in range(position_count(run)):
        yield run.batches.participations(position, run.steps)
