"""How far a long loop is, told to whoever waits for it, whoever that is."""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

# What is being done, and which share of it is; 1 when it is over, even if by an error.
Listener = Callable[[str, float], None]
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


def told(what: str, items: Collection[_Item]) -> Iterator[_Item]:
    """The items, one after the other; the listener, if any, hears how many are done."""
    return told_of(what, items, len(items))


def told_of(what: str, items: Iterable[_Item], count: int) -> Iterator[_Item]:
    """The same of `count` items that are made one by one."""
    listener = _listener.get()
    if listener is None:
        yield from items
        return
    remaining = iter(items)
    try:
        for done in range(count):
            listener(what, done / count)
            yield next(remaining)
        yield from remaining
    finally:
        listener(what, 1.0)
