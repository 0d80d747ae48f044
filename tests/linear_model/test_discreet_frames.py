"""Errors of transformers and scores quote no cell, and their tracebacks keep none."""

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

from lastiterate.errors import InvalidParameter
from lastiterate.features.transformers import QuadraticSketch
from lastiterate.linear_model.classifiers import PrivateLogisticRegression
from lastiterate.linear_model.preprocessing import PrivateScaler
from lastiterate.linear_model.private_schema import PrivateSchema
from lastiterate.linear_model.private_score import PrivateScore
from lastiterate.linear_model.regressors import PrivateRidge

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
        assert TOKEN not in kept(refused.value)


def test_of_types_with_names():
    pa, pl = pytest.importorskip("pyarrow"), pytest.importorskip("polars")
    records = np.array([(1,)], dtype=[(TOKEN, "i4")])
    for column in (pa.array([{TOKEN: 1}]), pl.Series([{TOKEN: 1}]), records):
        with pytest.raises(InvalidParameter, match=r"cells of type (s|S)truct|records") as refused:
            PrivateSchema({"a": {"values": ["no", "yes"]}}).fit_transform({"a": column})
        assert TOKEN not in kept(refused.value)


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
    secret = np.full((20, 2), 8765432.0)
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        PrivateScore.of(model, secret, secret[:, 0], epsilon=1.0)
    assert "8765432" not in kept(refused.value)


@pytest.mark.parametrize("method", ["apply", "check_finite"])
def test_of_maps(method):
    rows = np.array([[TOKEN, 1.0]], dtype=object)
    with pytest.raises(InvalidParameter) as refused:
        getattr(QuadraticSketch(4).feature_map(columns=2), method)(rows)
    assert TOKEN not in kept(refused.value)


@pytest.mark.filterwarnings("ignore:A column-vector")
@pytest.mark.parametrize("frame", ["pyarrow", "pandas", "polars"])
def test_of_tables_of_one_column_of_targets(frame):
    pa = pytest.importorskip("pyarrow")
    model = PrivateLogisticRegression(classes=["no", "yes"], random_state=0).fit(ROWS, SIDES)
    cells = [one.encode() for one in SIDES]
    cells[17] = TOKEN.encode() + b"\xff"
    lengths = np.cumsum([0, *map(len, cells)]).astype(np.int32)
    buffers = [None, pa.py_buffer(lengths.tobytes()), pa.py_buffer(b"".join(cells))]
    column = pa.Array.from_buffers(pa.string(), len(cells), buffers)
    table = pa.table({"y": column})
    if frame == "pandas":
        pd = pytest.importorskip("pandas")
        table = pd.DataFrame({"y": pd.array(column, dtype=pd.ArrowDtype(pa.string()))})
    elif frame == "polars":
        table = pytest.importorskip("polars").DataFrame({"y": SIDES})
    expected = model.score(ROWS, SIDES)
    assert model.score(ROWS, table) == pytest.approx(expected, abs=0.01)
    assert PrivateScore.of(model, ROWS, table, epsilon=50.0).value == pytest.approx(
        expected, abs=0.02
    )


@pytest.mark.filterwarnings("ignore:A column-vector")
def test_of_what_numpy_cannot_read():
    class Targets:
        shape = (400, 1)

        def __array__(self, *_, **__):
            raise ValueError(TOKEN)

    model = PrivateLogisticRegression(classes=["no", "yes"], random_state=0).fit(ROWS, SIDES)
    for score in (model.score, lambda X, y: PrivateScore.of(model, X, y, epsilon=50.0), model.fit):
        with pytest.raises(InvalidParameter, match="Targets that numpy cannot read") as refused:
            score(ROWS, Targets())
        assert TOKEN not in kept(refused.value)
