"""The label set of a classifier, and the codes of labels.

The label set is published with the model, so it must not come from the data: a label that only one
person has would reveal that person.  A declared label set is used as it is; an example with another
label counts, but its gradient is 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.multiclass import check_classification_targets

from lastiterate._numerics.rounding import Array
from lastiterate.certificate.fields import LABELS_DECLARED, LABELS_INFERRED
from lastiterate.errors import InvalidParameter, InvalidType, PrivacyWarning, warn
from lastiterate.tables import cells
from lastiterate.tables.cells import BadCells, any_numbers_of, array_of, keys_of, numbers_of, single

_WIDEST = "a sequence of at least two labels"


@dataclass(frozen=True)
class ClassLabels:
    """The label set, the position of each example's label in it, and a mask of unknown labels."""

    classes: NDArray[Any]
    codes: NDArray[np.intp]
    unknown: NDArray[np.bool_]
    provenance: str


def as_column(y: Any) -> NDArray[Any]:
    """Targets as a column in which each has the type that it had; errors quote none."""
    # Columns of pyarrow have a length, and text for which numpy may find no characters.
    if hasattr(y, "__array__") and not (hasattr(y, "shape") or hasattr(y, "to_pylist")):
        y = _converted(y)
    shape = getattr(y, "shape", None) if hasattr(y, "shape") else (_length(y),)
    if shape is None or len(shape) not in (1, 2) or any(width != 1 for width in shape[1:]):
        found = f"y should be a 1d array, got an array of shape {shape} instead"
        raise InvalidParameter("y", must_be=_COLUMN, found=found)
    if len(shape) == 2:
        warn("A column-vector y was passed when a 1d array was expected", DataConversionWarning)
        y = _only_column(y)
    try:
        return array_of(y)
    except BadCells as bad:
        raise refused_targets(bad, _COLUMN) from None


def _only_column(y: Any) -> Any:
    """The one column of an array or table, as it is stored; errors of conversions quote cells."""
    if hasattr(y, "iloc"):  # pandas
        return y.iloc[:, 0]
    if hasattr(y, "column_names"):  # pyarrow
        return y.column(0)
    if hasattr(y, "to_series"):  # polars
        return y.to_series(0)
    return _converted(y)


def _converted(y: Any) -> NDArray[Any]:
    try:
        return np.asarray(y)
    except Exception:
        pass
    raise InvalidType("y", must_be=_COLUMN, found=f"a {type(y).__name__} that numpy cannot read")


_COLUMN = "a column of targets, one for each row: text, numbers or truth values"


def _length(y: Any) -> int:
    try:
        return len(y)
    except TypeError:
        raise InvalidType("y", must_be=_COLUMN, found=f"a {type(y).__name__}") from None


def refused_targets(bad: BadCells, must_be: str) -> InvalidParameter:
    """The error for targets of another kind."""
    return InvalidParameter("y", must_be=bad.remedy or must_be, found=bad.found(0))


def numbers_in(targets: Any, *, finite: bool = True) -> Array:
    """Targets as numbers; unless `finite`, nan or infinite where one is none."""
    try:
        numbers = numbers_of(targets) if finite else any_numbers_of(targets)
    except BadCells as bad:
        raise refused_targets(bad, "finite numbers") from None
    if finite and np.isnan(numbers).any():
        found = "a target that is no finite number"
        raise InvalidParameter("y", must_be="finite numbers", found=found)
    return single(numbers)


def labels_of(targets: NDArray[Any], declared: Any) -> ClassLabels:
    """Targets coded by the declared labels; if None, by both booleans or the labels that occur."""
    if declared is None and targets.dtype.kind == "b":
        declared = [False, True]
    if declared is None:
        return _inferred(targets)
    classes = _checked(declared)
    codes = positions_of(targets, classes)
    unknown = codes < 0
    return ClassLabels(classes, np.where(unknown, 0, codes), unknown, LABELS_DECLARED)


def _inferred(targets: NDArray[Any]) -> ClassLabels:
    check_classification_targets(targets)
    classes, codes = np.unique(targets, return_inverse=True)
    if classes.size < 2:
        must_be = "of at least two classes; declare classes=.. if some may be absent"
        raise InvalidParameter("y", must_be=must_be, found=f"{classes.size} class")
    warn(
        "the label set was taken from y and is published with the model, so a label that only one "
        "example has reveals that example: declare it, classes=[..]",
        PrivacyWarning,
    )
    return ClassLabels(classes, codes, np.zeros(targets.size, dtype=bool), LABELS_INFERRED)


def _checked(declared: Any) -> NDArray[Any]:
    if isinstance(declared, (str, bytes)):
        raise InvalidType("classes", declared, must_be=_WIDEST)
    try:
        given = list(declared)
        array = np.asarray(given)
        classes = np.unique(array)
    except (TypeError, ValueError):
        raise InvalidType("classes", declared, must_be=f"{_WIDEST} of one kind") from None
    if array.ndim != 1 or classes.dtype.kind not in "biufU" or classes.size < 2:
        raise InvalidParameter("classes", declared, must_be=f"{_WIDEST}, numbers or text")
    if classes.dtype.kind == "f" and not np.isfinite(classes).all():
        raise InvalidParameter("classes", declared, must_be=f"{_WIDEST}, finite if numbers")
    if classes.dtype.kind == "U" and not all(isinstance(one, str) for one in given):
        raise InvalidType("classes", declared, must_be=f"{_WIDEST} of one kind")
    keys = keys_of(classes.tolist())
    if None in keys:
        must_be = f"{_WIDEST}, none of them a spelling of a missing one, as nan, None or null"
        raise InvalidParameter("classes", declared, must_be=must_be)
    if len(set(keys)) < classes.size:
        must_be = (
            f"{_WIDEST}, different as numbers in single precision too: 1, 1.0 and true are the same"
        )
        raise InvalidParameter("classes", declared, must_be=must_be)
    return classes


def positions_of(targets: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.intp]:
    """The position of each label among the classes, -1 for none."""
    keys = keys_of(classes.tolist())
    known = {key: k for k, key in enumerate(keys) if key is not None}
    try:
        return cells.positions_of(targets, known)
    except BadCells as bad:
        raise refused_targets(bad, "labels that are text, numbers or truth values") from None
