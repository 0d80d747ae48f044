"""Rules by which columns become features, from public facts on the columns.

In JSON: {"range": [low, high]}, {"cuts": [..]}, {"values": [..]}, "as it is" and "drop".  Missing
cells are refused unless "missing" gives a value for them.

One-hot features of all values add up to the constant of an intercept, so their coefficients are not
determined.  "baseline" names a value, or a number in an interval, that has no feature: the others'
coefficients are differences to it.  What was not declared is all zeros, so it counts as the
baseline; null says that this alone is.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from lastiterate import _check
from lastiterate._numerics.arrays import Array
from lastiterate.errors import InvalidParameter
from lastiterate.tables.cells import (
    BadCells,
    missing_in,
    numbers_of,
    positions_by_key,
    positions_of,
)

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
        must_be = f"above {low:g} and at most {high:g}, as the range requires"
        raise InvalidParameter(f'{name}["{CUTS}"]', listed, must_be=must_be)
    return cuts


def interval_names(column: str, cuts: tuple[float, ...]) -> list[str]:
    """Names of the intervals: below the first cut, from each one to the next, from the last on."""
    written = [str(int(cut)) if cut.is_integer() and abs(cut) < 1e15 else repr(cut) for cut in cuts]
    between = [f"{low} <= {column} < {high}" for low, high in itertools.pairwise(written)]
    return [f"{column} < {written[0]}", *between, f"{column} >= {written[-1]}"]


def _equal_parts(name: str, bins: Any, ends: tuple[float, float] | None) -> tuple[float, ...]:
    if ends is None:
        must_be = f'given with a range, as in {{"range": [0, 90], "{BINS}": 9}}'
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


AS_IT_IS, DROP = "as it is", "drop"
BASELINE = "baseline"
_UNDECLARED = -1  # the position of cells that have no declared value
_NUMBERS = {"range", CUTS, BINS}
WAYS = '{"range": [low, high]}, {"cuts": [..]}, {"values": [..]}, "drop" or "as it is"'
_LARGEST = 1e300  # ends of ranges; twice that must not overflow
_HUGE = 1e30  # a limit on unscaled numbers; longer rows are scaled down in any case


class ColumnRule(Protocol):
    """The type of a column and the features that it becomes."""

    @property
    def kind(self) -> str | None:
        """The type of its cells, "number" or "text"; None if they are not read."""

    @property
    def reach(self) -> float:
        """The squared norm that its features have at most; inf if unknown."""

    def names(self, column: str) -> list[str]:
        """The names of the features that a column of this name becomes."""

    def encode(self, column: Any, out: Array) -> None:
        """Fill `out`, which is zero, with a row for each cell; raises `BadCells`."""


@dataclass(frozen=True)
class DroppedColumn:
    """A column that is not read."""

    kind = None
    reach = 0.0

    def names(self, column: str) -> list[str]:
        del column
        return []

    def encode(self, column: Any, out: Array) -> None: ...


@dataclass(frozen=True)
class Numeric:
    """A number, mapped from its range (if it has one) to [-1, 1] and clipped to it."""

    range: tuple[float, float] | None = None
    missing: float | None = None
    indicator: bool = False

    kind = "number"

    @property
    def reach(self) -> float:
        if self.range is None:
            return math.inf
        filled = 0.0 if self.missing is None else float(self._scaled(np.array(self.missing)))
        return max(1.0, filled**2 + self.indicator)

    def names(self, column: str) -> list[str]:
        return [column, *self.indicator_names(column)]

    def indicator_names(self, column: str) -> list[str]:
        """The name of the indicator of empty cells, if there is one."""
        return [f"{column} is missing"] if self.indicator else []

    def encode(self, column: Any, out: Array) -> None:
        out[:, 0] = self._scaled(self.numbers(column))
        self.indicate(column, out)

    def indicate(self, column: Any, out: Array) -> None:
        """Fill the last feature if it is the indicator of empty cells."""
        if self.indicator:
            out[:, -1] = np.isnan(numbers_of(column))

    def numbers(self, column: Any) -> Array:
        """The numbers of a column, with missing cells filled in."""
        numbers = numbers_of(column)
        empty = np.isnan(numbers)
        if self.missing is None and empty.any():
            raise BadCells("an empty cell", np.flatnonzero(empty).tolist())
        return np.where(empty, math.nan if self.missing is None else self.missing, numbers)

    def _scaled(self, numbers: Array) -> Array:
        if self.range is None:
            return np.clip(numbers, -_HUGE, _HUGE)
        low, high = self.range
        with np.errstate(over="ignore"):  # inf is clipped, too
            return np.clip((2.0 * numbers - low - high) / (high - low), -1.0, 1.0)


@dataclass(frozen=True)
class Intervals:
    """A number, coded one-hot by the interval between two cut points that it lies in.

    An interval has its lower end and lacks its upper one.
    """

    number: Numeric
    cuts: tuple[float, ...]
    left_out: int | None = None  # the position of the baseline

    kind = "number"

    @property
    def reach(self) -> float:
        return 1.0 + self.number.indicator

    def names(self, column: str) -> list[str]:
        kept = _kept(interval_names(column, self.cuts), self.left_out)
        return [*kept, *self.number.indicator_names(column)]

    def baseline(self, column: str) -> str | None:
        """The name of the interval that has no feature; None if all have one."""
        if self.left_out is None:
            return None
        return interval_names(column, self.cuts)[self.left_out]

    def encode(self, column: Any, out: Array) -> None:
        positions = np.searchsorted(self.cuts, self.number.numbers(column), side="right")
        _mark(positions, self.left_out, out)
        self.number.indicate(column, out)


@dataclass(frozen=True)
class Categorical:
    """One of these values, coded one-hot; any other is all zeros, and so is the baseline."""

    values: tuple[str, ...]
    missing: str | None = None
    left_out: int | None = None  # the position of the baseline, -1 if it is undeclared values alone

    kind = "text"
    reach = 1.0

    def names(self, column: str) -> list[str]:
        return _kept([f"{column}={value}" for value in self.values], self.left_out)

    def baseline(self, column: str) -> str | None:
        """The name of the value that has no feature; None if every value has one."""
        if self.left_out is None:
            return None
        if self.left_out == _UNDECLARED:
            return f"any other {column}"
        return f"{column}={self.values[self.left_out]}"

    def encode(self, column: Any, out: Array) -> None:
        _mark(self.positions(column), self.left_out, out)

    def positions(self, column: Any) -> Any:
        """Each cell's position among the values, -1 for none, with missing cells filled in."""
        positions = positions_of(column, self.values)
        if self.missing is not None:
            unknown = np.flatnonzero(positions < 0)
            positions[missing_in(column, unknown)] = self.values.index(self.missing)
        return positions


