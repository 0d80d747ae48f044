"""The progress of long loops, reported to a listener if there is one.

Nested loops are one: the listener learns how much of the outermost loop is done.  That share never
shrinks, though an inner loop may be followed by another.
"""

from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeVar

# Called with what is being done and the share that is done: None where that is unknown, 1 when it
# is over, even by an error.
Listener = Callable[[str, float | None], None]
_Item = TypeVar("_Item")


@dataclass(eq=False)
class _Loop:
    what: str
    count: int | None  # None where it is not known
    done: int = 0


@dataclass
class _Progress:
    listener: Listener
    loops: list[_Loop] = field(default_factory=list)  # under way, the outermost first
    furthest: float = 0.0

    def report(self) -> None:
        if not self.loops:
            return
        share = self._share()
        if share is not None:
            share = self.furthest = max(self.furthest, share)
        self.listener(self.loops[0].what, share)

    def _share(self) -> float | None:
        share, width = 0.0, 1.0
        for loop in self.loops:
            if loop.count is None:
                return None
            width /= max(1, loop.count)
            share += width * loop.done
        return share

    @contextmanager
    def during(self, loop: _Loop) -> Iterator[None]:
        self.loops.append(loop)
        outermost = self.loops[0] is loop
        if outermost:
            self.furthest = 0.0
        try:
            yield
        finally:
            self.loops.remove(loop)
            if outermost:
                self.listener(loop.what, 1.0)


_current: ContextVar[_Progress | None] = ContextVar("progress", default=None)


@contextmanager
def listen(listener: Listener) -> Iterator[None]:
    """A context in which `listener` is called as tracked loops advance."""
    token = _current.set(_Progress(listener))
    try:
        yield
    finally:
        _current.reset(token)


def track(what: str, items: Iterable[_Item], count: int | None = None) -> Iterator[_Item]:
    """The items in order; the listener, if any, learns how many of `count` are done.

    `count` is the number of items, if they have no length of their own.
    """
    if count is None:
        assert isinstance(items, Sized)
        count = len(items)
    return _track_items(what, items, count)


def _track_items(what: str, items: Iterable[_Item], count: int) -> Iterator[_Item]:
    progress = _current.get()
    if progress is None:
        yield from items
        return
    remaining = iter(items)
    loop = _Loop(what, count)
    with progress.during(loop):
        for done in range(count):
            loop.done = done
            progress.report()
            yield next(remaining)
        yield from remaining


@contextmanager
def throughout(what: str) -> Iterator[None]:
    """A context for work of an unknown number of rounds, each of which may be tracked inside."""
    progress = _current.get()
    if progress is None:
        yield
        return
    with progress.during(_Loop(what, None)):
        progress.report()
        yield
