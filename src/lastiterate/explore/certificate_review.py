"""The verdict on a certificate that was dropped onto the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lastiterate._display import up
from lastiterate.certificate.fields import on_trust
from lastiterate.certificate.verify import verified_certificate
from lastiterate.errors import InvalidCertificate, InvalidParameter, InvalidType
from lastiterate.explore.page_runs import page_words
from lastiterate.report.assumptions import training_alone_text
from lastiterate.report.run_text import fitted_steps_text
from lastiterate.report.summary import summary
from lastiterate.run.serialise import unambiguous_json
from lastiterate.train.noise import REPRODUCIBLE

_UNCHECKED = "to which model it belongs: `lastiterate verify folder` checks that too"


def review(record: Mapping[str, Any]) -> dict[str, Any]:
    """Whether the certificate in the text holds; nothing but this text is read."""
    text = record.get("certificate")
    if set(record) != {"certificate"} or not isinstance(text, str):
        raise InvalidType("certificate", must_be="the text of a certificate", found="another")
    if not text.lstrip().startswith("{"):  # anything else would be taken for the name of a file
        return _refuted(["it is not a JSON object"])
    try:
        content = verified_certificate(text)
    except InvalidCertificate as error:
        return _refuted(error.reasons)
    stated = unambiguous_json(text)
    guarantee = stated["guarantee"]
    report = summary(content.report, guarantee["delta"])
    try:
        words = page_words(content.report.run)
    except InvalidParameter:
        words = None
    statement = " ".join([report.answer, *report.qualifications])
    return {
        "holds": not (content.seeded or content.fitted_steps),
        "reasons": [
            *([f"the training was {REPRODUCIBLE}"] if content.seeded else []),
            *([fitted_steps_text(content.fitted_steps)] if content.fitted_steps else []),
        ],
        "statement": statement,
        "epsilon_text": up(guarantee["epsilon"]),
        "delta": guarantee["delta"],
        "bound": guarantee["bound"],
        "assumptions": list(report.assumptions),
        "release": str(report.release),
        "voided_by": list(report.release.voided_by),
        "unchecked": [
            _UNCHECKED,
            *(["who signed it"] if "signature" in stated else ["it is not signed"]),
            *on_trust(stated),
        ],
        "words": words,
        "words_leave_out": training_alone_text(content.report),
    }


def _refuted(reasons: list[str]) -> dict[str, Any]:
    return {"holds": False, "reasons": reasons}
