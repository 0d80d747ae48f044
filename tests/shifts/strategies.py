"""Schedules by regime: where the formulas bend."""

import math

import numpy as np


def random_schedule(rng, longest=40):
    """c in [.2, 1.3], many idle steps, noise over two decades, perhaps a start and a cap."""
    steps = int(rng.integers(1, longest + 1))
    shifts = rng.uniform(0.1, 2.0, steps) * (rng.random(steps) < rng.uniform(0.1, 1.0))
    low = rng.uniform(0.2, 1.0)
    return {
        "contractions": rng.uniform(low, rng.uniform(low, 1.3), steps),
        "shifts": shifts,
        "noise_stds": 10.0 ** rng.uniform(-1, 1, steps),
        "start": float(rng.choice([0.0, rng.uniform(0.1, 3.0)])),
        "diameter": float(rng.choice([math.inf, 10.0 ** rng.uniform(-1, 1.5)])),
    }


def engine_arguments(schedule):
    """The same, under the engine's names."""
    return {
        "contraction": schedule["contractions"], "sensitivity": schedule["shifts"],
        "noise": schedule["noise_stds"], "start": schedule["start"],
        "diameter": schedule["diameter"],
    }  # fmt: skip


def written_out(run, idle_before=0):
    """Arrays for `optimal_shifts` of a `PeriodicRun`, the release as a last step."""
    steps = idle_before + run.period * (run.participations - 1) + 1 + run.tail
    shifts = np.zeros(steps + 1)
    shifts[idle_before : steps - run.tail : run.period] = run.sensitivity
    contraction = np.full(steps + 1, 1.0 - run.gap)
    contraction[-1] = 1.0
    noise = np.full(steps + 1, run.noise)
    noise[-1] = run.release_noise
    return {"contraction": contraction, "sensitivity": shifts, "noise": noise}
