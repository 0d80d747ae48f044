"""How often a data set has one and the same row, as far as its parts show it."""

from __future__ import annotations

import re
from collections import UserDict
from collections.abc import Iterator
from enum import Enum
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import ConcatDataset, Dataset, StackDataset, Subset, TensorDataset

Indices = NDArray[np.int64]
Address = tuple[str, int]  # a device, or "objects", and an address
# What to do about rows that only look repeated, for messages of a refusal.
NOT_REPEATED = (
    "what rows of different people have in common is not counted if they are copies, as by clone, "
    "nor what a wrapper's rows do not come from if it is kept in a list: self.auxiliary = [..]"
)
_INDICES = re.compile(
    r"(?i)_?(sampled|picks?|picked|selection|choices?|(sample|train|row|example)_?ids|"
    r"((rows?|samples?|sampled|data|dataset|subset|examples?|train(ing)?|boot(strap)?)_?)?"
    r"(idxs?|idcs|inds?|index(es)?|indices|order|perm(utation)?|chosen|selected)(_?(list|map))?)"
)
# What people name so, too: a name, or arrays and parts in a container.
_NO_DATA_SET = (str, bytes, dict, list, tuple, np.ndarray, torch.Tensor)
_NUMBERS = {int, float, complex, bool, type(None)}
# One such object stands for all that are equal, as far as can be told.
_VALUES = (*_NUMBERS, str, bytes, type, Enum, np.generic)
_MAX_DEPTH = 4  # of parts in parts
_EMPTY: tuple[()] = ()


def repeated_rows(dataset: Any) -> int:
    """The largest number of examples of a data set that hold one and the same row.

    It sees through `Subset`, `ConcatDataset`, `StackDataset` and wrappers that keep the data set
    that they wrap as an attribute, however nested.  Whole numbers that a data set keeps by the name
    of indices (`idx`, `indices`, `order`, ..) are the rows that it gives.  Another wrapper that is
    longer than what it wraps must repeat rows, and counts as one that goes through it again and
    again.

    Elsewhere a row is told by its place in memory: tensors and arrays have the same rows where rows
    begin at the same place, and one object in a list several times is one row.  Of a row of several
    parts, and of lists and tensors that a data set of one's own keeps for its rows, the widest part
    counts, since labels are shared by different rows.  Equal rows at other places may be those of
    other people, and numbers and texts are no objects of their own, so both count as other rows.
    So do copies of tensors or files, and rows that are chosen in another way.

    Parameters
    ----------
    dataset : Dataset
        The data set.

    Returns
    -------
    int
        The number: 1 if no row is repeated, and 0 if there is none.

    Examples
    --------
    >>> rows = TensorDataset(torch.zeros(4, 2))
    >>> repeated_rows(Subset(rows, [0, 0, 0, 1])), repeated_rows(ConcatDataset([rows, rows]))
    (3, 2)
    """
    found: dict[Any, list[Indices]] = {}
    examples = np.arange(len(dataset), dtype=np.int64)
    for source, rows, holders in _rows(dataset, examples, examples, ()):
        found.setdefault(source, []).append(np.stack([rows, holders]))
    most = 0
    for parts in found.values():
        # An example that holds a row twice is one example.
        rows, _ = np.unique(np.concatenate(parts, axis=1), axis=1)
        most = max(most, int(np.unique(rows, return_counts=True)[1].max(initial=0)))
    return most


