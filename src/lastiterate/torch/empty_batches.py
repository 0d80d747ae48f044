"""Batches of no rows, in the shape of others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import default_collate

from lastiterate.errors import InvalidParameter


class EmptyBatches:
    """A `collate_fn` that makes an empty batch of 0 rows, of the shape that others have.

    Parameters
    ----------
    dataset : Dataset
        The examples; only the shape and type of the first one are used.
    collate_fn : callable, optional
        What makes a batch of a list of examples; torch's default if left out.

    Raises
    ------
    InvalidParameter
        If a batch holds anything but tensors in tuples, lists and dicts.

    Examples
    --------
    >>> from torch.utils.data import TensorDataset
    >>> collate = EmptyBatches(TensorDataset(torch.zeros(5, 3), torch.zeros(5)))
    >>> [part.shape for part in collate([])]
    [torch.Size([0, 3]), torch.Size([0])]
    """

    def __init__(self, dataset: Any, collate_fn: Callable[[list[Any]], Any] | None = None) -> None:
        self._collate = default_collate if collate_fn is None else collate_fn
        self._empty = _without_rows(self._collate([dataset[0]]))

    def __call__(self, examples: list[Any]) -> Any:
        """The batch of these examples."""
        return self._collate(examples) if examples else self._empty


def _without_rows(batch: Any) -> Any:
    if isinstance(batch, torch.Tensor) and batch.dim():
        return batch[:0].clone()
    if isinstance(batch, dict):
        return {key: _without_rows(part) for key, part in batch.items()}
    if isinstance(batch, (list, tuple)):
        parts = [_without_rows(part) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    must_be = "made of tensors, one row for each example, in tuples, lists and dicts"
    raise InvalidParameter("dataset", must_be=must_be, found=f"a {type(batch).__name__}")
