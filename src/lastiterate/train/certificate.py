"""A statement of what was trained, how its hypotheses were enforced, and what is guaranteed.

Written as JSON.  `verify` derives everything again that can be derived: what the objective and the
bounds on features imply for the run, and what the run implies for privacy.  A digest over the
whole text catches changes of what cannot be (versions, where the randomness came from, which model
it belongs to).  It is no signature: whoever forges a certificate can forge its digest.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import lastiterate
from lastiterate import _check
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, THOUSANDS_OF_ROUNDINGS, down
from lastiterate.accounting import PrivacyReport, account
from lastiterate.bounds import conditions
from lastiterate.bounds.bound import Hypothesis
from lastiterate.bounds.catalogue import CATALOGUE
from lastiterate.bounds.fixed_order import CONTRACTIVE
from lastiterate.bounds.shuffled import SECRET_ORDER
from lastiterate.errors import InvalidParameter, LastIterateError
from lastiterate.run.serialise import from_dict, to_dict
from lastiterate.run.training_run import TrainingRun
from lastiterate.train import objectives
from lastiterate.train.charge import charged_sensitivity
from lastiterate.train.data import Examples
from lastiterate.train.noise import REPRODUCIBLE, SECURE
from lastiterate.train.objectives import Objective

_FORMAT = 1
_KINDS = {
    kind.__name__: kind
    for kind in (
        objectives.Logistic,
        objectives.Softmax,
        objectives.Huber,
        objectives.SmoothedHinge,
    )
}
_ENFORCED: dict[Hypothesis, str] = {
    conditions.ONLY_LAST_ITERATE: "the trainer returns the final parameters and reports"
    " step counts only",
    SECRET_ORDER: "drawn from the generator under randomness, used once and discarded",
    conditions.CONVEX: "the residuals are clipped so that they are the gradient of a convex loss",
    conditions.SMOOTH: "from the bound on features, to which longer rows are scaled down,"
    " and the clip",
    conditions.SHORT_STEPS: "the step size is a constant of the run,"
    " checked against the smoothness",
    conditions.NO_ACTIVE_CLIP: "no norm clipping: the clipped loss is the one described",
}
_NOT_CHARGED = (
    "the guarantee is that of exact arithmetic: the rounding of matrix products, and that noise "
    "takes only floating-point values, are not charged"
)
_LONGER_ROWS = "scaled down to the bound"
_PUBLIC = "the number of examples, the label set, and every parameter of the estimator"


class InvalidCertificate(LastIterateError, ValueError):
    """A certificate does not say what follows from what it says."""

    def __init__(self, reasons: list[str]) -> None:
        self.reasons = reasons
        super().__init__("the certificate does not hold: " + "; ".join(reasons) + ".")


def issue(
    report: PrivacyReport,
    objective: Objective,
    examples: Examples,
    parameters: Any,
    *,
    delta: float,
    provenance: str,
) -> str:
    """The certificate of a finished training, as JSON."""
    epsilon, bound = _guarantee(report.run, delta)
    record: dict[str, Any] = {
        "format": _FORMAT,
        "software": f"lastiterate {lastiterate.__version__}",
        "guarantee": {
            "epsilon": epsilon,
            "delta": delta,
            "adjacency": report.run.adjacency,
            "bound": bound,
            "certainty": CATALOGUE[bound].certainty.value,
            "source": str(CATALOGUE[bound].source),
        },
        "run": to_dict(report.run),
        "objective": {"loss": type(objective).__name__} | asdict(objective),
        "features": {
            "width": examples.features,
            "bound": examples.feature_bound,
            "intercept": examples.intercept,
            "longer rows": _LONGER_ROWS,
        },
        "hypotheses": _hypotheses(bound),
        "randomness": provenance,
        "arithmetic": {
            "products": str(examples.rows.dtype),
            "parameters and noise": "float64",
            "not charged": _NOT_CHARGED,
        },
        "public": _PUBLIC,
        "model": model_digest(parameters),
    }
    return json.dumps(record | {"digest": _digest(record)}, indent=2) + "\n"


# What reading a value of another kind than expected may raise.
_UNREADABLE = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    LastIterateError,
)


def verify(certificate: str | Path, *, parameters: Any = None) -> PrivacyReport:
    """The report that the certificate's run implies, or `InvalidCertificate` with every reason.

    Parameters
    ----------
    certificate : str or Path
        The JSON text, or the file that holds it.
    parameters : array, optional
        What a model published (`model.parameters_`), to check that it is the one described.
    """
    record = _read(certificate)
    reasons = []
    stated = dict(record)
    if stated.pop("digest", None) != _digest(stated):
        reasons.append("its digest is not that of its text")
    try:
        run, objective = from_dict(record["run"]), _objective(record["objective"])
        reasons += _broken_promises(run, objective, record["features"])
        report = account(run)
        reasons += _wrong_guarantee(report, record["guarantee"])
        reasons += _wrong_statements(record)
        shape = _shape(objective, record["features"])
    except _UNREADABLE as error:
        raise InvalidCertificate([*reasons, f"it cannot be read ({error!r})"]) from error
    if parameters is not None and (
        record.get("model") != model_digest(parameters) or np.shape(parameters) != shape
    ):
        reasons.append("it belongs to another model")
    if reasons:
        raise InvalidCertificate(reasons)
    return report


def described(certificate: str | Path) -> tuple[Objective, float]:
    """The objective that a certificate states, and the bound on rows, the intercept's included."""
    record = _read(certificate)
    try:
        features = record["features"]
        return _objective(record["objective"]), math.hypot(features["bound"], features["intercept"])
    except (KeyError, TypeError, LastIterateError) as error:
        raise InvalidCertificate([f"it cannot be read ({error!r})"]) from error


