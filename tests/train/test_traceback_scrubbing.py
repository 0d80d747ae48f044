"""Errors carry no row and no iterate along: not in words, not behind them, not in tracebacks."""

import traceback

import numpy as np
import pytest
from scipy import sparse

from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.linear_model.classifiers import PrivateLogisticRegression
from lastiterate.linear_model.preprocessing import PrivateScaler
from lastiterate.linear_model.regressors import PrivateRidge
from lastiterate.train import noisy_descent as gradient_sum
from lastiterate.train.discreet import harmless_part
from lastiterate.train.noisy_descent import noisy_descent
from lastiterate.train.objectives import Logistic

from .problems import RULES as BATCHES
from .problems import examples, run_of

SECRET = "987654321"
NUMBER = float(SECRET)
ROWS = np.random.default_rng(0).normal(size=(40, 3))
SIDES = ROWS[:, 0] > 0


FITTED = PrivateLogisticRegression(epsilon=8.0, counting=0).fit(ROWS, SIDES)


class Unwilling:
    """An array that says what it has when it refuses."""

    shape, ndim, dtype = (40, 3), 2, np.dtype(float)

    def __array__(self, *_, **__):
        raise RuntimeError(f"cannot convert {SECRET}")

    def __len__(self):
        return 40


def with_one(value, kind=object):
    rows = ROWS.astype(kind)
    rows[7, 1] = value
    return rows


BAD_ROWS = {
    "text": with_one(f"Alice{SECRET}"),
    "numbers as text": ROWS.astype(str).astype(object) + SECRET + "x",
    "complex": with_one(complex(NUMBER, 1), complex),
    "a list": with_one([NUMBER]),
    "nested": with_one({"secret": SECRET}),
    "one dimension": np.full(40, NUMBER),
    "three dimensions": np.full((40, 3, 2), NUMBER),
    "ragged": [[NUMBER]] * 39 + [[NUMBER, 1.0]],
    "not finite": with_one(np.inf, float),
    "bytes": np.array([[SECRET.encode() + b"x"] * 3] * 40),
    "records": np.zeros(40, dtype=[(f"x{SECRET}", float)]),
    "unwilling": Unwilling(),
    "text alone": f"Alice{SECRET}",
    "none": None,
    "sparse, complex": sparse.csr_matrix(with_one(complex(NUMBER, 1), complex)),
    "sparse, objects": sparse.coo_matrix(np.where(ROWS > 0, NUMBER, 0.0)).astype(np.complex64),
    "one row": np.full((1, 3), NUMBER),
}
BAD_TARGETS = {
    "text": np.array([f"Alice{SECRET}"] * 40),
    "one text": np.array([0.0] * 39 + [f"Alice{SECRET}"], dtype=object),
    "complex": np.full(40, complex(NUMBER, 1)),
    "lists": [[NUMBER]] * 39 + [[NUMBER, 1.0]],
    "unwilling": Unwilling(),
    "two columns": np.full((40, 2), NUMBER),
    "not finite": np.array([NUMBER] * 39 + [np.inf]),
    "too few": np.full(39, NUMBER),
    "none": None,
}


def everything_said(error):
    """By the error and by all behind it, as tools print them with variables."""
    seen, waiting = [], [error]
    while waiting:
        one = waiting.pop()
        if one is not None and one not in seen:
            seen.append(one)
            waiting += [one.__cause__, one.__context__]
    told = []
    for one in seen:
        told += [str(one), repr(one), repr(vars(one))]
        shown = traceback.TracebackException.from_exception(one, capture_locals=True)
        # This file's own variables are the user's, who has the data anyway.
        for frame in shown.stack:
            if frame.filename != __file__:
                told += [f"{name} = {value}" for name, value in (frame.locals or {}).items()]
    return told


def assert_discreet(error):
    told = everything_said(error)
    assert not [one for one in told if SECRET in one or "8765432" in one or "array(" in one]


@pytest.mark.parametrize("rows", BAD_ROWS.values(), ids=BAD_ROWS)
@pytest.mark.parametrize(
    "model",
    [
        PrivateLogisticRegression(),
        PrivateLogisticRegression(classes=[0, 1]),
        PrivateRidge(target_bound=1.0),
    ],
)
def test_rows_that_are_refused(model, rows):
    with pytest.raises((InvalidParameter, InvalidType)) as caught:
        model.fit(rows, SIDES)
    assert_discreet(caught.value)


@pytest.mark.parametrize("targets", BAD_TARGETS.values(), ids=BAD_TARGETS)
def test_targets_that_are_refused(targets):
    with pytest.raises((InvalidParameter, InvalidType)) as caught:
        PrivateRidge(target_bound=1.0).fit(ROWS, targets)
    assert_discreet(caught.value)


@pytest.mark.parametrize("rows", BAD_ROWS.values(), ids=BAD_ROWS)
@pytest.mark.parametrize("fitted", ["model", "probabilities", "score", "scaler"])
def test_rows_to_predict_or_to_scale(rows, fitted):
    if rows is BAD_ROWS["one row"]:
        return
    model = FITTED
    calls = {
        "model": model.predict,
        "probabilities": model.predict_proba,
        "score": lambda rows: model.score(rows, SIDES),
        "scaler": PrivateScaler().fit,
    }
    with pytest.raises((InvalidParameter, InvalidType)) as caught:
        calls[fitted](rows)
    assert_discreet(caught.value)


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, ValueError])
@pytest.mark.parametrize("after", [0, 5])
def test_an_interrupted_fit_keeps_nothing(monkeypatch, error, after):
    usual, done = gradient_sum.stored_batch, []

    def interrupted(own, chosen):
        done.append(True)
        if len(done) > after:
            raise error
        return usual(own, chosen)

    monkeypatch.setattr(gradient_sum, "stored_batch", interrupted)
    with pytest.raises(error) as caught:
        PrivateLogisticRegression(epsilon=8.0).fit(with_one(NUMBER, float), SIDES)
    assert_discreet(caught.value)
    data = examples()
    run = run_of(data, BATCHES["once"])
    with pytest.raises(error) as caught:
        noisy_descent(run, Logistic(), data)
    told = everything_said(caught.value)
    assert not [one for one in told if "array(" in one or "Randomness" in one or "Examples" in one]


def test_only_what_is_known_to_be_harmless_is_passed_on():
    assert harmless_part(f"Complex data not supported\n[{SECRET}]") == "Complex data not supported"
    assert harmless_part(f"could not convert {SECRET}") == ""
    both = f"Expected 2D array, got 1D array instead:\narray=[{SECRET}].\nReshape {SECRET}"
    assert harmless_part(both) == "Expected 2D array, got 1D array instead"
