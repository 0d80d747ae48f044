"""How often a data set has one and the same row, as far as its parts show it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import ConcatDataset, Dataset, StackDataset, Subset, TensorDataset

Indices = NDArray[np.int64]


def repeated_rows(dataset: Any) -> int:
    """The largest number of examples of a data set that hold one and the same row.

    It sees through `Subset`, `ConcatDataset`, `StackDataset` and wrappers that keep the data set
    that they wrap as an attribute, however nested.  A wrapper that is longer than what it wraps
    must repeat rows, and counts as one that goes through it again and again.  Tensors that share
    memory have the same rows where rows begin at the same place.  Copies of tensors or files, and
    what a shorter wrapper chooses, count as other rows.

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
        for part in parts.values() if isinstance(parts, dict) else parts:
            yield from _rows(part, indices, holders, path)
    elif wrapped := _wrapped(dataset, length, path):
        for part in wrapped:
            yield from _rows(part, indices % len(part), holders, path)
    elif isinstance(dataset, TensorDataset) and (tensor := _widest(dataset)) is not None:
        step = tensor.stride(0) * tensor.element_size()
        yield str(tensor.device), tensor.data_ptr() + step * indices, holders
    else:
        yield id(dataset), indices, holders


# What people name so, too: a name, or arrays and parts in a container.
_NO_DATA_SET = (str, bytes, dict, list, tuple, np.ndarray, torch.Tensor)


def _wrapped(dataset: Any, length: int, path: tuple[int, ...]) -> list[Any]:
    """The data sets that a wrapper keeps, of its own length if there are any, else shorter ones."""
    kept = [
        one
        for name, one in getattr(dataset, "__dict__", {}).items()
        if (isinstance(one, Dataset) or (name == "dataset" and not isinstance(one, _NO_DATA_SET)))
        and hasattr(one, "__getitem__")
        and hasattr(one, "__len__")
        and id(one) not in path
    ]
    lengths = [len(one) for one in kept]
    return [one for one, own in zip(kept, lengths, strict=True) if own == length] or [
        one for one, own in zip(kept, lengths, strict=True) if 0 < own < length
    ]


def _widest(dataset: TensorDataset) -> torch.Tensor | None:
    """The tensor with the most numbers in a row; labels may be shared by different rows."""
    own = [one for one in dataset.tensors if one.numel() and (one.stride(0) or len(one) == 1)]
    return max(own, key=lambda one: one[0].numel(), default=None)
