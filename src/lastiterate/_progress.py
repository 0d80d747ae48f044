"""How far a long loop is, told to whoever waits for it, whoever that is."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Listener = Callable[[str, float], None]  # what is being done, and which share of it is
_Item = TypeVar("_Item")
_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Whatever is `told` inside, in this context, is told to `listener`."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def told(what: str, items: Sequence[_Item]) -> Iterator[_Item]:
    """The items, one after the other; the listener, if any, hears how many are done."""
    listener = _listener.get()
    for done, item in enumerate(items):
        if listener is not None:
            listener(what, done / len(items))
        yield item
    if listener is not None:
        listener(what, 1.0)
