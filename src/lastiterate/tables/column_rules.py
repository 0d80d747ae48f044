"""Rules by which columns become features, from public facts on the columns.

In JSON: {"range": [low, high]}, {"cuts": [..]}, {"dates": [first, last]}, {"values": [..]},
{"days_between": [column, column], "range": [low, high]}, "as it is" and "drop".  Missing cells are
refused unless "missing" gives a value for them.

One-hot features of all values add up to the constant of an intercept, so their coefficients are not
determined.  "baseline" names a value, or a number in an interval, that has no feature: the others'
coefficients are differences to it.  What was not declared is all zeros, so it counts as the
baseline; null says that this alone is.
"""

from __future__ import annotations

import datetime as dt
import itertools
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from lastiterate import _check
from lastiterate._numerics.rounding import Array
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.tables.cells import (
    BadCells,
    Instant,
    Key,
    cell_of,
    days_of,
    keys_of,
    missing_in,
    numbers_of,
    positions_of,
    read,
    single,
)

CUTS, BINS = "cuts", "bins"
_MOST_BINS = 1_000
AS_IT_IS, DROP = "as it is", "drop"
BASELINE = "baseline"
_UNDECLARED = -1  # the position of cells that have no declared value
DATES, DAYS_BETWEEN = "dates", "days_between"
_NUMBER_PARTS = {"range", CUTS, BINS}

WAYS = (
    '{"range": [low, high]}, {"cuts": [..]}, {"dates": [first, last]}, {"values": [..]}, "drop" or '
    '"as it is"'
)

_LARGEST_END = 1e300  # ends of ranges; twice that must not overflow
_LARGEST_UNSCALED = 1e30  # a limit on unscaled numbers; longer rows are scaled down in any case
_LEAST_RELATIVE_WIDTH, _LEAST_WIDTH = 2.0**-16, 1e-37  # of a range, first by its larger end
EMPTY, FILLED = "an empty cell", 'unless the schema has "missing"'

WIDE = (
    "wider: numbers are read in single precision, so a range must be at least 1/65,536 of its "
    "larger end wide; subtract a public number from the column first"
)

_SAMPLE_DATE = dt.datetime(2021, 2, 3, 14, 5, 6)  # a date whose parts are all different


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
    if not _is_increasing(cuts):
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
    if not _is_increasing((ends[0], *cuts, ends[1])):
        must_be = "fewer: the range is too narrow to be divided into so many"
        raise InvalidParameter(f'{name}["{BINS}"]', bins, must_be=must_be)
    return cuts


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # a whole number beyond all floats
        return False


def _is_increasing(numbers: tuple[float, ...]) -> bool:
    return all(low < high for low, high in itertools.pairwise(numbers))


class ColumnRule(Protocol):
    """The type of a column and the features that it becomes."""

    @property
    def kind(self) -> str | None:
        """The type of its cells, "number", "text" or "date"; None if they are not read."""

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
        filled = 0.0 if self.missing is None else float(self._scale(self._filling))
        return max(1.0, filled**2 + self.indicator)

    def names(self, column: str) -> list[str]:
        return [column, *self.indicator_names(column)]

    def indicator_names(self, column: str) -> list[str]:
        """The name of the indicator of empty cells, if there is one."""
        return [f"{column} is missing"] if self.indicator else []

    def encode(self, column: Any, out: Array) -> None:
        out[:, 0] = self._scale(self.filled(column, out))

    def filled(self, column: Any, out: Array) -> Array:
        """The numbers, with missing cells filled in; the last feature if it tells of these."""
        numbers = self._read(column)
        empty = np.isnan(numbers)
        if self.missing is None and empty.any():
            raise BadCells(EMPTY, np.flatnonzero(empty).tolist(), self.filling)
        if self.indicator:
            out[:, -1] = empty
        return numbers if self.missing is None else np.where(empty, self._filling, numbers)

    def numbers(self, column: Any) -> Array:
        """The numbers of a column, with missing cells filled in."""
        return self.filled(column, np.empty((len(column), 1)))

    @property
    def _filling(self) -> Array:
        return self.rounded(self.missing)

    @property
    def filling(self) -> str:
        """An example of an entry for empty cells."""
        middle = 0.0 if self.range is None else sum(self.range) / 2.0
        return f'{FILLED}: {middle:.6g}, perhaps with "indicator": true'

    def _read(self, column: Any) -> Array:
        return numbers_of(column)

    def rounded(self, numbers: Any) -> Array:
        """Public numbers as those of cells are read."""
        return np.asarray(single(numbers))

    def _scale(self, numbers: Array) -> Array:
        if self.range is None:
            return np.clip(numbers, -_LARGEST_UNSCALED, _LARGEST_UNSCALED)
        low, high = self.rounded(self.range)
        with np.errstate(over="ignore"):  # inf is clipped, too
            return np.asarray(np.clip((2.0 * numbers - low - high) / (high - low), -1.0, 1.0))


