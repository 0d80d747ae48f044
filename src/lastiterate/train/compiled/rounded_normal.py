"""Rounded normal numbers, as `train.noise` has them, from the same words."""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from lastiterate._numerics.rounding import Array
from lastiterate.train import noise as law
from lastiterate.train.compiled.loops import STEP_BY_STEP, exp

Words = NDArray[np.uint64]
Whole = NDArray[np.int64]
Columns = NDArray[np.intp]

_BOX = np.uint64(2**law.BOX_BITS - 1)
_SIGN = np.uint64(law.BOX_BITS)
_FRACTION = np.uint64(law.BOX_BITS + 1)
_ONE = np.uint64(1)
_NOT_CORE = np.uint8(law.NOT_CORE)
_CORE, _WEDGE, _DEEPER = law.CORE, law.WEDGE, law.DEEPER
_BIN_BITS, _FRACTION_BITS, _MARGIN = law.BIN_BITS, law.FRACTION_BITS, law.MARGIN


def filled(drawn: Words, out: Whole, bits: int) -> bool:
    """Whether these words were enough to fill `out`; if not, `begin` must, from the same words."""
    kinds, bins, boxes, heights, core_bin, _ = law.tables()
    return bool(_fill(drawn, out, bits, core_bin, kinds, bins, boxes, heights))


def begin(first: Words, extra: Words, out: Whole, bits: int) -> law.Progress:
    """The numbers of core boxes, and rounds for the others."""
    room = _room(out.size + 1)
    found = law.tables()
    return _progress(room, _begin(*room, first, extra, out, bits, found.core_bin, *found[:4]))


def rounds(pending: law.Pending, extra: Words, out: Whole, bits: int) -> law.Progress:
    """Rounds until words run out, nothing is pending, or floats cannot decide."""
    room = _room(pending.where.size)
    for own, given in zip(room, pending, strict=False):
        own[0] = given
    count = pending.where.size
    return _progress(room, _rounds(*room, count, extra, out, bits, *law.tables()[:4]))


def _room(count: int) -> tuple[Columns, Words, Columns, Columns]:
    """Buffers for what is pending before a round and after it, and for what is doubtful."""
    return (
        np.empty((2, count), np.intp),
        np.empty((2, count), np.uint64),
        np.empty((2, count), np.intp),
        np.empty(count, np.intp),
    )


def _progress(room: Any, done: tuple[int, int, int, int, int]) -> law.Progress:
    where, word, level, doubtful = room
    now, before, left, unsure, used = done
    last = 1 - now
    return law.Progress(
        law.Pending(where[last, :before], word[last, :before], level[last, :before]),
        law.Pending(where[now, :left], word[now, :left], level[now, :left]),
        doubtful[:unsure],
        used,
    )


@njit(**STEP_BY_STEP)
def _fill(
    drawn: Words, out: Whole, bits: int,
    core_bin: Any, kinds: Any, bins: Any, boxes: Any, heights: Array,
) -> bool:  # fmt: skip
    rest = np.empty(out.size + 1, np.intp)
    count = _cores(drawn[: out.size], out, rest, bits, core_bin)
    where, level = np.empty((2, count), np.intp), np.empty((2, count), np.intp)
    word, doubtful = np.empty((2, count), np.uint64), np.empty(count, np.intp)
    where[0] = rest[:count]
    _begin_pending(where, word, level, count, drawn)
    _, _, left, unsure, _ = _rounds(
        where, word, level, doubtful, count, drawn[out.size :], out, bits,
        kinds, bins, boxes, heights,
    )  # fmt: skip
    done: bool = left == 0 and unsure == 0
    return done


@njit(**STEP_BY_STEP)
def _begin(
    where: Columns, word: Words, level: Columns, doubtful: Columns,
    first: Words, extra: Words, out: Whole, bits: int,
    core_bin: Any, kinds: Any, bins: Any, boxes: Any, heights: Array,
) -> tuple[int, int, int, int, int]:  # fmt: skip
    count = _cores(first, out, where[0], bits, core_bin)
    _begin_pending(where, word, level, count, first)
    done: tuple[int, int, int, int, int] = _rounds(
        where, word, level, doubtful, count, extra, out, bits, kinds, bins, boxes, heights
    )
    return done


