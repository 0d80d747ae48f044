"""Certificates of unlearning requests: each names the certificate that it follows.

A certificate contains all that it follows, the training's first.  Verification derives every
training and request again, and the guarantees for removed and for remaining examples.  Removed
rows are named by digests under a key that only the owner of the data has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import lastiterate
from lastiterate import _check
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, down
from lastiterate.certificate import statements
from lastiterate.certificate.arithmetic_record import NAME, arithmetic_record
from lastiterate.certificate.issue import stated_guarantee, with_digest
from lastiterate.certificate.unlearning_history import UnlearningHistory
from lastiterate.errors import InvalidCertificate, InvalidParameter
from lastiterate.features.known_maps import FEATURE_MAPS
from lastiterate.other_releases import MEAN, OUTLIERS, UNDECLARED
from lastiterate.run.serialise import to_dict
from lastiterate.train.data_digest import is_digest
from lastiterate.train.noise import REPRODUCIBLE
from lastiterate.unlearn.unlearning_result import Unlearning

UNLEARNING, EARLIER = "unlearning", "earlier"
PROMISED = (
    "what the model publishes is as close, in both directions, to what it would publish had the "
    "removed examples never been part of any sum"
)
NOT_PROMISED = (
    "anything against someone who holds an earlier model too, or where the request depends on a "
    "published model; certificates name earlier models by digest, and the removed under a key"
)
# Fields that a request does not change.
_SAME = (
    "objective",
    "features",
    "labels",
    "encoding",
    "public",
    "format",
    "data",
    "preprocessing",
    FEATURE_MAPS,
)


@dataclass(frozen=True)
class Link:
    """One certificate of a chain, without those that it follows."""

    record: Mapping[str, Any]

    @property
    def removed(self) -> list[str]:
        """Keyed digests of the removed rows."""
        return list(self.record[UNLEARNING]["removed"]) if self.follows else []

    @property
    def follows(self) -> bool:
        """Whether this is the certificate of a request, not of a training."""
        return UNLEARNING in self.record


def chain_of(record: Mapping[str, Any]) -> list[Link]:
    """The certificates of a chain, first to last."""
    earlier = record.get(EARLIER, [])
    if not isinstance(earlier, list) or not all(isinstance(one, dict) for one in earlier):
        raise InvalidCertificate(["what it follows cannot be read"])
    last = {name: part for name, part in record.items() if name != EARLIER}
    return [Link(one) for one in (*earlier, last)]


def broken_links(chain: Sequence[Link]) -> list[str]:
    """Reasons why these certificates are not one chain; empty if they are."""
    reasons = []
    if chain[0].follows:
        return ["it follows another certificate, which does not come with it"]
    if any(EARLIER in link.record for link in chain) or not all(one.follows for one in chain[1:]):
        return ["what it follows is not a training and its requests"]
    if len(chain) > 1 and not is_digest(chain[0].record.get("data")):
        reasons.append("of its training no digest of the data is known")
    removed: set[str] = set()
    for number, (before, link) in enumerate(pairwise(chain), 1):
        stated = link.record[UNLEARNING]
        where = f"request {number}"
        if before.record.get("digest") != statements.digest(before.record):
            reasons.append(f"the digest of what {where} follows is not that of its text")
        if stated["follows"] != before.record.get("digest"):
            reasons.append(f"{where} does not follow what comes before it")
        if stated["request"] != number:
            reasons.append(f"{where} has another number")
        other = [name for name in _SAME if link.record.get(name) != before.record.get(name)]
        if kept_releases(before.record["other_releases"]) != link.record["other_releases"]:
            other.append("other_releases")
        if other:
            reasons.append(f"{where} is of another training ({', '.join(other)})")
        own = stated["removed"]
        if not own or not all(map(is_digest, own)) or len({*own}) < len(own) or removed & {*own}:
            reasons.append(f"{where} removes no rows, or some twice")
        removed |= {*own}
    return reasons


def kept_releases(other_releases: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Records of the other releases that are published again with a model after unlearning."""
    return [dict(one) for one in other_releases if one["kind"] in (MEAN, OUTLIERS, UNDECLARED)]


