"""Rows and labels in every shape and kind: the same model as from plain arrays, or a refusal."""

import datetime as dt
import json
from decimal import Decimal

import numpy as np
import pytest
from scipy import sparse

from lastiterate.certificate.verify import verify
from lastiterate.errors import InvalidParameter, InvalidType, PrivacyWarning
from lastiterate.features import PublicBins, QuadraticSketch, RandomFourierFeatures
from lastiterate.linear_model import (
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateScaler,
)
from lastiterate.linear_model.inputs import positions_of, rows_alone, rows_and_targets

RNG = np.random.default_rng(0)
WHOLE = RNG.integers(0, 3, size=(200, 3))  # exact in every type of number
SIDES = WHOLE[:, 0] > 0
MODEL = PrivateLogisticRegression(
    feature_bound=2.0, epsilon=8.0, batches="cyclic", epochs=2, random_state=0, counting=0
)


def fitted(rows, targets=SIDES):
    return MODEL.fit(rows, targets).parameters_


@pytest.fixture(scope="module")
def expected():
    return fitted(WHOLE.astype(np.float64)).copy()


class Sequence:
    """Neither list nor array, but can be asked for its length and its items."""

    def __len__(self):
        return len(WHOLE)

    def __getitem__(self, index):
        return WHOLE[index].tolist()


class Duck:
    """What numpy can convert."""

    shape, ndim, dtype = WHOLE.shape, 2, np.dtype(float)

    def __array__(self, dtype=None, copy=None):
        return WHOLE.astype(dtype or float)

    def __len__(self):
        return len(WHOLE)


class LyingShape(np.ndarray):
    """Claims to be smaller than it is."""

    @property
    def shape(self):
        return (200, 1)


class LyingNorm(np.ndarray):
    """Claims that every sum, product and largest value is 0."""

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        plain = [np.asarray(one) for one in inputs]
        kwargs.pop("out", None)
        return np.zeros_like(getattr(ufunc, method)(*plain, **kwargs))

    def max(self, *_, **__):
        return 0.0


class LyingItems(np.ndarray):
    """Gives other rows whenever it is asked for some."""

    def __getitem__(self, index):
        return 1e6 * np.asarray(self)[index]


NUMBERS = [np.float64, np.float32, np.float16, np.int8, np.int64, np.uint8, np.uint64, object]
SAME = {
    **{f"of {np.dtype(kind).name}": WHOLE.astype(kind) for kind in NUMBERS},
    "big-endian": WHOLE.astype(">f8"),
    "long double": WHOLE.astype(np.longdouble),
    "Fortran order": np.asfortranarray(WHOLE.astype(float)),
    "every other of more": np.repeat(WHOLE.astype(float), 2, axis=0)[::2],
    "backwards twice": WHOLE[::-1].astype(float)[::-1],
    "read-only": np.frombuffer(WHOLE.astype(float).tobytes()).reshape(WHOLE.shape),
    "lists": WHOLE.tolist(),
    "tuples": tuple(map(tuple, WHOLE.tolist())),
    "list of arrays": list(WHOLE.astype(float)),
    "sequence": Sequence(),
    "duck": Duck(),
    "masked": np.ma.array(WHOLE.astype(float), mask=False),
    **{
        f"sparse {form}": getattr(sparse, f"{form}_{kind}")(WHOLE.astype(float))
        for form in ("csr", "csc", "coo", "lil", "dok", "bsr")
        for kind in ("matrix", "array")
    },
    "sparse, float32": sparse.csr_array(WHOLE.astype(np.float32)),
    "sparse, whole": sparse.csr_array(WHOLE),
    "sparse, long indices": sparse.csr_array(
        (lambda m: (m.data, m.indices.astype(np.int64), m.indptr.astype(np.int64)))(
            sparse.csr_array(WHOLE.astype(float))
        ),
        shape=WHOLE.shape,
    ),
}
REFUSED = {
    "complex": WHOLE.astype(complex),
    "records": np.zeros(200, dtype=[("a", float), ("b", float)]),
    "numbers as text": WHOLE.astype(str),
    "text": np.full((200, 3), "x"),
    "dates": WHOLE.astype("M8[D]"),
    "durations": WHOLE.astype("m8[s]"),
    "void": np.zeros((200, 3), dtype="V8"),
    "flat": WHOLE[:, 0].astype(float),
    "deep": WHOLE.astype(float)[:, :, np.newaxis],
    "empty": np.zeros((0, 3)),
    "no columns": np.zeros((200, 0)),
    "one row": WHOLE[:1].astype(float),
    "a number": 3.0,
    "nothing": None,
    "a set": {1.0, 2.0},
    "a generator": (row for row in WHOLE.tolist()),
    "sparse, complex": sparse.csr_array(WHOLE.astype(complex)),
    "beyond float64": WHOLE.astype(np.longdouble) * np.longdouble("1e400"),
}


