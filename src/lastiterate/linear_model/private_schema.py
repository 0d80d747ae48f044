"""Columns of a table as features, by public facts on them."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from lastiterate import _check
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.tables.column_rules import with_first_baseline
from lastiterate.tables.encoder import Encoder, missing_columns_text, schema_of
from lastiterate.train.discreet import DiscreetTransformer, is_dask

_TABLE = (
    "a table whose columns have names: a data frame of pandas, polars or Dask, a table of pyarrow, "
    "or a mapping of names to columns"
)


class PrivateSchema(DiscreetTransformer, TransformerMixin, BaseEstimator):
    """Encodes the columns of a table as features, by public facts on the columns.

    Numbers and dates are mapped from their range to [-1, 1], or coded one-hot by intervals; text is
    coded one-hot.  Fitting learns the names of the columns and nothing else, so it costs no
    privacy: an encoder that learns which values occur, or a scaler that learns means, does.
    `lastiterate train` encodes by the same rules, and its schema files are such mappings.

    Parameters
    ----------
    schema : mapping or path
        Public facts on the columns, or a JSON file of them, as `lastiterate schema` begins and
        `lastiterate train` takes it.  For each column `{"range": [low, high]}`;
        `{"cuts": [30, 45]}`, which makes one feature of each interval between public cut points, or
        `{"range": [0, 90], "bins": 9}` for intervals of equal width; `{"values": [..]}`, where
        any other value is all zeros; `{"dates": ["2021-01-01", "2024-12-31"]}` for dates, perhaps
        with the `"format": "%d.%m.%Y"` of text; `"as it is"`; or `"drop"`.  Under a new name,
        `{"days_between": ["admitted", "discharged"], "range": [0, 60]}` is the days from one column
        of dates to another.  A column without an entry is
        refused, unless there is an entry for `"*"`, which stands for all others.  Next to a range
        or cuts, `"missing": 0` is the value of an empty cell, and `"indicator": True` adds a
        feature for empty cells; next to values, `"missing"` is one of them.  `"baseline"`, a value
        or a number in an interval, has no feature: coefficients are differences to it.
    target : str, optional
        A column that is no feature, whatever the schema says of it.  By default the name of `y`,
        if it has one (as a column of a data frame does) and no feature has that name.
    bound : float or None, default=1.0
        The largest norm of a row, for `feature_bound` of the models: all features are divided by
        one public number.  None leaves them unscaled; columns that are taken as they are need it.
    dtype : dtype, default=numpy.float64
        The type of the features, or `numpy.float32`.
    baseline : "first" or None, default=None
        With "first", the first value or interval of each column coded one-hot has no feature,
        unless its entry says otherwise.  Confidence intervals need it: with a feature for every
        value no coefficient is determined.

    Attributes
    ----------
    text_columns_ : dict
        The features of each column of values, for `text_columns` of the models, which count, with
        noise, rows that have none of these values.
    feature_names_in_, n_features_in_
        The names and the number of the columns.

    Examples
    --------
    >>> people = {"age": [18, 54, 95], "job": ["nurse", "clerk", "spy"], "name": ["A", "B", "C"]}
    >>> schema = {
    ...     "age": {"range": [18, 90]},
    ...     "job": {"values": ["clerk", "nurse"]},
    ...     "name": "drop",
    ... }
    >>> encoder = PrivateSchema(schema, bound=None).fit(people)
    >>> encoder.get_feature_names_out().tolist()
    ['age', 'job=clerk', 'job=nurse']
    >>> encoder.transform(people)
    array([[-1.,  0.,  1.],
           [ 0.,  1.,  0.],
           [ 1.,  0.,  0.]])
    """

    def __init__(
        self,
        schema: Any,
        *,
        target: str | None = None,
        bound: float | None = 1.0,
        dtype: Any = np.float64,
        baseline: str | None = None,
    ) -> None:
        self.schema = schema
        self.target = target
        self.bound = bound
        self.dtype = dtype
        self.baseline = baseline

    @property
    def norm_bound(self) -> float | None:
        """The largest norm of a row, None if unknown; estimators in a pipeline take it over."""
        return self.bound

    def fit(self, X: Any, y: Any = None) -> Self:
        """Store the names of the columns; the schema must describe every one of them.

        Parameters
        ----------
        X : table
            A data frame of pandas, polars or Dask, a table of pyarrow, or a mapping of columns.
        y : optional
            The target; only its name is used.

        Returns
        -------
        self
            The fitted encoder.

        Raises
        ------
        InvalidParameter, InvalidType
            If the table has no names, or the schema does not fit to it.
        """
        names = _columns(X)
        target = self.target
        if target is None and isinstance(named := getattr(y, "name", None), str):
            target = named if named not in names else None
        del y
        features = [name for name in names if name != target]
        described = {name: rule for name, rule in self._entries().items() if name != target}
        encoder = Encoder.of(described, features)
        self._factor_of(encoder)
        if np.dtype(self.dtype) not in (np.float32, np.float64):
            raise InvalidParameter("dtype", self.dtype, must_be="float32 or float64")
        self.encoder_ = encoder
        self.text_columns_ = encoder.text_columns
        self.feature_names_in_ = np.array(features, dtype=object)
        self.n_features_in_ = len(features)
        return self

    def _entries(self) -> dict[str, Any]:
        """The entries of the schema, each with its baseline."""
        described = schema_of(self.schema)
        if self.baseline is None:
            return described
        _check.choice("baseline", self.baseline, among=("first",))
        return {name: with_first_baseline(name, entry) for name, entry in described.items()}

    def transform(self, X: Any) -> Any:
        """The features of a table; columns that were not fitted are left out.

        Parameters
        ----------
        X : table
            A table with the columns of the fit.

        Returns
        -------
        array, shape (rows, features)
            The features.  For a Dask data frame it is a Dask array, not computed yet: each
            partition becomes a block, whose number of rows is unknown.

        Raises
        ------
        InvalidParameter
            If a column is missing, or a cell cannot be encoded; messages quote no cell.
        """
        check_is_fitted(self, "encoder_")
        names = _columns(X)
        known = set(names)
        absent = [name for name in self.encoder_.column_kinds if name not in known]
        if absent:
            found = missing_columns_text(absent, names)
            must_be = f"a table with columns {', '.join(self.encoder_.column_kinds)}"
            raise InvalidParameter("X", must_be=must_be, found=found)
        if not is_dask(X):
            return self._encode(X)
        # A copy, so that a later fit of this object does not change what is computed then.
        meta = self._encode(X._meta)
        read = X[[name for name in names if name in self.encoder_.column_kinds]]
        return read.map_partitions(_encode_partition, copy(self), meta=meta)

    def _encode(self, X: Any) -> NDArray[Any]:
        """The features of a table in memory."""
        table = {name: _column(X, name) for name in self.encoder_.column_kinds}
        rows = self.encoder_.rows(table, dtype=self.dtype)
        factor = self._factor_of(self.encoder_)
        return rows if factor == 1.0 else np.multiply(rows, factor, out=rows)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """The names of the features, by column and value.

        Parameters
        ----------
        input_features : optional
            Ignored.

        Returns
        -------
        ndarray of str
            The names.
        """
        del input_features
        check_is_fitted(self, "encoder_")
        return np.array(self.encoder_.names, dtype=object)

    def _factor_of(self, encoder: Encoder) -> float:
        if self.bound is None:
            return 1.0
        bound = _check.number("bound", self.bound, above=0.0)
        if encoder.unbounded:
            must_be = (
                f"None where columns are taken as they are ({', '.join(encoder.unbounded)}): the "
                "norm of rows has no known bound. Set feature_bound of the model"
            )
            raise InvalidParameter("bound", self.bound, must_be=must_be)
        return bound / encoder.feature_bound

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        tags.input_tags.allow_nan = True
        tags.requires_fit = True
        return tags


def _encode_partition(part: Any, schema: PrivateSchema) -> NDArray[Any]:
    """The features of a part of a table; errors count rows from its first."""
    try:
        return np.asarray(schema.transform(part))
    except InvalidParameter as error:
        found = f"{error.found or 'something else'}, of one partition"
        raise InvalidParameter(error.name, must_be=error.must_be, found=found) from None


def _columns(X: Any) -> list[str]:
    """The names of the columns; raises if the table has none or not all are different."""
    given: Any = X if isinstance(X, Mapping) else getattr(X, "column_names", None)
    given = getattr(X, "columns", None) if given is None else given
    names = [] if given is None or not hasattr(X, "__getitem__") else list(given)
    if not names or not all(isinstance(name, str) for name in names):
        raise InvalidType("X", must_be=_TABLE, found=f"a {type(X).__name__}")
    if len(set(names)) < len(names):
        must_be = "a table with different names for all columns"
        raise InvalidParameter("X", must_be=must_be, found="one twice")
    return names


def _column(X: Any, name: str) -> Any:
    column = X[name]
    if is_dask(column):
        must_be = "a data frame of Dask, or columns in memory: others would be gathered as a whole"
        raise InvalidType("X", must_be=must_be, found=f"a dask {type(column).__name__} as a column")
    return column
