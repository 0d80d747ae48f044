"""Errors carry no row, cell or iterate: not in words, not behind them, not in tracebacks."""

import traceback

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.features import QuadraticSketch
from lastiterate.linear_model import (
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateScaler,
    PrivateSchema,
    PrivateScore,
)
from lastiterate.train import noisy_descent as gradient_sum
from lastiterate.train.discreet import harmless_part
from lastiterate.train.noisy_descent import noisy_descent
from lastiterate.train.objectives import Logistic

from .problems import RULES, examples, run_of

SECRET = "987654321"
NUMBER = float(SECRET)
ROWS = np.random.default_rng(0).normal(size=(40, 3))
SIDES = ROWS[:, 0] > 0


WORDS, TOKEN = np.where(SIDES, "yes", "no"), f"Alice{SECRET}"
NAMED = PrivateLogisticRegression(classes=["no", "yes"], epsilon=8.0).fit(ROWS, WORDS)
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


def assert_hides(error, *parts):
    told = "\n".join(everything_said(error))
    assert not [part for part in parts if part in told]


def assert_discreet(error):
    assert_hides(error, SECRET, "8765432", "array(")


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
@pytest.mark.parametrize("role", ["y", "sample_weight"])
def test_targets_and_weights_that_are_refused(targets, role):
    if role == "sample_weight" and targets is None:
        return  # is no weight
    with pytest.raises((InvalidParameter, InvalidType)) as caught:
        PrivateRidge(target_bound=1.0).fit(ROWS, **{"y": ROWS[:, 0], role: targets})
    assert_discreet(caught.value)


@pytest.mark.parametrize("name", sorted(BAD_ROWS.keys() - {"one row"}))
@pytest.mark.parametrize(
    "call",
    [FITTED.predict, FITTED.predict_proba, lambda x: FITTED.score(x, SIDES), PrivateScaler().fit],
    ids=["model", "probabilities", "score", "scaler"],
)
def test_rows_to_predict_or_to_scale(name, call):
    rows = BAD_ROWS[name]
    with pytest.raises((InvalidParameter, InvalidType)) as caught:
        call(rows)
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
    run = run_of(data, RULES["once"])
    with pytest.raises(error) as caught:
        noisy_descent(run, Logistic(), data)
    assert_hides(caught.value, "array(", "Randomness", "Examples")


def test_only_what_is_known_to_be_harmless_is_passed_on():
    assert harmless_part(f"Complex data not supported\n[{SECRET}]") == "Complex data not supported"
    assert harmless_part(f"could not convert {SECRET}") == ""
    both = f"Expected 2D array, got 1D array instead:\narray=[{SECRET}].\nReshape {SECRET}"
    assert harmless_part(both) == "Expected 2D array, got 1D array instead"


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
    assert_hides(refused.value, TOKEN)


COMPLEX = np.where(SIDES, 1.0, complex(NUMBER, 1))


@pytest.mark.parametrize("kind", [list, np.array, lambda y: np.array(y, dtype=object)])
@pytest.mark.parametrize("odd", [TOKEN, complex(NUMBER, 1), [TOKEN], {TOKEN: 1}])
def test_of_scores_of_labels(kind, odd):
    labels = WORDS.tolist()
    labels[17] = odd
    expected = np.delete(NAMED.predict(ROWS) == WORDS, 17).sum() / len(WORDS)
    for score in (NAMED.score, lambda X, y: PrivateScore.of(NAMED, X, y, epsilon=50.0).value):
        for given in (kind(labels) if isinstance(odd, str) else labels, COMPLEX):
            if isinstance(odd, str) and given is not COMPLEX:
                assert score(ROWS, given) == pytest.approx(expected, abs=0.01)
                continue
            with pytest.raises(InvalidParameter) as refused:
                score(ROWS, given)
            assert_hides(refused.value, TOKEN, "8765432")


@pytest.mark.parametrize("odd", [TOKEN, complex(NUMBER, 1), [TOKEN]])
def test_of_scores_of_numbers(odd):
    model = PrivateRidge(target_bound=1.0, random_state=0).fit(ROWS, ROWS[:, 0])
    targets = ROWS[:, 0].tolist()
    targets[17] = odd
    for given in (targets, np.array(targets, dtype=object)):
        with pytest.raises(InvalidParameter) as refused:
            model.score(ROWS, given)
        assert_hides(refused.value, TOKEN, "8765432")
    with pytest.raises(InvalidParameter):
        model.score(ROWS, ROWS[:, 0], sample_weight=[TOKEN] * 40)


def _no_unicode():
    """Text of pyarrow that is no UTF-8, as readers make it that do not look."""
    pa = pytest.importorskip("pyarrow")
    held = pa.array([b"yes", TOKEN.encode() + b"\xff", b"no"])
    return pa.Array.from_buffers(pa.string(), 3, held.buffers())


