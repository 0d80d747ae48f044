r"""Examples spread over the shards of a cluster, in the form that a training takes them.

Chunk c is on shard c mod W.  So a batch of at least W consecutive chunks, and every batch of
examples drawn at random, has a part on each shard.

**The driver draws the batches**, by the same code and from the same stream of random words as for
rows in memory: `rule.arrangement` and `rule.selections` see only the number of examples.  A shard
receives the positions of its rows, or the numbers of its rows in a step.  So the arrangement is
that of the rule itself, uniform over single examples for shuffled rules, however rows are spread:
the number of examples of a batch on one shard varies, and only the sum is the batch size.  (Slices
of a fixed size from each shard would be a different rule: two examples on different shards could
not exchange positions, which bounds for secret positions need.)  `batch_size` and `examples` are
checked against the rule as for rows in memory.

An order of more than `MOST_ORDERED` examples is not held.  Then, and where workers cannot hold
their rows, batches are blocks of consecutive rows, and the batch rules for blocks account for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from distributed import Client
from numpy.typing import NDArray

from lastiterate._numerics.rounding import Array
from lastiterate.dask.blocks import Blocks
from lastiterate.dask.cluster_security import workers_of
from lastiterate.dask.shard import Encode, RowSelection, ShardPlan, Survey
from lastiterate.dask.shard_actors import ClusterFailure, ShardActors
from lastiterate.run.batch_rules.rules import BatchRule
from lastiterate.train.batching import drawn
from lastiterate.train.centring import Centre
from lastiterate.train.data import PROVED
from lastiterate.train.noise import Order, Randomness
from lastiterate.train.objectives import Objective
from lastiterate.train.rows import Selection
from lastiterate.train.shards import GradientSum

MOST_ORDERED = 5_000_000  # examples, so that drawing an order takes at most 120 MB here
_SLACK = 1.0 + 1e-3  # products of float32 are rounded


class Layout:
    """Which rows are on which shard."""

    def __init__(self, lengths: Sequence[int], shards: int) -> None:
        self.lengths = np.array(lengths, dtype=np.intp)
        self.shards = min(shards, self.lengths.size)
        self.starts = np.cumsum(self.lengths) - self.lengths
        self.owners = np.arange(self.lengths.size) % self.shards
        self._local = np.zeros_like(self.starts)
        for shard in range(self.shards):
            own = self.chunks(shard)
            self._local[own] = np.cumsum(self.lengths[own]) - self.lengths[own]

    @property
    def examples(self) -> int:
        return int(self.lengths.sum())

    def chunks(self, shard: int) -> NDArray[np.intp]:
        """The numbers of the chunks that a shard has."""
        return np.flatnonzero(self.owners == shard)

    def owner_of_rows(self) -> NDArray[np.uint16]:
        """The shard of each row."""
        return np.repeat(self.owners.astype(np.uint16), self.lengths)

    def of_shard(self, shard: int, of_rows: NDArray[Any]) -> NDArray[Any]:
        """The entries of `of_rows` for the rows of a shard, in the order of the shard."""
        ends = self.starts + self.lengths
        return np.concatenate([of_rows[self.starts[c] : ends[c]] for c in self.chunks(shard)])

    def located(self, rows: Order) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The shard of each of these rows, and which of its rows it is."""
        chunk = np.searchsorted(self.starts, rows, side="right") - 1
        return self.owners[chunk], rows - self.starts[chunk] + self._local[chunk]

    def counts_between(self, first: int, last: int) -> NDArray[np.intp]:
        """How many rows of a span each shard has."""
        ends = np.minimum(self.starts + self.lengths, last)
        inside = np.maximum(ends - np.maximum(self.starts, first), 0)
        return np.bincount(self.owners, inside, self.shards).astype(np.intp)


