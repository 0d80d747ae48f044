"""Processes that write to a ledger, some of them killed while they do.

`python -m tests.ledger.writers PATH EACH KILLS` has four of them write so many entries each, and
then one after the other killed in the middle of a line.  It prints, as JSON, what they announced
once `add` had returned (from then on it must never be missing), and how many left a torn line.
Processes are forked, since loading everything takes a hundred times as long as a write.
"""

import json
import os
import signal
import sys
import time

import lastiterate as li
from lastiterate.ledger import journal

COST = (0.001, 0.0)


class FewBytesAtATime:
    """In place of `os`, so that a kill falls in the middle of a line."""

    def __getattr__(self, name):
        return getattr(os, name)

    def write(self, descriptor, data):
        time.sleep(0.002)
        return os.write(descriptor, bytes(data)[:40])


def forked(path, name, count, *, slow):
    """The process, and where it announces its entries."""
    reading, writing = os.pipe()
    process = os.fork()
    if process:
        os.close(writing)
        return process, reading
    try:
        if slow:
            journal.os = FewBytesAtATime()
        ledger = li.Ledger(path)
        for k in range(count):
            ledger.add(COST, f"{name}-{k}")
            os.write(writing, f"{name}-{k}\n".encode())
    finally:
        os._exit(0)


def announced(process, reading):
    with os.fdopen(reading) as pipe:
        lines = pipe.read().split()
    os.waitpid(process, 0)
    return lines


def killed_while_writing(path, name, *, after):
    size = os.path.getsize(path)
    process, reading = forked(path, name, 1000, slow=True)
    while os.path.getsize(path) < size + after:
        time.sleep(0.0005)
    os.kill(process, signal.SIGKILL)
    return announced(process, reading)


def main(path, each, kills):
    li.Ledger(path).add(COST, "first")  # so that everything is loaded
    steady = [forked(path, f"steady{k}", each, slow=False) for k in range(4)]
    lines = [line for one in steady for line in announced(*one)]
    torn = 0
    for kill in range(kills):
        lines += killed_while_writing(path, f"killed{kill}", after=60 + 37 * (kill % 20))
        with open(path, "rb") as file:
            torn += not file.read().endswith(b"\n")
    print(json.dumps({"announced": lines, "torn": torn}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
