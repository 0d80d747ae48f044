"""Examples spread over the shards of a cluster, in the form that a training takes them.

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

**One actor for each shard** is called with one message, all of them at once.  A lost shard is
rebuilt from its graph, on the worker with the fewest shards, arranged as before, and called again.
Nothing is ever scattered, so everything lost can be computed again; if it cannot, the training ends
and releases nothing.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import uuid4

import numpy as np
from distributed import Client, Future, get_client
from distributed.client import FutureCancelledError
from numpy.typing import NDArray

from lastiterate._numerics.rounding import Array
from lastiterate.dask.shards import Blocks, Encode, Failure, RowSelection, Shard, ShardPlan, Survey
from lastiterate.errors import InvalidParameter, InvalidType, LastIterateError
from lastiterate.run.batch_rules.base import BatchRule
from lastiterate.train.centring import Centre
from lastiterate.train.data import PROVED, GradientSum
from lastiterate.train.noise import Order, Randomness
from lastiterate.train.noisy_descent import order_and_selections
from lastiterate.train.objectives import Objective
from lastiterate.train.rows import RowIndex

MOST_ORDERED = 5_000_000  # examples, so that drawing an order takes at most 120 MB here
_SLACK = 1.0 + 1e-3  # products of float32 are rounded
_LOOK_SECONDS = 2.0  # seconds between checks of a shard that does not answer
_WAIT_FOR_ALL = 5.0  # seconds to wait for as many workers as before
_WAIT_FOR_ANY = 120.0  # seconds to wait for one worker
_MAX_TRIES = 5  # to rebuild a shard before giving up
_NONE = object()
Question = tuple[Any, ...]
RowBlocks = Sequence[tuple[Any, Any]]
_CONNECTED = "connected to a scheduler: create another, dask.distributed.Client(..)"
_ENCRYPTED = ("tls", "wss", "inproc")  # or never on a network


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
        """The number of rows of a span that each shard has."""
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
        """The number of parameters of one output."""
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
        """The numbers of rows that are far longer than the bound, and far shorter."""
        return self.survey.long, self.survey.short

    def batches(
        self, rule: BatchRule, objective: Objective, chance: Randomness
    ) -> Iterator[GradientSum]:
        """The gradient sums of the batches of the rule, each from all shards at once."""
        in_blocks = self.is_mapped and rule.ordered
        order, selections = order_and_selections(rule, len(self), chance, in_blocks=in_blocks)
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
        by_shard: Callable[[RowIndex], tuple[list[RowSelection], NDArray[np.intp]]],
        chosen: RowIndex,
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
        self, chosen: RowIndex, *, owners: NDArray[np.uint16] | None
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


class ClusterFailure(LastIterateError, RuntimeError):
    """Rows or workers were lost and could not be replaced; nothing was released.

    Parameters
    ----------
    what : str
        What was lost.

    Examples
    --------
    >>> print(ClusterFailure("no worker came back"))
    no worker came back; nothing was released.
    """

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; nothing was released.")


class _ShardLost(Exception):
    """The worker of a shard is gone."""


class _Direct:
    """A client that connects actors to their workers directly."""

    direct_to_workers = True

    def __init__(self, client: Client) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


class ShardActors:
    """The actors of all shards of a training."""

    def __init__(
        self,
        client: Client,
        plans: Sequence[ShardPlan],
        blocks: Callable[[int], RowBlocks] | None,
        *,
        allow_insecure: bool,
    ) -> None:
        self._client, self._plans, self._blocks = client, plans, blocks
        self._allow_insecure = allow_insecure
        self._layout: Callable[[int], Question] | None = None
        self._where: dict[int, str] = {}
        self._actors: dict[int, Any] = {}
        self._futures: dict[int, Future] = {}
        self.rebuilt = 0
        weakref.finalize(self, _release, self._actors, self._futures)
        begun: list[tuple[Future, list[Future]] | None] = []
        for shard in range(len(plans)):
            try:
                begun.append(self._start_actor(shard))
            except (_ShardLost, OSError):  # no worker is there at this moment
                begun.append(None)
        for shard, parts in enumerate(begun):
            try:
                if parts is None:
                    raise _ShardLost
                self._finish(shard, parts)
            except _ShardLost:
                self._rebuild(shard)

    def arrange_rows(self, layout: Callable[[int], Question]) -> None:
        """Arrange the rows of every shard; shards that are rebuilt are arranged again."""
        self._layout = layout
        self.ask("arrange", [layout(shard) for shard in range(len(self._plans))])

    def ask(self, method: str, questions: Sequence[Question | None]) -> list[Any]:
        """The answers of all shards, in order; None for a shard without a question."""
        sent = [
            None if question is None else self._send(shard, method, question)
            for shard, question in enumerate(questions)
        ]
        answers: dict[int, Any] = {}
        calls = {shard: call for shard, call in enumerate(sent) if call is not None}
        # One wait for all; shards that are late or lost follow one by one.
        with suppress(Exception):
            found = self._client.sync(
                _gather_all, list(calls.values()), callback_timeout=_LOOK_SECONDS
            )
            answers = dict(zip(calls, found, strict=True))
        for shard, question in enumerate(questions):
            answer = answers.get(shard, _NONE)
            if question is not None and (answer is _NONE or isinstance(answer, Exception)):
                answers[shard] = self._await_answer(shard, method, question, sent[shard])
        for answer in answers.values():
            if isinstance(answer, Failure):
                raise answer.raised()
        return [answers.get(shard) for shard in range(len(questions))]

    def _send(self, shard: int, method: str, question: Question) -> Any:
        try:
            return getattr(self._actors[shard], method)(*question)
        except Exception:  # the shard cannot be reached
            return None

    def _await_answer(self, shard: int, method: str, question: Question, call: Any) -> Any:
        for _ in range(_MAX_TRIES):
            try:
                return self._await_reply(shard, call)
            except _ShardLost:
                self._rebuild(shard)
                call = self._send(shard, method, question)
        raise ClusterFailure(f"a shard was lost {_MAX_TRIES} times in one step")

    def _await_reply(self, shard: int, call: Any) -> Any:
        if call is None:
            raise _ShardLost
        while True:
            try:
                return call.result(timeout=_LOOK_SECONDS)
            except TimeoutError:
                if not self._is_there(shard):
                    raise _ShardLost from None
            except Exception:  # shards raise nothing: it is the connection, or the worker
                raise _ShardLost from None

    def _is_there(self, shard: int) -> bool:
        if self._futures[shard].status != "finished":
            return False
        try:
            return self._where[shard] in workers_of(self._client)
        except OSError:
            return False

    def _rebuild(self, shard: int) -> None:
        self.rebuilt += 1
        for _ in range(_MAX_TRIES):
            try:
                self._wait_for_workers()
                self._finish(shard, self._start_actor(shard))
                if self._layout is not None:
                    call = self._send(shard, "arrange", self._layout(shard))
                    if isinstance(failure := self._await_reply(shard, call), Failure):
                        raise failure.raised()
                return
            except (_ShardLost, OSError):
                time.sleep(0.1)
        raise ClusterFailure("a shard could not be rebuilt")

    def _wait_for_workers(self) -> None:
        """Wait for as many workers as before, and after a while for any."""
        wanted, begun = len(set(self._where.values())) or 1, time.monotonic()
        while True:
            try:
                found = len(workers_of(self._client))
            except OSError:
                found = 0
            waited = time.monotonic() - begun
            if found >= wanted or (found and waited > _WAIT_FOR_ALL):
                return
            if waited > _WAIT_FOR_ANY:
                raise ClusterFailure("no worker came back")
            time.sleep(0.1)

    def _start_actor(self, shard: int) -> tuple[Future, list[Future]]:
        """A future of a new actor, and the futures of its blocks."""
        address = self._assign_worker(shard)
        blocks: list[Future] = []
        pairs = None
        if self._blocks is not None:
            flat = [one for pair in self._blocks(shard) for one in pair]
            blocks = self._client.compute(flat, workers=[address], allow_other_workers=True)
            pairs = list(zip(blocks[::2], blocks[1::2], strict=True))
        actor = self._client.submit(
            Shard,
            self._plans[shard],
            pairs,
            actor=True,
            workers=[address],
            pure=False,
            key=f"lastiterate-shard-{uuid4().hex}",
        )
        return actor, blocks

    def _finish(self, shard: int, begun: tuple[Future, list[Future]]) -> None:
        future, blocks = begun
        while True:
            try:
                actor = future.result(timeout=_LOOK_SECONDS)
                self._shorten(actor, self._where[shard])
                self._actors[shard], self._futures[shard] = actor, future
                return
            except TimeoutError:
                if self._where[shard] not in workers_of(self._client):
                    raise _ShardLost from None
                continue
            except FutureCancelledError:
                raise _ShardLost from None
            except Exception as error:
                why = _error_text(error)
            failed = [k for k, one in enumerate(blocks) if one.status == "error"]
            if failed:
                number = self._plans[shard].chunks[failed[0] // 2]
                raise ClusterFailure(f"chunk {number} could not be computed ({why})")
            raise _ShardLost

    def _shorten(self, actor: Any, address: str) -> None:
        """Connect to the worker directly if it can be reached, else through the scheduler.

        The latter, Dask's default without `direct_to_workers=True`, takes three times as many
        messages.
        """
        with suppress(Exception):
            self._client.sync(self._client.rpc(address).identity, callback_timeout=_LOOK_SECONDS)
            actor._client = _Direct(self._client)

    def _assign_worker(self, shard: int) -> str:
        """The address of the worker with the fewest other shards, which gets this shard."""
        workers = sorted(workers_of(self._client))
        if not self._allow_insecure:
            workers = [one for one in workers if is_secure(one)]
        if not workers:
            raise _ShardLost
        others = Counter(where for one, where in self._where.items() if one != shard)
        found = min(workers, key=lambda one: (others[one], workers.index(one)))
        self._where[shard] = found
        return found


async def _gather_all(calls: Sequence[Any]) -> list[Any]:
    return await asyncio.gather(*calls, return_exceptions=True)


def _error_text(error: Exception) -> str:
    """The text of this package's errors, which hold no data; of any other error, its type alone."""
    return str(error) if isinstance(error, LastIterateError) else f"a {type(error).__name__}"