@njit(**STEP_BY_STEP)
def _cores(first: Words, out: Whole, rest: Columns, bits: int, core_bin: Any) -> np.int64:
    """The numbers of core boxes; how many others there are, which `rest` lists and has room for.

    In two passes, of which the second is made of several numbers at once.
    """
    shift, up = np.uint64(64 - (bits - _BIN_BITS)), np.uint64(bits - _BIN_BITS)
    size, count = np.uint64(out.size), np.uint64(0)
    for k in range(size):
        bin_ = core_bin[first[k] & _BOX]
        out[k] = np.int64(bin_)
        rest[count] = k
        count += np.uint64(bin_ == _NOT_CORE)
    for k in range(size):
        number = np.int64((np.uint64(out[k]) << up) | (first[k] >> shift))
        out[k] = number ^ -np.int64((first[k] >> _SIGN) & _ONE)
    return np.int64(count)


@njit(**STEP_BY_STEP)
def _begin_pending(where: Columns, word: Words, level: Columns, count: int, first: Words) -> None:
    """The words and the level of what is pending at first."""
    for k in range(count):
        word[0, k] = first[where[0, k]]
        level[0, k] = 0


@njit(**STEP_BY_STEP)
def _rounds(
    where: Columns, word: Words, level: Columns, doubtful: Columns, count: int,
    extra: Words, out: Whole, bits: int, kinds: Any, bins: Any, boxes: Any, heights: Array,
) -> tuple[int, int, int, int, int]:  # fmt: skip
    """Which of the two is pending now, how many before and after, how many doubtful, words used."""
    before, used, now, unsure = 0, 0, 0, 0
    while unsure == 0 and 0 < 2 * count <= extra.size - used:
        left, unsure = _round(
            where[now], word[now], level[now], count,
            where[1 - now], word[1 - now], level[1 - now], doubtful,
            extra[used : used + count], extra[used + count : used + 2 * count],
            out, bits, kinds, bins, boxes, heights,
        )  # fmt: skip
        before, used, now, count = count, used + 2 * count, 1 - now, left
    return now, before, count, unsure, used


@njit(**STEP_BY_STEP)
def _round(
    where: Columns, word: Words, level: Columns, count: int,
    next_where: Columns, next_word: Words, next_level: Columns, doubtful: Columns,
    ordinates: Words, following: Words,
    out: Whole, bits: int, kinds: Any, bins: Any, boxes: Any, heights: Array,
) -> tuple[int, int]:  # fmt: skip
    """The numbers of pending and of doubtful numbers after a round."""
    shift, up = np.uint64(64 - (bits - _BIN_BITS)), np.uint64(bits - _BIN_BITS)
    left, unsure = 0, 0
    over = _over_graph(word, level, count, ordinates, bins, boxes, heights)
    for k in range(count):
        now, depth = word[k], level[k]
        at = np.int64(now & _BOX)
        kind = kinds[depth, at]
        kept = kind == _WEDGE and over[k] < 1.0 - _MARGIN
        if kind == _WEDGE and not kept and not over[k] > 1.0 + _MARGIN:
            doubtful[unsure] = k
            unsure += 1
            continue
        if not kept:
            depth = depth + 1 if kind == _DEEPER else 0
            now = following[k]
            at = np.int64(now & _BOX)
            if kinds[depth, at] != _CORE:
                next_where[left], next_word[left], next_level[left] = where[k], now, depth
                left += 1
                continue
        number = np.int64((np.uint64(bins[depth, at]) << up) | (now >> shift))
        out[where[k]] = number ^ -np.int64((now >> _SIGN) & _ONE)
    return left, unsure


@njit(**STEP_BY_STEP)
def _over_graph(
    word: Words, level: Columns, count: int, ordinates: Words,
    bins: Any, boxes: Any, heights: Array,
) -> Array:  # fmt: skip
    """The ordinate of each point over that of the graph, in loops of several points at once."""
    x, t = np.empty(count), np.empty(count)
    for k in range(count):
        at = np.int64(word[k] & _BOX)
        x[k], t[k] = bins[level[k], at], boxes[level[k], at]
    for k in range(count):
        fraction = (np.float64(word[k] >> _FRACTION) + 0.5) * 2.0**-_FRACTION_BITS
        x[k] = (x[k] + fraction) * 2.0**-_BIN_BITS
        t[k] += (np.float64(ordinates[k]) + 0.5) * 2.0**-64
    for k in range(count):
        t[k] = t[k] * heights[level[k]] / exp(-0.5 * x[k] * x[k])
    return t
