"""Fits the model that `train` was asked for, and scores it where that was asked, too."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lastiterate.accounting import PrivacyReport
from lastiterate.certificate.issue import with_other_release
from lastiterate.cli.scoring import Asked, Budget, private_score, public_score
from lastiterate.linear_model import PrivateScore
from lastiterate.other_releases import published_record
from lastiterate.saved_model.model_file import learned_record
from lastiterate.saved_model.save_model import ESTIMATORS
from lastiterate.tables.file_encoding import EncodedTable
from lastiterate.tables.target import LabelTarget, Target


@dataclass(frozen=True)
class Made:
    """A fitted model, with what is certified of it and its score together."""

    model: Any
    report: PrivacyReport
    certificate: str
    score: str | None = None

    def learnt(self) -> dict[str, Any]:
        """The fitted parameters and other learnt values, as a model.json holds them."""
        return learned_record(self.model)


def fitted(
    kind: str,
    settings: dict[str, Any],
    truth: Target,
    read: EncodedTable,
    asked: Asked | None,
    tested: EncodedTable | None,
    key: Path | None = None,
) -> Made:
    """A model of the encoded table, and its score on the one to test with, if there is one."""
    unit = None
    if isinstance(truth, LabelTarget):
        # By place, so that no label is ever compared but with those that were declared.
        settings = settings | {"classes": list(range(len(truth.classes)))}
    else:
        low, high = truth.range
        unit = high / 2.0 - low / 2.0
        settings = settings | {"target_range": (low, high)}

    def make(epsilon: float) -> Any:
        return ESTIMATORS[kind](**settings | {"epsilon": epsilon})

    targets = read.other_columns[truth.name]
    if asked is None or tested is None or asked.epsilon is None:
        model = make(settings["epsilon"]).fit(read.rows, targets, key=key)
        score = None
        if asked is not None and tested is not None:
            outputs = model._outputs(tested.rows)
            classes = truth.classes if isinstance(truth, LabelTarget) else None
            score = public_score(
                outputs, tested.other_columns[truth.name], asked.path.name, classes=classes
            )
        return Made(model, model.privacy_, model.certificate_, score)
    epsilon, delta = settings["epsilon"], settings["delta"]
    budget = Budget.of(epsilon, delta, asked.epsilon, labels=unit is None)
    model = budget.fitted(make, read.rows, targets, key)
    other = tested.other_columns[truth.name]
    found = PrivateScore.of(
        model, tested.rows, other, epsilon=asked.epsilon, delta=delta, ledger=settings["ledger"]
    )
    report = found.joint_report(model.privacy_)
    published = published_record(found.release, found.value)
    certificate = with_other_release(model.certificate_, report, published)
    words = private_score(found.value, found.std, other.size, asked.path.name, unit=unit)
    return Made(model, report, certificate, words)
