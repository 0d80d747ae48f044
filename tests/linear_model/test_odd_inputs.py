"""Rows in every shape that people bring: the same model as from a plain array, or a refusal."""

import numpy as np
import pytest
from scipy import sparse

from lastiterate.errors import InvalidParameter
from lastiterate.linear_model.classifiers import PrivateLogisticRegression
from lastiterate.linear_model.regressors import PrivateRidge

RNG = np.random.default_rng(0)
WHOLE = RNG.integers(0, 3, size=(200, 3))  # exact in every type of number
SIDES = WHOLE[:, 0] > 0
MODEL = PrivateLogisticRegression(
    feature_bound=2.0, epsilon=8.0, epochs=2, random_state=0, counting=0
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
    "text of numbers": WHOLE.astype(str),
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
    in_memory = MODEL.set_params(batches="cyclic", batch_size=50)
    try:
        np.testing.assert_allclose(
            in_memory.fit(rows, SIDES).parameters_.copy(),
            in_memory.fit(np.array(rows), SIDES).parameters_,
            atol=1e-5,
        )
        part = in_memory.fit(rows[:, ::-1], SIDES).parameters_  # no whole file: read into memory
        assert part.shape == (1, 4)
    finally:
        MODEL.set_params(batches="shuffled-once", batch_size=None)


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
