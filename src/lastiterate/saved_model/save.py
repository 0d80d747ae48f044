"""Writes a fitted model, alone or in a pipeline, as data."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from lastiterate.certificate.fields import model_digest
from lastiterate.certificate.unlearning import chain_tied_to_encoding
from lastiterate.certificate.verify import read
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.features.transformers import FixedFeatures
from lastiterate.linear_model.classifiers import PrivateLinearSVC, PrivateLogisticRegression
from lastiterate.linear_model.estimator import PrivateLinearModel
from lastiterate.linear_model.preprocessing import PrivateScaler
from lastiterate.linear_model.private_schema import PrivateSchema
from lastiterate.linear_model.private_selection import PrivateSelection
from lastiterate.linear_model.regressors import PrivateHuberRegressor, PrivateRidge
from lastiterate.saved_model.file_writing import (
    CERTIFICATE,
    MODEL,
    refuse_replacing_in,
    write_together,
)
from lastiterate.saved_model.model_file import (
    FORMAT,
    FeatureStep,
    SavedModel,
    ScalerStep,
    SchemaStep,
    Step,
    as_record,
    is_complete,
    learned_record,
)
from lastiterate.tables.column_rules import AS_IT_IS
from lastiterate.tables.encoder import REST, Encoder
from lastiterate.train.data import MEASURED

ESTIMATORS: dict[str, Any] = {
    "logistic": PrivateLogisticRegression,
    "svc": PrivateLinearSVC,
    "ridge": PrivateRidge,
    "huber": PrivateHuberRegressor,
}

# Secrets, settings of this machine, and a setting that can only be False.
UNSAVED_SETTINGS = ("random_state", "ledger")

BY_CLASS = ("class_prior", "class_weight")
REMEDY = "overwrite=True replaces what lastiterate wrote"

_OF_A_HEAD = (
    "whose .estimator is one, for rows as lastiterate.torch.features gives them; "
    "lastiterate.torch.save writes the layer, and torch.onnx.export(model, ..) the whole model"
)

_ALONE = (
    "save(pipeline[-1], folder) writes the private model alone, for rows as the steps before it "
    "give them"
)


def save(model: Any, folder: str | Path, *, overwrite: bool = False) -> None:
    """Write a fitted private model as `model.json` and `certificate.json`.

    They are the files that `lastiterate train` writes: `lastiterate verify` and `lastiterate
    predict` take their folder, and `load` gives the model back.  They hold what is published and
    nothing else: no `random_state`, no ledger, no code.  A model that was fitted on arrays has
    columns "0", "1", ..

    Parameters
    ----------
    model : estimator or Pipeline
        A fitted private model, alone or as the last step of a pipeline after a PrivateSchema,
        PrivateScalers and fixed features (`lastiterate.features`).  Other steps are refused: they
        cannot be written as data.
    folder : str or Path
        The folder for the files; it is created if it does not exist.
    overwrite : bool
        Whether to replace files that lastiterate wrote; no others are ever replaced.

    Raises
    ------
    InvalidParameter, InvalidType
        If the model is not fitted, was changed since, or has steps that cannot be written as data;
        or if the folder holds a model and `overwrite` is False.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import lastiterate as li
    >>> from lastiterate.linear_model import PrivateLogisticRegression
    >>> X = np.random.default_rng(0).normal(size=(2_000, 3))
    >>> model = PrivateLogisticRegression(epsilon=1.0).fit(X, X[:, 0] > 0.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     li.save(model, folder)
    ...     again = li.load(folder)
    >>> bool((again.predict(X) == model.predict(X)).all())
    True
    """
    saved, certificate = saved_model_of(model)
    where = empty_folder(folder, (MODEL, CERTIFICATE), overwrite=overwrite)
    texts = {MODEL: saved.text(), CERTIFICATE: certificate}
    write_together("folder", where, texts, allowed=overwrite, remedy=REMEDY)


def saved_model_of(model: Any, **more: Any) -> tuple[SavedModel, str]:
    """A fitted model, and `more`, as data, and its certificate; both must belong together."""
    steps, name, estimator = _pipeline_parts(model)
    saved = SavedModel(_record(steps, name, estimator) | more)
    described = read(estimator.certificate_)
    same = described.get("model") == model_digest(estimator.parameters_)
    if not (is_complete(saved.record) and same and saved.matches_certificate(described)):
        must_be = "as it was fitted: fit it again, or undo later changes"
        raise InvalidParameter("model", must_be=must_be, found="other numbers than certified")
    return saved, chain_tied_to_encoding(estimator.certificate_, saved.encoding)


def empty_folder(folder: str | Path, names: tuple[str, ...], *, overwrite: bool) -> Path:
    """The folder, which must not hold files of these names yet, or ours to be replaced."""
    where = Path(folder)
    refuse_replacing_in("folder", where, names, allowed=overwrite, remedy=REMEDY)
    return where


def _pipeline_parts(model: Any) -> tuple[list[tuple[str, Any]], str, Any]:
    """The steps before the private model, the name of its own step, and the model."""
    steps: list[tuple[str, Any]] = []
    name = "model"
    while hasattr(model, "steps"):
        *before, (name, model) = model.steps
        steps += [(of, one) for of, one in before if not (one is None or isinstance(one, str))]
    if isinstance(model, PrivateSelection):
        check_is_fitted(model, "best_estimator_")
        model = model.best_estimator_
    must_be = "a fitted private linear model, or a pipeline that ends in one"
    if not isinstance(model, PrivateLinearModel):
        found = f"a {type(model).__name__}"
        if isinstance(getattr(model, "estimator", None), PrivateLinearModel):
            found += f", {_OF_A_HEAD}"
        raise InvalidType("model", must_be=must_be, found=found)
    check_is_fitted(model, "parameters_")
    other = [
        of
        for index, (of, one) in enumerate(steps)
        if not isinstance(one, (PrivateScaler, FixedFeatures))
        and not (isinstance(one, PrivateSchema) and index == 0)
    ]
    if other:
        must_be = (
            "a private model after at most a PrivateSchema, PrivateScalers and transformers of "
            f"lastiterate.features: {_ALONE}"
        )
        found = f"steps that cannot be written as data: {', '.join(other)}"
        raise InvalidParameter("model", must_be=must_be, found=found)
    for _, one in steps:
        check_is_fitted(one, "n_features_in_")
    return steps, name, model


def _record(steps: list[tuple[str, Any]], name: str, estimator: Any) -> dict[str, Any]:
    first = steps[0][1] if steps else estimator
    columns, schema = _columns_of(first)
    kind = next((word for word, of in ESTIMATORS.items() if isinstance(estimator, of)), None)
    if kind is None:
        must_be = f"one of {', '.join(one.__name__ for one in ESTIMATORS.values())}"
        raise InvalidType("model", must_be=must_be, found=f"a {type(estimator).__name__}")
    classes = getattr(estimator, "classes_", None)
    ends = None
    if classes is None:
        half = float(estimator.target_bound_)
        given = estimator.target_range
        ends = [-half, half] if given is None else _plain_value("target_range", given)
    offset = None if classes is None else estimator._offset(classes)
    shift = getattr(estimator, "rate_shift_", None)
    return {
        "format": FORMAT,
        "model": kind,
        "target": getattr(first, "target", None) or "target",
        "columns": columns,
        "schema": schema,
        "feature_bound": estimator.feature_bound_,
        "classes": None if classes is None else [str(one) for one in classes.tolist()],
        "target_range": ends,
        "labels": None if classes is None else _labels(classes),
        "offset": None if offset is None else offset.tolist(),
        "rate_shift": None if shift is None else shift.tolist(),
        "steps": [as_record(_step(of, one)) for of, one in steps],
        "name": name,
        "settings": _settings(estimator, ESTIMATORS[kind]),
        "intervals": _intervals(estimator),
        **learned_record(estimator),
    }


def _intervals(estimator: Any) -> dict[str, Any] | None:
    """The record that confidence intervals follow from; None if the model has none."""
    estimate, covariance = (getattr(estimator, name, None) for name in MEASURED)
    if estimate is None or covariance is None:
        return None
    known = bool(np.isfinite(covariance).all())  # JSON has no infinity
    matrix = covariance.tolist() if known else None
    return dict(zip(MEASURED, (estimate.tolist(), matrix), strict=True))


def _columns_of(first: Any) -> tuple[list[str], dict[str, Any]]:
    """The names of the input columns, and the schema that describes them."""
    if not isinstance(first, PrivateSchema):
        names = [str(name) for name in getattr(first, "feature_names_in_", ())]
        if len(set(names)) < first.n_features_in_:
            names = [str(k) for k in range(first.n_features_in_)]
        return names, {REST: AS_IT_IS}
    described = first._entries()
    columns = list(first.encoder_.column_kinds)
    entries = first.encoder_.schema(described)
    schema = {name: _plain_value("schema", entry) for name, entry in entries.items()}
    if any(one is None for one in schema.values()) or _rules_read(
        Encoder.of(schema, columns)
    ) != _rules_read(first.encoder_):
        must_be = "as it was when it was fitted"
        raise InvalidParameter("schema", must_be=must_be, found="another one")
    return columns, schema


def _rules_read(encoder: Encoder) -> dict[str, Any]:
    return {name: rule for name, rule in encoder.rules.items() if rule.kind is not None}


def _step(name: str, step: Any) -> Step:
    if isinstance(step, PrivateSchema):
        bound = None if step.bound is None else float(step.bound)
        return SchemaStep(name, bound, str(np.dtype(step.dtype)))
    if isinstance(step, FixedFeatures):
        return FeatureStep(name, step.feature_map(step.n_features_in_).as_record())
    ranges = step._range(step.n_features_in_)
    low, high = (None, None) if ranges is None else (tuple(end.tolist()) for end in ranges)
    return ScalerStep(name, float(step.bound), low, high)


def _labels(classes: Any) -> dict[str, Any]:
    values = classes.tolist()
    if classes.dtype.kind not in "biufU" and not all(isinstance(one, str) for one in values):
        must_be = "numbers or text, which can be written as data"
        raise InvalidParameter("classes", must_be=must_be, found=f"type {classes.dtype}")
    return {"dtype": str(classes.dtype), "values": values}


def _settings(estimator: Any, kind: Any) -> dict[str, Any]:
    """Settings of the estimator that are written to the file: those that are not the default."""
    found = {}
    for each in fields(kind):
        value = getattr(estimator, each.name)
        if each.name in UNSAVED_SETTINGS or (
            value is None and not each.metadata["kind"].may_be_none
        ):
            continue  # some settings may be None on a cluster only
        if each.name in BY_CLASS and value is not None:
            value = [[label, share] for label, share in value.items()]
        plain = _plain_value(each.name, value)
        if plain != each.default:
            found[each.name] = plain
    return found


def _plain_value(name: str, value: Any) -> Any:
    """The value as JSON has it; raises `InvalidType` if JSON has no form for it."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if hasattr(value, "items"):
        return {str(key): _plain_value(name, one) for key, one in value.items()}
    if hasattr(value, "__iter__"):
        return [_plain_value(name, one) for one in value]
    raise InvalidType(name, value, must_be="something that can be written as JSON")