def _kept(names: list[str], left_out: int | None) -> list[str]:
    return [name for k, name in enumerate(names) if k != left_out]


def _mark(positions: Any, left_out: int | None, out: Array) -> None:
    """Set the feature of each row's position to 1; the baseline and -1 have none."""
    if left_out is not None and left_out != _UNDECLARED:
        after = positions > left_out
        positions = np.where(positions == left_out, _UNDECLARED, positions - after)
    known = np.flatnonzero(positions >= 0)
    out[known, positions[known]] = 1.0


def rule_of(column: str, described: Any) -> ColumnRule:
    """The rule for a column of a schema; raises `InvalidParameter` if its entry is invalid."""
    name = f"schema[{column!r}]"
    if described == DROP:
        return DroppedColumn()
    if described == AS_IT_IS:
        return Numeric()
    if not isinstance(described, Mapping):
        raise InvalidParameter(name, described, must_be=WAYS)
    given = dict(described)
    if set(given) <= {"values", "missing", BASELINE} and "values" in given:
        return _categorical(name, given)
    in_parts = given.keys() & {CUTS, BINS}
    known = {"range", CUTS, BINS, "missing", "indicator"} | ({BASELINE} if in_parts else set())
    if set(given) <= known and given.keys() & _NUMBERS:
        ends = range_of(name, given["range"]) if "range" in given else None
        cuts = cut_points(name, given, ends) if in_parts else ()
        number = _numeric(name, given, ends)
        return Intervals(number, cuts, _left_out_interval(name, given, cuts)) if cuts else number
    if set(given) <= {AS_IT_IS, "missing", "indicator"} and given.get(AS_IT_IS) is True:
        return _numeric(name, given, None)
    must_be = f'{WAYS}, the first three perhaps with "missing"'
    raise InvalidParameter(name, described, must_be=must_be)