@pytest.mark.parametrize("rows", SAME.values(), ids=SAME)
def test_give_the_same_model(rows, expected):
    np.testing.assert_allclose(fitted(rows), expected, atol=1e-5)


@pytest.mark.parametrize("rows", REFUSED.values(), ids=REFUSED)
def test_are_refused(rows):
    with pytest.raises((InvalidParameter, TypeError)):
        fitted(rows)


@pytest.mark.parametrize("name", ["dates", "durations", "numbers as text", "text"])
def test_arrays_that_one_cell_rewrites_are_refused_by_transformers(name):
    for step in (PrivateScaler(), RandomFourierFeatures(8)):
        with pytest.raises((TypeError, ValueError), match=r"X must be"):
            step.fit(REFUSED[name]).transform(REFUSED[name])
    if name in ("dates", "durations"):  # text is read cell by cell as targets
        with pytest.raises((TypeError, ValueError), match="y must be"):
            PrivateRidge(target_range=(0, 1)).fit(np.eye(200), REFUSED[name][:, 0])


@pytest.mark.parametrize("kind", [LyingShape, LyingNorm, LyingItems])
def test_arrays_that_lie_are_used_as_they_are_or_refused(kind, expected):
    """What is trained on is a plain copy, so that nothing is said of it by anyone else."""
    try:
        found = fitted(WHOLE.astype(float).view(kind))
    except (InvalidParameter, TypeError):
        return
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_mapped_files(mode, kind, tmp_path):
    WHOLE.astype(kind).tofile(tmp_path / "rows")
    rows = np.memmap(tmp_path / "rows", dtype=kind, mode=mode, shape=WHOLE.shape)
    in_memory = MODEL.set_params(batch_size=50)
    try:
        np.testing.assert_allclose(
            in_memory.fit(rows, SIDES).parameters_.copy(),
            in_memory.fit(np.array(rows), SIDES).parameters_,
            atol=1e-5,
        )
        part = in_memory.fit(rows[:, ::-1], SIDES).parameters_  # no whole file: read into memory
        assert part.shape == (1, 4)
    finally:
        MODEL.set_params(batch_size=None)


@pytest.mark.parametrize("kind", [np.int64, np.float16, ">f4"])
def test_mapped_files_of_other_kinds(kind, tmp_path):
    WHOLE.astype(kind).tofile(tmp_path / "rows")
    with pytest.raises(InvalidParameter, match="float32 or float64 in a mapped file"):
        fitted(np.memmap(tmp_path / "rows", dtype=kind, mode="r", shape=WHOLE.shape))


def test_targets_in_every_shape(expected):
    column = SIDES[:, np.newaxis]
    with pytest.warns(UserWarning, match="column-vector"):
        np.testing.assert_array_equal(fitted(WHOLE.astype(float), column), expected)
    for targets in (SIDES.tolist(), tuple(SIDES.tolist()), SIDES.astype(object)):
        model = PrivateLogisticRegression(**MODEL.get_params() | {"classes": [False, True]})
        found = model.fit(WHOLE.astype(float), targets).parameters_
        np.testing.assert_array_equal(found, expected)


class TestPandas:
    """Where it is installed."""

    def test_frames_with_text(self):
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame({"age": [1.0, 2.0], "job": ["x", "y"]})
        for one in (frame, frame.astype({"job": "category"}), frame.astype({"job": "string"})):
            with pytest.raises(InvalidParameter, match=r"text in the columns job\."):
                PrivateLogisticRegression().fit(one, [True, False])

    def test_frames(self, expected):
        frame = pytest.importorskip("pandas").DataFrame(WHOLE, columns=["a", "b", "c"])
        for rows in (frame, frame.astype(float), frame.astype("Int64"), frame.astype("float32")):
            with pytest.warns(UserWarning, match="the largest column dominates all others"):
                found = fitted(rows)
            np.testing.assert_allclose(found, expected, atol=1e-5)
        with pytest.warns(UserWarning, match="dominates"), pytest.raises(InvalidParameter):
            fitted(frame.assign(a="x"))

    def test_series(self, expected):
        pandas = pytest.importorskip("pandas")
        for kind in (bool, "boolean", "category", object, "Int64"):
            model = PrivateLogisticRegression(**MODEL.get_params() | {"classes": [0, 1]})
            targets = pandas.Series(SIDES.astype(int)).astype(kind)
            found = model.fit(WHOLE.astype(float), targets).parameters_
            np.testing.assert_array_equal(found, expected)


