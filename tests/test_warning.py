"""Warnings point at the line of whoever called the library."""

import warnings

import numpy as np
import pytest
from sklearn.compose import TransformedTargetRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import lastiterate as li
from lastiterate.linear_model import PrivateLogisticRegression, PrivateRidge, PrivateSelection

X = np.random.default_rng(0).normal(size=(300, 2))
SIDES = np.where(X[:, 0] > 0, "yes", "no")
SMALL = {"epsilon": 4.0, "batches": "cyclic", "epochs": 2, "counting": 0, "center": False}


def seeded():
    model = PrivateLogisticRegression(**SMALL, random_state=0).fit(X, X[:, 0] > 0)
    li.verify(model.certificate_)


def in_a_pipeline():
    make_pipeline(StandardScaler(), PrivateLogisticRegression(**SMALL)).fit(X, SIDES)


def hopeless():
    PrivateLogisticRegression(**SMALL | {"epsilon": 0.01}, delta=0.9).fit(X, SIDES)


def with_targets_scaled():
    ridge = PrivateRidge(**SMALL, target_range=(-1, 1))
    TransformedTargetRegressor(ridge, transformer=StandardScaler()).fit(X, X[:, 0])


def chosen():
    model = PrivateLogisticRegression(**SMALL)
    PrivateSelection(model, {"feature_bound": [1.0]}, epsilon=4.0).fit(X, SIDES)


@pytest.mark.parametrize("call", [seeded, in_a_pipeline, hopeless, with_targets_scaled, chosen])
def test_every_warning_names_this_file(call):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        call()
    assert told
    assert {one.filename for one in told} == {__file__}
    first = call.__code__.co_firstlineno
    assert all(first < one.lineno <= first + 4 for one in told)
