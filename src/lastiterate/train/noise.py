r"""Noise and the secret order of examples: their source, and the grids that noise lies on.

By default both come from the keystream of AES-256 in counter mode, keyed by the operating system
for every training anew: whoever sees the model cannot predict it.  A generator refuses to be copied
or pickled, or used after a fork, so that the same noise is never used twice.  (A snapshot of a
whole virtual machine that is resumed twice during one training cannot be noticed.)

Noise is rounded to a grid, exactly: it is the floor of 2^bits N for a standard normal N.

**Method.** A point is drawn uniformly from a region that covers the graph of
:math:`f(x) = e^{-x^2/2}, x \ge 0`, and kept if it lies below the graph.  Its abscissa then has
the density f, and a random sign makes it normal.  The region consists of boxes of *equal area*,
so that a box is chosen by random bits and no probability is ever stored or rounded:

- level 0 has 2^14 boxes.  Bins of width 1/32 are filled with boxes of height :math:`v_0`; 16
  boxes have no position of their own.
- the area of those 16 is cut into 2^14 boxes of height :math:`v_1 = 16 v_0/2^{14}`, which cover
  the next bins, and so on for 9 levels, up to x = 11.09.

A box wholly below the graph (`CORE`) needs no test.  In a box that the graph passes through
(`WEDGE`) an ordinate is drawn.  Floats decide which side of the graph the point lies on unless
they are within :math:`2^{-40}` of each other.  Then multiprecision decides, and draws further
bits of both coordinates until the rectangle that they determine lies on one side.

**Law.** From uniform words the result has the law of floor(2^bits N) given |N| < 11.09.  That
differs from floor(2^bits N) in total variation by erfc(11.09/sqrt 2), at most `TOTAL_VARIATION`,
a draw.  Rejection from a uniform law is exact if boxes cover the graph, core boxes lie below it,
areas are equal, and a test is decided only when it is right.  The first three are finite
statements about `tables()`.  Of the last: the abscissa is known to :math:`2^{-55}`, the
exponential is assumed to be right to :math:`2^{-44}`, every other rounding is one of float64, and
f is at least .7 of a box's height wherever the graph meets the box, so that all of it is below
:math:`2^{-43}`.  The tests prove the tables in interval arithmetic.

**Word.** The lowest 14 bits name the box, the next is the sign, the upper 49 are the fraction of
the bin.  Every word is used once.  Whatever is drawn is used in the same call: none is kept.
"""

from __future__ import annotations

import math
import os
import secrets
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cache, cached_property
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from lastiterate import _check
from lastiterate._numerics.rounding import Array, down, ulps, up
from lastiterate.errors import InvalidParameter, LastIterateError, MissingExtra
from lastiterate.other_releases import (
    INTERVALS,
    MEAN,
    OUTLIER_COUNTS,
    OUTLIERS,
    RATES,
    UNDECLARED,
    Release,
)
from lastiterate.run.training_run import Ball, Domain, TrainingRun
from lastiterate.train.compiled import compiled

Words = NDArray[np.uint64]
Order = NDArray[np.intp]
Whole = NDArray[np.int64]
Source = Callable[[int], Words]  # so many uniform words, each of which is handed out once

# The source of random words.
SECURE = "secure: AES-256-CTR keyed by the operating system"
SHARED = "secure: AES-256-CTR under a key that several processes share"
REPRODUCIBLE = "reproducible: not private against someone who knows the seed"
_KEY_BYTES, _COUNTER_BYTES = 32, 16

# The floor of 2^bits N for a standard normal N.
TOTAL_VARIATION = 1.35e-28  # of one draw
MOST_BITS = 54  # for which one word has enough of them
BOX_BITS, BIN_BITS, FRACTION_BITS = 14, 5, 49
LEVELS, DEEPER_BOXES = 9, 16
FIRST_HEIGHT = 2_609 * 2.0**-20  # so short that multiples are exact
MARGIN = 2.0**-40  # of the decision by floats, and of the tables
CORE, WEDGE, DEEPER, WASTE = range(4)
NOT_CORE = 0xFF
_NUMBERS_AT_ONCE = 1 << 16
_COMPILED_MODULE = "lastiterate.train.compiled.rounded_normal"
_SPARE, _SPARE_SHARE = 64, 12  # words beyond one a number, at first
_BOX = np.uint64(2**BOX_BITS - 1)
_SIGN = np.uint64(BOX_BITS)
_FRACTION = np.uint64(BOX_BITS + 1)

