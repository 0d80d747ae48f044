"""Transformers of fixed features: scikit-learn's interface to the maps."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import fields
from pathlib import Path
from typing import Any, Self

import numpy as np
from scipy import sparse

from lastiterate.errors import InvalidParameter, InvalidType, MissingExtra
from lastiterate.features.maps import (
    PUBLIC_NAMES,
    BinsMap,
    FeatureMap,
    Floats,
    FourierMap,
    QuadraticMap,
)
from lastiterate.features.scattering_map import ScatteringMap
from lastiterate.tables.plain_rows import plain_rows, validated
from lastiterate.train.discreet import DiscreetTransformer, discreet, discreetly, is_dask

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
except ImportError as error:
    raise MissingExtra("lastiterate.features", "scikit-learn", extra="sklearn") from error


class FixedFeatures(
    DiscreetTransformer,
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]  # scikit-learn has no types
    TransformerMixin,  # type: ignore[misc]
    BaseEstimator,  # type: ignore[misc]
):
    """Base class of transformers that learn nothing but the number of columns."""

    @abstractmethod
    def feature_map(self, columns: int) -> FeatureMap:
        """The map of rows that have this many columns.

        Parameters
        ----------
        columns : int
            The number of columns.

        Returns
        -------
        FeatureMap
            The map, with all parameters.

        Examples
        --------
        >>> from lastiterate.features import QuadraticSketch
        >>> QuadraticSketch(8).feature_map(columns=3).as_record()["components"]
        8
        """

    @property
    def norm_bound(self) -> float:
        """The largest norm of a row of features; estimators in a pipeline take it over."""
        return FeatureMap.norm_bound

    @discreet
    def fit(self, X: Any, y: Any = None) -> Self:
        """Store the number of columns; nothing else of the rows is used.

        Parameters
        ----------
        X : array
            Rows.
        y : optional
            Ignored.

        Returns
        -------
        self
            The transformer.

        Raises
        ------
        InvalidParameter, InvalidType
            If a parameter is outside its range, or rows do not fit to it.

        Examples
        --------
        >>> from lastiterate.features import QuadraticSketch
        >>> QuadraticSketch(8).fit([[1.0, 0.5]]).n_features_in_
        2
        """
        del y
        rows = None
        if is_dask(X):
            self.n_features_in_ = int(np.prod(X.shape[1:]))
        else:
            rows = self._rows(X, reset=True)
        mapped = self.feature_map(self.n_features_in_)
        if rows is not None:
            mapped.check_finite(rows)
        self._n_features_out = mapped.width
        return self

    @discreet
    def transform(self, X: Any, out: Any = None) -> Any:
        """The features of rows, each of which depends on its row alone.

        Parameters
        ----------
        X : array, shape (rows, columns)
            The rows, which must be finite; a `numpy.memmap` is read block by block.
        out : float32 array, shape (rows, features), optional
            Memory for the features, such as a `numpy.memmap` of mode "r+".

        Returns
        -------
        float32 array, shape (rows, features)
            The features.  For a Dask array or data frame it is a Dask array, not computed yet.

        Raises
        ------
        InvalidParameter, InvalidType
            If a parameter is outside its range, or rows do not fit to it; no message quotes a row.

        Examples
        --------
        >>> from lastiterate.features import QuadraticSketch
        >>> QuadraticSketch(8).transform([[1.0, 0.5]]).shape
        (1, 8)
        """
        if is_dask(X):
            return self._map_lazily(X)
        rows = self._rows(X, reset=False)
        return self.feature_map(rows.shape[1]).apply(rows, out)

    @discreet
    def transform_to(self, X: Any, path: str | Path) -> np.memmap[Any, Any]:
        """The features of rows in a file, which is written block by block and needs no memory.

        Parameters
        ----------
        X : array, shape (rows, columns)
            The rows; a `numpy.memmap` is read block by block.
        path : str or Path
            The file of float32 numbers to write, which must not exist yet.  It is as private as
            the rows.

        Returns
        -------
        numpy.memmap of float32, shape (rows, features)
            The features; the models read such a file block by block.

        Raises
        ------
        InvalidParameter, InvalidType
            If a parameter is outside its range, or rows do not fit to it.

        Examples
        --------
        >>> import tempfile, pathlib
        >>> from lastiterate.features import QuadraticSketch
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "rows.f4")
        ...     rows = QuadraticSketch(8).transform_to([[1.0, 0.5]], path)
        ...     rows.shape
        (1, 8)
        """
        rows = self._rows(X, reset=False)
        return self.feature_map(rows.shape[1]).write(rows, Path(path))

    def _rows(self, X: Any, *, reset: bool) -> Any:
        """The rows as a two-dimensional array; whether they are finite is seen block by block."""
        if sparse.issparse(X):
            must_be = "a dense array; sparse rows are not supported"
            raise InvalidType("X", must_be=must_be, found="a sparse matrix")

        def checked() -> Any:
            rows = self._flatten_images(plain_rows(X))
            return validated(self, X, rows, reset=reset, dtype="numeric", ensure_all_finite=False)

        return discreetly(checked)

    def _flatten_images(self, X: Any) -> Any:
        """The rows of an array of more dimensions, if the transformer takes one."""
        return X

    def _map_lazily(self, X: Any) -> Any:
        rows = X.to_dask_array() if hasattr(X, "to_dask_array") else X
        mapped = self.feature_map(int(np.prod(rows.shape[1:])))
        return rows.map_blocks(
            _map_block,
            mapped,
            dtype=np.float32,
            chunks=(rows.chunks[0], (mapped.width,)),
            drop_axis=list(range(2, rows.ndim)),
            meta=np.empty((0, 0), dtype=np.float32),
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags


def _map_block(rows: Any, mapped: FeatureMap) -> Floats:
    return mapped.apply(np.asarray(rows).reshape(len(rows), -1))


class PublicBins(FixedFeatures):
    r"""One feature for each bin of each column: a linear model on them learns any step function.

    Bins divide a publicly known range into parts of equal width; numbers outside count as the ends.
    For cut points of your own, and for columns with names, use `PrivateSchema`, whose entries may
    be `{"range": [0, 90], "bins": 9}` or `{"cuts": [30, 45]}`.

    The norm of every row of features is `norm_bound`, which is 1, less :math:`2^{-20}` of it for
    rounding: each of c columns has :math:`1/\sqrt c` in one of its bins.

    Parameters
    ----------
    low, high : float or sequence, default=-1.0 and 1.0
        The ends of the ranges, of all columns or of each.  They must not come from the examples.
    bins : int, default=10
        The number of bins of a column.

    Attributes
    ----------
    n_features_in_ : int
        The number of columns.

    Examples
    --------
    >>> from lastiterate.features import PublicBins
    >>> PublicBins(low=0.0, high=90.0, bins=3).fit_transform([[12.0], [30.0], [95.0]]).round(3)
    array([[1., 0., 0.],
           [0., 1., 0.],
           [0., 0., 1.]], dtype=float32)
    """

    def __init__(self, low: Any = -1.0, high: Any = 1.0, *, bins: int = 10) -> None:
        self.low = low
        self.high = high
        self.bins = bins

    def feature_map(self, columns: int) -> BinsMap:
        """The map of rows that have this many columns.

        Parameters
        ----------
        columns : int
            The number of columns.

        Returns
        -------
        BinsMap
            The map, with all parameters.
        """
        low, high = _ends("low", self.low, columns), _ends("high", self.high, columns)
        return BinsMap(low, high, self.bins)


def _ends(name: str, given: Any, columns: int) -> tuple[float, ...]:
    must_be = f"a number, or one for each of the {columns} columns"
    try:
        ends = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidParameter(name, given, must_be=must_be) from None
    if ends.ndim > 1 or ends.size not in (1, columns):
        raise InvalidParameter(name, given, must_be=must_be)
    return tuple(np.broadcast_to(ends, (columns,)).tolist())


class QuadraticSketch(FixedFeatures):
    r"""Sketches of all products of two columns: a linear model on them learns interactions.

    A row x becomes :math:`a = (x/B, 1)/\sqrt2`, where B is the `input_bound`.  The products of all
    pairs of entries of a, among them the entries of x themselves, are added with random signs in
    `n_components` random cells.  Inner products of the results are about
    :math:`\langle a, a' \rangle^2`.  Nothing is learned from the examples, so this costs no
    privacy.

    No row of features is longer than `norm_bound`, which is 1: a row of sums that is longer is
    scaled down to 1.  Then all features are scaled down by :math:`2^{-20}`, which is more than all
    roundings together, so it holds for the computed numbers as well.

    Parameters
    ----------
    n_components : int, default=2048
        The number of features.  More features cost time, but no privacy.
    seed : int, default=0
        The seed of signs and cells, which is public and part of the model.
    input_bound : float, default=1.0
        The largest norm of rows; longer rows are scaled down to it.  It must not be chosen by
        looking at the examples.

    Attributes
    ----------
    n_features_in_ : int
        The number of columns.

    Examples
    --------
    >>> import numpy as np
    >>> from lastiterate.features import QuadraticSketch
    >>> X = np.array([[0.6, 0.8], [0.0, 0.5]])
    >>> rows = QuadraticSketch(n_components=4096).fit_transform(X)
    >>> rows.shape, round(float(rows[0] @ rows[1]), 1)  # ((0.8 * 0.5 + 1) / 2) ** 2 = 0.49
    ((2, 4096), 0.5)
    """

    def __init__(
        self, n_components: int = 2048, seed: int = 0, *, input_bound: float = 1.0
    ) -> None:
        self.n_components = n_components
        self.seed = seed
        self.input_bound = input_bound

    def feature_map(self, columns: int) -> QuadraticMap:
        """The map of rows that have this many columns.

        Parameters
        ----------
        columns : int
            The number of columns.

        Returns
        -------
        QuadraticMap
            The map, with all parameters.
        """
        return QuadraticMap(columns, self.n_components, self.seed, self.input_bound)


class RandomFourierFeatures(FixedFeatures):
    r"""Random Fourier features: a linear model on them separates rows as a Gaussian kernel does.

    A row x becomes the cosines and sines of :math:`\langle w_k, x \rangle` for m/2 random
    directions, which are drawn with a public seed, times :math:`\sqrt{2/m}`.  Inner products of
    these are about :math:`\exp(-\gamma |x - x'|^2)`.  Nothing is learned from the examples, so this
    costs no privacy.

    No row of features is longer than `norm_bound`, which is 1: every pair of a cosine and a sine
    adds 2/m to the square, whatever the row.  All features are scaled down by :math:`2^{-20}`,
    which is more than all roundings together, so it holds for the computed numbers as well.

    Parameters
    ----------
    n_components : int, default=2048
        The number m of features.  More features cost time, but no privacy.
    gamma : float, default=1.0
        The inverse squared width of the kernel.  It must not be chosen by looking at the examples.
    seed : int, default=0
        The seed of the directions, which is public and part of the model.

    Attributes
    ----------
    n_features_in_ : int
        The number of columns.

    Examples
    --------
    >>> import numpy as np
    >>> from lastiterate.features import RandomFourierFeatures
    >>> X = np.random.default_rng(0).normal(size=(3, 5)) / 4
    >>> rows = RandomFourierFeatures(gamma=0.5).fit_transform(X)
    >>> rows.shape, np.linalg.norm(rows, axis=1).round(4).tolist()
    ((3, 2048), [1.0, 1.0, 1.0])
    >>> kernel = np.exp(-0.5 * np.sum((X[0] - X[1]) ** 2))
    >>> bool(abs(rows[0] @ rows[1] - kernel) < 0.05)
    True
    """

    def __init__(self, n_components: int = 2048, gamma: float = 1.0, seed: int = 0) -> None:
        self.n_components = n_components
        self.gamma = gamma
        self.seed = seed

    def feature_map(self, columns: int) -> FourierMap:
        """The map of rows that have this many columns.

        Parameters
        ----------
        columns : int
            The number of columns.

        Returns
        -------
        FourierMap
            The map, with all parameters.
        """
        return FourierMap(columns, self.n_components, self.gamma, self.seed)


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

    def _flatten_images(self, X: Any) -> Any:
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


# The transformer of each kind of map, for pipelines that are loaded from files.

TRANSFORMERS: dict[type[FeatureMap], type[FixedFeatures]] = {
    ScatteringMap: Scattering2D,
    FourierMap: RandomFourierFeatures,
    QuadraticMap: QuadraticSketch,
    BinsMap: PublicBins,
}


def transformer_of(mapped: FeatureMap) -> FixedFeatures:
    """The fitted transformer that applies this map.

    Examples
    --------
    >>> transformer_of(FourierMap(3, 8, 0.5, seed=1))
    RandomFourierFeatures(gamma=0.5, n_components=8, seed=1)
    """
    given = {
        PUBLIC_NAMES.get(each.name, each.name): getattr(mapped, each.name)
        for each in fields(mapped)
        if each.name != "columns"
    }
    found = TRANSFORMERS[type(mapped)](**given)
    found.n_features_in_ = mapped.input_width
    found._n_features_out = mapped.width
    return found
