"""The base of the private linear models: parameters, checks, and one way to fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from lastiterate._html import card
from lastiterate._numerics.arrays import Array
from lastiterate.accounting import PrivacyReport, account
from lastiterate.certificate.issue import issue
from lastiterate.certificate.statements import NO_LABELS, caveats
from lastiterate.ledger.charge_on_fit import reserved, the_ledger
from lastiterate.linear_model.fit_warnings import (
    warn_of_delta,
    warn_of_hopeless_task,
    warn_of_lost_centre,
    warn_of_several_fits,
)
from lastiterate.linear_model.inputs import refuse_raw_frame, rows_alone, rows_and_targets
from lastiterate.linear_model.preprocessing import Preprocessing, preprocessing_of
from lastiterate.linear_model.published_statistics import PublishedStatistics, check_text_columns
from lastiterate.linear_model.sklearn_parameters import OfScikitLearn, refuse_other_words
from lastiterate.linear_model.unlearn_rows import Unlearns
from lastiterate.other_releases import MEAN, OUTLIERS, UNDECLARED, Release
from lastiterate.train.centring import Centre
from lastiterate.train.data import Examples, bounded
from lastiterate.train.data_digest import data_digest, secret_key
from lastiterate.train.default_releases import default_releases
from lastiterate.train.defaults import default_run
from lastiterate.train.noise import randomness
from lastiterate.train.noisy_descent import noisy_descent
from lastiterate.train.objectives import Objective
from lastiterate.train.predictions import linear_outputs
from lastiterate.train.rows import without_duplicates
from lastiterate.train.settings import Settings
from lastiterate.train.shards import AnyExamples
from lastiterate.train.traceback_scrubbing import forget_locals


@dataclass(frozen=True)
class Task:
    """Encoded targets and the loss they are for; what more the model remembers of them."""

    objective: Objective
    targets: NDArray[Any]
    remember: dict[str, Any]
    silent: NDArray[np.bool_] | None = None  # those without a target that counts
    labels: str = NO_LABELS
    outside: NDArray[np.bool_] | int = field(default_factory=lambda: np.zeros(0, dtype=bool))
    offset: Array | None = None  # of the outputs, public


@dataclass(frozen=True)
class Prepared:
    """All that a training needs, checked."""

    task: Task
    examples: AnyExamples
    settings: Any
    trusted: str | None = None  # who else saw rows and iterates
    to_forget: bool = False  # whether rows may have to go
    preprocessing: Preprocessing = field(default_factory=Preprocessing)

    def report(self, *more: Release) -> PrivacyReport:
        """The report to be certified, derived before training, with `more` releases included."""
        features = self.examples.features if self.settings.fit_intercept else 0  # else not centred
        run = default_run(
            self.task.objective,
            self.settings,
            examples=len(self.examples),
            radius=self.examples.radius,
            mapped=self.examples.is_mapped,
            features=features,
            even=self.to_forget,
        )
        return replace(
            account(run, other_releases=(*default_releases(self.settings, run, features), *more)),
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
class Trained:
    """All that a training gives."""

    parameters: Array
    examples: AnyExamples  # around their centre
    other_releases: PublishedStatistics


def certified(
    prepared: Prepared,
    report: PrivacyReport,
    trained: Trained,
    *,
    delta: float | None = None,
    more: Sequence[Mapping[str, Any]] = (),
    selection: Mapping[str, Any] | None = None,
    key: bytes | None = None,
) -> str:
    """The certificate of a training and of its other releases, with `more` records of these."""
    return issue(
        report,
        prepared.task.objective,
        trained.examples,
        trained.parameters,
        delta=prepared.settings.delta if delta is None else delta,
        provenance=trained.other_releases.source.provenance,
        labels=prepared.task.labels,
        other_releases=[*trained.other_releases.records, *more],
        selection=selection,
        data=None if key is None else prepared.digest(key),
        trusted=prepared.trusted,
        fitted=prepared.preprocessing.fitted,
        declared_public=prepared.preprocessing.declared_public,
    )


class PrivateLinearModel(Unlearns, OfScikitLearn, Settings, BaseEstimator):
    """A linear model of which only the last iterate is published."""

    # The constant feature of the intercept, in units of the bound: large enough to be learnt, and
    # small enough to add only 1 % to the norms that noise is proportional to
    # (benchmarks/validation.py: 1/4 is up to .1 points behind, 1/2 up to .3).
    _constant = 0.125

    def _fit(self, held: list[Any], ledger: Any = None, key: Any = None, other: Any = None) -> Self:
        """On X and y, held in a list so that no traceback keeps them; `other` words are refused."""
        self._forget()
        try:
            refuse_other_words(other or {})
            self._fit_anew(*held, ledger=ledger, key=key)
        except BaseException as error:
            held.clear()
            self._forget()
            forget_locals(error)
            raise
        return self

    def _fit_anew(self, X: Any, y: Any, *, ledger: Any, key: Any) -> None:
        secret = None if key is None else secret_key(key)
        # Short last steps would hide hardly anybody who goes later.
        prepared = replace(self._prepared(X, y, ledger=ledger), to_forget=secret is not None)
        report = prepared.report()
        charged = reserved(
            prepared.settings.ledger,
            report,
            type(self).__name__,
            seeded=self.random_state is not None,
        )
        trained = self._train(prepared, report, refuse=prepared.settings.feature_bound is None)
        certificate = certified(prepared, report, trained, key=secret)
        if charged is not None:
            charged.settle(certificate)
        self._become(prepared, report, trained, certificate)
        trained.other_releases.warn(len(prepared.examples))
        if "classes_" in prepared.task.remember and prepared.task.offset is None:
            warn_of_lost_centre(trained.other_releases.lost, self._constant)

    def _prepared(self, X: Any, y: Any, *, ledger: Any = None) -> Prepared:
        settings = self.checked()
        settings.ledger = the_ledger(self.ledger, ledger)
        warn_of_several_fits(charged=settings.ledger is not None)
        preprocessing = preprocessing_of(settings.preprocessing)
        preprocessing.warn()
        prepared = replace(self._gathered(X, y, settings), preprocessing=preprocessing)
        examples, task = prepared.examples, prepared.task
        warn_of_delta(settings.delta, len(examples))
        classes = np.size(task.remember.get("classes_", 0))
        warn_of_hopeless_task(settings, examples=len(examples), classes=classes)
        return prepared

    def _gathered(self, X: Any, y: Any, settings: Any) -> Prepared:
        """Rows and targets, checked and encoded."""
        refuse_raw_frame(X, settings.feature_bound)
        rows, targets = rows_and_targets(
            self, X, y, numeric=self._numeric_targets, any_target=self._takes_any_target(y)
        )
        bound = 1.0 if settings.feature_bound is None else settings.feature_bound
        intercept = self._constant * bound if self.fit_intercept else 0.0
        # Which targets count is the task's to say: a label that is no number is only unknown.
        examples = bounded(rows, np.zeros(targets.size), bound=bound, intercept=intercept)
        check_text_columns(settings.text_columns, examples.features)
        task = settings._task(targets, examples.radius)
        task = replace(task, outside=settings._outside(targets, task))
        examples = replace(examples, targets=task.targets, silent=task.silent, offset=task.offset)
        return Prepared(task, examples, settings)

    def _train(self, prepared: Prepared, report: PrivacyReport, *, refuse: bool) -> Trained:
        task, examples = prepared.task, prepared.examples
        own = tuple(r for r in report.other_releases if r.kind in (MEAN, OUTLIERS, UNDECLARED))
        other_releases = PublishedStatistics(own, randomness(self.random_state))
        other_releases.count(examples, task.outside, refuse=refuse)
        other_releases.count_undeclared(examples, prepared.settings.text_columns)
        examples = other_releases.centred(examples)
        parameters = noisy_descent(report.run, task.objective, examples, other_releases.source)
        return Trained(parameters, examples, other_releases)

    def _become(
        self, prepared: Prepared, report: PrivacyReport, trained: Trained, certificate: str
    ) -> None:
        examples, centre = trained.examples, trained.examples.centre
        # Only now, all at once: an interrupted fit leaves nothing behind.
        fitted = {
            "n_features_in_": examples.features,
            "parameters_": trained.parameters,
            "feature_bound_": examples.feature_bound,
            "privacy_": report,
            "certificate_": certificate,
            "n_iter_": report.run.steps,
            "outliers_": trained.other_releases.counts,
            "undeclared_": trained.other_releases.undeclared,
            "center_": None if centre is None else centre.mean,
            "center_bound_": None if centre is None else centre.bound,
            **prepared.task.remember,
            **self._coefficients(trained.parameters, examples),
        }
        self.__dict__.update(fitted)

    def _task(self, targets: NDArray[Any], radius: float) -> Task:
        raise NotImplementedError

    def _outside(self, targets: NDArray[Any], task: Task) -> NDArray[np.bool_] | int:
        """Which targets are not as declared."""
        return np.zeros(targets.size, dtype=bool) if task.silent is None else task.silent

    def _coefficients(self, parameters: Array, examples: AnyExamples) -> dict[str, Any]:
        width = examples.features
        coef, intercept = parameters[:, :width].copy(), np.zeros(parameters.shape[0])
        if examples.intercept:
            intercept = examples.intercept * parameters[:, width]
        if examples.centre is not None:
            coef *= examples.feature_bound / examples.centre.bound
            intercept = intercept - examples.centre.outputs(coef)
        if examples.offset is not None:
            intercept = intercept + examples.offset
        return {"coef_": coef, "intercept_": intercept}

    def _residual_clip(self, radius: float, default: float) -> float:
        return default if self.clip_norm is None else self.clip_norm / radius

    def _takes_any_target(self, y: Any) -> bool:
        """Whether a target that is none of those expected is no reason to refuse all."""
        del y
        return False

    def _outputs(self, X: Any) -> Array:
        """One column for each output, for rows brought within the bound as in training."""
        check_is_fitted(self, "parameters_")
        rows = without_duplicates(rows_alone(self, X))
        return linear_outputs(
            rows,
            self.coef_.reshape(-1, rows.shape[1]),
            np.atleast_1d(self.intercept_),
            bound=self.feature_bound_,  # of the training, whatever is set by now
            centre=None if self.center_ is None else Centre(self.center_, self.center_bound_),
        )

    def _forget(self) -> None:
        for name in [name for name in vars(self) if name.endswith("_") and name[0] != "_"]:
            delattr(self, name)

    def _repr_html_(self) -> str:
        report = self.__dict__.get("privacy_")
        if report is None:
            return card(type(self).__name__, [("not fitted", repr(self))])
        return card(repr(self), []) + str(report._repr_html_())

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}

    def __sklearn_clone__(self) -> Any:
        # Here and not only in `fit`, which may run in another process.
        warn_of_several_fits(charged=self.ledger is not None)
        return super().__sklearn_clone__()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = self.random_state is None
        return tags

    _numeric_targets = False
    _here = True  # whether rows are in this process