# The grids that iterates, noise and statistics lie on.
BITS = 40  # of the grid, unless whole numbers would overflow
LEAST_BITS = 8
WHOLE_BITS = 62  # of whole numbers that cannot overflow when three of them are added
_UNIT_ROUNDOFF = 2.0**-53


class DuplicatedRandomness(LastIterateError, RuntimeError):
    """A secure generator was copied, or used in a process that it was not made in."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"a secure generator cannot be {what}: the same noise, used twice, cancels out. "
            "Make a new one."
        )


class Bits(Protocol):
    """Uniformly random 64-bit words."""

    provenance: str

    def words(self, count: int) -> Words: ...


class SecureBits:
    """The keystream of AES-256-CTR under a key that nobody has seen."""

    provenance = SECURE

    def __init__(self) -> None:
        self._start(secrets.token_bytes(_KEY_BYTES), secrets.token_bytes(_COUNTER_BYTES))

    def _start(self, key: bytes, counter: bytes) -> None:
        try:
            from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
        except ImportError as error:
            raise MissingExtra("secure noise", "cryptography", extra="sklearn") from error
        self._stream = Cipher(algorithms.AES256(key), modes.CTR(counter)).encryptor()
        self._process = os.getpid()

    def words(self, count: int) -> Words:
        if os.getpid() != self._process:
            raise DuplicatedRandomness("used after a fork")
        return np.frombuffer(self._stream.update(bytes(8 * count)), dtype=np.uint64)

    def __reduce__(self) -> NoReturn:
        raise DuplicatedRandomness("copied or pickled")


class SharedBits(SecureBits):
    """Random words that are the same in every process with the key, so that all agree on draws."""

    provenance = SHARED

    def __init__(self, key: bytes) -> None:
        if not isinstance(key, bytes) or len(key) != _KEY_BYTES:
            # The key is a secret, so it is not shown.
            found = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
            must_be = f"{_KEY_BYTES} bytes, such as secrets.token_bytes({_KEY_BYTES})"
            raise InvalidParameter("shared_key", must_be=must_be, found=found)
        self._start(key, bytes(_COUNTER_BYTES))


class SeededBits:
    """Reproducible 64-bit words from a seed, for tests."""

    provenance = REPRODUCIBLE

    def __init__(self, seed: int) -> None:
        self._stream = np.random.PCG64(_check.count("seed", seed, at_least=0))

    def words(self, count: int) -> Words:
        return np.asarray(self._stream.random_raw(count), dtype=np.uint64)


class Randomness:
    """Everything random in a training, from one source of bits."""

    def __init__(self, bits: Bits | None = None) -> None:
        self._bits: Bits = SecureBits() if bits is None else bits

    @property
    def provenance(self) -> str:
        """Whether the guarantee holds against someone who knows the program and its seed."""
        return self._bits.provenance

    def rounded_normals(self, shape: tuple[int, ...], bits: int) -> NDArray[np.int64]:
        """The floors of 2^bits N for independent standard normal N."""
        return rounded_normals(self._bits.words, math.prod(shape), bits).reshape(shape)

    def word(self) -> int:
        """A uniformly random whole number of 64 bits."""
        return int(self._bits.words(1)[0])

    def uniform(self) -> float:
        """A number in (0, 1), or 1."""
        return (self.word() + 0.5) * 2.0**-64

    def permutation(self, count: int) -> Order:
        """A uniformly random order of the whole numbers below `count`."""
        while True:
            keys = self._bits.words(count)
            order = np.argsort(keys)
            ranked = keys[order]
            # Equal keys would be put in an order that is not random.
            if not np.any(ranked[1:] == ranked[:-1]):
                return order

    def subset(self, count: int, size: int) -> Order:
        """A uniformly random subset of `size` of the whole numbers below `count`."""
        if size == count:
            return np.arange(count)
        while True:
            keys = self._bits.words(count)
            chosen = np.argpartition(keys, size - 1)[:size]
            if np.count_nonzero(keys <= keys[chosen].max()) == size:
                return chosen

    def each_with_probability(self, count: int, numerator: int, denominator: int) -> Order:
        """Each whole number below `count`, independently, with a probability that is a ratio."""
        if numerator >= denominator:
            return np.arange(count)
        threshold, rest = divmod(numerator << 64, denominator)
        words = self._bits.words(count)
        chosen = words < np.uint64(threshold)
        # A word that is the threshold itself is in with what is left of the probability.
        tied = np.flatnonzero(words == np.uint64(threshold))
        if tied.size and rest:
            chosen[tied[self.each_with_probability(tied.size, rest, denominator)]] = True
        return np.flatnonzero(chosen)

    def each_to_a_position(
        self, count: int, positions: int, numerator: int, denominator: int
    ) -> Order:
        """A position for each of `count`, independently; each has a probability that is a ratio.

        Where these do not add up to 1, some have no position, which is -1.
        """
        drawn = (self._below(count, denominator) // np.uint64(numerator)).astype(np.intp)
        return np.where(drawn < positions, drawn, -1)

    def _below(self, count: int, limit: int) -> Words:
        """Uniform whole numbers below the limit."""
        words = self._bits.words(count).copy()
        # Of the words beyond the last multiple of the limit some remainders have no part.
        beyond = np.uint64((1 << 64) // limit * limit - 1)
        while (again := np.flatnonzero(words > beyond)).size:
            words[again] = self._bits.words(again.size)
        return words % np.uint64(limit)


def randomness(random_state: Any) -> Randomness:
    """Secure for None; reproducible for a seed or a numpy generator."""
    if random_state is None:
        return Randomness()
    if isinstance(random_state, np.random.RandomState):
        return Randomness(SeededBits(int(random_state.randint(2**31))))
    if isinstance(random_state, np.random.Generator):
        return Randomness(SeededBits(int(random_state.integers(2**53))))
    return Randomness(SeededBits(_check.count("random_state", random_state, at_least=0)))


# The floor of 2^bits N for a standard normal N.


class Tables(NamedTuple):
    """The tables of boxes, one row for each level."""

    kind: NDArray[np.uint8]
    bin: NDArray[np.uint16]
    box: NDArray[np.uint16]  # its number in the bin, counted from below
    height: Array  # of the boxes of a level
    core_bin: NDArray[np.uint8]  # of level 0: the bin of a core box, else `NOT_CORE`
    bins: tuple[tuple[int, int], ...]  # of each level: the first, and the first of the next


@cache
def tables() -> Tables:
    """The boxes of all levels, computed from `FIRST_HEIGHT`."""
    kind = np.full((LEVELS, 2**BOX_BITS), WASTE, np.uint8)
    bins, box = np.zeros(kind.shape, np.uint16), np.zeros(kind.shape, np.uint16)
    shares = (DEEPER_BOXES * 2.0**-BOX_BITS) ** np.arange(LEVELS, dtype=np.float64)
    heights = np.asarray(FIRST_HEIGHT * shares, dtype=np.float64)
    first, ranges = 0, []
    edges = np.arange(2**BIN_BITS * 16) * 2.0**-BIN_BITS
    for level, height in enumerate(heights):
        graph = np.exp(-0.5 * edges**2) / height
        counts = np.ceil(up(graph[first:], MARGIN))
        # Where one box would be enough, the next level's are better.
        after = first + int(np.argmax(counts <= 1.0))
        stacks = counts[: after - first].astype(np.intp)
        used = int(stacks.sum())
        bins[level, :used] = np.repeat(np.arange(first, after), stacks)
        box[level, :used] = np.concatenate([np.arange(stack) for stack in stacks])
        below = (
            up(box[level, :used].astype(np.float64) + 1.0, MARGIN) <= graph[bins[level, :used] + 1]
        )
        kind[level, :used] = np.where(below, CORE, WEDGE)
        if level + 1 < LEVELS:
            kind[level, -DEEPER_BOXES:] = DEEPER
        ranges.append((first, after))
        first = after
    core_bin = np.where(kind[0] == CORE, bins[0], NOT_CORE).astype(np.uint8)
    for array in (kind, bins, box, heights, core_bin):
        array.setflags(write=False)
    return Tables(kind, bins, box, heights, core_bin, tuple(ranges))


def rounded_normals(words: Source, count: int, bits: int) -> Whole:
    """The floor of 2^bits N for `count` independent standard normal N.

    Parameters
    ----------
    words : function
        The source of uniformly random words.
    count : int
        How many numbers to draw.
    bits : int
        From `BIN_BITS` + 1 to `MOST_BITS`.
    """
    assert BIN_BITS < bits <= MOST_BITS
    out = np.empty(count, np.int64)
    for start in range(0, count, _NUMBERS_AT_ONCE):
        _fill(words, out[start : start + _NUMBERS_AT_ONCE], bits)
    return out


class Pending(NamedTuple):
    """Numbers that are not yet known: where they go, and the last word and level of each."""

    where: NDArray[np.intp]
    word: Words
    level: NDArray[np.intp]


_NO_PENDING = Pending(np.empty(0, np.intp), np.empty(0, np.uint64), np.empty(0, np.intp))


class Progress(NamedTuple):
    """The progress of rounds: what was pending before and after the last, and the words used."""

    before: Pending
    left: Pending
    doubtful: NDArray[np.intp]  # which of those before it floats cannot decide
    used: int


def _fill(words: Source, out: Whole, bits: int) -> None:
    """One word for each number, then in every round two for each that is not yet known."""
    spare = out.size // _SPARE_SHARE + _SPARE
    drawn = words(out.size + spare)
    # Both ways give the same numbers, so that what was loaded for longer draws does for short ones.
    size = _NUMBERS_AT_ONCE if _COMPILED_MODULE in sys.modules else out.size
    fast = compiled("rounded_normal", size)
    if fast is not None and fast.filled(drawn, out, bits):
        return
    begin, rounds = (_begin, _rounds) if fast is None else (fast.begin, fast.rounds)
    done = begin(drawn[: out.size], drawn[out.size :], out, bits)
    extra = drawn[out.size :]
    while True:
        # The words of the last round, which alone may have left doubts.
        last = extra[done.used - 2 * done.before.where.size : done.used].reshape(2, -1)
        late = [_decide(done.before, k, last, words, out, bits) for k in done.doubtful]
        pending = _append_late(done.left, [one for one in late if one is not None])
        if not pending.where.size:
            return
        extra = extra[done.used :]
        if 2 * pending.where.size > extra.size:
            # What is left of the words is not used: how many it is depends on the noise.
            extra = words(max(2 * pending.where.size, spare))
        done = rounds(pending, extra, out, bits)


def _begin(first: Words, extra: Words, out: Whole, bits: int) -> Progress:
    """The numbers of core boxes, and rounds for the others."""
    bins = tables().core_bin[first & _BOX]
    out[:] = _signed_numbers(bins, first, bits)
    where = np.flatnonzero(bins == NOT_CORE)
    return _rounds(Pending(where, first[where], np.zeros(where.size, np.intp)), extra, out, bits)


def _rounds(pending: Pending, extra: Words, out: Whole, bits: int) -> Progress:
    """Rounds until words run out, nothing is pending, or floats cannot decide."""
    before, used, doubtful = _NO_PENDING, 0, _NO_PENDING.where
    while not doubtful.size and 0 < 2 * pending.where.size <= extra.size - used:
        drawn = extra[used : used + 2 * pending.where.size].reshape(2, -1)
        before, used = pending, used + drawn.size
        pending, doubtful = _one_round(pending, drawn, out, bits)
    return Progress(before, pending, doubtful, used)


def _one_round(
    pending: Pending, drawn: Words, out: Whole, bits: int
) -> tuple[Pending, NDArray[np.intp]]:
    """What is still pending after one round, and which of the numbers floats cannot decide."""
    found = tables()
    where, word, level = pending
    at = (word & _BOX).astype(np.intp)
    kind = found.kind[level, at]
    below, above = _sides(found, level, at, word, drawn[0])
    wedge = kind == WEDGE
    kept = np.flatnonzero(wedge & below)
    out[where[kept]] = _signed_numbers(found.bin[level[kept], at[kept]], word[kept], bits)
    rest = np.flatnonzero(~wedge | above)
    following = np.where(kind[rest] == DEEPER, level[rest] + 1, 0)
    word = drawn[1][rest]
    at = (word & _BOX).astype(np.intp)
    core = found.kind[following, at] == CORE
    known = np.flatnonzero(core)
    out[where[rest[known]]] = _signed_numbers(
        found.bin[following[known], at[known]], word[known], bits
    )
    open_ = np.flatnonzero(~core)
    left = Pending(where[rest[open_]], word[open_], following[open_])
    return left, np.flatnonzero(wedge & ~below & ~above)


def _sides(
    found: Tables, level: NDArray[np.intp], at: NDArray[np.intp], word: Words, ordinate: Words
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Whether each point is surely below the graph, and whether it is surely above."""
    fraction = ((word >> _FRACTION) + 0.5) * 2.0**-FRACTION_BITS
    x = (found.bin[level, at] + fraction) * 2.0**-BIN_BITS
    t = (found.box[level, at] + (ordinate + 0.5) * 2.0**-64) * found.height[level]
    graph = np.exp(-0.5 * x * x)
    return t < down(graph, MARGIN), t > up(graph, MARGIN)


