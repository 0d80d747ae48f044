"""Validation of rows and targets, with errors that do not quote them.

A raw data frame is refused: its columns have units and different ranges, and scaled
down to a common length, only the largest column would be left of a row.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import validate_data

from lastiterate.errors import InvalidParameter, InvalidType, warn
from lastiterate.linear_model.class_labels import as_column, numbers_in
from lastiterate.tables.plain_rows import is_frame, plain_rows, validated
from lastiterate.train.discreet import discreetly, is_dask
from lastiterate.train.rows import compressed, is_mapped

SCALED = (
    "map columns to [-1, 1] by publicly known ranges, PrivateScaler(low=.., high=..), and set "
    "feature_bound to the norm of the longest possible row, the square root of the number of "
    "columns; or, if only the direction of rows matters, as for embeddings, set feature_bound=1"
)
_ENCODED = (
    "a PrivateSchema as the first step of a pipeline encodes text and numbers by public facts on "
    'each column, as in PrivateSchema({"age": {"range": [18, 90]}, "job": '
    '{"values": ["clerk", "nurse"]}, "id": "drop"}), and its rows have feature_bound 1'
)
_TEXT = ("object", "str", "categor", "enum", "utf8", "large_str")  # types of pandas and polars


def rows_and_targets(
    estimator: Any, X: Any, y: Any, *, numeric: bool, any_target: bool
) -> tuple[Any, NDArray[Any]]:
    """Rows and targets for a fit; with `any_target`, targets are not checked."""
    return discreetly(lambda: _for_fit(estimator, X, y, numeric=numeric, any_target=any_target))


def rows_alone(estimator: Any, X: Any, *, reset: bool = False) -> Any:
    """Rows for a fitted model, or for a scaler; `reset` stores their width."""
    _refuse_dask("X", X)
    return discreetly(lambda: _alone(estimator, X, reset=reset))


def _alone(estimator: Any, X: Any, *, reset: bool) -> Any:
    rows = _by_rows(X)
    limits: dict[str, Any] = {
        "accept_sparse": "csr",
        "dtype": [np.float64, np.float32],
        "order": "C",
    }
    return validated(estimator, X, rows, reset=reset, **limits)


def _for_fit(
    estimator: Any, X: Any, y: Any, *, numeric: bool, any_target: bool
) -> tuple[Any, NDArray[Any]]:
    _refuse_dask("X", X)
    _refuse_dask("y", y)
    rows = _by_rows(X)
    if is_mapped(rows):
        estimator.n_features_in_ = rows.shape[1]
        _check_file(rows)
        return rows, _as_long(as_column(y), rows)
    limits: dict[str, Any] = {
        "accept_sparse": "csr",
        "dtype": [np.float64, np.float32],
        "order": "C",
        "ensure_min_samples": 2,
    }
    if any_target:
        rows = validated(estimator, X, rows, **limits)
        return rows, _as_long(as_column(y), rows)
    y = _numeric(y) if numeric and y is not None else y
    rows, targets = validate_data(estimator, rows, y, y_numeric=numeric, **limits)
    if is_frame(X):
        validated(estimator, X, rows, **limits)  # stores the names of the columns
    return rows, targets


def _numeric(y: Any) -> NDArray[Any]:
    """Targets as numbers, before others than these are converted as a whole."""
    targets = as_column(y)
    kind = targets.dtype.kind  # complex ones are refused by scikit-learn
    is_number = kind in "biuc" or (kind == "f" and targets.dtype.itemsize != 2)
    return targets if is_number else numbers_in(targets, finite=False)


def _by_rows(X: Any) -> Any:
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
        raise InvalidParameter("X", must_be=f"numbers: {_ENCODED}", found=found)
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
        if str(kind).lower().startswith(_TEXT)
    ]


def _check_file(rows: np.memmap[Any, Any]) -> None:
    if rows.dtype not in (np.float32, np.float64):
        must_be = "of float32 or float64 in a mapped file"
        raise InvalidType("X", must_be=must_be, found=str(rows.dtype))
    if rows.mode == "c":
        must_be = "'r' or 'r+': changes in memory are not in the file that is read"
        raise InvalidParameter("X.mode", rows.mode, must_be=must_be)


def _as_long(targets: NDArray[Any], rows: Any) -> NDArray[Any]:
    if targets.size != rows.shape[0]:
        must_be = f"as long as X, {rows.shape[0]}"
        raise InvalidParameter("y", must_be=must_be, found=f"{targets.size} targets")
    return targets
