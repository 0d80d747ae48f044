"""Normal numbers by Box and Muller's method, as `train.noise` has it, several at a time."""

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

from lastiterate._numerics.arrays import Array
from lastiterate.train.compiled.elementary import COMPILED, log

_QUARTER = 62  # of a turn, in bits of a word
_S3, _S5, _S7, _S9, _S11, _S13, _S15 = (
    (-1.0) ** (k // 2) / math.factorial(k) for k in range(3, 16, 2)
)
_C4, _C6, _C8, _C10, _C12, _C14, _C16 = (
    (-1.0) ** (k // 2) / math.factorial(k) for k in range(4, 17, 2)
)


@njit(**COMPILED)
def normals(words: NDArray[np.int64], out: Array) -> None:
    """As many as there are words, row by row: radii from the first half of each."""
    half = words.shape[1] // 2
    for row in range(words.shape[0]):
        _of_row(words[row, :half], words[row, half:], out[row, :half], out[row, half:])


@njit(**COMPILED)
def _of_row(
    radii: NDArray[np.int64], angles: NDArray[np.int64], cosines: Array, sines: Array
) -> None:
    for k in range(radii.size):
        # |k + 1/2| 2^-63 is uniform on (0, 1), to 63 bits.
        cosines[k] = np.sqrt(-2.0 * log(abs(radii[k] + 0.5) * 2.0**-63))
    for k in range(radii.size):
        quarters = (angles[k] + (1 << (_QUARTER - 1))) >> _QUARTER
        x = (angles[k] - (quarters << _QUARTER)) * (math.pi * 2.0**-63)
        z = x * x
        odd = ((_S15 * z + _S13) * z + _S11) * z + _S9
        odd = x + x * z * (((odd * z + _S7) * z + _S5) * z + _S3)
        even = ((_C16 * z + _C14) * z + _C12) * z + _C10
        even = (((even * z + _C8) * z + _C6) * z + _C4) * z * z
        even = 1.0 - (0.5 * z - even)
        turned = (quarters & 1) == 1
        radius = cosines[k]
        cosine = odd if turned else even
        sine = even if turned else odd
        sines[k] = radius * (-sine if (quarters & 2) == 2 else sine)
        cosines[k] = radius * (-cosine if ((quarters + 1) & 2) == 2 else cosine)
