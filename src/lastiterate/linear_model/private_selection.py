"""The best of several settings, chosen privately, at less than the price of all of them.

A setting is drawn from the grid, a model is trained with it, and scored; that again and again, a
random number of times; the model with the best score is published, and nothing else.  That the
number is random and secret is what makes it cheap.  `lastiterate.profile.selection` has the
theorem.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.model_selection import ParameterGrid
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from lastiterate import _check
from lastiterate._numerics.search import least_true
from lastiterate._warning import warn
from lastiterate.accounting import PrivacyReport
from lastiterate.certificate.selection import (
    PRIVATE_SCORE,
    PUBLIC_SCORE,
    as_selected,
    selected,
    selection_record,
)
from lastiterate.errors import InvalidParameter, InvalidType, NumericalFailure
from lastiterate.ledger.charge_on_fit import reserved_selection, the_ledger
from lastiterate.linear_model.candidates import Candidate, Try, best_of, planned
from lastiterate.linear_model.estimator import PrivateLinearModel, certified
from lastiterate.linear_model.sklearn_parameters import refuse_other_words
from lastiterate.other_releases import ACCURACY, ERRORS, Release, published_record
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.profile.selection import SelectedProfile, Tries
from lastiterate.train.noise import randomness
from lastiterate.train.traceback_scrubbing import forget_locals

_OURS = ("epsilon", "delta", "noise_std", "adjacency", "random_state", "ledger", "warm_start")
_UNITS = ("target_bound", "target_range")
_MARGIN, _TRIALS = 0.999, 6


def _has(name: str) -> Any:
    return available_if(lambda self: hasattr(self.estimator, name))


class PrivateSelection(MetaEstimatorMixin, BaseEstimator):
    """A private model with the best of several settings, at far less than the price of all.

    Scores are of public data if there is some, else of the training data, with noise that is part
    of the guarantee.  How many models were tried must stay secret, and with it how long it took.

    Parameters
    ----------
    estimator : estimator
        A private linear model; its epsilon, delta and ledger are not used.
    grid : dict or list of dict
        Settings to choose among, as for scikit-learn's `ParameterGrid`.  It must not depend on the
        data, and is published.
    epsilon, delta : float
        What the published model may cost, the choice included.
    tries : float, optional
        How many models are trained on average; by default as many as there are settings.
    shape : float, default=2.0
        Of the law of that number: 1 is geometric; less is cheaper, and more often tries very few.
    scoring : float, default=0.2
        The part of a try's mu that is spent on its score, unless that is of public data.
    random_state : int, optional
        For tests: whoever knows it can remove the noise.
    ledger : Ledger or path, optional
        Where all of it is charged, before anything is trained.

    Attributes
    ----------
    best_estimator_ : estimator
        The model that is published.
    best_params_, best_score_
        Its settings and its score, as published: noise included.
    privacy_, certificate_
        Of the model, its settings and its score.

    Examples
    --------
    >>> import numpy as np
    >>> from lastiterate.linear_model import PrivateLogisticRegression, PrivateSelection
    >>> X = np.random.default_rng(0).normal(size=(2_000, 3)) / 10
    >>> y = X[:, 0] > 0.0
    >>> model = PrivateLogisticRegression(batches="cyclic", batch_size=500)
    >>> grid = {"feature_bound": [0.1, 0.5], "epochs": [2]}
    >>> chosen = PrivateSelection(model, grid, epsilon=1.0).fit(X, y)
    >>> chosen.privacy_.epsilon(1e-5) <= 1.0, sorted(chosen.best_params_)
    (True, ['epochs', 'feature_bound'])
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
        """Train on rows `X` with targets `y`; `public` is a pair of such to score on."""
        held = [X, y]
        del X, y
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)
        try:
            refuse_other_words(other)
            self._fit(*held, public=public, ledger=the_ledger(self.ledger, ledger))
        except BaseException as error:
            held.clear()
            forget_locals(error)
            raise
        return self

    def _fit(self, X: Any, y: Any, *, public: tuple[Any, Any] | None, ledger: Any) -> None:
        settings = self._settings(scored=public is None)
        tries = Tries.of_mean(
            max(len(settings), 1.01) if self.tries is None else self.tries, shape=self.shape
        )
        candidates, profile = self._candidates(X, y, settings, tries, scored=public is None)
        records = [one.record for one in candidates]
        charged = reserved_selection(
            ledger, tries, records, type(self).__name__, seeded=self.random_state is not None
        )
        source = randomness(self.random_state)
        number = tries.number(source.uniform())
        best = best_of(number, candidates, X, y, public=public, source=source)
        chosen = replace(best.candidate.report, seeded=self.random_state is not None)
        report = as_selected(chosen, profile, bound=chosen.bound_at(self.delta))
        certificate = self._certificate(best, report, tries, records, scored=public is None)
        if charged is not None:
            charged.settle(certificate)
        model = best.model
        model._become(best.prepared, report, best.trained, certificate)
        self.best_estimator_ = model
        self.best_params_ = dict(best.candidate.params)
        self.best_score_ = best.score
        self.privacy_, self.certificate_ = report, certificate
        self.n_features_in_ = model.n_features_in_
        if is_classifier(model):
            self.classes_ = model.classes_
        best.trained.other_releases.warn(len(best.prepared.examples))

    def _settings(self, *, scored: bool) -> list[dict[str, Any]]:
        _check.target_epsilon("epsilon", self.epsilon)
        _check.number("delta", self.delta, above=0.0, below=1.0)
        _check.number("scoring", self.scoring, above=0.0, at_most=0.9)
        if not isinstance(self.estimator, PrivateLinearModel):
            raise InvalidType("estimator", self.estimator, must_be="a private linear model")
        if not self.estimator._here:
            must_be = "fitted by lastiterate.linear_model: tries are scored on rows in memory"
            raise InvalidParameter("estimator", must_be=must_be, found="one of lastiterate.dask")
        settings = list(ParameterGrid(self.grid))
        names = set().union(*settings)
        if own := sorted(names & set(_OURS)):
            must_be = "about other settings: all tries have the same guarantee"
            raise InvalidParameter("grid", own, must_be=must_be)
        if scored and (units := sorted(names & set(_UNITS))):
            must_be = "about other settings, or public=(X, y) given: errors are in units of it"
            raise InvalidParameter("grid", units, must_be=must_be)
        return settings

    def _candidates(
        self, X: Any, y: Any, settings: Sequence[Mapping[str, Any]], tries: Tries, *, scored: bool
    ) -> tuple[list[Candidate], SelectedProfile]:
        """Every setting with as little noise as the target allows."""
        mu = _MARGIN * self._largest_mu(tries)
        delta = self.delta / tries.mean
        for _ in range(_TRIALS):
            part = self.scoring if scored else 0.0
            epsilon = GaussianProfile(mu * math.sqrt(1.0 - part * part)).epsilon(delta)
            score = self._score_release(part * mu) if scored else ()
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                candidates = [
                    planned(self._model(params, epsilon, delta), params, X, y, score)
                    for params in settings
                ]
            profile = selected([one.report for one in candidates], tries)
            found = profile.epsilon(self.delta)
            if found <= self.epsilon:
                for message in dict.fromkeys((str(one.message), one.category) for one in told):
                    warn(*message)
                return candidates, profile
            mu *= _MARGIN * self.epsilon / found
        raise NumericalFailure("no noise was found that meets the target; try a smaller shape")

    def _largest_mu(self, tries: Tries) -> float:
        def too_large(log_mu: float) -> bool:
            one = GaussianProfile(math.exp(log_mu))
            return not SelectedProfile(one, tries).epsilon(self.delta) <= self.epsilon

        return math.exp(least_true(too_large, math.log(1e-9), math.log(1e3)))

    def _score_release(self, mu: float) -> tuple[Release]:
        kind = ACCURACY if is_classifier(self.estimator) else ERRORS
        return (Release.of_mu(kind, mu, adjacency=self.estimator.adjacency),)

    def _model(self, params: Mapping[str, Any], epsilon: float, delta: float) -> Any:
        own = {"epsilon": epsilon, "delta": delta, "noise_std": None, "random_state": None}
        return clone(self.estimator).set_params(**params, **own, ledger=None)

    def _certificate(
        self,
        best: Try,
        report: PrivacyReport,
        tries: Tries,
        records: Sequence[Mapping[str, Any]],
        *,
        scored: bool,
    ) -> str:
        words = PRIVATE_SCORE if scored else PUBLIC_SCORE
        noisy = published_record(report.other_releases[-1], best.published) if scored else None
        return certified(
            best.prepared,
            report,
            best.trained,
            delta=self.delta,
            more=[] if noisy is None else [noisy],
            selection=selection_record(tries, records, score=best.score, scored=words),
        )

    def predict(self, X: Any) -> NDArray[Any]:
        """Predictions of the model that was chosen."""
        check_is_fitted(self, "best_estimator_")
        predicted: NDArray[Any] = self.best_estimator_.predict(X)
        return predicted

    @_has("predict_proba")  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> NDArray[Any]:
        """Class probabilities of the model that was chosen."""
        check_is_fitted(self, "best_estimator_")
        predicted: NDArray[Any] = self.best_estimator_.predict_proba(X)
        return predicted

    @_has("decision_function")  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> NDArray[Any]:
        """Decision scores of the model that was chosen."""
        check_is_fitted(self, "best_estimator_")
        scores: NDArray[Any] = self.best_estimator_.decision_function(X)
        return scores

    def score(self, X: Any, y: Any) -> float:
        """Score of the model that was chosen; on private data that is one more release."""
        check_is_fitted(self, "best_estimator_")
        return float(self.best_estimator_.score(X, y))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = self.estimator.__sklearn_tags__()
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags, tags.regressor_tags = inner.classifier_tags, inner.regressor_tags
        tags.input_tags.sparse = inner.input_tags.sparse
        return tags
