"""Settings that may be tried, and models that were."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from lastiterate.accounting import PrivacyReport
from lastiterate.certificate.issue import features_record
from lastiterate.certificate.selection import candidate_record
from lastiterate.linear_model.estimator import Prepared, PrivateLinearModel, Trained
from lastiterate.linear_model.private_score import total_of
from lastiterate.other_releases import ACCURACY, Release
from lastiterate.train.noise import SECURE, Randomness
from lastiterate.train.release_noise import on_grid


@dataclass(frozen=True)
class Candidate:
    """One setting, and what is certified of it and its score."""

    model: PrivateLinearModel
    params: Mapping[str, Any]
    report: PrivacyReport
    record: Mapping[str, Any]


@dataclass(frozen=True)
class Try:
    """A model that was trained, and how good it is."""

    candidate: Candidate
    model: PrivateLinearModel
    prepared: Prepared
    trained: Trained
    score: float
    published: float


def planned(
    model: Any, params: Mapping[str, Any], X: Any, y: Any, score: tuple[Release, ...]
) -> Candidate:
    """A setting, and what is certified of a model with it and of its score."""
    prepared = model._prepared(X, y)
    report = prepared.report(*score)
    features = features_record(prepared.examples)
    record = candidate_record(report, prepared.task.objective, features)
    return Candidate(model, params, report, record)


def best_of(
    number: int,
    candidates: Sequence[Candidate],
    X: Any,
    y: Any,
    *,
    public: tuple[Any, Any] | None,
    source: Randomness,
) -> Try:
    """The first of the best; what others would tell, warnings too, is not told."""
    best: Try | None = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(number):
            candidate = candidates[int(source.subset(len(candidates), 1)[0])]
            one = _tried(candidate, X, y, public=public, source=source)
            if best is None or one.score > best.score:
                best = one
    assert best is not None
    return best


def _tried(
    candidate: Candidate, X: Any, y: Any, *, public: tuple[Any, Any] | None, source: Randomness
) -> Try:
    model = clone(candidate.model)
    if source.provenance != SECURE:
        model.random_state = int(source.uniform() * 2.0**32)
    prepared = model._prepared(X, y)
    # A refusal would tell of tries that are not published.
    trained = model._train(prepared, candidate.report, refuse=False)
    model._become(prepared, candidate.report, trained, "")
    if public is not None:
        score = float(model.score(*public))
        return Try(candidate, model, prepared, trained, score, score)
    release = candidate.report.other_releases[-1]
    total, count = total_of(model, X, y)
    noisy = np.array([total]) + release.noise_std * source.release_normal((1,))
    published = float(on_grid(noisy, noise=release.noise_std)[0])
    share = min(max(published / count, 0.0), 1.0)
    better = share if release.kind == ACCURACY else -share
    return Try(candidate, model, prepared, trained, better, published)
