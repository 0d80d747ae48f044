"""Weights of examples: no bound is exceeded, and less is learnt from those that weigh less."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.linear_model.classifiers import PrivateLinearSVC, PrivateLogisticRegression
from lastiterate.linear_model.regressors import PrivateRidge
from lastiterate.train.data import FAST, PROVED, bounded
from lastiterate.train.noisy_descent import gradient_sum
from lastiterate.train.objectives import Huber, Logistic, SmoothedHinge, Softmax
from tests.train.problems import MODELS, REGRESSORS, ROWS, SIDES, made

N = 40
OBJECTIVES = [Logistic(), Softmax(classes=3), Huber(clip=0.5), SmoothedHinge()]
WEIGHTS = np.random.default_rng(1).uniform(0.01, 1.0, len(ROWS))
KEY = b"a secret of 16 bytes or more"


def examples_of(objective, weights, seed=0):
    """Rows within and far beyond the bound, targets of the objective, these weights."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(N, 5)) * rng.choice([0.3, 1.0, 1e6], size=(N, 1))
    targets = rng.integers(0, max(objective.outputs, 2), N).astype(np.intp)
    if isinstance(objective, Huber):
        targets = rng.uniform(-9, 9, N)
    found = bounded(rows, targets, bound=1.0, intercept=0.25)
    return replace(found, weights=weights)


class TestSensitivity:
    @pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda one: type(one).__name__)
    @pytest.mark.parametrize("arithmetic", [PROVED, FAST])
    def test_no_example_moves_a_step_further_than_without_weights(self, objective, arithmetic):
        weights = np.random.default_rng(2).uniform(1e-6, 1.0, N)
        weights[:5] = 1.0
        examples = replace(examples_of(objective, weights), arithmetic=arithmetic)
        parameters = np.random.default_rng(3).normal(size=(objective.outputs, 6))
        total = gradient_sum(objective, examples, slice(None), parameters)
        bound = objective.gradient_bound(radius=examples.radius)
        alone = []
        for left_out in range(N):
            rest = replace(examples, silent=np.arange(N) == left_out)
            alone.append(total - gradient_sum(objective, rest, slice(None), parameters))
            assert np.linalg.norm(alone[-1]) <= weights[left_out] * bound + 1e-9
        pairs = [np.linalg.norm(one - other) for one in alone for other in alone]
        assert max(pairs) <= objective.sensitivity(radius=examples.radius, adjacency="replace")

    @pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda one: type(one).__name__)
    def test_a_gradient_is_multiplied_by_its_weight(self, objective):
        parameters = np.random.default_rng(3).normal(size=(objective.outputs, 6))
        sums = [
            gradient_sum(objective, examples_of(objective, given), slice(None), parameters)
            for given in (np.full(N, 0.25), None)
        ]
        np.testing.assert_allclose(sums[0], 0.25 * sums[1], rtol=1e-12, atol=1e-14)

    @pytest.mark.parametrize("model", MODELS)
    def test_run_and_guarantee_are_those_without_weights(self, model):
        reports = [
            made(model, epsilon=1.0).fit(ROWS, SIDES, **given).privacy_
            for given in ({"sample_weight": WEIGHTS}, {})
        ]
        assert reports[0].run == reports[1].run
        assert reports[0].epsilon(1e-5) == reports[1].epsilon(1e-5) <= 1.0


