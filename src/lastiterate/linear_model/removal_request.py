"""A request to unlearn rows: the history of the model, and checks of the rows."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from lastiterate import _check
from lastiterate.certificate import fields as statements
from lastiterate.certificate.issue import features_record
from lastiterate.certificate.unlearning import Link, UnlearningHistory, broken_links, chain_of
from lastiterate.certificate.verify import history_before_requests, read
from lastiterate.errors import InvalidCertificate, InvalidParameter, InvalidType
from lastiterate.other_releases import INTERVALS, RATES
from lastiterate.run.serialise import from_dict
from lastiterate.train.centring import Centre
from lastiterate.train.data import Examples, data_digest, row_digests, same
from lastiterate.train.noise import REPRODUCIBLE


@dataclass(frozen=True)
class ModelHistory:
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
        """Digests of all rows removed by earlier requests."""
        return {one for link in self.chain for one in link.removed}


def model_history(model: Any) -> ModelHistory:
    """The history of a model; raises if the certificate is damaged or nothing can be unlearned."""
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
            "a model fitted without selection: the choice among several settings depends on the "
            "rows, and extra steps do not undo it; select and train again"
        )
        raise InvalidParameter("model", must_be=must_be, found="the best of several trials")
    if any(one["kind"] in (RATES, INTERVALS) for one in training["other_releases"]):
        must_be = (
            "a model fitted with rate_matching=0 and intervals=False: both depend on the rows, and "
            "extra steps do not undo that; train again without the rows to remove"
        )
        raise InvalidParameter("model", must_be=must_be, found="one with either")
    requests = history_before_requests(training)
    for link in chain[1:]:
        extra = from_dict(link.record["run"])
        requests = requests.with_request(len(link.removed), extra.steps, extra.release_noise_std)
    return ModelHistory(chain, requests)


def as_row_list(rows: Any) -> list[Any]:
    """The given rows as a list; raises `InvalidType` if they are not a sequence."""
    must_be = "a sequence of row numbers, counted from 0"
    if isinstance(rows, str | bytes) or not isinstance(rows, Iterable):
        raise InvalidType("rows", rows, must_be=must_be)
    return list(rows)


def row_numbers(rows: Any, examples: int) -> NDArray[np.intp]:
    """The row numbers, checked: in range, and each once."""
    given = as_row_list(rows)
    numbers = [_check.count("rows", one, at_least=0, at_most=examples - 1) for one in given]
    if not numbers:
        raise InvalidParameter("rows", rows, must_be="at least one row number")
    if len({*numbers}) < len(numbers):
        twice = next(one for one in numbers if numbers.count(one) > 1)
        raise InvalidParameter("rows", must_be="each row once", found=f"row {twice} twice")
    return np.array(numbers, dtype=np.intp)


def removal_mask(
    examples: Examples, requested: NDArray[np.intp], history: ModelHistory, secret: bytes
) -> tuple[NDArray[np.bool_], list[str]]:
    """A mask of rows whose gradient is 0 from now on, and the digests of the removed rows."""
    removed = np.zeros(len(examples), dtype=bool)
    if history.removed:
        every = row_digests(history.training["data"], range(len(examples)), secret)
        removed = np.array([one in history.removed for one in every])
    if removed[requested].any():
        again = int(requested[removed[requested]][0])
        must_be = "rows that are still part of the model"
        raise InvalidParameter(
            "rows", must_be=must_be, found=f"row {again} (counted from 0), removed before"
        )
    removed[requested] = True
    if removed.all():
        must_be = "some of the rows, not all"
        raise InvalidParameter("rows", must_be=must_be, found="all rows that were left")
    silent = removed if examples.silent is None else removed | examples.silent
    return silent, row_digests(history.training["data"], requested.tolist(), secret)


def check_labels_remain(targets: NDArray[Any], silent: NDArray[np.bool_]) -> None:
    """Raise if a label set that was taken from the data changes without the removed rows."""
    if np.unique(targets[~silent]).size < np.unique(targets).size:
        must_be = (
            "rows whose labels other rows have as well: the label set was taken from y, and would "
            "reveal the removed rows; train again, with classes=[..] declared"
        )
        raise InvalidParameter("rows", must_be=must_be, found="a label that only they have")


def recognised_examples(
    model: Any, held: list[Any], history: ModelHistory, secret: bytes
) -> Examples:
    """The examples of the training, centred as it was; raises if the data are different."""
    training = history.training
    if "data" not in training:
        must_be = (
            "fitted with a key (fit(X, y, key=..)): without one, the rows of the training "
            "cannot be recognised; train again without the rows to remove"
        )
        raise InvalidParameter("model", must_be=must_be, found="a model fitted without a key")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # given when it was fitted
        prepared = model._fit_inputs(*held)
    held.clear()
    described = (prepared.task.objective.as_record(), features_record(prepared.examples))
    if described != (training["objective"], training["features"]):
        must_be = "as they were when the model was fitted"
        raise InvalidParameter("settings and data", must_be=must_be, found="others")
    if not same(data_digest(prepared.examples, secret), training["data"]):
        must_be = (
            "those of the training: the same rows and targets in the same order and of the same "
            "types, including rows removed before, and the same secret key"
        )
        raise InvalidParameter("data and key", must_be=must_be, found="others")
    examples: Examples = prepared.examples
    if model.center_ is None:
        return examples
    return replace(examples, centre=Centre(model.center_, model.center_bound_))
