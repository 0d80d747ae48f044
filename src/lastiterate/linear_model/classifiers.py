"""Private linear classifiers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin

from lastiterate import _check
from lastiterate._numerics.rounding import Array
from lastiterate.errors import InvalidParameter
from lastiterate.linear_model.estimator import PrivateLinearModel, Task, class_weights
from lastiterate.linear_model.inputs import as_column, check_length, labels_of, positions_of
from lastiterate.train.defaults import log_odds
from lastiterate.train.discreet import discreet, discreetly
from lastiterate.train.objectives import CLIPS, Logistic, Objective, SmoothedHinge, Softmax
from lastiterate.train.settings import POSITIVE, SettingKind, documented, one_of, or_none, setting

_CONTINUOUS = "Unknown label type: continuous"  # as scikit-learn has it


@dataclass(eq=False, repr=False, kw_only=True)
class PrivateClassifier(ClassifierMixin, PrivateLinearModel):
    """Base class of linear classifiers that publish only the last iterate."""

    classes: Any = setting(
        None,
        SettingKind("sequence"),
        "The label set, which is published.  An example with another label counts, but its "
        "gradient is 0.  By default, with a warning, the labels in `y`; booleans need none.",
    )

    class_weight: Any = setting(
        None,
        or_none(SettingKind("mapping")),  # checked where the classes are known
        "Public weights of the classes, as in {0: .1, 1: 1}, divided by the largest if that is "
        "above 1.  Noise stays as it is, and examples that weigh less teach less.",
    )

    @discreet
    def decision_function(self, X: Any) -> Array:
        """The decision scores of rows.

        Parameters
        ----------
        X : array or sparse matrix, shape (examples, features)
            The rows.

        Returns
        -------
        ndarray
            Scores of the second class if there are two, else one column for each class.
        """
        outputs = self._outputs(X)
        return outputs.ravel() if outputs.shape[1] == 1 else outputs

    @discreet
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The accuracy, as in scikit-learn; published, a score on private data costs privacy.

        Parameters
        ----------
        X, y : array
            Rows and labels.
        sample_weight : array, optional
            Weights of the examples.

        Returns
        -------
        float
            The score.

        Raises
        ------
        InvalidParameter
            If there are not as many labels as rows, or they are of another kind.
        """
        targets, predicted = as_column(y), self.predict(X)
        known = positions_of(check_length(targets, predicted.size), self.classes_)
        correct = positions_of(predicted, self.classes_) == known
        return discreetly(lambda: float(np.average(correct, weights=sample_weight)))

    @discreet
    def predict(self, X: Any, *, threshold: float = 0.0) -> NDArray[Any]:
        """The most likely labels of rows.

        Parameters
        ----------
        X : array or sparse matrix, shape (examples, features)
            The rows.
        threshold : float
            Of two classes, the decision score above which the second one is predicted.  For a
            probability p it is log(p/(1 - p)).

        Returns
        -------
        ndarray
            One of `classes_` for each row.

        Raises
        ------
        InvalidParameter
            If there are three or more classes and a threshold, or it is no finite number.
        """
        scores = self.decision_function(X)
        least = _check.number("threshold", threshold)
        if scores.ndim > 1 and least != 0.0:
            must_be = "left out for three or more classes"
            raise InvalidParameter("threshold", least, must_be=must_be)
        chosen = (scores > least).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        return np.asarray(self.classes_[chosen])

    def _task(self, targets: NDArray[Any], radius: float) -> Task:
        try:
            labels = labels_of(targets, self.classes)
        except ValueError as error:
            if not str(error).startswith(_CONTINUOUS):
                raise
            must_be = "labels; PrivateRidge and PrivateHuberRegressor predict numbers"
            raise InvalidParameter("y", must_be=must_be, found=f"numbers ({_CONTINUOUS})") from None
        return Task(
            self._objective(labels.classes.size, radius),
            labels.codes,
            {"classes_": labels.classes},
            labels.unknown,
            labels.provenance,
            offset=self._offset(labels.classes),
            class_shares=self._public_shares(labels.classes),
            class_weights=class_weights(self.class_weight, labels.classes),
        )

    def _offset(self, classes: NDArray[Any]) -> Array | None:
        """The offset of the outputs by public shares of the classes; None if there are none."""
        del classes
        return None

    def _public_shares(self, classes: NDArray[Any]) -> Array | None:
        """The public shares of the classes; None if there are none."""
        del classes
        return None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # A common check wants weights of classes to decide on 50 rows, where noise does.
        tags.classifier_tags.poor_score = True
        return tags

    def _takes_any_target(self, y: Any) -> bool:
        return self.classes is not None or getattr(getattr(y, "dtype", None), "kind", "") == "b"

    def _objective(self, classes: int, radius: float) -> Objective:
        raise NotImplementedError


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class PrivateLogisticRegression(PrivateClassifier):
    """Logistic regression, binary or multinomial, that publishes only the last iterate.

    Set `epsilon` and nothing else: all other choices follow from public quantities (the number of
    examples and of classes, and the bounds), so no tuning, which would itself cost privacy, is
    needed.

    {parameters}

    Attributes
    ----------
    privacy_ : PrivacyReport
        The report on exactly the training that ran.
    certificate_ : str
        The certificate, as JSON; `lastiterate.verify` derives it again.
    parameters_ : ndarray
        The released parameters.
    coef_, intercept_, classes_, n_iter_, n_features_in_
        As in scikit-learn, computed from `parameters_`.
    outliers_, undeclared_ : dict
        Noisy counts of rows and targets far from their bounds, and of undeclared values.
    center_, center_bound_
        The published mean of rows, and the bound on their distance from it; None if not centred.
    rate_shift_ : ndarray or None
        The shift by `rate_matching`, which `intercept_` includes.
    interval_estimate_, interval_covariance_ : ndarray or None
        What `conf_int` uses; None without `intervals`.

    Examples
    --------
    >>> import numpy as np
    >>> from lastiterate.linear_model import PrivateLogisticRegression
    >>> X = np.random.default_rng(0).normal(size=(2_000, 3))
    >>> model = PrivateLogisticRegression(epsilon=1.0).fit(X, X[:, 0] > 0.0)
    >>> model.score(X, X[:, 0] > 0.0) > 0.9, model.privacy_.epsilon(delta=1e-5) <= 1.0
    (True, True)
    >>> model.predict([[2.0, 0.0, 0.0]]), model.decision_function([[2.0, 0.0, 0.0]]) > 0.0
    (array([ True]), array([ True]))
    >>> model.predict_proba(X).shape, model.predict_log_proba(X).shape
    ((2000, 2), (2000, 2))
    """

    _has_probabilities = True
    _has_intervals = True

    clip: str = setting(
        "envelope",
        one_of(CLIPS, default="envelope"),
        "How residuals of three or more classes are clipped; the margin clip is cheaper.",
    )

    class_prior: Any = setting(
        None,
        or_none(SettingKind("mapping")),  # checked where the classes are known
        'Publicly known shares of the classes, as in {"no": .98, "yes": .02}, from which the '
        "intercept starts.  They must not come from the data.",
    )

    @discreet
    def predict_proba(self, X: Any) -> Array:
        """The class probabilities of rows.

        Parameters
        ----------
        X : array or sparse matrix, shape (examples, features)
            The rows.

        Returns
        -------
        ndarray, shape (examples, classes)
            One column for each class.
        """
        scores = self.decision_function(X)
        if scores.ndim == 1:
            positive = expit(scores)
            return np.column_stack([1.0 - positive, positive])
        return np.asarray(softmax(scores, axis=1))

    @discreet
    def predict_log_proba(self, X: Any) -> Array:
        """The logarithms of the class probabilities of rows.

        Parameters
        ----------
        X : array or sparse matrix, shape (examples, features)
            The rows.

        Returns
        -------
        ndarray, shape (examples, classes)
            One column for each class.
        """
        return np.log(np.maximum(self.predict_proba(X), np.finfo(float).tiny))

    def _offset(self, classes: NDArray[Any]) -> Array | None:
        return None if self.class_prior is None else log_odds(self.class_prior, classes)

    def _public_shares(self, classes: NDArray[Any]) -> Array | None:
        if self.class_prior is None:
            return None
        shares = np.array([self.class_prior[label] for label in classes.tolist()], dtype=np.float64)
        return np.asarray(shares / shares.sum())

    def _objective(self, classes: int, radius: float) -> Objective:
        if classes == 2:
            # Intervals are for the coefficients of the loss that is descended: the usual one.
            return Logistic(clip=self._residual_clip(radius, 1.0 if self.intervals else 0.25))
        clip = self._residual_clip(radius, 2**0.5 / 4)
        return Softmax(classes=classes, clip=clip, kind=self.clip)


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class PrivateLinearSVC(PrivateClassifier):
    """Linear support vector machine for two classes, with a smoothed hinge loss.

    {parameters}

    Attributes
    ----------
    privacy_ : PrivacyReport
        The report on exactly the training that ran.
    certificate_ : str
        The certificate, as JSON; `lastiterate.verify` derives it again.
    parameters_ : ndarray
        The released parameters.
    coef_, intercept_, classes_, n_iter_, n_features_in_
        As in scikit-learn, computed from `parameters_`.
    outliers_, undeclared_ : dict
        Noisy counts of rows and targets far from their bounds, and of undeclared values.
    center_, center_bound_
        The published mean of rows, and the bound on their distance from it; None if not centred.

    Examples
    --------
    >>> import numpy as np
    >>> from lastiterate.linear_model import PrivateLinearSVC
    >>> X = np.random.default_rng(0).normal(size=(2_000, 3))
    >>> model = PrivateLinearSVC(epsilon=1.0).fit(X, X[:, 0] > 0.0)
    >>> model.score(X, X[:, 0] > 0.0) > 0.9, model.privacy_.epsilon(delta=1e-5) <= 1.0
    (True, True)
    >>> model.predict([[2.0, 0.0, 0.0]]), model.decision_function([[2.0, 0.0, 0.0]]) > 0.0
    (array([ True]), array([ True]))
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
