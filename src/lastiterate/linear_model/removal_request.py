"""A request to unlearn rows: the history of the model, and checks of the rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from lastiterate import _check
from lastiterate.certificate import statements
from lastiterate.certificate.chain import Link, broken_links, chain_of
from lastiterate.certificate.unlearning_history import UnlearningHistory
from lastiterate.certificate.verify import history_before_requests, read
from lastiterate.errors import InvalidCertificate, InvalidParameter, InvalidType
from lastiterate.run.serialise import from_dict
from lastiterate.train.data import Examples
from lastiterate.train.data_digest import row_digests
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


def listed(rows: Any) -> list[Any]:
    """The given rows as a list; raises `InvalidType` if they are not a sequence."""
    must_be = "a sequence of row numbers, counted from 0"
    if isinstance(rows, str | bytes) or not isinstance(rows, Iterable):
        raise InvalidType("rows", rows, must_be=must_be)
    return list(rows)


def checked_rows(rows: Any, examples: int) -> NDArray[np.intp]:
    """Numbers of rows, each once."""
    given = listed(rows)
    numbers = [_check.count("rows", one, at_least=0, at_most=examples - 1) for one in given]
    if not numbers:
        raise InvalidParameter("rows", rows, must_be="at least one row number")
    if len({*numbers}) < len(numbers):
        twice = next(one for one in numbers if numbers.count(one) > 1)
        raise InvalidParameter("rows", must_be="each row once", found=f"row {twice} twice")
    return np.array(numbers, dtype=np.intp)


def silenced(
    examples: Examples, asked: NDArray[np.intp], past: Past, secret: bytes
) -> tuple[NDArray[np.bool_], list[str]]:
    """Which have gradient 0 from now on, and the digests of those who go."""
    gone = np.zeros(len(examples), dtype=bool)
    if past.removed:
        every = row_digests(past.training["data"], range(len(examples)), secret)
        gone = np.array([one in past.removed for one in every])
    if gone[asked].any():
        again = int(asked[gone[asked]][0])
        must_be = "rows that are still part of the model"
        raise InvalidParameter(
            "rows", must_be=must_be, found=f"row {again} (counted from 0), removed before"
        )
    gone[asked] = True
    if gone.all():
        must_be = "some of the rows: of a model of nothing, nothing is left to publish"
        raise InvalidParameter("rows", must_be=must_be, found="all that were left")
    silent = gone if examples.silent is None else gone | examples.silent
    return silent, row_digests(past.training["data"], asked.tolist(), secret)


def check_labels(targets: NDArray[Any], silent: NDArray[np.bool_]) -> None:
    """A label set that was taken from the data must be the same without those who go."""
    if np.unique(targets[~silent]).size < np.unique(targets).size:
        must_be = (
            "rows whose labels others have, too: the label set was taken from y, and would tell "
            "of them; train again, with classes=[..] declared"
        )
        raise InvalidParameter("rows", must_be=must_be, found="a label that only they have")
