"""Reads a saved model, and checks that its certificate holds and belongs to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from lastiterate._files import with_an_end
from lastiterate.certificate.verify import VerifiedCertificate, read, verified_certificate
from lastiterate.errors import InvalidCertificate, InvalidParameter
from lastiterate.features.known_maps import map_of
from lastiterate.features.transformers import transformer_of
from lastiterate.linear_model.intervals import measured_attributes
from lastiterate.linear_model.preprocessing import PrivateScaler
from lastiterate.linear_model.private_schema import PrivateSchema
from lastiterate.other_releases import OUTLIERS, PUBLISHED, UNDECLARED
from lastiterate.saved_model.file_writing import CERTIFICATE, MODEL
from lastiterate.saved_model.model_file import (
    EXPECTED_FILE,
    FeatureStep,
    SavedModel,
    SchemaStep,
    Step,
    labels_in,
    read_model,
    widths,
)
from lastiterate.saved_model.save import BY_CLASS, ESTIMATORS, UNSAVED_SETTINGS


def load(folder: str | Path, *, signed_by: str | Path | None = None) -> Any:
    """A fitted model, or pipeline, that predicts as the one that was saved.

    The certificate is derived again, as `verify` does it, and must be that of these parameters,
    columns and labels.  Nothing in the files is run as code.

    Parameters
    ----------
    folder : str or Path
        The folder that `save` or `lastiterate train` wrote.
    signed_by : str or Path, optional
        A file with a public key (Ed25519), to check that its owner signed the certificate.

    Returns
    -------
    estimator or Pipeline
        The fitted model, or a pipeline that ends in it.

    Raises
    ------
    InvalidCertificate
        If the certificate does not hold, or belongs to another model.
    InvalidParameter
        If the folder holds no saved model, or its file was altered.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import lastiterate as li
    >>> from lastiterate.linear_model import PrivateRidge
    >>> X = np.random.default_rng(0).normal(size=(2_000, 3)) / 4
    >>> model = PrivateRidge(epsilon=1.0, target_range=(-1, 1)).fit(X, X[:, 0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     li.save(model, folder)
    ...     loaded = li.load(folder)
    >>> loaded.privacy_.epsilon(1e-5) == model.privacy_.epsilon(1e-5)
    True
    """
    must_be = "a folder that lastiterate.save or `lastiterate train` wrote"
    where = folder_with(folder, (MODEL, CERTIFICATE), must_be)
    saved = read_model(where / MODEL)
    return loaded(saved, with_an_end(where / CERTIFICATE).read_text(encoding="utf-8"), signed_by)


def folder_with(folder: str | Path, names: tuple[str, ...], must_be: str) -> Path:
    """The folder, which must hold files of these names."""
    where = Path(folder)
    absent = [name for name in names if not (where / name).is_file()]
    if absent:
        raise InvalidParameter(
            "folder", must_be=must_be, found=f"no {' and no '.join(absent)} in {where}"
        )
    return where


def loaded(saved: SavedModel, text: str, signed_by: str | Path | None) -> Any:
    """The fitted model, or pipeline, of a file and its certificate, which is derived again."""
    found = verified_certificate(
        text, parameters=saved.parameters, encoding=saved.encoding, signed_by=signed_by
    )
    described = read(text)
    if not saved.matches_certificate(described):
        raise InvalidCertificate(["the model predicts by other numbers than it describes"])
    found.warn()
    estimator = _estimator(saved, found, described, text)
    columns = widths(saved.steps, saved.encoder.width)
    steps = [
        (step.name, _transformer(step, saved, count))
        for step, count in zip(saved.steps, columns, strict=False)
    ]
    return Pipeline([*steps, (saved.record["name"], estimator)]) if steps else estimator


def _estimator(
    saved: SavedModel, found: VerifiedCertificate, described: Mapping[str, Any], certificate: str
) -> Any:
    model = ESTIMATORS[saved.record["model"]](**_settings(saved))
    model.checked()
    coef, intercept = (np.array(saved.record[name]) for name in ("coef", "intercept"))
    published = {one["kind"]: one[PUBLISHED] for one in described["other_releases"]}
    centre, requests = saved.centre, found.requests
    fitted: dict[str, Any] = {
        "n_features_in_": coef.shape[1],
        "parameters_": saved.parameters,
        "feature_bound_": saved.record["feature_bound"],
        "privacy_": found.report,
        "certificate_": certificate,
        "ledger_": None,
        "n_iter_": requests.run.steps + sum(one.steps for one in requests.done),
        "outliers_": published.get(OUTLIERS, {}),
        "undeclared_": published.get(UNDECLARED, {}),
        "center_": None if centre is None else centre.mean,
        "center_bound_": None if centre is None else centre.bound,
        "coef_": coef,
        "intercept_": intercept,
    }
    if saved.record["model"] != "svc":
        fitted |= measured_attributes(saved.intervals)
    if requests.done:
        fitted["unlearning_"] = requests.request_guarantee(len(requests.done) - 1)
        fitted["privacy_of_newest_"] = requests.retained_against_last_model
    if saved.classes is None:
        low, high = saved.record["target_range"]
        fitted |= {
            "target_bound_": high / 2.0 - low / 2.0,
            "coef_": coef[0],
            "intercept_": float(intercept[0]),
        }
    else:
        if saved.record["model"] == "logistic":
            shift = saved.record.get("rate_shift")
            fitted["rate_shift_"] = None if shift is None else np.array(shift)
        fitted["classes_"] = labels_in(saved.record)
    if not saved.steps:
        fitted |= _feature_names(saved)
    model.__dict__.update(fitted)
    return model


def _settings(saved: SavedModel) -> dict[str, Any]:
    settings = dict(saved.record["settings"])
    known = {each.name for each in fields(ESTIMATORS[saved.record["model"]])}
    if not set(settings) <= known - set(UNSAVED_SETTINGS):
        raise InvalidParameter("settings", sorted(settings), must_be=f"those of {EXPECTED_FILE}")
    for name in BY_CLASS:
        if settings.get(name) is not None:
            settings[name] = dict(settings[name])
    return settings


def _feature_names(saved: SavedModel) -> dict[str, Any]:
    """The names that columns had, unless they were numbered for want of any."""
    columns = saved.record["columns"]
    if columns == [str(k) for k in range(len(columns))]:
        return {}
    return {"feature_names_in_": np.array(columns, dtype=object)}


def _transformer(step: Step, saved: SavedModel, columns: int) -> Any:
    if isinstance(step, SchemaStep):
        schema = PrivateSchema(saved.record["schema"], bound=step.bound, dtype=np.dtype(step.dtype))
        return schema.fit(dict.fromkeys(saved.record["columns"], ()))
    transformer: Any
    if isinstance(step, FeatureStep):
        transformer = transformer_of(map_of(step.map))
    else:
        low, high = (None if end is None else np.array(end) for end in (step.low, step.high))
        transformer = PrivateScaler(step.bound, low=low, high=high)
        transformer.n_features_in_ = columns
    if step is saved.steps[0]:
        transformer.__dict__.update(_feature_names(saved))
    return transformer
