"""Private linear regression."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin

from lastiterate import _check
from lastiterate._numerics.arrays import Array
from lastiterate.errors import InvalidParameter
from lastiterate.train.data import Examples
from lastiterate.train.estimator import PARAMETERS, PrivateLinearModel, Task
from lastiterate.train.objectives import Huber

_TARGETS = """    target_bound : float, default=1.0
        Targets outside [-target_bound, target_bound] count as its ends.  It must not depend on
        the data; errors are in proportion to it.
"""


class _PrivateRegressor(RegressorMixin, PrivateLinearModel):
    _numeric_targets = True

    def fit(self, X: Any, y: Any, sample_weight: None = None) -> Self:
        """Train on rows `X` with targets `y`; `sample_weight` is refused."""
        return self._fit(X, y, sample_weight)

    def predict(self, X: Any) -> Array:
        """The expected targets."""
        return self._outputs(X).ravel()

    def _scaled(self, targets: NDArray[Any]) -> Array:
        """In units of the bound, and within it."""
        bound = _check.number("target_bound", self.target_bound, above=0.0)
        try:
            numbers = np.asarray(targets, dtype=np.float64)
        except (TypeError, ValueError):
            numbers = np.array(math.nan)
        if not np.isfinite(numbers).all():
            raise InvalidParameter("y", "a target that is not", must_be="a finite number")
        return np.clip(numbers / bound, -1.0, 1.0)

    def _task(self, targets: NDArray[Any], radius: float) -> Task:
        clip = self._residual_clip(radius, self._default_clip())
        return Task(Huber(clip=clip), self._scaled(targets), {})

    def _coefficients(self, parameters: Array, examples: Examples) -> dict[str, Any]:
        fitted = super()._coefficients(parameters, examples)
        coef, intercept = fitted["coef_"][0], fitted["intercept_"][0]
        return {
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


class PrivateRidge(_PrivateRegressor):
    __doc__ = f"""Least squares with a penalty, of which only the last iterate is published.

    Errors larger than `target_bound` are clipped to it: targets are within the bound, so they
    occur only where a prediction is not.

    Parameters
    ----------{PARAMETERS}{_TARGETS}
    Examples
    --------
    >>> import numpy as np
    >>> from lastiterate.linear_model import PrivateRidge
    >>> X = np.random.default_rng(0).normal(size=(5_000, 3)) / 4
    >>> model = PrivateRidge(epsilon=1.0).fit(X, X[:, 0])
    >>> model.score(X, X[:, 0]) > 0.8
    True
    """

    def __init__(
        self,
        epsilon: float | None = 1.0,
        delta: float = 1e-5,
        *,
        noise_std: float | None = None,
        adjacency: str = "replace",
        l2: float = 0.0,
        release_noise_std: float | None = None,
        epochs: int = 20,
        batch_size: int | None = None,
        batches: str = "shuffled-once",
        feature_bound: float = 1.0,
        clip_norm: float | None = None,
        fit_intercept: bool = True,
        target_bound: float = 1.0,
        random_state: Any = None,
        warm_start: bool = False,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.noise_std = noise_std
        self.adjacency = adjacency
        self.l2 = l2
        self.release_noise_std = release_noise_std
        self.epochs = epochs
        self.batch_size = batch_size
        self.batches = batches
        self.feature_bound = feature_bound
        self.clip_norm = clip_norm
        self.fit_intercept = fit_intercept
        self.target_bound = target_bound
        self.random_state = random_state
        self.warm_start = warm_start

    def _default_clip(self) -> float:
        return 1.0


class PrivateHuberRegressor(_PrivateRegressor):
    __doc__ = f"""Regression that is linear in large errors, of which only the last iterate is published.

    A smaller `threshold` needs less noise and is less swayed by outliers.

    Parameters
    ----------{PARAMETERS}{_TARGETS}    threshold : float, default=0.25
        Where errors begin to count linearly, in units of `target_bound`.

    Examples
    --------
    >>> import numpy as np
    >>> from lastiterate.linear_model import PrivateHuberRegressor
    >>> X = np.random.default_rng(0).normal(size=(5_000, 3)) / 4
    >>> model = PrivateHuberRegressor(epsilon=1.0).fit(X, X[:, 0])
    >>> model.score(X, X[:, 0]) > 0.8
    True
    """  # noqa: E501

    def __init__(
        self,
        epsilon: float | None = 1.0,
        delta: float = 1e-5,
        *,
        noise_std: float | None = None,
        adjacency: str = "replace",
        l2: float = 0.0,
        release_noise_std: float | None = None,
        epochs: int = 20,
        batch_size: int | None = None,
        batches: str = "shuffled-once",
        feature_bound: float = 1.0,
        clip_norm: float | None = None,
        fit_intercept: bool = True,
        target_bound: float = 1.0,
        threshold: float = 0.25,
        random_state: Any = None,
        warm_start: bool = False,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.noise_std = noise_std
        self.adjacency = adjacency
        self.l2 = l2
        self.release_noise_std = release_noise_std
        self.epochs = epochs
        self.batch_size = batch_size
        self.batches = batches
        self.feature_bound = feature_bound
        self.clip_norm = clip_norm
        self.fit_intercept = fit_intercept
        self.target_bound = target_bound
        self.threshold = threshold
        self.random_state = random_state
        self.warm_start = warm_start

    def _default_clip(self) -> float:
        return _check.number("threshold", self.threshold, above=0.0)