def _no_unicode_in_pandas():
    pd = pytest.importorskip("pandas")
    return pd.Series(pd.array(["yes", TOKEN + "\ud800", "no"], dtype=pd.StringDtype("python")))


@pytest.mark.parametrize("made", [_no_unicode, _no_unicode_in_pandas])
def test_of_text_that_is_no_unicode(made):
    column = made()
    encoded = PrivateSchema({"a": {"values": ["no", "yes"]}}, bound=None).fit_transform(
        {"a": column}
    )
    assert encoded.tolist() == [[0.0, 1.0], [0.0, 0.0], [1.0, 0.0]]
    model = PrivateLogisticRegression(classes=["no", "yes"], random_state=0)
    assert model.fit(ROWS[:3], column).classes_.tolist() == ["no", "yes"]
    assert PrivateScore.of(model, ROWS[:3], column, epsilon=1.0).value >= 0.0
    ridge = PrivateRidge(target_bound=1.0, random_state=0)
    for fit in (
        lambda: ridge.fit(ROWS[:3], column),
        lambda: ridge.fit(ROWS[:3], ROWS[:3, 0], sample_weight=column),
        lambda: PrivateSchema({"a": {"range": [0, 1]}}).fit_transform({"a": column}),
    ):
        with pytest.raises(InvalidParameter) as refused:
            fit()
        assert_hides(refused.value, TOKEN)


def test_of_types_with_names():
    pa, pl = pytest.importorskip("pyarrow"), pytest.importorskip("polars")
    records = np.array([(1,)], dtype=[(TOKEN, "i4")])
    for column in (pa.array([{TOKEN: 1}]), pl.Series([{TOKEN: 1}]), records):
        with pytest.raises(InvalidParameter, match=r"cells of type (s|S)truct|records") as refused:
            PrivateSchema({"a": {"values": ["no", "yes"]}}).fit_transform({"a": column})
        assert_hides(refused.value, TOKEN)


@pytest.mark.parametrize("kind", ["Int128", "UInt128"])
def test_of_numbers_that_numpy_does_not_have(kind):
    pl = pytest.importorskip("polars")
    column = pl.Series([1, 2], dtype=getattr(pl, kind))
    with pytest.raises(InvalidParameter, match=kind):
        PrivateSchema({"a": {"range": [0, 9]}}).fit_transform({"a": column})


@pytest.mark.parametrize(
    "model", [PrivateRidge(), make_pipeline(PrivateScaler(), PrivateRidge())], ids=["model", "pipe"]
)
def test_of_scores_of_models_that_have_none(model):
    secret = np.full((20, 2), NUMBER)
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        PrivateScore.of(model, secret, secret[:, 0], epsilon=1.0)
    assert_hides(refused.value, "8765432")


@pytest.mark.parametrize("method", ["apply", "check_finite"])
def test_of_maps(method):
    rows = np.array([[TOKEN, 1.0]], dtype=object)
    with pytest.raises(InvalidParameter) as refused:
        getattr(QuadraticSketch(4).feature_map(columns=2), method)(rows)
    assert_hides(refused.value, TOKEN)


@pytest.mark.filterwarnings("ignore:A column-vector")
@pytest.mark.parametrize("frame", ["pyarrow", "pandas", "polars"])
def test_of_tables_of_one_column_of_targets(frame):
    pa = pytest.importorskip("pyarrow")
    cells = [one.encode() for one in WORDS]
    cells[17] = TOKEN.encode() + b"\xff"
    lengths = np.cumsum([0, *map(len, cells)]).astype(np.int32)
    buffers = [None, pa.py_buffer(lengths.tobytes()), pa.py_buffer(b"".join(cells))]
    column = pa.Array.from_buffers(pa.string(), len(cells), buffers)
    table = pa.table({"y": column})
    if frame == "pandas":
        pd = pytest.importorskip("pandas")
        table = pd.DataFrame({"y": pd.array(column, dtype=pd.ArrowDtype(pa.string()))})
    elif frame == "polars":
        table = pytest.importorskip("polars").DataFrame({"y": WORDS})
    expected = NAMED.score(ROWS, WORDS)
    assert NAMED.score(ROWS, table) == pytest.approx(expected, abs=0.026)
    value = PrivateScore.of(NAMED, ROWS, table, epsilon=50.0).value
    assert value == pytest.approx(expected, abs=0.04)


@pytest.mark.filterwarnings("ignore:A column-vector")
def test_of_what_numpy_cannot_read():
    class Targets:
        shape = (40, 1)

        def __array__(self, *_, **__):
            raise ValueError(TOKEN)

    for score in (
        NAMED.score,
        lambda X, y: PrivateScore.of(NAMED, X, y, epsilon=50.0),
        clone(NAMED).fit,
    ):
        with pytest.raises(InvalidParameter, match="Targets that numpy cannot read") as refused:
            score(ROWS, Targets())
        assert_hides(refused.value, TOKEN)
