"""Certificates of finished trainings: the run, how its hypotheses are enforced, the guarantee."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import lastiterate
from lastiterate.accounting import PrivacyReport
from lastiterate.bounds.catalogue import RECORDS
from lastiterate.certificate import fields
from lastiterate.certificate.fields import ARITHMETIC, arithmetic_record
from lastiterate.features.known_maps import FEATURE_MAPS
from lastiterate.run.serialise import to_dict
from lastiterate.train.arithmetic import arithmetic, problem_of
from lastiterate.train.data import AnyExamples
from lastiterate.train.noise import REPRODUCIBLE
from lastiterate.train.objectives import Objective


def issue(
    report: PrivacyReport,
    objective: Objective,
    examples: AnyExamples,
    parameters: Any,
    *,
    delta: float,
    provenance: str,
    labels: str = fields.NO_LABELS,
    other_releases: Sequence[Mapping[str, Any]] = (),
    selection: Mapping[str, Any] | None = None,
    data: str | None = None,
    trusted: str | None = None,
    fitted: Sequence[str] = (),
    declared_public: Sequence[str] = (),
    feature_maps: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The certificate of a finished training, as JSON.

    `other_releases` are records of the other releases, each with its published values.  With a
    `selection` the report is of the best of several tries.  `data` is a keyed digest of rows and
    targets.  `trusted` names others who saw rows and iterates.  `fitted` names preprocessing that
    learnt from the same examples, which the guarantee does not include; `declared_public` names
    preprocessing that is stated, and not checked, to have learnt nothing from them.  `feature_maps`
    are records of the fixed maps that gave the rows.
    """
    assert len(other_releases) == len(report.other_releases)
    guarantee = stated_guarantee(report, delta)
    problem = problem_of(objective, examples)
    charged = report.rounding is not None
    found = arithmetic([report.run], problem, report.other_releases) if charged else None
    record: dict[str, Any] = {
        "format": fields.FORMAT,
        "software": f"lastiterate {lastiterate.__version__}",
        "guarantee": guarantee,
        "run": to_dict(report.run),
        "other_releases": [dict(one) for one in other_releases],
        "objective": objective.as_record(),
        "features": features_record(examples),
        "labels": labels,
        "encoding": fields.NO_ENCODING,
        "hypotheses": fields.stated_hypotheses(guarantee["bound"], report.run),
        "randomness": provenance,
        ARITHMETIC: arithmetic_record(
            found,
            problem,
            precision=examples.precision,
            seeded=provenance == REPRODUCIBLE,
        ),
        "public": fields.PUBLIC,
        "model": fields.model_digest(parameters),
    }
    if selection is not None:
        record["selection"] = dict(selection)
    if data is not None:
        record["data"] = data
    if trusted is not None:
        record["trusted"] = trusted
    if fitted or declared_public:
        record[fields.PREPROCESSING] = fields.preprocessing(fitted, declared_public)
    if feature_maps:
        record[FEATURE_MAPS] = [dict(one) for one in feature_maps]
    return with_digest(record)


def stated_guarantee(report: PrivacyReport, delta: float) -> dict[str, Any]:
    """The certificate's record of the guarantee at `delta`, and of the bound that gives it."""
    bound = report.bound_at(delta)
    return {
        "epsilon": report.epsilon(delta),
        "delta": delta,
        "adjacency": report.run.adjacency,
        "bound": bound,
        "certainty": RECORDS[bound].certainty.value,
        "source": str(RECORDS[bound].source),
    }


def tied_to_head(
    certificate: str,
    digest: str,
    encoding: Mapping[str, Any],
    feature_maps: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The certificate of the same training with digests of the layer made from its model.

    `digest` is that of its numbers; `encoding` says which layer it is, and what its outputs stand
    for.  `feature_maps` are records of the fixed features that the layer's rows are.
    """
    named = {FEATURE_MAPS: [dict(one) for one in feature_maps]} if feature_maps else {}
    tied = {"head": digest, "encoding": fields.encoding_digest(encoding)}
    return with_digest(json.loads(certificate) | tied | named)


def with_other_release(
    certificate: str, report: PrivacyReport, published: Mapping[str, Any]
) -> str:
    """The certificate of the same training and one more release, with its published values.

    The report is of both together.
    """
    record = json.loads(certificate)
    record["other_releases"] = [*record["other_releases"], dict(published)]
    assert len(record["other_releases"]) == len(report.other_releases)
    guarantee = stated_guarantee(report, record["guarantee"]["delta"])
    hypotheses = fields.stated_hypotheses(guarantee["bound"], report.run)
    changed = {"guarantee": guarantee, "hypotheses": hypotheses}
    if report.rounding is not None:
        more = {"mu": report.rounding.mu, "failure": report.rounding.failure}
        changed[ARITHMETIC] = record[ARITHMETIC] | more
    return with_digest(record | changed)


def with_digest(record: Mapping[str, Any]) -> str:
    """The text of a certificate."""
    stated = {**record, "digest": fields.digest(record)}
    return json.dumps(stated, indent=2) + "\n"


def features_record(examples: AnyExamples) -> dict[str, Any]:
    """The certificate's record of the public properties of the rows."""
    return {
        "width": examples.features,
        "bound": examples.feature_bound,
        "intercept": examples.intercept,
        "longer rows": fields.LONGER_ROWS,
    }
