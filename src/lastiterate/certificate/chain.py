"""Certificates of models that were made to forget: each names the one that it follows.

A certificate comes with all that it follows, the training's first.  What is derived again: every
training and request, the promise to those who went, and that to those who stay.  Whose rows went
is stated by digests under a key that only the owner of the data has.
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
from lastiterate.certificate.issue import stated_guarantee, with_digest
from lastiterate.certificate.requests import Requests
from lastiterate.errors import InvalidCertificate, InvalidParameter
from lastiterate.other_releases import MEAN, OUTLIERS, UNDECLARED
from lastiterate.run.serialise import to_dict
from lastiterate.train.data_digest import is_digest
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
# What a request leaves as it was.
_SAME = (
    "objective",
    "features",
    "labels",
    "encoding",
    "arithmetic",
    "public",
    "format",
    "data",
    "preprocessing",
)


@dataclass(frozen=True)
class Link:
    """One certificate of a chain: what it states, without those that it follows."""

    record: Mapping[str, Any]

    @property
    def removed(self) -> list[str]:
        """Digests of the rows that went."""
        return list(self.record[UNLEARNING]["removed"]) if self.follows else []

    @property
    def follows(self) -> bool:
        """Whether it is of a request, not of a training."""
        return UNLEARNING in self.record


def chain_of(record: Mapping[str, Any]) -> list[Link]:
    """All certificates, first to last, of a certificate and those that come with it."""
    earlier = record.get(EARLIER, [])
    if not isinstance(earlier, list) or not all(isinstance(one, dict) for one in earlier):
        raise InvalidCertificate(["what it follows cannot be read"])
    last = {name: part for name, part in record.items() if name != EARLIER}
    return [Link(one) for one in (*earlier, last)]


def broken_links(chain: Sequence[Link]) -> list[str]:
    """Why these are not one chain, whatever each of them says; nothing if they are."""
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
        if kept(before.record["besides"]) != link.record["besides"]:
            other.append("besides")
        if other:
            reasons.append(f"{where} is of another training ({', '.join(other)})")
        own = stated["removed"]
        if not own or not all(map(is_digest, own)) or len({*own}) < len(own) or removed & {*own}:
            reasons.append(f"{where} removes no rows, or some twice")
        removed |= {*own}
    return reasons


def kept(besides: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Records of the other releases that are published again with a model after unlearning."""
    return [dict(one) for one in besides if one["kind"] in (MEAN, OUTLIERS, UNDECLARED)]


def chain_bound_to(certificate: str, encoding: Mapping[str, Any]) -> str:
    """The certificates of the same training and requests, tied to how the model is to be used.

    One that says so already stays as it is.  Another one must not be signed.
    """
    record = json.loads(certificate)
    digest = statements.encoding_digest(encoding)
    if record["encoding"] == digest:
        return certificate
    bound: list[dict[str, Any]] = []
    for link in chain_of(record):
        own = {**link.record, "encoding": digest}
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
    requests: Requests,
    *,
    removed: Sequence[str],
    parameters: Any,
    delta: float,
    provenance: str,
) -> str:
    """The certificate of the last of these requests, which follows the one given."""
    record = json.loads(certificate)
    chain = chain_of(record)
    found = requests.forgotten(len(requests.done) - 1)
    guarantee = stated_guarantee(requests.staying, record["guarantee"]["delta"])
    own = {
        **{name: record[name] for name in _SAME if name in record},
        "software": f"lastiterate {lastiterate.__version__}",
        "guarantee": guarantee,
        "run": to_dict(requests.extra(requests.done[-1].taken)),
        "besides": kept(record["besides"]),
        "hypotheses": statements.stated_hypotheses(guarantee["bound"], requests.staying.run),
        "randomness": provenance,
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


def _promise(found: Unlearning, delta: float) -> dict[str, Any]:
    """To those who went."""
    return {
        "epsilon": found.epsilon(delta),
        "delta": delta,
        "examples": found.examples,
        "bound": found.forgotten.bound_at(delta),
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
    if guarantee["bound"] not in found.forgotten.all:
        reasons.append(f"{where} names a bound that does not cover it")
    if (stated["promised"], stated["not promised"]) != (PROMISED, NOT_PROMISED):
        reasons.append(f"{where} does not say what is promised")
    return reasons
