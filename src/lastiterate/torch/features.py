"""Inputs of a layer of a frozen model, one row for each example.

A row must be a function of its example alone: not of the rest of the batch, which attention over
the batch, padding or a forgotten `batch_first` make it, nor of examples that came before.  Every
batch runs on a copy of the model that has seen none, so what a model keeps in its attributes, a
cache or a running mean, reaches no other batch; a model that writes to its parameters is refused.
What it keeps elsewhere, in globals, in closures or in memory that copies share, reaches them.  With
`one_by_one` a batch is one example.  Otherwise examples of every batch run again, collated alone: a
check, which finds mixing of most examples of a batch, and cannot find mixing of a few, or by no
more than rounding.  What the data set itself mixes, no run of the model can show.
"""

from __future__ import annotations

import copy
import os
import secrets
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    RandomSampler,
    SequentialSampler,
    default_collate,
)

from lastiterate import _check
from lastiterate._files import refuse_replacing
from lastiterate._progress import track
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.torch.layers import (
    BoundingLayer,
    bounded,
    linear_layer,
    replace_layer,
    write_count,
)
from lastiterate.torch.repeated_rows import NOT_REPEATED, repeated_rows

IN_MEMORY = 2**28  # bytes
# Of the length of a row, for the same example in another batch: 256 units of float32.  With random
# weights, rounding made at most 2e-6 of it in convolutions, transformers and recurrent layers, and
# 1.5e-5 in 50 linear layers with a LayerNorm each.
_TOLERANCE = 2.0**-15
_LEAST_CHECKED_EXAMPLES = (
    64  # examples that run again, at least: these find mixing of a twentieth of all
)
_GOLDEN = (5.0**0.5 - 1.0) / 2.0  # its multiples, modulo 1, leave no gap for long
_ALONE = "; or one_by_one=True, by which every example runs alone"


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
    one_by_one: bool = False,
) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """Rows that reach the linear layer `name`, and their labels, in the order of the loader.

    The row of an example must depend on that example alone.  This is checked: in every batch the
    first example, the last, and at least one between, 64 in all, run again, each read and collated
    alone.  The check is no proof: it cannot see mixing of a few examples that it does not choose,
    nor mixing below the rounding of float32 (3e-5 of a row's length).  `one_by_one` needs no such
    check.  Every batch runs on a copy of the model that has seen no example.

    What the data set gives for an example must come from that example alone, too, and nothing
    checks that: no mixup, no noise from other recordings, no padding to the longest text of the
    data set, no scaling by the mean of its rows.

    Parameters
    ----------
    model : torch.nn.Module
        The model.  It runs in eval mode, without gradients; its modes are restored.
    name : str
        The name of a `torch.nn.Linear` in the model, such as "fc" or "classifier".
    loader : DataLoader
        Batches (.., labels) or dicts, with every example once, and the same each time it is read.
    labels : str
        The key of the labels in batches that are dicts.
    device : torch device, optional
        The device for batches; by default that of the model.
    memory : int
        Features of more bytes are written to a file and mapped.
    path : str or Path, optional
        That file, which must not exist yet; by default a temporary file, which the caller deletes
        (`fit_head` deletes its own).
    normalise : bool
        Whether to scale every row to length 1.
    progress : bool
        Whether to show a progress bar.
    one_by_one : bool
        Whether to read, collate and run every example alone, so that no row can depend on another
        one unless the data set mixes them, or code remembers examples in globals or closures.
        Slower, above all on a GPU or for a model of many layers, as it is copied for every
        example.  Needed for random augmentation, for examples of several types, and for half
        precision, whose rounding hides mixing.

    Returns
    -------
    rows : ndarray of float32, shape (examples, features)
        The inputs of the layer.
    labels : ndarray, shape (examples,)
        The labels.

    Raises
    ------
    InvalidParameter, InvalidType
        If the layer is not linear or not reached, an example does not have exactly one row, or is
        in the data set several times, or its row depends on the rest of the batch.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(2, 3))
    >>> pairs = torch.utils.data.TensorDataset(torch.tensor([[1.0, -1.0]]), torch.tensor([2]))
    >>> rows, labels = features(model, "1", torch.utils.data.DataLoader(pairs))
    >>> rows.tolist(), labels.tolist()
    ([[1.0, 0.0]], [2])
    """
    return extract_features(**locals(), bounding_layer=None, to_replace=False)


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
    one_by_one: bool,
    bounding_layer: BoundingLayer | None,
    to_replace: bool,
) -> tuple[NDArray[np.float32], NDArray[Any]]:
    """Rows and labels as in `features`; with a bounding layer, rows must be its outputs.

    `to_replace` refuses a model that would not use another layer in place of the one of this name.
    """
    head = linear_layer(model, name)
    count = _count_examples(loader)
    collate = _FreshCollate(loader.collate_fn, loader.dataset)
    loader = _one_by_one(loader, collate) if one_by_one else loader
    limit = _check.count("memory", memory, at_least=0)
    shape = (count, head.in_features)
    where = next(model.parameters()).device if device is None else torch.device(device)
    mapped = 4 * count * head.in_features > limit or path is not None
    file = _new_path(path) if mapped else None
    rows: Any = np.empty((0, 0) if mapped else shape, dtype=np.float32)
    found: list[NDArray[Any]] = []
    done = 0
    first: _Rows | None = None
    # Mapped only after writing: pages that change while they are mapped stay in memory.
    writing = nullcontext() if file is None else _write_whole(file)
    with (
        _freeze(model),
        _capture_inputs(head) as captured,
        _note_drawn(loader) as drawn,
        writing as written,
    ):
        run = _Run(model, labels, where, captured, bounding_layer, _copied_parameters(model))
        fewest = max(3, -(-_LEAST_CHECKED_EXAMPLES // max(len(loader), 1)))
        for number, batch in enumerate(_with_progress(loader, progress)):
            part = run.rows(batch)
            if done + len(part.rows) > count:
                raise _rows_error(f"more than {count} rows")
            if not one_by_one:
                _refuse_mixing(run, loader, collate, part, drawn[done:], number, fewest)
            if first is None:
                first = part if one_by_one else run.rows(_collate_alone(loader, collate, drawn[0]))
                run.refuse_memory(first, part)
            within = bounded(part.rows.double(), 1.0, normalise=True) if normalise else part.rows
            several = within.float().cpu().numpy()
            if written is None:
                rows[done : done + len(several)] = several
            else:
                written.write(np.ascontiguousarray(several).data)
            found.append(part.labels)
            if _label_type(part.labels) != _label_type(found[0]):
                must_be = "of one type in all batches"
                types = f"{found[0].dtype} and {part.labels.dtype}"
                raise InvalidType("labels", must_be=must_be, found=types)
            done += len(several)
        if done != count or len(set(drawn)) != count:
            raise _rows_error(f"{done} rows of {len(set(drawn))} out of {count} examples")
        if first is not None:
            run.refuse_memory(first, part)
            if to_replace:
                run.refuse_unreachable(name, first)
    if file is not None:
        rows = np.memmap(file, dtype=np.float32, mode="r", shape=shape)
    return rows, np.concatenate(found)


def _new_path(path: str | Path | None) -> Path:
    if path is not None:
        refuse_replacing("path", path)
        return Path(path)
    return Path(tempfile.gettempdir()) / f"{secrets.token_hex(8)}.features"


@contextmanager
def _write_whole(file: Path) -> Iterator[BinaryIO]:
    """A new file for its owner alone, of which nothing is left if writing fails."""
    with open(file, "xb", opener=partial(os.open, mode=0o600)) as written:
        try:
            yield written
        except BaseException:
            file.unlink(missing_ok=True)
            raise


def _with_progress(loader: DataLoader[Any], progress: bool) -> Iterable[Any]:
    batches = track("features", loader, len(loader))
    if not progress:
        return batches
    from rich import progress as bars

    return bars.track(batches, description="features", total=len(loader))


def _count_examples(loader: Any) -> int:
    if not isinstance(loader, DataLoader):
        raise InvalidType("loader", loader, must_be="a torch DataLoader")
    batches: Any = loader.batch_sampler
    sampler = getattr(batches, "sampler", loader.sampler)
    once = type(sampler) is SequentialSampler or (
        type(sampler) is RandomSampler and not sampler.replacement
    )
    if not once:
        must_be = (
            "one that gives every example once, shuffled or not: with a weighted or other sampler "
            "an example may count several times"
        )
        raise InvalidParameter("loader.sampler", type(sampler).__name__, must_be=must_be)
    if type(batches) is not BatchSampler:
        must_be = (
            "a torch.utils.data.BatchSampler: another one may choose batches by what is in them, "
            "and give an example several times"
        )
        raise InvalidParameter("loader.batch_sampler", type(batches).__name__, must_be=must_be)
    if (times := repeated_rows(loader.dataset)) > 1:
        must_be = "a data set with every example once, since the guarantee is of one example"
        must_be += f" ({NOT_REPEATED})"
        raise InvalidParameter("loader.dataset", must_be=must_be, found=f"one {times} times")
    return len(loader.dataset)


@dataclass(frozen=True)
class _FreshCollate:
    """Collates as if for the first time: a copy that remembers, as of the longest text, is new."""

    collate: Any
    dataset: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "collate", self._copy())  # before it has seen any example

    def __call__(self, examples: list[Any]) -> Any:
        return self._copy()(examples)

    def _copy(self) -> Any:
        try:
            return copy.deepcopy(self.collate, {id(self.dataset): self.dataset})
        except Exception as error:
            must_be = "one that copy.deepcopy copies, so that none has seen other examples"
            found = f"{type(error).__name__} in copying"
            raise InvalidParameter("loader.collate_fn", must_be=must_be, found=found) from error


def _one_by_one(loader: DataLoader[Any], collate: _FreshCollate) -> DataLoader[Any]:
    """A loader of the same examples in the same order, each collated alone."""
    if type(loader).__iter__ is not DataLoader.__iter__:
        must_be = "a DataLoader that leaves batches as they are collated, with one_by_one=True"
        raise InvalidParameter("loader", type(loader).__name__, must_be=must_be)
    batches: Any = loader.batch_sampler
    return DataLoader(
        loader.dataset,
        sampler=batches.sampler,
        collate_fn=collate,
        num_workers=loader.num_workers,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        generator=loader.generator,
        timeout=loader.timeout,
        prefetch_factor=loader.prefetch_factor,
    )


@contextmanager
def _note_drawn(loader: DataLoader[Any]) -> Iterator[list[int]]:
    """The indices that the loader draws, as far as it has come."""
    batches: Any = loader.batch_sampler
    sampler, drawn = batches.sampler, list[int]()

    class Noted:
        def __len__(self) -> int:
            return len(sampler)

        def __iter__(self) -> Iterator[int]:
            for index in sampler:
                drawn.append(index)
                yield index

    batches.sampler = Noted()
    try:
        yield drawn
    finally:
        batches.sampler = sampler


def _rows_error(found: str) -> InvalidParameter:
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
    if getattr(targets, "ndim", 1) != 1:
        must_be = "one for each example: the loss takes no smoothed or mixed labels"
        raise InvalidParameter("labels", must_be=must_be, found=f"an array of {targets.ndim} axes")
    return inputs, _labels_of_one_type(targets)


def _labels_of_one_type(targets: Any) -> NDArray[Any]:
    """Labels as an array; refused if the type of one label may have rounded another one.

    Collating gives a batch one type: a label of 16 bits would round whole numbers from 2**11.
    """
    must_be = "of one type in all examples: integers, booleans, text, or floats of 32 or 64 bits"
    kinds = sorted(
        {type(one).__name__ for one in targets} if isinstance(targets, list | tuple) else []
    )
    if len(kinds) > 1:
        raise InvalidType("labels", must_be=must_be, found=" and ".join(kinds))
    try:
        array = np.asarray(targets)
    except (TypeError, ValueError, RuntimeError):  # such as bfloat16, which numpy does not know
        array = np.empty(0, dtype=np.float16)
    if array.dtype.kind not in "biufUS" or array.dtype == np.float16:
        found = str(getattr(targets, "dtype", array.dtype))
        raise InvalidType("labels", must_be=must_be, found=found)
    if array.ndim != 1:
        must_be = "one for each example: the loss takes no smoothed or mixed labels"
        raise InvalidParameter("labels", must_be=must_be, found=f"an array of {array.ndim} axes")
    if array.dtype.kind == "f":
        exact = 2.0 ** (np.finfo(array.dtype).nmant + 1)
        if (np.abs(array) >= exact).any():
            must_be = f"integers in all examples, or floats within {exact:g}, where none is rounded"
            raise InvalidParameter("labels", must_be=must_be, found="larger floats")
    return array


def _types(batch: Any, labels: str) -> list[Any]:
    """The types of the inputs of a batch, and of its labels."""
    inputs, targets = _split(batch, labels)
    values = inputs.values() if isinstance(inputs, dict) else inputs
    return [*(getattr(one, "dtype", type(one)) for one in values), _label_type(targets)]


def _label_type(labels: NDArray[Any]) -> Any:
    return labels.dtype.kind if labels.dtype.kind in "US" else labels.dtype


@dataclass(frozen=True)
class _Rows:
    """A batch, and the rows and labels of its examples."""

    batch: Any
    rows: torch.Tensor
    labels: NDArray[Any]


@dataclass(frozen=True)
class _Run:
    """Runs a frozen model up to its head."""

    model: nn.Module
    labels: str
    device: Any
    captured: list[torch.Tensor]
    bounding_layer: BoundingLayer | None
    parameters: list[tuple[str, nn.Parameter, nn.Parameter]]  # with those of all copies

    def rows(self, batch: Any, on: nn.Module | None = None) -> _Rows:
        """The rows of a batch, on a new copy; with a bounding layer, they must be its outputs."""
        inputs, labels = _split(batch, self.labels)
        model = self.copied() if on is None else on
        before = _state(model)
        self.captured.clear()
        try:
            if isinstance(inputs, dict):
                model(**{key: _copy_to_device(value, self.device) for key, value in inputs.items()})
            else:
                model(*[_copy_to_device(value, self.device) for value in inputs])
        except _HeadReached:
            pass
        _refuse_learning(before, model)
        self._refuse_writing()
        if not self.captured:
            must_be = "of a layer that the model runs"
            raise InvalidParameter("name", must_be=must_be, found="one that it does not reach")
        rows = self.captured[0]
        if rows.ndim != 2 or len(rows) != len(labels):
            raise _rows_error(f"features of shape {tuple(rows.shape)} for {len(labels)} labels")
        if self.bounding_layer is not None:
            self.bounding_layer.check(rows)
        return _Rows(batch, rows.clone(), labels)

    def copied(self) -> nn.Module:
        """A copy of the model, with parameters that all copies share and none may write to."""
        memo: dict[int, Any] = {id(own): copied for _, own, copied in self.parameters}
        memo[id(self.bounding_layer)] = self.bounding_layer
        try:
            for layer in reversed(list(self.model.modules())):
                for value in vars(layer).values():
                    if isinstance(value, torch.Tensor) and not value.is_leaf:
                        memo[id(value)] = value.detach().clone()  # cannot be copied otherwise
                if type(layer).__name__ == "OptimizedModule":
                    # The copy of a compiled layer would be compiled once more.
                    memo[id(layer)] = copy.deepcopy(layer._orig_mod, memo)
            return copy.deepcopy(self.model, memo)
        except Exception as error:
            must_be = "one that copy.deepcopy copies: every batch runs on a copy that has seen none"
            found = f"{type(error).__name__} in copying"
            raise InvalidParameter("model", must_be=must_be, found=found) from error

    def _refuse_writing(self) -> None:
        """Refuse a model that writes to its parameters; torch does not count all writes."""
        for name, own, copied in self.parameters:
            if not _same_numbers(own, copied):
                raise _learning_error(name)

    def refuse_memory(self, first: _Rows, later: _Rows) -> None:
        """Refuse a model that gives other rows after a later batch: it is random, or remembers."""
        used = self.copied()
        self.rows(later.batch, on=used)
        if not _are_alike(first, self.rows(first.batch, on=used)):
            raise _mixing_error("another row for the same example the second time", remedy="")

    def refuse_unreachable(self, name: str, first: _Rows) -> None:
        """Refuse a model that has its head elsewhere too, as in a list, and would use that one."""
        model, reached = self.copied(), list[nn.Module]()
        head = nn.Linear(first.rows.shape[-1], 1)

        def note(*_: Any) -> None:
            reached.append(head)
            raise _HeadReached

        head.register_forward_pre_hook(note)
        # Copies of compiled layers are not compiled.
        inside = ".".join(one for one in name.split(".") if one != "_orig_mod")
        replace_layer(model, inside, head.to(first.rows.device))
        with suppress(InvalidParameter):  # that the old head was not reached
            self.rows(first.batch, on=model)
        if not reached:
            must_be = "of a layer that the model keeps as a layer alone, so that it can be replaced"
            raise InvalidParameter("name", name, must_be=must_be, found="one kept elsewhere too")


def _copied_parameters(
    model: nn.Module,
) -> list[tuple[str, nn.Parameter, nn.Parameter]]:
    memo: dict[int, Any] = {}
    return [(name, one, copy.deepcopy(one, memo)) for name, one in model.named_parameters()]


def _same_numbers(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors hold the same; nan is like nan."""
    if one.shape != other.shape or one.dtype != other.dtype or one.device != other.device:
        return False
    return torch.equal(one, other) or bool(((one == other) | (one.isnan() & other.isnan())).all())


def _refuse_mixing(
    run: _Run,
    loader: DataLoader[Any],
    collate: _FreshCollate,
    part: _Rows,
    drawn: list[int],
    number: int,
    fewest: int,
) -> None:
    """Refuse rows that are others where their example is read, collated and run alone."""
    size = len(part.rows)
    if len(drawn) < size:
        raise _rows_error("batches that its sampler did not draw")
    steps = range(number * (fewest - 2), (number + 1) * (fewest - 2))
    between = {int(size * ((0.5 + _GOLDEN * step) % 1.0)) for step in steps}
    for position in {0, *between, size - 1}:
        alone = run.rows(_collate_alone(loader, collate, drawn[position]))
        if _types(alone.batch, run.labels) != _types(part.batch, run.labels):
            must_be = (
                "one whose examples are all of one type: a batch of several is of one that it "
            )
            must_be += "takes from all" + _ALONE
            found = "another type for an example alone than in its batch"
            raise InvalidParameter("loader.dataset", must_be=must_be, found=found)
        one = _Rows(part.batch, part.rows[[position]], part.labels[[position]])
        if _are_alike(one, alone):
            continue
        if not _are_alike(alone, run.rows(alone.batch)):
            raise _mixing_error("another row for the same example the second time", remedy="")
        if not _are_alike(alone, run.rows(_collate_alone(loader, collate, drawn[position]))):
            remedy = f"{_ALONE}, if what is random is the example's own, not another example's"
            raise _mixing_error(
                "another row for the same example when it was read again", remedy=remedy
            )
        raise _mixing_error(
            "another row for an example alone than in its batch, as with padding without a mask, "
            "a layer without batch_first, half precision, or rounding in a very deep model"
        )


def _mixing_error(found: str, *, remedy: str = _ALONE) -> InvalidParameter:
    must_be = (
        "one whose features of an example depend on that example alone, neither on randomness nor "
        "on the rest of the batch"
    )
    return InvalidParameter("model", must_be=must_be + remedy, found=found)


def _collate_alone(loader: DataLoader[Any], collate: _FreshCollate, index: int) -> Any:
    """A batch of one example, made as the loader makes batches."""
    dataset: Any = loader.dataset
    several = getattr(dataset, "__getitems__", None)
    return collate([dataset[index]] if several is None else several([index]))


def _are_alike(one: _Rows, other: _Rows) -> bool:
    """Whether labels are equal, and rows but for rounding; nan is like nan."""
    if one.rows.shape != other.rows.shape or not np.array_equal(one.labels, other.labels):
        return False
    rows, again = one.rows.cpu().double(), other.rows.cpu().double()
    same = (rows == again) | (rows.isnan() & again.isnan())
    apart = (rows - again).masked_fill(same, 0.0).norm(dim=1)
    length = rows.masked_fill(~rows.isfinite(), 0.0).norm(dim=1)
    return bool((apart <= _TOLERANCE * length).all())


def _copy_to_device(value: Any, device: Any) -> Any:
    """An input on the device, in memory of its own: a model may write to it."""
    if isinstance(value, torch.Tensor):
        return value.detach().to(device, copy=True)
    return copy.deepcopy(value)


@contextmanager
def _capture_inputs(head: nn.Linear) -> Iterator[list[torch.Tensor]]:
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
def _freeze(model: nn.Module) -> Iterator[None]:
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
        before = _state(model)
        with torch.no_grad():
            yield
        _refuse_learning(before, model)
    finally:
        for layer, mode in modes.items():
            layer.training = mode


def _refuse_learning(before: dict[str, tuple[torch.Tensor, int]], model: nn.Module) -> None:
    changed = [
        name
        for name, (tensor, writes) in _state(model).items()
        if name not in before or tensor is not before[name][0] or writes != before[name][1]
    ]
    if changed:
        raise _learning_error(changed[0])


def _learning_error(name: str) -> InvalidParameter:
    must_be = "one that learns nothing in eval mode: let it assign parameters and buffers only `if "
    must_be += "self.training`, also a count of its calls"
    return InvalidParameter("model", must_be=must_be, found=f"{name!r}, which changed")


def _state(model: nn.Module) -> dict[str, tuple[torch.Tensor, int]]:
    """Which tensors the state of a model consists of, and how often they were written to."""
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    kept = tensors.keys() & model.state_dict(keep_vars=True).keys()
    return {name: (tensors[name], write_count(tensors[name])) for name in kept}


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
