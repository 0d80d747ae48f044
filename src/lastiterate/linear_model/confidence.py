"""Confidence intervals of the coefficients of a fitted model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import ndtri

from lastiterate import _check
from lastiterate._numerics.rounding import Array
from lastiterate.errors import InvalidParameter, warn
from lastiterate.linear_model.coefficient_moments import MOST_FEATURES
from lastiterate.train.data import MEASURED


class InfiniteIntervalsWarning(UserWarning):
    """Confidence intervals are, or will be, infinite.

    Examples
    --------
    >>> import warnings
    >>> from lastiterate.linear_model.confidence import InfiniteIntervalsWarning
    >>> warnings.simplefilter("error", InfiniteIntervalsWarning)  # refuses before epsilon is spent
    >>> warnings.simplefilter("default", InfiniteIntervalsWarning)
    """


_INFINITE = "no coefficient has a finite confidence interval"
_BASELINE = (
    'a "baseline" in the entry of the column, as in {"values": ["a", "b"], "baseline": "a"}, or '
    'PrivateSchema(.., baseline="first")'
)
_REMEDIES = (
    "The noise hides how much some combination of features matters. If columns are coded one-hot "
    f"with a feature for every value, and none is left out, add {_BASELINE}; leave out declared "
    "values that hardly any row has; or take more examples (of a rare label above all), a larger "
    "epsilon or fewer features. A penalty (l2) makes "
    "them finite, but for other coefficients than the usual ones, even of another sign"
)
_SHOWN = 8


def warn_of_collinear_columns(columns: Sequence[str], *, l2: float, fit_intercept: bool) -> None:
    """Warn, before anything is spent, of columns in which every value has a feature."""
    if l2 > 0.0 or len(columns) <= (not fit_intercept):
        return
    warn(
        f"confidence intervals will be infinite: the features of {_listed(columns)} add up to a "
        f"constant, which the intercept is, too. Add {_BASELINE}; or, if the other values are "
        'compared with cells of no declared value, "baseline": null',
        InfiniteIntervalsWarning,
    )


def warn_of_flat_parameters(flat: Sequence[int], names: Sequence[str], features: int) -> None:
    """Warn of the parameters whose curvature noise hides; by index, or by public names."""
    if not flat:
        return
    named = names if len(names) == features else [f"feature {k}" for k in range(features)]
    found = [named[k] if k < features else "the intercept" for k in flat]
    which = "every one" if len(flat) > features else _listed(found)
    warn(
        f"{_INFINITE}, because of a combination of these features: {which}. {_REMEDIES}",
        InfiniteIntervalsWarning,
    )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(map(repr, names[:_SHOWN]))
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


class IntervalsMixin:
    """The method that gives confidence intervals, and the check of the setting for them."""

    intervals: bool
    _has_intervals = False
    _in_process: bool

    def conf_int(self, level: float = 0.95) -> Array:
        """Confidence intervals of the coefficients, and of the intercept last if there is one.

        They are for the optimum of the clipped, penalised loss over the population that examples
        were drawn from independently, and hold as sampling and all noise for privacy are about
        normal.  They lie around `interval_estimate_`, two steps of Newton's method from the
        published model.  Needs `intervals=True` when fitting; nothing more is spent.

        Parameters
        ----------
        level : float
            The share of such intervals that cover.

        Returns
        -------
        ndarray, shape (coefficients, 2)
            The ends of each interval; all infinite, with an `InfiniteIntervalsWarning`, where the
            noise hides how much some combination of features matters.

        Raises
        ------
        InvalidParameter
            If the model was fitted without `intervals=True`, or the level is outside (0, 1).

        Examples
        --------
        >>> import numpy as np
        >>> from lastiterate.linear_model.regressors import PrivateRidge
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-0.5, 0.5, size=(20_000, 2))
        >>> y = X[:, 0] + 0.1 * rng.normal(size=20_000)
        >>> model = PrivateRidge(epsilon=2.0, target_bound=1.0, intervals=True).fit(X, y)
        >>> low, high = model.conf_int(level=0.999)[0]
        >>> bool(low < 1.0 < high), bool(high - low < 0.5)
        (True, True)
        """
        estimate, covariance = (vars(self).get(name) for name in MEASURED)
        if estimate is None or covariance is None:
            must_be = "fitted with intervals=True, which spends half of mu on them"
            raise InvalidParameter("model", must_be=must_be, found="one without intervals")
        level = _check.number("level", level, above=0.0, below=1.0)
        if not np.isfinite(covariance).all():
            warn(f"{_INFINITE}. {_REMEDIES}", InfiniteIntervalsWarning)
        reach = ndtri(0.5 + level / 2.0) * np.sqrt(np.diag(covariance))
        return np.column_stack([estimate - reach, estimate + reach])

    def _refuse_intervals(self, outputs: int, features: int) -> None:
        if not self.intervals:
            return
        if not (self._has_intervals and self._in_process) or outputs > 1:
            must_be = (
                "False unless PrivateLogisticRegression of two classes, PrivateRidge or "
                "PrivateHuberRegressor of lastiterate.linear_model is fitted"
            )
            raise InvalidParameter("intervals", True, must_be=must_be)
        if features > MOST_FEATURES:
            must_be = f"False for more than {MOST_FEATURES} features"
            raise InvalidParameter("intervals", must_be=must_be, found=f"{features} features")

    def _interval_units(self, offset: Array | None) -> tuple[float, float]:
        """The factor of estimates, and the number that is then added to the intercept."""
        return 1.0, 0.0 if offset is None else float(offset[0])


def measured_attributes(found: tuple[Array, Array] | None) -> dict[str, Any]:
    """The fitted attributes that intervals follow from."""
    return dict(zip(MEASURED, (None, None) if found is None else found, strict=True))
