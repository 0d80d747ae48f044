"""Candidate settings of a private selection, and trials of them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.model_selection import ParameterGrid

from lastiterate import _check
from lastiterate._numerics.search import least_true
from lastiterate.accounting import PrivacyReport
from lastiterate.certificate.issue import features_record
from lastiterate.certificate.verify import candidate_record, selected
from lastiterate.errors import InvalidParameter, InvalidType, NumericalFailure, warn
from lastiterate.linear_model.estimator import PrivateLinearModel
from lastiterate.linear_model.fit_inputs import FitInputs, FitResult
from lastiterate.linear_model.private_score import score_total
from lastiterate.other_releases import ACCURACY, ERRORS, Release
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.profile.selection import SelectedProfile, Tries
from lastiterate.train.noise import SECURE, Randomness, noisy

# Settings that all trials share, and units of errors.
_OWN = (
    "epsilon",
    "delta",
    "noise_std",
    "adjacency",
    "examples_per_person",
    "random_state",
    "ledger",
    "warm_start",
)
_UNITS = ("target_bound", "target_range")
_MARGIN, _TRIALS = 0.999, 6


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
    if own := sorted(names & set(_OWN)):
        must_be = "about other settings: all trials have the same guarantee"
        raise InvalidParameter("grid", own, must_be=must_be)
    if scored and (units := sorted(names & set(_UNITS))):
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
    mu = _MARGIN * _largest_mu(selection, tries)
    delta = selection.delta / tries.mean
    for _ in range(_TRIALS):
        part = selection.scoring if scored else 0.0
        epsilon = GaussianProfile(mu * math.sqrt(1.0 - part * part)).epsilon(delta)
        score = _score_release(selection, part * mu) if scored else ()
        with warnings.catch_warnings(record=True) as recorded:
            warnings.simplefilter("always")
            candidates = [
                plan_candidate(_model(selection, params, epsilon, delta), params, X, y, score)
                for params in settings
            ]
        profile = selected([one.report for one in candidates], tries)
        found = profile.epsilon(selection.delta)
        if found <= selection.epsilon:
            for message in dict.fromkeys((str(one.message), one.category) for one in recorded):
                warn(*message)
            return candidates, profile
        mu *= _MARGIN * selection.epsilon / found
    raise NumericalFailure("no noise was found that meets the target; try a smaller shape")


def _largest_mu(selection: Any, tries: Tries) -> float:
    def too_large(log_mu: float) -> bool:
        one = GaussianProfile(math.exp(log_mu))
        return not SelectedProfile(one, tries).epsilon(selection.delta) <= selection.epsilon

    return math.exp(least_true(too_large, math.log(1e-9), math.log(1e3)))


def _score_release(selection: Any, mu: float) -> tuple[Release]:
    kind = ACCURACY if is_classifier(selection.estimator) else ERRORS
    return (Release.of_mu(kind, mu, adjacency=selection.estimator.adjacency),)


def _model(selection: Any, params: Mapping[str, Any], epsilon: float, delta: float) -> Any:
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
    total, count = score_total(model, X, y)
    whole = np.array([total])
    published = float(noisy(whole, release.noise_std, source, largest=2.0 * count)[0])
    share = min(max(published / count, 0.0), 1.0)
    better = share if release.kind == ACCURACY else -share
    return Trial(candidate, model, inputs, result, better, published)
