"""The inputs and the result of a fit, the report on it, and its certificate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate._numerics.rounding import Array
from lastiterate.accounting import PrivacyReport, account
from lastiterate.certificate.fields import NO_LABELS, caveats
from lastiterate.certificate.issue import issue
from lastiterate.certificate.verify import refuse_unverifiable
from lastiterate.linear_model.preprocessing import Preprocessing
from lastiterate.linear_model.published_statistics import PublishedStatistics
from lastiterate.other_releases import MEAN, Release
from lastiterate.run.serialise import to_dict
from lastiterate.train.arithmetic import arithmetic, problem_of
from lastiterate.train.data import PROVED, AnyExamples, Examples, data_digest
from lastiterate.train.defaults import default_releases, default_run
from lastiterate.train.objectives import Objective


@dataclass(frozen=True)
class Task:
    """The objective, the encoded targets, and fitted attributes that depend on them."""

    objective: Objective
    targets: NDArray[Any]
    fitted_attributes: dict[str, Any]
    silent: NDArray[np.bool_] | None = None  # examples whose gradient is 0
    labels: str = NO_LABELS
    outside: NDArray[np.bool_] | int = field(default_factory=lambda: np.zeros(0, dtype=bool))
    offset: Array | None = None  # of the outputs, public
    class_weights: Array | None = None  # public
    class_shares: Array | None = None  # public


@dataclass(frozen=True)
class FitInputs:
    """The checked inputs of a fit."""

    task: Task
    examples: AnyExamples
    settings: Any
    trusted: str | None = None  # parties that see rows and iterates
    for_unlearning: bool = False  # whether rows may be unlearned later
    preprocessing: Preprocessing = field(default_factory=Preprocessing)

    def report(self, *more: Release) -> PrivacyReport:
        """The report on the training, derived before it, with `more` releases included."""
        features = self.examples.features if self.settings.fit_intercept else 0  # else not centred
        examples, objective = self.examples, self.task.objective
        proved = self.settings.arithmetic == PROVED
        problem = problem_of(objective, examples)
        people = self.settings.examples_per_person
        # Before the noise is searched for, which would take hours.
        refuse_unverifiable("examples_per_person", {"run": {"examples_per_person": people}})
        run = default_run(
            self.task.objective,
            self.settings,
            examples=len(self.examples),
            radius=self.examples.radius,
            mapped=self.examples.is_mapped,
            features=features,
            even=self.for_unlearning,
            problem=replace(problem, apart=examples.is_sparse) if proved else None,
        )
        refuse_unverifiable(
            "examples_per_person" if people > 1 else "epochs", {"run": to_dict(run)}
        )
        other_releases = (*default_releases(self.settings, run, features), *more)
        report = account(run, other_releases=other_releases)
        if proved:
            centred = any(one.kind == MEAN for one in other_releases)
            problem = replace(problem, apart=examples.is_sparse and centred)
            report = report.computed(arithmetic([run], problem, other_releases).rounding)
        return replace(
            report,
            enforced=True,
            seeded=self.settings.random_state is not None,
            caveats=caveats(self.task.labels, self.trusted),
            preprocessing=self.preprocessing.fitted,
        )

    def digest(self, key: bytes) -> str:
        """Keyed digest of rows and targets, which must be in this process."""
        assert isinstance(self.examples, Examples)
        return data_digest(self.examples, key)


@dataclass(frozen=True)
class FitResult:
    """The result of a training."""

    parameters: Array
    examples: AnyExamples  # centred
    other_releases: PublishedStatistics
    rate_shift: Array | None = None
    intervals: tuple[Array, Array] | None = None


def certificate_of(
    inputs: FitInputs,
    report: PrivacyReport,
    result: FitResult,
    *,
    delta: float | None = None,
    more: Sequence[Mapping[str, Any]] = (),
    selection: Mapping[str, Any] | None = None,
    key: bytes | None = None,
) -> str:
    """The certificate of a training and of its other releases, with `more` records of these."""
    return issue(
        report,
        inputs.task.objective,
        result.examples,
        result.parameters,
        delta=inputs.settings.delta if delta is None else delta,
        provenance=result.other_releases.source.provenance,
        labels=inputs.task.labels,
        other_releases=[*result.other_releases.records, *more],
        selection=selection,
        data=None if key is None else inputs.digest(key),
        trusted=inputs.trusted,
        fitted=inputs.preprocessing.fitted,
        declared_public=inputs.preprocessing.declared_public,
        feature_maps=inputs.preprocessing.feature_maps,
    )
