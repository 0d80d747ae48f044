"""Inputs of a layer of a frozen model, one row for each example."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, SequentialSampler

from lastiterate import _check
from lastiterate._files import refuse_replacing
from lastiterate._progress import track
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.torch.bounded_linear import BoundingLayer, bounded, linear_layer

IN_MEMORY = 2**28  # bytes
_TOLERANCE = 1e-3  # of the scale, for the same row in another batch


class _HeadReached(Exception):
    """The head was reached; later layers are not needed."""


def features(
    model: nn.Module,
    name: str,
    loader: DataLoader[Any],
    *,
    labels: str = "labels",
    device: Any = None,
    memory: int = IN_MEMORY,
    path: str | Path | None = None,
    normalise: bool = False,
    progress: bool = False,
) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """Rows that reach the linear layer `name`, and their labels, in the order of the loader.

    Parameters
    ----------
    model : torch.nn.Module
        The model.  It runs in eval mode, without gradients; its modes are restored.
    name : str
        The name of a `torch.nn.Linear` in the model, such as "fc" or "classifier".
    loader : DataLoader
        Batches (.., labels) or dicts, with every example once.
    labels : str
        The key of the labels in batches that are dicts.
    device : torch device, optional
        The device for batches; by default that of the model.
    memory : int
        Features of more bytes are written to a file and mapped.
    path : str or Path, optional
        That file, which must not exist yet; by default a temporary file, which the caller deletes.
    normalise : bool
        Whether to scale every row to length 1.
    progress : bool
        Whether to show a progress bar.

    Returns
    -------
    rows : ndarray of float32, shape (examples, features)
        The inputs of the layer.
    labels : ndarray, shape (examples,)
        The labels.

    Raises
    ------
    InvalidParameter, InvalidType
        If the layer is not linear or not reached, an example does not have exactly one row, or its
        row depends on the rest of the batch.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(2, 3))
    >>> pairs = torch.utils.data.TensorDataset(torch.tensor([[1.0, -1.0]]), torch.tensor([2]))
    >>> rows, labels = features(model, "1", torch.utils.data.DataLoader(pairs))
    >>> rows.tolist(), labels.tolist()
    ([[1.0, 0.0]], [2])
    """
    return extract_features(**locals(), bounding_layer=None)


def extract_features(
    model: nn.Module,
    name: str,
    loader: DataLoader[Any],
    *,
    labels: str,
    device: Any,
    memory: int,
    path: str | Path | None,
    normalise: bool,
    progress: bool,
    bounding_layer: BoundingLayer | None,
) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """Rows and labels as in `features`; with a bounding layer, rows must be its outputs."""
    head = linear_layer(model, name)
    count = _examples(loader)
    limit = _check.count("memory", memory, at_least=0)
    shape = (count, head.in_features)
    where = next(model.parameters()).device if device is None else torch.device(device)
    mapped = 4 * count * head.in_features > limit or path is not None
    file = _new_file(path) if mapped else None
    rows: Any = np.empty((0, 0) if mapped else shape, dtype=np.float32)
    found: list[NDArray[Any]] = []
    done = 0
    # Mapped only after writing: pages that change while they are mapped stay in memory.
    writing = nullcontext() if file is None else file.open("wb")
    with _frozen(model), _captured(head) as captured, writing as written:
        for batch in _shown(loader, progress):
            inputs, targets = _split(batch, labels)
            part = _rows(model, inputs, where, captured, size=len(targets))
            if bounding_layer is not None:
                bounding_layer.check(part)
            if done == 0:
                _refuse_mixing(model, inputs, where, captured, part)
            if normalise:
                part = bounded(part.double(), 1.0, normalise=True)
            if done + len(part) > count:
                raise _not_one_row_each(f"more than {count} rows")
            several = part.float().cpu().numpy()
            if written is None:
                rows[done : done + len(part)] = several
            else:
                written.write(np.ascontiguousarray(several).data)
            found.append(targets)
            done += len(part)
    if done != count:
        raise _not_one_row_each(f"{done} rows of {count} examples")
    if file is not None:
        rows = np.memmap(file, dtype=np.float32, mode="r", shape=shape)
    return rows, np.concatenate(found)


def _new_file(path: str | Path | None) -> Path:
    if path is not None:
        refuse_replacing("path", path)
        return Path(path)
    handle, name = tempfile.mkstemp(suffix=".features")
    os.close(handle)
    return Path(name)


def _shown(loader: DataLoader[Any], progress: bool) -> Iterable[Any]:
    batches = track("features", loader, len(loader))
    if not progress:
        return batches
    from rich import progress as bars

    return bars.track(batches, description="features", total=len(loader))


def _examples(loader: Any) -> int:
    if not isinstance(loader, DataLoader):
        raise InvalidType("loader", loader, must_be="a torch DataLoader")
    sampler = getattr(loader.batch_sampler, "sampler", loader.sampler)
    once = type(sampler) is SequentialSampler or (
        type(sampler) is RandomSampler and not sampler.replacement
    )
    if not once:
        must_be = (
            "one that gives every example once, shuffled or not: with a weighted or other sampler "
            "an example may count several times"
        )
        raise InvalidParameter("loader.sampler", type(sampler).__name__, must_be=must_be)
    return len(loader.dataset)


def _not_one_row_each(found: str) -> InvalidParameter:
    must_be = (
        "one with one row for each example: without augmentation or several crops, where an "
        "example counts more than once, and without drop_last"
    )
    return InvalidParameter("loader", must_be=must_be, found=found)


def _split(batch: Any, labels: str) -> tuple[Any, NDArray[Any]]:
    if isinstance(batch, Mapping):
        if labels not in batch:
            raise InvalidParameter("labels", labels, must_be=f"a key of batches: {list(batch)}")
        inputs: Any = {key: value for key, value in batch.items() if key != labels}
        targets = batch[labels]
    elif isinstance(batch, tuple | list) and len(batch) >= 2:
        *inputs, targets = batch
    else:
        must_be = "of batches (inputs, .., labels), or of dicts with labels"
        raise InvalidType("loader", must_be=must_be, found=type(batch).__name__)
    array = np.asarray(targets)
    if array.ndim != 1:
        must_be = "one for each example: the loss takes no smoothed or mixed labels"
        raise InvalidParameter("labels", must_be=must_be, found=f"an array of {array.ndim} axes")
    return inputs, array


def _rows(
    model: nn.Module, inputs: Any, device: Any, captured: list[torch.Tensor], *, size: int
) -> torch.Tensor:
    captured.clear()
    try:
        if isinstance(inputs, dict):
            model(**{key: _moved(value, device) for key, value in inputs.items()})
        else:
            model(*[_moved(value, device) for value in inputs])
    except _HeadReached:
        pass
    if not captured:
        must_be = "of a layer that the model runs"
        raise InvalidParameter("name", must_be=must_be, found="one that it does not reach")
    rows = captured[0]
    if rows.ndim != 2 or len(rows) != size:
        raise _not_one_row_each(f"features of shape {tuple(rows.shape)} for {size} labels")
    return rows


def _refuse_mixing(
    model: nn.Module, inputs: Any, device: Any, captured: list[torch.Tensor], part: torch.Tensor
) -> None:
    """Refuse a model whose features of an example are random or depend on the batch."""
    part = part.clone()
    alone = {k: _first(v) for k, v in inputs.items()} if isinstance(inputs, dict) else [
        _first(value) for value in inputs
    ]  # fmt: skip
    again = _rows(model, alone, device, captured, size=1)
    scale = float(part[0].abs().max())
    if not float((again[0] - part[0]).abs().max()) <= _TOLERANCE * scale:
        must_be = (
            "one whose features of an example depend on that example alone, neither on randomness "
            "nor on the rest of the batch"
        )
        raise InvalidParameter(
            "model", must_be=must_be, found="two different rows for the same example"
        )


def _first(value: Any) -> Any:
    return value[:1] if isinstance(value, torch.Tensor) else value


def _moved(value: Any, device: Any) -> Any:
    return value.to(device) if isinstance(value, torch.Tensor) else value


@contextmanager
def _captured(head: nn.Linear) -> Iterator[list[torch.Tensor]]:
    captured: list[torch.Tensor] = []

    def note(_: nn.Module, given: tuple[Any, ...]) -> None:
        captured.append(given[0].detach())
        raise _HeadReached

    handle = head.register_forward_pre_hook(note)
    try:
        yield captured
    finally:
        handle.remove()


@contextmanager
def _frozen(model: nn.Module) -> Iterator[None]:
    """Eval mode, in which no unit is dropped and no statistics are updated."""
    modes = {layer: layer.training for layer in model.modules()}
    model.eval()
    try:
        for name, layer in model.named_modules():
            if layer.training:
                must_be = "one that can be put into eval mode: in training mode layers drop units "
                must_be += "at random, or learn statistics of the private data"
                raise InvalidParameter("model", must_be=must_be, found=f"{name!r} in training mode")
            if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.running_mean is None:
                must_be = "one whose BatchNorm layers have statistics of their own"
                found = f"{name!r}, which takes those of the batch"
                raise InvalidParameter("model", must_be=must_be, found=found)
        with torch.no_grad():
            yield
    finally:
        for layer, mode in modes.items():
            layer.training = mode
