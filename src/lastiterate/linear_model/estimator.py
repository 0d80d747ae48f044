"""The base of the private linear models: parameters, checks, and one way to fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from lastiterate._html import card
from lastiterate._numerics.rounding import Array
from lastiterate.accounting import PrivacyReport
from lastiterate.errors import InvalidParameter
from lastiterate.ledger.ledger import kept, one_ledger, reserve_training
from lastiterate.linear_model.confidence import (
    IntervalsMixin,
    measured_attributes,
    warn_of_collinear_columns,
    warn_of_flat_parameters,
)
from lastiterate.linear_model.example_weights import weighted
from lastiterate.linear_model.fit_inputs import FitInputs, FitResult, Task, certificate_of
from lastiterate.linear_model.fit_warnings import (
    warn_of_delta,
    warn_of_dominant_noise,
    warn_of_lost_centre,
    warn_of_several_fits,
)
from lastiterate.linear_model.inputs import refuse_raw_frame, rows_alone, rows_and_targets
from lastiterate.linear_model.preprocessing import preprocessing_of
from lastiterate.linear_model.published_statistics import (
    PUBLISHED_KINDS,
    PublishedStatistics,
    check_text_columns,
)
from lastiterate.linear_model.sklearn_parameters import (
    ScikitLearnParameters,
    refuse_unknown_arguments,
)
from lastiterate.linear_model.unlearn_rows import UnlearningMixin
from lastiterate.train.centring import REACH, Centre
from lastiterate.train.data import AnyExamples, bounded, linear_outputs, secret_key
from lastiterate.train.discreet import clear_locals
from lastiterate.train.noise import randomness
from lastiterate.train.noisy_descent import noisy_descent
from lastiterate.train.rows import without_duplicates
from lastiterate.train.settings import Settings


class PrivateLinearModel(
    UnlearningMixin, IntervalsMixin, ScikitLearnParameters, Settings, BaseEstimator
):
    """Base class of linear models that publish only the last iterate."""

    # The constant feature of the intercept, in units of the bound: large enough to be learned, and
    # small enough to add only 1 % to the norms that noise is proportional to
    # (benchmarks/validation.py: 1/4 is up to .1 points behind, 1/2 up to .3).
    _constant = 0.125
    _reach = REACH

    def _fit(self, held: list[Any], ledger: Any = None, key: Any = None, other: Any = None) -> Self:
        """Fit on X and y, held in a list so that no traceback keeps them; `other` is refused."""
        self._clear_fitted()
        try:
            other = other or {}
            held.append(other.pop("sample_weight", None))
            refuse_unknown_arguments(other)
            self._fit_once(*held, ledger=ledger, key=key)
        except BaseException as error:
            held.clear()
            self._clear_fitted()
            clear_locals(error)
            raise
        return self

    def _fit_once(self, X: Any, y: Any, sample_weight: Any, *, ledger: Any, key: Any) -> None:
        secret = None if key is None else secret_key(key)
        if sample_weight is not None and secret is not None:
            must_be = "left out with sample_weight: such rows cannot be unlearned"
            raise InvalidParameter("key", must_be=must_be, found="both")
        inputs = self._fit_inputs(X, y, sample_weight, ledger=ledger)
        # Steps that become short would make later unlearning expensive.
        inputs = replace(inputs, for_unlearning=secret is not None)
        report = inputs.report()
        charged = reserve_training(
            inputs.settings.ledger,
            report,
            type(self).__name__,
            seeded=self.random_state is not None,
        )
        result = self._train(inputs, report, refuse=inputs.settings.feature_bound is None)
        certificate = certificate_of(inputs, report, result, key=secret)
        if charged is not None:
            charged.settle(certificate)
        self._set_fitted(inputs, report, result, certificate)
        result.other_releases.warn(len(inputs.examples))
        encoder, features = inputs.preprocessing.encoder, inputs.examples.features
        named = getattr(self, "feature_names_in_", ()) if encoder is None else encoder.names
        warn_of_flat_parameters(result.other_releases.flat, named, features)
        classes = inputs.task.fitted_attributes.get("classes_")
        if classes is not None:
            result.other_releases.warn_of_rates(classes.tolist())
        if classes is not None and inputs.task.offset is None:
            warn_of_lost_centre(result.other_releases.lost, self._constant)

    def _fit_inputs(
        self, X: Any, y: Any, sample_weight: Any = None, *, ledger: Any = None
    ) -> FitInputs:
        settings = self.checked()
        self._refuse_rate_matching()
        settings.ledger = one_ledger(self.ledger, ledger)
        warn_of_several_fits(charged=settings.ledger is not None)
        preprocessing = preprocessing_of(settings.preprocessing)
        preprocessing.warn()
        if settings.feature_bound is None:
            # Rows to unlearn come without the steps before the model.
            settings.feature_bound = preprocessing.norm_bound or vars(self).get("feature_bound_")
        inputs = weighted(self._gather_inputs(X, y, settings), sample_weight)
        inputs = replace(inputs, preprocessing=preprocessing)
        examples, task = inputs.examples, inputs.task
        self._refuse_intervals(task.objective.outputs, examples.features)
        if settings.intervals and preprocessing.encoder is not None:
            warn_of_collinear_columns(
                preprocessing.encoder.without_baseline,
                l2=settings.l2,
                fit_intercept=settings.fit_intercept,
            )
        warn_of_delta(settings.delta, len(examples))
        classes = np.size(task.fitted_attributes.get("classes_", 0))
        warn_of_dominant_noise(settings, examples=len(examples), classes=classes)
        return inputs

    @np.errstate(all="ignore")  # what raises must not depend on a row's size
    def _gather_inputs(self, X: Any, y: Any, settings: Any) -> FitInputs:
        """Rows and targets, checked and encoded."""
        refuse_raw_frame(X, settings.feature_bound)
        rows, targets = rows_and_targets(
            self, X, y, numeric=self._numeric_targets, any_target=self._takes_any_target(y)
        )
        bound = 1.0 if settings.feature_bound is None else settings.feature_bound
        intercept = self._constant * bound if self.fit_intercept else 0.0
        # The task decides which targets count: a label that is no number is only unknown.
        examples = bounded(rows, np.zeros(targets.size), bound=bound, intercept=intercept)
        check_text_columns(settings.text_columns, examples.features)
        task = settings._task(targets, examples.radius)
        task = replace(task, outside=settings._outside(targets, task))
        examples = replace(
            examples,
            targets=task.targets,
            silent=task.silent,
            offset=task.offset,
            arithmetic=settings.arithmetic,
        )
        return FitInputs(task, examples, settings)

    @np.errstate(all="ignore")
    def _train(self, inputs: FitInputs, report: PrivacyReport, *, refuse: bool) -> FitResult:
        task, examples = inputs.task, inputs.examples
        own = tuple(r for r in report.other_releases if r.kind in PUBLISHED_KINDS)
        other_releases = PublishedStatistics(own, randomness(self.random_state), self._reach)
        other_releases.count(examples, task.outside, refuse=refuse)
        other_releases.count_undeclared(examples, inputs.settings.text_columns)
        examples = other_releases.centred(examples)
        parameters = noisy_descent(report.run, task.objective, examples, other_releases.source)
        found = self._coefficients(parameters, examples)
        shift = other_releases.match_rates(
            examples, found["coef_"], found["intercept_"], task.class_shares
        )
        intervals = other_releases.measure_intervals(
            examples,
            task.objective,
            parameters,
            report.run.loss.regulariser,
            self._interval_units(examples.offset),
        )
        return FitResult(parameters, examples, other_releases, shift, intervals)

    def _refuse_rate_matching(self) -> None:
        if self.rate_matching and not (self._has_probabilities and self._in_process):
            must_be = "0 unless PrivateLogisticRegression of lastiterate.linear_model is fitted"
            raise InvalidParameter("rate_matching", self.rate_matching, must_be=must_be)

    def _set_fitted(
        self, inputs: FitInputs, report: PrivacyReport, result: FitResult, certificate: str
    ) -> None:
        examples, centre = result.examples, result.examples.centre
        # Only now, all at once: an interrupted fit leaves nothing behind.
        fitted = {
            "n_features_in_": examples.features,
            "parameters_": result.parameters,
            "feature_bound_": examples.feature_bound,
            "privacy_": report,
            "certificate_": certificate,
            "n_iter_": report.run.steps,
            "ledger_": kept(inputs.settings.ledger),
            "outliers_": result.other_releases.counts,
            "undeclared_": result.other_releases.undeclared,
            "center_": None if centre is None else centre.mean,
            "center_bound_": None if centre is None else centre.bound,
            **inputs.task.fitted_attributes,
            **self._coefficients(result.parameters, examples, result.rate_shift),
        }
        if self._has_probabilities:
            fitted["rate_shift_"] = result.rate_shift
        if self._has_intervals:
            fitted |= measured_attributes(result.intervals)
        self.__dict__.update(fitted)

    def _task(self, targets: NDArray[Any], radius: float) -> Task:
        raise NotImplementedError

    def _outside(self, targets: NDArray[Any], task: Task) -> NDArray[np.bool_] | int:
        """A mask, or the number, of targets outside the declared classes or range."""
        return np.zeros(targets.size, dtype=bool) if task.silent is None else task.silent

    def _coefficients(
        self, parameters: Array, examples: AnyExamples, shift: Array | None = None
    ) -> dict[str, Any]:
        width = examples.features
        coef, intercept = parameters[:, :width].copy(), np.zeros(parameters.shape[0])
        if examples.intercept:
            intercept = examples.intercept * parameters[:, width]
        if examples.centre is not None:
            coef *= examples.feature_bound / examples.centre.bound
            intercept = intercept - examples.centre.outputs(coef)
        if examples.offset is not None:
            intercept = intercept + examples.offset
        if shift is not None:
            intercept = intercept + shift
        return {"coef_": coef, "intercept_": intercept}

    def _residual_clip(self, radius: float, default: float) -> float:
        return default if self.clip_norm is None else self.clip_norm / radius

    def _takes_any_target(self, y: Any) -> bool:
        """Whether an unexpected target is accepted."""
        del y
        return False

    def _outputs(self, X: Any) -> Array:
        """The linear outputs of rows, one column per output; rows are bounded as in training."""
        check_is_fitted(self, "parameters_")
        rows = without_duplicates(rows_alone(self, X))
        return linear_outputs(
            rows,
            self.coef_.reshape(-1, rows.shape[1]),
            np.atleast_1d(self.intercept_),
            bound=self.feature_bound_,  # of the training, whatever is set now
            centre=None if self.center_ is None else Centre(self.center_, self.center_bound_),
        )

    def _clear_fitted(self) -> None:
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
    _has_probabilities = False
    _in_process = True  # whether rows are in this process
