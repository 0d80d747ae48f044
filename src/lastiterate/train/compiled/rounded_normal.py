"""Rounded normal numbers, as `train.rounded_normal` has them, from the same words."""

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from lastiterate._numerics.arrays import Array
from lastiterate.train import rounded_normal as law
from lastiterate.train.compiled.elementary import STEP_BY_STEP

Words = NDArray[np.uint64]
Whole = NDArray[np.int64]
Columns = NDArray[np.intp]

_BOX = np.uint64(2**law.BOX_BITS - 1)
_SIGN = np.uint64(law.BOX_BITS)
_FRACTION = np.uint64(law.BOX_BITS + 1)
_ONE = np.uint64(1)
_NOT_CORE = np.uint64(law.NOT_CORE)
_CORE, _WEDGE, _DEEPER = law.CORE, law.WEDGE, law.DEEPER
_BIN_BITS, _FRACTION_BITS, _MARGIN = law.BIN_BITS, law.FRACTION_BITS, law.MARGIN


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
def _begin(
    where: Columns, word: Words, level: Columns, doubtful: Columns,
    first: Words, extra: Words, out: Whole, bits: int,
    core_bin: Any, kinds: Any, bins: Any, boxes: Any, heights: Array,
) -> tuple[int, int, int, int, int]:  # fmt: skip
    shift, up = np.uint64(64 - (bits - _BIN_BITS)), np.uint64(bits - _BIN_BITS)
    rest = where[0]
    count = 0
    for k in range(out.size):
        now = first[k]
        bin_ = np.uint64(core_bin[now & _BOX])
        number = np.int64((bin_ << up) | (now >> shift))
        out[k] = number ^ -np.int64((now >> _SIGN) & _ONE)
        rest[count] = k
        count += bin_ == _NOT_CORE
    for k in range(count):
        word[0, k] = first[rest[k]]
        level[0, k] = 0
    done: tuple[int, int, int, int, int] = _rounds(
        where, word, level, doubtful, count, extra, out, bits, kinds, bins, boxes, heights
    )
    return done


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
    shift, up = np.uint64(64 - (bits - _BIN_BITS)), np.uint64(bits - _BIN_BITS)
    left, unsure = 0, 0
    for k in range(count):
        now, depth = word[k], level[k]
        at = np.int64(now & _BOX)
        kind = kinds[depth, at]
        kept = False
        if kind == _WEDGE:
            fraction = (np.float64(now >> _FRACTION) + 0.5) * 2.0**-_FRACTION_BITS
            x = (np.float64(bins[depth, at]) + fraction) * 2.0**-_BIN_BITS
            part = (np.float64(ordinates[k]) + 0.5) * 2.0**-64
            t = (np.float64(boxes[depth, at]) + part) * heights[depth]
            graph = math.exp(-0.5 * x * x)
            kept = t < graph * (1.0 - _MARGIN)
            if not kept and not t > graph * (1.0 + _MARGIN):
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
