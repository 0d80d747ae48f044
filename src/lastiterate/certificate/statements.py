"""Statements common to all certificates: how hypotheses are enforced, and what is public."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lastiterate.bounds import conditions
from lastiterate.bounds.bound import Hypothesis
from lastiterate.bounds.catalogue import RECORDS
from lastiterate.features.known_maps import FEATURE_MAPS, encoded_maps
from lastiterate.run.training_run import TrainingRun

FORMAT = 8  # of 7 there were several; docs/upgrading.md
LONGER_ROWS = "scaled down to the bound"
PUBLIC = "the number of examples, the label set, and every parameter of the estimator"
LABELS_DECLARED = "declared: an example with another label has gradient 0"
LABELS_INFERRED = (
    "inferred: the labels that occur are published, and a label that one example alone has tells "
    "of it, which the guarantee does not include"
)
NO_LABELS = "none: targets are numbers"
NO_ENCODING = "none: rows were given as numbers, without names"
CLUSTER = (
    "cluster: its workers and scheduler saw rows and iterates; the guarantee is of what left it"
)
PREPROCESSING = "preprocessing"
_FITTED, _DECLARED_PUBLIC = "fitted", "declared public"
_NOT_INCLUDED = (
    "what fitted steps learnt from the same examples is published with the model, and the "
    "guarantee does not include it"
)


def caveats(labels: str, trusted: str | None) -> tuple[str, ...]:
    """Sentences on what the guarantee leaves out: labels that occur, and who saw the rows."""
    left_out = [f"Labels {LABELS_INFERRED}."] if labels == LABELS_INFERRED else []
    return (*left_out, *([] if trusted is None else [f"Trusted {trusted}."]))


LABELS = (LABELS_DECLARED, LABELS_INFERRED, NO_LABELS)
_ENFORCED: dict[Hypothesis, str] = {
    conditions.ONLY_LAST_ITERATE: "the trainer returns the final parameters and reports"
    " step counts only",
    conditions.SECRET_ORDER: "drawn from the generator under randomness, used once and discarded",
    conditions.CONVEX: "the residuals are clipped so that they are the gradient of a convex loss",
    conditions.SMOOTH: "from the bound on features, to which longer rows are scaled down,"
    " and the clip",
    conditions.SHORT_STEPS: "the step size is a constant of the run,"
    " checked against the smoothness",
    conditions.NO_ACTIVE_CLIP: "no norm clipping: the clipped loss is the one described",
}


def preprocessing(fitted: Sequence[str], declared_public: Sequence[str]) -> dict[str, Any]:
    """The certificate's record of preprocessing: fitted steps, and steps declared public."""
    return {
        _FITTED: list(fitted),
        _DECLARED_PUBLIC: list(declared_public),
        "not included": _NOT_INCLUDED,
    }


def fitted_steps(record: Mapping[str, Any]) -> tuple[str, ...]:
    """The steps that learnt from the same examples before the training."""
    return tuple(record.get(PREPROCESSING, {}).get(_FITTED, ()))


def steps_declared_public(record: Mapping[str, Any]) -> tuple[str, ...]:
    """The steps of which it is only stated that they did not."""
    return tuple(record.get(PREPROCESSING, {}).get(_DECLARED_PUBLIC, ()))


def is_preprocessing(stated: Any) -> bool:
    """Whether it says whose rows steps were fitted on, of one step at least."""
    record = {PREPROCESSING: stated}
    names = (*fitted_steps(record), *steps_declared_public(record))
    parts = fitted_steps(record), steps_declared_public(record)
    return (
        bool(names)
        and all(isinstance(name, str) and name for name in names)
        and stated == preprocessing(*parts)
    )


def stated_hypotheses(bound: str, run: TrainingRun) -> list[dict[str, str]]:
    """Hypotheses of the bound with this id on the run, each with how it is enforced, if it is."""
    needed = [
        {"needs": each.needs, "enforced": _ENFORCED.get(each, "by the description of the run")}
        for each in RECORDS[bound].all_needs(run)
    ]
    if run.examples_per_person > 1:
        most = f"no person with more than {run.examples_per_person} of the examples"
        needed.append({"needs": most, "enforced": _NOT_ENFORCED})
    return needed


_NOT_ENFORCED = "not at all: stated by whoever trained"
UNSIGNED_PARTS = ("digest", "signature", "earlier")  # about all others; and those followed


def plain_text(record: Mapping[str, Any]) -> str:
    """Canonical JSON text of a record: equal content gives equal text."""
    return json.dumps(record, sort_keys=True, separators=(",", ":"))


def digest(record: Mapping[str, Any]) -> str:
    """SHA-256 of a record without `UNSIGNED_PARTS`; whoever forges a certificate can forge it."""
    stated = {name: value for name, value in record.items() if name not in UNSIGNED_PARTS}
    return hashlib.sha256(plain_text(stated).encode()).hexdigest()


def training_digest(record: Mapping[str, Any]) -> str:
    """SHA-256 of a training's record, independent of how its model is to be used."""
    same = {name: value for name, value in record.items() if name != FEATURE_MAPS}
    return digest({**same, "encoding": NO_ENCODING})


def used_as(record: Mapping[str, Any], encoding: Mapping[str, Any]) -> dict[str, Any]:
    """The record of a training with the model's encoding and fixed maps of rows."""
    maps = encoded_maps(encoding)
    named = {FEATURE_MAPS: maps} if maps else {}
    return {**record, "encoding": encoding_digest(encoding), **named}


def model_digest(parameters: Any) -> str:
    """SHA-256 that ties a certificate to the published parameters."""
    array = np.ascontiguousarray(parameters, dtype="<f8")
    return hashlib.sha256(repr(array.shape).encode() + array.tobytes()).hexdigest()


def encoding_digest(encoding: Mapping[str, Any]) -> str:
    """SHA-256 that ties a certificate to the names, ranges and values by which a model is used."""
    return hashlib.sha256(plain_text(encoding).encode()).hexdigest()
