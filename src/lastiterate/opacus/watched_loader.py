"""The batches of a loader: their rule is read from its sampler, and their sizes are counted.

A batch sampler is recognised by its exact type, and given a subclass that counts the passes through
it and the examples in each batch, and reads the rule anew for every batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
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

from lastiterate import _check
from lastiterate.errors import RefusedTraining
from lastiterate.run.batch_rules.base import Resampling
from lastiterate.torch.batch_samplers import SAMPLERS, SecretBatchSampler
from lastiterate.torch.repeated_rows import NOT_REPEATED, repeated_rows
from lastiterate.train.noise import SHARED

POISSON, SHUFFLED, SEQUENTIAL = "poisson", "shuffled", "sequential"


@dataclass
class DrawnBatches:
    """The number of examples in each batch that a sampler drew, pass by pass.

    `rules` has the batches of each pass as they were read when one was drawn, without repetition.
    """

    read: Callable[[], Batches]
    sizes: list[list[int]] = field(default_factory=list)
    rules: list[list[Batches | RefusedTraining]] = field(default_factory=list)
    ended: set[int] = field(default_factory=set)  # passes in which a batch after the last was asked

    @property
    def passes(self) -> int:
        """The number of passes begun."""
        return len(self.sizes)

    def sizes_in_pass(self, number: int) -> list[int]:
        """The sizes of the batches of a pass so far; the first pass is 1."""
        return self.sizes[number - 1]


def _record_batches(sampler: Any, batches: Iterator[list[int]]) -> Iterator[list[int]]:
    draws: DrawnBatches = sampler.__dict__["draws"]
    sizes: list[int] = []
    rules: list[Batches | RefusedTraining] = []
    draws.sizes.append(sizes)
    draws.rules.append(rules)
    number = draws.passes
    for batch in batches:
        now: Batches | RefusedTraining
        try:
            now = draws.read()
        except RefusedTraining as refusal:
            now = refusal
        if not rules or rules[-1] != now:
            rules.append(now)
        sizes.append(len(batch))
        yield batch
    draws.ended.add(number)


def _watched_class(kind: type) -> type:
    def __iter__(self: Any) -> Iterator[list[int]]:
        return _record_batches(self, kind.__iter__(self))  # type: ignore[attr-defined]

    return type(f"Watched{kind.__name__}", (kind,), {"__iter__": __iter__})


_KINDS: dict[type, type] = {
    kind: _watched_class(kind) for kind in (BatchSampler, UniformWithReplacementSampler, *SAMPLERS)
}


@dataclass(frozen=True)
class Batches:
    """The batches of one pass: Poisson, by a rule, or with every example in at most one of them.

    `kind` is POISSON, SHUFFLED, SEQUENTIAL or the name of the rule of a sampler of this library.
    """

    kind: str
    examples: int
    per_pass: int
    size: int  # of a batch; of Poisson's, on average and rounded down
    even: bool = True  # whether all batches have this (expected) size
    sample_rate: float | None = None  # Poisson's
    settings: dict[str, Any] | None = None  # of the rule of a sampler of this library

    @property
    def are_whole(self) -> bool:
        """Whether every batch has all examples."""
        return self.sample_rate == 1.0 if self.kind == POISSON else self.size == self.examples

    @classmethod
    def poisson(cls, examples: int, sample_rate: float, per_pass: int) -> Batches:
        """Poisson batches, with the size that Opacus computes."""
        size = min(max(int(examples * sample_rate), 1), examples)
        return cls(POISSON, examples, per_pass, size, sample_rate=sample_rate)


@dataclass(frozen=True)
class WatchedLoader:
    """The batches of a loader, as read from it, and counts of what it draws."""

    batches: Batches
    draws: DrawnBatches
    ahead: int  # the number of batches that workers may draw in advance
    dataset: Any
    repeats: int  # the number of times that a row may be in the data set
    first: int = 1  # the first pass that is watched
    earlier: int = 0  # the number of passes that a sampler of this library began before

    @classmethod
    def of(cls, loader: Any, *, repeats: int = 1) -> WatchedLoader:
        """The loader, watched from now on; a row may be in its data set `repeats` times.

        Raises `RefusedTraining` for unknown samplers, and for rows that are in it more often.
        """
        batches = read_batches(loader)
        sampler: Any = loader.batch_sampler
        if type(sampler) in _KINDS:
            sampler.__class__ = _KINDS[type(sampler)]
            sampler.__dict__["draws"] = DrawnBatches(lambda: read_batches(loader))
        draws = sampler.__dict__["draws"]
        draws.read = lambda: read_batches(loader)
        begun = sampler.passes if isinstance(sampler, SecretBatchSampler) else draws.passes
        first, earlier = draws.passes + 1, begun - draws.passes
        watched = cls(
            batches, draws, _prefetched_batches(loader), loader.dataset, repeats, first, earlier
        )
        watched.refuse_repeated_rows()
        return watched

    def refuse_repeated_rows(self) -> None:
        """Refuse a data set that has a row more often than it may."""
        if (times := repeated_rows(self.dataset)) > self.repeats:
            raise RefusedTraining(
                f"a row is at least {times:,} times in the data set, and a person has at most "
                f"{self.repeats:,} of its rows",
                instead="leave out what is repeated, or state "
                f"register(examples_per_person={times}), or what is more; {NOT_REPEATED}",
            )

    def refuse_other_batches(self, number: int) -> None:
        """Refuse a pass whose batches were not all drawn as those that were watched first."""
        before = self.batches
        for now in self.draws.rules[number - 1]:
            if isinstance(now, RefusedTraining):
                raise now
            if now != before:
                names = [
                    one.name
                    for one in fields(now)
                    if getattr(now, one.name) != getattr(before, one.name)
                ]
                raise RefusedTraining(
                    f"batches were drawn with {_settings(now, names)}, and those of earlier steps "
                    f"with {_settings(before, names)}",
                    instead="make a PrivacyEngine for each part of a schedule, and compose their "
                    "reports",
                )


def read_batches(loader: Any) -> Batches:
    """The batches that a loader draws now; raises `RefusedTraining` for unknown samplers."""
    if not isinstance(loader, DataLoader):
        raise _unknown(f"the loader is a {type(loader).__name__}")
    if isinstance(loader.dataset, IterableDataset):
        raise _unknown("the data set is a stream")
    return _batches(loader, loader.batch_sampler)


def _settings(batches: Batches, names: list[str]) -> str:
    return ", ".join(f"{name}={vars(batches)[name]!r}" for name in names)


def _prefetched_batches(loader: DataLoader[Any]) -> int:
    return int(loader.num_workers * (loader.prefetch_factor or 2))


def _batches(loader: DataLoader[Any], sampler: Any) -> Batches:
    kind = next((k for k, watched in _KINDS.items() if type(sampler) in (k, watched)), None)
    if kind is None:
        raise _unknown(f"batches are drawn by a {type(sampler).__name__}")
    examples = len(loader.dataset)
    if issubclass(kind, SecretBatchSampler):
        return _secret_rule(sampler, examples)
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
        raise _unknown(f"there is no batch of {size} among {examples} examples")
    even = sampler.drop_last or per_pass == 1 or size * per_pass == examples
    kind_of_order = SHUFFLED if shuffled else SEQUENTIAL
    return Batches(kind_of_order, examples, per_pass, min(size, examples), even)


def _poisson(loader: DataLoader[Any], sampler: Any, examples: int) -> Batches:
    if not isinstance(loader, DPDataLoader) or sampler.num_samples != examples:
        raise _unknown("a Poisson sampler of another data set than the loader")
    if getattr(loader.collate_fn, "rand_on_empty", True):
        raise RefusedTraining(
            "an empty batch is filled with a synthetic example (rand_on_empty), so removing an "
            "example may change two gradients",
            instead="leave rand_on_empty at False",
        )
    rate = _check.number("sample_rate", sampler.sample_rate, above=0.0, at_most=1.0)
    return Batches.poisson(examples, rate, len(sampler))


def _secret_rule(sampler: SecretBatchSampler, examples: int) -> Batches:
    rule = sampler.rule
    if rule.examples != examples:
        raise _unknown("the sampler is of another data set than the loader")
    if sampler.ranks > 1:
        raise RefusedTraining(
            "training is distributed, and this process sees its own steps alone",
            instead="train in one process, or account for the whole with TrainingRun.from_dp_sgd",
        )
    if sampler.provenance == SHARED:
        raise RefusedTraining(
            "batches are drawn by a shared key: a sampler that is made with it again, as when a "
            "training goes on, draws the same batches again",
            instead="leave out shared_key, which one process does not need",
        )
    if rule.resampling is Resampling.EACH_STEP:
        return Batches(POISSON, examples, len(sampler), rule.batch_size, sample_rate=rule.share)
    settings = {one.name: getattr(rule, one.name) for one in fields(rule)}
    return Batches(rule.name, examples, len(sampler), rule.batch_size, settings=settings)


def _unknown(what: str) -> RefusedTraining:
    return RefusedTraining(
        f"{what}, so an example may be twice in one batch",
        instead="use DataLoader(dataset, batch_size=.., shuffle=True), with or without Opacus' "
        "Poisson sampling, or a sampler of lastiterate.torch",
    )


def local_of_make_private(frame: Any, name: str) -> Any:
    """A local variable of `PrivacyEngine.make_private`, which is on the stack; None if it is not.

    Opacus does not pass its loader and optimizer to accountants.
    """
    while frame is not None:
        inside = frame.f_globals.get("__name__") == "opacus.privacy_engine"
        if inside and frame.f_code.co_name == "make_private":
            return frame.f_locals.get(name)
        frame = frame.f_back
    return None
