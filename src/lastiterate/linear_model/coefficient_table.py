r"""Coefficients by name, in the units of the table that a model was fitted on.

A column with a range :math:`[l, h]` is a feature :math:`f(2x - l - h)/(h - l)`, where f is the
number by which all features of a `PrivateSchema` are multiplied.  So a coefficient w of the feature
is a slope :math:`2fw/(h - l)` of the column, and :math:`fw(l + h)/(h - l)` leaves the intercept.  A
column of dates is counted from the first date of its range, so that :math:`fw` leaves it.  A
feature that is f or 0 adds fw.  All of this is linear in published numbers: intervals of single
coefficients are multiplied, and that of the intercept follows from the covariance.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from lastiterate import _check
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, Array, up
from lastiterate.errors import InvalidType
from lastiterate.linear_model.estimator import PrivateLinearModel
from lastiterate.linear_model.private_schema import PrivateSchema
from lastiterate.linear_model.private_selection import PrivateSelection
from lastiterate.tables.column_rules import (
    Categorical,
    ColumnRule,
    Dates,
    DaysBetween,
    Intervals,
    Numeric,
)
from lastiterate.tables.encoder import Encoder
from lastiterate.train.data import MEASURED
from lastiterate.train.objectives import from_record

_INTERCEPT = "(intercept)"
_AS_ENCODED = "one unit of the feature"
_HARDLY_CLIPPED = 0.99  # of the largest residual: clipped there, few residuals are


@dataclass(frozen=True)
class CoefficientRow:
    """A coefficient, what a difference of it means, and its interval if the model has intervals."""

    name: str
    estimate: float
    low: float | None
    high: float | None
    meaning: str
    label: str | None = None  # the class of the score that it adds to


@dataclass(frozen=True)
class CoefficientTable:
    """The coefficients of a model by name, as `summary` returns them.

    Parameters
    ----------
    rows : tuple of CoefficientRow
        A row for each coefficient, the intercept last.
    adds_to : str
        What the coefficients add to.
    level : float or None
        The share of such intervals that cover; None without intervals.
    note : str or None
        What else to know to read the coefficients, a sentence.

    Examples
    --------
    >>> from lastiterate.linear_model.coefficient_table import CoefficientRow
    >>> row = CoefficientRow("age", 2.0, 1.5, 2.5, "one unit of age")
    >>> print(CoefficientTable((row,), "the target", 0.95))
    coefficient  estimate  95 % interval  for
    age                 2     1.5 to 2.5  one unit of age
    They add to the target.
    """

    rows: tuple[CoefficientRow, ...]
    adds_to: str
    level: float | None = None
    note: str | None = None

    def records(self) -> list[dict[str, Any]]:
        """The rows as dictionaries, for `pandas.DataFrame(table.records())`.

        Returns
        -------
        list of dict
            The name, the estimate, the ends of the interval, the meaning and the label of each.

        Examples
        --------
        >>> CoefficientTable((), "the target").records()
        []
        """
        return [asdict(row) for row in self.rows]

    def __str__(self) -> str:
        """The table as text."""
        labels = len({row.label for row in self.rows}) > 1
        head = ["label"] * labels + ["coefficient", "estimate"]
        head += [] if self.level is None else [f"{100 * self.level:g} % interval"]
        lines = [[*head, "for"], *(self._cells(row, labels) for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        left = 1 + labels
        text = [
            "  ".join(
                f"{cell:<{width}}" if k < left or k == len(line) - 1 else f"{cell:>{width}}"
                for k, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        text.append(f"They add to {self.adds_to}.")
        return "\n".join(text if self.note is None else [*text, self.note])

    def _cells(self, row: CoefficientRow, labels: bool) -> list[str]:
        cells = [str(row.label)] * labels + [row.name, f"{row.estimate:.6g}"]
        if self.level is not None:
            cells.append(f"{row.low:.6g} to {row.high:.6g}")
        return [*cells, row.meaning]


def summary(model: Any, *, level: float = 0.95) -> CoefficientTable:
    """The coefficients of a fitted model by name, in the units of its table.

    After a `PrivateSchema` the coefficient of a number is a slope per unit of its column, and that
    of a date or of days between two a slope per day, within the range; that of a value or interval
    is the difference to the column's baseline.  The intercept is the output where all columns are
    at 0 or their baseline and dates at the first of their range; where 0 is outside of a range, its
    slope is continued to there.  After other steps,
    for a model alone, and where `feature_bound` is below the schema's, coefficients are those of
    the features.  They hold for rows that the model does not scale down.  Everything follows from
    published numbers, so it costs no privacy.

    Parameters
    ----------
    model : estimator or Pipeline
        A fitted private model, alone or as the last step of a pipeline.
    level : float
        The share of such intervals that cover, for models with `intervals=True`.

    Returns
    -------
    CoefficientTable
        Names, estimates and intervals; `print` shows them, `records()` returns them.  With
        intervals the estimates are those that intervals lie around (`interval_estimate_`), else
        those that the model predicts by.

    Raises
    ------
    InvalidParameter, InvalidType
        If the model is no private linear model, or the level is outside (0, 1).

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> from lastiterate.linear_model import PrivateRidge, PrivateSchema, summary
    >>> rng = np.random.default_rng(0)
    >>> people = {"age": rng.uniform(20, 60, 40_000), "job": rng.choice(["a", "b"], 40_000)}
    >>> pay = 10 * people["age"] + 100 * (people["job"] == "b") + rng.normal(0, 50, 40_000)
    >>> schema = {"age": {"range": [20, 60]}, "job": {"values": ["a", "b"], "baseline": "a"}}
    >>> ridge = PrivateRidge(epsilon=4.0, target_range=(0, 1_000), intervals=True)
    >>> pipeline = make_pipeline(PrivateSchema(schema), ridge).fit(people, pay)
    >>> table = summary(pipeline, level=0.999)
    >>> [(row.name, row.meaning) for row in table.rows[:2]]
    [('age', 'one unit of age'), ('job=b', 'against job=a')]
    >>> all(row.low < true < row.high for row, true in zip(table.rows, (10.0, 100.0, 0.0)))
    True
    """
    level = _check.number("level", level, above=0.0, below=1.0)
    steps, fitted = _steps_and_model(model)
    coef = np.atleast_2d(fitted.coef_)
    estimates = np.column_stack([coef, np.atleast_1d(fitted.intercept_)])
    covariance: Array | None = None
    if vars(fitted).get(MEASURED[1]) is not None:
        # An interval is around what was measured for it, which training may have missed.
        found = fitted.interval_estimate_
        estimates = np.zeros((1, coef.shape[1] + 1))
        estimates[0, : len(found)] = found
        covariance = np.zeros(2 * (coef.shape[1] + 1,))
        covariance[: len(found), : len(found)] = fitted.interval_covariance_
    meanings, matrix = _units(steps, fitted, coef.shape[1])
    classes = [str(one) for one in getattr(fitted, "classes_", ())]
    labels: list[str | None] = [None] if len(estimates) == 1 else [*classes]
    rows = []
    for label, own in zip(labels, estimates @ matrix.T, strict=True):
        reach = None if covariance is None else _interval_reach(covariance, matrix, level)
        for k, (name, meaning) in enumerate(meanings):
            ends = (None, None) if reach is None else (own[k] - reach[k], own[k] + reach[k])
            low, high = (None if end is None else float(end) for end in ends)
            rows.append(CoefficientRow(name, float(own[k]), low, high, meaning, label))
    return CoefficientTable(
        tuple(rows),
        _sum_text(fitted, classes),
        None if covariance is None else level,
        _note(fitted),
    )


def _steps_and_model(model: Any) -> tuple[list[Any], PrivateLinearModel]:
    """The steps before the private model, and the model."""
    steps: list[Any] = []
    while isinstance(model, Pipeline):
        steps += [one for _, one in model.steps[:-1] if not (one is None or isinstance(one, str))]
        model = model.steps[-1][1]
    if isinstance(model, PrivateSelection):
        check_is_fitted(model, "best_estimator_")
        model = model.best_estimator_
    if not isinstance(model, PrivateLinearModel):
        must_be = "a private linear model, or a pipeline that ends in one"
        raise InvalidType("model", must_be=must_be, found=f"a {type(model).__name__}")
    check_is_fitted(model, "parameters_")
    return steps, model


def _units(
    steps: list[Any], model: PrivateLinearModel, features: int
) -> tuple[list[tuple[str, str]], Array]:
    """Names and meanings, and the matrix that leads from a model's coefficients to a table's."""
    matrix = np.eye(features + 1)
    if len(steps) == 1 and isinstance(steps[0], PrivateSchema) and _are_whole(steps[0], model):
        encoder = steps[0].encoder_
        factor = steps[0]._factor_of(encoder)
        columns = [one for name, rule in encoder.rules.items() for one in _columns(name, rule)]
        for position, one in enumerate(columns):
            matrix[position, position] = factor * one.slope
            matrix[features, position] = factor * one.at_zero
        meanings = [(one.name, one.meaning) for one in columns]
        meanings.append((_INTERCEPT, _zero_text(encoder)))
    else:
        names = _feature_names(steps, model, features)
        meanings = [(name, _AS_ENCODED) for name in names]
        meanings.append((_INTERCEPT, "every feature at 0"))
    constant = np.any(np.atleast_1d(model.intercept_)) or matrix[features, :features].any()
    if not model.fit_intercept and not constant:
        return meanings[:-1], matrix[:-1]
    return meanings, matrix


def _are_whole(schema: PrivateSchema, model: PrivateLinearModel) -> bool:
    """Whether no row of the schema is so long that the model scales it down; rows that are taken
    as they are may be."""
    bound = schema.encoder_.feature_bound if schema.bound is None else schema.bound
    return math.isinf(bound) or bound <= up(model.feature_bound_, MILLIONS_OF_ROUNDINGS)


@dataclass(frozen=True)
class _Column:
    """A feature as a linear function of cells: slope times the cell, which is counted from the
    first date if it is a date, plus its value at 0."""

    name: str
    meaning: str
    slope: float = 1.0
    at_zero: float = 0.0


def _columns(column: str, rule: ColumnRule) -> Iterator[_Column]:
    """The features of a column, what their coefficients are for, and how they follow from cells."""
    coded = rule.number if isinstance(rule, DaysBetween) else rule
    number = coded.number if isinstance(coded, Intervals) else coded
    indicators = number.indicator_names(column) if isinstance(number, Numeric) else []
    for name in rule.names(column):
        if isinstance(number, Numeric) and name in indicators:
            yield _Column(name, f"an empty cell, against {_filling_text(number)}")
        elif isinstance(coded, Numeric):
            unit = "one day" if rule.kind == "date" else "one unit"
            yield _Column(name, f"{unit} of {column}", *_line(coded))
        elif isinstance(coded, (Categorical, Intervals)):
            baseline = coded.baseline(column)
            yield _Column(name, "no baseline" if baseline is None else f"against {baseline}")
        else:
            yield _Column(name, _AS_ENCODED)


def _line(number: Numeric) -> tuple[float, float]:
    """The slope of a number's feature, and its value at 0, or at the first date."""
    if number.range is None:
        return 1.0, 0.0
    low, high = (float(end) for end in number.rounded(number.range))
    return 2.0 / (high - low), -1.0 if isinstance(number, Dates) else -(low + high) / (high - low)