def is_unfilled(described: Any) -> bool:
    """Whether an entry is still as in the skeleton of a schema."""
    return described in ({"values": []}, {"range": [None, None]})


def range_of(name: str, given: Any) -> tuple[float, float]:
    """The two ends of a range, checked; the lower one first."""
    numbers = isinstance(given, (list, tuple)) and all(type(one) in (int, float) for one in given)
    if not (numbers and len(given) == 2 and -_LARGEST < given[0] < given[1] < _LARGEST):
        raise InvalidParameter(name, given, must_be="[low, high], finite, with low < high")
    return float(given[0]), float(given[1])


def _numeric(name: str, given: dict[str, Any], ends: tuple[float, float] | None) -> Numeric:
    missing: Any = given.get("missing")
    indicator = given.get("indicator", False)
    if "missing" in given:
        low, high = (-_LARGEST, _LARGEST) if ends is None else ends
        if not (type(missing) in (int, float) and low <= missing <= high):
            must_be = f"a number from {low:g} to {high:g}, the value of an empty cell"
            raise InvalidParameter(f'{name}["missing"]', missing, must_be=must_be)
        missing = float(missing)
    if type(indicator) is not bool or (indicator and missing is None):
        must_be = 'true or false, and given only with "missing"'
        raise InvalidParameter(f'{name}["indicator"]', indicator, must_be=must_be)
    return Numeric(ends, missing, indicator)


def _categorical(name: str, given: dict[str, Any]) -> Categorical:
    listed = given["values"]
    is_list = isinstance(listed, (list, tuple)) and len(listed) > 0
    if not is_list or not all(_is_value(one) for one in listed):
        must_be = "a list of at least one text or number"
        raise InvalidParameter(f'{name}["values"]', listed, must_be=must_be)
    values = tuple(str(one).strip() for one in listed)
    if len(positions_by_key(values)) < len(values):
        must_be = "all different, as numbers too: 1, 1.0 and true are the same"
        raise InvalidParameter(f'{name}["values"]', listed, must_be=must_be)
    left_out = _left_out_value(name, given, values)
    if "missing" not in given:
        return Categorical(values, left_out=left_out)
    missing = str(given["missing"]).strip()
    if missing not in values:
        must_be = "one of the values, for an empty cell"
        raise InvalidParameter(f'{name}["missing"]', given["missing"], must_be=must_be)
    return Categorical(values, missing, left_out)


def with_first_baseline(column: str, described: Any) -> Any:
    """The entry of a column, whose first value or interval is its baseline if it has none yet."""
    rule = rule_of(column, described)
    if not isinstance(described, Mapping) or BASELINE in described:
        return described
    if isinstance(rule, Categorical) and len(rule.values) > 1:
        return {**described, BASELINE: described["values"][0]}
    if isinstance(rule, Intervals):
        first = rule.cuts[0]
        return {**described, BASELINE: first - max(1.0, abs(first))}
    return described


def _left_out_value(name: str, given: dict[str, Any], values: tuple[str, ...]) -> int | None:
    if BASELINE not in given:
        return None
    baseline = given[BASELINE]
    if baseline is None:
        return _UNDECLARED
    if len(values) < 2 or str(baseline).strip() not in values:
        must_be = (
            "one of at least two values, the one that the others are compared with; or null, if "
            "they are compared with whatever is not declared"
        )
        raise InvalidParameter(f'{name}["{BASELINE}"]', baseline, must_be=must_be)
    return values.index(str(baseline).strip())


def _left_out_interval(name: str, given: dict[str, Any], cuts: tuple[float, ...]) -> int | None:
    if BASELINE not in given:
        return None
    baseline = given[BASELINE]
    if type(baseline) not in (int, float) or not _is_finite(baseline):
        must_be = "a number in the interval that the others are compared with"
        raise InvalidParameter(f'{name}["{BASELINE}"]', baseline, must_be=must_be)
    return int(np.searchsorted(cuts, baseline, side="right"))


def _is_value(one: Any) -> bool:
    return isinstance(one, (str, int)) or (isinstance(one, float) and math.isfinite(one))