def _signed_numbers(bins: NDArray[np.unsignedinteger], word: Words, bits: int) -> Whole:
    """The signed whole numbers of points in these bins."""
    within = (word >> np.uint64(64 - (bits - BIN_BITS))).astype(np.int64)
    number = (bins.astype(np.int64) << (bits - BIN_BITS)) | within
    # The complement is the floor of what is negative.
    return np.asarray(number ^ -((word >> _SIGN) & np.uint64(1)).astype(np.int64))


def _decide(
    pending: Pending, k: int, drawn: Words, words: Source, out: Whole, bits: int
) -> tuple[int, int, int] | None:
    """The place, word and level still pending after a decision by multiprecision, if any are."""
    found, word, level = tables(), pending.word[k], int(pending.level[k])
    at = int(word & _BOX)
    where = int(pending.where[k])
    if is_below(level, at, int(word >> _FRACTION), int(drawn[0, k]), lambda: int(words(1)[0])):
        out[where] = _signed_numbers(found.bin[level : level + 1, at], word, bits)[0]
        return None
    word, at = drawn[1, k], int(drawn[1, k] & _BOX)
    if found.kind[0, at] != CORE:
        return where, int(word), 0
    out[where] = _signed_numbers(found.bin[:1, at], word, bits)[0]
    return None


