r"""Filters of the two-dimensional scattering transform, as arrays that are ready to multiply with.

A Morlet wavelet of scale j and direction e is a plane wave of frequency
:math:`\xi = \tfrac34 \pi 2^{-j}` along e under a Gaussian of width :math:`\sigma = 0.8 \cdot 2^j`
along e and :math:`\sigma / s` across it, less as much of the Gaussian as makes its integral 0.  Its
Fourier transform is real,

.. math:: \hat\psi(\omega) = g(\omega - \xi e) - \kappa g(\omega), \qquad
          g(\omega) = \exp\bigl(-\tfrac12 \sigma^2 (u^2 + v^2 / s^2)\bigr),

where u and v are the parts of :math:`\omega` along and across e.  On a grid of pixels the sum over
all frequencies that the grid cannot tell apart takes its place.  The low pass is a Gaussian of
width :math:`0.8 \cdot 2^{J-1}`, so it smooths rows and columns one after the other.
"""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from lastiterate._numerics.rounding import Array
from lastiterate.features.feature_map import Floats

_WIDTH = 0.8  # of the Gaussian of the finest wavelet, in pixels
_FREQUENCY = 0.75 * np.pi
_ALIASES = range(-2, 3)  # multiples of 2 pi; what lies beyond is below 1e-20


class FilterBank(NamedTuple):
    """The filters of one shape of images, of `scales` scales and `angles` directions each.

    Spectra have every number twice, once for the real and once for the imaginary part of what they
    are multiplied with.  Those in `second[i, j]` are of scale j, on the grid of scale i.
    """

    first: tuple[Floats, ...]  # by scale
    second: dict[tuple[int, int], Floats]
    smoothing: tuple[tuple[Floats, Floats], ...]  # by grid: of columns, and of rows


@lru_cache(maxsize=8)
def filter_bank(shape: tuple[int, int], scales: int, angles: int) -> FilterBank:
    """The filters for padded images of this shape, whose sides are multiples of 2^scales."""
    spectra = [_wavelets(shape, scale, angles) for scale in range(scales)]
    pairs = itertools.combinations(range(scales), 2)
    return FilterBank(
        tuple(_doubled(one / 4**scale) for scale, one in enumerate(spectra)),
        {(i, j): _doubled(_folded(spectra[j], 2**i) / 4 ** (j - i)) for i, j in pairs},
        tuple(
            (_low_pass(shape[0], scales, grid), _low_pass(shape[1], scales, grid))
            for grid in range(scales)
        ),
    )


def _wavelets(shape: tuple[int, int], scale: int, angles: int) -> Array:
    """The spectra of the wavelets of a scale, by direction."""
    width, frequency = _WIDTH * 2**scale, _FREQUENCY / 2**scale
    slant = min(1.0, 4.0 / angles)
    down, across = (np.asarray(2.0 * np.pi * np.fft.fftfreq(side), float) for side in shape)
    spectra = np.empty((angles, *shape))
    for k, angle in enumerate(np.pi * np.arange(angles) / angles):
        direction = np.array([np.cos(angle), np.sin(angle)])
        wave, hull = (
            _gaussians(down, across, direction, centre, width, slant) for centre in (frequency, 0.0)
        )
        spectra[k] = wave - wave[0, 0] / hull[0, 0] * hull
    return spectra


def _gaussians(
    down: Array, across: Array, direction: Array, centre: float, width: float, slant: float
) -> Array:
    """The Gaussian around `centre` along the direction, summed over all aliases."""
    total = np.zeros((down.size, across.size))
    for i, j in itertools.product(_ALIASES, repeat=2):
        one = down[:, np.newaxis] + 2.0 * np.pi * i
        other = across[np.newaxis, :] + 2.0 * np.pi * j
        along = one * direction[0] + other * direction[1] - centre
        aside = other * direction[0] - one * direction[1]
        total += np.exp(-0.5 * width**2 * (along**2 + (aside / slant) ** 2))
    return total


def _folded(spectra: Array, stride: int) -> Array:
    """The spectra of the filters on every `stride`-th pixel, times stride^2."""
    count, rows, columns = spectra.shape
    split = spectra.reshape(count, stride, rows // stride, stride, columns // stride)
    return np.asarray(split.sum(axis=(1, 3)))


def _doubled(spectra: Array) -> Floats:
    return np.repeat(spectra, 2, axis=-1).astype(np.float32)


def _low_pass(side: int, scales: int, grid: int) -> Floats:
    """A matrix that smooths a line of the grid and keeps every 2^scales-th pixel inside borders.

    The border is 2^scales pixels wide on both sides.
    """
    coarse, stride = side // 2**grid, 2 ** (scales - grid)
    width = _WIDTH * 2.0 ** (scales - 1 - grid)
    kept = stride * np.arange(1, coarse // stride - 1)
    away = np.arange(coarse)[:, np.newaxis] - kept
    wrapped = sum(np.exp(-0.5 * ((away + coarse * k) / width) ** 2) for k in _ALIASES)
    return np.asarray(wrapped / (np.sqrt(2.0 * np.pi) * width), dtype=np.float32)
