"""Chien and Li's own algorithm: batches shuffled anew every epoch, all orders of the last ones."""

from itertools import product

import numpy as np

from lastiterate._numerics.rounding import Array
from lastiterate.bounds import quantities
from lastiterate.bounds.published.chien_li import distances
from lastiterate.bounds.published.chien_li.starts import least_over_starts
from lastiterate.run.training_run import TrainingRun

_MOST_ORDERS = 800


def energies_of_orders(run: TrainingRun) -> tuple[Array, Array]:
    """The probabilities of the positions in the last epochs, and the least energy of each.

    As many epochs are written out as have few orders.  Before these the distance is the farthest
    that any positions lead to: that is the statement itself where no plan starts earlier, and
    above it elsewhere.
    """
    length = run.batches.batches_per_epoch
    whole, cut = divmod(run.steps, length)
    last = _last_epoch(length, cut) if cut else []
    epochs: list[list[tuple[float, Array]]] = [last] if cut else []
    full = [(1.0 / length, seen) for seen in np.eye(length)]
    orders = max(len(last), 1)
    before = whole
    while before and (not epochs or orders * length <= _MOST_ORDERS):
        epochs.insert(0, full)
        orders *= length
        before -= 1
    weights, patterns = [], []
    for chosen in product(*epochs):
        weights.append(np.prod([weight for weight, _ in chosen]))
        patterns.append(np.concatenate([seen for _, seen in chosen]))
    late = np.array(patterns)[:, -distances.LONGEST :]
    walked = distances.forward_distances(run, np.array(patterns), _farthest(run, before))
    s = float(quantities.sensitivities(run)[0])
    composed = s * s * (before + np.array(patterns).sum(axis=1))
    walked = walked[:, -distances.LONGEST :]
    return np.array(weights), least_over_starts(run, late, walked, composed)


def _last_epoch(length: int, cut: int) -> list[tuple[float, Array]]:
    """The positions in an epoch of which only the first steps are taken."""
    seen = [(1.0 / length, np.eye(length)[j, :cut]) for j in range(cut)]
    return [*seen, (1.0 - cut / length, np.zeros(cut))]


def _farthest(run: TrainingRun, epochs: int) -> float:
    """The largest distance of Lemma A.2 after so many epochs, over all positions in them."""
    length, distance = run.batches.batches_per_epoch, 0.0
    # One more step that sees nobody: distances are those before each step.
    positions = np.hstack([np.eye(length), np.zeros((length, 1))])
    for _ in range(epochs):
        further = float(distances.forward_distances(run, positions, distance)[:, -1].max())
        if not distance < further < np.inf:
            return further
        distance = further
    return distance
