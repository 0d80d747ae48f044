"""Processes that compute are replaced when they end, and stop when nobody waits."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from lastiterate.explore.server import PRESETS
from lastiterate.explore.worker_pool import NotComputed, Superseded, WorkerPool

QUICK = {"run": PRESETS["Million-row logistic"]}
ON_LINUX = pytest.mark.skipif(sys.platform != "linux", reason="not enforced elsewhere")
LONG = {"run": PRESETS["Head on embeddings"], "over": "epochs"}  # seconds


def within(workers, scenario):
    async def whole():
        await workers.start()
        try:
            return await scenario(workers)
        finally:
            await workers.stop()

    return asyncio.run(whole())


async def begun(workers, lane):
    """A long question that is being computed, and what is said of it."""
    long = asyncio.create_task(workers.ask("curve", LONG, lane=lane, urgent=True))
    while workers.progress(lane) in (None, ("waiting", None)):
        await asyncio.sleep(0.01)
    return long, workers.progress(lane)


async def is_answered(workers, **more):
    status, told = await workers.ask("code", QUICK, urgent=True, **more)
    assert told["toml"]
    return status == 200


async def is_superseded(long):
    with pytest.raises(Superseded):
        await long


async def asked_quickly(workers, *lanes):
    tasks = [
        asyncio.create_task(workers.ask("code", QUICK, lane=lane, urgent=True)) for lane in lanes
    ]
    await asyncio.sleep(0)
    return tasks


def test_what_is_told_to_stop_keeps_its_process():
    """Since another takes longer to start than many answers take."""

    async def scenario(workers):
        assert await is_answered(workers)  # loaded
        before = workers.processes
        long, _ = await begun(workers, "one/curve")
        workers.cancel("one/")
        await is_superseded(long)
        assert await is_answered(workers)
        assert workers.processes == before
        # A page that begins anew is not waited for; its drafts are kept, and so are others.
        waiting = await asked_quickly(workers, "one/a", "one/b", "two/a")
        workers.cancel("one/")
        told = await asyncio.gather(*waiting, return_exceptions=True)
        assert [isinstance(one, Superseded) for one in told] == [True, True, False]
        assert told[2][0] == 200
        waiting = await asked_quickly(workers, "one/curve", "one/draft")
        workers.cancel("one/", but="one/draft")
        other, draft = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(other, Superseded)
        assert draft[0] == 200

    within(WorkerPool(count=1, grace=60.0), scenario)


def test_what_does_not_stop_or_was_killed_is_replaced():
    async def scenario(workers):
        assert await is_answered(workers)
        before = workers.processes
        os.kill(before[0], signal.SIGSTOP)  # does not hear that it should
        long = asyncio.create_task(workers.ask("curve", LONG, lane="one/curve", urgent=True))
        await asyncio.sleep(0)
        workers.cancel("one/")
        await is_superseded(long)
        assert await is_answered(workers)
        between = workers.processes
        assert between != before
        os.kill(between[0], signal.SIGKILL)
        with pytest.raises(NotComputed, match="ended"):
            await workers.ask("code", QUICK, urgent=True)
        assert await is_answered(workers)
        assert len(workers.processes) == 1
        assert workers.processes != between

    within(WorkerPool(count=1, grace=0.05), scenario)


def test_a_superseded_question_stops_and_the_next_is_answered():
    async def scenario(workers):
        assert await is_answered(workers)  # loaded
        long, told = await begun(workers, "one/curve")
        assert told[0] == "drawing"
        assert await is_answered(workers, lane="one/curve")
        await is_superseded(long)

    within(WorkerPool(count=1, grace=0.0), scenario)


def test_what_takes_too_long_is_given_up_and_more_than_can_wait_are_refused():
    async def scenario(workers):
        with pytest.raises(NotComputed, match=r"longer than 0\.01 seconds"):
            await workers.ask("curve", LONG, urgent=True)
        workers.limit = 60.0
        large = {"certificate": "x" * 2**20}
        waiting = [asyncio.create_task(workers.ask("verify", large)) for _ in range(70)]
        await asyncio.sleep(0)
        refused = [task for task in waiting if task.done()]
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert 1 < len(refused) < 10
        assert all(task.exception().status == 503 for task in refused)
        assert await is_answered(workers)

    within(WorkerPool(count=1, limit=0.01), scenario)


def test_long_questions_leave_a_process_to_urgent_ones():
    async def scenario(workers):
        long = [asyncio.create_task(workers.ask("curve", LONG, lane=f"x/{i}")) for i in range(3)]
        await asyncio.sleep(0)
        assert len(workers.processes) == 1
        assert await is_answered(workers)
        assert [task for task in long if not task.done()]
        workers.cancel("x/")
        await asyncio.gather(*long, return_exceptions=True)

    within(WorkerPool(count=2, grace=0.0), scenario)


@ON_LINUX
@pytest.mark.slow
def test_what_needs_too_much_memory_is_told_so_and_its_process_replaced():
    batches = {"batches": "shuffled-once", "examples": 50_000_000, "batch_size": 1, "epochs": 1}
    huge = {"run": PRESETS["Million-row logistic"] | batches}

    async def scenario(workers):
        before = workers.processes
        with pytest.raises(NotComputed, match=r"needs more than 0\.5 GiB of memory") as refused:
            await workers.ask("account", huge, urgent=True)
        assert refused.value.status == 503
        assert await is_answered(workers)
        assert workers.processes != before

    within(WorkerPool(count=1, memory=2**29), scenario)


@ON_LINUX
def test_allocations_beyond_the_limit_fail():
    code = """
import numpy as np
from lastiterate.explore.worker_process import limit_memory
limit_memory({most})
kept = np.empty({most} // 16)
print("half")
np.empty({most} // 6)
"""
    found = subprocess.run(
        [sys.executable, "-c", code.format(most=2**30)], capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stdout) == (1, "half\n")
    assert "MemoryError" in found.stderr
    assert WorkerPool().memory == 2**32
