"""Scaling of each row by itself, without statistics of the data."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from lastiterate import _check
from lastiterate.errors import InvalidParameter
from lastiterate.linear_model.inputs import rows_alone
from lastiterate.train.discreet import DiscreetTransformer
from lastiterate.train.rows import rows_within, without_duplicates


class PrivateScaler(DiscreetTransformer, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Scales every row to a norm within a bound, without statistics of the data.

    Fitting learns the number of features and nothing else, so it costs no privacy.  A scaler
    that learns means or variances from private data does.

    Parameters
    ----------
    bound : float, default=1.0
        Rows with a larger norm are scaled down to it.
    low, high : float or sequence, optional
        Publicly known ranges of the features, which are first mapped to [-1, 1]; values
        outside count as the ends.  Both or none.

    Attributes
    ----------
    n_features_in_ : int
        The number of features.

    Examples
    --------
    >>> PrivateScaler(bound=5.0).fit([[3.0, 4.0]]).transform([[3.0, 4.0], [30.0, 40.0]])
    array([[3., 4.],
           [3., 4.]])
    >>> PrivateScaler(bound=2.0, low=[0, 0], high=[100, 1]).fit_transform([[75, 1], [120, 0]])
    array([[ 0.5,  1. ],
           [ 1. , -1. ]])
    """

    def __init__(self, bound: float = 1.0, *, low: Any = None, high: Any = None) -> None:
        self.bound = bound
        self.low = low
        self.high = high

    @property
    def norm_bound(self) -> float:
        """The largest norm of a scaled row; estimators in a pipeline take it over."""
        return self.bound

    def fit(self, X: Any, y: None = None) -> Self:
        """Store the number of features.

        Parameters
        ----------
        X : array or sparse matrix
            Rows; only their width is used.
        y : None
            Ignored.

        Returns
        -------
        self
            The fitted scaler.

        Raises
        ------
        InvalidParameter
            If the bound or the ranges cannot be used.
        """
        rows = rows_alone(self, X, reset=True)
        _check.number("bound", self.bound, above=0.0)
        if self._range(rows.shape[1]) is not None and sparse.issparse(rows):
            raise InvalidParameter("low", self.low, must_be="None for sparse rows")
        return self

    def transform(self, X: Any) -> Any:
        """The rows, each scaled to a norm within the bound.

        Parameters
        ----------
        X : array or sparse matrix
            Rows.

        Returns
        -------
        array or sparse matrix
            The scaled rows.
        """
        check_is_fitted(self, "n_features_in_")
        rows: Any = without_duplicates(rows_alone(self, X))
        return rows_within(rows, self.bound, self._range(rows.shape[1]))

    def _range(self, width: int) -> tuple[NDArray[Any], NDArray[Any]] | None:
        if (self.low is None) != (self.high is None):
            raise InvalidParameter("high", self.high, must_be="given exactly if low is")
        if self.low is None:
            return None
        low, high = (
            np.broadcast_to(np.asarray(end, dtype=np.float64), (width,))
            for end in (self.low, self.high)
        )
        if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
            raise InvalidParameter("low", self.low, must_be="finite and below high everywhere")
        return low, high

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.low is None
        tags.requires_fit = True
        return tags
