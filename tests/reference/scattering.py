"""Scattering by the book: every convolution a sum over pixels, in double precision.

Wavelets are sampled in space, wrapped around the padded image, and convolved with it one pixel at a
time; nothing is transformed, folded or separated.
"""

import itertools

import numpy as np

WIDTH, FREQUENCY = 0.8, 0.75 * np.pi


def gabor(shape, width, angle, frequency, slant):
    """A wave under a Gaussian of integral 1, wrapped around a torus of this shape."""
    total = np.zeros(shape, dtype=complex)
    for wraps in itertools.product(range(-4, 5), repeat=2):
        y, x = (np.arange(side) + wrap * side for side, wrap in zip(shape, wraps, strict=True))
        y, x = np.meshgrid(y, x, indexing="ij")
        along, aside = (
            y * np.cos(angle) + x * np.sin(angle), x * np.cos(angle) - y * np.sin(angle)
        )  # fmt: skip
        envelope = np.exp(-(along**2 + (slant * aside) ** 2) / (2 * width**2))
        total += envelope * np.exp(1j * frequency * along)
    return total * slant / (2 * np.pi * width**2)


def morlet(shape, scale, angle, slant):
    arguments = WIDTH * 2**scale, angle
    wave = gabor(shape, *arguments, FREQUENCY / 2**scale, slant)
    hull = gabor(shape, *arguments, 0.0, slant)
    return wave - wave.sum() / hull.sum() * hull


def convolved(image, kernel, stride):
    """The circular convolution at every `stride`-th pixel, summed pixel by pixel."""
    out = np.empty((image.shape[0] // stride, image.shape[1] // stride), dtype=complex)
    for i, j in np.ndindex(*out.shape):
        moved = np.roll(kernel[::-1, ::-1], (i * stride + 1, j * stride + 1), axis=(0, 1))
        out[i, j] = (image * moved).sum()
    return out


def channels(image, scales, angles):
    """All channels of one image, in the order of the orders, then scales, then directions."""
    border, slant = 2**scales, min(1.0, 4.0 / angles)
    right = [(-side) % border + border for side in image.shape]
    padded = np.pad(image.astype(float), [(border, r) for r in right], mode="reflect")
    low = gabor(padded.shape, WIDTH * 2 ** (scales - 1), 0.0, 0.0, 1.0)
    turns = [np.pi * k / angles for k in range(angles)]
    waves = [
        [morlet(padded.shape, scale, turn, slant) for turn in turns] for scale in range(scales)
    ]

    def smoothed(field, grid):
        coarse = low[:: 2**grid, :: 2**grid] * 4**grid
        found = convolved(field, coarse, 2 ** (scales - grid)).real
        return found[1:-1, 1:-1]

    zeroth = [smoothed(padded, 0)]
    first, second = [], {}
    for i in range(scales):
        for a, wave in enumerate(waves[i]):
            field = np.abs(convolved(padded, wave, 2**i))
            first.append(smoothed(field, i))
            for j in range(i + 1, scales):
                for b, coarser in enumerate(waves[j]):
                    kernel = coarser[:: 2**i, :: 2**i] * 4**i
                    both = np.abs(convolved(field, kernel, 2 ** (j - i)))
                    second[i, j, a, b] = smoothed(both, j)
    return np.array([*zeroth, *first, *(second[key] for key in sorted(second))])


def normalised(maps, groups, floor):
    """One colour's or several colours' channels as a row, group by group."""
    parts = np.split(maps.reshape(-1), groups)
    found = [(part - part.mean()) / np.sqrt(part.var() + floor) for part in parts]
    return np.concatenate(found) / np.sqrt(maps.size)
