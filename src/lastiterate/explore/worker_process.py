"""A worker process: it reads questions as lines of JSON on stdin and writes answers to stdout.

It ends when stdin does, so that none is left when the server is gone.  Its argument is how many
bytes of memory answers may take, where the platform can hold it to that.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from lastiterate._progress import listen
from lastiterate.errors import BudgetExceeded, LastIterateError, NoBoundApplies, UnreachableTarget
from lastiterate.explore.answers import answer
from lastiterate.explore.worker_pool import OUT_OF_MEMORY

FINE, BAD, SUPERSEDED, UNANSWERED, FAILED = 200, 400, 409, 422, 500
_PROGRESS_STEP = 0.02  # of progress that is worth a line


class _Stopped(BaseException):
    """Nobody waits for this answer any more."""


@dataclass
class _Inbox:
    """Messages received: questions to answer, and the number of one that is no longer wanted."""

    questions: SimpleQueue[tuple[int, str, Any] | None] = field(default_factory=SimpleQueue)
    unwanted: int = -1

    def read(self, lines: Iterable[str]) -> None:
        for line in lines:
            number, question, record = json.loads(line)
            if question is None:
                self.unwanted = number
            else:
                self.questions.put((number, question, record))
        self.questions.put(None)


def main(memory: int | None = None) -> None:
    """Read the page's questions from standard input and write answers until the input ends."""
    if memory is not None:
        limit_memory(memory)
    out, sys.stdout = sys.stdout, sys.stderr  # what the library prints is no answer
    warnings.simplefilter("ignore")
    inbox = _Inbox()
    threading.Thread(target=inbox.read, args=(sys.stdin,), daemon=True).start()

    def say(*words: Any) -> None:
        out.write(json.dumps(words, allow_nan=False) + "\n")
        out.flush()

    while (message := inbox.questions.get()) is not None:
        number, question, record = message
        with listen(_listener(say, inbox, number)):
            status, reply = _status_and_answer(question, record)
        say("answer", status, reply)


def limit_memory(most: int) -> None:
    """Let allocations of more than this many further bytes fail, where the platform can."""
    try:
        import resource
    except ImportError:  # Windows
        return
    # Elsewhere than on Linux the former does not count what large arrays are made of.
    kind = resource.RLIMIT_DATA if sys.platform == "linux" else resource.RLIMIT_AS
    _, hard = resource.getrlimit(kind)
    most += _used_bytes()
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    with contextlib.suppress(ValueError, OSError):  # macOS may refuse any
        resource.setrlimit(kind, (most, hard))


def _used_bytes() -> int:
    """Bytes of data so far: threads of linear algebra reserve some for every processor."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[5])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _listener(
    say: Callable[..., None], inbox: _Inbox, number: int
) -> Callable[[str, float | None], None]:
    """A listener that reports progress, and stops the computation if it is no longer wanted.

    A loop that reports its progress has nothing half done there, so it can be left.
    """
    last = -1.0

    def report(what: str, share: float | None) -> None:
        nonlocal last
        if inbox.unwanted == number:
            raise _Stopped
        if share is None or abs(share - last) >= _PROGRESS_STEP:
            last = -1.0 if share is None else share
            say("progress", what, share)

    return report


def _status_and_answer(question: str, record: Any) -> tuple[int, Any]:
    try:
        return FINE, answer(question, record)
    except _Stopped:
        return SUPERSEDED, {"error": "superseded by a later question"}
    except (NoBoundApplies, UnreachableTarget, BudgetExceeded) as error:
        return UNANSWERED, {"error": str(error)}
    except LastIterateError as error:
        return BAD, {"error": str(error)}
    except MemoryError:
        return OUT_OF_MEMORY, None
    except Exception:  # the next question must be answered all the same
        return FAILED, {"error": "this could not be computed"}


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
