"""Scattering features of images."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lastiterate.errors import InvalidParameter
from lastiterate.features.fixed_features import FixedFeatures
from lastiterate.features.scattering_map import ScatteringMap


class Scattering2D(FixedFeatures):
    r"""Scattering features of images: a fixed map, on which a linear model sees edges and textures.

    Moduli of wavelets of several scales and directions, and of wavelets of these moduli, are
    smoothed and kept on a coarser grid.  Then every group of channels is brought to mean 0 and
    variance at most 1, and every row is divided by the square root of its length.  Nothing is
    learned, so this costs no privacy.

    No row of features is longer than `norm_bound`, which is 1.  Let v be the variance of a group of
    g of the d features of an image, before it is normalised, and f > 0 the `variance_floor`.  The
    squares of the group's features add up to :math:`(g/d) \, v/(v + f) \le g/d`, so those of all
    groups to 1 at most.  That holds for every image, and so for the mean of an image's features and
    its mirror image's; all features are scaled down by
    :math:`2^{-20}`, which is more than all roundings together, so it holds for the computed numbers
    as well.

    Parameters
    ----------
    shape : tuple of int, optional
        Height and width of the images.  By default rows of a square number of pixels are square
        images, and others are one pixel high.
    channels : int, default=1
        The number of colours.
    scales : int, default=2
        The number of scales of wavelets; every one of them halves height and width of the result.
    angles : int, default=8
        The number of directions of the wavelets.
    groups : int, optional
        The number of groups of channels for each colour, a divisor of the number of channels.  By
        default groups of three channels, which are 27 of the 81 channels at 2 scales and 8 angles;
        or of as few more as divide them.
    variance_floor : float, default=1e-5
        A constant that is added to the variance of every group.
    channels_last : bool, default=False
        Whether rows have the colours of a pixel side by side, and not one colour after the other.
        Arrays of four dimensions show it by their shape.
    opponent_colors : bool, optional
        Whether three colours are replaced by their sum and two contrasts.  By default images of
        three channels are.
    pixel_max : float, default=1.0
        The largest value that a pixel can have: 255 for bytes, 1 for numbers from 0 to 1.  An image
        with a larger one is scaled down to it.  It must not come from the examples, and what the
        array stores (bytes, floats) decides nothing.
    mirror : bool, default=False
        Whether features are the mean of those of the image and of its mirror image, left and right
        exchanged.  This helps if both have the same class, as animals do and letters do not.  It
        takes twice the time.

    Attributes
    ----------
    n_features_in_ : int
        The number of columns.

    Examples
    --------
    >>> import numpy as np
    >>> from lastiterate.features import Scattering2D
    >>> images = np.random.default_rng(0).integers(256, size=(5, 28, 28), dtype=np.uint8)
    >>> features = Scattering2D((28, 28), pixel_max=255).fit_transform(images)
    >>> features.shape, features.dtype, bool((np.linalg.norm(features, axis=1) <= 1.0).all())
    ((5, 3969), dtype('float32'), True)

    Where the features do not fit into memory:

    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "rows.f4")
    ...     mapped = Scattering2D((28, 28), pixel_max=255).transform_to(images, path)
    ...     same = np.array_equal(mapped, features)
    ...     del mapped
    >>> same
    True
    """

    def __init__(
        self,
        shape: Any = None,
        channels: int = 1,
        scales: int = 2,
        angles: int = 8,
        groups: int | None = None,
        *,
        variance_floor: float = 1e-5,
        channels_last: bool = False,
        opponent_colors: bool | None = None,
        pixel_max: float = 1.0,
        mirror: bool = False,
    ) -> None:
        self.shape = shape
        self.channels = channels
        self.scales = scales
        self.angles = angles
        self.groups = groups
        self.variance_floor = variance_floor
        self.channels_last = channels_last
        self.opponent_colors = opponent_colors
        self.pixel_max = pixel_max
        self.mirror = mirror

    def feature_map(self, columns: int) -> ScatteringMap:
        """The map of images of this many values.

        Parameters
        ----------
        columns : int
            The number of columns.

        Returns
        -------
        ScatteringMap
            The map, with all parameters.

        Raises
        ------
        InvalidParameter
            If a parameter is outside its range, or images have another number of values.
        """
        shape = _default_shape(columns, self.channels) if self.shape is None else self.shape
        found = ScatteringMap(
            shape,
            self.channels,
            self.scales,
            self.angles,
            self.groups,
            self.variance_floor,
            self.channels_last,
            self.opponent_colors,
            self.mirror,
            self.pixel_max,
        )
        if found.input_width != columns:
            sides = " x ".join(map(str, (*found.shape, found.channels)))
            must_be = f"images of {sides} = {found.input_width} values"
            raise InvalidParameter("X", must_be=must_be, found=f"rows of {columns}")
        return found

    def _flat(self, X: Any) -> Any:
        if getattr(X, "ndim", 2) == 3:
            return X.reshape(len(X), -1)
        if getattr(X, "ndim", 2) != 4 or self.shape is None:
            return X
        first, last = (self.channels, *self.shape), (*self.shape, self.channels)
        given = tuple(X.shape[1:])
        if given not in (first, last):
            must_be = f"images of shape {first} or {last}"
            raise InvalidParameter("X", must_be=must_be, found=f"images of shape {given}")
        expected, other = (last, first) if self.channels_last else (first, last)
        if given != expected and given == other:
            X = np.moveaxis(X, 1, 3) if self.channels_last else np.moveaxis(X, 3, 1)
        return X.reshape(len(X), -1)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = self.shape is None  # else only rows of one width
        tags.input_tags.three_d_array = True
        return tags


def _default_shape(columns: int, channels: Any) -> tuple[int, int]:
    """A square if the pixels make one, else a line."""
    pixels = columns // channels if isinstance(channels, int) and channels > 0 else columns
    side = math.isqrt(pixels)
    return (side, side) if side * side == pixels and side > 0 else (1, max(pixels, 1))
