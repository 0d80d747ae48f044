"""One actor for each shard: called all at once, one message each, and rebuilt if it is lost.

A lost shard is rebuilt from its graph, on the worker with the fewest shards, arranged as before,
and called again.  Nothing is ever scattered, so everything lost can be computed again; if it
cannot, the training ends and releases nothing.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from uuid import uuid4

from distributed import Client, Future
from distributed.client import FutureCancelledError

from lastiterate.dask.cluster_security import is_secure, workers_of
from lastiterate.dask.shard import Failure, Shard, ShardPlan
from lastiterate.errors import LastIterateError

_LOOK = 2.0  # seconds between checks of a shard that does not answer
_FOR_ALL = 5.0  # seconds to wait for as many workers as before
_FOR_ANY = 120.0  # seconds to wait for one worker
_TRIES = 5  # to rebuild a shard before giving up

_NONE = object()

Question = tuple[Any, ...]
Blocks = Sequence[tuple[Any, Any]]


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
        blocks: Callable[[int], Blocks] | None,
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
            None if question is None else self._sent(shard, method, question)
            for shard, question in enumerate(questions)
        ]
        answers: dict[int, Any] = {}
        calls = {shard: call for shard, call in enumerate(sent) if call is not None}
        # One wait for all; shards that are late or lost follow one by one.
        with suppress(Exception):
            found = self._client.sync(_all, list(calls.values()), callback_timeout=_LOOK)
            answers = dict(zip(calls, found, strict=True))
        for shard, question in enumerate(questions):
            answer = answers.get(shard, _NONE)
            if question is not None and (answer is _NONE or isinstance(answer, Exception)):
                answers[shard] = self._answered(shard, method, question, sent[shard])
        for answer in answers.values():
            if isinstance(answer, Failure):
                raise answer.raised()
        return [answers.get(shard) for shard in range(len(questions))]

    def _sent(self, shard: int, method: str, question: Question) -> Any:
        try:
            return getattr(self._actors[shard], method)(*question)
        except Exception:  # the shard cannot be reached
            return None

    def _answered(self, shard: int, method: str, question: Question, call: Any) -> Any:
        for _ in range(_TRIES):
            try:
                return self._heard(shard, call)
            except _ShardLost:
                self._rebuild(shard)
                call = self._sent(shard, method, question)
        raise ClusterFailure(f"a shard was lost {_TRIES} times in one step")

    def _heard(self, shard: int, call: Any) -> Any:
        if call is None:
            raise _ShardLost
        while True:
            try:
                return call.result(timeout=_LOOK)
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
        for _ in range(_TRIES):
            try:
                self._wait_for_workers()
                self._finish(shard, self._start_actor(shard))
                if self._layout is not None:
                    call = self._sent(shard, "arrange", self._layout(shard))
                    if isinstance(failure := self._heard(shard, call), Failure):
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
            if found >= wanted or (found and waited > _FOR_ALL):
                return
            if waited > _FOR_ANY:
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
                actor = future.result(timeout=_LOOK)
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
            self._client.sync(self._client.rpc(address).identity, callback_timeout=_LOOK)
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


async def _all(calls: Sequence[Any]) -> list[Any]:
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
