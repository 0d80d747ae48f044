"""Which batches a loader draws, and that it does draw them: read from it, and watched.

A loader's batch sampler is told apart by its exact type, and given a subclass that counts how often
it was gone through, and how many batches it drew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from opacus.data_loader import DPDataLoader
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
)

from lastiterate.opacus.refused import RefusedTraining

POISSON, SHUFFLED, SEQUENTIAL = "poisson", "shuffled", "sequential"


@dataclass
class Draws:
    """How many batches a sampler drew, each time that it was gone through."""

    counts: list[int] = field(default_factory=list)

    @property
    def passes(self) -> int:
        """How often it was gone through, the last time perhaps not to the end."""
        return len(self.counts)

    def drawn(self, number: int) -> int:
        """In this pass, the first being 1."""
        return self.counts[number - 1]


def _counted(sampler: Any, batches: Iterator[list[int]]) -> Iterator[list[int]]:
    counts: list[int] = sampler.__dict__["draws"].counts
    number = len(counts)
    counts.append(0)
    for batch in batches:
        counts[number] += 1
        yield batch


class _WatchedBatches(BatchSampler):
    def __iter__(self) -> Iterator[list[int]]:
        return _counted(self, super().__iter__())


class _WatchedPoisson(UniformWithReplacementSampler):
    def __iter__(self) -> Iterator[list[int]]:
        return _counted(self, super().__iter__())


_KINDS: dict[type, type] = {
    BatchSampler: _WatchedBatches,
    UniformWithReplacementSampler: _WatchedPoisson,
}


@dataclass(frozen=True)
class Batches:
    """Of `examples`, each in one of `per_pass` batches; or, Poisson's, in each with 1/per_pass."""

    kind: str
    examples: int
    per_pass: int
    even: bool  # whether all batches have the same (expected) size, and no example is left out

    @property
    def size(self) -> int:
        """Of a batch, or more."""
        return -(-self.examples // self.per_pass)


@dataclass(frozen=True)
class WatchedLoader:
    """What is read from a loader, and what is counted."""

    batches: Batches
    draws: Draws
    ahead: int  # how many batches may be drawn before they are asked for

    @classmethod
    def of(cls, loader: Any) -> WatchedLoader:
        """Watched from now on; loaders whose batches are not understood are refused."""
        if not isinstance(loader, DataLoader):
            raise _unknown(f"the loader is a {type(loader).__name__}")
        if isinstance(loader.dataset, IterableDataset):
            raise _unknown("the data set is a stream")
        sampler = loader.batch_sampler
        batches = _batches(loader, sampler)
        if type(sampler) in _KINDS:
            sampler.__class__ = _KINDS[type(sampler)]
            sampler.__dict__["draws"] = Draws()
        return cls(batches, sampler.__dict__["draws"], _ahead(loader))


def _ahead(loader: DataLoader[Any]) -> int:
    return int(loader.num_workers * (loader.prefetch_factor or 2))


def _batches(loader: DataLoader[Any], sampler: Any) -> Batches:
    kind = next((k for k, watched in _KINDS.items() if type(sampler) in (k, watched)), None)
    if kind is None:
        raise _unknown(f"batches are drawn by a {type(sampler).__name__}")
    examples = len(loader.dataset)
    if kind is UniformWithReplacementSampler:
        return _poisson(loader, sampler, examples)
    single = sampler.sampler
    shuffled = type(single) is RandomSampler
    if not shuffled and type(single) is not SequentialSampler:
        raise RefusedTraining(
            f"examples are drawn by a {type(single).__name__}, which may draw one more often than "
            "others, several times into a batch, or by what it holds",
            instead="use shuffle=True, or Poisson sampling",
        )
    if shuffled and (single.replacement or single.num_samples != examples):
        raise RefusedTraining(
            "the loader's RandomSampler may put an example several times into one batch",
            instead="leave out replacement and num_samples",
        )
    if len(single.data_source) != examples:
        raise _unknown("the sampler is of another data set than the loader")
    per_pass, size = len(sampler), int(sampler.batch_size)
    if per_pass < 1:
        raise _unknown(f"batches of {size} of {examples} examples, of which there is none")
    return Batches(
        SHUFFLED if shuffled else SEQUENTIAL, examples, per_pass, size * per_pass == examples
    )


def _poisson(loader: DataLoader[Any], sampler: Any, examples: int) -> Batches:
    if not isinstance(loader, DPDataLoader) or sampler.num_samples != examples:
        raise _unknown("a Poisson sampler of another data set than the loader")
    if getattr(loader.collate_fn, "rand_on_empty", True):
        raise RefusedTraining(
            "an empty batch is filled with a made-up example (rand_on_empty), so that leaving out "
            "an example may change two gradients",
            instead="leave rand_on_empty at False",
        )
    per_pass = round(1.0 / sampler.sample_rate)
    if 1.0 / per_pass != sampler.sample_rate:
        raise _unknown(f"a sample rate of {sampler.sample_rate!r}, which is not 1 over a count")
    return Batches(POISSON, examples, per_pass, examples % per_pass == 0)


def _unknown(what: str) -> RefusedTraining:
    return RefusedTraining(
        f"{what}, and it is not known that no example is twice in one batch",
        instead="use DataLoader(dataset, batch_size=.., shuffle=True), with or without Opacus' "
        "Poisson sampling",
    )


def loader_of_caller(frame: Any) -> Any:
    """The loader that `PrivacyEngine.make_private` has made when it asks for a hook, or None.

    Opacus does not hand it to accountants.  In a version that calls differently nothing is found,
    and then nothing is assumed of batches.
    """
    while frame is not None:
        inside = frame.f_globals.get("__name__") == "opacus.privacy_engine"
        if inside and frame.f_code.co_name == "make_private":
            return frame.f_locals.get("data_loader")
        frame = frame.f_back
    return None
