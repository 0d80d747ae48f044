"""How a fitted model came about, as its certificate says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sklearn.utils.validation import check_is_fitted

from lastiterate.certificate import statements
from lastiterate.certificate.chain import Link, broken_links, chain_of
from lastiterate.certificate.unlearning_history import UnlearningHistory
from lastiterate.certificate.verify import history_before_requests, read
from lastiterate.errors import InvalidCertificate, InvalidParameter
from lastiterate.run.serialise import from_dict
from lastiterate.train.noise import REPRODUCIBLE


@dataclass(frozen=True)
class Past:
    """The history of a model, as its certificate states it."""

    chain: list[Link]
    requests: UnlearningHistory

    @property
    def training(self) -> Any:
        """The record of the training."""
        return self.chain[0].record

    @property
    def seeded(self) -> bool:
        """Whether the noise of any of its models came from a seed."""
        return any(link.record["randomness"] == REPRODUCIBLE for link in self.chain)

    @property
    def removed(self) -> set[str]:
        """Digests of all rows that went before."""
        return {one for link in self.chain for one in link.removed}


def past_of(model: Any) -> Past:
    """Whatever is damaged or cannot be unlearned is refused; all is derived again by `verify`."""
    check_is_fitted(model, "parameters_")
    record = read(model.certificate_)
    chain = chain_of(record)
    reasons = broken_links(chain)
    if record.get("digest") != statements.digest(record):
        reasons.append("its digest is not that of its text")
    if record.get("model") != statements.model_digest(model.parameters_):
        reasons.append("it belongs to another model")
    if reasons:
        raise InvalidCertificate(reasons)
    training = chain[0].record
    if "selection" in training:
        must_be = (
            "a model that was fitted by itself: which of several settings was chosen depends on "
            "the rows, too, and no step makes that forgotten; choose and train again"
        )
        raise InvalidParameter("model", must_be=must_be, found="the best of several tries")
    requests = history_before_requests(training)
    for link in chain[1:]:
        extra = from_dict(link.record["run"])
        requests = requests.with_request(len(link.removed), extra.steps, extra.release_noise_std)
    return Past(chain, requests)