def _release(actors: dict[int, Any], futures: dict[int, Future]) -> None:
    """Free the rows on workers now, not at the next garbage collection."""
    for shard, future in futures.items():
        held = actors[shard]._future
        for one in (future, held):
            if one is not None:
                one.release()


def checked_client(client: Any, *, allow_insecure: bool) -> Client:
    """The given or current client; raises unless its connections are encrypted or local."""
    if client is None:
        try:
            client = get_client()
        except ValueError:
            must_be = "given, or created before: dask.distributed.Client(..)"
            raise InvalidParameter("client", must_be=must_be, found="none") from None
    if not isinstance(client, Client):
        must_be = "a dask.distributed.Client, as in Client(address)"
        raise InvalidType("client", must_be=must_be, found=f"a {type(client).__name__}")
    if client.asynchronous:
        must_be = "synchronous: fit waits for the cluster"
        raise InvalidParameter("client", must_be=must_be, found="asynchronous=True")
    if client.status != "running":
        found = f"one that is {client.status}"
        raise InvalidParameter("client", must_be=_CONNECTED, found=found)
    try:
        addresses = (client.scheduler.address, *workers_of(client))
    except OSError:
        found = "one whose scheduler does not answer"
        raise InvalidParameter("client", must_be=_CONNECTED, found=found) from None
    if not allow_insecure:
        for address in addresses:
            if not is_secure(address):
                must_be = (
                    "of a cluster with TLS, or on this machine: rows and iterates would cross a "
                    "network unencrypted (allow_insecure=True permits that)"
                )
                raise InvalidParameter("client", must_be=must_be, found=address)
    return client


def is_secure(address: str) -> bool:
    """Whether data sent to this address are encrypted or stay on this machine."""
    return address.partition("://")[0] in _ENCRYPTED or is_on_this_machine(address)


def is_on_this_machine(address: str) -> bool:
    """Whether data sent to this address stay on this machine."""
    protocol, _, rest = address.partition("://")
    if protocol == "inproc":
        return True
    host = rest.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def workers_of(client: Client) -> dict[str, dict[str, Any]]:
    """The scheduler's record of each worker, by address; raises OSError if it does not answer."""
    try:
        return dict(client.scheduler_info(n_workers=-1)["workers"])
    except (AttributeError, KeyError):  # of a client that has lost its scheduler
        raise OSError("the scheduler does not answer") from None