def _filling_text(number: Numeric) -> str:
    assert number.missing is not None  # an indicator needs it
    return _date(number.missing) if isinstance(number, Dates) else f"{number.missing:g}"


def _date(day: float) -> str:
    """A public date in days since 1970, as text."""
    moment = np.datetime64(round(day * 86_400), "s")
    return str(moment.astype("datetime64[D]") if float(day).is_integer() else moment)


def _zero_text(encoder: Encoder) -> str:
    """The rows that the intercept is for, in words."""
    text = "every column at 0 or its baseline"
    if encoder.without_baseline:
        text = "every column at 0, at its baseline or with none of its features"
    dates = {name: rule.range for name, rule in encoder.rules.items() if isinstance(rule, Dates)}
    return ", ".join(
        [text, *(f"{name} at {_date(ends[0])}" for name, ends in dates.items() if ends)]
    )


def _feature_names(steps: list[Any], model: PrivateLinearModel, features: int) -> list[str]:
    """The names of features, where the step before the model or its table gives some."""
    given: Any = getattr(model, "feature_names_in_", ())
    if steps and hasattr(steps[-1], "get_feature_names_out"):
        given = steps[-1].get_feature_names_out()
    names = [str(name) for name in given]
    return names if len(names) == features else [f"feature {k}" for k in range(features)]


