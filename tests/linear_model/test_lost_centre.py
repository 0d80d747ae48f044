"""Rows closer together than noise lets their mean be known: said, by what was published."""

import warnings

import numpy as np
import pytest

from lastiterate.linear_model.classifiers import PrivateLogisticRegression
from lastiterate.linear_model.fit_warnings import TooFewExamplesWarning
from lastiterate.linear_model.regressors import PrivateRidge
from lastiterate.other_releases import MEAN, Release
from lastiterate.train.centring import centre_of, lost_distance

RNG = np.random.default_rng(0)
RARE = RNG.random(2_000) < 0.02
CLOSE = 0.9 + 0.03 * RNG.normal(size=(2_000, 10))
BOUND = 10**0.5


def told(model, rows, targets):
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        model.fit(rows, targets)
    return [str(one.message) for one in heard if one.category is TooFewExamplesWarning]


def logistic(**settings):
    quick = {"feature_bound": BOUND, "batches": "cyclic", "counting": 0, "random_state": 1}
    return PrivateLogisticRegression(**(quick | settings))


def test_said_with_what_to_do():
    (text,) = told(logistic(), CLOSE, RARE)
    for remedy in ("ranges in a schema", "the feature bound", "the class prior", "epsilon"):
        assert remedy in text


def test_points_at_the_call():
    with pytest.warns(TooFewExamplesWarning) as heard:
        logistic().fit(CLOSE, RARE)
    assert heard[0].filename == __file__


@pytest.mark.parametrize(
    "settings, rows",
    [
        ({"class_prior": {False: 0.98, True: 0.02}}, CLOSE),
        ({"feature_bound": 0.1}, CLOSE - 0.9),
        ({}, np.resize(CLOSE, (20_000, 10))),
        ({"epsilon": 10.0}, CLOSE),
        ({}, CLOSE + 0.5 * RNG.normal(size=CLOSE.shape)),
        ({"feature_bound": 1.0}, RNG.normal(size=(400, 3))),
    ],
    ids=["prior known", "around a public middle", "many", "less private", "apart", "few around 0"],
)
def test_not_said_where_a_remedy_was_taken(settings, rows):
    assert told(logistic(**settings), rows, np.resize(RARE, len(rows))) == []


def test_not_said_of_regression():
    model = PrivateRidge(feature_bound=BOUND, target_range=(0, 1), batches="cyclic", random_state=1)
    assert told(model, CLOSE, CLOSE[:, 0]) == []


def test_the_remedy_helps():
    """Around a public middle the same signal, weak as it is, is found by the same noise."""
    rng = np.random.default_rng(3)
    rare = rng.random(5_000) < 0.02
    rows = 0.03 * rng.normal(size=(5_000, 10)) + 0.045 * rare[:, np.newaxis] * (np.arange(10) < 3)
    found = []
    for seed in range(4):
        model = logistic(feature_bound=0.1, random_state=seed).fit(rows, rare)
        outputs = model.decision_function(rows)
        found.append(np.mean(outputs[rare][:, np.newaxis] > outputs[~rare]))
    assert min(found) > 0.85


@pytest.mark.parametrize("noise", [1e-3, 10.0, 50.0])
def test_distance_is_that_of_the_noise(noise):
    """Where the bound is the noise's doing: the mean's error over the bound around it."""
    rng, release = np.random.default_rng(0), Release(MEAN, 2.0, noise)
    exact = np.append(np.full(10, 0.9 * 10**-0.5 * 2_000), 0.81 * 1_000)
    errors, lost = [], []
    for _ in range(200):
        centre = centre_of(exact + noise * rng.normal(size=11), release, examples=2_000, bound=3.0)
        errors.append(np.linalg.norm(centre.mean - 3.0 * exact[:-1] / 2_000) / centre.bound)
        lost.append(lost_distance(centre, release, examples=2_000, bound=3.0))
    if noise < 1.0:  # the least bound is not the noise's
        assert max(lost) == 0.0
    else:
        seen = [(e, t) for e, t in zip(errors, lost, strict=True) if t > 0.0]
        assert len(seen) > 150
        mean_error, mean_lost = np.sqrt(np.mean(np.square(seen), axis=0))
        assert mean_lost == pytest.approx(mean_error, rel=0.1)
