"""Private selection of settings, at less than the cost of all trials.

A trial draws a setting from the grid, trains a model with it and scores it.  The number of trials
is random and secret, and only the model with the best score is published; that is why selection
costs little.  `lastiterate.profile.selection` has the theorem.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, is_classifier
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from lastiterate.accounting import PrivacyReport
from lastiterate.certificate.verify import (
    PRIVATE_SCORE,
    PUBLIC_SCORE,
    as_selected,
    refuse_unverifiable,
    selection_record,
)
from lastiterate.ledger.ledger import kept, one_ledger, reserve_selection
from lastiterate.linear_model.candidates import Trial, best_of, calibrated_candidates, grid_settings
from lastiterate.linear_model.fit_inputs import certificate_of
from lastiterate.linear_model.sklearn_parameters import refuse_unknown_arguments
from lastiterate.other_releases import published_record
from lastiterate.profile.selection import Tries
from lastiterate.train.discreet import clear_locals
from lastiterate.train.noise import randomness


def _has(name: str) -> Any:
    return available_if(lambda self: hasattr(self.estimator, name))


class PrivateSelection(MetaEstimatorMixin, BaseEstimator):
    """A private model with the best of several settings, at far less than the cost of all trials.

    Scores are computed on public data if there is some, else on the training data, with noise that
    the guarantee includes.  The number of trials, and so the running time, must stay secret.

    Parameters
    ----------
    estimator : estimator
        A private linear model; its epsilon and delta are not used.
    grid : dict or list of dict
        The settings to choose among, as for scikit-learn's `ParameterGrid`.  The grid must not
        depend on the data, and is published.
    epsilon, delta : float
        The guarantee of the published model, the selection included.
    tries : float, optional
        The average number of trials; by default the number of settings.
    shape : float, default=2.0
        The shape of the distribution of that number: 1 is geometric; a smaller shape costs less,
        and more often leads to very few trials.
    scoring : float, default=0.2
        The part of a trial's mu that is spent on its score, unless scores are on public data.
    random_state : int, optional
        A seed, for tests: whoever knows it can remove the noise.
    ledger : Ledger or path, optional
        The ledger that the selection is charged to, before training; by default the one of the
        estimator.

    Attributes
    ----------
    best_estimator_ : estimator
        The published model.
    best_params_, best_score_
        Its settings and its published score, noise included.
    privacy_, certificate_
        Report and certificate of the model, its settings and its score.

    Examples
    --------
    >>> import numpy as np
    >>> from lastiterate.linear_model.classifiers import PrivateLogisticRegression
    >>> from lastiterate.linear_model.private_selection import PrivateSelection
    >>> X = np.random.default_rng(0).normal(size=(2_000, 3)) / 10
    >>> y = X[:, 0] > 0.0
    >>> model = PrivateLogisticRegression(batches="cyclic", batch_size=500)
    >>> grid = {"feature_bound": [0.1, 0.5], "epochs": [2]}
    >>> chosen = PrivateSelection(model, grid, epsilon=1.0).fit(X, y)
    >>> chosen.privacy_.epsilon(1e-5) <= 1.0, sorted(chosen.best_params_)
    (True, ['epochs', 'feature_bound'])
    >>> chosen.predict(X[:1]).shape, chosen.predict_proba(X[:1]).shape
    ((1,), (1, 2))
    >>> chosen.decision_function(X[:1]).shape, 0.0 <= chosen.score(X, y) <= 1.0
    ((1,), True)
    """

    def __init__(
        self,
        estimator: Any,
        grid: Any,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        tries: float | None = None,
        shape: float = 2.0,
        scoring: float = 0.2,
        random_state: Any = None,
        ledger: Any = None,
    ) -> None:
        self.estimator = estimator
        self.grid = grid
        self.epsilon = epsilon
        self.delta = delta
        self.tries = tries
        self.shape = shape
        self.scoring = scoring
        self.random_state = random_state
        self.ledger = ledger

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        public: tuple[Any, Any] | None = None,
        ledger: Any = None,
        **other: Any,
    ) -> Self:
        """Select the settings of a model, and train it.

        Parameters
        ----------
        X, y : array
            Rows and targets.
        public : pair of arrays, optional
            Public rows and targets to score on.
        ledger : Ledger or path, optional
            The ledger that the selection is charged to; by default the one of the constructor, or
            of the estimator.
        **other
            Refused: weights and other arguments that scikit-learn's `fit` may have.

        Returns
        -------
        self
            The fitted selection.

        Raises
        ------
        InvalidParameter, InvalidType
            If the grid, a setting or the data cannot be used.
        BudgetExceeded
            If the budget of the ledger does not suffice.
        """
        held = [X, y]
        del X, y
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        try:
            refuse_unknown_arguments(other)
            own = getattr(self.estimator, "ledger", None)
            self._fit(*held, public=public, ledger=one_ledger(self.ledger, ledger, own))
        except BaseException as error:
            held.clear()
            clear_locals(error)
            raise
        return self

    def _fit(self, X: Any, y: Any, *, public: tuple[Any, Any] | None, ledger: Any) -> None:
        settings = grid_settings(self, scored=public is None)
        tries = Tries.of_mean(
            max(len(settings), 1.01) if self.tries is None else self.tries, shape=self.shape
        )
        candidates, profile = calibrated_candidates(
            self, X, y, settings, tries, scored=public is None
        )
        records = [one.record for one in candidates]
        for one in records:  # whichever is chosen
            refuse_unverifiable("grid", {**one, "selection": {"candidates": records}})
        charged = reserve_selection(
            ledger,
            tries,
            records,
            [one.report.rounding for one in candidates],
            type(self).__name__,
            seeded=self.random_state is not None,
        )
        source = randomness(self.random_state)
        number = tries.number(source.word)
        best = best_of(number, candidates, X, y, public=public, source=source)
        chosen = replace(best.candidate.report, seeded=self.random_state is not None)
        report = as_selected(chosen, profile, bound=chosen.bound_at(self.delta))
        certificate = self._certificate(best, report, tries, records, scored=public is None)
        if charged is not None:
            charged.settle(certificate)
        model = best.model
        model.ledger = ledger
        model._set_fitted(best.inputs, report, best.result, certificate)
        model.ledger_ = kept(ledger)  # what follows, such as a score, is charged there, too
        self.best_estimator_ = model
        self.best_params_ = dict(best.candidate.params)
        self.best_score_ = best.score
        self.privacy_, self.certificate_ = report, certificate
        self.n_features_in_ = model.n_features_in_
        if is_classifier(model):
            self.classes_ = model.classes_
            best.result.other_releases.warn_of_rates(model.classes_.tolist())
        best.result.other_releases.warn(len(best.inputs.examples))

    def _certificate(
        self,
        best: Trial,
        report: PrivacyReport,
        tries: Tries,
        records: Sequence[Mapping[str, Any]],
        *,
        scored: bool,
    ) -> str:
        words = PRIVATE_SCORE if scored else PUBLIC_SCORE
        noisy = published_record(report.other_releases[-1], best.published) if scored else None
        return certificate_of(
            best.inputs,
            report,
            best.result,
            delta=self.delta,
            more=[] if noisy is None else [noisy],
            selection=selection_record(tries, records, score=best.score, scored=words),
        )

    def predict(self, X: Any) -> NDArray[Any]:
        """The predictions of the selected model.

        Parameters
        ----------
        X : array or sparse matrix
            The rows.

        Returns
        -------
        ndarray
            The predictions.
        """
        check_is_fitted(self, "best_estimator_")
        predicted: NDArray[Any] = self.best_estimator_.predict(X)
        return predicted

    @_has("predict_proba")  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[Any]:
        """The class probabilities of the selected model.

        Parameters
        ----------
        X : array or sparse matrix
            The rows.

        Returns
        -------
        ndarray
            One column for each class.
        """
        check_is_fitted(self, "best_estimator_")
        predicted: NDArray[Any] = self.best_estimator_.predict_proba(X)
        return predicted

    @_has("decision_function")  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> NDArray[Any]:
        """The decision scores of the selected model.

        Parameters
        ----------
        X : array or sparse matrix
            The rows.

        Returns
        -------
        ndarray
            The scores.
        """
        check_is_fitted(self, "best_estimator_")
        scores: NDArray[Any] = self.best_estimator_.decision_function(X)
        return scores

    def score(self, X: Any, y: Any) -> float:
        """The score of the selected model; on private data that is one more release.

        Parameters
        ----------
        X, y : array
            Rows and targets.

        Returns
        -------
        float
            The score.
        """
        check_is_fitted(self, "best_estimator_")
        return float(self.best_estimator_.score(X, y))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = self.estimator.__sklearn_tags__()
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags, tags.regressor_tags = inner.classifier_tags, inner.regressor_tags
        tags.input_tags.sparse = inner.input_tags.sparse
        return tags
