"""Rows of any finite length are brought within the bound, in training and in prediction."""

import numpy as np
import pytest
from scipy import sparse

import lastiterate as li
from lastiterate.features.transformers import (
    PublicBins,
    QuadraticSketch,
    RandomFourierFeatures,
    Scattering2D,
)
from lastiterate.linear_model.classifiers import PrivateLinearSVC, PrivateLogisticRegression
from lastiterate.linear_model.preprocessing import PrivateScaler
from lastiterate.linear_model.private_score import score_total
from lastiterate.linear_model.regressors import PrivateHuberRegressor, PrivateRidge
from lastiterate.train.centring import Centre
from lastiterate.train.data import bounded
from lastiterate.train.noisy_descent import noisy_descent
from lastiterate.train.objectives import Huber, Logistic
from lastiterate.train.rows import norm_factors

from .problems import run_of

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


@pytest.mark.parametrize("length, dtype", CASES)
def test_batches_are_within_the_bound(length, dtype):
    examples = bounded(stretched(length, dtype), Y, bound=1.0, intercept=0.0)
    batch = examples.batch(slice(0, 50))
    rows, factors = batch.rows, batch.factors
    assert np.isfinite(rows).all()
    norms = np.linalg.norm(rows.astype(np.longdouble), axis=1)
    assert (norms * factors <= 1.0).all()


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
