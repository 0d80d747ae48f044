"""The work of one worker: sums over its rows, without randomness; and how rows come to workers.

The same call has the same result, so tasks that run twice, are stolen or repeated after a failure
do no harm.  Nothing is raised, since workers log the arguments of calls that raise.  A failure is
returned instead; its text names a chunk by its number and holds no data.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
from dask.delayed import Delayed
from dask.optimization import cull
from distributed import Client
from distributed.client import futures_of
from numpy.typing import NDArray
from scipy import sparse

from lastiterate._numerics.rounding import Array
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.train.centring import Centre
from lastiterate.train.data import Examples, bounded
from lastiterate.train.noisy_descent import check_targets, gradient_sum
from lastiterate.train.objectives import Objective
from lastiterate.train.rows import RowIndex, compressed

Span = tuple[int, int]  # of positions in the order of all examples
RowSelection = Span | NDArray[np.intp]
_Answer = TypeVar("_Answer")
_ACCEPTED = (
    "a dask array or data frame, a list of dask.delayed blocks of rows, or the path of a Zarr "
    "array or of Parquet files (for rows in memory or in one file: lastiterate.linear_model)"
)


@dataclass(frozen=True)
class Failure:
    """A reason why a chunk cannot be used."""

    chunk: int
    name: str
    must_be: str
    found: str

    def raised(self) -> InvalidParameter:
        found = f"{self.found} (chunk {self.chunk})"
        return InvalidParameter(self.name, must_be=self.must_be, found=found)


@dataclass(frozen=True)
class Survey:
    """Statistics to publish with noise: counts of far-off rows and targets, and the sum of rows."""

    long: int
    short: int
    outside: int
    in_units: NDArray[np.int64]

    def __add__(self, other: Survey) -> Survey:
        return Survey(
            self.long + other.long,
            self.short + other.short,
            self.outside + other.outside,
            self.in_units + other.in_units,
        )


@dataclass(frozen=True)
class EncodedTargets:
    """Targets as the loss takes them."""

    targets: NDArray[Any]
    silent: NDArray[np.bool_] | None = None  # targets that do not count
    outside: int = 0  # the number that are not as declared


Encode = Callable[[NDArray[Any]], EncodedTargets]


@dataclass(frozen=True)
class ShardPlan:
    """The chunks of a shard and how to read them, without their content."""

    chunks: Sequence[int]
    starts: Sequence[int]  # the number of the first row of each, among all
    lengths: Sequence[int]
    features: int
    precision: str
    is_sparse: bool
    arithmetic: str
    encode: Encode
    bound: float
    intercept: float
    offset: Array | None
    sources: Sequence[tuple[Any, Any]] | None  # to be read in every step; None if held in memory


class _ChunkRefused(Exception):
    def __init__(self, failure: Failure) -> None:
        self.failure = failure


class Shard:
    """The chunks of one worker, in memory or read again in every step."""

    def __init__(self, plan: ShardPlan, blocks: Sequence[tuple[Any, Any]] | None = None) -> None:
        self._plan, self._blocks = plan, blocks
        self._objective: Objective | None = None
        self._centre: Centre | None = None
        self._own: Examples | None = None  # all, if in memory
        self._positions: NDArray[np.intp] | None = None  # of those, increasing
        self._targets: dict[int, EncodedTargets] = {}
        self._reader = ThreadPoolExecutor(1)

    def survey(self) -> Survey | Failure:
        """Exact statistics that are published with noise; a `Failure` if a chunk is unusable."""
        return self._call_discreetly(self._count_outliers)

    def arrange(
        self, objective: Objective, centre: Centre | None, positions: NDArray[np.intp] | None
    ) -> Failure | None:
        """Arrange rows by their positions in the order of all examples; -1 leaves a row out."""
        return self._call_discreetly(lambda: self._lay_out(objective, centre, positions))

    def gradient(self, parameters: Array, chosen: RowSelection) -> Array | Failure:
        """The sum of gradients over the chosen examples of this shard."""
        return self._call_discreetly(lambda: self._gradient(parameters, chosen))

    @np.errstate(all="ignore")  # what raises must not depend on a row's size
    def _call_discreetly(self, action: Callable[[], _Answer]) -> _Answer | Failure:
        try:
            return action()
        except _ChunkRefused as refused:
            return refused.failure
        except Exception as error:
            must_be, found = "rows and targets of the model", type(error).__name__
            return Failure(self._plan.chunks[0], "X and y", must_be, f"data that raised a {found}")

    def _count_outliers(self) -> Survey:
        total = Survey(0, 0, 0, np.zeros(self._plan.features + 1, dtype=np.int64))
        for k, examples in self._read_chunks(range(len(self._plan.chunks))):
            outside = self._targets[k].outside
            total += Survey(*examples.far_rows(), outside, examples.in_units())
        return total

    def _lay_out(
        self, objective: Objective, centre: Centre | None, positions: NDArray[np.intp] | None
    ) -> None:
        self._objective, self._centre = objective, centre
        if self._plan.sources is not None:
            return
        whole = self._whole()
        self._blocks = None
        if positions is None:
            numbers = [np.arange(a, a + n) for a, n in self._spans()]
            self._positions = np.concatenate(numbers)
        else:
            kept = np.flatnonzero(positions >= 0)
            order = kept[np.argsort(positions[kept])]
            whole, self._positions = whole.own(order), positions[order]
        self._own = replace(whole, centre=centre)
        check_targets(objective, self._own)

    def _gradient(self, parameters: Array, chosen: RowSelection) -> Array:
        assert self._objective is not None
        if self._own is not None:
            assert self._positions is not None
            own: RowIndex = (
                slice(*np.searchsorted(self._positions, chosen).tolist())
                if isinstance(chosen, tuple)
                else chosen
            )
            return gradient_sum(self._objective, self._own, own, parameters)
        assert isinstance(chosen, tuple)
        first, last = chosen
        spans = list(self._spans())
        touched = [k for k, (a, n) in enumerate(spans) if a < last and a + n > first]
        total = np.zeros_like(parameters)
        for k, examples in self._read_chunks(touched):
            start = spans[k][0]
            check_targets(self._objective, examples)
            part = slice(max(first - start, 0), min(last - start, len(examples)))
            total += gradient_sum(self._objective, examples, part, parameters)
        return total

    def _spans(self) -> Iterator[tuple[int, int]]:
        return zip(self._plan.starts, self._plan.lengths, strict=True)

    def _whole(self) -> Examples:
        parts = [examples for _, examples in self._read_chunks(range(len(self._plan.chunks)))]
        rows = [part.rows for part in parts]
        kinds = {isinstance(part, np.ndarray) for part in rows}
        if len(kinds) > 1:
            first = isinstance(rows[0], np.ndarray)
            k = next(k for k, one in enumerate(rows) if isinstance(one, np.ndarray) != first)
            self._refuse(k, "X", "all dense or all sparse", "the other kind")
        together = np.concatenate(rows) if kinds == {True} else sparse.vstack(rows, format="csr")
        silent = [part.silent for part in parts if part.silent is not None]
        return replace(
            parts[0],
            rows=together,
            targets=np.concatenate([part.targets for part in parts]),
            silent=np.concatenate(silent) if silent else None,
        )

    def _read_chunks(self, chunks: Sequence[int] | range) -> Iterator[tuple[int, Examples]]:
        """Chunks as examples; the next is read while the current one is used."""
        reading = self._plan.sources is not None
        ahead = self._reader.submit(self._read, chunks[0]) if reading and len(chunks) else None
        for index, k in enumerate(chunks):
            if ahead is None:
                block = self._read(k)
            else:
                block = ahead.result()
                if index + 1 < len(chunks):
                    ahead = self._reader.submit(self._read, chunks[index + 1])
            yield k, self._examples(k, *block)

    def _read(self, k: int) -> tuple[Any, Any]:
        if self._plan.sources is None:
            assert self._blocks is not None
            return self._blocks[k]
        rows, targets = self._plan.sources[k]
        try:
            if k in self._targets:
                return dask.compute(rows, scheduler="synchronous")[0], None
            read = dask.compute(rows, targets, scheduler="synchronous")
        except InvalidParameter as error:  # of PrivateSchema, whose messages hold no cell
            self._refuse(k, error.name, error.must_be, error.found or "something else")
        except Exception as error:
            self._refuse(k, "X and y", "readable", f"a {type(error).__name__}")
        return read[0], read[1]

    def _examples(self, k: int, rows: Any, targets: Any) -> Examples:
        plan = self._plan
        if sparse.issparse(rows):
            rows = compressed(rows)
        elif hasattr(rows, "tocsr"):
            rows = rows.tocsr()
        elif not isinstance(rows, np.ndarray):
            self._refuse(k, "X", "numpy arrays or scipy's sparse matrices", type(rows).__name__)
        else:
            rows = np.ascontiguousarray(rows)
        if isinstance(rows, np.ndarray) == plan.is_sparse:
            self._refuse(k, "X", "all dense or all sparse", "the other kind")
        shape = (plan.lengths[k], plan.features)
        if rows.shape != shape:
            self._refuse(k, "X", f"of {shape[0]} rows and {shape[1]} columns", "others")
        if str(rows.dtype) != plan.precision:
            self._refuse(k, "X", f"of {plan.precision} throughout", str(rows.dtype))
        try:
            encoded = self._encode_targets(k, targets)
            examples = bounded(rows, encoded.targets, bound=plan.bound, intercept=plan.intercept)
        except InvalidParameter as error:
            self._refuse(k, error.name, error.must_be, error.found or "something else")
        examples = replace(examples, arithmetic=plan.arithmetic)
        return examples.but(silent=encoded.silent, offset=plan.offset, centre=self._centre)

    def _encode_targets(self, k: int, targets: Any) -> EncodedTargets:
        if k not in self._targets:
            targets = np.asarray(targets).reshape(-1)
            if targets.size != self._plan.lengths[k]:
                self._refuse(k, "y", "as long as X", "another length")
            self._targets[k] = self._plan.encode(targets)
        return self._targets[k]

    def _refuse(self, k: int, name: str, must_be: str, found: str) -> Any:
        raise _ChunkRefused(Failure(self._plan.chunks[k], name, must_be, found)) from None


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
            (_cull_graph(rows, graphs[0]), _cull_graph(targets, graphs[1]))
            for rows, targets in self.pairs(chunks)
        ]


def blocks_of(X: Any, y: Any, client: Client) -> Blocks:
    """The blocks of two collections; raises `InvalidParameter` or `InvalidType` for others."""
    if isinstance(X, str | os.PathLike):
        X = _open(Path(X))
    if isinstance(y, str | os.PathLike):
        y, X = _column_or_file(X, y)
    if _all_delayed(X):
        return _blocks_of_delayed(X, y, client)
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


def _cull_graph(block: Delayed, graph: dict[Any, Any]) -> Delayed:
    return Delayed(block.key, cull(graph, [block.key])[0])


def _open(path: Path) -> Any:
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
        return _open(Path(y)), X
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


def _blocks_of_delayed(X: Sequence[Delayed], y: Any, client: Client) -> Blocks:
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
