"""What an error may carry along: no row, no iterate, no state of the noise.

A traceback keeps the variables of every function that it passed, and tools that report errors
send them on.
"""

import traceback


def forget_locals(error: BaseException) -> None:
    """Empty the variables of every finished function that the error, or one behind it, passed."""
    seen: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or any(one is other for other in seen):
            continue
        seen.append(one)
        traceback.clear_frames(one.__traceback__)
        waiting += [one.__cause__, one.__context__]
