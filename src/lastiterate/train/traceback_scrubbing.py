"""Removal of rows, iterates and the state of the noise from the tracebacks of errors.

A traceback keeps the variables of every function that it passed, and tools that report errors
send them on.
"""

import traceback
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

_Method = TypeVar("_Method", bound=Callable[..., Any])


def clear_locals(error: BaseException) -> None:
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


def discreet(method: _Method) -> _Method:
    """The method, of whose arguments no traceback keeps any."""

    @wraps(method)
    def called(self: Any, *given: Any, **named: Any) -> Any:
        held: list[Any] = [given, named]
        del given, named
        try:
            return method(self, *held[0], **held[1])
        except BaseException as error:
            held.clear()
            clear_locals(error)
            raise

    return cast(_Method, called)


class DiscreetTransformer:
    """A base of transformers, to stand before those of scikit-learn.

    These wrap `transform` of every class into a function that keeps the rows, and their
    `fit_transform` does, too.  So methods are made discreet around all that.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in ("fit", "transform", "fit_transform", "inverse_transform"):
            method = getattr(cls, name, None)
            if method is not None:
                setattr(cls, name, discreet(method))
