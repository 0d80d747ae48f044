"""The base of the transformers: scikit-learn's interface to a fixed map."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any, Self

import numpy as np
from scipy import sparse

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
except ImportError as error:
    from lastiterate.errors import MissingExtra

    raise MissingExtra("lastiterate.features", "scikit-learn", extra="sklearn") from error

from lastiterate.errors import InvalidType
from lastiterate.features.feature_map import FeatureMap, Floats
from lastiterate.tables.plain_rows import plain_rows, validated
from lastiterate.train.discreet_errors import discreetly, is_dask
from lastiterate.train.traceback_scrubbing import DiscreetTransformer, discreet


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
            return self._lazily(X)
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
        return discreetly(lambda: self._checked(X, reset=reset))

    def _checked(self, X: Any, *, reset: bool) -> Any:
        rows = self._flat(plain_rows(X))
        return validated(self, X, rows, reset=reset, dtype="numeric", ensure_all_finite=False)

    def _flat(self, X: Any) -> Any:
        """The rows of an array of more dimensions, if the transformer takes one."""
        return X

    def _lazily(self, X: Any) -> Any:
        rows = X.to_dask_array() if hasattr(X, "to_dask_array") else X
        mapped = self.feature_map(int(np.prod(rows.shape[1:])))
        return rows.map_blocks(
            _of_block,
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


def _of_block(rows: Any, mapped: FeatureMap) -> Floats:
    return mapped.apply(np.asarray(rows).reshape(len(rows), -1))
