"""How far apart a step of a run, whose losses need not be convex, can drive two points."""

import numpy as np

from lastiterate._numerics.rounding import Array, IntArray, distance_of_product_to_one, ulps, up
from lastiterate.bounds import quantities
from lastiterate.run.training_run import TrainingRun
from lastiterate.shifts.optimal_shifts import Branch, Moduli

ROUNDINGS = ulps(32)


def late(values: Array, window: int) -> Array:
    """The last `window` of values that are constant or written out."""
    return quantities.every_step(values if values.size == 1 else values[-window:], window)


def moduli(run: TrainingRun, pattern: IntArray, window: int) -> Moduli:
    """The last `window` steps, then the release, which keeps distances."""
    relative = late(quantities.relative_step_sizes(run), window)
    taking_part = np.zeros(window, dtype=bool)
    taking_part[pattern] = True
    sensitivity = np.where(taking_part, late(quantities.sensitivities(run), window), 0.0)
    keep = late(kept(run), window)
    known = [(late(rise, window), order) for rise, order in _known(run)]
    branches = [(keep, rise, sensitivity, order) for rise, order in known]
    bound = run.gradient_bound
    if bound is not None:
        size = run.batches.batch_size
        # Below, a batch with the example has (b - 1)/b of the curvature of one without it.  That is
        # not so where batches vary in size and `rise` is that of a larger one.
        assert run.batches.exact_size or pattern.size == 0, run.batches
        own = relative * bound * (2.0 if run.adjacency == "replace" else 1.0) / size
        others = np.where(taking_part, (size - 1) / size, 1.0)
        branches += [
            (keep, rise * others, np.where(taking_part, own, 0.0), order) for rise, order in known
        ]
        branches.append((keep, np.zeros(window), 2.0 * relative * bound, 1.0))
    return Moduli(tuple(_branch(*branch) for branch in branches))


def _branch(keep: Array, rise: Array, offset: Array, order: float) -> Branch:
    return Branch(
        slope=np.append(keep, 1.0),
        rise=np.append(up(rise, ROUNDINGS), 0.0),
        offset=np.append(up(offset, ROUNDINGS), 0.0),
        order=order,
    )


def kept(run: TrainingRun) -> Array:
    """|1 - eta lambda| for each step size."""
    eta = quantities.step_sizes(run)
    return distance_of_product_to_one(eta, np.full(eta.size, run.loss.regulariser))


def _known(run: TrainingRun) -> list[tuple[Array, float]]:
    """(rise, order): what a step adds to |1 - eta lambda| z is at most rise z^order."""
    known = []
    linear = linear_rise(run)
    if linear is not None:
        known.append((linear, 1.0))
    if run.loss.holder is not None:
        constant, order = run.loss.holder
        known.append(
            (quantities.relative_step_sizes(run) * constant * quantities.unit(run) ** order, order)
        )
    return known


def linear_rise(run: TrainingRun) -> Array | None:
    """The least known Lipschitz constant of a step, less |1 - eta lambda|; None if unknown."""
    if run.loss.smoothness is None:
        return None
    eta, keep = quantities.step_sizes(run), kept(run)
    rise = eta * up(run.loss.smoothness - run.loss.regulariser, ROUNDINGS)
    if not run.loss.convex:
        return np.asarray(rise)
    if not run.clip_may_be_active:
        contraction = quantities.contractions(quantities.gaps(run))
        return np.asarray(np.minimum(rise, up(np.maximum(contraction - keep, 0.0), ROUNDINGS)))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        reduced = rise / keep
        bent = 1.0 / np.sqrt(1.0 - np.minimum(reduced, 3.0) / 4.0)
        clipped = keep * (np.where(reduced <= 3.0, bent, reduced - 1.0) - 1.0)
    # 1/sqrt(1 - x) - 1 cancels for small x: widened absolutely.
    shrinks = (keep > 0.0) & (eta * run.loss.regulariser < 1.0)
    return np.where(shrinks, np.minimum(rise, up(clipped, ROUNDINGS) + ulps(8)), rise)