def model_digest(parameters: Any) -> str:
    """What ties a certificate to the parameters that were published."""
    array = np.ascontiguousarray(parameters, dtype="<f8")
    return hashlib.sha256(repr(array.shape).encode() + array.tobytes()).hexdigest()


@lru_cache(maxsize=256)
def _guarantee(run: TrainingRun, delta: float) -> tuple[float, str]:
    """Epsilon and the bound that gives it."""
    report = account(run)
    return report.epsilon(delta), report.bound_at(delta)


def _read(certificate: str | Path) -> Mapping[str, Any]:
    text = certificate
    if isinstance(certificate, Path) or not certificate.lstrip().startswith("{"):
        text = Path(certificate).read_text(encoding="utf-8")
    try:
        record = json.loads(
            str(text), object_pairs_hook=_without_repetition, parse_constant=_refused
        )
    except (ValueError, RecursionError) as error:
        raise InvalidCertificate([f"it is not JSON ({error})"]) from error
    if not isinstance(record, dict):
        raise InvalidCertificate(["it is not a JSON object"])
    return record


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Whoever reads the first of two values must not be told that the second holds."""
    names = [name for name, _ in pairs]
    if len(set(names)) != len(names):
        raise ValueError("a name occurs twice")
    return dict(pairs)


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no number")


def _objective(record: Mapping[str, Any]) -> Objective:
    fields = dict(record)
    kind = fields.pop("loss")
    if kind not in _KINDS:
        raise InvalidParameter("objective.loss", kind, must_be="one of " + ", ".join(_KINDS))
    objective: Objective = _KINDS[kind](**fields)
    return objective


def _broken_promises(
    run: TrainingRun, objective: Objective, features: Mapping[str, Any]
) -> list[str]:
    radius = math.hypot(features["bound"], features["intercept"])
    loss = objective.loss(radius=radius, l2=run.loss.regulariser)
    sensitivity = charged_sensitivity(run, objective, radius=radius)
    assert loss.smoothness is not None
    checks = [
        ("smoothness", run.loss.smoothness or 0.0, loss.smoothness),
        ("sensitivity", run.sensitivity, sensitivity),
    ]
    reasons = [
        f"the run states {name} {stated!r}, but the loss has {true!r}"
        for name, stated, true in checks
        if not stated >= down(true, THOUSANDS_OF_ROUNDINGS)
    ]
    if run.loss.strong_convexity > run.loss.regulariser or not run.loss.convex:
        reasons.append("the run states a strong convexity that only a penalty gives")
    if run.loss.holder is not None or run.clip_norm is not None:
        reasons.append("the run states Hoelder constants or a norm clip, which no trainer keeps")
    return reasons


def _wrong_guarantee(report: PrivacyReport, guarantee: Mapping[str, Any]) -> list[str]:
    epsilon = report.epsilon(guarantee["delta"])
    reasons = []
    if not guarantee["epsilon"] >= down(epsilon, MILLIONS_OF_ROUNDINGS):
        reasons.append(f"it states epsilon {guarantee['epsilon']!r}, but the run has {epsilon!r}")
    if guarantee["adjacency"] != report.run.adjacency:
        reasons.append("its adjacency is not the run's")
    if guarantee["bound"] not in report.all:
        reasons.append(f"its bound {guarantee['bound']!r} does not cover the run")
    return reasons


def _wrong_statements(record: Mapping[str, Any]) -> list[str]:
    """What is not as it must be, whatever the run."""
    guarantee, arithmetic = record["guarantee"], record["arithmetic"]
    bound = CATALOGUE[guarantee["bound"]]
    derived = {
        "format": (record["format"], _FORMAT),
        "certainty": (guarantee["certainty"], bound.certainty.value),
        "source": (guarantee["source"], str(bound.source)),
        "hypotheses": (record["hypotheses"], _hypotheses(guarantee["bound"])),
        "treatment of longer rows": (record["features"]["longer rows"], _LONGER_ROWS),
        "precision of parameters and noise": (arithmetic["parameters and noise"], "float64"),
        "account of rounding": (arithmetic["not charged"], _NOT_CHARGED),
        "list of what is public": (record["public"], _PUBLIC),
    }
    reasons = [
        f"its {what} is not {must!r}" for what, (is_, must) in derived.items() if is_ != must
    ]
    if record["randomness"] not in (SECURE, REPRODUCIBLE):
        reasons.append("its randomness is of no kind that trainers use")
    if arithmetic["products"] not in ("float32", "float64"):
        reasons.append("its products are of no precision that trainers use")
    return reasons


def _shape(objective: Objective, features: Mapping[str, Any]) -> tuple[int, int]:
    """Of the parameters."""
    width = _check.count("features.width", features["width"], at_least=1)
    _check.number("features.bound", features["bound"], above=0.0)
    intercept = _check.number("features.intercept", features["intercept"], at_least=0.0)
    return objective.outputs, width + (intercept > 0.0)


def _hypotheses(bound: str) -> list[dict[str, str]]:
    needs = list(CATALOGUE[bound].needs)
    if not bound.startswith("composition"):
        needs += [each for each in CONTRACTIVE.needs if each not in needs]
    return [
        {"needs": each.needs, "enforced": _ENFORCED.get(each, "by the description of the run")}
        for each in needs
    ]


def _digest(record: Mapping[str, Any]) -> str:
    text = json.dumps(record, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
