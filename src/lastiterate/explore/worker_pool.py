"""A pool of worker processes: superseded questions are stopped, hung processes replaced."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

OUT_OF_MEMORY = 507  # of a worker, whose memory is then given back by ending it
_LONGEST_LINE = 2**25
# A new process takes longer to start than many answers take.
_LIMIT_SECONDS, _GRACE_SECONDS = 60.0, 1.0
_MEMORY = 2**32  # bytes of each process; the largest of usual questions take a tenth of that
_MOST_WAITING, _MOST_BYTES = 1_000, 2**26
_AT_ONCE = getattr(signal, "SIGKILL", signal.SIGTERM)  # the latter is as sudden on Windows


class NotComputed(Exception):
    """There is no answer, for a reason that is not the question's."""

    def __init__(self, status: int, message: str) -> None:
        self.status, self.message = status, message
        super().__init__(message)


class Superseded(NotComputed):
    """An error for a question that a later one of the same kind from the same client replaced."""

    def __init__(self) -> None:
        super().__init__(409, "superseded by a later question")


@dataclass(eq=False)
class _Job:
    number: int
    line: bytes
    lane: str | None
    urgent: bool
    answer: asyncio.Future[tuple[int, Any]]
    process: Process | None = None
    progress: tuple[str, float | None] = ("waiting", None)


@dataclass(eq=False)
class WorkerPool:
    """Answers questions in `count` processes; a question supersedes earlier ones of its lane.

    One process is kept for urgent questions, so that these need not wait for long ones.
    """

    count: int = 3
    limit: float = _LIMIT_SECONDS
    grace: float = _GRACE_SECONDS
    memory: int = _MEMORY
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _idle: list[Process] = field(default_factory=list)
    _busy: dict[asyncio.Task[None], Process] = field(default_factory=dict)
    _waiting: list[_Job] = field(default_factory=list)
    _lanes: dict[str, _Job] = field(default_factory=dict)

    async def start(self) -> None:
        """Start the processes, which load the library meanwhile."""
        while len(self._idle) < self.count:
            self._idle.append(await _process(self.memory))

    async def stop(self) -> None:
        """End the processes."""
        busy = dict(self._busy)
        for task in busy:
            task.cancel()
        await asyncio.gather(*busy, return_exceptions=True)
        # A task that was cancelled before it began has ended no process.
        for process in [*busy.values(), *self._idle]:
            await _end(process)
        self._idle.clear()

    @property
    def processes(self) -> list[int]:
        """The process ids of idle workers."""
        return [process.pid for process in self._idle]

    def progress(self, lane: str) -> tuple[str, float | None] | None:
        """The task under way for a lane, and the share that is done; None where there is none."""
        job = self._lanes.get(lane)
        return None if job is None else job.progress

    async def ask(
        self,
        question: str,
        record: Mapping[str, Any],
        *,
        lane: str | None = None,
        urgent: bool = False,
    ) -> tuple[int, Any]:
        """Status and answer; `NotComputed` if there is none."""
        if lane is not None and lane in self._lanes:
            self._supersede(self._lanes.pop(lane))
        number = next(self._numbers)
        line = json.dumps([number, question, record]).encode() + b"\n"
        held = len(line) + sum(len(job.line) for job in self._waiting)
        if len(self._waiting) >= _MOST_WAITING or held > _MOST_BYTES:
            raise NotComputed(503, "too many questions wait already; try again")
        job = _Job(number, line, lane, urgent, asyncio.get_running_loop().create_future())
        self._waiting.append(job)
        if lane is not None:
            self._lanes[lane] = job
        self._hand_out()
        try:
            return await job.answer
        finally:
            if lane is not None and self._lanes.get(lane) is job:
                del self._lanes[lane]

    def cancel(self, prefix: str, *, but: str | None = None) -> None:
        """Cancel the questions of all lanes that begin with `prefix`, but not with `but`."""
        for lane in [lane for lane in self._lanes if lane.startswith(prefix)]:
            if but is None or not lane.startswith(but):
                self._supersede(self._lanes.pop(lane))

    def _supersede(self, job: _Job) -> None:
        if not job.answer.done():
            job.answer.set_exception(Superseded())
        if job in self._waiting:
            self._waiting.remove(job)
        elif job.process is not None:
            _tell_to_stop(job.process, job.number)
            asyncio.get_running_loop().call_later(self.grace, self._stop, job, job.process)

    def _stop(self, job: _Job, process: Process) -> None:
        if job.process is process:
            _kill(process)

    def _hand_out(self) -> None:
        while self._idle and (job := self._next()) is not None:
            self._waiting.remove(job)
            job.process = process = self._idle.pop()
            task = asyncio.get_running_loop().create_task(self._carry_out(job, process))
            self._busy[task] = process
            task.add_done_callback(self._busy.pop)

    def _next(self) -> _Job | None:
        urgent = next((job for job in self._waiting if job.urgent), None)
        if urgent is not None or len(self._idle) < min(2, self.count):
            return urgent
        return self._waiting[0] if self._waiting else None

    async def _carry_out(self, job: _Job, process: Process) -> None:
        try:
            answered = await self._outcome(job, process)
        except asyncio.CancelledError:
            await _end(process)
            _settle(job, NotComputed(503, "the server is stopping"))
            raise
        job.process = None
        _settle(job, answered)
        if isinstance(answered, NotComputed):
            await _end(process)
            process = await _process(self.memory)
        self._idle.append(process)
        self._hand_out()

    async def _outcome(self, job: _Job, process: Process) -> tuple[int, Any] | NotComputed:
        """Status and answer of the process; `NotComputed` if it must not be used again."""
        try:
            async with asyncio.timeout(self.limit):
                status, answer = await _reply(process, job)
        except TimeoutError:
            said = f"it took longer than {self.limit:g} seconds; `lastiterate account` has no limit"
            return NotComputed(503, said)
        except (OSError, EOFError, ValueError):
            return NotComputed(503, "the process that computed it ended; try again")
        if status == OUT_OF_MEMORY:
            said = f"it needs more than {self.memory / 2**30:.3g} GiB of memory"
            return NotComputed(503, f"{said}; `lastiterate account` has no limit")
        return status, answer


async def _process(memory: int) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "lastiterate.explore.worker_process",
        str(memory),
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        limit=_LONGEST_LINE,
        start_new_session=True,  # Ctrl-C is for the server
    )


def _tell_to_stop(process: Process, number: int) -> None:
    if process.stdin is not None and not process.stdin.is_closing():
        process.stdin.write(json.dumps([number, None, None]).encode() + b"\n")


def _kill(process: Process) -> None:
    """Kill by id: `process.kill` would take the return code from the loop, which warns."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, _AT_ONCE)


async def _end(process: Process) -> None:
    _kill(process)
    await process.wait()


async def _reply(process: Process, job: _Job) -> tuple[int, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(job.line)
    await process.stdin.drain()
    while line := await process.stdout.readline():
        kind, *said = json.loads(line)
        if kind == "answer":
            return said[0], said[1]
        job.progress = said[0], said[1]
    raise EOFError


def _settle(job: _Job, outcome: tuple[int, Any] | NotComputed) -> None:
    if job.answer.done():
        return
    if isinstance(outcome, NotComputed):
        job.answer.set_exception(outcome)
    else:
        job.answer.set_result(outcome)
