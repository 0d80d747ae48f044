"""Features of tables: what their definitions say, and never longer than their bound."""

import math

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator

import lastiterate.features as package
from lastiterate.errors import InvalidParameter
from lastiterate.features import PublicBins, QuadraticSketch, RandomFourierFeatures
from lastiterate.features.maps import cells_and_signs

from .test_scattering import exact_norms

RANDOM = np.random.default_rng(1)
HOSTILE = np.concatenate([
    RANDOM.normal(size=(200, 4)) * 10.0 ** RANDOM.uniform(-300, 300, size=(200, 1)),
    RANDOM.normal(size=(200, 4)) * 10.0 ** RANDOM.uniform(-3, 3, size=(200, 4)),
    np.zeros((1, 4)),
    np.full((1, 4), 1.7e308),
    np.eye(4) * -1.7e308,
    np.full((1, 4), 5e-324),
])  # fmt: skip
TRANSFORMS = [
    RandomFourierFeatures(64),
    RandomFourierFeatures(63, gamma=1e12),
    RandomFourierFeatures(1, gamma=1e-12),
    QuadraticSketch(64),
    QuadraticSketch(7, seed=3, input_bound=1e-12),
    QuadraticSketch(1, input_bound=1e12),
    QuadraticSketch(2, seed=11),
    PublicBins(),
    PublicBins([-1e300, 0, 1, 2], [1e300, 1, 2, 3], bins=1000),
]


class TestTheBoundHolds:
    @pytest.mark.parametrize("transform", TRANSFORMS, ids=repr)
    @pytest.mark.parametrize("columns", [1, 4])
    def test_for_hostile_rows(self, transform, columns):
        if np.size(getattr(transform, "low", 0)) > columns:
            transform = PublicBins(-1e300, 1e300, bins=1000)
        features = transform.fit_transform(HOSTILE[:, :columns])
        assert np.isfinite(features).all()
        assert exact_norms(features).max() <= transform.norm_bound
        assert features.dtype == np.float32

    @pytest.mark.parametrize("transform", TRANSFORMS[3:7], ids=repr)
    def test_for_rows_that_add_up_in_one_cell(self, transform):
        """Rows along which a sketch is as long as it can be, if nothing bounded it."""
        (one, signs), (other, others) = cells_and_signs(5, transform.n_components, transform.seed)
        del one, other
        aligned = np.array([signs[:4], others[:4], signs[:4] * others[:4]]) * 0.5
        features = transform.fit_transform(np.concatenate([aligned, aligned * 1e6]))
        assert exact_norms(features).max() <= 1.0

    def test_integers_are_numbers(self):
        for transform in TRANSFORMS[:7]:
            rows = RANDOM.integers(-9, 9, size=(5, 3))
            whole, same = transform.fit_transform(rows), transform.fit_transform(rows.astype(float))
            np.testing.assert_array_equal(whole, same)

    @pytest.mark.parametrize("transform", TRANSFORMS, ids=repr)
    def test_nan_is_refused(self, transform):
        for value in (math.nan, math.inf):
            with pytest.raises(InvalidParameter, match="X must be finite"):
                transform.fit(np.full((3, 4), value))


class TestFourier:
    def test_inner_products_are_those_of_the_kernel(self):
        rows = RANDOM.normal(size=(6, 3))
        features = RandomFourierFeatures(40_000, gamma=0.3, seed=5).fit_transform(rows)
        distances = ((rows[:, np.newaxis] - rows) ** 2).sum(axis=2)
        np.testing.assert_allclose(features @ features.T, np.exp(-0.3 * distances), atol=0.03)

    def test_every_row_is_as_long_as_the_bound(self):
        norms = exact_norms(RandomFourierFeatures(10).fit_transform(RANDOM.normal(size=(9, 3))))
        assert (norms > 1.0 - 1e-5).all()

    def test_the_stream_of_a_seed_is_the_documented_one(self):
        """Files keep seeds: were the stream another, their models would predict something else."""
        first = np.random.RandomState(0).standard_normal()
        features = RandomFourierFeatures(2, gamma=0.5, seed=0).fit_transform([[1.0]])[0]
        expected = 1.764052345967664  # printed in NumPy's own documentation
        assert first == pytest.approx(expected, abs=1e-14)
        np.testing.assert_allclose(features, [math.cos(expected), math.sin(expected)], atol=1e-5)

    def test_seeds_differ(self):
        rows = RANDOM.normal(size=(2, 3))
        one, other = (RandomFourierFeatures(8, seed=s).fit_transform(rows) for s in (0, 1))
        assert not np.allclose(one, other)


