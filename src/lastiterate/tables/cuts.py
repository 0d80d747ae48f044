"""Cut points of a column of numbers, which are public: listed, or equally far apart in a range."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from lastiterate import _check
from lastiterate.errors import InvalidParameter

CUTS, BINS = "cuts", "bins"
_MOST_BINS = 1_000


def cut_points(
    name: str, given: Mapping[str, Any], ends: tuple[float, float] | None
) -> tuple[float, ...]:
    """The increasing cut points that a schema's entry `name` has, within `ends` if there are any.

    A cut at the upper end is allowed: cells beyond that end count as equal to it.
    """
    if CUTS in given and BINS in given:
        must_be = f'either "{CUTS}" or "{BINS}"'
        raise InvalidParameter(name, dict(given), must_be=must_be)
    if BINS in given:
        return _equal_parts(name, given[BINS], ends)
    listed = given[CUTS]
    low, high = (-math.inf, math.inf) if ends is None else ends
    is_list = isinstance(listed, (list, tuple)) and len(listed) > 0
    if not (is_list and all(type(one) in (int, float) and _is_finite(one) for one in listed)):
        must_be = "a list of at least one finite number, as in [30, 45, 60]"
        raise InvalidParameter(f'{name}["{CUTS}"]', listed, must_be=must_be)
    cuts = tuple(float(one) for one in listed)
    if not _increase(cuts):
        raise InvalidParameter(f'{name}["{CUTS}"]', listed, must_be="increasing, without repeats")
    if not (low < cuts[0] and cuts[-1] <= high):
        must_be = f"above {low:g} and at most {high:g}, as the range beside them says"
        raise InvalidParameter(f'{name}["{CUTS}"]', listed, must_be=must_be)
    return cuts


def interval_names(column: str, cuts: tuple[float, ...]) -> list[str]:
    """Names of the intervals: below the first cut, from each one to the next, from the last on."""
    written = [str(int(cut)) if cut.is_integer() and abs(cut) < 1e15 else repr(cut) for cut in cuts]
    between = [f"{low} <= {column} < {high}" for low, high in itertools.pairwise(written)]
    return [f"{column} < {written[0]}", *between, f"{column} >= {written[-1]}"]


def _equal_parts(name: str, bins: Any, ends: tuple[float, float] | None) -> tuple[float, ...]:
    if ends is None:
        must_be = f'given beside a range, as in {{"range": [0, 90], "{BINS}": 9}}'
        raise InvalidParameter(f'{name}["{BINS}"]', bins, must_be=must_be)
    count = _check.count(f'{name}["{BINS}"]', bins, at_least=2, at_most=_MOST_BINS)
    cuts = tuple(np.linspace(*ends, count + 1)[1:-1].tolist())
    if not _increase((ends[0], *cuts, ends[1])):
        must_be = "fewer: the range is too narrow to be divided into so many"
        raise InvalidParameter(f'{name}["{BINS}"]', bins, must_be=must_be)
    return cuts


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # a whole number beyond all floats
        return False


def _increase(numbers: tuple[float, ...]) -> bool:
    return all(low < high for low, high in itertools.pairwise(numbers))
