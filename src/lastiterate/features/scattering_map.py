r"""Normalised scattering features of images, with a proof that no row is longer than 1.

**The bound.** The d features of a row are divided into groups of g entries.  Let
:math:`\delta_i` be an entry of a group less the mean of the group, and :math:`f > 0` the variance
floor.  The feature is

.. math:: z_i = \frac{1}{\sqrt d} \frac{\delta_i}{\sqrt{\tfrac1g \sum_k \delta_k^2 + f}}, \qquad
          \sum_{i \in \text{group}} z_i^2 = \frac{g}{d} \frac{v}{v + f} \le \frac{g}{d},

where v is :math:`\tfrac1g \sum_k \delta_k^2`.  The sum over all d/g groups is at most 1, whatever
the image, and whatever the entries were before: no property of the scattering transform is used.
The mean of two such rows, as of an image and its mirror image, is not longer than the longer one.

**In floating point.** The proof holds for the deviations as they are stored in float64, whatever
their error.  Sum of squares, division, root and product are g + 6 roundings of float64, each of a
relative :math:`2^{-53}`, and the last is one to float32, of :math:`2^{-24}`.  (Numbers below the
normal range of float32 are rounded by at most :math:`2^{-150}`, which adds less than
:math:`\sqrt d \, 2^{-150}` to the norm.)  The mean of two rows is one more rounding to float32.
All features are scaled down by :math:`2^{-20}`, which exceeds the sum of these for any g below
:math:`2^{32}`.

**Opponent colours.** Red, green and blue of a photograph are nearly the same image.  Their sum and
the two contrasts that are orthogonal to it are not, and after normalisation all three count alike.

**Filters.** A Morlet wavelet of scale j and direction e is a plane wave of frequency
:math:`\xi = \tfrac34 \pi 2^{-j}` along e under a Gaussian of width :math:`\sigma = 0.8 \cdot 2^j`
along e and :math:`\sigma / s` across it, less as much of the Gaussian as makes its integral 0.
Its Fourier transform is real,

.. math:: \hat\psi(\omega) = g(\omega - \xi e) - \kappa g(\omega), \qquad
          g(\omega) = \exp\bigl(-\tfrac12 \sigma^2 (u^2 + v^2 / s^2)\bigr),

where u and v are the parts of :math:`\omega` along and across e.  On a grid of pixels the sum
over all frequencies that the grid cannot tell apart takes its place.  The low pass is a Gaussian
of width :math:`0.8 \cdot 2^{J-1}`, so it smooths rows and columns one after the other.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lastiterate import _check
from lastiterate._numerics.rounding import Array
from lastiterate.errors import InvalidParameter
from lastiterate.features.maps import FeatureMap, Floats, share_of_norm, without_huge_entries

_PIXELS_AT_ONCE = 1 << 15  # of all images of a block, so that intermediate results fit into a cache

_OPPONENTS = (  # weights of red, green and blue, to be divided by their norm
    (1.0, 1.0, 1.0),
    (1.0, 0.0, -1.0),
    (1.0, -2.0, 1.0),
)

_LARGEST_SIDE, _MOST_CHANNELS, _MOST_SCALES, _MOST_ANGLES = 4_096, 1_024, 6, 64
_WIDTH = 0.8  # of the Gaussian of the finest wavelet, in pixels
_FREQUENCY = 0.75 * np.pi
_ALIASES = range(-2, 3)  # multiples of 2 pi; what lies beyond is below 1e-20


@dataclass(frozen=True)
class ScatteringMap(FeatureMap):
    """The map of `Scattering2D`; rows are images, colour by colour unless `channels_last`."""

    shape: tuple[int, int]
    channels: int = 1
    scales: int = 2
    angles: int = 8
    groups: int | None = None
    variance_floor: float = 1e-5
    channels_last: bool = False
    opponent_colors: bool | None = None
    mirror: bool = False
    pixel_max: float = 1.0

    kind: ClassVar[str] = "scattering"

    def __post_init__(self) -> None:
        checked = {
            "shape": _checked_shape(self.shape),
            "channels": _check.count("channels", self.channels, at_least=1, at_most=_MOST_CHANNELS),
            "scales": _check.count("scales", self.scales, at_least=1, at_most=_MOST_SCALES),
            "angles": _check.count("angles", self.angles, at_least=2, at_most=_MOST_ANGLES),
            "variance_floor": _check.number(
                "variance_floor", self.variance_floor, at_least=1e-12, at_most=1e12
            ),
            "pixel_max": _check.number("pixel_max", self.pixel_max, at_least=1e-12, at_most=1e12),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "groups", self._checked_groups())
        if self.opponent_colors is None:
            object.__setattr__(self, "opponent_colors", self.channels == len(_OPPONENTS))
        for name in ("channels_last", "opponent_colors", "mirror"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidParameter(name, getattr(self, name), must_be="True or False")
        if self.opponent_colors and self.channels != len(_OPPONENTS):
            must_be = f"False unless there are {len(_OPPONENTS)} channels"
            raise InvalidParameter("opponent_colors", True, must_be=must_be)

    @property
    def input_width(self) -> int:
        return self.channels * math.prod(self.shape)

    @property
    def width(self) -> int:
        coarse = coarse_shape(self.shape, self.scales)
        return self.channels * self._channels_per_colour * math.prod(coarse)

    @property
    def block(self) -> int:
        padded = math.prod(side + 2 ** (self.scales + 1) for side in self.shape)
        return int(max(1, _PIXELS_AT_ONCE // (padded * self.channels)))

    @property
    def _channels_per_colour(self) -> int:
        return channel_count(self.scales, self.angles)

    def map_block(self, rows: Array) -> Floats:
        """The normalised scattering features of some images."""
        images = self._images(rows)
        features = self._features(images)
        if self.mirror:
            features += self._features(images[..., ::-1])
            features /= 2
        return features

    def _images(self, rows: Array) -> Floats:
        """Images of shape (rows, channels, height, width), in the colours that are scattered."""
        # Squares of brighter images would overflow, and features hardly depend on the scale.
        bright = (without_huge_entries(rows, self.pixel_max) / self.pixel_max).astype(np.float32)
        if self.channels_last:
            images = np.moveaxis(bright.reshape(-1, *self.shape, self.channels), 3, 1)
        else:
            images = bright.reshape(-1, self.channels, *self.shape)
        return _opponent_images(images) if self.opponent_colors else images

    def _features(self, images: Floats) -> Floats:
        maps = scatter(images.reshape(-1, *self.shape), self.scales, self.angles)
        assert self.groups is not None
        return self._normalise(maps.reshape(len(images), self.channels * self.groups, -1))

    def _normalise(self, groups: Floats) -> Floats:
        """The features by row: in each group of mean 0 and variance below 1, then divided."""
        deviations = groups.astype(np.float64)
        deviations -= deviations.mean(axis=2, keepdims=True)
        variances = np.einsum("rgk,rgk->rg", deviations, deviations) / groups.shape[2]
        factors = share_of_norm(self.width) / np.sqrt(variances + self.variance_floor)
        deviations *= factors[..., np.newaxis]
        return deviations.reshape(len(groups), -1).astype(np.float32)

    def _checked_groups(self) -> int:
        maps = self._channels_per_colour
        if self.groups is None:
            return max(one for one in range(1, maps + 1) if maps % one == 0 and maps // one >= 3)
        groups = _check.count("groups", self.groups, at_least=1, at_most=maps)
        if maps % groups:
            among = ", ".join(str(one) for one in range(1, maps + 1) if maps % one == 0)
            must_be = f"a divisor of the {maps} channels: {among}"
            raise InvalidParameter("groups", self.groups, must_be=must_be)
        return groups


def _checked_shape(given: Any) -> tuple[int, int]:
    must_be = "a pair of sides, (height, width), as in (28, 28)"
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise InvalidParameter("shape", given, must_be=must_be)
    height, width = (
        _check.count("shape", side, at_least=1, at_most=_LARGEST_SIDE) for side in given
    )
    return height, width


def _opponent_images(images: Floats) -> Floats:
    """The orthonormal sum and contrasts of the three colours of images."""
    red, green, blue = (images[:, colour] for colour in range(3))
    return np.stack(
        [
            (a * red + b * green + c * blue) / np.float32(math.hypot(a, b, c))
            for a, b, c in (map(np.float32, weights) for weights in _OPPONENTS)
        ],
        axis=1,
    )


# The two-dimensional scattering transform of images, orders 0 to 2, in single precision.


def channel_count(scales: int, angles: int) -> int:
    """The number of channels: 1, one for each wavelet, one for each pair of a finer and a coarser.

    Examples
    --------
    >>> channel_count(scales=2, angles=8)
    81
    """
    return 1 + scales * angles + angles**2 * (scales * (scales - 1) // 2)


def coarse_shape(shape: tuple[int, int], scales: int) -> tuple[int, int]:
    """The height and width of a channel, 2^scales times less than those of the image, rounded up.

    Examples
    --------
    >>> coarse_shape((28, 30), scales=2)
    (7, 8)
    """
    height, width = (-(-side // 2**scales) for side in shape)
    return height, width


def scatter(images: Floats, scales: int, angles: int) -> Floats:
    """The channels of images of shape (count, height, width): the moduli of wavelets, smoothed.

    The first channel is the smoothed image.  One for each wavelet follows, then one for each pair
    of wavelets, the second applied to the modulus of the first.  Borders reflect the image.
    """
    border = 2**scales
    coarse = coarse_shape((images.shape[1], images.shape[2]), scales)
    padded = (border * (coarse[0] + 2), border * (coarse[1] + 2))
    bank = filter_bank(padded, scales, angles)
    rows, columns = (_reflected_pixels(images.shape[k + 1], padded[k], border) for k in (0, 1))
    image = images[:, rows[:, np.newaxis], columns]
    out = np.empty((len(images), channel_count(scales, angles), *coarse), dtype=np.float32)
    out[:, 0] = _smooth(image, bank, 0)
    spectrum = _spectrum(image)[:, np.newaxis]
    begun = 1 + scales * angles
    for scale in range(scales):
        moduli = _moduli(spectrum, bank.first[scale], 2**scale)
        out[:, 1 + scale * angles :][:, :angles] = _smooth(moduli, bank, scale)
        spectra = _spectrum(moduli) if scale + 1 < scales else None
        for coarser in range(scale + 1, scales):
            assert spectra is not None
            for angle in range(angles):
                both = _moduli(
                    spectra[:, angle, np.newaxis],
                    bank.second[scale, coarser],
                    2 ** (coarser - scale),
                )
                out[:, begun : begun + angles] = _smooth(both, bank, coarser)
                begun += angles
    return out


def _reflected_pixels(side: int, padded: int, border: int) -> NDArray[np.intp]:
    """The pixel that stands at each position of a padded line."""
    return np.pad(np.arange(side), (border, padded - side - border), mode="reflect")


def _spectrum(images: Floats) -> Floats:
    """The Fourier transform, real and imaginary parts side by side."""
    from scipy.fft import fft2  # which helps of commands need not wait for

    found = fft2(images)
    return np.asarray(found).view(np.float32)


def _moduli(spectrum: Floats, filters: Floats, stride: int) -> Floats:
    """The moduli of filtered images at every `stride`-th pixel; `filters` are per stride^2."""
    from scipy.fft import ifft2

    rows, columns = spectrum.shape[-2] // stride, spectrum.shape[-1] // stride
    total: Floats | None = None
    for i in range(stride):
        for j in range(stride):
            part = (..., slice(i * rows, (i + 1) * rows), slice(j * columns, (j + 1) * columns))
            product = spectrum[part] * filters[part]
            total = product if total is None else np.add(total, product, out=total)
    assert total is not None
    found = np.asarray(ifft2(total.view(np.complex64), overwrite_x=True))
    parts = found.view(np.float32)
    np.multiply(parts, parts, out=parts)
    squares = parts[..., 0::2] + parts[..., 1::2]
    return np.asarray(np.sqrt(squares, out=squares))


def _smooth(images: Floats, bank: FilterBank, grid: int) -> Floats:
    """Images on a grid, smoothed, at the pixels that are kept."""
    down, across = bank.smoothing[grid]
    *lead, rows, columns = images.shape
    narrow = images.reshape(-1, columns) @ across
    turned = narrow.reshape(-1, rows, across.shape[1]).swapaxes(1, 2).reshape(-1, rows)
    found = (turned @ down).reshape(*lead, across.shape[1], down.shape[1])
    return np.swapaxes(found, -1, -2)


# The filters, as arrays that are ready to multiply with.


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
        tuple(_double_numbers(one / 4**scale) for scale, one in enumerate(spectra)),
        {(i, j): _double_numbers(_fold_spectra(spectra[j], 2**i) / 4 ** (j - i)) for i, j in pairs},
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


def _fold_spectra(spectra: Array, stride: int) -> Array:
    """The spectra of the filters on every `stride`-th pixel, times stride^2."""
    count, rows, columns = spectra.shape
    split = spectra.reshape(count, stride, rows // stride, stride, columns // stride)
    return np.asarray(split.sum(axis=(1, 3)))


def _double_numbers(spectra: Array) -> Floats:
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