@dataclass(frozen=True)
class Dates(Numeric):
    """A date in days since 1970, mapped from its range to [-1, 1] and clipped to it."""

    format: str | None = None

    kind = "date"

    @property
    def filling(self) -> str:
        assert self.range is not None
        middle = np.datetime64(int(sum(self.range) // 2.0), "D")
        return f'{FILLED}: "{middle}", perhaps with "indicator": true'

    def _read(self, column: Any) -> Array:
        return days_of(column, self.format)

    def rounded(self, numbers: Any) -> Array:
        return np.asarray(numbers, dtype=np.float64)


@dataclass(frozen=True)
class DaysBetween:
    """The days from the date in one column to that in another, as a number."""

    columns: tuple[str, str]
    number: Numeric | Intervals
    format: str | None = None

    kind = "date"

    @property
    def reach(self) -> float:
        return self.number.reach

    def names(self, column: str) -> list[str]:
        return self.number.names(column)

    def encode(self, column: Any, out: Array) -> None:
        """Fill `out` from a pair of columns."""
        first, last = (days_of(one, self.format) for one in column)
        self.number.encode(last - first, out)


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
        kept = _kept_names(interval_names(column, self.cuts), self.left_out)
        return [*kept, *self.number.indicator_names(column)]

    def baseline(self, column: str) -> str | None:
        """The name of the interval that has no feature; None if all have one."""
        if self.left_out is None:
            return None
        return interval_names(column, self.cuts)[self.left_out]

    def encode(self, column: Any, out: Array) -> None:
        numbers = self.number.filled(column, out)
        positions = np.searchsorted(self.number.rounded(self.cuts), numbers, side="right")
        _mark(positions, self.left_out, out)


@dataclass(frozen=True)
class Categorical:
    """One of these values, coded one-hot; any other is all zeros, and so is the baseline."""

    values: tuple[str, ...]
    missing: str | None = None
    left_out: int | None = None  # the position of the baseline, -1 if it is undeclared values alone

    kind = "text"
    reach = 1.0

    def names(self, column: str) -> list[str]:
        return _kept_names([f"{column}={value}" for value in self.values], self.left_out)

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
        cells = read(column)
        positions = positions_of(cells, self._positions_by_key)
        if self.missing is not None:
            unknown = np.flatnonzero(positions < 0)
            positions[missing_in(cells, unknown)] = self.values.index(self.missing)
        return positions

    @property
    def _positions_by_key(self) -> dict[Key, int]:
        keys = keys_of(self.values)
        return {key: k for k, key in enumerate(keys) if key is not None}


def _kept_names(names: list[str], left_out: int | None) -> list[str]:
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
        return _categorical_rule(name, given)
    if set(given) <= {DATES, "format", "missing", "indicator"} and DATES in given:
        return _dates_rule(name, given)
    if DATES in given and (unknown := given.keys() & {"range", CUTS, BINS, BASELINE}):
        must_be = (
            f"left out beside {DATES!r}: a date is one number, mapped from the two dates to "
            "[-1, 1]; to code intervals, add a column of years or days to the table"
        )
        raise InvalidParameter(f'{name}["{sorted(unknown)[0]}"]', must_be=must_be, found="both")
    if DAYS_BETWEEN in given:
        return _days_between_rule(name, given)
    if _are_numbers(given):
        return _number_rule(name, given)
    if set(given) <= {AS_IT_IS, "missing", "indicator"} and given.get(AS_IT_IS) is True:
        return _numeric_rule(name, given, None)
    must_be = f'{WAYS}, the first four perhaps with "missing"'
    raise InvalidParameter(name, described, must_be=must_be)


def is_unfilled(described: Any) -> bool:
    """Whether an entry is still as in the skeleton of a schema."""
    if not isinstance(described, Mapping):
        return False
    parts = [part for key, part in described.items() if key != BASELINE]
    return any(part is None or part in ([], [None, None]) for part in parts)


def range_of(name: str, given: Any) -> tuple[float, float]:
    """The two ends of a range, checked; the lower one first."""
    numbers = isinstance(given, (list, tuple)) and all(type(one) in (int, float) for one in given)
    if not (numbers and len(given) == 2 and -_LARGEST_END < given[0] < given[1] < _LARGEST_END):
        must_be = "[low, high], finite, with low < high"
        if isinstance(given, (list, tuple)) and any(isinstance(one, str) for one in given):
            must_be += f' (numbers; for dates {{"{DATES}": ["2021-01-01", "2024-12-31"]}})'
        raise InvalidParameter(name, given, must_be=must_be)
    low, high = float(given[0]), float(given[1])
    if not is_wide(low, high):
        raise InvalidParameter(name, given, must_be=WIDE)
    return low, high


def is_wide(low: float, high: float) -> bool:
    """Whether single precision divides a range finely."""
    return (
        high / 2.0 - low / 2.0
        >= max(_LEAST_RELATIVE_WIDTH * max(abs(low), abs(high)), _LEAST_WIDTH) / 2.0
    )


def _are_numbers(given: Mapping[str, Any]) -> bool:
    """Whether an entry has the parts of one for numbers, and no others."""
    baseline = {BASELINE} if given.keys() & {CUTS, BINS} else set()
    known = {"range", CUTS, BINS, "missing", "indicator"} | baseline
    return bool(given.keys() & _NUMBER_PARTS) and set(given) <= known


def _number_rule(name: str, given: dict[str, Any]) -> Numeric | Intervals:
    ends = range_of(name, given["range"]) if "range" in given else None
    cuts = cut_points(name, given, ends) if given.keys() & {CUTS, BINS} else ()
    if not _is_increasing(tuple(single(cuts).tolist())):
        must_be = "farther apart: numbers are read in single precision"
        raise InvalidParameter(f'{name}["{CUTS}"]', list(cuts), must_be=must_be)
    number = _numeric_rule(name, given, ends)
    return Intervals(number, cuts, _left_out_interval(name, given, cuts)) if cuts else number


def _numeric_rule(name: str, given: dict[str, Any], ends: tuple[float, float] | None) -> Numeric:
    missing: Any = given.get("missing")
    if "missing" in given:
        low, high = (-_LARGEST_END, _LARGEST_END) if ends is None else ends
        if not (type(missing) in (int, float) and low <= missing <= high):
            must_be = f"a number from {low:g} to {high:g}, the value of an empty cell"
            raise InvalidParameter(f'{name}["missing"]', missing, must_be=must_be)
        missing = float(missing)
    return Numeric(ends, missing, _indicator(name, given))


def _indicator(name: str, given: dict[str, Any]) -> bool:
    indicator = given.get("indicator", False)
    if type(indicator) is not bool or (indicator and "missing" not in given):
        must_be = 'true or false, and given only with "missing"'
        raise InvalidParameter(f'{name}["indicator"]', indicator, must_be=must_be)
    return indicator


def _dates_rule(name: str, given: dict[str, Any]) -> Dates:
    ends = given[DATES]
    must_be = (
        'two dates between 1678 and 2262, the earlier one first, as in ["2021-01-01", "2024-12-31"]'
    )
    if not (isinstance(ends, (list, tuple)) and len(ends) == 2):
        raise InvalidParameter(f'{name}["{DATES}"]', ends, must_be=must_be)
    low, high = (_day(f'{name}["{DATES}"]', one, must_be) for one in ends)
    if not low < high:
        raise InvalidParameter(f'{name}["{DATES}"]', ends, must_be=must_be)
    format = _format(name, given)
    missing = None
    if "missing" in given:
        must_be = f"a date from {ends[0]} to {ends[1]}, the value of an empty cell"
        missing = _day(f'{name}["missing"]', given["missing"], must_be)
        if not low <= missing <= high:
            raise InvalidParameter(f'{name}["missing"]', given["missing"], must_be=must_be)
    return Dates((low, high), missing, _indicator(name, given), format)


def _day(name: str, given: Any, must_be: str) -> float:
    """A public date in days since 1970."""
    try:
        day = float(days_of([given])[0]) if isinstance(given, str) else math.nan
    except BadCells:
        day = math.nan
    if math.isnan(day):
        raise InvalidParameter(name, given, must_be=must_be)
    return day


def _format(name: str, given: dict[str, Any]) -> str | None:
    """The stated format of dates in text; None without one."""
    if "format" not in given:
        return None
    format, name = given["format"], f'{name}["format"]'
    must_be = 'a format of dates in text, such as "%d.%m.%Y", with a year'
    if not isinstance(format, str):
        raise InvalidType(name, format, must_be=must_be)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)  # of a format without a year
            written = _SAMPLE_DATE.strftime(format)
            found = dt.datetime.strptime(written, format)
    except (ValueError, DeprecationWarning):
        raise InvalidParameter(name, format, must_be=must_be) from None
    if found.year != _SAMPLE_DATE.year:
        raise InvalidParameter(name, format, must_be=must_be)
    cell = cell_of(written)
    if isinstance(cell, Instant) and days_of([written])[0] != days_of([str(found)])[0]:
        must_be = "left out, or another: such text is read as ISO 8601 has it, year, month, day"
        raise InvalidParameter(name, format, must_be=must_be)
    if isinstance(cell, float) and not format.startswith("%Y%m%d"):
        must_be = 'one whose text is no number, unless it begins with "%Y%m%d"'
        raise InvalidParameter(name, format, must_be=must_be)
    return format


def _days_between_rule(name: str, given: dict[str, Any]) -> DaysBetween:
    pair = given[DAYS_BETWEEN]
    is_pair = isinstance(pair, (list, tuple)) and len(pair) == 2
    if not is_pair or not all(isinstance(one, str) for one in pair) or pair[0] == pair[1]:
        must_be = 'the names of two columns of dates, as in ["admitted", "discharged"]'
        raise InvalidParameter(f'{name}["{DAYS_BETWEEN}"]', pair, must_be=must_be)
    rest = {key: part for key, part in given.items() if key not in (DAYS_BETWEEN, "format")}
    if not _are_numbers(rest):
        must_be = f'{{"{DAYS_BETWEEN}": [..], "range": [0, 60]}}, or with "{CUTS}"'
        raise InvalidParameter(name, given, must_be=must_be)
    return DaysBetween((pair[0], pair[1]), _number_rule(name, rest), _format(name, given))


def _categorical_rule(name: str, given: dict[str, Any]) -> Categorical:
    listed = given["values"]
    is_list = isinstance(listed, (list, tuple)) and len(listed) > 0
    if not is_list or not all(_is_value(one) for one in listed):
        must_be = "a list of at least one text or number"
        raise InvalidParameter(f'{name}["values"]', listed, must_be=must_be)
    values = tuple(str(one).strip() for one in listed)
    missing = str(given["missing"]).strip() if "missing" in given else None
    if missing is not None and missing not in values:
        must_be = "one of the values, for an empty cell"
        raise InvalidParameter(f'{name}["missing"]', given["missing"], must_be=must_be)
    keys = keys_of(values)
    empty = [value for value, key in zip(values, keys, strict=True) if key is None]
    if any(value != missing for value in empty):
        must_be = (
            "different from spellings of an empty cell: leave it out, or name it as the value of "
            'empty cells, "missing"'
        )
        raise InvalidParameter(f'{name}["values"]', listed, must_be=must_be)
    if len(set(keys)) < len(keys):
        must_be = "all different, as numbers in single precision too: 1, 1.0 and true are the same"
        raise InvalidParameter(f'{name}["values"]', listed, must_be=must_be)
    return Categorical(values, missing, _left_out_value(name, given, values))


def with_first_baseline(column: str, described: Any) -> Any:
    """The entry of a column, whose first value or interval is its baseline if it has none yet."""
    rule = rule_of(column, described)
    if not isinstance(described, Mapping) or BASELINE in described:
        return described
    if isinstance(rule, Categorical) and len(rule.values) > 1:
        return {**described, BASELINE: described["values"][0]}
    number = rule.number if isinstance(rule, DaysBetween) else rule
    if isinstance(number, Intervals):
        first = number.cuts[0]
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
    return int(np.searchsorted(single(cuts), single(baseline), side="right"))


def _is_value(one: Any) -> bool:
    return isinstance(one, (str, int)) or (isinstance(one, float) and math.isfinite(one))
