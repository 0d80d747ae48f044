"""Frames as rows: numbers by the type of each column, whatever reads them, or a refusal."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pytest
from scipy import sparse

from lastiterate.errors import InvalidType
from lastiterate.features.transformers import PublicBins, QuadraticSketch, RandomFourierFeatures
from lastiterate.linear_model.classifiers import PrivateLogisticRegression
from lastiterate.linear_model.inputs import rows_alone, rows_and_targets
from lastiterate.linear_model.preprocessing import PrivateScaler
from lastiterate.linear_model.regressors import PrivateRidge

WHOLE = [0.5, 1.0, 2.0, 0.25]
DAYS = [dt.date(2021, 1, 1 + k) for k in range(4)]
TIMES = [dt.datetime(2021, 1, 1, k) for k in range(4)]
OTHERS = {
    "days": DAYS,
    "times": TIMES,
    "durations": [dt.timedelta(k) for k in range(4)],
    "hours": [dt.time(k) for k in range(4)],
    "text": ["0.5", "1", "2", "3"],
    "bytes": [b"0.5", b"1", b"2", b"3"],
    "decimals": [Decimal(k) for k in range(4)],
    "lists": [[1.0]] * 4,
    "records": [{"SECRET": 1}] * 4,
}


def fitted(X):
    return rows_and_targets(PrivateRidge(), X, np.zeros(4), numeric=True, any_target=False)[0]


def classified(X):
    model = PrivateLogisticRegression(classes=[0, 1])
    return rows_and_targets(model, X, np.zeros(4), numeric=False, any_target=True)[0]


USES = {
    "fit": fitted,
    "classes": classified,
    "predict": lambda X: rows_alone(PrivateRidge(), X, reset=True),
    "scaler": lambda X: PrivateScaler(bound=9.0).fit(X).transform(X),
    "bins": lambda X: PublicBins(0, 10, bins=4).fit_transform(X),
    "sketch": lambda X: QuadraticSketch(8).fit(X).transform(X),
    "fourier": RandomFourierFeatures(8).fit_transform,
}


class Streamed:
    """A frame of nobody, by the stream of Arrow alone."""

    def __init__(self, table):
        self.__arrow_c_stream__ = table.__arrow_c_stream__


class Exchanged:
    """A frame of nobody, by the interchange protocol alone."""

    def __init__(self, table):
        self.__dataframe__ = table.__dataframe__


def _of_arrow(columns):
    return pytest.importorskip("pyarrow").table(columns)


def _arrow_in_pandas(columns):
    pd = pytest.importorskip("pandas")
    return _of_arrow(columns).to_pandas(types_mapper=pd.ArrowDtype)


FRAMES = {
    "arrow": _of_arrow,
    "batch": lambda columns: _of_arrow(columns).to_batches()[0],
    "pandas": lambda columns: pytest.importorskip("pandas").DataFrame(columns),
    "pandas of arrow": _arrow_in_pandas,
    "polars": lambda columns: pytest.importorskip("polars").DataFrame(columns),
    "stream": lambda columns: Streamed(_of_arrow(columns)),
    "interchange": lambda columns: Exchanged(_of_arrow(columns)),
}


@pytest.fixture(params=FRAMES.values(), ids=FRAMES)
def frame(request):
    return request.param


@pytest.mark.parametrize("use", USES.values(), ids=USES)
class TestFrames:
    def test_of_numbers_are_their_array(self, frame, use):
        columns = {"a": WHOLE, "b": [1, 0, 3, 2], "c": [True, False, True, True]}
        expected = use(np.column_stack(list(columns.values())).astype(float))
        np.testing.assert_array_equal(use(frame(columns)), expected)

    def test_of_single_precision_keep_it(self, use):
        pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
        rows = np.array([WHOLE, WHOLE[::-1]], dtype=np.float32).T
        for kind in (pd.DataFrame, pl.DataFrame):
            found = use(kind({"a": rows[:, 0].copy(), "b": rows[:, 1].copy()}))
            assert found.dtype == use(rows).dtype
            np.testing.assert_array_equal(found, use(rows))

    @pytest.mark.parametrize("cells", OTHERS.values(), ids=OTHERS)
    def test_of_anything_else_are_refused_by_column(self, frame, use, cells):
        if frame is FRAMES["pandas"] and isinstance(cells[0], Decimal):
            pytest.skip("objects that are numbers")
        X = frame({"a": WHOLE, "odd": cells})
        with pytest.raises((InvalidType, ValueError)) as raised:
            use(X)
        assert "SECRET" not in str(raised.value)
        if frame is not FRAMES["interchange"]:
            assert isinstance(raised.value, InvalidType)
            assert "the column 'odd' of X" in str(raised.value)


class TestOneCell:
    @pytest.mark.parametrize("use", USES.values(), ids=USES)
    def test_of_objects_is_a_number_or_refused(self, use):
        rows = np.array([[0.5, 1], [1, Decimal("0.5")], [True, 3.0], [np.float32(0.25), 2]], object)
        np.testing.assert_array_equal(use(rows), use(rows.astype(float)))
        for odd in ("0.5", b"1", DAYS[0], TIMES[0], np.timedelta64(1, "D"), 1j, [1]):
            rows[1, 1] = odd
            with pytest.raises(InvalidType):
                use(rows)

    def test_does_not_change_the_digits_of_others(self):
        pl = pytest.importorskip("polars")
        single = pl.DataFrame({"a": pl.Series([0.1, 0.7, 0.3], dtype=pl.Float32)})
        text = pl.DataFrame({"a": ["0.1"]})
        both = pl.concat([single, text], how="vertical_relaxed")
        with pytest.raises(InvalidType, match="the column 'a' of X"):
            PrivateScaler().fit(both)


def test_complex_columns_are_refused():
    pd = pytest.importorskip("pandas")
    with pytest.raises(InvalidType, match=r"the column 'b' of X .* complex"):
        PrivateScaler().fit(pd.DataFrame({"a": WHOLE, "b": [1j, 2, 3, 4]}))


def test_half_precision_in_frames_is_refused():
    """polars makes it of all numbers of a column whose first one has it."""
    pd = pytest.importorskip("pandas")
    halves = np.array(WHOLE, np.float16)
    frames = [pd.DataFrame({"a": halves}), pytest.importorskip("pyarrow").table({"a": halves})]
    for frame in frames:
        with pytest.raises(InvalidType, match=r"the column 'a' of X .*half precision"):
            PrivateScaler().fit(frame)


def test_sparse_columns_stay_sparse():
    pd = pytest.importorskip("pandas")
    dense = np.column_stack([WHOLE, [0.0, 1.0, 0.0, 0.0]])
    X = pd.DataFrame.sparse.from_spmatrix(sparse.csr_array(dense))
    found = fitted(X)
    assert sparse.issparse(found)
    np.testing.assert_array_equal(found.toarray(), dense)


def test_names_of_columns_are_kept():
    pl, pd = pytest.importorskip("polars"), pytest.importorskip("pandas")
    for kind in (pd.DataFrame, pl.DataFrame, FRAMES["arrow"]):
        X, other = kind({"a": WHOLE, "b": WHOLE}), kind({"a": WHOLE, "c": WHOLE})
        for made in (PrivateScaler(), QuadraticSketch(8)):
            assert made.fit(X).feature_names_in_.tolist() == ["a", "b"]
            with pytest.raises(ValueError, match="feature names should match"):
                made.transform(other)
        model = PrivateRidge(epsilon=1.0, target_range=(0, 1), feature_bound=1.0)
        fitted = rows_and_targets(model, X, np.zeros(4), numeric=True, any_target=False)
        assert model.feature_names_in_.tolist() == ["a", "b"]
        assert fitted[0].shape == (4, 2)
