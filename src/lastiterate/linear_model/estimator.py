"""The base of the private linear models: parameters, checks, and one way to fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from lastiterate import _check
from lastiterate._display import card
from lastiterate._numerics.rounding import Array
from lastiterate.accounting import PrivacyReport, account
from lastiterate.certificate.fields import NO_LABELS, caveats
from lastiterate.certificate.issue import issue
from lastiterate.certificate.verify import refuse_unverifiable
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.ledger.ledger import kept, one_ledger, reserve_training
from lastiterate.linear_model.fit_warnings import (
    warn_of_delta,
    warn_of_dominant_noise,
    warn_of_lost_centre,
    warn_of_several_fits,
)
from lastiterate.linear_model.inputs import (
    ScikitLearnParameters,
    refuse_raw_frame,
    refuse_unknown_arguments,
    rows_alone,
    rows_and_targets,
)
from lastiterate.linear_model.intervals import (
    IntervalsMixin,
    measured_attributes,
    warn_of_collinear_columns,
    warn_of_flat_parameters,
)
from lastiterate.linear_model.preprocessing import Preprocessing, preprocessing_of
from lastiterate.linear_model.published_statistics import (
    PUBLISHED_KINDS,
    PublishedStatistics,
    check_text_columns,
)
from lastiterate.linear_model.unlearn import UnlearningMixin
from lastiterate.other_releases import MEAN, Release
from lastiterate.run.serialise import to_dict
from lastiterate.tables.cells import BadCells, any_numbers_of, single
from lastiterate.train.arithmetic import arithmetic, problem_of
from lastiterate.train.centring import REACH, Centre
from lastiterate.train.data import (
    PROVED,
    AnyExamples,
    Examples,
    bounded,
    data_digest,
    linear_outputs,
    secret_key,
)
from lastiterate.train.defaults import default_releases, default_run
from lastiterate.train.discreet import clear_locals
from lastiterate.train.noise import randomness
from lastiterate.train.noisy_descent import noisy_descent
from lastiterate.train.objectives import Objective
from lastiterate.train.rows import without_duplicates
from lastiterate.train.settings import Settings

_CLASS_WEIGHT = "a positive public weight for each of the classes, as in {0: .1, 1: 1}"
_ON_CLUSTER = "left out for rows on a cluster"
_LEAST_WEIGHT = float(np.finfo(np.float32).smallest_subnormal)


class PrivateLinearModel(
    UnlearningMixin, IntervalsMixin, ScikitLearnParameters, Settings, BaseEstimator
):
    """Base class of linear models that publish only the last iterate."""

    # The constant feature of the intercept, in units of the bound: large enough to be learned, and
    # small enough to add only 1 % to the norms that noise is proportional to
    # (benchmarks/validation.py: 1/4 is up to .1 points behind, 1/2 up to .3).
    _constant = 0.125
    _reach = REACH
    _numeric_targets = False
    _has_probabilities = False
    _in_process = True  # whether rows are in this process

    def fit(self, X: Any, y: Any, *, ledger: Any = None, key: Any = None, **other: Any) -> Self:
        """Train on rows `X` with labels or numbers `y`.

        Parameters
        ----------
        X : array or sparse matrix, shape (examples, features)
            The rows; a `numpy.memmap` is read block by block.
        y : array, shape (examples,)
            The labels, or the numbers to predict.
        ledger : Ledger or path, optional
            The ledger that the fit is charged to, before it begins.
        key : bytes or path, optional
            A secret key, or the file that holds it; needed for later unlearning.
        **other
            `sample_weight`, a weight in (0, 1] for each example, which must not depend on other
            examples.  Anything else is refused.

        Returns
        -------
        self
            The fitted model.

        Raises
        ------
        InvalidParameter, InvalidType
            If settings or data cannot be used; messages quote no data.
        BudgetExceeded
            If the budget of the ledger does not suffice.
        """
        held = [X, y]
        del X, y
        return self._fit(held, ledger, key, other)

    def _fit(self, held: list[Any], ledger: Any, key: Any, other: dict[str, Any]) -> Self:
        """Fit on X and y, held in a list so that no traceback keeps them; `other` is refused."""
        self._clear_fitted()
        try:
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
        task = replace(task, outside=settings._targets_outside(targets, task))
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

    def _targets_outside(self, targets: NDArray[Any], task: Task) -> NDArray[np.bool_] | int:
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


# The inputs and the result of a fit, the report on it, and its certificate.


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
        examples, objective = self.examples, self.task.objective
        features = examples.features if self.settings.fit_intercept else 0  # else not centred
        proved = self.settings.arithmetic == PROVED
        problem = problem_of(objective, examples)
        people = self.settings.examples_per_person
        # Before the noise is searched for, which would take hours.
        refuse_unverifiable("examples_per_person", {"run": {"examples_per_person": people}})
        run = default_run(
            objective,
            self.settings,
            examples=len(examples),
            radius=examples.radius,
            mapped=examples.is_mapped,
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


# Weights of examples, in (0, 1].
#
# An example of weight w has the loss :math:`w\ell`, which is convex with :math:`\ell`, and a
# gradient and a curvature of w times its own: no bound that holds for :math:`w = 1` is exceeded, so
# that the run, its noise and its guarantee are those without weights.  A weight is part of its row:
# it may be a function of that row and of public facts, not of other rows.


def class_weights(declared: Any, classes: NDArray[Any]) -> Array | None:
    """The weight of each class, in units of the largest if that is above 1; None without any."""
    if declared is None:
        return None
    if declared == "balanced":
        must_be = f"{_CLASS_WEIGHT}; those of the data are private"
        raise InvalidParameter("class_weight", declared, must_be=must_be)
    if not isinstance(declared, Mapping):
        raise InvalidType("class_weight", declared, must_be=_CLASS_WEIGHT)
    labels = classes.tolist()
    if len(declared) != len(labels) or any(label not in declared for label in labels):
        raise InvalidParameter("class_weight", dict(declared), must_be=_CLASS_WEIGHT)
    found = np.array(
        [_check.number(f"class_weight[{label!r}]", declared[label], above=0.0) for label in labels]
    )
    # All of them are public, so that their ratios alone matter.
    return np.asarray(np.minimum(found / max(found.max(), 1.0), 1.0))


def weighted(inputs: FitInputs, sample_weight: Any) -> FitInputs:
    """The inputs with the weights of classes and of examples, if there are any."""
    by_class, examples = inputs.task.class_weights, inputs.examples
    if by_class is None and sample_weight is None:
        return inputs
    if not isinstance(examples, Examples):
        name = "class_weight" if sample_weight is None else "sample_weight"
        raise InvalidParameter(name, must_be=_ON_CLUSTER, found="one")
    weights = np.ones(len(examples))
    if by_class is not None:
        weights = by_class[examples.targets]
    if sample_weight is not None:
        weights = weights * _checked_weights(sample_weight, len(examples))
    return replace(inputs, examples=replace(examples, weights=weights))


def _checked_weights(given: Any, examples: int) -> Array:
    """The weights as an array; errors do not quote them."""
    must_be = f"{examples} numbers in (0, 1], one for each example"
    shape = getattr(given, "shape", None)
    try:
        shape = (len(given),) if shape is None else shape
        if shape != (examples,):
            raise InvalidParameter("sample_weight", must_be=must_be, found=f"shape {shape}")
        weights = any_numbers_of(given)
    except (TypeError, BadCells):
        raise InvalidType("sample_weight", must_be=must_be, found="others") from None
    if not ((weights > 0.0) & (weights <= 1.0)).all():
        raise InvalidParameter("sample_weight", must_be=must_be, found="a weight outside")
    # A weight that is 0 in single precision is one all the same.
    return np.maximum(single(weights), _LEAST_WEIGHT)