class TestWhatIsLearnt:
    @pytest.mark.parametrize("model", MODELS)
    def test_weights_of_one_change_nothing(self, model):
        usual = made(model, random_state=0)
        ones = clone(usual).fit(ROWS, SIDES, sample_weight=np.ones(len(ROWS)))
        np.testing.assert_array_equal(ones.parameters_, usual.fit(ROWS, SIDES).parameters_)

    @pytest.mark.parametrize("model", [PrivateLogisticRegression, PrivateLinearSVC])
    def test_a_class_weighs_what_its_examples_weigh(self, model):
        by_class = model(class_weight={False: 0.125, True: 1.0}, random_state=0).fit(ROWS, SIDES)
        each = model(random_state=0).fit(ROWS, SIDES, sample_weight=np.where(SIDES, 1.0, 0.125))
        usual = model(random_state=0).fit(ROWS, SIDES)
        np.testing.assert_array_equal(by_class.parameters_, each.parameters_)
        assert by_class.predict(ROWS).mean() > usual.predict(ROWS).mean()

    def test_weights_of_classes_above_one_are_in_units_of_the_largest(self):
        models = [
            PrivateLogisticRegression(class_weight=given, random_state=0).fit(ROWS, SIDES)
            for given in ({False: 1.0, True: 8.0}, {False: 0.125, True: 1.0})
        ]
        np.testing.assert_array_equal(models[0].parameters_, models[1].parameters_)

    @pytest.mark.parametrize("model", MODELS)
    def test_rows_in_a_file_and_sparse_rows_weigh_the_same(self, model, tmp_path):
        mapped = np.memmap(tmp_path / "rows", dtype=np.float64, shape=ROWS.shape, mode="w+")
        mapped[:] = ROWS
        found = [
            made(model, random_state=0, batches="cyclic", batch_size=100)
            .fit(rows, SIDES, sample_weight=WEIGHTS)
            .coef_
            for rows in (ROWS, sparse.csr_array(ROWS), mapped)
        ]
        np.testing.assert_allclose(found[1], found[0], atol=1e-6)
        np.testing.assert_allclose(found[2], found[0], atol=1e-6)

    def test_unlearning_knows_the_weights_of_classes(self):
        model = PrivateLogisticRegression(l2=0.1, class_weight={False: 0.5, True: 1.0})
        model.fit(ROWS, SIDES, key=KEY)
        new = model.unlearn(ROWS, SIDES, rows=[3], key=KEY, extra_steps=20)
        assert new.unlearning_.examples == 1
        model.class_weight = {False: 1.0, True: 1.0}
        with pytest.raises(InvalidParameter, match="data and key"):
            model.unlearn(ROWS, SIDES, rows=[3], key=KEY, extra_steps=20)


class TestRefusals:
    @pytest.mark.parametrize("bad", [0.0, -0.5, 1.0000001, np.nan, np.inf])
    def test_one_weight_outside(self, bad):
        weights = np.ones(len(ROWS))
        weights[7] = bad
        with pytest.raises(InvalidParameter, match=r"in \(0, 1\].* a weight outside"):
            PrivateLogisticRegression().fit(ROWS, SIDES, sample_weight=weights)

    @pytest.mark.parametrize("bad", ["words", [1.0], np.ones((600, 1)), 1.0, [{}] * 600])
    def test_others_than_a_column(self, bad):
        with pytest.raises((InvalidParameter, InvalidType), match="sample_weight must be 600"):
            PrivateLogisticRegression().fit(ROWS, SIDES, sample_weight=bad)

    @pytest.mark.parametrize(
        "bad",
        ["balanced", 7, {True: 1.0}, {0: 0.5, 1: 1.0, 2: 1.0}, {0: 0.0, 1: 1.0}, {0: -2.0, 1: 1.0}],
    )
    @pytest.mark.parametrize("model", [PrivateLogisticRegression, PrivateLinearSVC])
    def test_weights_of_classes(self, model, bad):
        with pytest.raises((InvalidParameter, InvalidType), match="class_weight"):
            model(class_weight=bad).fit(ROWS, SIDES)

    @pytest.mark.parametrize("model", REGRESSORS)
    def test_regressors_have_no_classes(self, model):
        with pytest.raises(TypeError, match="class_weight must be left out: regressors"):
            made(model, class_weight={0: 1.0})

    def test_rows_with_weights_cannot_be_unlearned(self):
        with pytest.raises(InvalidParameter, match="key must be left out with sample_weight"):
            PrivateRidge(target_bound=1.0).fit(ROWS, SIDES, sample_weight=WEIGHTS, key=KEY)
