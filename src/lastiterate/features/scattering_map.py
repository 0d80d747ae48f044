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
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from lastiterate import _check
from lastiterate._numerics.rounding import Array
from lastiterate.errors import InvalidParameter
from lastiterate.features.feature_map import FeatureMap, Floats, share_of_norm, without_huge_entries
from lastiterate.features.scattering_transform import channel_count, coarse_shape, scatter

_PIXELS = 1 << 15  # of all images of a block, so that intermediate results fit into a cache
_OPPONENTS = (  # weights of red, green and blue, to be divided by their norm
    (1.0, 1.0, 1.0),
    (1.0, 0.0, -1.0),
    (1.0, -2.0, 1.0),
)
_LARGEST_SIDE, _MOST_CHANNELS, _MOST_SCALES, _MOST_ANGLES = 4_096, 1_024, 6, 64


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
            "shape": _shape(self.shape),
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
        return self.channels * self._maps * math.prod(coarse)

    @property
    def block(self) -> int:
        padded = math.prod(side + 2 ** (self.scales + 1) for side in self.shape)
        return int(max(1, _PIXELS // (padded * self.channels)))

    @property
    def _maps(self) -> int:
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
        return _opponents(images) if self.opponent_colors else images

    def _features(self, images: Floats) -> Floats:
        maps = scatter(images.reshape(-1, *self.shape), self.scales, self.angles)
        assert self.groups is not None
        return self._normalised(maps.reshape(len(images), self.channels * self.groups, -1))

    def _normalised(self, groups: Floats) -> Floats:
        """The features by row: in each group of mean 0 and variance below 1, then divided."""
        deviations = groups.astype(np.float64)
        deviations -= deviations.mean(axis=2, keepdims=True)
        variances = np.einsum("rgk,rgk->rg", deviations, deviations) / groups.shape[2]
        factors = share_of_norm(self.width) / np.sqrt(variances + self.variance_floor)
        deviations *= factors[..., np.newaxis]
        return deviations.reshape(len(groups), -1).astype(np.float32)

    def _checked_groups(self) -> int:
        maps = self._maps
        if self.groups is None:
            return max(one for one in range(1, maps + 1) if maps % one == 0 and maps // one >= 3)
        groups = _check.count("groups", self.groups, at_least=1, at_most=maps)
        if maps % groups:
            among = ", ".join(str(one) for one in range(1, maps + 1) if maps % one == 0)
            must_be = f"a divisor of the {maps} channels: {among}"
            raise InvalidParameter("groups", self.groups, must_be=must_be)
        return groups


def _shape(given: Any) -> tuple[int, int]:
    must_be = "a pair of sides, (height, width), as in (28, 28)"
    if not isinstance(given, (tuple, list)) or len(given) != 2:
        raise InvalidParameter("shape", given, must_be=must_be)
    height, width = (
        _check.count("shape", side, at_least=1, at_most=_LARGEST_SIDE) for side in given
    )
    return height, width


def _opponents(images: Floats) -> Floats:
    """The orthonormal sum and contrasts of the three colours of images."""
    red, green, blue = (images[:, colour] for colour in range(3))
    return np.stack(
        [
            (a * red + b * green + c * blue) / np.float32(math.hypot(a, b, c))
            for a, b, c in (map(np.float32, weights) for weights in _OPPONENTS)
        ],
        axis=1,
    )