def _interval_reach(covariance: Array, matrix: Array, level: float) -> Array:
    """Half the width of each interval."""
    if not np.isfinite(covariance).all():
        return np.full(len(matrix), np.inf)
    variances = np.einsum("ij,jk,ik->i", matrix, covariance, matrix)
    return np.asarray(ndtri(0.5 + level / 2.0) * np.sqrt(np.maximum(variances, 0.0)))


def _sum_text(model: PrivateLinearModel, classes: list[str]) -> str:
    if not classes:
        return "the target"
    if len(classes) > 2:
        return "the score of each label"
    return f"the {'log-odds' if model._has_probabilities else 'score'} of {classes[1]}"


def _note(model: PrivateLinearModel) -> str | None:
    """The reason why the coefficients are not the usual ones; None if there is none."""
    texts = (_penalty_text(model), _clip_text(model), _centre_text(model))
    said = [text for text in texts if text is not None]
    return " ".join(said) or None


def _penalty_text(model: PrivateLinearModel) -> str | None:
    """A sentence on coefficients of a loss with a penalty; None if there is none."""
    if not model.l2:
        return None
    return (
        f"These coefficients are those with the penalty l2={model.l2:g}, which draws them, and the "
        "intercept even more, towards 0: they are not the usual ones, and signs may differ."
    )


def _clip_text(model: PrivateLinearModel) -> str | None:
    """A sentence on coefficients of probabilities whose loss was clipped; None if it was not."""
    if not model._has_probabilities:
        return None
    objective = from_record(json.loads(model.certificate_)["objective"])
    if objective.clip >= _HARDLY_CLIPPED * objective.least_unclipped:
        return None
    if vars(model).get(MEASURED[1]) is not None:
        remedy = "without clip_norm"
    elif objective.outputs == 1:
        remedy = "with intervals=True"
    else:
        constant = model._constant if model.fit_intercept else 0.0
        longest = objective.least_unclipped * model.feature_bound_ * math.hypot(1.0, constant)
        remedy = f"with clip_norm={math.ceil(1e3 * longest) / 1e3:g} and center=False"
    return (
        "These coefficients are those of the clipped loss and usually too far from 0; for the "
        f"usual ones fit {remedy}."
    )


def _centre_text(model: PrivateLinearModel) -> str | None:
    """A sentence on rows that are scaled down around a mean; None if there is no mean."""
    if model.center_ is None:
        return None
    return (
        "Rows far from the published mean are scaled down, and for them the coefficients are too "
        "large; with center=False only those beyond feature_bound are."
    )
