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
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from lastiterate._warning import warn
from lastiterate.certificate.statements import LABELS_DECLARED, LABELS_INFERRED
from lastiterate.errors import InvalidParameter, InvalidType, PrivacyWarning
from lastiterate.tables.cells import positions_by_key, value_key

_WIDEST = "a sequence of at least two labels"


@dataclass(frozen=True)
class ClassLabels:
    """The label set, the position of each example's label in it, and a mask of unknown labels."""

    classes: NDArray[Any]
    codes: NDArray[np.intp]
    unknown: NDArray[np.bool_]
    provenance: str


def as_column(y: Any) -> NDArray[Any]:
    """Labels as a column; in a list of several types each label keeps its type."""
    if hasattr(y, "dtype") or hasattr(y, "__array__") or hasattr(y, "iloc"):
        return np.asarray(column_or_1d(y, warn=True))
    return np.asarray(column_or_1d(np.asarray(y, dtype=object), warn=True))


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
    if len(positions_by_key(classes.tolist())) < classes.size:
        must_be = f"{_WIDEST}, different as numbers too: 1, 1.0 and true are the same"
        raise InvalidParameter("classes", declared, must_be=must_be)
    return classes


def positions_of(targets: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.intp]:
    """The position of each label among the classes, -1 for none.

    One label of another type may turn a whole column into text or floats.  So every label is looked
    up by itself: by the number that it is or spells, else by its text.
    """
    known = positions_by_key(classes.tolist())

    def position(label: Any) -> int:
        try:
            key = value_key(label)
        except Exception:  # a label that cannot be read is none of them
            return -1
        return -1 if key is None else known.get(key, -1)

    if targets.dtype.kind in "OV":
        return np.array([position(label) for label in targets.tolist()], dtype=np.intp)
    occurring, which = np.unique(targets, return_inverse=True)
    return np.array([position(label) for label in occurring.tolist()], dtype=np.intp)[which]