def is_below(level: int, at: int, fraction: int, ordinate: int, more: Callable[[], int]) -> bool:
    """Whether a point of a wedge lies below the graph; `more` draws a further word of its bits."""
    found = tables()
    bin_, box = int(found.bin[level, at]), int(found.box[level, at])
    height = Decimal(float(found.height[level]))
    known = 0  # further bits of both coordinates
    while True:
        with localcontext(prec=known + 100) as context:  # of digits, far more than of bits
            slack = context.power(10, -known - 50)
            x = (bin_ << FRACTION_BITS + known) + fraction
            t = (box << 64 + known) + ordinate
            left, right = (Decimal(one) / 2 ** (FRACTION_BITS + known + BIN_BITS)
                           for one in (x, x + 1))  # fmt: skip
            low, high = (Decimal(one) / 2 ** (64 + known) * height for one in (t, t + 1))
            if high <= (-right * right / 2).exp() * (1 - slack):
                return True
            if low >= (-left * left / 2).exp() * (1 + slack):
                return False
        fraction, ordinate, known = (fraction << 64) | more(), (ordinate << 64) | more(), known + 64


def _append_late(pending: Pending, late: list[tuple[int, int, int]]) -> Pending:
    if not late:
        return pending
    where, word, level = zip(*late, strict=True)
    return Pending(
        np.append(pending.where, np.array(where, np.intp)),
        np.append(pending.word, np.array(word, np.uint64)),
        np.append(pending.level, np.array(level, np.intp)),
    )


