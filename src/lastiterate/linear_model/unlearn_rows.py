"""Making a fitted model forget some of its rows, by a few more steps without them."""

from __future__ import annotations

import warnings
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np

from lastiterate import _check
from lastiterate._warning import warn
from lastiterate.accounting import account
from lastiterate.certificate import statements
from lastiterate.certificate.chain import issue_request
from lastiterate.certificate.issue import features_record
from lastiterate.errors import InvalidParameter, PrivacyWarning
from lastiterate.ledger.charge_on_fit import reserved, the_ledger
from lastiterate.linear_model.removal_request import (
    Past,
    check_labels,
    checked_rows,
    listed,
    past_of,
    silenced,
)
from lastiterate.train.centring import Centre
from lastiterate.train.data import Examples
from lastiterate.train.data_digest import data_digest, same, secret_key
from lastiterate.train.noise import randomness
from lastiterate.train.noisy_descent import Published, noisy_descent
from lastiterate.train.traceback_scrubbing import forget_locals
from lastiterate.unlearn.unlearning_result import Unlearning


class Unlearns:
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
            How many, or which; how many is all that matters.
        epsilon, delta : float, optional
            The target; delta is that of the fit if left out.
        extra_steps : int, optional
            Instead of a target.
        noisier : float
            How many times as much noise on release as the training had: more of it, fewer steps.
        """
        past = past_of(self)
        many = rows if isinstance(rows, int | np.integer) else len(listed(rows))
        left = past.requests.run.batches.examples - len(past.removed) - 1
        many = _check.count("rows", many, at_least=1, at_most=max(left, 1))
        noise = past.requests.noise(noisier)
        return _planned(past, many, epsilon, _delta(past, delta), extra_steps, noise)

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
        """A new model that has forgotten some rows; this one stays as it is.

        What it publishes is (epsilon, delta)-close to what it would publish had those rows never
        been part of any sum; `unlearning_` says what that is worth, and what it does not promise.

        Parameters
        ----------
        X, y
            All that the model was fitted on, the rows to forget included, in the same order.
        rows : sequence of int
            Which rows of `X` must go, counted from 0.
        key : bytes or path
            The secret that the model was fitted with, by which the data are known again.
        epsilon, delta : float, optional
            The target, for which as few steps are taken as are enough; delta is that of the fit if
            left out.
        extra_steps : int, optional
            Instead of a target.
        noisier : float
            How many times as much noise on release as the training had: more of it, fewer steps.
        ledger : Ledger or path, optional
            Where the steps are charged, which see those who stay once more.
        at_any_cost : bool
            Whether to go on where the target takes as many steps as training again, or more; by
            default that is refused.  A model trained with `l2`, such as .01, needs fewer.
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
            forget_locals(error)
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
    past = past_of(model)
    secret = secret_key(key)
    examples = _same_examples(model, held, past, secret)
    asked = checked_rows(rows, len(examples))
    silent, digests = silenced(examples, asked, past, secret)
    if past.training["labels"] == statements.LABELS_INFERRED:
        check_labels(examples.targets, silent)
    noise = past.requests.noise(noisier)
    found = _planned(past, asked.size, epsilon, _delta(past, delta), extra_steps, noise)
    if found.share_of_training >= 1.0:
        if extra_steps is None and not at_any_cost:
            _refuse_cost(found)
        _warn_of_cost(found)
    requests = past.requests.with_request(asked.size, found.extra_steps, noise)
    extra = requests.extra_run(requests.done[-1].taken)
    seed = model.random_state
    about = f"{type(model).__name__}, request {len(requests.done)} to be forgotten"
    charged = None
    if (book := the_ledger(model.ledger, ledger)) is not None:
        charged = reserved(book, account(extra), about, seeded=seed is not None)
    if seed is not None:
        # Not the noise of the training once more.
        state = np.random.SeedSequence([_check.count("random_state", seed, at_least=0)])
        seed = int(state.spawn(len(past.chain))[-1].generate_state(1)[0])
    source = randomness(seed)
    begun = past.requests.run.steps + sum(one.steps for one in past.requests.done)
    parameters = noisy_descent(
        extra,
        past.requests.objective,
        replace(examples, silent=silent),
        source,
        Published(model.parameters_, begun),
    )
    certificate = issue_request(
        model.certificate_,
        requests,
        removed=digests,
        parameters=parameters,
        delta=_delta(past, delta),
        provenance=source.provenance,
    )
    if charged is not None:
        charged.settle()
    staying = replace(
        requests.retained_report,
        seeded=past.seeded or seed is not None,
        caveats=statements.caveats(past.training["labels"], past.training.get("trusted")),
        preprocessing=statements.fitted_steps(past.training),
    )
    fitted = {
        "parameters_": parameters,
        "privacy_": staying,
        "certificate_": certificate,
        "n_iter_": begun + found.extra_steps,
        "unlearning_": found,
        "privacy_of_newest_": requests.retained_against_last_model,
        **model._coefficients(parameters, examples),
    }
    model.__dict__.update(fitted)


def _refuse_cost(found: Unlearning) -> None:
    must_be = (
        "set where unlearning costs as much as training again: train again without those who go "
        "instead; a model trained with a penalty (l2=0.01, or `lastiterate train --l2 0.01`) needs "
        "far fewer steps to unlearn, and noisier=2.5 (--noisier 2.5) fewer"
    )
    steps = f"{found.extra_steps:,} steps, {100.0 * found.share_of_training:.3g} % of a training"
    raise InvalidParameter(
        "at_any_cost", must_be=must_be, found=f"{steps}, of which none was taken"
    )


def _warn_of_cost(found: Unlearning) -> None:
    warn(
        f"forgetting takes {found.extra_steps:,} steps, {100.0 * found.share_of_training:.3g} % of "
        "a training, and those who stay pay for them: train again without those who go "
        "(plan_unlearning tells beforehand)",
        PrivacyWarning,
    )


def _planned(
    past: Past,
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
        return past.requests.with_request(many, steps, noise).request_guarantee(
            len(past.requests.done)
        )
    assert epsilon is not None
    epsilon = _check.target_epsilon("epsilon", epsilon)
    return past.requests.plan_request(many, epsilon=epsilon, delta=delta, noise=noise)


def _delta(past: Past, delta: float | None) -> float:
    given = past.training["guarantee"]["delta"] if delta is None else delta
    return _check.number("delta", given, above=0.0, below=1.0)


def _same_examples(model: Any, held: list[Any], past: Past, secret: bytes) -> Examples:
    """The examples of the training, around its centre, or a refusal."""
    training = past.training
    if "data" not in training:
        must_be = (
            "fitted with a key (fit(X, y, key=..)): without one, whether these are the rows that "
            "it was trained on cannot be known; train again without those who go"
        )
        raise InvalidParameter("model", must_be=must_be, found="one fitted without")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # all was said when it was fitted
        prepared = model._prepared(*held)
    held.clear()
    described = (prepared.task.objective.as_record(), features_record(prepared.examples))
    if described != (training["objective"], training["features"]):
        must_be = "as they were when the model was fitted"
        raise InvalidParameter("settings and data", must_be=must_be, found="others")
    if not same(data_digest(prepared.examples, secret), training["data"]):
        must_be = (
            "the rows and targets that the model was fitted on, in the same order and of the same "
            "types, those that went before included, and key the secret that it was fitted with"
        )
        raise InvalidParameter("X and y", must_be=must_be, found="others, or another key")
    examples: Examples = prepared.examples
    if model.center_ is None:
        return examples
    return replace(examples, centre=Centre(model.center_, model.center_bound_))
