"""Confidence intervals of the coefficients of a fitted model."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtri

from lastiterate import _check
from lastiterate._numerics.arrays import Array
from lastiterate.errors import InvalidParameter
from lastiterate.linear_model.coefficient_moments import MOST_FEATURES
from lastiterate.train.interval_record import MEASURED


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
            The ends of each interval; infinite where there are too few examples for epsilon.

        Raises
        ------
        InvalidParameter
            If the model was fitted without `intervals=True`, or the level is outside (0, 1).

        Examples
        --------
        >>> import numpy as np
        >>> from lastiterate.linear_model import PrivateRidge
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
