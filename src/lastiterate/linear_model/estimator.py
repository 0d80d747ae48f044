"""What the private linear models share: parameters, checks, and one way to fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from lastiterate._numerics.arrays import Array
from lastiterate.accounting import PrivacyReport, account
from lastiterate.certificate.issue import issue
from lastiterate.certificate.statements import NO_LABELS
from lastiterate.errors import InvalidParameter
from lastiterate.ledger.charging import reserved, the_ledger
from lastiterate.linear_model.fitted_again import warn_of_delta, warn_of_several_fits
from lastiterate.linear_model.inputs import rows_alone, rows_and_targets
from lastiterate.linear_model.outliers import as_record, counted, warn_of_outliers
from lastiterate.releases import OUTLIERS, Release
from lastiterate.train.data import Examples, bounded
from lastiterate.train.defaults import default_besides, default_run
from lastiterate.train.discretion import forget_locals
from lastiterate.train.noise import randomness
from lastiterate.train.noisy_descent import noisy_descent
from lastiterate.train.norms import norm_factors, with_huge_rows_scaled
from lastiterate.train.objectives import Objective
from lastiterate.train.rows import without_duplicates
from lastiterate.train.settings import Settings

# The constant feature of the intercept, in units of the bound: large enough to be learnt, and
# small enough to add only 1 % to the norms that noise is proportional to.  On validation splits of
# the training data (Adult and IMDb at epsilon 0.5 and 2, MNIST at 0.5) 1/16, 1/8 and 1/4 are within
# .1 points of each other; 1/2 is .1 to .3 behind, and 1 from .3 to 1.3.
_INTERCEPT = 0.125


@dataclass(frozen=True)
class Task:
    """Encoded targets and the loss they are for; what more the model remembers of them."""

    objective: Objective
    targets: NDArray[Any]
    remember: dict[str, Any]
    silent: NDArray[np.bool_] | None = None  # those without a target that counts
    labels: str = NO_LABELS
    outside: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=bool))


@dataclass(frozen=True)
class Prepared:
    """All that a training needs, checked."""

    task: Task
    examples: Examples
    settings: Any

    def report(self, *more: Release) -> PrivacyReport:
        """What will be certified, before anything is trained; of `more` releases, too."""
        run = default_run(
            self.task.objective,
            self.settings,
            examples=len(self.examples),
            radius=self.examples.radius,
            mapped=self.examples.is_mapped,
        )
        besides = (*default_besides(self.settings, run), *more)
        return replace(account(run, besides=besides), enforced=True)


@dataclass(frozen=True)
class Trained:
    """All that a training gives."""

    parameters: Array
    counts: list[dict[str, int]]
    provenance: str


def certified(
    prepared: Prepared,
    report: PrivacyReport,
    trained: Trained,
    *,
    delta: float | None = None,
    more: Sequence[Mapping[str, Any]] = (),
    selection: Mapping[str, Any] | None = None,
) -> str:
    """The certificate of what was trained, and of `more` records of what is published besides."""
    outliers = [one for one in report.besides if one.kind == OUTLIERS]
    records = [as_record(one, each) for one, each in zip(outliers, trained.counts, strict=True)]
    return issue(
        report,
        prepared.task.objective,
        prepared.examples,
        trained.parameters,
        delta=prepared.settings.delta if delta is None else delta,
        provenance=trained.provenance,
        labels=prepared.task.labels,
        besides=[*records, *more],
        selection=selection,
    )


class PrivateLinearModel(Settings, BaseEstimator):
    """A linear model of which only the last iterate is published."""

    def _fit(self, held: list[Any], ledger: Any = None) -> Self:
        """On X, y and sample_weight, held in a list so that no traceback keeps them."""
        self._forget()
        try:
            self._fit_anew(*held, ledger=ledger)
        except BaseException as error:
            held.clear()
            self._forget()
            forget_locals(error)
            raise
        return self

    def _fit_anew(self, X: Any, y: Any, sample_weight: Any, *, ledger: Any) -> None:
        prepared = self._prepared(X, y, sample_weight, ledger=ledger)
        report = prepared.report()
        charged = reserved(
            prepared.settings.ledger,
            report,
            type(self).__name__,
            seeded=self.random_state is not None,
        )
        trained = self._train(prepared, report)
        certificate = certified(prepared, report, trained)
        if charged is not None:
            charged.settle(certificate)
        self._become(prepared, report, trained, certificate)
        for one, each in zip(report.besides, trained.counts, strict=True):
            warn_of_outliers(each, one, len(prepared.examples))

    def _prepared(self, X: Any, y: Any, sample_weight: Any, *, ledger: Any = None) -> Prepared:
        if sample_weight is not None:
            raise InvalidParameter(
                "sample_weight",
                must_be="None: a weight scales an example's gradient, and so what it can reveal; "
                "all examples are protected alike",
                found="weights",
            )
        settings = self.checked()
        settings.ledger = the_ledger(self.ledger, ledger)
        warn_of_several_fits(charged=settings.ledger is not None)
        rows, targets = rows_and_targets(
            self, X, y, numeric=self._numeric_targets, any_target=self._takes_any_target(y)
        )
        bound = settings.feature_bound
        intercept = _INTERCEPT * bound if self.fit_intercept else 0.0
        # Which targets count is the task's to say: a label that is no number is only unknown.
        examples = bounded(rows, np.zeros(targets.size), bound=bound, intercept=intercept)
        task = settings._task(targets, examples.radius)
        task = replace(task, outside=settings._outside(targets, task))
        warn_of_delta(settings.delta, len(examples))
        examples = replace(examples, targets=task.targets, silent=task.silent)
        return Prepared(task, examples, settings)

    def _train(self, prepared: Prepared, report: PrivacyReport) -> Trained:
        task, examples = prepared.task, prepared.examples
        source = randomness(self.random_state)
        parameters = noisy_descent(report.run, task.objective, examples, source)
        counts = [
            counted(examples, task.outside, one, source)
            for one in report.besides
            if one.kind == OUTLIERS
        ]
        return Trained(parameters, counts, source.provenance)

    def _become(
        self, prepared: Prepared, report: PrivacyReport, trained: Trained, certificate: str
    ) -> None:
        examples = prepared.examples
        # Only now, all at once: an interrupted fit leaves nothing behind.
        fitted = {
            "n_features_in_": examples.features,
            "parameters_": trained.parameters,
            "feature_bound_": examples.feature_bound,
            "privacy_": report,
            "certificate_": certificate,
            "n_iter_": report.run.steps,
            "outliers_": trained.counts[0] if trained.counts else {},
            **prepared.task.remember,
            **self._coefficients(trained.parameters, examples),
        }
        self.__dict__.update(fitted)

    def _task(self, targets: NDArray[Any], radius: float) -> Task:
        raise NotImplementedError

    def _outside(self, targets: NDArray[Any], task: Task) -> NDArray[np.bool_]:
        """Which targets are not as declared."""
        return np.zeros(targets.size, dtype=bool) if task.silent is None else task.silent

    def _coefficients(self, parameters: Array, examples: Examples) -> dict[str, Any]:
        width = examples.features
        coef, intercept = parameters[:, :width], np.zeros(parameters.shape[0])
        if examples.intercept:
            intercept = examples.intercept * parameters[:, width]
        return {"coef_": coef.copy(), "intercept_": intercept}

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
        bound = self.feature_bound_  # of the training, whatever is set by now
        rows, factors = with_huge_rows_scaled(rows, norm_factors(rows, bound), bound=bound)
        scores = np.asarray(rows @ self.coef_.reshape(-1, rows.shape[1]).T, dtype=np.float64)
        return np.asarray(scores * factors[:, np.newaxis] + self.intercept_)

    def _forget(self) -> None:
        for name in [name for name in vars(self) if name.endswith("_") and name[0] != "_"]:
            delattr(self, name)

    def __getattr__(self, name: str) -> Any:
        if name == "partial_fit":
            raise AttributeError(
                "partial_fit is not offered: every call would release a model of its own, and "
                "each would have to be charged for; fit separate models and compose their "
                "privacy_ reports"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

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