@dataclass(frozen=True, eq=False)
class ClusterShards:
    """Examples on a cluster; only sums leave the workers.  See `train.shards.Shards`."""

    actors: ShardActors
    layout: Layout
    survey: Survey
    features: int
    precision: str
    feature_bound: float
    intercept: float
    streamed: bool
    is_sparse: bool
    offset: Array | None = None
    centre: Centre | None = None

    def __len__(self) -> int:
        return self.layout.examples

    @property
    def parameters(self) -> int:
        """How many parameters one output has."""
        return self.features + (self.intercept > 0.0)

    @property
    def radius(self) -> float:
        """A bound on the norms of rows, the constant of the intercept included."""
        return math.hypot(self.feature_bound, self.intercept)

    @property
    def is_mapped(self) -> bool:
        """Whether batches can only be blocks of consecutive rows."""
        return self.streamed or len(self) > MOST_ORDERED

    def around(self, centre: Centre) -> ClusterShards:
        """A copy of these shards with the examples centred."""
        return replace(self, centre=centre)

    def in_units(self) -> NDArray[np.int64]:
        """The exact sum from which their centre is published."""
        return self.survey.in_units

    def far_rows(self) -> tuple[int, int]:
        """How many are far longer than the bound, and far shorter."""
        return self.survey.long, self.survey.short

    def batches(
        self, rule: BatchRule, objective: Objective, chance: Randomness
    ) -> Iterator[GradientSum]:
        """The gradient sums of the batches of the rule, each from all shards at once."""
        in_blocks = self.is_mapped and rule.ordered
        order, selections = drawn(rule, len(self), chance, in_blocks=in_blocks)
        positions = owners = None
        if order is not None:
            owners = self.layout.owner_of_rows()[order]
            positions = np.full(len(self), -1, dtype=np.intp)
            positions[order] = np.arange(order.size)
        del order

        # Which must not know this object: then all on the workers is freed with it, at once.
        layout, centre = self.layout, self.centre

        def laid_out(shard: int) -> tuple[Any, ...]:
            own = None if positions is None else layout.of_shard(shard, positions)
            return objective, centre, own

        self.actors.arrange_rows(laid_out)
        by_shard = partial(self._selections, owners=owners)
        return (partial(self._gradient, objective, by_shard, chosen) for chosen in selections)

    def _gradient(
        self,
        objective: Objective,
        by_shard: Callable[[Selection], tuple[list[RowSelection], NDArray[np.intp]]],
        chosen: Selection,
        parameters: Array,
    ) -> Array:
        chosen_there, counts = by_shard(chosen)
        questions = [
            (parameters, there) if count else None
            for there, count in zip(chosen_there, counts, strict=True)
        ]
        longest = objective.gradient_bound(radius=self.radius)
        longest += objective.residual_error * self.radius
        total = np.zeros_like(parameters)
        for answer, count in zip(self.actors.ask("gradient", questions), counts, strict=True):
            if count:
                # Not so long if the worker does what it should; written so that nan is refused.
                if not np.linalg.norm(answer) <= count * longest * _SLACK:
                    raise ClusterFailure("a worker returned a gradient longer than its rows allow")
                total += answer
        return total

    def _selections(
        self, chosen: Selection, *, owners: NDArray[np.uint16] | None
    ) -> tuple[list[RowSelection], NDArray[np.intp]]:
        """The selection to send to each shard, and its number of examples."""
        shards = self.layout.shards
        if not isinstance(chosen, slice):
            owner, local = self.layout.located(chosen)
            return [local[owner == s] for s in range(shards)], np.bincount(owner, minlength=shards)
        limit = len(self) if owners is None else owners.size
        first, last, _ = chosen.indices(limit)
        if owners is None:
            counts = self.layout.counts_between(first, last)
        else:
            counts = np.bincount(owners[first:last], minlength=shards)
        return [(first, last)] * shards, counts


def shard_blocks(
    client: Client,
    blocks: Blocks,
    encode: Encode,
    *,
    bound: float,
    intercept: float,
    offset: Array | None = None,
    held: bool = True,
    allow_insecure: bool = False,
    arithmetic: str = PROVED,
) -> ClusterShards:
    """The blocks, spread over the workers that there are now, checked and looked through once."""
    layout = Layout(blocks.lengths, len(workers_of(client)))
    plans = [
        ShardPlan(
            chunks=chunks.tolist(),
            starts=layout.starts[chunks].tolist(),
            lengths=layout.lengths[chunks].tolist(),
            features=blocks.features,
            precision=str(blocks.dtype),
            is_sparse=not blocks.dense,
            arithmetic=arithmetic,
            encode=encode,
            bound=bound,
            intercept=intercept,
            offset=offset,
            sources=None if held else blocks.sources(chunks),
        )
        for chunks in map(layout.chunks, range(layout.shards))
    ]
    read = (lambda shard: blocks.pairs(layout.chunks(shard))) if held else None
    actors = ShardActors(client, plans, read, allow_insecure=allow_insecure)
    first, *others = actors.ask("survey", [()] * layout.shards)
    return ClusterShards(
        actors,
        layout,
        sum(others, first),
        blocks.features,
        "float64" if arithmetic == PROVED else str(blocks.dtype),
        bound,
        intercept,
        streamed=not held,
        is_sparse=not blocks.dense,
        offset=offset,
    )
