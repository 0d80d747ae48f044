"""Fits the model that `train` was asked for, and scores it where that was asked, too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lastiterate.accounting import PrivacyReport
from lastiterate.certificate.issue import beside
from lastiterate.cli.model_file import half_range, middle
from lastiterate.cli.scoring import Asked, Budget, private_score, public_score
from lastiterate.linear_model import (
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateScore,
)
from lastiterate.tables.encoded import Encoded
from lastiterate.tables.target import Labels, Target

_ESTIMATORS: dict[str, Any] = {
    "logistic": PrivateLogisticRegression,
    "svc": PrivateLinearSVC,
    "ridge": PrivateRidge,
    "huber": PrivateHuberRegressor,
}


@dataclass(frozen=True)
class Made:
    """A fitted model, with what is certified of it and its score together."""

    model: Any
    shift: float
    report: PrivacyReport
    certificate: str
    score: str | None = None

    def learnt(self) -> dict[str, Any]:
        """What a model.json has of it, in units of the target."""
        intercept = np.atleast_1d(self.model.intercept_)
        return {
            "parameters": self.model.parameters_.tolist(),
            "coef": np.atleast_2d(self.model.coef_).tolist(),
            "intercept": (intercept + self.shift if self.shift else intercept).tolist(),
        }


def fitted(
    kind: str,
    settings: dict[str, Any],
    truth: Target,
    read: Encoded,
    asked: Asked | None,
    tested: Encoded | None,
) -> Made:
    """A model of the encoded table, and its score on the one to test with, if there is one."""
    unit, shift = None, 0.0
    if isinstance(truth, Labels):
        # By place, so that no label is ever compared but with those that were declared.
        settings = settings | {"classes": list(range(len(truth.classes)))}
    else:
        unit, shift = half_range(*truth.range), middle(*truth.range)
        settings = settings | {"target_bound": unit}

    def make(epsilon: float) -> Any:
        return _ESTIMATORS[kind](**settings | {"epsilon": epsilon})

    targets = _from(shift, read.besides[truth.name])
    if asked is None or tested is None or asked.epsilon is None:
        model = make(settings["epsilon"]).fit(read.rows, targets)
        score = None
        if asked is not None and tested is not None:
            outputs = model._outputs(tested.rows) + shift
            score = public_score(
                outputs, tested.besides[truth.name], asked.path.name, labels=unit is None
            )
        return Made(model, shift, model.privacy_, model.certificate_, score)
    epsilon, delta = settings["epsilon"], settings["delta"]
    budget = Budget.of(epsilon, delta, asked.epsilon, labels=unit is None)
    model = budget.fitted(make, read.rows, targets)
    other = _from(shift, tested.besides[truth.name])
    found = PrivateScore.of(
        model, tested.rows, other, epsilon=asked.epsilon, delta=delta, ledger=settings["ledger"]
    )
    report = found.beside(model.privacy_)
    published = found.release.as_record() | {"published": found.value}
    certificate = beside(model.certificate_, report, published)
    words = private_score(found.value, found.std, other.size, asked.path.name, unit=unit)
    return Made(model, shift, report, certificate, words)


def _from(shift: float, targets: Any) -> Any:
    return targets - shift if shift else targets
