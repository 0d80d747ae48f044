"""The base of the private linear classifiers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin

from lastiterate import _check
from lastiterate._numerics.rounding import Array
from lastiterate.errors import InvalidParameter
from lastiterate.linear_model.class_labels import as_column, labels_of, positions_of
from lastiterate.linear_model.estimator import PrivateLinearModel
from lastiterate.linear_model.example_weights import class_weights
from lastiterate.linear_model.fit_inputs import Task
from lastiterate.train.discreet import discreet, discreetly
from lastiterate.train.objectives import Objective
from lastiterate.train.settings import SettingKind, or_none, setting

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

    def fit(self, X: Any, y: Any, *, ledger: Any = None, key: Any = None, **other: Any) -> Self:
        """Train on rows `X` with labels `y`.

        Parameters
        ----------
        X : array or sparse matrix, shape (examples, features)
            The rows; a `numpy.memmap` is read block by block.
        y : array, shape (examples,)
            The labels.
        ledger : Ledger or path, optional
            The ledger that the fit is charged to, before it begins.
        key : bytes or path, optional
            A secret key, or the file that holds it; needed for later unlearning.
        **other
            `sample_weight`, a weight in (0, 1] for each example, which must not depend on other
            examples.  Anything else is refused.

        Returns
        -------
        self
            The fitted model.

        Raises
        ------
        InvalidParameter, InvalidType
            If settings or data cannot be used; messages quote no data.
        BudgetExceeded
            If the budget of the ledger does not suffice.
        """
        held = [X, y]
        del X, y
        return self._fit(held, ledger, key, other)

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
        if targets.size != predicted.size:
            must_be = f"as long as X, {predicted.size}"
            raise InvalidParameter("y", must_be=must_be, found=f"{targets.size} targets")
        known = positions_of(targets, self.classes_)
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
            class_shares=self._shares(labels.classes),
            class_weights=class_weights(self.class_weight, labels.classes),
        )

    def _offset(self, classes: NDArray[Any]) -> Array | None:
        """The offset of the outputs by public shares of the classes; None if there are none."""
        del classes
        return None

    def _shares(self, classes: NDArray[Any]) -> Array | None:
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
