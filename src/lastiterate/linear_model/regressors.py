"""Private linear regression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from lastiterate._numerics.rounding import Array
from lastiterate.errors import InvalidParameter
from lastiterate.linear_model.estimator import PrivateLinearModel, Task
from lastiterate.linear_model.inputs import as_column, numbers_in
from lastiterate.train.centring import REGRESSION_REACH
from lastiterate.train.data import AnyExamples
from lastiterate.train.discreet import discreet, discreetly
from lastiterate.train.objectives import Huber, Objective
from lastiterate.train.settings import (
    POSITIVE,
    SettingKind,
    checked_range,
    documented,
    or_none,
    setting,
)


@dataclass(eq=False, repr=False, kw_only=True)
class _PrivateRegressor(RegressorMixin, PrivateLinearModel):
    target_range: Any = setting(
        None,
        or_none(SettingKind("(low, high)", checked_range)),
        "The public range of targets; targets outside count as its ends.  Errors are in proportion "
        "to it, and its middle should be typical.  This, or `target_bound`, must be given.",
    )
    target_bound: float | None = setting(
        None, or_none(POSITIVE), "For targets around 0: short for (-target_bound, target_bound)."
    )

    _numeric_targets = True
    _has_intervals = True
    # Offsets count for more in a target than in a logit (benchmarks/validation.py).
    _constant = 0.25
    _reach = REGRESSION_REACH

    def checked(self) -> Self:
        """A copy of the settings in which every value is checked.

        Returns
        -------
        estimator
            The copy, not fitted.

        Raises
        ------
        InvalidParameter, InvalidType
            If a setting is outside its range, or not exactly one range of targets is given.

        Examples
        --------
        >>> from lastiterate.linear_model import PrivateRidge
        >>> PrivateRidge(target_range=(0, 1)).checked().target_range
        (0.0, 1.0)
        """
        if (self.target_range is None) == (self.target_bound is None):
            name = "exactly one of target_range and target_bound"
            must_be = "given: the public range of the targets, as in target_range=(0, 100)"
            found = "neither" if self.target_range is None else "both"
            raise InvalidParameter(name, must_be=must_be, found=found)
        return super().checked()

    def _middle_and_half(self) -> tuple[float, float]:
        """The middle and half the width of the range."""
        if self.target_range is None:
            assert self.target_bound is not None
            return 0.0, self.target_bound
        low, high = self.target_range
        return low / 2.0 + high / 2.0, high / 2.0 - low / 2.0

    @discreet
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The coefficient R2, as in scikit-learn; published, it costs privacy on private data.

        Parameters
        ----------
        X, y : array
            Rows and targets.
        sample_weight : array, optional
            Weights of the examples.

        Returns
        -------
        float
            The score.
        """
        targets = numbers_in(as_column(y))
        return discreetly(
            lambda: float(super(_PrivateRegressor, self).score(X, targets, sample_weight))
        )

    @discreet
    def predict(self, X: Any) -> Array:
        """The predicted targets of rows.

        Parameters
        ----------
        X : array or sparse matrix, shape (examples, features)
            The rows.

        Returns
        -------
        ndarray, shape (examples,)
            The predictions.
        """
        return self._outputs(X).ravel()

    def _scale_targets(self, targets: NDArray[Any]) -> Array:
        """Targets relative to the middle of the range, in units of half its width."""
        middle, half = self._middle_and_half()
        return (numbers_in(targets) - middle) / half

    def _scaled_ends(self) -> Array:
        """The ends of the range as targets that are equal to them."""
        middle, half = self._middle_and_half()
        return self._scale_targets(np.array([middle - half, middle + half]))

    def _task(self, targets: NDArray[Any], radius: float) -> Task:
        scaled = self._scale_targets(targets)
        low, high = self._scaled_ends()
        outside = (scaled < low) | (scaled > high)
        return Task(self._objective(radius), np.clip(scaled, -1.0, 1.0), {}, outside=outside)

    def _targets_outside(self, targets: NDArray[Any], task: Task) -> NDArray[np.bool_] | int:
        return task.outside

    def _coefficients(
        self, parameters: Array, examples: AnyExamples, shift: Array | None = None
    ) -> dict[str, Any]:
        fitted = super()._coefficients(parameters, examples, shift)
        coef, intercept = fitted["coef_"][0], fitted["intercept_"][0]
        middle, half = self._middle_and_half()
        return {
            "target_bound_": half,
            "coef_": coef * half,
            "intercept_": float(intercept * half + middle),
        }

    def _interval_units(self, offset: Array | None) -> tuple[float, float]:
        del offset
        middle, half = self._middle_and_half()
        return half, middle

    def _objective(self, radius: float) -> Objective:
        raise NotImplementedError

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Targets are clipped to a range, which common checks do not know to set.
        tags.regressor_tags.poor_score = True
        return tags


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class PrivateRidge(_PrivateRegressor):
    """Least squares with a penalty that publishes only the last iterate.

    Errors larger than half of `target_range` are clipped.  They occur only where a prediction is
    outside the range.

    {parameters}

    Attributes
    ----------
    privacy_ : PrivacyReport
        The report on exactly the training that ran.
    certificate_ : str
        The certificate, as JSON; `lastiterate.verify` derives it again.
    parameters_ : ndarray
        The released parameters.
    coef_, intercept_, n_iter_, n_features_in_
        As in scikit-learn, computed from `parameters_`.
    outliers_, undeclared_ : dict
        Noisy counts of rows and targets far from their bounds, and of undeclared values.
    center_, center_bound_
        The published mean of rows, and the bound on their distance from it; None if not centred.
    target_bound_ : float
        Half of the range of targets.
    interval_estimate_, interval_covariance_ : ndarray or None
        What `conf_int` uses; None without `intervals`.

    Examples
    --------
    >>> import numpy as np
    >>> from lastiterate.linear_model import PrivateRidge
    >>> X = np.random.default_rng(0).normal(size=(5_000, 3)) / 4
    >>> model = PrivateRidge(epsilon=1.0, target_range=(-1, 1)).fit(X, X[:, 0])
    >>> model.score(X, X[:, 0]) > 0.8, model.privacy_.epsilon(1e-5) <= 1.0
    (True, True)
    >>> model.predict([[0.5, 0.0, 0.0]]) > 0.2
    array([ True])
    """

    def _objective(self, radius: float) -> Objective:
        return Huber(clip=self._residual_clip(radius, 1.0))


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class PrivateHuberRegressor(_PrivateRegressor):
    """Regression with the Huber loss that publishes only the last iterate.

    A smaller `threshold` needs less noise and depends less on outliers.  It is the better choice
    at a small epsilon, and for targets with an offset.

    {parameters}

    Attributes
    ----------
    privacy_ : PrivacyReport
        The report on exactly the training that ran.
    certificate_ : str
        The certificate, as JSON; `lastiterate.verify` derives it again.
    parameters_ : ndarray
        The released parameters.
    coef_, intercept_, n_iter_, n_features_in_
        As in scikit-learn, computed from `parameters_`.
    outliers_, undeclared_ : dict
        Noisy counts of rows and targets far from their bounds, and of undeclared values.
    center_, center_bound_
        The published mean of rows, and the bound on their distance from it; None if not centred.
    target_bound_ : float
        Half of the range of targets.
    interval_estimate_, interval_covariance_ : ndarray or None
        What `conf_int` uses; None without `intervals`.

    Examples
    --------
    >>> import numpy as np
    >>> from lastiterate.linear_model import PrivateHuberRegressor
    >>> X = np.random.default_rng(0).normal(size=(5_000, 3)) / 4
    >>> model = PrivateHuberRegressor(epsilon=1.0, target_range=(-1, 1)).fit(X, X[:, 0])
    >>> model.score(X, X[:, 0]) > 0.8, model.privacy_.epsilon(1e-5) <= 1.0
    (True, True)
    >>> model.predict([[0.5, 0.0, 0.0]]) > 0.2
    array([ True])
    """

    threshold: float = setting(
        0.25, POSITIVE, "Where errors begin to count linearly, in units of half of `target_range`."
    )

    def _objective(self, radius: float) -> Objective:
        return Huber(clip=self._residual_clip(radius, self.threshold))
