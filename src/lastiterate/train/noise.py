r"""The source of the noise and of the secret order of examples.

By default both come from the keystream of AES-256 in counter mode, keyed by the operating system
for every training anew: whoever sees the model cannot predict it.  A generator refuses to be copied
or pickled, or used after a fork, so that the same noise is never used twice.  (A snapshot of a
whole virtual machine that is resumed twice during one training cannot be noticed.)

Noise is the floor of a Gaussian number on a grid, exactly (`rounded_normal`).
"""

from __future__ import annotations

import math
import os
import secrets
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from lastiterate import _check
from lastiterate.errors import InvalidParameter, LastIterateError, MissingExtra
from lastiterate.train.rounded_normal import rounded_normals

Words = NDArray[np.uint64]
Order = NDArray[np.intp]

SECURE = "secure: AES-256-CTR keyed by the operating system"
SHARED = "secure: AES-256-CTR under a key that several processes share"
REPRODUCIBLE = "reproducible: not private against someone who knows the seed"
_KEY_BYTES, _COUNTER_BYTES = 32, 16


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


def randomness(random_state: Any) -> Randomness:
    """Secure for None; reproducible for a seed or a numpy generator."""
    if random_state is None:
        return Randomness()
    if isinstance(random_state, np.random.RandomState):
        return Randomness(SeededBits(int(random_state.randint(2**31))))
    if isinstance(random_state, np.random.Generator):
        return Randomness(SeededBits(int(random_state.integers(2**53))))
    return Randomness(SeededBits(_check.count("random_state", random_state, at_least=0)))
