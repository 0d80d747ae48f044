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
from lastiterate._progress import track
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.torch.bounded_linear import FedBy, bounded, linear_named

IN_MEMORY = 2**28  # bytes
_SAME = 1e-3  # of the scale: how far the same row may be off in another batch


class _Reached(Exception):
    """The head was reached: nothing after it is needed."""


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
        Run in eval mode, without gradients; its modes are then as they were.
    name : str
        Of a `torch.nn.Linear` in it, such as "fc" or "classifier".
    loader : DataLoader
        Of batches (.., labels) or of dicts; every example once.
    labels : str
        The key of labels in batches that are dicts.
    device : torch device, optional
        Where batches go; by default where the model is.
    memory : int
        Larger features, in bytes, are written to a file and mapped.
    path : str or Path, optional
        That file; by default one in the folder for temporary files, yours to delete.
    normalise : bool
        Whether to give every row the length 1.
    progress : bool
        Whether to show a bar.
    """
    return taken(**locals(), fed_by=None)


def taken(
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
    fed_by: FedBy | None,
) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """Rows and labels as in `features`; refuses rows that are not outputs of a `fed_by` layer."""
    head = linear_named(model, name)
    count = _examples(loader)
    limit = _check.count("memory", memory, at_least=0)
    shape = (count, head.in_features)
    where = next(model.parameters()).device if device is None else torch.device(device)
    mapped = 4 * count * head.in_features > limit or path is not None
    file = _new_file(path) if mapped else None
    rows: Any = np.empty((0, 0) if mapped else shape, dtype=np.float32)
    found: list[NDArray[Any]] = []
    done = 0
    # Written, and mapped only then: pages that are mapped while they change stay in memory.
    writing = nullcontext() if file is None else file.open("wb")
    with _frozen(model), _captured(head) as reached, writing as written:
        for batch in _shown(loader, progress):
            inputs, targets = _split(batch, labels)
            part = _rows(model, inputs, where, reached, size=len(targets))
            if fed_by is not None:
                fed_by.check(part)
            if done == 0:
                _refuse_mixing(model, inputs, where, reached, part)
            if normalise:
                part = bounded(part.double(), 1.0, normalise=True)
            if done + len(part) > count:
                raise _not_once(f"more than {count} rows")
            several = part.float().cpu().numpy()
            if written is None:
                rows[done : done + len(part)] = several
            else:
                written.write(np.ascontiguousarray(several).data)
            found.append(targets)
            done += len(part)
    if done != count:
        raise _not_once(f"{done} rows of {count} examples")
    if file is not None:
        rows = np.memmap(file, dtype=np.float32, mode="r", shape=shape)
    return rows, np.concatenate(found)


def _new_file(path: str | Path | None) -> Path:
    if path is not None:
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
            "one that gives every example once, shuffled or not: a weighted or other sampler lets "
            "one count more often than others"
        )
        raise InvalidParameter("loader.sampler", type(sampler).__name__, must_be=must_be)
    return len(loader.dataset)


def _not_once(found: str) -> InvalidParameter:
    must_be = (
        "one that gives one row for each example: without augmentation or several crops, which "
        "would let an example count more than once, and without drop_last"
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
        must_be = (
            "one for each example: smoothed or mixed labels are not what the trainer's loss is of"
        )
        raise InvalidParameter("labels", must_be=must_be, found=f"an array of {array.ndim} axes")
    return inputs, array


def _rows(
    model: nn.Module, inputs: Any, device: Any, reached: list[torch.Tensor], *, size: int
) -> torch.Tensor:
    reached.clear()
    try:
        if isinstance(inputs, dict):
            model(**{key: _moved(value, device) for key, value in inputs.items()})
        else:
            model(*[_moved(value, device) for value in inputs])
    except _Reached:
        pass
    if not reached:
        must_be = "of a layer that the model runs"
        raise InvalidParameter("name", must_be=must_be, found="one that it does not reach")
    rows = reached[0]
    if rows.ndim != 2 or len(rows) != size:
        raise _not_once(f"features of shape {tuple(rows.shape)} for {size} labels")
    return rows


def _refuse_mixing(
    model: nn.Module, inputs: Any, device: Any, reached: list[torch.Tensor], part: torch.Tensor
) -> None:
    """If the features of an example depend on chance, or on others in its batch."""
    part = part.clone()
    alone = {k: _first(v) for k, v in inputs.items()} if isinstance(inputs, dict) else [
        _first(value) for value in inputs
    ]  # fmt: skip
    again = _rows(model, alone, device, reached, size=1)
    scale = float(part[0].abs().max())
    if not float((again[0] - part[0]).abs().max()) <= _SAME * scale:
        must_be = (
            "one whose features of an example depend on that example alone, and not on chance or "
            "on the rest of the batch"
        )
        raise InvalidParameter("model", must_be=must_be, found="another row for the same example")


def _first(value: Any) -> Any:
    return value[:1] if isinstance(value, torch.Tensor) else value


def _moved(value: Any, device: Any) -> Any:
    return value.to(device) if isinstance(value, torch.Tensor) else value


@contextmanager
def _captured(head: nn.Linear) -> Iterator[list[torch.Tensor]]:
    reached: list[torch.Tensor] = []

    def note(_: nn.Module, given: tuple[Any, ...]) -> None:
        reached.append(given[0].detach())
        raise _Reached

    handle = head.register_forward_pre_hook(note)
    try:
        yield reached
    finally:
        handle.remove()


@contextmanager
def _frozen(model: nn.Module) -> Iterator[None]:
    """In eval mode, so that nothing is dropped and no statistics are updated."""
    modes = {layer: layer.training for layer in model.modules()}
    model.eval()
    try:
        for name, layer in model.named_modules():
            if layer.training:
                must_be = "one that can be put into eval mode: in training mode layers drop units "
                must_be += "by chance, or learn statistics of the private data"
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
