"""Validation of rows and targets, with errors that do not quote them.

A raw data frame is refused: its columns have units and different ranges, and scaled
down to a common length, only the largest column would be left of a row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.exceptions import DataConversionWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from lastiterate import _check
from lastiterate._numerics.rounding import Array
from lastiterate.certificate.fields import LABELS_DECLARED, LABELS_INFERRED
from lastiterate.errors import InvalidParameter, InvalidType, PrivacyWarning, warn
from lastiterate.tables import cells
from lastiterate.tables.cells import BadCells, any_numbers_of, array_of, keys_of, numbers_of, single
from lastiterate.tables.plain_rows import is_frame, plain_rows, validated
from lastiterate.train.discreet import discreetly, is_dask
from lastiterate.train.rows import compressed, is_mapped

SCALED = (
    "map columns to [-1, 1] by publicly known ranges, PrivateScaler(low=.., high=..), and set "
    "feature_bound to the norm of the longest possible row, the square root of the number of "
    "columns; or, if only the direction of rows matters, as for embeddings, set feature_bound=1"
)

_USE_A_SCHEMA = (
    "a PrivateSchema as the first step of a pipeline encodes text and numbers by public facts on "
    'each column, as in PrivateSchema({"age": {"range": [18, 90]}, "job": '
    '{"values": ["clerk", "nurse"]}, "id": "drop"}), and its rows have feature_bound 1'
)

_TEXT_TYPES = (
    "object",
    "str",
    "categor",
    "enum",
    "utf8",
    "large_str",
)  # types of pandas and polars
# What scikit-learn is asked to check of rows.
_LIMITS: dict[str, Any] = {
    "accept_sparse": "csr",
    "dtype": [np.float64, np.float32],
    "order": "C",
}

_LABEL_SEQUENCE = "a sequence of at least two labels"
_TARGET_COLUMN = "a column of targets, one for each row: text, numbers or truth values"

_SUBSTITUTES = {
    "C": "l2 is the penalty; the noise regularises, so none is needed by default",
    "alpha": "l2 is the penalty; the noise regularises, so none is needed by default",
    "penalty": "l2=.. is the only one",
    "class_weight": "regressors have no classes; fit takes sample_weight, one weight in (0, 1] for "
    "each example",
    "sample_weight": "fit takes it, one weight in (0, 1] for each example",
    "max_iter": "epochs is the number of passes over the data",
    "tol": "the time at which a run stops by itself reveals the data; set epochs",
    "solver": "there is one, noisy gradient descent",
    "multi_class": "three or more classes are multinomial",
    "learning_rate": "the step size follows from the bounds",
    "n_jobs": "products run on the threads of numpy's BLAS",
    "warm_start": "a start at a released model would have to be charged for both runs; fit anew, "
    "and compose the privacy_ of both",
}


def rows_and_targets(
    estimator: Any, X: Any, y: Any, *, numeric: bool, any_target: bool
) -> tuple[Any, NDArray[Any]]:
    """Rows and targets for a fit; with `any_target`, targets are not checked."""
    return discreetly(
        lambda: _validate_for_fit(estimator, X, y, numeric=numeric, any_target=any_target)
    )


def rows_alone(estimator: Any, X: Any, *, reset: bool = False) -> Any:
    """Rows for a fitted model, or for a scaler; `reset` stores their width."""
    _refuse_dask("X", X)
    return discreetly(
        lambda: validated(estimator, X, _plain_or_compressed(X), reset=reset, **_LIMITS)
    )


def _validate_for_fit(
    estimator: Any, X: Any, y: Any, *, numeric: bool, any_target: bool
) -> tuple[Any, NDArray[Any]]:
    _refuse_dask("X", X)
    _refuse_dask("y", y)
    rows = _plain_or_compressed(X)
    if is_mapped(rows):
        estimator.n_features_in_ = rows.shape[1]
        _check_file(rows)
        return rows, check_length(as_column(y), rows.shape[0])
    limits = {**_LIMITS, "ensure_min_samples": 2}
    if any_target:
        rows = validated(estimator, X, rows, **limits)
        return rows, check_length(as_column(y), rows.shape[0])
    y = _as_numbers(y) if numeric and y is not None else y
    rows, targets = validate_data(estimator, rows, y, y_numeric=numeric, **limits)
    if is_frame(X):
        validated(estimator, X, rows, **limits)  # stores the names of the columns
    return rows, targets


def _as_numbers(y: Any) -> NDArray[Any]:
    """Targets as numbers, before others than these are converted as a whole."""
    targets = as_column(y)
    kind = targets.dtype.kind  # complex ones are refused by scikit-learn
    is_number = kind in "biuc" or (kind == "f" and targets.dtype.itemsize != 2)
    return targets if is_number else numbers_in(targets, finite=False)


def _plain_or_compressed(X: Any) -> Any:
    rows = plain_rows(X)
    return compressed(rows) if sparse.issparse(rows) else rows


def _refuse_dask(name: str, given: Any) -> None:
    if is_dask(given):
        must_be = (
            "in memory, or a numpy.memmap of a file: a dask collection would be gathered as a "
            "whole. lastiterate.dask has the same models for a cluster; or call .compute() where "
            "it fits into memory"
        )
        raise InvalidType(name, must_be=must_be, found=f"a dask {type(given).__name__}")


def refuse_raw_frame(X: Any, feature_bound: float | None) -> None:
    """Refuse a data frame without a bound on its rows, and warn of one that is too large."""
    if not (hasattr(X, "columns") and hasattr(X, "shape")):
        return
    text = _text_columns(X)
    if feature_bound is None and text:
        found = f"text in the columns {', '.join(text)}"
        raise InvalidParameter("X", must_be=f"numbers: {_USE_A_SCHEMA}", found=found)
    if feature_bound is None:
        must_be = f"set for a data frame: {SCALED}"
        raise InvalidParameter("feature_bound", must_be=must_be, found="a data frame, and none set")
    if feature_bound > math.sqrt(X.shape[1]):
        warn(
            f"feature_bound = {feature_bound:g} allows columns of this data frame beyond [-1, 1], "
            f"and the largest column dominates all others: {SCALED}",
            UserWarning,
        )


def _text_columns(frame: Any) -> list[str]:
    """The columns that hold no numbers, by their types."""
    types = getattr(frame, "dtypes", ())
    return [
        str(name)
        for name, kind in zip(frame.columns, types, strict=False)
        if str(kind).lower().startswith(_TEXT_TYPES)
    ]


def _check_file(rows: np.memmap[Any, Any]) -> None:
    if rows.dtype not in (np.float32, np.float64):
        must_be = "of float32 or float64 in a mapped file"
        raise InvalidType("X", must_be=must_be, found=str(rows.dtype))
    if rows.mode == "c":
        must_be = "'r' or 'r+': changes in memory are not in the file that is read"
        raise InvalidParameter("X.mode", rows.mode, must_be=must_be)


def check_length(targets: NDArray[Any], rows: int) -> NDArray[Any]:
    """The targets, which must be as many as there are rows."""
    if targets.size != rows:
        raise InvalidParameter(
            "y", must_be=f"as long as X, {rows}", found=f"{targets.size} targets"
        )
    return targets


# The label set of a classifier, and the codes of labels.
#
# The label set is published with the model, so it must not come from the data: a label that only
# one person has would reveal that person.  A declared label set is used as it is; an example with
# another label counts, but its gradient is 0.


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
        y = _as_array(y)
    shape = getattr(y, "shape", None) if hasattr(y, "shape") else (_length(y),)
    if shape is None or len(shape) not in (1, 2) or any(width != 1 for width in shape[1:]):
        found = f"y should be a 1d array, got an array of shape {shape} instead"
        raise InvalidParameter("y", must_be=_TARGET_COLUMN, found=found)
    if len(shape) == 2:
        warn("A column-vector y was passed when a 1d array was expected", DataConversionWarning)
        y = _only_column(y)
    try:
        return array_of(y)
    except BadCells as bad:
        raise refused_targets(bad, _TARGET_COLUMN) from None


def _only_column(y: Any) -> Any:
    """The one column of an array or table, as it is stored; errors of conversions quote cells."""
    if hasattr(y, "iloc"):  # pandas
        return y.iloc[:, 0]
    if hasattr(y, "column_names"):  # pyarrow
        return y.column(0)
    if hasattr(y, "to_series"):  # polars
        return y.to_series(0)
    return _as_array(y)


def _as_array(y: Any) -> NDArray[Any]:
    try:
        return np.asarray(y)
    except Exception:
        pass
    raise InvalidType(
        "y", must_be=_TARGET_COLUMN, found=f"a {type(y).__name__} that numpy cannot read"
    )


def _length(y: Any) -> int:
    try:
        return len(y)
    except TypeError:
        raise InvalidType("y", must_be=_TARGET_COLUMN, found=f"a {type(y).__name__}") from None


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
    """Targets coded by labels: the declared ones, else both booleans, else those that occur."""
    if declared is None and targets.dtype.kind == "b":
        declared = [False, True]
    if declared is None:
        return _infer_labels(targets)
    classes = _check_declared(declared)
    codes = positions_of(targets, classes)
    unknown = codes < 0
    return ClassLabels(classes, np.where(unknown, 0, codes), unknown, LABELS_DECLARED)


def _infer_labels(targets: NDArray[Any]) -> ClassLabels:
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


def _check_declared(declared: Any) -> NDArray[Any]:
    if isinstance(declared, (str, bytes)):
        raise InvalidType("classes", declared, must_be=_LABEL_SEQUENCE)
    try:
        given = list(declared)
        array = np.asarray(given)
        classes = np.unique(array)
    except (TypeError, ValueError):
        raise InvalidType("classes", declared, must_be=f"{_LABEL_SEQUENCE} of one kind") from None
    if array.ndim != 1 or classes.dtype.kind not in "biufU" or classes.size < 2:
        raise InvalidParameter("classes", declared, must_be=f"{_LABEL_SEQUENCE}, numbers or text")
    if classes.dtype.kind == "f" and not np.isfinite(classes).all():
        raise InvalidParameter("classes", declared, must_be=f"{_LABEL_SEQUENCE}, finite if numbers")
    if classes.dtype.kind == "U" and not all(isinstance(one, str) for one in given):
        raise InvalidType("classes", declared, must_be=f"{_LABEL_SEQUENCE} of one kind")
    keys = keys_of(classes.tolist())
    if None in keys:
        must_be = (
            f"{_LABEL_SEQUENCE}, none of them a spelling of a missing one, as nan, None or null"
        )
        raise InvalidParameter("classes", declared, must_be=must_be)
    if len(set(keys)) < classes.size:
        must_be = (
            f"{_LABEL_SEQUENCE}, different as numbers in single precision too: 1, 1.0 and true are "
            "the same"
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


# Errors for parameters of scikit-learn that private models lack; each names the substitute.


class ScikitLearnParameters:
    """Mixin that refuses parameters of scikit-learn's estimators and names the substitute."""

    def __new__(cls, *_: Any, **settings: Any) -> Any:
        known = signature(cls.__init__).parameters
        _refuse_substituted(settings, known)
        if not any(one.kind is Parameter.VAR_KEYWORD for one in known.values()):
            _check.known_names(known, settings, cls.__name__)
        return super().__new__(cls)

    def set_params(self, **settings: Any) -> Any:
        """Set parameters, as searches over grids do.

        Parameters
        ----------
        **settings
            The parameters.

        Returns
        -------
        self
            The model.

        Raises
        ------
        InvalidType
            If it is a parameter that private models lack.
        """
        _refuse_substituted(settings, signature(type(self)).parameters)
        return super().set_params(**settings)  # type: ignore[misc]  # of scikit-learn's base

    def __getattr__(self, name: str) -> Any:
        if name == "partial_fit":
            raise AttributeError(
                "partial_fit is not offered: every call would release another model, each with its "
                "own cost; fit separate models and compose their privacy_ reports"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _refuse_substituted(settings: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    for name in settings.keys() & _SUBSTITUTES.keys() - known.keys():
        raise InvalidType(name, settings[name], must_be=f"left out: {_SUBSTITUTES[name]}")


def refuse_unknown_arguments(given: dict[str, Any]) -> None:
    """Raise `InvalidType` for arguments of scikit-learn's `fit`, such as weights."""
    names = sorted(given)
    given.clear()
    for name in names:
        reason = _SUBSTITUTES.get(name, "fit takes X, y, sample_weight, ledger and key alone")
        raise InvalidType(name, must_be=f"left out of fit: {reason}", found="one")
