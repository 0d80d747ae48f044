"""The work of one worker: sums over its rows, without randomness.

The same call has the same result, so tasks that run twice, are stolen or repeated after a failure
do no harm.  Nothing is raised, since workers log the arguments of calls that raise.  A failure is
returned instead; its text names a chunk by its number and holds no data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import dask
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from lastiterate._numerics.rounding import Array
from lastiterate.errors import InvalidParameter
from lastiterate.train.centring import Centre
from lastiterate.train.data import Examples, bounded
from lastiterate.train.gradient_sum import check_targets, gradient_sum
from lastiterate.train.objectives import Objective
from lastiterate.train.rows import Selection, compressed

Span = tuple[int, int]  # of positions in the order of all examples
RowSelection = Span | NDArray[np.intp]
_Answer = TypeVar("_Answer")


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
        return self._discreetly(self._surveyed)

    def arrange(
        self, objective: Objective, centre: Centre | None, positions: NDArray[np.intp] | None
    ) -> Failure | None:
        """Arrange rows by their positions in the order of all examples; -1 leaves a row out."""
        return self._discreetly(lambda: self._arranged(objective, centre, positions))

    def gradient(self, parameters: Array, chosen: RowSelection) -> Array | Failure:
        """The sum of gradients over the chosen examples of this shard."""
        return self._discreetly(lambda: self._gradient(parameters, chosen))

    @np.errstate(all="ignore")  # what raises must not depend on a row's size
    def _discreetly(self, action: Callable[[], _Answer]) -> _Answer | Failure:
        try:
            return action()
        except _ChunkRefused as refused:
            return refused.failure
        except Exception as error:
            must_be, found = "rows and targets of the model", type(error).__name__
            return Failure(self._plan.chunks[0], "X and y", must_be, f"data that raised a {found}")

    def _surveyed(self) -> Survey:
        total = Survey(0, 0, 0, np.zeros(self._plan.features + 1, dtype=np.int64))
        for k, examples in self._each(range(len(self._plan.chunks))):
            outside = self._targets[k].outside
            total += Survey(*examples.far_rows(), outside, examples.in_units())
        return total

    def _arranged(
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
            own: Selection = (
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
        for k, examples in self._each(touched):
            start = spans[k][0]
            check_targets(self._objective, examples)
            part = slice(max(first - start, 0), min(last - start, len(examples)))
            total += gradient_sum(self._objective, examples, part, parameters)
        return total

    def _spans(self) -> Iterator[tuple[int, int]]:
        return zip(self._plan.starts, self._plan.lengths, strict=True)

    def _whole(self) -> Examples:
        parts = [examples for _, examples in self._each(range(len(self._plan.chunks)))]
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

    def _each(self, chunks: Sequence[int] | range) -> Iterator[tuple[int, Examples]]:
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
            encoded = self._encoded(k, targets)
            examples = bounded(rows, encoded.targets, bound=plan.bound, intercept=plan.intercept)
        except InvalidParameter as error:
            self._refuse(k, error.name, error.must_be, error.found or "something else")
        examples = replace(examples, arithmetic=plan.arithmetic)
        return examples.but(silent=encoded.silent, offset=plan.offset, centre=self._centre)

    def _encoded(self, k: int, targets: Any) -> EncodedTargets:
        if k not in self._targets:
            targets = np.asarray(targets).reshape(-1)
            if targets.size != self._plan.lengths[k]:
                self._refuse(k, "y", "as long as X", "another length")
            self._targets[k] = self._plan.encode(targets)
        return self._targets[k]

    def _refuse(self, k: int, name: str, must_be: str, found: str) -> Any:
        raise _ChunkRefused(Failure(self._plan.chunks[k], name, must_be, found)) from None