def chain_tied_to_encoding(certificate: str, encoding: Mapping[str, Any]) -> str:
    """The chain with a digest of the model's columns and classes in every certificate.

    A chain that has it already is returned unchanged.  Any other must not be signed.
    """
    record = json.loads(certificate)
    if record["encoding"] == statements.encoding_digest(encoding):
        return certificate
    bound: list[dict[str, Any]] = []
    for link in chain_of(record):
        own = statements.used_as(link.record, encoding)
        if "signature" in own:
            must_be = "one without a signature, which would no longer be that of its text"
            raise InvalidParameter("certificate", must_be=must_be, found="a signed one")
        if bound:
            own[UNLEARNING] = {**own[UNLEARNING], "follows": bound[-1]["digest"]}
        bound.append({**own, "digest": statements.digest(own)})
    *earlier, last = bound
    return with_digest({**last, EARLIER: earlier} if earlier else last)


def issue_request(
    certificate: str,
    requests: UnlearningHistory,
    *,
    removed: Sequence[str],
    parameters: Any,
    delta: float,
    provenance: str,
) -> str:
    """The certificate of the last of these requests, which follows `certificate`."""
    record = json.loads(certificate)
    chain = chain_of(record)
    found = requests.request_guarantee(len(requests.done) - 1)
    guarantee = stated_guarantee(requests.retained_report, record["guarantee"]["delta"])
    own = {
        **{name: record[name] for name in _SAME if name in record},
        "software": f"lastiterate {lastiterate.__version__}",
        "guarantee": guarantee,
        "run": to_dict(requests.extra_run(requests.done[-1].taken)),
        "other_releases": kept_releases(record["other_releases"]),
        "hypotheses": statements.stated_hypotheses(
            guarantee["bound"], requests.retained_report.run
        ),
        "randomness": provenance,
        NAME: _arithmetic(record, requests, seeded=provenance == REPRODUCIBLE),
        "model": statements.model_digest(parameters),
        UNLEARNING: {
            "follows": record["digest"],
            "request": len(chain),
            "removed": list(removed),
            "guarantee": _promise(found, delta),
            "promised": PROMISED,
            "not promised": NOT_PROMISED,
        },
    }
    return with_digest(own | {EARLIER: [link.record for link in chain]})


def _arithmetic(
    record: Mapping[str, Any], requests: UnlearningHistory, *, seeded: bool
) -> dict[str, Any]:
    """The record of the arithmetic of the training and of all requests together."""
    stated = record[NAME]
    if requests.problem is None:
        return dict(stated)
    return arithmetic_record(
        requests.arithmetic,
        requests.problem,
        precision=stated["products"],
        seeded=seeded,
    )


def _promise(found: Unlearning, delta: float) -> dict[str, Any]:
    """The record of the guarantee for the removed examples."""
    return {
        "epsilon": found.epsilon(delta),
        "delta": delta,
        "examples": found.examples,
        "bound": found.report.bound_at(delta),
    }


def wrong_promise(link: Link, found: Unlearning) -> list[str]:
    """Reasons why the stated promise of an unlearning request does not follow from its steps."""
    stated = link.record[UNLEARNING]
    guarantee = stated["guarantee"]
    where = f"request {stated['request']}"
    reasons = []
    epsilon = found.epsilon(guarantee["delta"])
    given = _check.number("guarantee.epsilon", guarantee["epsilon"], at_least=0.0)
    if not given >= down(epsilon, MILLIONS_OF_ROUNDINGS):
        reasons.append(f"{where} states epsilon {given!r}, but its steps give {epsilon!r}")
    if guarantee["examples"] != len(stated["removed"]):
        reasons.append(f"{where} promises for another number of examples than it removes")
    if guarantee["bound"] not in found.report.all:
        reasons.append(f"{where} names a bound that does not cover it")
    if (stated["promised"], stated["not promised"]) != (PROMISED, NOT_PROMISED):
        reasons.append(f"{where} does not say what is promised")
    return reasons
