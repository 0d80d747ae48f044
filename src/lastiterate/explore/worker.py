"""One process that computes: questions come as lines of JSON on stdin, answers go out on stdout.

It ends when stdin does, so that none is left when the server is gone.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from typing import Any

from lastiterate._progress import heard_by
from lastiterate.errors import BudgetExceeded, LastIterateError, NoBoundApplies, UnreachableTarget
from lastiterate.explore.answers import answered

FINE, BAD, UNANSWERED, FAILED = 200, 400, 422, 500
_STEP = 0.02  # of progress that is worth a line


def main() -> None:
    """Answer until there are no more questions."""
    out, sys.stdout = sys.stdout, sys.stderr  # what the library prints is no answer
    warnings.simplefilter("ignore")

    def say(*words: Any) -> None:
        out.write(json.dumps(words, allow_nan=False) + "\n")
        out.flush()

    for line in sys.stdin:
        question, record = json.loads(line)
        with heard_by(_telling(say)):
            status, answer = _status_and_answer(question, record)
        say("answer", status, answer)


def _telling(say: Callable[..., None]) -> Callable[[str, float | None], None]:
    last = -1.0

    def tell(what: str, share: float | None) -> None:
        nonlocal last
        if share is None or abs(share - last) >= _STEP:
            last = -1.0 if share is None else share
            say("progress", what, share)

    return tell


def _status_and_answer(question: str, record: Any) -> tuple[int, Any]:
    try:
        return FINE, answered(question, record)
    except (NoBoundApplies, UnreachableTarget, BudgetExceeded) as error:
        return UNANSWERED, {"error": str(error)}
    except LastIterateError as error:
        return BAD, {"error": str(error)}
    except Exception:  # the next question must be answered all the same
        return FAILED, {"error": "this could not be computed"}


if __name__ == "__main__":
    main()
