"""Private selection of settings, at less than the cost of all trials.

A trial draws a setting from the grid, trains a model with it and scores it.  The number of trials
is random and secret, and only the model with the best score is published; that is why selection
costs little.  `lastiterate.profile.selection` has the theorem.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.model_selection import ParameterGrid
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from lastiterate import _check
from lastiterate._numerics.search import least_true
from lastiterate.accounting import PrivacyReport
from lastiterate.certificate.issue import features_record
from lastiterate.certificate.verify import (
    PRIVATE_SCORE,
    PUBLIC_SCORE,
    as_selected,
    candidate_record,
    refuse_unverifiable,
    selected,
    selection_record,
)
from lastiterate.errors import InvalidParameter, InvalidType, NumericalFailure, warn
from lastiterate.ledger.ledger import kept, one_ledger, reserve_selection
from lastiterate.linear_model.estimator import (
    FitInputs,
    FitResult,
    PrivateLinearModel,
    certificate_of,
)
from lastiterate.linear_model.inputs import refuse_unknown_arguments
from lastiterate.linear_model.private_score import noisy_score, score_kind
from lastiterate.other_releases import ACCURACY, Release, published_record
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.profile.selection import SelectedProfile, Tries
from lastiterate.train.discreet import clear_locals
from lastiterate.train.noise import SECURE, Randomness, randomness

# Settings that all trials share, and units of errors.
_SHARED_SETTINGS = (
    "epsilon",
    "delta",
    "noise_std",
    "adjacency",
    "examples_per_person",
    "random_state",
    "ledger",
    "warm_start",
)

_ERROR_UNITS = ("target_bound", "target_range")
_NOISE_MARGIN, _NOISE_TRIALS = 0.999, 6


def _if_estimator_has(name: str) -> Any:
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
    >>> from lastiterate.linear_model import PrivateLogisticRegression, PrivateSelection
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

    @_if_estimator_has("predict_proba")  # type: ignore[untyped-decorator]
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

    @_if_estimator_has("decision_function")  # type: ignore[untyped-decorator]
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


# Candidate settings of a private selection, and trials of them.


@dataclass(frozen=True)
class Candidate:
    """One setting, with the report and the record of a model with it and of its score."""

    model: PrivateLinearModel
    params: Mapping[str, Any]
    report: PrivacyReport
    record: Mapping[str, Any]


@dataclass(frozen=True)
class Trial:
    """A trained model and its score."""

    candidate: Candidate
    model: PrivateLinearModel
    inputs: FitInputs
    result: FitResult
    score: float
    published: float


def plan_candidate(
    model: Any, params: Mapping[str, Any], X: Any, y: Any, score: tuple[Release, ...]
) -> Candidate:
    """The candidate for one setting: its report covers the model and its score."""
    inputs = model._fit_inputs(X, y)
    report = inputs.report(*score)
    features = features_record(inputs.examples)
    record = candidate_record(report, inputs.task.objective, features)
    return Candidate(model, params, report, record)


def grid_settings(selection: Any, *, scored: bool) -> list[dict[str, Any]]:
    """The settings of the grid of a selection, whose parameters are checked."""
    _check.target_epsilon("epsilon", selection.epsilon)
    _check.number("delta", selection.delta, above=0.0, below=1.0)
    _check.number("scoring", selection.scoring, above=0.0, at_most=0.9)
    if not isinstance(selection.estimator, PrivateLinearModel):
        raise InvalidType("estimator", selection.estimator, must_be="a private linear model")
    if not selection.estimator._in_process:
        must_be = "fitted by lastiterate.linear_model: trials are scored on rows in memory"
        raise InvalidParameter("estimator", must_be=must_be, found="one of lastiterate.dask")
    settings = list(ParameterGrid(selection.grid))
    names = set().union(*settings)
    if own := sorted(names & set(_SHARED_SETTINGS)):
        must_be = "about other settings: all trials have the same guarantee"
        raise InvalidParameter("grid", own, must_be=must_be)
    if scored and (units := sorted(names & set(_ERROR_UNITS))):
        must_be = "about other settings, or public=(X, y) given: errors are in units of it"
        raise InvalidParameter("grid", units, must_be=must_be)
    return settings


def calibrated_candidates(
    selection: Any,
    X: Any,
    y: Any,
    settings: Sequence[Mapping[str, Any]],
    tries: Tries,
    *,
    scored: bool,
) -> tuple[list[Candidate], SelectedProfile]:
    """The candidates, with as little noise as the target allows, and the selection's profile."""
    mu = _NOISE_MARGIN * _largest_mu(selection, tries)
    delta = selection.delta / tries.mean
    for _ in range(_NOISE_TRIALS):
        part = selection.scoring if scored else 0.0
        epsilon = GaussianProfile(mu * math.sqrt(1.0 - part * part)).epsilon(delta)
        score = _score_release(selection, part * mu) if scored else ()
        with warnings.catch_warnings(record=True) as recorded:
            warnings.simplefilter("always")
            candidates = [
                plan_candidate(_trial_model(selection, params, epsilon, delta), params, X, y, score)
                for params in settings
            ]
        profile = selected([one.report for one in candidates], tries)
        found = profile.epsilon(selection.delta)
        if found <= selection.epsilon:
            for message in dict.fromkeys((str(one.message), one.category) for one in recorded):
                warn(*message)
            return candidates, profile
        mu *= _NOISE_MARGIN * selection.epsilon / found
    raise NumericalFailure("no noise was found that meets the target; try a smaller shape")


def _largest_mu(selection: Any, tries: Tries) -> float:
    def too_large(log_mu: float) -> bool:
        one = GaussianProfile(math.exp(log_mu))
        return not SelectedProfile(one, tries).epsilon(selection.delta) <= selection.epsilon

    return math.exp(least_true(too_large, math.log(1e-9), math.log(1e3)))


def _score_release(selection: Any, mu: float) -> tuple[Release]:
    kind = score_kind(selection.estimator)
    return (Release.of_mu(kind, mu, adjacency=selection.estimator.adjacency),)


def _trial_model(selection: Any, params: Mapping[str, Any], epsilon: float, delta: float) -> Any:
    own = {"epsilon": epsilon, "delta": delta, "noise_std": None, "random_state": None}
    return clone(selection.estimator).set_params(**params, **own, ledger=None)


def best_of(
    number: int,
    candidates: Sequence[Candidate],
    X: Any,
    y: Any,
    *,
    public: tuple[Any, Any] | None,
    source: Randomness,
) -> Trial:
    """The first trial with the best score; warnings of all trials are suppressed."""
    best: Trial | None = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(number):
            candidate = candidates[int(source.subset(len(candidates), 1)[0])]
            trial = _run_trial(candidate, X, y, public=public, source=source)
            if best is None or trial.score > best.score:
                best = trial
    assert best is not None
    return best


def _run_trial(
    candidate: Candidate, X: Any, y: Any, *, public: tuple[Any, Any] | None, source: Randomness
) -> Trial:
    model = clone(candidate.model)
    if source.provenance != SECURE:
        model.random_state = int(source.uniform() * 2.0**32)
    inputs = model._fit_inputs(X, y)
    # A refusal would reveal trials that are not published.
    result = model._train(inputs, candidate.report, refuse=False)
    model._set_fitted(inputs, candidate.report, result, "")
    if public is not None:
        score = float(model.score(*public))
        return Trial(candidate, model, inputs, result, score, score)
    release = candidate.report.other_releases[-1]
    share, published, _ = noisy_score(model, X, y, release, source)
    better = share if release.kind == ACCURACY else -share
    return Trial(candidate, model, inputs, result, better, published)
