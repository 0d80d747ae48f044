"""Ways to a false guarantee that are closed."""

import json

import numpy as np
import pytest
from scipy import sparse

import lastiterate as li
from lastiterate.certificate.verify import verify
from lastiterate.errors import InvalidCertificate, InvalidParameter
from lastiterate.linear_model.classifiers import PrivateLogisticRegression
from lastiterate.linear_model.regressors import PrivateRidge
from lastiterate.train.data import bounded
from lastiterate.train.noisy_descent import noisy_descent
from lastiterate.train.objectives import Logistic, SmoothedHinge, Softmax
from lastiterate.train.rows import norm_factors
from tests.slow import slow


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    return PrivateLogisticRegression(epsilon=1.0, random_state=0).fit(X, X[:, 0] > 0)


class TestRows:
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("size", [1e-30, 1e-23, 1.0, 1e19, 1e30])
    def test_sparse_rows_are_brought_within_the_bound_as_dense_ones(self, dtype, size):
        rng = np.random.default_rng(0)
        dense = (rng.normal(size=(50, 20)) * (rng.random((50, 20)) < 0.3)).astype(dtype)
        dense *= dtype(size)
        bound = size / 10
        for rows in (dense, sparse.csr_matrix(dense)):
            factors = norm_factors(rows, bound)
            scaled = dense.astype(np.longdouble) * factors[:, np.newaxis]
            assert np.all(np.sqrt((scaled**2).sum(axis=1)) <= bound)

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

    def test_errors_do_not_name_values(self):
        rows = np.array([["1.0"], ["Alice"]] * 50, dtype=object)
        with pytest.raises(ValueError, match="X must be numbers") as caught:
            PrivateLogisticRegression().fit(rows, [0, 1] * 50)
        assert "Alice" not in str(caught.value)
        assert caught.value.__context__ is None


class TestPromises:
    def run(self, objective, **loss):
        stated = objective.loss(radius=1.0, l2=0.0)
        return li.TrainingRun(
            loss=li.Loss(smoothness=stated.smoothness, **loss),
            sensitivity=objective.sensitivity(radius=1.0, adjacency="replace"),
            batches=li.FullBatch(20),
            steps=3,
            step_size=0.1,
            noise_std=1.0,
        )

    def examples(self, targets):
        return bounded(np.ones((20, 1)), targets, bound=1.0, intercept=0.0)

    @pytest.mark.parametrize("objective", [Logistic(), SmoothedHinge()])
    @pytest.mark.parametrize("target", [-1.0, 0.5, 2.0])
    def test_targets_that_the_constants_do_not_hold_for(self, objective, target):
        examples = self.examples(np.full(20, target))
        with pytest.raises(InvalidParameter, match="targets"):
            noisy_descent(self.run(objective), objective, examples)

    def test_claims_that_no_trainer_keeps(self):
        run = self.run(Logistic(), holder=(1e-12, 1.0))
        with pytest.raises(InvalidParameter, match="holder"):
            noisy_descent(run, Logistic(), self.examples(np.zeros(20)))

    def test_fewer_outputs_than_the_model_has(self):
        objective = Softmax(classes=3)
        run = self.run(objective, outputs=2)
        with pytest.raises(InvalidParameter, match="outputs"):
            noisy_descent(run, objective, self.examples(np.zeros(20)))


class TestCertificates:
    def test_a_name_that_occurs_twice(self, model):
        text = model.certificate_.replace('"epsilon": ', '"epsilon": 0.01,\n    "epsilon": ', 1)
        with pytest.raises(InvalidCertificate, match="twice"):
            verify(text)

    def test_hoelder_constants(self, model):
        record = json.loads(model.certificate_)
        record["run"]["loss"]["holder"] = [1e-12, 1.0]
        with pytest.raises(InvalidCertificate, match="Hoelder"):
            verify(json.dumps(record))

    def test_outputs_where_rounding_is_not_charged(self):
        X = np.random.default_rng(0).normal(size=(200, 3))
        fast = PrivateLogisticRegression(arithmetic="fast").fit(X, X[:, 0] > 0)
        record = json.loads(fast.certificate_)
        record["run"]["loss"]["outputs"] = 1
        with pytest.raises(InvalidCertificate, match=r"loss\.outputs"):
            verify(json.dumps(record))


class TestParameters:
    def test_numbers_of_other_kinds(self):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(200, 3))
        other = PrivateLogisticRegression(delta=np.float32(1e-6), l2=np.float32(0.1))
        assert verify(other.fit(X, X[:, 0] > 0).certificate_)

    @pytest.mark.parametrize("l2", [0.01, slow(0.1), 1.0])
    def test_a_penalty_with_several_classes(self, l2):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(2_000, 3))
        fitted = PrivateLogisticRegression(l2=l2, classes=range(3)).fit(X, X.argmax(axis=1))
        assert fitted.privacy_.epsilon(1e-5) <= 1.0

    @pytest.mark.parametrize("epsilon", [100.5, 1e9, 0.0, -1.0, float("inf"), float("nan")])
    def test_an_epsilon_that_promises_nothing(self, epsilon):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(200, 3))
        for model in (PrivateLogisticRegression(epsilon), PrivateRidge(epsilon, target_bound=1.0)):
            with pytest.raises(InvalidParameter, match=r"epsilon must be .*\(0, 100\].*nothing"):
                model.fit(X, X[:, 0] > 0)

    def test_the_largest_epsilon(self):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(200, 3))
        fitted = PrivateLogisticRegression(epsilon=100.0).fit(X, X[:, 0] > 0)
        # Events that the charge for rounding leaves out count e^epsilon times.
        assert 30.0 < fitted.privacy_.epsilon(1e-5) <= 100.0

    def test_a_bound_that_is_no_number(self):
        with pytest.raises(InvalidParameter, match="feature_bound"):
            PrivateLogisticRegression(feature_bound="1").fit(np.eye(2), [0, 1])
