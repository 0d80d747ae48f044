"""What the private linear models share: parameters, checks, and one way to fit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from lastiterate._numerics.arrays import Array
from lastiterate.accounting import account
from lastiterate.certificate.issue import issue
from lastiterate.certificate.statements import NO_LABELS
from lastiterate.linear_model.besides import Besides
from lastiterate.linear_model.fitted_again import (
    warn_of_delta,
    warn_of_several_fits,
    warn_of_what_pipelines_learn,
)
from lastiterate.linear_model.inputs import rows_alone, rows_and_targets
from lastiterate.linear_model.prospects import warn_of_hopeless_task
from lastiterate.linear_model.undeclared import OfScikitLearn, refuse_raw_frame
from lastiterate.train.centring import Centre
from lastiterate.train.data import Examples, bounded
from lastiterate.train.defaults import default_besides, default_run
from lastiterate.train.discretion import forget_locals
from lastiterate.train.noise import randomness
from lastiterate.train.noisy_descent import noisy_descent
from lastiterate.train.objectives import Objective
from lastiterate.train.outputs import linear_outputs
from lastiterate.train.rows import without_duplicates
from lastiterate.train.settings import Settings


@dataclass(frozen=True)
class Task:
    """Encoded targets and the loss they are for; what more the model remembers of them."""

    objective: Objective
    targets: NDArray[Any]
    remember: dict[str, Any]
    silent: NDArray[np.bool_] | None = None  # those without a target that counts
    labels: str = NO_LABELS
    outside: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=bool))
    offset: Array | None = None  # of the outputs, public


class PrivateLinearModel(OfScikitLearn, Settings, BaseEstimator):
    """A linear model of which only the last iterate is published."""

    # The constant feature of the intercept, in units of the bound: large enough to be learnt, and
    # small enough to add only 1 % to the norms that noise is proportional to
    # (benchmarks/validation.py: 1/4 is up to .1 points behind, 1/2 up to .3).
    _constant = 0.125

    def _fit(self, held: list[Any]) -> Self:
        """On X and y, held in a list so that no traceback keeps them."""
        self._forget()
        try:
            self._fit_anew(*held)
        except BaseException as error:
            held.clear()
            self._forget()
            forget_locals(error)
            raise
        return self

    def _fit_anew(self, X: Any, y: Any) -> None:
        settings = self.checked()
        warn_of_several_fits()
        warn_of_what_pipelines_learn()
        refuse_raw_frame(X, settings.feature_bound)
        rows, targets = rows_and_targets(
            self, X, y, numeric=self._numeric_targets, any_target=self._takes_any_target(y)
        )
        bound = 1.0 if settings.feature_bound is None else settings.feature_bound
        intercept = self._constant * bound if self.fit_intercept else 0.0
        # Which targets count is the task's to say: a label that is no number is only unknown.
        examples = bounded(rows, np.zeros(targets.size), bound=bound, intercept=intercept)
        task = settings._task(targets, examples.radius)
        task = replace(task, outside=settings._outside(targets, task))
        warn_of_delta(settings.delta, len(examples))
        classes = np.size(task.remember.get("classes_", 0))
        warn_of_hopeless_task(settings, examples=len(examples), classes=classes)
        examples = replace(examples, targets=task.targets, silent=task.silent, offset=task.offset)
        self._train(task, examples, settings)

    def _train(self, task: Task, examples: Examples, settings: Settings) -> None:
        # Without an intercept 0 means something.
        features = examples.features if self.fit_intercept else 0
        run = default_run(
            task.objective,
            settings,
            examples=len(examples),
            radius=examples.radius,
            mapped=examples.is_mapped,
            features=features,
        )
        besides = Besides(default_besides(settings, run, features), randomness(self.random_state))
        report = account(run, besides=besides.releases)
        besides.count(examples, task.outside, refuse=settings.feature_bound is None)
        examples = besides.centred(examples)
        centre = examples.centre
        parameters = noisy_descent(run, task.objective, examples, besides.source)
        certificate = issue(
            report,
            task.objective,
            examples,
            parameters,
            delta=settings.delta,
            provenance=besides.source.provenance,
            labels=task.labels,
            besides=besides.records,
        )
        # Only now, all at once: an interrupted fit leaves nothing behind.
        fitted = {
            "n_features_in_": examples.features,
            "parameters_": parameters,
            "feature_bound_": examples.feature_bound,
            "privacy_": report,
            "certificate_": certificate,
            "n_iter_": run.steps,
            "outliers_": besides.counts,
            "center_": None if centre is None else centre.mean,
            "center_bound_": None if centre is None else centre.bound,
            **task.remember,
            **self._coefficients(parameters, examples),
        }
        self.__dict__.update(fitted)
        besides.warn(len(examples))

    def _task(self, targets: NDArray[Any], radius: float) -> Task:
        raise NotImplementedError

    def _outside(self, targets: NDArray[Any], task: Task) -> NDArray[np.bool_]:
        """Which targets are not as declared."""
        return np.zeros(targets.size, dtype=bool) if task.silent is None else task.silent

    def _coefficients(self, parameters: Array, examples: Examples) -> dict[str, Any]:
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
        warn_of_several_fits()
        return super().__sklearn_clone__()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = self.random_state is None
        return tags

    _numeric_targets = False
