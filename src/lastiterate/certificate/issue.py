"""The statement of what was trained, how its hypotheses were enforced, and what is guaranteed."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import lastiterate
from lastiterate.accounting import PrivacyReport
from lastiterate.bounds.catalogue import CATALOGUE
from lastiterate.certificate import statements
from lastiterate.run.serialise import to_dict
from lastiterate.train.data import Examples
from lastiterate.train.objectives import Objective


def issue(
    report: PrivacyReport,
    objective: Objective,
    examples: Examples,
    parameters: Any,
    *,
    delta: float,
    provenance: str,
    labels: str = statements.NO_LABELS,
    besides: Sequence[Mapping[str, Any]] = (),
    selection: Mapping[str, Any] | None = None,
) -> str:
    """The certificate of a finished training, as JSON.

    `besides` are records of the report's, each with what was published.  With a `selection` the
    report is of the best of several tries.
    """
    assert len(besides) == len(report.besides)
    bound = report.bound_at(delta)
    record: dict[str, Any] = {
        "format": statements.FORMAT,
        "software": f"lastiterate {lastiterate.__version__}",
        "guarantee": {
            "epsilon": report.epsilon(delta),
            "delta": delta,
            "adjacency": report.run.adjacency,
            "bound": bound,
            "certainty": CATALOGUE[bound].certainty.value,
            "source": str(CATALOGUE[bound].source),
        },
        "run": to_dict(report.run),
        "besides": [dict(one) for one in besides],
        "objective": objective.as_record(),
        "features": features_record(examples),
        "labels": labels,
        "hypotheses": statements.stated_hypotheses(bound, report.run),
        "randomness": provenance,
        "arithmetic": {
            "products": str(examples.rows.dtype),
            "parameters and noise": "float64",
            "not charged": statements.NOT_CHARGED,
        },
        "public": statements.PUBLIC,
        "model": statements.model_digest(parameters),
    }
    if selection is not None:
        record["selection"] = dict(selection)
    return json.dumps(record | {"digest": statements.digest(record)}, indent=2) + "\n"


def features_record(examples: Examples) -> dict[str, Any]:
    """What is public of the rows."""
    return {
        "width": examples.features,
        "bound": examples.feature_bound,
        "intercept": examples.intercept,
        "longer rows": statements.LONGER_ROWS,
    }
