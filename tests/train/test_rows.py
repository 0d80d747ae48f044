"""Rows of any finite length and storage are brought within the bound, or refused."""

import numpy as np
import pytest
from scipy import sparse

import lastiterate as li
from lastiterate.errors import InvalidParameter
from lastiterate.features import PublicBins, QuadraticSketch, RandomFourierFeatures, Scattering2D
from lastiterate.linear_model import (
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateScaler,
)
from lastiterate.linear_model.private_score import score_total
from lastiterate.train.centring import Centre
from lastiterate.train.data import bounded
from lastiterate.train.noisy_descent import noisy_descent
from lastiterate.train.objectives import Huber, Logistic
from lastiterate.train.rows import norm_factors
from tests.train.problems import run_of

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 4))
Y = X[:, 0] + X[:, 1] > 0
LENGTHS = [1e13, 1e30, 1e37, 1e200, 1e307]


def stretched(length, dtype):
    rows = X / np.linalg.norm(X, axis=1, keepdims=True)
    rows[::3] *= length
    return rows.astype(dtype)


CASES = [
    *((length, np.float64) for length in LENGTHS),
    *((length, np.float32) for length in LENGTHS if length < 1e38),
]


@pytest.mark.parametrize("length, dtype", CASES)
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_they_count_as_if_scaled_down(length, dtype, kind):
    model = PrivateLogisticRegression(random_state=3, counting=0)
    plain, long = kind(stretched(1.0, dtype)), kind(stretched(length, dtype))
    first, second = model.fit(plain, Y).coef_, model.fit(long, Y).coef_
    np.testing.assert_allclose(first, second, atol=1e-3 if dtype == np.float32 else 1e-9)
    np.testing.assert_array_equal(model.predict(long), model.predict(plain))


def test_a_row_whose_norm_overflows_counts_as_zero():
    rows = np.full((1, 4), 1.7e308)
    factors = norm_factors(rows, 1e-12)
    assert factors[0] == 0.0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bound", [1.0, 0.3, 7.0])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
def test_scaled_rows_never_exceed_the_bound(dtype, bound, kind):
    rows = RNG.normal(size=(5_000, 30)).astype(dtype)
    scaled = PrivateScaler(bound).fit_transform(kind(rows))
    assert scaled.dtype == np.float64
    dense = scaled.toarray() if sparse.issparse(scaled) else scaled
    norms = np.linalg.norm(dense.astype(np.longdouble), axis=1)
    long = np.linalg.norm(rows.astype(np.longdouble), axis=1) > bound
    assert norms.max() <= bound
    assert norms[long].min() > bound * (1 - 1e-13)
    np.testing.assert_array_equal(dense[~long], rows[~long])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("centred", [False, True])
def test_no_size_of_a_row_raises_where_numpy_is_told_to(dtype, kind, centred):
    """Whether a training ends with an error must not depend on the rows."""
    rng, limits = np.random.default_rng(0), np.finfo(dtype)
    exponents = rng.uniform(np.log10(limits.tiny), np.log10(limits.max) - 1.0, size=(200, 1))
    rows = (rng.normal(size=(200, 6)) / 5.0 * 10.0**exponents).astype(dtype)
    rows[::9], rows[1::9] = limits.max, limits.smallest_subnormal
    targets = rng.normal(size=200) * 10.0 ** rng.uniform(-300, 300, size=200)
    for objective, y in ((Logistic(), np.arange(200) % 2), (Huber(clip=0.5), targets)):
        with np.errstate(all="raise"):
            examples = bounded(kind(rows), y, bound=1.0, intercept=0.1)
            examples.in_units()
            examples = examples.around(Centre(np.full(6, 0.1), 0.05)) if centred else examples
            run = run_of(examples, li.Cyclic(200, 100), objective=objective, steps=3)
            noisy_descent(run, objective, examples)


SETTINGS = [
    PrivateLogisticRegression(classes=[0, 1], rate_matching=0.2),
    PrivateLogisticRegression(classes=[0, 1], intervals=True),
    PrivateLogisticRegression(classes=[0, 1, 2], rate_matching=0.2),
    PrivateLinearSVC(classes=[0, 1]),
    PrivateRidge(target_range=(-1, 1), intervals=True),
    PrivateHuberRegressor(target_range=(-1, 1)),
]


@pytest.mark.filterwarnings("ignore:no coefficient has a finite")  # noise decides that
@pytest.mark.filterwarnings("ignore:too few examples for rate matching")  # and that
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("model", SETTINGS, ids=repr)
def test_no_size_of_a_row_raises_or_warns_in_a_fit(model, kind, monkeypatch):
    """Nothing that looks at rows does; accounting may, which is the same whatever they are."""
    rows = RNG.normal(size=(300, 4)) * 10.0 ** RNG.uniform(-307, 307, size=(300, 1))
    rows[::9], rows[1::9], rows[2::9] = 5e-324, 1.7e308, 1e-310
    targets = np.where(np.arange(300) % 2, 5e-324, -1e-310) if "Ridge" in repr(model) else None
    targets = np.arange(300) % 2 if targets is None else targets
    for name in ("_gather_inputs", "_train"):
        usual = getattr(type(model), name)

        def raising(self, *given, usual=usual, **named):
            with np.errstate(all="raise"):
                return usual(self, *given, **named)

        monkeypatch.setattr(type(model), name, raising)
    fitted = model.fit(kind(rows), targets)
    with np.errstate(all="raise"):
        fitted.predict(kind(rows))
        score_total(fitted, kind(rows), targets)
        PrivateScaler(0.5).fit_transform(kind(rows))


