"""The fewest extra steps that meet a target, from few accounts."""

import math
from collections.abc import Callable

from lastiterate.unlearn.extra_steps import MOST_STEPS, ExtraSteps

_MOST_NOISE = 1e149
_FARTHEST = 20.0  # a logarithm as large as this tells nothing but a sign


def fewest(
    steps: ExtraSteps, epsilon_after: Callable[[int], float], target: float, *, start: int = 1
) -> int | None:
    """The least number that was seen to meet the target, one less being seen not to.

    Epsilon falls about as fast as the noise grows that the steps are worth, so logarithms tell
    where to look next.  None beyond `MOST_STEPS`.
    """
    low, high = -1, MOST_STEPS + 1  # where the target is not met, and is
    values: dict[int, float] = {}
    many, rounds = start, 0
    while True:
        values[many] = value = _log_ratio(epsilon_after(many), target)
        low, high = (low, many) if value <= 0.0 else (many, high)
        if high - low == 1:
            return high if high <= MOST_STEPS else None
        rounds += 1
        if high > MOST_STEPS:
            farther = steps.worth(_noise(steps, low, values[low] * (1.0 + rounds / 4.0)))
            many = MOST_STEPS if farther is None else min(max(farther, low + 1), MOST_STEPS)
        elif rounds % 5 == 0:
            many = (low + high) // 2
        else:
            many = min(max(_between(steps, low, high, values), low + 1), high - 1)


def _noise(steps: ExtraSteps, many: int, more: float) -> float:
    """The release noise that `many` steps are worth, times e^`more`."""
    factor = math.exp(min(max(more, -_FARTHEST), _FARTHEST))
    return min(steps.as_release_noise(max(many, 1)) * factor, _MOST_NOISE)


def _between(steps: ExtraSteps, low: int, high: int, values: dict[int, float]) -> int:
    """The steps at which a line through known log epsilons, by log noise, meets the target."""
    slope = 1.0
    first, last = (steps.as_release_noise(many) for many in (max(low, 0), high))
    if low >= 0 and 0.0 < first < last and values[low] < _FARTHEST and values[high] > -_FARTHEST:
        slope = (values[low] - values[high]) / math.log(last / first)
    found = steps.worth(_noise(steps, high, values[high] / slope))
    return high - 1 if found is None else found


def _log_ratio(value: float, target: float) -> float:
    if value == 0.0:
        return -math.inf
    return math.log(value / target) if value < math.inf else math.inf