def _rows(
    dataset: Any, indices: Indices, holders: Indices, path: tuple[int, ...]
) -> Iterator[tuple[Any, Indices, Indices]]:
    """Innermost rows at these indices, each with the example of the whole that holds it."""
    path, length = (*path, id(dataset)), len(dataset)
    if isinstance(dataset, Subset) and len(dataset.indices) == length:
        # A negative index counts from the end.
        inner: Any = dataset.dataset
        taken = np.asarray(dataset.indices, dtype=np.int64).reshape(-1) % max(len(inner), 1)
        yield from _rows(inner, taken[indices], holders, path)
    elif isinstance(dataset, ConcatDataset) and dataset.cumulative_sizes[-1] == length:
        ends = np.asarray(dataset.cumulative_sizes)
        part_of = np.searchsorted(ends, indices, side="right")
        for number, part in enumerate(dataset.datasets):
            own = part_of == number
            begin = int(ends[number]) - len(part)
            yield from _rows(part, indices[own] - begin, holders[own], path)
    elif isinstance(dataset, StackDataset):
        parts = dataset.datasets
        parts = list(parts.values() if isinstance(parts, dict) else parts)
        columns = [_column(part, length) for part in parts]
        for part, column in zip(parts, columns, strict=True):
            if column is None:
                yield from _rows(part, indices, holders, path)
            else:
                yield id(part), indices, holders
        yield from _addresses([one for one in columns if one is not None], indices, holders)
    elif wrapped := _wrapped_datasets(dataset, length, path):
        for part in wrapped:
            chosen = _chosen_rows(dataset, length, len(part))
            inside = indices % len(part) if chosen is None else chosen[indices]
            yield from _rows(part, inside, holders, path)
    elif (column := _column(dataset, length)) is not None:
        yield id(dataset), indices, holders
        yield from _addresses([column], indices, holders, alone=True)
    else:
        yield id(dataset), indices, holders
        tensors = isinstance(dataset, TensorDataset)
        kept = dataset.tensors if tensors else getattr(dataset, "__dict__", {}).values()
        columns = [one for each in kept if (one := _column(each, length)) is not None]
        yield from _addresses(columns, indices, holders, alone=tensors)
        for name, each in getattr(dataset, "__dict__", {}).items():
            if isinstance(each, list | tuple | np.ndarray) or _is_dense(each):
                chosen = (
                    None if _INDICES.fullmatch(name) else _chosen_rows(dataset, length, len(each))
                )
                if chosen is not None:
                    yield id(each), chosen[indices], holders


def _wrapped_datasets(dataset: Any, length: int, path: tuple[int, ...]) -> list[Any]:
    """The data sets that a wrapper keeps, of its own length if there are any, else shorter ones.

    Longer ones count if the wrapper keeps which of their rows it gives.
    """
    kept = [
        one
        for name, one in getattr(dataset, "__dict__", {}).items()
        if (isinstance(one, Dataset) or (name == "dataset" and not isinstance(one, _NO_DATA_SET)))
        and hasattr(one, "__getitem__")
        and hasattr(one, "__len__")
        and id(one) not in path
    ]
    lengths = [len(one) for one in kept]
    for fits in (
        lambda own: own == length,
        lambda own: 0 < own < length,
        lambda own: _chosen_rows(dataset, length, own) is not None,
    ):
        if found := [one for one, own in zip(kept, lengths, strict=True) if fits(own)]:
            return found
    return []


def _is_dense(kept: Any) -> bool:
    """Whether it is a tensor with rows, all in one place."""
    if not isinstance(kept, torch.Tensor):
        return False
    return kept.layout == torch.strided and not kept.is_nested and kept.ndim > 0


def _chosen_rows(dataset: Any, length: int, count: int) -> Indices | None:
    """The indices, of `count` rows, that a data set of this length keeps under a usual name.

    Of several such indices it is those that repeat a row most often.
    """
    found = [
        chosen
        for name, kept in getattr(dataset, "__dict__", {}).items()
        if _INDICES.fullmatch(name) and (chosen := _whole_numbers(kept, length, count)) is not None
    ]
    return max(found, key=lambda one: int(np.bincount(one).max()), default=None)


def _whole_numbers(kept: Any, length: int, count: int) -> Indices | None:
    """Whole numbers, one for each row and each that of a row; None for anything else."""
    try:
        if length == 0 or len(kept) != length or isinstance(kept, str | bytes | dict):
            return None
        held = kept.detach().cpu() if isinstance(kept, torch.Tensor) else kept
        found = np.asarray(held)
        found = np.asarray(found.tolist()) if found.dtype.kind == "O" else found
    except Exception:  # it is something else
        return None
    if found.dtype.kind not in "iu" or found.shape != (length,):
        return None
    inside = -count <= found.min() and found.max() < count
    return found.astype(np.int64) % count if inside else None


