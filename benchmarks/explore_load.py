"""The server of `lastiterate explore` under load, on this computer alone; it ends by itself.

50 requests a second from one client for a minute, then 20 clients at once for half a minute.  Each
request asks for another run, so that nothing is answered from memory.

    python benchmarks/explore_load.py [--seconds 60]
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

from lastiterate.explore.server import FIRST, PRESETS

RATE, CLIENTS = 50, 20
LOOPBACK = "127.0.0.1"


def main() -> None:
    """Both loads, and the memory of the server and its processes before, between and after."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    seconds = parser.parse_args().seconds
    command = [sys.executable, "-m", "lastiterate", "explore", "--no-browser"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        found = re.search(r"http:\S+", server.stdout.readline())
        assert found is not None
        asyncio.run(_both(found.group(), server.pid, seconds))
    finally:
        server.terminate()
        server.wait()


async def _both(address: str, pid: int, seconds: float) -> None:
    parts = urlsplit(address)
    assert parts.hostname == LOOPBACK
    token = parts.query.removeprefix("token=")
    ask = _Asker(parts.port or 0, token)
    await asyncio.gather(*(ask() for _ in range(CLIENTS)))  # everything is loaded
    memory, spent = [_memory(pid)], _processor_time(pid)
    one = await _at_a_rate(ask, seconds)
    memory.append(_memory(pid))
    many = await _at_once(ask, seconds / 2)
    memory.append(_memory(pid))
    print(f"one client, {RATE} a second: {one}")
    print(f"{CLIENTS} clients at once: {many}")
    spent = (_processor_time(pid) - spent) / ask.count
    print(f"processor time of server and processes: {1e3 * spent:.1f} ms a request")
    print("memory of server and processes, MB: " + ", ".join(f"{one:.0f}" for one in memory))


class _Asker:
    """Another run every time."""

    def __init__(self, port: int, token: str) -> None:
        self.port, self.token, self.count = port, token, 0

    async def __call__(self) -> tuple[str, float]:
        self.count += 1
        run = PRESETS[FIRST] | {"noise_multiplier": 2.0 + 1e-4 * self.count}
        body = json.dumps({"run": run}).encode()
        head = (
            f"POST /api/account HTTP/1.1\r\nHost: {LOOPBACK}:{self.port}\r\n"
            f"x-lastiterate-token: {self.token}\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n"
        )
        began = time.perf_counter()
        try:
            reader, writer = await asyncio.open_connection(LOOPBACK, self.port)
            writer.write(head.encode() + body)
            said = await reader.read()
            writer.close()
        except OSError as error:
            return type(error).__name__, time.perf_counter() - began
        status = said[9:12].decode() if b'"epsilon"' in said else f"{said[9:12].decode()} refused"
        return status, time.perf_counter() - began


async def _at_a_rate(ask: _Asker, seconds: float) -> str:
    began, asked = time.perf_counter(), []
    for number in range(round(RATE * seconds)):
        await asyncio.sleep(max(0.0, began + number / RATE - time.perf_counter()))
        asked.append(asyncio.create_task(ask()))
    return _told(await asyncio.gather(*asked), time.perf_counter() - began)


async def _at_once(ask: _Asker, seconds: float) -> str:
    began = time.perf_counter()

    async def client() -> list[tuple[str, float]]:
        told = []
        while time.perf_counter() < began + seconds:
            told.append(await ask())
        return told

    every = await asyncio.gather(*(client() for _ in range(CLIENTS)))
    return _told([one for told in every for one in told], time.perf_counter() - began)


def _told(answers: list[tuple[str, float]], seconds: float) -> str:
    times = sorted(took for _, took in answers)
    middle, late = times[len(times) // 2], times[int(0.99 * len(times))]
    counts = ", ".join(
        f"{many} x {status}" for status, many in Counter(s for s, _ in answers).items()
    )
    return (
        f"{counts}; {len(answers) / seconds:.0f} a second; median {1e3 * middle:.0f} ms, "
        f"99 of 100 within {1e3 * late:.0f} ms"
    )


def _children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _processor_time(pid: int) -> float:
    """In seconds, of a process and its children."""
    told = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    own = (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")
    return own + sum(_processor_time(child) for child in _children(pid))


def _memory(pid: int) -> float:
    """Resident, in MB, of a process and its children."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    own = pages * os.sysconf("SC_PAGE_SIZE") / 1e6
    return own + sum(_memory(child) for child in _children(pid))


if __name__ == "__main__":
    main()
