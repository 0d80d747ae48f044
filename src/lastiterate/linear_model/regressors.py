"""Private linear regression."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from lastiterate._numerics.arrays import Array
from lastiterate.errors import InvalidParameter
from lastiterate.linear_model.estimator import PrivateLinearModel, Task
from lastiterate.train.data import Examples
from lastiterate.train.objectives import Huber
from lastiterate.train.settings import POSITIVE, documented, setting


@dataclass(eq=False, repr=False, kw_only=True)
class _PrivateRegressor(RegressorMixin, PrivateLinearModel):
    target_bound: float = setting(
        1.0,
        POSITIVE,
        "Targets outside [-target_bound, target_bound] count as its ends.  It must not depend on "
        "the data; errors are in proportion to it.",
    )

    _numeric_targets = True

    def fit(self, X: Any, y: Any, sample_weight: None = None, *, ledger: Any = None) -> Self:
        """Train on rows `X` with targets `y`, charged to `ledger`; `sample_weight` is refused."""
        held = [X, y, sample_weight]
        del X, y, sample_weight
        return self._fit(held, ledger)

    def predict(self, X: Any) -> Array:
        """The expected targets."""
        return self._outputs(X).ravel()

    def _scaled(self, targets: NDArray[Any]) -> Array:
        """In units of the bound, and within it."""
        try:
            numbers = np.asarray(targets, dtype=np.float64)
        except (TypeError, ValueError):
            numbers = np.array(math.nan)
        if not np.isfinite(numbers).all():
            raise InvalidParameter("y", must_be="finite numbers", found="a target that is not")
        return np.clip(numbers / self.target_bound, -1.0, 1.0)

    def _outside(self, targets: NDArray[Any], task: Task) -> NDArray[np.bool_]:
        return np.abs(np.asarray(targets, dtype=np.float64)) > self.target_bound

    def _task(self, targets: NDArray[Any], radius: float) -> Task:
        clip = self._residual_clip(radius, self._default_clip())
        return Task(Huber(clip=clip), self._scaled(targets), {})

    def _coefficients(self, parameters: Array, examples: Examples) -> dict[str, Any]:
        fitted = super()._coefficients(parameters, examples)
        coef, intercept = fitted["coef_"][0], fitted["intercept_"][0]
        return {
            "target_bound_": self.target_bound,
            "coef_": coef * self.target_bound,
            "intercept_": float(intercept * self.target_bound),
        }

    def _default_clip(self) -> float:
        raise NotImplementedError

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # Targets are clipped to a bound, which common checks do not know to set.
        tags.regressor_tags.poor_score = True
        return tags


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class PrivateRidge(_PrivateRegressor):
    """Least squares with a penalty, of which only the last iterate is published.

    Errors larger than `target_bound` are clipped to it: targets are within the bound, so they
    occur only where a prediction is not.

    {parameters}

    Examples
    --------
    >>> import numpy as np
    >>> from lastiterate.linear_model import PrivateRidge
    >>> X = np.random.default_rng(0).normal(size=(5_000, 3)) / 4
    >>> model = PrivateRidge(epsilon=1.0).fit(X, X[:, 0])
    >>> model.score(X, X[:, 0]) > 0.8
    True
    """

    def _default_clip(self) -> float:
        return 1.0


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class PrivateHuberRegressor(_PrivateRegressor):
    """Regression that is linear in large errors, of which only the last iterate is published.

    A smaller `threshold` needs less noise and is less swayed by outliers.

    {parameters}

    Examples
    --------
    >>> import numpy as np
    >>> from lastiterate.linear_model import PrivateHuberRegressor
    >>> X = np.random.default_rng(0).normal(size=(5_000, 3)) / 4
    >>> model = PrivateHuberRegressor(epsilon=1.0).fit(X, X[:, 0])
    >>> model.score(X, X[:, 0]) > 0.8
    True
    """

    threshold: float = setting(
        0.25, POSITIVE, "Where errors begin to count linearly, in units of `target_bound`."
    )

    def _default_clip(self) -> float:
        return self.threshold
