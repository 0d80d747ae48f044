"""Windows at the end: late participations are shifted away by noise that nothing else uses."""

import numpy as np
import pytest

from lastiterate.bounds.shuffling.positions import (
    EndWindows,
    early_edges,
    early_windows,
    end_windows,
)
from lastiterate.errors import InvalidParameter
from lastiterate.shifts.optimal_shifts import optimal_shifts


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


def parts_of_a_participation(tail, window, kept, least, contraction):
    """Its sensitivity in each step of a window that may contain it, from the first step on.

    Parts of it are ahead of it, more and more of them; `kept` is `least` less what gradients drift.
    """
    first, last = window[0], window[1] - 1
    if tail > last:
        return [contraction ** (tail - last)] + [0.0] * (last - first)
    before, ages = last - tail, range(last - tail, 0, -1)
    since = sum(contraction ** (-2.0 * i) for i in range(tail - first + 1))
    whole = sum(kept ** (2 * i) for i in ages) + since
    ahead = [sum(kept ** (2 * k - i) for k in range(i, before + 1)) / whole for i in ages]
    centre, half = (contraction + least) / 2, (contraction - least) / 2
    earlier, parts = 0.0, []
    for one in [*ahead, 1.0]:
        parts.append(abs(one - centre * earlier) + (half + least - kept) * earlier)
        earlier = one
    return parts + [0.0] * (tail - first)


@pytest.mark.parametrize("contraction", [1.0, 0.999, 0.9])
@pytest.mark.parametrize("lost", [0.0, 0.05, 0.4, 1.0, 1.3])
@pytest.mark.parametrize("first", [1, 3, 8])
def test_windows_that_contain_participations_hide_them(contraction, lost, first):
    """The cost is that of optimal shifts of parts of the participation, within the window."""
    tails, share, kept = np.arange(12), 0.7, max(1.0 - lost, 0.0)
    if kept > contraction:
        return
    edges = early_edges(tails, first=first, most=15)
    windows = early_windows(edges, tails, share, gap=1.0 - contraction, lost=lost)
    costs = windows.position_costs(1.0 - contraction)
    assert edges[-1] <= 15
    for tail, chosen, cost in zip(tails.tolist(), windows.window_of.tolist(), costs, strict=True):
        window = int(edges[chosen]), int(edges[chosen + 1])
        assert window[0] <= tail
        parts = parts_of_a_participation(tail, window, kept, kept, contraction)
        noise = np.full(len(parts), np.sqrt(share))
        mu = optimal_shifts(contraction=contraction, sensitivity=parts, noise=noise).mu
        assert mu <= cost * (1.0 + 1e-9)
        assert cost <= mu * (1.0 + 1e-6)


def test_windows_that_contain_participations_need_short_steps():
    arguments = np.array([0, 8]), 0.5, np.array([3]), np.array([0])
    assert EndWindows(*arguments, lost=0.2).position_costs(0.0)[0] < 1.0
    with pytest.raises(InvalidParameter):
        EndWindows(*arguments)
    with pytest.raises(InvalidParameter):  # no window may begin after the participation
        EndWindows(np.array([4, 8]), 0.5, np.array([3]), np.array([0]), lost=0.2)
