"""Private linear classifiers."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from lastiterate._numerics.arrays import Array
from lastiterate.errors import InvalidParameter
from lastiterate.train.estimator import PARAMETERS, PrivateLinearModel, Task
from lastiterate.train.objectives import Logistic, Objective, SmoothedHinge, Softmax


class _PrivateClassifier(ClassifierMixin, PrivateLinearModel):
    def fit(self, X: Any, y: Any, sample_weight: None = None) -> Self:
        """Train on rows `X` with labels `y`; `sample_weight` is refused."""
        return self._fit(X, y, sample_weight)

    def decision_function(self, X: Any) -> Array:
        """Scores: of the second class if there are two, else one column for each class."""
        outputs = self._outputs(X)
        return outputs.ravel() if outputs.shape[1] == 1 else outputs

    def predict(self, X: Any) -> NDArray[Any]:
        """The most likely labels."""
        scores = self.decision_function(X)
        chosen = (scores > 0.0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[chosen])

    def _task(self, targets: NDArray[Any], radius: float) -> Task:
        check_classification_targets(targets)
        classes = self._label_set(targets)
        encoded = np.searchsorted(classes, targets)
        return Task(self._objective(classes.size, radius), encoded, {"classes_": classes})

    def _label_set(self, targets: NDArray[Any]) -> NDArray[Any]:
        present = np.unique(targets)
        classes = present if self.classes is None else np.unique(np.asarray(self.classes))
        if classes.size < 2:
            must_be = "of at least two classes; declare classes=.. if some may be absent"
            raise InvalidParameter("y", f"{classes.size} class", must_be=must_be)
        if not np.isin(present, classes).all():
            raise InvalidParameter("y", "a label that is not", must_be=f"among classes={classes}")
        return classes

    def _objective(self, classes: int, radius: float) -> Objective:
        raise NotImplementedError


class PrivateLogisticRegression(_PrivateClassifier):
    __doc__ = f"""Logistic regression, binary or multinomial, of which only the last iterate is published.

    Set `epsilon` and nothing else: all other choices follow from public quantities (the number of
    examples and of classes, and the bounds), so no tuning, which would itself cost privacy, is
    needed.

    Parameters
    ----------{PARAMETERS}    classes : sequence, optional
        The label set, which is public; by default what occurs in `y`.
    clip : {{"envelope", "margin"}}, default="envelope"
        How residuals of three or more classes are clipped; the margin clip is cheaper.

    Attributes
    ----------
    privacy_ : PrivacyReport
        What is certified of exactly what ran.
    certificate_ : str
        JSON; `lastiterate.train.certificate.verify` derives it again.
    coef_, intercept_, classes_, parameters_, n_iter_, n_features_in_
        As in scikit-learn; `parameters_` is all that was released.

    Examples
    --------
    >>> import numpy as np
    >>> from lastiterate.linear_model import PrivateLogisticRegression
    >>> X = np.random.default_rng(0).normal(size=(2_000, 3))
    >>> model = PrivateLogisticRegression(epsilon=1.0).fit(X, X[:, 0] > 0.0)
    >>> model.score(X, X[:, 0] > 0.0) > 0.9, model.privacy_.epsilon(delta=1e-5) <= 1.0
    (True, True)
    """  # noqa: E501 - the first line is one sentence

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
        classes: Any = None,
        clip: str = "envelope",
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
        self.classes = classes
        self.clip = clip
        self.random_state = random_state
        self.warm_start = warm_start

    def predict_proba(self, X: Any) -> Array:
        """Probabilities, one column for each class."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            positive = expit(scores)
            return np.column_stack([1.0 - positive, positive])
        return np.asarray(softmax(scores, axis=1))

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms of the probabilities."""
        return np.log(np.maximum(self.predict_proba(X), np.finfo(float).tiny))

    def _objective(self, classes: int, radius: float) -> Objective:
        if classes == 2:
            return Logistic(clip=self._residual_clip(radius, 0.25))
        clip = self._residual_clip(radius, 2**0.5 / 4)
        return Softmax(classes=classes, clip=clip, kind=self.clip)


class PrivateLinearSVC(_PrivateClassifier):
    __doc__ = f"""Linear support vector machine for two classes, with a smoothed hinge loss.

    Parameters
    ----------{PARAMETERS}    classes : sequence, optional
        The label set, which is public; by default what occurs in `y`.
    smoothing : float, default=1.0
        The range of margins over which the hinge is rounded off.

    Examples
    --------
    >>> import numpy as np
    >>> from lastiterate.linear_model import PrivateLinearSVC
    >>> X = np.random.default_rng(0).normal(size=(2_000, 3))
    >>> PrivateLinearSVC(epsilon=1.0).fit(X, X[:, 0] > 0.0).score(X, X[:, 0] > 0.0) > 0.9
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
        classes: Any = None,
        smoothing: float = 1.0,
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
        self.classes = classes
        self.smoothing = smoothing
        self.random_state = random_state
        self.warm_start = warm_start

    def _objective(self, classes: int, radius: float) -> Objective:
        if classes > 2:
            raise InvalidParameter(
                "y",
                f"{classes} classes",
                must_be="binary; Only binary classification is supported. "
                "PrivateLogisticRegression takes more classes",
            )
        return SmoothedHinge(clip=self._residual_clip(radius, 0.5), width=self.smoothing)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags
