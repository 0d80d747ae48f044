"""Windows at the end: late participations are shifted away by noise that nothing else uses."""

import numpy as np
import pytest

from lastiterate import InvalidParameter
from lastiterate.bounds.shuffling.end_windows import EndWindows, end_windows


def distance_left(tail, window, cost, contraction, share):
    """The distance that is left of a participation of 1; tails count down to 0."""
    first, last = window
    weights = share * contraction ** (2.0 * np.arange(first, last))
    # In final units a step shifts in proportion to its variance, in all `cost` times its root.
    shifts = cost * weights / np.sqrt(weights.sum())
    distance = 1.0
    for step in range(tail, -1, -1):
        distance *= contraction if step < tail else 1.0
        if first <= step < last:
            distance = max(distance - shifts[step - first] / contraction**step, 0.0)
    return distance


@pytest.mark.parametrize("contraction", [1.0, 0.999, 0.8])
@pytest.mark.parametrize("share", [1.0, 0.4])
def test_every_participation_is_shifted_away_in_its_window(contraction, share):
    tails = np.array([0, 1, 2, 3, 5, 9, 17, 30])
    windows = end_windows(tails, share)
    costs = windows.costs(1.0 - contraction)
    for tail, chosen in zip(tails.tolist(), windows.window_of.tolist(), strict=True):
        window = windows.edges[chosen], windows.edges[chosen + 1]
        left = distance_left(tail, window, costs[chosen], contraction, share)
        assert left == pytest.approx(0.0, abs=1e-9)
        if tail == window[1] - 1:  # and none of it is for nothing
            assert distance_left(tail, window, 0.99 * costs[chosen], contraction, share) > 1e-4


def test_the_noise_of_all_windows_is_reserved():
    windows = end_windows(np.array([0, 4, 12]), 0.7)
    assert windows.reserved.steps == windows.edges[-1] >= 5
    assert windows.reserved.share == 0.7


@pytest.mark.parametrize(
    "edges, share, tails, chosen",
    [
        ([0, 1, 3], 0.5, [0, 1], [0, 1]),  # begins before the participation
        ([0, 1, 3], 0.5, [0, 2], [0, 2]),  # no window
        ([0, 1, 3], 0.5, [0, 2], [-1, 1]),
        ([0, 2, 1], 0.5, [2], [0]),  # overlap
        ([0, 1, 1], 0.5, [2], [0]),
        ([-1, 1, 3], 0.5, [2], [0]),  # after the end of the run
        ([0, 1, 3], 1.1, [2], [0]),  # more noise than there is
        ([0, 1, 3], 0.0, [2], [0]),
        ([0, 1, 3], np.nan, [2], [0]),
    ],
)
def test_invalid_windows_are_refused(edges, share, tails, chosen):
    EndWindows(np.array([0, 1, 3]), 0.5, np.array([0, 2]), np.array([0, 1]))
    with pytest.raises(InvalidParameter):
        EndWindows(np.array(edges), share, np.array(tails), np.array(chosen))
