"""Errors of transformers and scores quote no cell, and their tracebacks keep none."""

import numpy as np
import pytest

from lastiterate.errors import InvalidParameter
from lastiterate.features import QuadraticSketch
from lastiterate.linear_model import (
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateScaler,
    PrivateSchema,
    PrivateScore,
)

TOKEN = "Tr0ub4dor"
ROWS = np.random.default_rng(0).normal(size=(400, 2)) / 3
SIDES = np.where(ROWS[:, 0] > 0, "yes", "no")


def kept(error):
    """What a tool that reports errors would send on, but for this file."""
    trace, found = error.__traceback__, str(error)
    while trace is not None:
        frame = trace.tb_frame
        found += "" if frame.f_code.co_filename == __file__ else repr(frame.f_locals)
        trace = trace.tb_next
    behind = error.__cause__ or error.__context__
    return found if behind is None else found + kept(behind)


@pytest.mark.parametrize("method", ["transform", "fit_transform"])
@pytest.mark.parametrize(
    "transformer, good, bad",
    [
        (PrivateSchema({"a": {"range": [0, 1]}}), {"a": [1]}, {"a": [TOKEN]}),
        (PrivateScaler(), [[1.0]], np.array([[TOKEN]], dtype=object)),
        (QuadraticSketch(4), [[1.0]], np.array([[TOKEN]], dtype=object)),
    ],
    ids=lambda one: type(one).__name__,
)
def test_of_transformers(transformer, good, bad, method):
    with pytest.raises(InvalidParameter) as refused:
        getattr(transformer.fit(good), method)(bad)
    assert TOKEN not in kept(refused.value)


LABELS = SIDES.astype(object)
COMPLEX = np.where(SIDES == "yes", 1.0, 8765432.0 + 1j)


@pytest.mark.parametrize("kind", [list, np.array, lambda y: np.array(y, dtype=object)])
@pytest.mark.parametrize("odd", [TOKEN, 8765432.0 + 1j, [TOKEN], {TOKEN: 1}])
def test_of_scores_of_labels(kind, odd):
    model = PrivateLogisticRegression(classes=["no", "yes"], random_state=0).fit(ROWS, SIDES)
    labels = SIDES.tolist()
    labels[17] = odd
    expected = np.delete(model.predict(ROWS) == SIDES, 17).sum() / 400
    for score in (model.score, lambda X, y: PrivateScore.of(model, X, y, epsilon=50.0).value):
        for given in (kind(labels) if isinstance(odd, str) else labels, COMPLEX):
            if isinstance(odd, str) and given is not COMPLEX:
                assert score(ROWS, given) == pytest.approx(expected, abs=0.01)
                continue
            with pytest.raises(InvalidParameter) as refused:
                score(ROWS, given)
            assert not any(part in kept(refused.value) for part in (TOKEN, "8765432"))


@pytest.mark.parametrize("odd", [TOKEN, 8765432.0 + 1j, [TOKEN]])
def test_of_scores_of_numbers(odd):
    model = PrivateRidge(target_bound=1.0, random_state=0).fit(ROWS, ROWS[:, 0])
    targets = ROWS[:, 0].tolist()
    targets[17] = odd
    for given in (targets, np.array(targets, dtype=object)):
        with pytest.raises(InvalidParameter) as refused:
            model.score(ROWS, given)
        assert not any(part in kept(refused.value) for part in (TOKEN, "8765432"))
    with pytest.raises(InvalidParameter):
        model.score(ROWS, ROWS[:, 0], sample_weight=[TOKEN] * 400)
