"""Predictions of a fitted model on dask collections, as collections that are computed lazily."""

from __future__ import annotations

from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np

from lastiterate.errors import InvalidParameter


def is_lazy(X: Any) -> bool:
    """Whether it is a collection of dask's."""
    return isinstance(X, da.Array | dd.DataFrame)


def column_of(y: Any) -> Any:
    """Targets as a dask array, if they are a column of a data frame of Dask's."""
    if not isinstance(y, dd.Series):
        return y
    # Dask warns of arrays of pandas' own kinds.
    return (y if isinstance(y.dtype, np.dtype) else y.astype(object)).to_dask_array()


def applied(method: str, model: Any, X: Any, like: Any) -> da.Array:
    """`model.method` of every block of rows, of the kind and width of `like`, an example."""
    if isinstance(X, dd.DataFrame):
        X = X.to_dask_array()
    if X.numblocks[1] != 1:
        must_be = "in blocks of whole rows: X.rechunk({1: -1})"
        raise InvalidParameter("X", must_be=must_be, found=f"{X.numblocks[1]} blocks of columns")
    if X.shape[1] != model.n_features_in_:
        must_be = f"of {model.n_features_in_} columns"
        raise InvalidParameter("X", must_be=must_be, found=f"{X.shape[1]}")
    shape: dict[str, Any] = {"drop_axis": 1}
    if like.ndim == 2:
        shape = {"chunks": (X.chunks[0], (like.shape[1],))}
    meta = np.empty((0,) * like.ndim, dtype=like.dtype)
    return X.map_blocks(_block, method=method, model=model, dtype=like.dtype, meta=meta, **shape)


def _block(rows: Any, *, method: str, model: Any) -> Any:
    return getattr(model, method)(rows)