# The grids that iterates and noise lie on: one unit for every step, a share of its noise.
#
# The noise of a step in parameters is step size times noise on gradients, rounded up.  Its unit is
# 2^-bits of it.  A step without noise has the unit of the next that has some.


@dataclass(frozen=True, eq=False)
class Grid:
    """Step sizes, noise and units of a run, or of several of which each goes on from the last.

    Noise on release is a step of size 0.
    """

    sizes: Array
    noises: Array
    bits: int

    @cached_property
    def units(self) -> Array:
        """The unit of each step."""
        return np.asarray(_this_or_the_next(self.noises) * 2.0**-self.bits)

    @property
    def least_noise(self) -> float:
        """The least that is not 0."""
        return float(self.noises[self.noises > 0.0].min())


def grid_of(runs: Sequence[TrainingRun], bits: int) -> Grid:
    """The grid of runs of which each goes on from what the one before published."""
    sizes: list[Array] = []
    noises: list[Array] = []
    for run in runs:
        size = np.broadcast_to(np.asarray(run.step_size, dtype=np.float64), run.steps)
        noise = np.broadcast_to(np.asarray(run.noise_std, dtype=np.float64), run.steps)
        sizes += [size]
        noises += [up(size * noise, ulps(1))]
        if run.release_noise_std > 0.0:
            sizes += [np.zeros(1)]
            noises += [np.array([run.release_noise_std])]
    return Grid(np.concatenate(sizes), np.concatenate(noises), bits)