class TestQuadratic:
    def test_is_the_sum_over_all_pairs(self):
        rows = RANDOM.normal(size=(3, 4))
        rows *= 0.9 / np.linalg.norm(rows, axis=1, keepdims=True)
        (one, signs), (other, others) = cells_and_signs(5, 11, 2)
        long = np.concatenate([rows, np.ones((3, 1))], axis=1) / math.sqrt(2)
        expected = np.zeros((3, 11))
        for i in range(5):
            for j in range(5):
                cell = (one[i] + other[j]) % 11
                expected[:, cell] += signs[i] * others[j] * long[:, i] * long[:, j]
        expected /= np.maximum(np.linalg.norm(expected, axis=1), 1.0)[:, np.newaxis]
        found = QuadraticSketch(11, seed=2).fit_transform(rows)
        np.testing.assert_allclose(found, expected, atol=2e-6)

    def test_inner_products_are_squares(self):
        rows = RANDOM.normal(size=(6, 5))
        rows /= 2.0 * np.linalg.norm(rows, axis=1, keepdims=True)
        features = QuadraticSketch(20_000, seed=1).fit_transform(3.0 * rows)
        other = QuadraticSketch(20_000, seed=1, input_bound=3.0).fit_transform(9.0 * rows)
        np.testing.assert_allclose(other, features, atol=1e-6)  # rows count in units of the bound
        products = ((rows @ rows.T * 4.0 + 1.0) / 2.0) ** 2  # longer rows count as of norm 1
        np.testing.assert_allclose(features @ features.T, products, atol=0.05)


class TestBins:
    def test_are_those_of_a_schema(self):
        from lastiterate.linear_model import PrivateSchema

        ages = np.array([-5.0, 0.0, 29.9, 30.0, 60.0, 89.0, 90.0, 200.0])
        schema = PrivateSchema({"age": {"range": [0, 90], "bins": 3}})
        expected = schema.fit_transform({"age": ages})
        found = PublicBins(0, 90, bins=3).fit_transform(ages[:, np.newaxis])
        np.testing.assert_allclose(found, expected, atol=1e-6)

    def test_each_column_has_one(self):
        found = PublicBins([0, -1], [1, 1], bins=4).fit_transform(RANDOM.random((20, 2)))
        assert found.shape == (20, 8)
        assert ((found > 0).sum(axis=1) == 2).all()


OUT_OF_RANGE = [
    (RandomFourierFeatures, "n_components", [0]),
    (RandomFourierFeatures, "gamma", [0.0, math.nan]),
    (RandomFourierFeatures, "seed", [-1]),
    (QuadraticSketch, "n_components", [2.5]),
    (QuadraticSketch, "seed", [None]),
    (QuadraticSketch, "input_bound", [math.nan]),
    (PublicBins, "low", [1.0, [0, 0, 0], "a"]),
    (PublicBins, "high", [math.nan, 1e301]),
    (PublicBins, "bins", [1]),
]


@pytest.mark.parametrize("kind, named, values", OUT_OF_RANGE)
def test_parameters_out_of_range_are_refused(kind, named, values):
    for value in values:
        with pytest.raises(InvalidParameter, match=named):
            kind(**{named: value}).fit(np.zeros((3, 2)))


def test_bins_of_a_range_too_narrow_are_refused():
    with pytest.raises(InvalidParameter, match="bins"):
        PublicBins(low=0.0, high=5e-324).fit(np.zeros((3, 2)))


@pytest.mark.slow
@pytest.mark.parametrize("name", package.__all__)
def test_obeys_scikit_learn(name):
    results = check_estimator(getattr(package, name)(), on_skip=None, on_fail=None)
    assert not [one for one in results if one["status"] not in ("passed", "skipped")]
    assert len(results) > 30
