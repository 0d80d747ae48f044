"""The model that `train` fits, its score, and the text that is printed about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from lastiterate._display import up
from lastiterate.accounting import PrivacyReport
from lastiterate.bounds.catalogue import RECORDS
from lastiterate.certificate.issue import with_other_release
from lastiterate.cli.model_score import (
    JointBudget,
    TestOptions,
    base_rate_text,
    private_score,
    public_score,
)
from lastiterate.features.known_maps import FEATURE_STEP
from lastiterate.features.maps import FeatureMap
from lastiterate.features.transformers import transformer_of
from lastiterate.linear_model.private_schema import PrivateSchema
from lastiterate.linear_model.private_score import PrivateScore
from lastiterate.other_releases import published_record
from lastiterate.report.sentences import certainty_text, protected_change, release_rule
from lastiterate.report.text import in_columns, wrapped
from lastiterate.saved_model.save import ESTIMATORS
from lastiterate.tables.encoder import EncodedTable, LabelTarget, Target

_INSIDE = "    "
_NOTHING_ELSE = (
    "Publish nothing else that depends on these rows: no checkpoint, no loss or score on them, no "
    "setting chosen by looking at them."
)
_ADDS_UP = "Another training on these rows adds to this epsilon: --ledger keeps the sum."


def schema_step(described: Mapping[str, Any], target: str, names: Sequence[str]) -> PrivateSchema:
    """The step that makes rows of a table of these columns, in the precision of the training."""
    schema = PrivateSchema(described, target=target, bound=None, dtype=np.float32)
    return schema.fit(dict.fromkeys(names))


def as_pipeline(schema: PrivateSchema, feature_map: FeatureMap | None, model: Any) -> Pipeline:
    """The fitted model behind the steps that made its rows."""
    maps = [] if feature_map is None else [(FEATURE_STEP, transformer_of(feature_map))]
    return Pipeline([("schema", schema), *maps, ("model", model)])


def relabel(model: Any, classes: NDArray[Any]) -> None:
    """Give a fitted model these labels in the place of its own, in the same order."""
    named = dict(zip(model.classes_.tolist(), classes.tolist(), strict=True))
    model.classes, model.classes_ = classes.tolist(), classes
    if (prior := getattr(model, "class_prior", None)) is not None:
        model.class_prior = {named[one]: share for one, share in prior.items()}


def with_target(settings: dict[str, Any], target: Target) -> dict[str, Any]:
    """The settings of an estimator, with those that follow from the column to predict."""
    if isinstance(target, LabelTarget):
        # Labels are indices, so that only declared labels are ever compared.
        return settings | {"classes": list(range(len(target.classes)))}
    low, high = target.range
    return settings | {"target_range": (low, high)}


def fit_table(
    kind: str,
    settings: dict[str, Any],
    target: Target,
    table: EncodedTable,
    test: TestOptions | None,
    test_table: EncodedTable | None,
    key: Path | None = None,
) -> tuple[Any, str | None]:
    """A model fitted on the encoded table, and its score on the test table if there is one.

    Its report and certificate are of both together.
    """
    model, text = _fit(kind, settings, target, table, test, test_table, key)
    if isinstance(target, LabelTarget):
        relabel(model, np.array(target.classes))
    return model, text


def _fit(
    kind: str,
    settings: dict[str, Any],
    target: Target,
    table: EncodedTable,
    test: TestOptions | None,
    test_table: EncodedTable | None,
    key: Path | None,
) -> tuple[Any, str | None]:
    unit = None
    if not isinstance(target, LabelTarget):
        low, high = target.range
        unit = high / 2.0 - low / 2.0

    def make(epsilon: float) -> Any:
        return ESTIMATORS[kind](**settings | {"epsilon": epsilon})

    targets = table.other_columns[target.name]
    if test is None or test_table is None or test.epsilon is None:
        model = make(settings["epsilon"]).fit(table.rows, targets, key=key)
        text = None
        if test is not None and test_table is not None:
            outputs = model._outputs(test_table.rows)
            classes = target.classes if isinstance(target, LabelTarget) else None
            text = public_score(
                outputs, test_table.other_columns[target.name], test.path.name, classes=classes
            )
        return model, text
    epsilon, delta = settings["epsilon"], settings["delta"]
    budget = JointBudget.of(epsilon, delta, test.epsilon, labels=unit is None)
    model = budget.fit(make, table.rows, targets, key)
    test_targets = test_table.other_columns[target.name]
    score = PrivateScore.of(
        model,
        test_table.rows,
        test_targets,
        epsilon=test.epsilon,
        delta=delta,
        ledger=settings["ledger"],
    )
    report = score.joint_report(model.privacy_)
    published = published_record(score.release, score.value)
    model.certificate_ = with_other_release(model.certificate_, report, published)
    model.privacy_ = report
    text = private_score(score.value, score.std, test_targets.size, test.path.name, unit=unit)
    if isinstance(target, LabelTarget):
        prior = settings.get("class_prior")
        text += base_rate_text(
            score, target.classes, None if prior is None else list(prior.values())
        )
    return model, text


@dataclass(frozen=True)
class TrainingSummary:
    """The summary that `train` prints: guarantee, score, and what may be published."""

    report: PrivacyReport
    delta: float
    files: Mapping[Path, str]  # with their descriptions
    score: str | None = None
    public: tuple[str, ...] = ()  # what the guarantee does not protect
    secret: Path | None = None
    in_ledger: bool = False

    def as_text(self, width: int) -> str:
        """The summary in lines of this width."""
        return "\n".join(self._lines(width))

    def _lines(self, width: int) -> Iterator[str]:
        report, run = self.report, self.report.run
        yield from wrapped(
            f"{certainty_text(report.certainty)}: epsilon = {up(report.epsilon(self.delta))} at "
            f"delta = {self.delta:g}, {protected_change(run)}",
            width,
        )
        if self.score is not None:
            yield from wrapped(self.score, width)
        yield from ("", "You may publish:")
        bound = RECORDS[report.bound_at(self.delta)]
        allowed = release_rule(bound, run, report.other_releases).allowed
        yield from in_columns([(" -", item) for item in allowed], width, apart=1)
        yield "in these files:"
        longest = max(len(str(path)) for path in self.files)
        # Never wrapped: a path that is broken cannot be copied.
        yield from (f"{_INSIDE}{path!s:<{longest}}   {what}" for path, what in self.files.items())
        yield from wrapped(_NOTHING_ELSE, width)
        if not self.in_ledger:
            yield from wrapped(_ADDS_UP, width)
        yield from wrapped(f"Treated as public: {', '.join(self.public)}.", width)
        if self.secret is not None:
            yield from wrapped(f"Keep secret: {self.secret}.", width)
