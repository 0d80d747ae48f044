r"""Two statistics of one result: a sum over all steps, and what the very last step did.

Given which steps saw the example they are independent: :math:`x = g S + N(0, 1)`, and y, which
tells only whether the last step saw it.  Tests accept y above a threshold that falls as x grows:
so it does no harm to round S towards less being told.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from lastiterate._numerics.rounding import THOUSANDS_OF_ROUNDINGS, Array, up
from lastiterate.lower_bounds.geometric_draws import Draws, HiddenSteps
from lastiterate.lower_bounds.random_sums import ThresholdLowerProfile
from lastiterate.lower_bounds.smoothed_sums import ERROR, below, within_reach

_CELLS = 480  # of x
_EDGES = 240  # of y
_SEEN = 1e-10  # cells of less are as good as rounding
_BEYOND = 7.0
_LEVELS = np.concatenate([[0.0], np.geomspace(1e-4, 600.0, 360)])


@dataclass(frozen=True)
class Tails:
    """P(y > edge), for `edges` from -inf to inf, by whether the last step saw the example.

    Rounded down in our world and up in theirs, but for `lost`.
    """

    edges: Array
    ours_seen: Array
    ours_not: Array
    theirs_seen: Array
    theirs_not: Array
    lost: float = 0.0


def gaussian_tails(edges: Array, means: tuple[float, float], *, lost: float = 0.0) -> Tails:
    """y is N(mean, 1) if the last step saw the example, and N(0, 1) if not."""
    ours, theirs = (np.asarray(ndtr(mean - edges)) for mean in means)
    neither = np.asarray(ndtr(-edges))
    return Tails(edges, ours, neither, theirs, neither, lost)


def edges_up_to(highest: float) -> Array:
    """Edges from -inf over 0 to far above this mean, and inf."""
    return np.concatenate([[-np.inf], np.linspace(0.0, min(highest + 8.0, 37.0), _EDGES), [np.inf]])


def two_statistics_profile(
    hidden: HiddenSteps, factors: tuple[float, float], tails: Tails, *, last_in_sum: bool
) -> ThresholdLowerProfile:
    """x with a factor for each world, ours the larger, and y together.

    The sum has the last step too where `last_in_sum`.
    """
    most, (ours, theirs) = within_reach((hidden.if_last, hidden.if_not), factors)
    low, high = (min(theirs, 0.0), max(ours, 0.0))
    low, high = low * (most + 1.0) - _BEYOND, high * (most + 1.0) + _BEYOND
    edges = np.linspace(low, high, _CELLS)

    def cells(draws: Draws, factor: float, shift: float, *, above_truth: bool) -> Array:
        if factor == 0.0:
            return _normal_cells(edges)
        under = below(edges - factor * shift, draws, factor, above_truth=above_truth)
        rising = np.maximum.accumulate(under)
        return np.diff(np.concatenate([[0.0], rising, [1.0]]))

    own = 1.0 if last_in_sum else 0.0
    chance = hidden.last
    ours_seen = chance * cells(hidden.if_last, ours, own, above_truth=True)
    ours_not = (1.0 - chance) * cells(hidden.if_not, ours, 0.0, above_truth=True)
    theirs_seen = chance * cells(hidden.if_last, theirs, own, above_truth=False)
    theirs_not = (1.0 - chance) * cells(hidden.if_not, theirs, 0.0, above_truth=False)
    ours_mass = _mass(ours_seen, tails.ours_seen) + _mass(ours_not, tails.ours_not)
    theirs_mass = _mass(theirs_seen, tails.theirs_seen) + _mass(theirs_not, tails.theirs_not)
    first = _accepted(np.where(ours_mass.sum(axis=1) > _SEEN, ours_mass.T, 0.0).T, theirs_mass)
    hit = tails.ours_seen[first] @ ours_seen + tails.ours_not[first] @ ours_not
    fooled = tails.theirs_seen[first] @ theirs_seen + tails.theirs_not[first] @ theirs_not
    hit = np.clip(hit - ERROR - tails.lost, 0.0, 1.0)
    fooled = up(fooled, THOUSANDS_OF_ROUNDINGS) + (ERROR if theirs else 0.0) + tails.lost
    fooled = np.minimum(fooled, 1.0)
    return ThresholdLowerProfile(
        np.concatenate([fooled, 1.0 - hit]), np.concatenate([hit, 1.0 - fooled])
    )


def _normal_cells(edges: Array) -> Array:
    """N(0, 1) probabilities between `edges`, to all digits: small ones must not become 0."""
    ends = np.concatenate([[-np.inf], edges, [np.inf]])
    lows, highs = ends[:-1], ends[1:]
    return np.asarray(np.where(lows > 0.0, ndtr(-lows) - ndtr(-highs), ndtr(highs) - ndtr(lows)))


def _mass(cells: Array, tails: Array) -> Array:
    return np.multiply.outer(cells, np.maximum(-np.diff(tails), 0.0))


def _accepted(ours: Array, theirs: Array) -> Array:
    """The first accepted edge of y for each likelihood ratio (a row) and cell of x."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.nan_to_num(np.log(ours) - np.log(theirs), nan=-np.inf)
    rising = np.maximum.accumulate(ratios, axis=1)
    levels = np.concatenate([-_LEVELS[:0:-1], _LEVELS])
    first = np.array([np.searchsorted(row, levels, side="right") for row in rising]).T
    return np.minimum.accumulate(first, axis=1)