def test_numbers_as_targets():
    for kind in (np.float32, np.int8, np.uint64, object, bool):
        model = PrivateRidge(feature_bound=2.0, target_bound=2.0, counting=0, epsilon=8.0)
        assert np.isfinite(model.fit(WHOLE.astype(float), WHOLE[:, 0].astype(kind)).coef_).all()


CELLS = [0.5, 1.0, 2.0, 0.25]
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


def regressed(X):
    return rows_and_targets(PrivateRidge(), X, np.zeros(4), numeric=True, any_target=False)[0]


def classified(X):
    model = PrivateLogisticRegression(classes=[0, 1])
    return rows_and_targets(model, X, np.zeros(4), numeric=False, any_target=True)[0]


USES = {
    "fit": regressed,
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
        columns = {"a": CELLS, "b": [1, 0, 3, 2], "c": [True, False, True, True]}
        expected = use(np.column_stack(list(columns.values())).astype(float))
        np.testing.assert_array_equal(use(frame(columns)), expected)

    def test_of_single_precision_keep_it(self, use):
        pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
        rows = np.array([CELLS, CELLS[::-1]], dtype=np.float32).T
        for kind in (pd.DataFrame, pl.DataFrame):
            found = use(kind({"a": rows[:, 0].copy(), "b": rows[:, 1].copy()}))
            assert found.dtype == use(rows).dtype
            np.testing.assert_array_equal(found, use(rows))

    @pytest.mark.parametrize("cells", OTHERS.values(), ids=OTHERS)
    def test_of_anything_else_are_refused_by_column(self, frame, use, cells):
        if frame is FRAMES["pandas"] and isinstance(cells[0], Decimal):
            pytest.skip("objects that are numbers")
        X = frame({"a": CELLS, "odd": cells})
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


@pytest.mark.parametrize("frame", ["arrow", "pandas"])
@pytest.mark.parametrize(
    "cells, said", [(np.array(CELLS, np.float16), "half precision"), ([1j, 2, 3, 4], "complex")]
)
def test_columns_of_half_precision_or_complex_numbers_are_refused(frame, cells, said):
    """polars makes halves of all numbers of a column whose first one has it."""
    if said == "complex" and frame == "arrow":
        return  # has none
    with pytest.raises(InvalidType, match=rf"the column 'b' of X .*{said}"):
        PrivateScaler().fit(FRAMES[frame]({"a": CELLS, "b": cells}))


def test_sparse_columns_stay_sparse():
    pd = pytest.importorskip("pandas")
    dense = np.column_stack([CELLS, [0.0, 1.0, 0.0, 0.0]])
    X = pd.DataFrame.sparse.from_spmatrix(sparse.csr_array(dense))
    found = regressed(X)
    assert sparse.issparse(found)
    np.testing.assert_array_equal(found.toarray(), dense)


def test_names_of_columns_are_kept():
    pl, pd = pytest.importorskip("polars"), pytest.importorskip("pandas")
    for kind in (pd.DataFrame, pl.DataFrame, FRAMES["arrow"]):
        X, other = kind({"a": CELLS, "b": CELLS}), kind({"a": CELLS, "c": CELLS})
        for made in (PrivateScaler(), QuadraticSketch(8)):
            assert made.fit(X).feature_names_in_.tolist() == ["a", "b"]
            with pytest.raises(ValueError, match="feature names should match"):
                made.transform(other)
        model = PrivateRidge(epsilon=1.0, target_range=(0, 1), feature_bound=1.0)
        regressed = rows_and_targets(model, X, np.zeros(4), numeric=True, any_target=False)
        assert model.feature_names_in_.tolist() == ["a", "b"]
        assert regressed[0].shape == (4, 2)


X = RNG.normal(size=(400, 3))
WORDS = np.where(X[:, 0] > 0, "yes", "no")
CLASSIFIERS = [PrivateLogisticRegression, PrivateLinearSVC]


def stated(model):
    return json.loads(model.certificate_)["labels"]


class TestInferred:
    def test_warns_and_confesses(self):
        with pytest.warns(PrivacyWarning, match="label set was taken from y") as caught:
            model = PrivateLogisticRegression().fit(X, WORDS)
        assert "yes" not in str(caught[0].message)
        assert stated(model).startswith("inferred")
        assert verify(model.certificate_)

    def test_booleans_are_all_there_are(self):
        """Even where one is absent, which is no error to tell of."""
        model = PrivateLogisticRegression().fit(X, np.ones(400, dtype=bool))
        assert model.classes_.tolist() == [False, True]
        assert stated(model).startswith("declared")


class TestDeclared:
    def test_is_published_as_declared(self):
        model = PrivateLogisticRegression(classes=["yes", "no", "don't know"]).fit(X, WORDS)
        assert model.classes_.tolist() == ["don't know", "no", "yes"]
        assert stated(model).startswith("declared")
        assert verify(model.certificate_)

    @pytest.mark.parametrize("odd", ["AliceSmith", "", None, 7, np.nan, b"\xff"])
    def test_another_label_neither_raises_nor_is_published(self, odd):
        labels = WORDS.astype(object)
        labels[17] = odd
        model = PrivateLogisticRegression(classes=["no", "yes"], random_state=0)
        model.fit(X, labels)
        assert model.classes_.tolist() == ["no", "yes"]
        assert "Alice" not in model.certificate_

    @pytest.mark.parametrize("method", ["__hash__", "__str__", "__eq__"])
    def test_a_label_of_another_kind_is_refused(self, method):
        """Without a call of its methods, which may say what it is."""

        def fails(*_):
            raise RuntimeError("AliceSmith")

        kind = type("Odd", (), {"__hash__": lambda _: hash("no"), method: fails})
        labels = WORDS.astype(object)
        labels[17] = kind()
        with pytest.raises(InvalidParameter, match="cell of type Odd in row 18,") as refused:
            PrivateLogisticRegression(classes=["no", "yes"]).fit(X, labels)
        assert "Alice" not in str(refused.value)

    @pytest.mark.parametrize("model", CLASSIFIERS)
    @pytest.mark.parametrize("fit_intercept", [False, True])
    def test_its_gradient_is_zero(self, model, fit_intercept):
        """As if the row were 0 where there is no intercept, and whatever the row is with one."""
        model = model(classes=["no", "yes"], random_state=0, fit_intercept=fit_intercept)
        labels, ends = WORDS.astype(object), []
        labels[17] = "other"
        for size in (1.0, -5.0):
            rows = X.copy()
            rows[17] *= size
            ends.append(model.fit(rows, labels).parameters_)
        np.testing.assert_array_equal(*ends)
        if not fit_intercept:
            rows[17], labels[17] = 0.0, "yes"
            np.testing.assert_array_equal(model.fit(rows, labels).parameters_, ends[0])

    @pytest.mark.parametrize("kind", [list, np.array, lambda y: np.array(y, dtype=object)])
    @pytest.mark.parametrize("odd", ["x", 0.5, 9, None, np.nan, np.inf])
    def test_one_of_another_kind_does_not_change_what_the_others_are(self, kind, odd):
        """A list of numbers with one word becomes an array of words."""
        digits = (X[:, 0] > 0).astype(int).tolist()
        model = PrivateLogisticRegression(classes=[0, 1], random_state=0)
        digits[17] = odd
        end = model.fit(X, kind(digits)).parameters_
        silent = np.array(digits, dtype=object)
        silent[17] = "none of them"
        np.testing.assert_array_equal(end, model.fit(X, silent).parameters_)

    def test_no_example_has_one_of_them(self):
        model = PrivateLogisticRegression(classes=["a", "b"], random_state=0, counting=0)
        assert np.isfinite(model.fit(X, WORDS).parameters_).all()

    def test_too_few_targets(self):
        with pytest.raises(InvalidParameter, match="y must be as long as X, 400; found 399"):
            PrivateLogisticRegression(classes=["yes", "no"]).fit(X, WORDS[1:])


@pytest.mark.parametrize("classes", [["0", "1"], [0, 1], [0.0, 1.0], [False, True]])
def test_how_labels_are_stored_decides_nothing(classes):
    """One label that is no number, or none at all, changes how a reader stores all others."""
    labels = [0, 1, 1, 0]
    ways = [
        np.array(labels),
        np.array([*labels, 2.5])[:4],
        np.array([*labels, np.nan])[:4],
        np.array([*labels, None], dtype=object)[:4],
        np.array([*map(str, labels), "x"])[:4],
        np.array([*map(str, map(float, labels)), "x"])[:4],
        np.array([*map(bool, labels), "x"], dtype=object)[:4],
    ]
    known = np.unique(np.array(classes))
    assert [positions_of(way, known).tolist() for way in ways] == [labels] * len(ways)


def test_classes_that_are_one_number_are_refused():
    with pytest.raises(InvalidParameter, match="different as numbers in single"):
        PrivateLogisticRegression(classes=["1", "1.0"]).fit(np.ones((9, 1)), ["1"] * 9)
