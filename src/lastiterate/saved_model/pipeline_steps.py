"""Steps, as data, that a saved pipeline applies to rows before its model sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from lastiterate import _check
from lastiterate._numerics.rounding import Array
from lastiterate.errors import InvalidParameter
from lastiterate.features.known_maps import FEATURE_STEP, map_of
from lastiterate.tables.encoder import Encoder
from lastiterate.train.rows import rows_within


@dataclass(frozen=True)
class SchemaStep:
    """The features of a table, divided so that no row is longer than the bound."""

    name: str
    bound: float | None
    dtype: str

    step: ClassVar[str] = "schema"

    def __post_init__(self) -> None:
        if self.bound is not None:
            _check.number("bound", self.bound, above=0.0)
        _check.choice("dtype", self.dtype, among=("float32", "float64"))

    def width(self, columns: int) -> int:
        """The number of features of rows that have this many columns."""
        return columns

    def apply(self, rows: Any, encoder: Encoder) -> Any:
        """The rows as a PrivateSchema gives them."""
        rows = rows.astype(self.dtype)
        if self.bound is None:
            return rows
        return np.multiply(rows, self.bound / encoder.feature_bound, out=rows)


@dataclass(frozen=True)
class ScalerStep:
    """Rows within a bound, mapped from public ranges first where there are some."""

    name: str
    bound: float
    low: tuple[float, ...] | None
    high: tuple[float, ...] | None

    step: ClassVar[str] = "scaler"

    def __post_init__(self) -> None:
        _check.number("bound", self.bound, above=0.0)
        if (self.low is None) != (self.high is None):
            raise InvalidParameter("high", self.high, must_be="given exactly if low is")
        for end in ("low", "high"):
            given = getattr(self, end)
            if given is not None:
                numbers = tuple(_check.number(end, one) for one in given)
                object.__setattr__(self, end, numbers)

    def width(self, columns: int) -> int:
        """The number of features of rows that have this many columns."""
        if self.low is not None and len(self.low) != columns:
            raise InvalidParameter("low", self.low, must_be=f"{columns} numbers")
        return columns

    def apply(self, rows: Any, encoder: Encoder) -> Any:
        """The rows as a PrivateScaler gives them."""
        del encoder
        return rows_within(rows, self.bound, self._ranges)

    @property
    def _ranges(self) -> tuple[Array, Array] | None:
        if self.low is None or self.high is None:
            return None
        return np.array(self.low), np.array(self.high)


@dataclass(frozen=True)
class FeatureStep:
    """Fixed features of rows, by the record of their map."""

    name: str
    map: Mapping[str, Any]

    step: ClassVar[str] = FEATURE_STEP

    def __post_init__(self) -> None:
        map_of(self.map)

    def width(self, columns: int) -> int:
        """The number of features of rows that have this many columns."""
        known = map_of(self.map)
        if known.input_width != columns:
            raise InvalidParameter("map", self.map, must_be=f"one of {columns} columns")
        return known.width

    def apply(self, rows: Any, encoder: Encoder) -> Any:
        """The features of the rows."""
        del encoder
        return map_of(self.map).apply(rows)


Step = SchemaStep | ScalerStep | FeatureStep
_KINDS: tuple[type[Step], ...] = (SchemaStep, ScalerStep, FeatureStep)


def as_record(step: Step) -> dict[str, Any]:
    """The step as a file has it."""
    return {"step": step.step, **asdict(step)}


def steps_of(record: Mapping[str, Any]) -> tuple[Step, ...]:
    """The steps of a file, first to last; a schema can only be the first."""
    found: list[Step] = []
    for one in record.get("steps", ()):
        (kind,) = (kind for kind in _KINDS if kind.step == one["step"])
        settings = {name: value for name, value in one.items() if name != "step"}
        if not isinstance(settings["name"], str) or (kind is SchemaStep and found):
            must_be = "a schema, then scalers and features"
            raise InvalidParameter("steps", one["step"], must_be=must_be)
        found.append(kind(**settings))
    return tuple(found)


def widths(steps: Sequence[Step], columns: int) -> list[int]:
    """The number of columns before each step, and behind the last."""
    found = [columns]
    for step in steps:
        found.append(step.width(found[-1]))
    return found
