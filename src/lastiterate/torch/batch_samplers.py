"""Batch samplers for any `DataLoader` that draw batches in secret, by the rules that bounds cover.

    sampler = lt.BallsAndBinsSampler(dataset, batch_size=512)
    loader = DataLoader(dataset, batch_sampler=sampler, collate_fn=lt.EmptyBatches(dataset))

Batches are drawn from AES-256 keyed by the operating system, those of a pass before the first of
them is used.  Sums of gradients are to be divided by the fixed `batch_size`, never by the number of
examples in the batch, which is random.  The accountant of `lastiterate.opacus` knows these samplers
and charges for what they drew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sized
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import Sampler

from lastiterate import _check
from lastiterate.errors import InvalidParameter, InvalidType, PrivacyWarning, RefusedTraining, warn
from lastiterate.run.batch_rules.base import BatchRule
from lastiterate.run.batch_rules.drawn import BalancedSampled, BallsAndBinsEachEpoch, PoissonSampled
from lastiterate.train.noise import Randomness, SeededBits, SharedBits


class SecretBatchSampler(Sampler[list[int]]):
    """Batches by a rule, drawn in secret, as lists of indices.

    Parameters
    ----------
    rule : BatchRule
        The rule by which batches are drawn.
    per_pass : int
        How many batches a pass has.
    rank, ranks : int
        This process, counted from 0, and the number of processes.  Each gets its share of every
        batch, and sums of gradients are added up over all of them.
    shared_key : bytes, optional
        32 secret bytes, the same for all ranks and new for every training; needed for more than one
        rank.
    seed : int, optional
        For tests only: whoever knows the seed knows the batches.

    Raises
    ------
    InvalidParameter
        If a number is out of its range, or ranks have no key to agree on.

    Examples
    --------
    >>> from lastiterate import BallsAndBins
    >>> len(SecretBatchSampler(BallsAndBins(100, 10), per_pass=10))
    10
    """

    def __init__(
        self,
        rule: BatchRule,
        per_pass: int,
        *,
        rank: int = 0,
        ranks: int = 1,
        shared_key: bytes | None = None,
        seed: int | None = None,
    ) -> None:
        if rule.exact_size:
            must_be = "one by which every example takes part on its own"
            raise InvalidParameter("rule", rule, must_be=must_be)
        self._rule, self._per_pass = rule, _check.count("per_pass", per_pass, at_least=1)
        self._ranks = _check.count("ranks", ranks, at_least=1)
        self._rank = _check.count("rank", rank, at_least=0, at_most=self._ranks - 1)
        self._randomness = _randomness(self._ranks, shared_key, seed)
        self._selections = rule.selections(self._randomness)
        self._passes = 0

    @property
    def rule(self) -> BatchRule:
        """The rule by which batches are drawn."""
        return self._rule

    @property
    def divisor(self) -> int:
        """The number by which every sum of gradients is to be divided, over all ranks."""
        return self._rule.batch_size

    @property
    def provenance(self) -> str:
        """The source of the random draws, in words."""
        return self._randomness.provenance

    @property
    def passes(self) -> int:
        """The number of passes begun."""
        return self._passes

    @property
    def ranks(self) -> int:
        """The number of processes that share the batches."""
        return self._ranks

    def __len__(self) -> int:
        """The number of batches in a pass."""
        return self._per_pass

    def __iter__(self) -> Iterator[list[int]]:
        """The batches of a new pass; an earlier one that has not ended gives no further batch."""
        # A pass begins with its first batch: loaders with workers make iterators that they drop.
        self._passes += 1
        # Drawn at once, so that ranks agree even if one of them does not finish the pass.
        drawn = list(islice(self._selections, self._per_pass))
        yield from self._batches(self._passes, drawn)

    def _batches(self, number: int, drawn: list[Any]) -> Iterator[list[int]]:
        for batch in drawn:
            if number != self._passes:
                raise RefusedTraining(
                    "a pass continues after a later one has begun, so an example may be twice in "
                    "what counts as one pass",
                    instead="use one iterator at a time",
                )
            yield np.asarray(batch)[self._rank :: self._ranks].tolist()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._rule!r}, {self.provenance!r})"


class BallsAndBinsSampler(SecretBatchSampler):
    """Batches among which every example draws one on its own, anew in every pass.

    An example is in each of the `examples // batch_size` batches of a pass with probability
    batch_size/examples, and in none with the rest of 1.

    Parameters
    ----------
    data_source : Dataset or int
        The examples, or their number.
    batch_size : int
        How many examples a batch has on average; sums of gradients are divided by it.
    **settings
        `rank`, `ranks`, `shared_key` and `seed`, as for `SecretBatchSampler`.

    Raises
    ------
    InvalidParameter
        If a number is out of its range, or ranks have no key to agree on.

    Examples
    --------
    >>> sampler = BallsAndBinsSampler(100, batch_size=25)
    >>> len(sampler), sorted(row for batch in sampler for row in batch) == list(range(100))
    (4, True)
    """

    def __init__(self, data_source: Sized | int, batch_size: int, **settings: Any) -> None:
        rule = BallsAndBinsEachEpoch(_examples(data_source), batch_size)
        super().__init__(rule, rule.batches_per_epoch, **settings)


class BalancedSampler(SecretBatchSampler):
    """Batches in which every example takes part equally often, in steps drawn on its own.

    A pass has `examples // batch_size` batches.  In every `epochs` passes an example is in exactly
    `epochs` batches, any set of so many being equally likely.  Train on every pass: a pass that no
    step uses shifts the training across two draws, which `BalancedSampled` does not describe.

    Parameters
    ----------
    data_source : Dataset or int
        The examples, or their number.
    batch_size : int
        How many examples a batch has on average, where it divides the number of examples; sums of
        gradients are divided by it.
    epochs : int
        The number of passes that are drawn together: best all of the training.
    **settings
        `rank`, `ranks`, `shared_key` and `seed`, as for `SecretBatchSampler`.

    Raises
    ------
    InvalidParameter
        If a number is out of its range, or ranks have no key to agree on.

    Examples
    --------
    >>> from collections import Counter
    >>> sampler = BalancedSampler(100, batch_size=25, epochs=3)
    >>> seen = Counter(row for _ in range(3) for batch in sampler for row in batch)
    >>> len(sampler), set(seen.values())
    (4, {3})
    """

    def __init__(
        self, data_source: Sized | int, batch_size: int, *, epochs: int, **settings: Any
    ) -> None:
        rule = BalancedSampled(_examples(data_source), batch_size, epochs)
        super().__init__(rule, rule.batches_per_epoch, **settings)


class PoissonSampler(SecretBatchSampler):
    """Batches that every example joins with probability batch_size/examples, on its own.

    Parameters
    ----------
    data_source : Dataset or int
        The examples, or their number.
    batch_size : int
        How many examples a batch has on average; sums of gradients are divided by it.
    **settings
        `rank`, `ranks`, `shared_key` and `seed`, as for `SecretBatchSampler`.

    Raises
    ------
    InvalidParameter
        If a number is out of its range, or ranks have no key to agree on.

    Examples
    --------
    >>> sampler = PoissonSampler(100, batch_size=30)
    >>> len(sampler), len(list(sampler))
    (4, 4)
    """

    def __init__(self, data_source: Sized | int, batch_size: int, **settings: Any) -> None:
        rule = PoissonSampled(_examples(data_source), batch_size)
        super().__init__(rule, rule.steps_per_pass, **settings)


SAMPLERS: tuple[type[SecretBatchSampler], ...] = (
    BallsAndBinsSampler,
    BalancedSampler,
    PoissonSampler,
)


def _examples(data_source: Sized | int) -> int:
    if isinstance(data_source, Sized):
        return _check.count("data_source", len(data_source), at_least=1)
    if not isinstance(data_source, int):
        must_be = "a data set whose length is known, or a number of examples"
        raise InvalidType("data_source", must_be=must_be, found=type(data_source).__name__)
    return _check.count("data_source", data_source, at_least=1)


def _randomness(ranks: int, shared_key: bytes | None, seed: int | None) -> Randomness:
    if ranks == 1 and _processes() > 1:
        must_be = f"{_processes()}, the size of the process group, with a shared_key"
        raise InvalidParameter("ranks", ranks, must_be=must_be)
    if seed is not None:
        warn(
            "batches are drawn from a seed, for tests: amplification does not hold against "
            "someone who knows it",
            PrivacyWarning,
        )
        return Randomness(SeededBits(seed))
    if shared_key is not None:
        return Randomness(SharedBits(shared_key))
    if ranks > 1:
        must_be = "32 secret bytes, the same for all ranks: they must agree on every batch"
        raise InvalidParameter("shared_key", None, must_be=must_be)
    return Randomness()


def _processes() -> int:
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return 1
    return int(distributed.get_world_size())