@pytest.mark.parametrize(
    "features",
    [
        Scattering2D((2, 2), scales=1, angles=2),
        RandomFourierFeatures(8),
        QuadraticSketch(8),
        PublicBins(),
    ],
    ids=repr,
)
def test_no_size_of_a_row_raises_or_warns_in_a_map(features):
    rows = RNG.normal(size=(300, 4)) * 10.0 ** RNG.uniform(-307, 307, size=(300, 1))
    rows[::9], rows[1::9], rows[2::9] = 5e-324, 1.7e308, 1e-310
    with np.errstate(all="raise"):
        features.fit(rows).transform(rows.astype(np.longdouble))


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    return PrivateLogisticRegression(epsilon=1.0, random_state=0).fit(X, X[:, 0] > 0)


class TestRows:
    def test_repeated_entries_are_added(self):
        rows = sparse.csr_matrix((np.array([3.0, 3.0]), np.array([0, 0]), np.array([0, 2])))
        assert norm_factors(rows, 3.0)[0] <= 0.5

    @pytest.mark.parametrize("claimed", [False, True])
    def test_repeated_entries_that_cancel_move_a_model_as_little_as_any_row(self, claimed):
        def with_last_row(entries):
            indptr = np.append(np.arange(500), 499 + len(entries))
            data = np.append(np.ones(499), entries)
            rows = sparse.csr_matrix((data, np.zeros(data.size, dtype=int), indptr))
            if claimed:
                rows.has_sorted_indices = rows.has_canonical_format = True
            model = PrivateLogisticRegression(batches="full", fit_intercept=False, random_state=0)
            return model.fit(rows, np.arange(500) > 4).coef_

        assert np.array_equal(with_last_row([1e300, -1e300]), with_last_row([0.0]))

    @pytest.mark.parametrize("column", [-1, 3])
    def test_sparse_rows_with_entries_elsewhere(self, column):
        rows = sparse.csr_matrix(np.ones((50, 3)))
        rows.indices[-1] = column
        with pytest.raises(InvalidParameter, match="entries all lie in it"):
            PrivateLogisticRegression().fit(rows, np.arange(50) > 20)

    def test_whole_numbers_are_refused(self):
        with pytest.raises(InvalidParameter, match="float32 or float64"):
            bounded(np.ones((2, 2), dtype=int), np.zeros(2), bound=1.0, intercept=0.0)

    def test_a_mapped_file_with_a_target_that_is_not_finite(self, tmp_path):
        rows = np.memmap(tmp_path / "x", dtype=np.float32, mode="w+", shape=(200, 3))
        with pytest.raises(InvalidParameter, match="finite numbers; found a target"):
            PrivateRidge(target_bound=1.0).fit(rows, np.array([0.5] * 199 + [np.nan]))
        with pytest.raises(InvalidParameter, match="finite numbers; found a target"):
            PrivateRidge(target_bound=1.0).fit(rows, ["0.5"] * 199 + ["nan"])

    def test_a_changed_copy_of_a_mapped_file(self, tmp_path):
        np.memmap(tmp_path / "x", dtype=np.float32, mode="w+", shape=(200, 3)).flush()
        rows = np.memmap(tmp_path / "x", dtype=np.float32, mode="c", shape=(200, 3))
        with pytest.raises(InvalidParameter, match="mode"):
            PrivateRidge(target_bound=1.0).fit(rows, np.zeros(200))

    def test_a_dask_array_is_not_gathered(self, model):
        class Array:
            """As dask's, which numpy gathers without a word."""

            shape, ndim, dtype = (200, 3), 2, np.dtype(float)

            def __array__(self, *_, **__):
                pytest.fail("gathered")

        Array.__module__ = "dask.array.core"
        with pytest.raises(InvalidParameter, match=r"X must be in memory, .*a dask Array"):
            PrivateLogisticRegression().fit(Array(), np.arange(200) > 100)
        with pytest.raises(InvalidParameter, match=r"X must be in memory, .*a dask Array"):
            model.predict(Array())
        with pytest.raises(InvalidParameter, match=r"y must be in memory, .*a dask Array"):
            PrivateLogisticRegression().fit(np.zeros((200, 3)), Array())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [1, 3, 1_000, 1_024, 1_025, 5_000])
@pytest.mark.parametrize("size", [1e-22, 1e-9, 1.0, 1e9, 1e17, 1e22])
def test_factors_suffice_and_lose_little(dtype, width, size):
    """Against sums in a longer format."""
    rows = (RNG.standard_t(2, size=(40, width)) * size).astype(dtype)
    rows[::7] = 0.0
    norms = np.sqrt((rows.astype(np.longdouble) ** 2).sum(axis=1))
    for bound in (1e-11, 1e-10, 1.0, float(np.median(norms)), 1e12):
        scaled = norms * norm_factors(rows, bound)
        assert (scaled <= bound).all()
        assert (scaled >= np.minimum(norms, bound) * (1 - 1e-4)).all()