def _column(kept: Any, length: int) -> Any:
    """The tensor, array or list if it holds one part of every row, in order; else None."""
    if isinstance(kept, dict) and len(kept) == length and kept.keys() == set(range(length)):
        return [kept[index] for index in range(length)]
    if isinstance(kept, torch.Tensor):
        return kept if _is_dense(kept) and len(kept) == length else None
    if isinstance(kept, np.ndarray):
        return kept if kept.shape[:1] == (length,) else None
    by_itself = (list.__getitem__, tuple.__getitem__)
    is_list = isinstance(kept, list | tuple) and type(kept).__getitem__ in by_itself
    return kept if is_list and len(kept) == length else None


def _addresses(
    columns: list[Any], indices: Indices, holders: Indices, *, alone: bool = False
) -> Iterator[tuple[Any, Indices, Indices]]:
    """The places of rows of these columns; `alone` if there is nothing else in a row."""
    lists = [one for one in columns if isinstance(one, list | tuple) or one.dtype == object]
    if not any(set(map(type, one)) - _NUMBERS for one in lists):
        arrays = [one for one in columns if not any(one is other for other in lists)]
        first = [(*_address(one), *_width_and_step(one)) for one in arrays if 0 not in one.shape]
        # Of two that are as wide, one that is the same for all rows tells less.
        device, begin, width, step = max(
            first, key=lambda one: (one[2], one[3] != 0), default=("", 0, 0, 0)
        )
        if begin and width > (0 if alone else 1):
            yield device, begin + step * indices, holders
        return
    found: dict[str, list[tuple[int, int]]] = {}
    for index, holder in zip(indices.tolist(), holders.tolist(), strict=True):
        parts = [column[index] for column in columns]
        width, address = max(map(_widest, parts), key=_width)
        told = {address} if width > 1 else set()
        if alone:
            told |= set(map(_own_address, parts))
        for one in told:
            if one is not None:
                found.setdefault(one[0], []).append((one[1], holder))
    for source, pairs in found.items():
        rows, examples = np.asarray(pairs, dtype=np.int64).T
        yield source, rows, examples


def _address(array: torch.Tensor | np.ndarray[Any, Any]) -> Address:
    if isinstance(array, torch.Tensor):
        return str(array.device), array.data_ptr()
    return "cpu", array.ctypes.data


def _width_and_step(array: Any) -> tuple[int, int]:
    """The number of values in a row, and of bytes to the next row."""
    width = int(np.prod(array.shape[1:]))
    if isinstance(array, torch.Tensor):
        return width, array.stride(0) * array.element_size()
    return width, array.strides[0]


def _own_address(row: Any) -> Address | None:
    """The place of a row itself; None for values, of which one stands for all that are equal."""
    if isinstance(row, torch.Tensor | np.ndarray):
        return _widest(row)[1]
    return None if isinstance(row, _VALUES) or row is _EMPTY else ("objects", id(row))


def _widest(part: Any, depth: int = _MAX_DEPTH) -> tuple[int, Address | None]:
    """The width of the widest part of a part of a row, and its place if it has one."""
    if isinstance(part, torch.Tensor | np.ndarray):
        size = part.numel() if isinstance(part, torch.Tensor) else part.size
        strided = isinstance(part, np.ndarray) or part.layout == torch.strided
        address = _address(part) if size and strided else ("", 0)
        return size, address if address[1] else ("objects", id(part))
    if isinstance(part, str | bytes):
        return 2 + len(part), None  # more than any object whose width is not known
    if isinstance(part, _VALUES):
        return 1, None
    # Values that other mappings make when they are asked are at the place of earlier ones.
    parts = part.values() if isinstance(part, dict | UserDict) else part
    if not depth or not isinstance(part, dict | UserDict | list | tuple):
        return 2, ("objects", id(part))  # more than a label
    if isinstance(part, list | tuple) and _is_array(part, depth):
        return _numbers(part), ("objects", id(part))
    return max((_widest(one, depth - 1) for one in parts), key=_width, default=(0, None))


def _width(found: tuple[int, Address | None]) -> int:
    return found[0]


def _is_array(part: list[Any] | tuple[Any, ...], depth: int) -> bool:
    """Whether a list holds values, or lists of values, as an array does."""
    types = set(map(type, part))
    if types == {list} and depth:
        return isinstance(part, list) and all(_is_array(one, depth - 1) for one in part)
    return all(issubclass(one, _VALUES) for one in types)


def _numbers(part: list[Any] | tuple[Any, ...]) -> int:
    lists = part and isinstance(part[0], list)
    return sum(map(_numbers, part)) if lists else len(part)
