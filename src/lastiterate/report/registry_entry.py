"""A report as an entry of the Differential Privacy Deployments Registry, in its YAML.

The fields are those of the registry's schema of 2026: basic, dp_variant, privacy_loss,
deployment_model, implementation and administrative.  What a report cannot know (whose model it is,
what it is for) is taken from `details`, or left to be filled in, with a comment at its line.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import lastiterate
from lastiterate._display import up
from lastiterate.accounting import PrivacyReport
from lastiterate.bounds.catalogue import RECORDS
from lastiterate.errors import InvalidParameter
from lastiterate.report.run_text import run_sentence, unit_of_privacy
from lastiterate.report.summary import Summary, summary
from lastiterate.report.yaml_text import Blank, yaml_text

# What only the owner of a model knows, and what a draft says until they do.
DETAILS = {
    "name": "a private model",
    "curator": "the owner of the model",
    "curator_type": "Industry",
    "intended_use": "to be described",
    "region": "to be described",
    "sector": "Technology",
    "publication_date": "1900-01-01",
    "privacy_unit": "",  # from the run
    "author": "the author of this entry",
    "preprocessing": "to be described",
    "justification": "to be described",
    "utility": "to be described",
}


def registry_entry(
    report: PrivacyReport, *, delta: float, details: Mapping[str, str] | None = None
) -> str:
    """The entry as YAML, whose status is Draft."""
    given = {} if details is None else dict(details)
    unknown = sorted(set(given) - set(DETAILS))
    if unknown:
        must_be = f"some of {', '.join(DETAILS)}"
        raise InvalidParameter("details", must_be=must_be, found=", ".join(unknown))
    content = summary(report, delta)
    if not math.isfinite(content.epsilon):
        raise InvalidParameter("delta", delta, must_be="one at which epsilon is finite")
    facts = {name: given.get(name, Blank(usual)) for name, usual in DETAILS.items()}
    deployment = {
        "basic": _basic(report, facts),
        "dp_variant": _variant(report, content),
        "privacy_loss": _privacy_loss(report, content, given),
        "deployment_model": _model(content),
        "implementation": _implementation(report, content, facts),
        "administrative": {"status": "Draft", "registry_authors": [facts["author"]], "tier": 3},
    }
    return yaml_text({"url_slug": _slug(facts["name"]), "deployment": deployment})


def _slug(name: str) -> str:
    plain = "".join(one if one.isascii() and one.isalnum() else "-" for one in name.lower())
    return "-".join(part for part in plain.split("-") if part) or "private-model"


def _basic(report: PrivacyReport, facts: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": facts["name"],
        "data_curators": [
            {
                "data_curator_name": facts["curator"],
                "data_curator_type": facts["curator_type"],
            }
        ],
        "description": f"A model from {run_sentence(report.run)}",
        "intended_use": facts["intended_use"],
        "data_product_type": "Machine learning model",
        "data_product_region": facts["region"],
        "data_product_sector": facts["sector"],
        "publication_date": facts["publication_date"],
    }


def _variant(report: PrivacyReport, content: Summary) -> dict[str, Any]:
    run = report.run
    return {
        "variant_name": "Approximate DP",
        "data_domain": f"All data sets of {run.batches.examples:,} examples; their number is "
        "public.",
        "unprotected_quantities": "The number of examples, and every setting of the training."
        + (f" {content.not_included}" if content.not_included else ""),
    }


def _privacy_loss(
    report: PrivacyReport, content: Summary, given: Mapping[str, str]
) -> dict[str, Any]:
    run = report.run
    people = run.examples_per_person
    usual = "example" if people == 1 else f"person with at most {people:,} examples"
    counted = {"number_of_privacy_units": run.batches.examples} if people == 1 else {}
    return {
        "privacy_unit": given.get("privacy_unit", usual),
        "privacy_unit_details": f"Protected against {unit_of_privacy(run)}.",
        **counted,
        "privacy_parameters": {"epsilon": float(up(content.epsilon)), "delta": content.delta},
        "privacy_parameters_details": " ".join(
            [f"Epsilon is {content.kind}, and rounded up.", *content.qualifications]
        ),
    }


def _model(content: Summary) -> dict[str, Any]:
    return {
        "model_name": "Central",
        "model_name_details": "One curator holds the examples and trains.",
        "trust_assumptions": "The curator is trusted with the examples. "
        f"Only this may be published: {'; '.join(content.release.allowed)}.",
        "actors": "The curator, and anybody who may see the model.",
        "release_type": "One release",
        "release_type_details": "Other releases from the same examples add to this one.",
        "data_source_type": "Static",
        "data_source_type_details": "The examples do not change during training.",
        "access_type": "Non-interactive",
        "access_type_details": "The model is published as a whole.",
    }


def _implementation(
    report: PrivacyReport, content: Summary, facts: Mapping[str, str]
) -> dict[str, Any]:
    vouched = "enforced by the trainer" if report.enforced else "stated by whoever trained it"
    rests = "; ".join(content.assumptions)
    preprocessing = content.not_included or facts["preprocessing"]
    return {
        "preprocessing_and_hyperparameter_tuning": preprocessing,
        "mechanisms": f"Noisy gradient descent with Gaussian noise. The guarantee rests on the "
        f"following, {vouched}: {rests}.",
        "composition": f"Bound {content.bound} ({RECORDS[content.bound].source}), by lastiterate "
        f"{lastiterate.__version__}.",
        "post_processing": "None is part of the guarantee, and none can weaken it.",
        "justification": facts["justification"],
        "utility": facts["utility"],
        "additional_information": f"Voided by: {'; '.join(content.release.voided_by)}.",
    }
