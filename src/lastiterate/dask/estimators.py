"""The private linear models of `lastiterate.linear_model`, fitted on a Dask cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lastiterate._numerics.rounding import Array
from lastiterate.dask.dask_estimator import DaskClassifier, DaskRegressor
from lastiterate.linear_model import classifiers, regressors
from lastiterate.train.settings import documented
from lastiterate.train.traceback_scrubbing import discreet


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class PrivateLogisticRegression(DaskClassifier, classifiers.PrivateLogisticRegression):
    """Logistic regression on a cluster that publishes only the last iterate.

    As `lastiterate.linear_model.PrivateLogisticRegression`, for rows in dask collections.

    {parameters}

    Attributes
    ----------
    privacy_, certificate_, coef_, intercept_, classes_, parameters_, n_iter_, n_features_in_
        As in `lastiterate.linear_model.PrivateLogisticRegression`.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask.distributed import Client
    >>> from lastiterate.dask import PrivateLogisticRegression
    >>> X = da.random.default_rng(0).uniform(-0.5, 0.5, size=(4_000, 3), chunks=(1_000, 3))
    >>> with Client(processes=False, dashboard_address=None):
    ...     model = PrivateLogisticRegression(epsilon=1.0).fit(X, X[:, 0] > 0.0)
    ...     model.privacy_.epsilon(1e-5) <= 1.0
    ...     model.predict(X).shape, model.decision_function(X).shape
    ...     model.predict_proba(X).shape, model.predict_log_proba(X).shape
    True
    ((4000,), (4000,))
    ((4000, 2), (4000, 2))
    """

    @discreet
    def predict_proba(self, X: Any) -> Array:
        """Probabilities, one column for each class; lazily for dask collections."""
        return self._lazily("predict_proba", X)  # type: ignore[no-any-return]

    @discreet
    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms of the probabilities."""
        return self._lazily("predict_log_proba", X)  # type: ignore[no-any-return]


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class PrivateLinearSVC(DaskClassifier, classifiers.PrivateLinearSVC):
    """Linear support vector machine on a cluster.

    As `lastiterate.linear_model.PrivateLinearSVC`, for rows in dask collections.

    {parameters}

    Attributes
    ----------
    privacy_, certificate_, coef_, intercept_, classes_, parameters_, n_iter_, n_features_in_
        As in `lastiterate.linear_model.PrivateLinearSVC`.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask.distributed import Client
    >>> from lastiterate.dask import PrivateLinearSVC
    >>> X = da.random.default_rng(0).uniform(-0.5, 0.5, size=(4_000, 3), chunks=(1_000, 3))
    >>> with Client(processes=False, dashboard_address=None):
    ...     model = PrivateLinearSVC(epsilon=1.0).fit(X, X[:, 0] > 0.0)
    ...     model.privacy_.epsilon(1e-5) <= 1.0
    ...     model.predict(X).shape, model.decision_function(X).shape
    True
    ((4000,), (4000,))
    """


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class PrivateRidge(DaskRegressor, regressors.PrivateRidge):
    """Least squares with a penalty on a cluster.

    As `lastiterate.linear_model.PrivateRidge`, for rows in dask collections.

    {parameters}

    Attributes
    ----------
    privacy_, certificate_, coef_, intercept_, target_bound_, parameters_, n_iter_, n_features_in_
        As in `lastiterate.linear_model.PrivateRidge`.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask.distributed import Client
    >>> from lastiterate.dask import PrivateRidge
    >>> X = da.random.default_rng(0).uniform(-0.5, 0.5, size=(4_000, 3), chunks=(1_000, 3))
    >>> with Client(processes=False, dashboard_address=None):
    ...     model = PrivateRidge(epsilon=1.0, target_range=(-1, 1)).fit(X, X[:, 0])
    ...     model.privacy_.epsilon(1e-5) <= 1.0
    ...     model.predict(X).shape
    True
    (4000,)
    """


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class PrivateHuberRegressor(DaskRegressor, regressors.PrivateHuberRegressor):
    """Regression that is linear in large errors on a cluster.

    As `lastiterate.linear_model.PrivateHuberRegressor`, for rows in dask collections.

    {parameters}

    Attributes
    ----------
    privacy_, certificate_, coef_, intercept_, target_bound_, parameters_, n_iter_, n_features_in_
        As in `lastiterate.linear_model.PrivateHuberRegressor`.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask.distributed import Client
    >>> from lastiterate.dask import PrivateHuberRegressor
    >>> X = da.random.default_rng(0).uniform(-0.5, 0.5, size=(4_000, 3), chunks=(1_000, 3))
    >>> with Client(processes=False, dashboard_address=None):
    ...     model = PrivateHuberRegressor(epsilon=1.0, target_range=(-1, 1)).fit(X, X[:, 0])
    ...     model.privacy_.epsilon(1e-5) <= 1.0
    ...     model.predict(X).shape
    True
    (4000,)
    """
