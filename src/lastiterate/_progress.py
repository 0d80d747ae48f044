"""How far a long loop is, told to whoever waits for it, whoever that is.

Loops inside loops are one: what is heard is how much of the outermost is done, which never shrinks,
though an inner loop may be followed by another.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TypeVar

# What is being done, and which share of it is, None where nobody knows; 1 when it is over, even
# if by an error.
Listener = Callable[[str, float | None], None]
_Item = TypeVar("_Item")


@dataclass(eq=False)
class _Loop:
    what: str
    count: int | None  # None where it is not known
    done: int = 0


@dataclass
class _Heard:
    listener: Listener
    loops: list[_Loop] = field(default_factory=list)  # under way, the outermost first
    furthest: float = 0.0

    def tell(self) -> None:
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


_heard: ContextVar[_Heard | None] = ContextVar("heard", default=None)


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Whatever is `told` inside, in this context, is told to `listener`."""
    token = _heard.set(_Heard(listener))
    try:
        yield
    finally:
        _heard.reset(token)


def told(what: str, items: Collection[_Item]) -> Iterator[_Item]:
    """The items, one after the other; the listener, if any, hears how many are done."""
    return told_of(what, items, len(items))


def told_of(what: str, items: Iterable[_Item], count: int) -> Iterator[_Item]:
    """The `count` items, made one by one; the listener, if any, hears how many are done."""
    heard = _heard.get()
    if heard is None:
        yield from items
        return
    remaining = iter(items)
    loop = _Loop(what, count)
    with heard.during(loop):
        for done in range(count):
            loop.done = done
            heard.tell()
            yield next(remaining)
        yield from remaining


@contextmanager
def throughout(what: str) -> Iterator[None]:
    """Something that takes nobody knows how many rounds, each perhaps told of inside."""
    heard = _heard.get()
    if heard is None:
        yield
        return
    with heard.during(_Loop(what, None)):
        heard.tell()
        yield
