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


def test_a_process_that_was_killed_is_replaced():
    async def scenario(workers):
        before = workers.processes
        os.kill(before[0], signal.SIGKILL)
        with pytest.raises(NotComputed, match="ended"):
            await workers.ask("code", QUICK, urgent=True)
        status, told = await workers.ask("code", QUICK, urgent=True)
        return status, told, before, workers.processes

    status, told, before, after = within(WorkerPool(count=1), scenario)
    assert status == 200
    assert told["toml"]
    assert len(after) == 1
    assert after != before


def test_a_superseded_question_stops_and_the_next_is_answered():
    async def scenario(workers):
        await workers.ask("code", QUICK, urgent=True)  # loaded
        long = asyncio.create_task(workers.ask("curve", LONG, lane="one/curve", urgent=True))
        while workers.progress("one/curve") in (None, ("waiting", None)):
            await asyncio.sleep(0.01)
        first = workers.progress("one/curve")
        answer = await workers.ask("code", QUICK, lane="one/curve", urgent=True)
        with pytest.raises(Superseded):
            await long
        return first, answer[0]

    told, status = within(WorkerPool(count=1, grace=0.0), scenario)
    assert told[0] == "drawing"
    assert status == 200


def test_what_is_told_to_stop_keeps_its_process():
    """Since another takes longer to start than many answers take."""

    async def scenario(workers):
        await workers.ask("code", QUICK, urgent=True)  # loaded
        before = workers.processes
        long = asyncio.create_task(workers.ask("curve", LONG, lane="one/curve", urgent=True))
        while workers.progress("one/curve") in (None, ("waiting", None)):
            await asyncio.sleep(0.01)
        workers.cancel("one/")
        with pytest.raises(Superseded):
            await long
        status, _ = await workers.ask("code", QUICK, urgent=True)
        return status, before, workers.processes

    status, before, after = within(WorkerPool(count=1, grace=60.0), scenario)
    assert status == 200
    assert before == after


def test_what_does_not_stop_is_killed():
    async def scenario(workers):
        await workers.ask("code", QUICK, urgent=True)
        before = workers.processes
        os.kill(before[0], signal.SIGSTOP)  # does not hear that it should
        long = asyncio.create_task(workers.ask("curve", LONG, lane="one/curve", urgent=True))
        await asyncio.sleep(0)
        workers.cancel("one/")
        with pytest.raises(Superseded):
            await long
        status, _ = await workers.ask("code", QUICK, urgent=True)
        return status, before, workers.processes

    status, before, after = within(WorkerPool(count=1, grace=0.05), scenario)
    assert status == 200
    assert before != after


def test_drafts_of_a_page_that_begins_anew_are_kept():
    async def scenario(workers):
        waiting = [
            asyncio.create_task(workers.ask("code", QUICK, lane=lane, urgent=True))
            for lane in ("one/curve", "one/draft")
        ]
        await asyncio.sleep(0)
        workers.cancel("one/", but="one/draft")
        return await asyncio.gather(*waiting, return_exceptions=True)

    other, draft = within(WorkerPool(count=1), scenario)
    assert isinstance(other, Superseded)
    assert draft[0] == 200


def test_a_page_that_begins_anew_is_not_waited_for():
    async def scenario(workers):
        waiting = [
            asyncio.create_task(workers.ask("code", QUICK, lane=lane, urgent=True))
            for lane in ("one/a", "one/b", "two/a")
        ]
        await asyncio.sleep(0)
        workers.cancel("one/")
        return await asyncio.gather(*waiting, return_exceptions=True)

    one, other, kept = within(WorkerPool(count=1), scenario)
    assert isinstance(one, Superseded)
    assert isinstance(other, Superseded)
    assert kept[0] == 200


def test_what_takes_too_long_is_given_up():
    async def scenario(workers):
        with pytest.raises(NotComputed, match=r"longer than 0\.01 seconds"):
            await workers.ask("curve", LONG, urgent=True)
        workers.limit = 60.0
        return await workers.ask("code", QUICK, urgent=True)

    assert within(WorkerPool(count=1, limit=0.01), scenario)[0] == 200


def test_more_questions_than_can_wait_are_refused():
    async def scenario(workers):
        large = {"certificate": "x" * 2**20}
        waiting = [asyncio.create_task(workers.ask("verify", large)) for _ in range(70)]
        await asyncio.sleep(0)
        refused = [task for task in waiting if task.done()]
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return [task.exception() for task in refused]

    refused = within(WorkerPool(count=1), scenario)
    assert 1 < len(refused) < 10
    assert all(one.status == 503 for one in refused)


def test_long_questions_leave_a_process_to_urgent_ones():
    async def scenario(workers):
        long = [asyncio.create_task(workers.ask("curve", LONG, lane=f"x/{i}")) for i in range(3)]
        await asyncio.sleep(0)
        idle = len(workers.processes)
        status, _ = await workers.ask("code", QUICK, urgent=True)
        unfinished = [task for task in long if not task.done()]
        workers.cancel("x/")
        await asyncio.gather(*long, return_exceptions=True)
        return idle, status, unfinished

    idle, status, unfinished = within(WorkerPool(count=2, grace=0.0), scenario)
    assert idle == 1
    assert status == 200
    assert unfinished


@ON_LINUX
def test_what_needs_too_much_memory_is_told_so_and_its_process_replaced():
    batches = {"batches": "shuffled-once", "examples": 50_000_000, "batch_size": 1, "epochs": 1}
    huge = {"run": PRESETS["Million-row logistic"] | batches}

    async def scenario(workers):
        before = workers.processes
        with pytest.raises(NotComputed, match=r"needs more than 0\.5 GiB of memory") as refused:
            await workers.ask("account", huge, urgent=True)
        status, _ = await workers.ask("code", QUICK, urgent=True)
        return refused.value.status, status, before, workers.processes

    refused, status, before, after = within(WorkerPool(count=1, memory=2**29), scenario)
    assert (refused, status) == (503, 200)
    assert before != after


@ON_LINUX
def test_allocations_beyond_the_limit_fail():
    code = """
import numpy as np
from lastiterate.explore.worker_process import limit_memory
limit_memory({most})
np.ones({most} // 16)
np.ones({most} // 6)
"""
    found = subprocess.run(
        [sys.executable, "-c", code.format(most=2**30)], capture_output=True, text=True, check=False
    )
    assert found.returncode == 1
    assert "MemoryError" in found.stderr
    assert WorkerPool().memory == 2**32
