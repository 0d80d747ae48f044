"""Private linear classifiers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin

from lastiterate._numerics.arrays import Array
from lastiterate.errors import InvalidParameter
from lastiterate.linear_model.class_labels import labels_of
from lastiterate.linear_model.estimator import PrivateLinearModel, Task
from lastiterate.train.class_prior import log_odds
from lastiterate.train.objectives import CLIPS, Logistic, Objective, SmoothedHinge, Softmax
from lastiterate.train.settings import POSITIVE, Kind, documented, one_of, or_none, setting
from lastiterate.train.traceback_scrubbing import discreet


@dataclass(eq=False, repr=False, kw_only=True)
class _PrivateClassifier(ClassifierMixin, PrivateLinearModel):
    classes: Any = setting(
        None,
        Kind("sequence"),
        "The label set, which is published.  An example with another label counts, but its "
        "gradient is 0.  By default, with a warning, what occurs in `y`; booleans need none.",
    )

    def fit(self, X: Any, y: Any, *, ledger: Any = None, key: Any = None, **other: Any) -> Self:
        """Train on rows `X` with labels `y`, charged to `ledger`.

        With a secret `key` (bytes, or the path of a file) the certificate tells whoever has it
        whether data are the same again, without which nothing can be unlearned.
        """
        held = [X, y]
        del X, y
        return self._fit(held, ledger, key, other)

    @discreet
    def decision_function(self, X: Any) -> Array:
        """Scores: of the second class if there are two, else one column for each class."""
        outputs = self._outputs(X)
        return outputs.ravel() if outputs.shape[1] == 1 else outputs

    @discreet
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The accuracy, as in scikit-learn; published, a score on private data costs privacy."""
        return float(super().score(X, y, sample_weight=sample_weight))

    @discreet
    def predict(self, X: Any) -> NDArray[Any]:
        """The most likely labels."""
        scores = self.decision_function(X)
        chosen = (scores > 0.0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[chosen])

    def _task(self, targets: NDArray[Any], radius: float) -> Task:
        labels = labels_of(targets, self.classes)
        return Task(
            self._objective(labels.classes.size, radius),
            labels.codes,
            {"classes_": labels.classes},
            labels.unknown,
            labels.provenance,
            offset=self._offset(labels.classes),
        )

    def _offset(self, classes: NDArray[Any]) -> Array | None:
        """Offset of the outputs from what is publicly known; None if there is none."""
        del classes
        return None

    def _takes_any_target(self, y: Any) -> bool:
        return self.classes is not None or getattr(getattr(y, "dtype", None), "kind", "") == "b"

    def _objective(self, classes: int, radius: float) -> Objective:
        raise NotImplementedError


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class PrivateLogisticRegression(_PrivateClassifier):
    """Logistic regression, binary or multinomial, of which only the last iterate is published.

    Set `epsilon` and nothing else: all other choices follow from public quantities (the number of
    examples and of classes, and the bounds), so no tuning, which would itself cost privacy, is
    needed.

    {parameters}

    Attributes
    ----------
    privacy_ : PrivacyReport
        What is certified of exactly what ran.
    certificate_ : str
        JSON; `lastiterate.verify` derives it again.
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
    """

    clip: str = setting(
        "envelope",
        one_of(CLIPS, default="envelope"),
        "How residuals of three or more classes are clipped; the margin clip is cheaper.",
    )

    class_prior: Any = setting(
        None,
        or_none(Kind("mapping")),  # checked where the classes are known
        'Publicly known shares of the classes, as in {"no": .98, "yes": .02}, with which the '
        "intercept begins.  It must not come from the data.",
    )

    @discreet
    def predict_proba(self, X: Any) -> Array:
        """Probabilities, one column for each class."""
        scores = self.decision_function(X)
        if scores.ndim == 1:
            positive = expit(scores)
            return np.column_stack([1.0 - positive, positive])
        return np.asarray(softmax(scores, axis=1))

    @discreet
    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms of the probabilities."""
        return np.log(np.maximum(self.predict_proba(X), np.finfo(float).tiny))

    def _offset(self, classes: NDArray[Any]) -> Array | None:
        return None if self.class_prior is None else log_odds(self.class_prior, classes)

    def _objective(self, classes: int, radius: float) -> Objective:
        if classes == 2:
            return Logistic(clip=self._residual_clip(radius, 0.25))
        clip = self._residual_clip(radius, 2**0.5 / 4)
        return Softmax(classes=classes, clip=clip, kind=self.clip)


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class PrivateLinearSVC(_PrivateClassifier):
    """Linear support vector machine for two classes, with a smoothed hinge loss.

    {parameters}

    Examples
    --------
    >>> import numpy as np
    >>> from lastiterate.linear_model import PrivateLinearSVC
    >>> X = np.random.default_rng(0).normal(size=(2_000, 3))
    >>> PrivateLinearSVC(epsilon=1.0).fit(X, X[:, 0] > 0.0).score(X, X[:, 0] > 0.0) > 0.9
    True
    """

    smoothing: float = setting(
        1.0, POSITIVE, "The range of margins over which the hinge is rounded off."
    )

    def _objective(self, classes: int, radius: float) -> Objective:
        if classes > 2:
            raise InvalidParameter(
                "y",
                must_be="binary; Only binary classification is supported. "
                "PrivateLogisticRegression takes more classes",
                found=f"{classes} classes",
            )
        return SmoothedHinge(clip=self._residual_clip(radius, 0.5), width=self.smoothing)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags
