"""model.json: the model file that `lastiterate train` and `lastiterate.save` write."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lastiterate import _check
from lastiterate._files import with_an_end
from lastiterate._numerics.rounding import Array
from lastiterate.errors import InvalidParameter, LastIterateError, OtherVersion
from lastiterate.features.known_maps import (
    FEATURE_MAPS,
    FEATURE_STEP,
    UnknownScale,
    encoded_maps,
    map_of,
)
from lastiterate.other_releases import INTERVALS, MEAN, PUBLISHED, RATES
from lastiterate.saved_model.file_writing import CERTIFICATE
from lastiterate.tables.column_rules import range_of
from lastiterate.tables.encoder import Encoder
from lastiterate.tables.files import read_object
from lastiterate.train.centring import Centre, as_published
from lastiterate.train.data import MEASURED, interval_digest, linear_outputs
from lastiterate.train.rows import rows_within

FORMAT = "lastiterate model 3"
_LEDGER = "ledger"
MODELS = ("logistic", "svc", "ridge", "huber")
_MOST_MEASURED_COEFFICIENTS = 10_000  # coefficients, whose covariance then takes 800 MB
EXPECTED_FILE = "a model.json as `lastiterate train` or lastiterate.save wrote it"

# The learned part; the rest describes how to use the model.
_LEARNED = ("parameters", "coef", "intercept", "center", "center_bound")


class AlteredModel(InvalidParameter):
    """A model file that was altered after `train` wrote it."""


@dataclass(frozen=True)
class SavedModel:
    """A model in a file."""

    record: dict[str, Any]

    @property
    def target(self) -> str:
        return str(self.record["target"])

    @property
    def classes(self) -> tuple[str, ...] | None:
        """The names of the classes; None for a regression."""
        found = self.record["classes"]
        return None if found is None else tuple(found)

    @property
    def made_by_command(self) -> bool:
        """Whether `lastiterate train` made it, which says what ledger was charged, if any."""
        return _LEDGER in self.record

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """Steps that are applied to the encoded rows before the model sees them."""
        return steps_of(self.record)

    @property
    def parameters(self) -> Array:
        """The released parameters."""
        return np.array(self.record["parameters"], dtype=np.float64)

    @cached_property
    def encoder(self) -> Encoder:
        return Encoder.of(self.record["schema"], self.record["columns"])

    @property
    def encoding(self) -> dict[str, Any]:
        """The part that describes how to use the model: names, ranges, values and classes."""
        return {name: part for name, part in self.record.items() if name not in _LEARNED}

    @cached_property
    def centre(self) -> Centre | None:
        """The published mean that rows were centred around."""
        return _centre(self.record)

    @property
    def intervals(self) -> tuple[Array, Array] | None:
        """The estimate of all coefficients and the covariance of its error; None without."""
        stated = self.record.get("intervals")
        if stated is None:
            return None
        estimate, covariance = (stated[name] for name in MEASURED)
        if not len(estimate) == self.parameters.size <= _MOST_MEASURED_COEFFICIENTS:
            raise ValueError("not as many as there are coefficients, or too many for a matrix")
        shape = (len(estimate),) * 2
        found = np.full(shape, math.inf) if covariance is None else _number_array(covariance)
        return _number_array(estimate), found.reshape(shape)

    def outputs(self, rows: Array) -> Array:
        """The linear outputs of encoded rows, one column each; rows are bounded as in training."""
        return linear_outputs(
            self.features(rows),
            np.atleast_2d(np.array(self.record["coef"])),
            np.array(self.record["intercept"]),
            bound=self.record["feature_bound"],
            centre=self.centre,
        )

    def features(self, rows: Array) -> Any:
        """The rows that the model sees, from encoded rows."""
        for step in self.steps:
            rows = step.apply(rows, self.encoder)
        return rows

    def matches_certificate(self, described: Mapping[str, Any]) -> bool:
        """Whether predictions use the numbers that the certificate describes."""
        features = described["features"]
        if self.record["feature_bound"] != features["bound"] or not self._centre_matches(described):
            return False
        rates = [one[PUBLISHED] for one in described["other_releases"] if one["kind"] == RATES]
        if (rates[0] if rates else None) != self.record.get("rate_shift"):
            return False
        stated = [one[PUBLISHED] for one in described["other_releases"] if one["kind"] == INTERVALS]
        if stated != ([] if self.intervals is None else [interval_digest(*self.intervals)]):
            return False
        maps = encoded_maps(self.encoding)
        if maps and described.get(FEATURE_MAPS, maps) != maps:
            return False
        coef, intercept = (np.array(self.record[name]) for name in ("coef", "intercept"))
        expected = self._expected_coefficients(
            features["intercept"], features["bound"], coef.shape[1]
        )
        return np.array_equal(coef, expected[0]) and np.array_equal(intercept, expected[1])

    def _centre_matches(self, described: Mapping[str, Any]) -> bool:
        """Whether the centre is the certified one."""
        stated = [one for one in described["other_releases"] if one["kind"] == MEAN]
        if self.centre is None or not stated:
            return self.centre is None and not stated
        return bool(stated[0][PUBLISHED] == as_published(self.centre))

    def _expected_coefficients(
        self, constant: float, bound: float, width: int
    ) -> tuple[Array, Array]:
        """Coefficients and intercepts, computed from the released parameters."""
        parameters = self.parameters
        coef, intercept = parameters[:, :width].copy(), np.zeros(len(parameters))
        if constant:
            intercept = constant * parameters[:, width]
        if self.centre is not None:
            coef *= bound / self.centre.bound
            intercept = intercept - self.centre.outputs(coef)
        # In the order in which the model adds them, so that all bits are the same.
        for name in ("offset", "rate_shift"):
            if (stated := self.record.get(name)) is not None:
                intercept = intercept + np.array(stated, dtype=np.float64)
        if self.record["target_range"] is None:
            return coef, intercept
        low, high = self.record["target_range"]
        middle, half = low / 2.0 + high / 2.0, high / 2.0 - low / 2.0
        return coef * half, intercept * half + middle

    def text(self) -> str:
        """The file."""
        return json.dumps(self.record | {"digest": digest(self.record)}, indent=1) + "\n"


def _centre(record: Mapping[str, Any]) -> Centre | None:
    mean, bound = record["center"], record["center_bound"]
    if mean is None and bound is None:
        return None
    return Centre(_number_array(mean), _check.number("center_bound", bound, above=0.0))


def _number_array(stated: Any) -> Array:
    """Numbers as an array; text is refused, even where it could be read as numbers."""
    found = np.array(stated)
    if found.dtype.kind not in "iuf":
        raise TypeError("no numbers")
    return found.astype(np.float64)


def read_model(path: Path) -> SavedModel:
    """The model that `train` or `save` wrote to a file; raises if it was altered since."""
    record = read_object(path, name="model", must_be=EXPECTED_FILE)
    stated = record.pop("digest", None)
    found = record.get("format")
    if found != FORMAT:
        if re.fullmatch(r"lastiterate model \d+", str(found)):
            raise OtherVersion.of(str(path), repr(found), repr(FORMAT), issuer_beside(path))
        raise InvalidParameter("model", str(path), must_be=EXPECTED_FILE)
    if stated != digest(record):
        found = f"{path}, altered since: its digest is not that of its text"
        raise AlteredModel("model", must_be=EXPECTED_FILE, found=found)
    if not is_complete(record):
        raise InvalidParameter("model", str(path), must_be=EXPECTED_FILE)
    return SavedModel(record)


def issuer_beside(path: Path) -> object:
    """The software that the certificate beside a file names; None if there is none to be read."""
    try:
        return json.loads(with_an_end(path.with_name(CERTIFICATE)).read_text(encoding="utf-8"))[
            "software"
        ]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def is_complete(record: dict[str, Any]) -> bool:
    """Whether a record has all parts that predictions need."""
    try:
        columns, classes = tuple(record["columns"]), record["classes"]
        width = widths(steps_of(record), Encoder.of(dict(record["schema"]), columns).width)[-1]
        _check.number("feature_bound", record["feature_bound"], above=0.0)
        _check.choice("model", record["model"], among=MODELS)
        coef, intercept, parameters = (
            _number_array(record[name]) for name in ("coef", "intercept", "parameters")
        )
        centre = _centre(record)
        names = (record["target"], *columns, *(classes or ()), *record["settings"], record["name"])
        outputs = 1
        if classes is None:
            range_of("target_range", record["target_range"])
        else:
            outputs = 1 if len(classes) == 2 else len(classes)
            if len(classes) < 2 or record["target_range"] is not None:
                return False
        offset, shift = (
            _number_array(record.get(name) or np.zeros(outputs))
            for name in ("offset", "rate_shift")
        )
        _ = SavedModel(record).intervals
        labels_in(record)
    except UnknownScale:
        raise
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, LastIterateError):
        return False
    return bool(
        all(isinstance(name, str) for name in names)
        and coef.shape == (outputs, width)
        and intercept.shape == offset.shape == shift.shape == (outputs,)
        and parameters.shape in ((outputs, width), (outputs, width + 1))
        and all(np.isfinite(part).all() for part in (coef, intercept, parameters, offset, shift))
        and (centre is None or (centre.mean.shape == (width,) and np.isfinite(centre.mean).all()))
    )


def labels_in(record: Mapping[str, Any]) -> NDArray[Any] | None:
    """The labels of the classes with the types that they had in Python; None for a regression."""
    stated = record["labels"]
    if stated is None and record["classes"] is None:
        return None
    labels = np.array(stated["values"], dtype=np.dtype(stated["dtype"]))
    is_text = all(isinstance(one, str) for one in stated["values"])
    if labels.dtype.kind not in "biufUO" or (labels.dtype.kind in "UO") != is_text:
        raise InvalidParameter("labels", stated, must_be="numbers or text")
    if [str(one) for one in labels.tolist()] != list(record["classes"]):
        raise InvalidParameter("labels", stated, must_be="the classes")
    return labels


def digest(record: dict[str, Any]) -> str:
    """The digest of a record, which detects damage; it does not prove the origin."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def learned_record(model: Any) -> dict[str, Any]:
    """The released parameters of a model, and the numbers that predictions use."""
    centre = model.center_
    return {
        "parameters": model.parameters_.tolist(),
        "coef": np.atleast_2d(model.coef_).tolist(),
        "intercept": np.atleast_1d(model.intercept_).tolist(),
        "center": None if centre is None else centre.tolist(),
        "center_bound": model.center_bound_,
    }


# Steps, as data, that a saved pipeline applies to rows before its model sees them.


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