def publications(runs: Sequence[TrainingRun]) -> list[int]:
    """The number of steps, noise on release included, until each run ends and publishes."""
    lengths = [run.steps + (run.release_noise_std > 0.0) for run in runs]
    return [int(end) for end in np.cumsum(lengths)]


def _this_or_the_next(noises: Array) -> Array:
    """Each noise or, if it is 0, the next that is not; if none follows, the last that is not."""
    known = np.flatnonzero(noises > 0.0)
    following = np.searchsorted(known, np.arange(noises.size))
    return np.asarray(noises[known[np.minimum(following, known.size - 1)]])


# Statistics published with noise that lies on the grid of the noise, exactly rounded.
#
# A statistic is rounded to a grid of 2^-40 of its noise, and the floor of the noise on that grid is
# added: what is published is the floor of a number with exact Gaussian noise.


def noisy(values: Array, noise_std: float, source: Randomness, *, largest: float) -> Array:
    """The values with noise, as numbers on its grid; none of them is above `largest`, publicly."""
    bits = release_bits(noise_std, largest)
    unit = noise_std * 2.0**-bits
    whole = np.rint(values / unit).astype(np.int64)
    # After the values are computed: what rounds them must not depend on it.
    return np.asarray(unit * (whole + source.rounded_normals(np.shape(values), bits)), np.float64)


def release_bits(noise_std: float, largest: float) -> int:
    """The number of bits by which the grid is finer than the noise; no such value overflows."""
    spare = WHOLE_BITS - math.ceil(math.log2(largest / noise_std + 16.0))
    if spare < LEAST_BITS:
        must_be = f"at least {largest * 2.0 ** (LEAST_BITS - WHOLE_BITS):g}, for so many examples"
        raise InvalidParameter("noise_std", noise_std, must_be=must_be)
    return min(BITS, spare)


def released_size(kind: str, features: int, classes: int) -> int:
    """The most numbers that a release of this kind has."""
    sizes = {
        MEAN: features + 1,
        OUTLIERS: len(OUTLIER_COUNTS),
        UNDECLARED: features,
        RATES: 3 * classes,
        INTERVALS: (features + 1) * (features + 4),  # two vectors and two halves of matrices
    }
    return sizes.get(kind, 1)


def released_error(release: Release, examples: int, size: int) -> float:
    """The most by which rounding and the grid move a statistic before noise is added."""
    largest = 2.0 * examples
    unit = release.noise_std * 2.0 ** -release_bits(release.noise_std, largest)
    exact = 4.0 * _UNIT_ROUNDOFF * largest + 0.5 * unit
    return up(exact * math.sqrt(size), 1e-6)


def project(point: Array, domain: Domain) -> None:
    """Bring a point into the domain around 0, in place."""
    if isinstance(domain, Ball):
        norm = float(np.linalg.norm(point))
        if norm > domain.diameter / 2:
            point *= domain.diameter / 2 / norm
