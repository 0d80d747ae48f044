"""Unlearning of rows: extra steps of a fitted model without them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from copy import copy
from dataclasses import dataclass, replace
from hmac import compare_digest
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from lastiterate import _check
from lastiterate.accounting import account
from lastiterate.certificate import fields as statements
from lastiterate.certificate.issue import features_record
from lastiterate.certificate.unlearning import (
    EARLIER,
    Link,
    UnlearningHistory,
    broken_links,
    chain_of,
    issue_request,
)
from lastiterate.certificate.verify import history_before_requests, read, refuse_unverifiable
from lastiterate.errors import (
    InvalidCertificate,
    InvalidParameter,
    InvalidType,
    PrivacyWarning,
    warn,
)
from lastiterate.ledger.ledger import ledgers_of, one_ledger, reserve_training
from lastiterate.other_releases import INTERVALS, RATES
from lastiterate.run.serialise import from_dict, to_dict
from lastiterate.train.arithmetic import problem_of
from lastiterate.train.centring import Centre
from lastiterate.train.data import FAST, PROVED, Examples, data_digest, row_digests, secret_key
from lastiterate.train.discreet import clear_locals
from lastiterate.train.noise import REPRODUCIBLE, randomness
from lastiterate.train.noisy_descent import Published, noisy_descent
from lastiterate.unlearn.unlearning import Unlearning


class UnlearningMixin:
    """Methods of fitted models that plan and carry out the unlearning of rows."""

    def plan_unlearning(
        self,
        rows: Any = 1,
        *,
        epsilon: float | None = None,
        delta: float | None = None,
        extra_steps: int | None = None,
        noisier: float = 1.0,
    ) -> Unlearning:
        """The steps and the guarantee of unlearning some rows; nothing is done or spent.

        Parameters
        ----------
        rows : int or sequence of int
            The number of rows to remove, or the rows; only their number matters.
        epsilon, delta : float, optional
            The target for the removed rows; by default delta is that of the fit.
        extra_steps : int, optional
            The number of extra steps, instead of a target.
        noisier : float
            The noise on release, as a multiple of that of the training; more noise, fewer steps.

        Returns
        -------
        Unlearning
            The extra steps and the guarantee for the removed rows.

        Raises
        ------
        InvalidCertificate
            If the model's certificate is damaged.
        InvalidParameter
            If a parameter is outside its range, or the model is the result of a selection.

        Examples
        --------
        >>> import numpy as np
        >>> from lastiterate.linear_model import PrivateLogisticRegression
        >>> X = np.random.default_rng(0).normal(size=(2_000, 3))
        >>> model = PrivateLogisticRegression(epsilon=1.0, l2=0.1).fit(X, X[:, 0] > 0.0)
        >>> model.plan_unlearning(2, epsilon=0.5).epsilon(1e-5) <= 0.5
        True
        """
        history = model_history(self)
        many = rows if isinstance(rows, int | np.integer) else len(as_row_list(rows))
        left = history.requests.run.batches.examples - len(history.removed) - 1
        many = _check.count("rows", many, at_least=1, at_most=max(left, 1))
        noise = history.requests.noise(noisier)
        return _plan_request(
            history, many, epsilon, _target_delta(history, delta), extra_steps, noise
        )

    def unlearn(
        self,
        X: Any,
        y: Any,
        *,
        rows: Any,
        key: Any,
        epsilon: float | None = None,
        delta: float | None = None,
        extra_steps: int | None = None,
        noisier: float = 1.0,
        ledger: Any = None,
        at_any_cost: bool = False,
    ) -> Self:
        """A new model without some rows; this one stays as it is.

        The new model is (epsilon, delta)-close to the model that would have been published if the
        rows had been left out of every gradient sum.  `unlearning_` states the guarantee and its
        limits.

        Parameters
        ----------
        X, y : array
            All rows and targets of the fit, including the rows to remove, in the same order.
        rows : sequence of int
            The rows of `X` to remove, counted from 0.
        key : bytes or path
            The secret key of the fit, by which the data are recognised.
        epsilon, delta : float, optional
            The target for the removed rows, met with as few steps as possible; by default delta is
            that of the fit.
        extra_steps : int, optional
            The number of extra steps, instead of a target.
        noisier : float
            The noise on release, as a multiple of that of the training; more noise, fewer steps.
        ledger : Ledger or path, optional
            The ledger that the extra steps are charged to, since retained rows take part in them;
            by default the one of the model: of its constructor or its fit.
        at_any_cost : bool
            Whether to continue if the target takes as many steps as training again, or more; by
            default that raises.  A model trained with `l2`, such as .01, needs fewer.

        Returns
        -------
        estimator
            The new model, with `unlearning_` and `privacy_of_newest_`.

        Raises
        ------
        InvalidCertificate
            If the model's certificate is damaged.
        InvalidParameter
            If data or key are not those of the fit, a row was removed before, or unlearning costs
            as much as training again.

        Examples
        --------
        >>> import numpy as np
        >>> from lastiterate.linear_model import PrivateLogisticRegression
        >>> X = np.random.default_rng(0).normal(size=(2_000, 3))
        >>> y = X[:, 0] > 0.0
        >>> key = b"a secret of 16 bytes or more"
        >>> model = PrivateLogisticRegression(epsilon=1.0, l2=0.1).fit(X, y, key=key)
        >>> new = model.unlearn(X, y, rows=[17, 203], key=key, epsilon=0.5)
        >>> new.unlearning_.examples, new.unlearning_.epsilon(1e-5) <= 0.5
        (2, True)
        """
        held = [X, y]
        del X, y
        model = copy(self)
        try:
            _unlearn(
                model, held, rows, key, epsilon, delta, extra_steps, noisier, ledger, at_any_cost
            )
        except BaseException as error:
            held.clear()
            clear_locals(error)
            raise
        return model


def _unlearn(
    model: Any,
    held: list[Any],
    rows: Any,
    key: Any,
    epsilon: float | None,
    delta: float | None,
    extra_steps: int | None,
    noisier: float,
    ledger: Any,
    at_any_cost: bool,
) -> None:
    history = model_history(model)
    secret = secret_key(key)
    examples = recognised_examples(model, held, history, secret)
    requested = row_numbers(rows, len(examples))
    silent, digests = removal_mask(examples, requested, history, secret)
    if history.training["labels"] == statements.LABELS_INFERRED:
        check_labels_remain(examples.targets, silent)
    noise = history.requests.noise(noisier)
    found = _plan_request(
        history, requested.size, epsilon, _target_delta(history, delta), extra_steps, noise
    )
    if found.share_of_training >= 1.0:
        if extra_steps is None and not at_any_cost:
            _refuse_cost(found)
        _warn_of_cost(found)
    requests = history.requests.with_request(requested.size, found.extra_steps, noise)
    extra = requests.extra_run(requests.done[-1].taken)
    runs = [{"run": to_dict(one)} for one in requests.runs]
    refuse_unverifiable("epsilon" if extra_steps is None else "extra_steps", {EARLIER: runs})
    seed = model.random_state
    about = f"{type(model).__name__}, unlearning request {len(requests.done)}"
    charged = None
    if (book := one_ledger(*ledgers_of(model), ledger)) is not None:
        cost = requests.computed_report(account(extra))
        charged = reserve_training(book, cost, about, seeded=seed is not None)
    if seed is not None:
        # Not the noise of the training once more.
        state = np.random.SeedSequence([_check.count("random_state", seed, at_least=0)])
        seed = int(state.spawn(len(history.chain))[-1].generate_state(1)[0])
    source = randomness(seed)
    begun = history.requests.run.steps + sum(one.steps for one in history.requests.done)
    parameters = noisy_descent(
        extra,
        history.requests.objective,
        replace(examples, silent=silent, arithmetic=_training_arithmetic(history, examples)),
        source,
        Published(model.parameters_, begun, history.requests.runs),
    )
    certificate = issue_request(
        model.certificate_,
        requests,
        removed=digests,
        parameters=parameters,
        delta=_target_delta(history, delta),
        provenance=source.provenance,
    )
    if charged is not None:
        charged.settle()
    retained = replace(
        requests.retained_report,
        seeded=history.seeded or seed is not None,
        caveats=statements.caveats(history.training["labels"], history.training.get("trusted")),
        preprocessing=statements.fitted_steps(history.training),
    )
    fitted = {
        "parameters_": parameters,
        "privacy_": retained,
        "certificate_": certificate,
        "n_iter_": begun + found.extra_steps,
        "unlearning_": found,
        "privacy_of_newest_": requests.retained_against_last_model,
        **model._coefficients(parameters, examples),
    }
    model.__dict__.update(fitted)


def _training_arithmetic(history: Any, examples: Examples) -> str:
    """The arithmetic of the training, whatever is set now."""
    known = history.requests.problem
    if known is None:
        return FAST
    offset = problem_of(history.requests.objective, examples).offset
    if not math.isclose(offset, known.offset, rel_tol=1e-9):
        must_be = "as it was when the model was fitted"
        raise InvalidParameter("class_prior", must_be=must_be, found="another")
    return PROVED


def _refuse_cost(found: Unlearning) -> None:
    must_be = (
        "set where unlearning costs as much as training again: train again without the removed "
        "rows instead; a model trained with a penalty (l2=0.01, or `lastiterate train --l2 0.01`) "
        "needs far fewer steps to unlearn, and noisier=2.5 (--noisier 2.5) fewer"
    )
    raise InvalidParameter("at_any_cost", must_be=must_be, found=f"{_cost(found)}; none was taken")


def _warn_of_cost(found: Unlearning) -> None:
    warn(
        f"unlearning takes {_cost(found)}, each at a privacy cost for retained rows: train again "
        "without the removed rows (plan_unlearning tells beforehand)",
        PrivacyWarning,
    )


def _cost(found: Unlearning) -> str:
    return f"{found.extra_steps:,} steps, {100.0 * found.share_of_training:.3g} % of a training"


def _plan_request(
    history: ModelHistory,
    many: int,
    epsilon: float | None,
    delta: float,
    extra_steps: int | None,
    noise: float,
) -> Unlearning:
    if (epsilon is None) == (extra_steps is None):
        found = "neither" if epsilon is None else "both"
        raise InvalidParameter(
            "exactly one of epsilon and extra_steps", must_be="given", found=found
        )
    if extra_steps is not None:
        steps = _check.count("extra_steps", extra_steps, at_least=1)
        return history.requests.with_request(many, steps, noise).request_guarantee(
            len(history.requests.done)
        )
    assert epsilon is not None
    epsilon = _check.target_epsilon("epsilon", epsilon)
    return history.requests.plan_request(many, epsilon=epsilon, delta=delta, noise=noise)


def _target_delta(history: ModelHistory, delta: float | None) -> float:
    given = history.training["guarantee"]["delta"] if delta is None else delta
    return _check.number("delta", given, above=0.0, below=1.0)


# A request to unlearn rows: the history of the model, and checks of the rows.


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
    if not compare_digest(data_digest(prepared.examples, secret), training["data"]):
        must_be = (
            "those of the training: the same rows and targets in the same order and of the same "
            "types, including rows removed before, and the same secret key"
        )
        raise InvalidParameter("data and key", must_be=must_be, found="others")
    examples: Examples = prepared.examples
    if model.center_ is None:
        return examples
    return replace(examples, centre=Centre(model.center_, model.center_bound_))
