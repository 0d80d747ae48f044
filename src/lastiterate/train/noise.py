r"""The source of the noise and of the secret order of examples.

By default both come from the keystream of AES-256 in counter mode, keyed by the operating system
for every training anew: whoever sees the model cannot predict it.  A generator refuses to be copied
or pickled, or used after a fork, so that the same noise is never used twice.  (A snapshot of a
whole virtual machine that is resumed twice during one training cannot be noticed.)

**Floating point.**  Noise is drawn in float64 by Box and Muller's method from 64-bit uniforms, cut
off only beyond 9 standard deviations, where less than 2^-63 of the mass lies.  Its values are not
those of an ideal Gaussian: some floats cannot occur.  What is done about that: the published
parameters hold the sum of the noise of all steps and, for the release, of four independent
draws, and are rounded to a grid 2^-24 as fine as the noise.  No proof is claimed that this
makes the guarantee hold for floats as it does for real numbers.
"""

from __future__ import annotations

import math
import os
import secrets
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from lastiterate import _check
from lastiterate._numerics.arrays import Array
from lastiterate.errors import LastIterateError, MissingExtra
from lastiterate.train.compiled import compiled
from lastiterate.train.rounded_normal import rounded_normals

Words = NDArray[np.uint64]
Order = NDArray[np.intp]

SECURE = "secure: AES-256-CTR keyed by the operating system"
REPRODUCIBLE = "reproducible: not private against someone who knows the seed"
_RELEASE_DRAWS = 4


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
        try:
            from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
        except ImportError as error:
            raise MissingExtra("secure noise", "cryptography", extra="sklearn") from error
        key, counter = secrets.token_bytes(32), secrets.token_bytes(16)
        self._stream = Cipher(algorithms.AES256(key), modes.CTR(counter)).encryptor()
        self._process = os.getpid()

    def words(self, count: int) -> Words:
        if os.getpid() != self._process:
            raise DuplicatedRandomness("used after a fork")
        return np.frombuffer(self._stream.update(bytes(8 * count)), dtype=np.uint64)

    def __reduce__(self) -> NoReturn:
        raise DuplicatedRandomness("copied or pickled")


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

    def normal(self, shape: tuple[int, ...]) -> Array:
        """Independent standard normal numbers."""
        return np.asarray(self.normals(shape, 1)[0])

    def normals(self, shape: tuple[int, ...], count: int) -> Array:
        """The stacked results of `count` successive calls of `normal`."""
        size = math.prod(shape)
        half = (size + 1) // 2
        words = self._bits.words(count * 2 * half).view(np.int64).reshape(count, 2 * half)
        normal = np.empty((count, 2 * half))
        fast = compiled("normal", words.size)
        if fast is None:
            _box_muller(words[:, :half], words[:, half:], normal)
        else:
            fast.normals(words, normal)
        return normal[:, :size].reshape(count, *shape)

    def release_normal(self, shape: tuple[int, ...]) -> Array:
        """Standard normal numbers, each from the sum of independent ones."""
        draws = self.normal((_RELEASE_DRAWS, *shape))
        return np.asarray(draws.sum(axis=0) / _RELEASE_DRAWS**0.5)

    def rounded_normals(self, shape: tuple[int, ...], bits: int) -> NDArray[np.int64]:
        """The floors of 2^bits N for independent standard normal N."""
        return rounded_normals(self._bits.words, math.prod(shape), bits).reshape(shape)

    def uniform(self) -> float:
        """A number in (0, 1), or 1."""
        return (int(self._bits.words(1)[0]) + 0.5) * 2.0**-64

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
        # Rounded up to a multiple of 2^-64.
        threshold = -(-(numerator << 64) // denominator)
        if threshold >= 1 << 64:
            return np.arange(count)
        return np.flatnonzero(self._bits.words(count) < np.uint64(threshold))

    def each_to_a_position(
        self, count: int, positions: int, numerator: int, denominator: int
    ) -> Order:
        """`count` times a place, independently: each with a probability that is a ratio.

        Where these do not add up to 1, none, which is -1.
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


def _box_muller(radii: NDArray[np.int64], angles: NDArray[np.int64], out: Array) -> None:
    # |k + 1/2| 2^-63 is uniform on (0, 1), to 63 bits.
    radius = radii.astype(np.float64)
    radius += 0.5
    np.abs(radius, out=radius)
    radius *= 2.0**-63
    np.log(radius, out=radius)
    radius *= -2.0
    np.sqrt(radius, out=radius)
    # Cosine and sine of an angle from the tangent of its half, the fastest to compute.
    tangent = angles.astype(np.float64)
    tangent *= np.pi / 2.0**64
    np.tan(tangent, out=tangent)
    square = tangent * tangent
    radius /= 1.0 + square
    half = radius.shape[1]
    np.multiply(radius, 1.0 - square, out=out[:, :half])
    np.multiply(radius, 2.0 * tangent, out=out[:, half:])


def randomness(random_state: Any) -> Randomness:
    """Secure for None; reproducible for a seed or a numpy generator."""
    if random_state is None:
        return Randomness()
    if isinstance(random_state, np.random.RandomState):
        return Randomness(SeededBits(int(random_state.randint(2**31))))
    if isinstance(random_state, np.random.Generator):
        return Randomness(SeededBits(int(random_state.integers(2**53))))
    return Randomness(SeededBits(_check.count("random_state", random_state, at_least=0)))
