"""The two-dimensional scattering transform of images, orders 0 to 2, in single precision."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lastiterate.features.scattering_filters import FilterBank, Floats, filter_bank


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
    rows, columns = (_reflected(images.shape[k + 1], padded[k], border) for k in (0, 1))
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


def _reflected(side: int, padded: int, border: int) -> NDArray[np.intp]:
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
