"""Dask collections as blocks of rows: for a fit, and for predictions that are computed lazily."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
from dask.delayed import Delayed
from dask.optimization import cull
from distributed import Client
from distributed.client import futures_of

from lastiterate.errors import InvalidParameter, InvalidType

_ACCEPTED = (
    "a dask array or data frame, a list of dask.delayed blocks of rows, or the path of a Zarr "
    "array or of Parquet files (for rows in memory or in one file: lastiterate.linear_model)"
)


@dataclass(frozen=True, eq=False)
class Blocks:
    """Consecutive blocks of rows and targets, as graphs that are not computed yet."""

    rows: Sequence[Delayed]
    targets: Sequence[Delayed]
    lengths: Sequence[int]
    features: int
    dtype: np.dtype[Any]
    target_dtype: np.dtype[Any]
    dense: bool  # as far as can be seen from here
    persisted: bool  # on the cluster, so they cannot be read again elsewhere

    @property
    def examples(self) -> int:
        return sum(self.lengths)

    @property
    def bytes(self) -> int:
        """The size in bytes of all rows, if they are dense."""
        return self.examples * self.features * self.dtype.itemsize

    def pairs(self, chunks: Iterable[int]) -> list[tuple[Delayed, Delayed]]:
        """Rows and targets of some of the blocks."""
        return [(self.rows[k], self.targets[k]) for k in chunks]

    def sources(self, chunks: Iterable[int]) -> list[tuple[Delayed, Delayed]]:
        """Rows and targets of some of the blocks, each with the part of the graph that it needs."""
        graphs = dict(self.rows[0].dask), dict(self.targets[0].dask)
        return [
            (_culled(rows, graphs[0]), _culled(targets, graphs[1]))
            for rows, targets in self.pairs(chunks)
        ]


def blocks_of(X: Any, y: Any, client: Client) -> Blocks:
    """The blocks of two collections; raises `InvalidParameter` or `InvalidType` for others."""
    if isinstance(X, str | os.PathLike):
        X = _opened(Path(X))
    if isinstance(y, str | os.PathLike):
        y, X = _column_or_file(X, y)
    if _all_delayed(X):
        return _of_delayed(X, y, client)
    with client.as_current():
        rows = _numbers(X)
        targets = _as_array("y", y)
    if rows.numblocks[1] != 1:
        must_be = "in blocks of whole rows: X.rechunk({1: -1})"
        raise InvalidParameter("X", must_be=must_be, found=f"{rows.numblocks[1]} blocks of columns")
    if targets.ndim == 2 and targets.shape[1] == 1:
        targets = targets[:, 0]
    if targets.ndim != 1:
        raise InvalidParameter("y", must_be="one column", found=f"{targets.ndim} dimensions")
    if targets.shape[0] != rows.shape[0]:
        found = f"{targets.shape[0]} targets"
        raise InvalidParameter("y", must_be=f"as long as X, {rows.shape[0]}", found=found)
    lengths = tuple(int(one) for one in rows.chunks[0])
    _refuse_empty(lengths)
    return Blocks(
        rows.to_delayed().ravel().tolist(),
        targets.rechunk((lengths,)).to_delayed().ravel().tolist(),
        lengths,
        int(rows.shape[1]),
        rows.dtype,
        targets.dtype,
        dense=isinstance(rows._meta, np.ndarray),
        persisted=bool(futures_of(rows) or futures_of(targets)),
    )


def _culled(block: Delayed, graph: dict[Any, Any]) -> Delayed:
    return Delayed(block.key, cull(graph, [block.key])[0])


def _opened(path: Path) -> Any:
    if not path.exists():
        raise InvalidParameter("X", str(path), must_be="a path that exists")
    if any((path / name).exists() for name in ("zarr.json", ".zarray")):
        return da.from_zarr(str(path))
    return dd.read_parquet(str(path))


def _column_or_file(X: Any, y: str | os.PathLike[str]) -> tuple[Any, Any]:
    """Targets that are one of the columns, which then is no feature; or another file."""
    if isinstance(X, dd.DataFrame) and y in X.columns:
        return X[y], X.drop(columns=[y])
    if Path(y).exists():
        return _opened(Path(y)), X
    must_be = "the name of a column of X, or a path that exists"
    raise InvalidParameter("y", str(y), must_be=must_be)


def _numbers(X: Any) -> da.Array:
    """Rows of float32 or float64."""
    if isinstance(X, dd.DataFrame):
        texts = sum(1 for kind in X.dtypes if not _is_number(kind))
        if texts:
            must_be = "of numbers alone: encode other columns with PrivateSchema"
            raise InvalidType("X", must_be=must_be, found=f"{texts} columns that are none")
        single = all(kind == np.float32 for kind in X.dtypes)
        X = X.astype(np.float32 if single else np.float64)
    rows = _as_array("X", X)
    if rows.ndim != 2:
        raise InvalidParameter("X", must_be="of two dimensions", found=f"{rows.ndim}")
    if rows.dtype.kind in "iub":
        rows = rows.astype(np.float64)
    if rows.dtype not in (np.float32, np.float64):
        raise InvalidType("X", must_be="of float32 or float64", found=str(rows.dtype))
    return rows


def _is_number(kind: Any) -> bool:
    return getattr(kind, "kind", "O") in "iufb"


def _as_array(name: str, given: Any) -> da.Array:
    if isinstance(given, dd.DataFrame | dd.Series):
        if isinstance(given, dd.Series) and not isinstance(given.dtype, np.dtype):
            given = given.astype(object)
        # Optimised first: reading fewer columns may join partitions and change their lengths.
        given = given.optimize().to_dask_array(lengths=True)
    elif not isinstance(given, da.Array):
        # Of an xarray, what it holds.
        given = getattr(given, "data", None) if hasattr(given, "dims") else given
    if not isinstance(given, da.Array):
        raise InvalidType(name, must_be=_ACCEPTED, found=f"a {type(given).__name__}")
    if np.isnan(np.array(given.shape, dtype=float)).any():
        # As of data frames; of a copy, so that the given one stays as it is.
        given = da.Array(given.dask, given.name, given.chunks, meta=given._meta)
        given.compute_chunk_sizes()
    return given


def _all_delayed(given: Any) -> bool:
    is_list = isinstance(given, list | tuple) and len(given) > 0
    return is_list and all(isinstance(one, Delayed) for one in given)


def _of_delayed(X: Sequence[Delayed], y: Any, client: Client) -> Blocks:
    if not (_all_delayed(y) and len(y) == len(X)):
        must_be = f"a list of {len(X)} dask.delayed, one for each block of X"
        raise InvalidType("y", must_be=must_be, found=f"a {type(y).__name__}")
    outlined = dask.delayed(_outline, pure=False)
    found: list[Any] = client.gather(
        client.compute([outlined(*pair) for pair in zip(X, y, strict=True)])
    )
    unlike = [k for k, one in enumerate(found) if one is None or one[1:] != found[0][1:]]
    if unlike:
        must_be = "arrays of rows and of targets, of one width and one kind"
        raise InvalidType("X and y", must_be=must_be, found=f"others in chunk {unlike[0]}")
    lengths = tuple(one[0] for one in found)
    _refuse_empty(lengths)
    _, features, dtype, target_dtype, dense = found[0]
    if dtype not in ("float32", "float64"):
        raise InvalidType("X", must_be="of float32 or float64", found=dtype)
    kinds = (np.dtype(dtype), np.dtype(target_dtype))
    return Blocks(list(X), list(y), lengths, features, *kinds, dense=dense, persisted=True)


def _outline(x: Any, y: Any) -> tuple[int, int, str, str, bool] | None:
    """Shape, dtypes and density of a block; None if it is not rows and targets."""
    shape: tuple[int, ...] = getattr(x, "shape", ())
    if len(shape) != 2 or getattr(y, "shape", ()) != shape[:1]:
        return None
    kind = "O" if y.dtype.kind in "OUST" else str(y.dtype)
    return int(shape[0]), int(shape[1]), str(x.dtype), kind, isinstance(x, np.ndarray)


def _refuse_empty(lengths: Sequence[int]) -> None:
    empty = [number for number, length in enumerate(lengths) if length == 0]
    if empty or not lengths:
        must_be = "in blocks that have rows: rechunk or repartition"
        found = f"none in chunk {empty[0]}" if empty else "no block"
        raise InvalidParameter("X", must_be=must_be, found=found)


def is_collection(X: Any) -> bool:
    """Whether X is a Dask collection."""
    return isinstance(X, da.Array | dd.DataFrame)


def target_array(y: Any) -> Any:
    """Targets as a Dask array, if they are a column of a Dask data frame."""
    if not isinstance(y, dd.Series):
        return y
    # Dask warns of arrays of pandas' own kinds.
    return (y if isinstance(y.dtype, np.dtype) else y.astype(object)).to_dask_array()


def lazy_predictions(method: str, model: Any, X: Any, like: Any) -> da.Array:
    """`model.method` of every block of rows, lazily; `like` is an example of the result."""
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
