"""Scores on private data: noise that is charged, and sums that one example moves by at most 1."""

from decimal import Decimal

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

import lastiterate as li
from lastiterate.errors import InvalidParameter
from lastiterate.linear_model import (
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateScaler,
    PrivateScore,
)
from lastiterate.linear_model.private_score import score_total
from lastiterate.other_releases import ACCURACY, ERRORS, KINDS
from lastiterate.profile.rounded import Rounding, gdp_but_for_failure
from lastiterate.train.arithmetic import release_rounding

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2_000, 3))
SIDES = np.where(X[:, 0] > 0, "yes", "no")


@pytest.fixture(scope="module")
def classifier():
    return PrivateLogisticRegression(classes=["no", "yes"], counting=0, center=False).fit(X, SIDES)


@pytest.fixture(scope="module")
def regressor():
    return PrivateRidge(target_bound=5.0, counting=0, center=False).fit(X, X[:, 0])


def test_a_loss_without_noise_is_covered_by_nothing():
    """It tells two data sets apart for certain, so what is charged for iterates is not enough."""
    run = li.TrainingRun(
        loss=li.Loss(smoothness=1.0), sensitivity=1.0, batches=li.FullBatch(100), steps=10,
        step_size=1.0, noise_std=1.0, releases="every-iterate",
    )  # fmt: skip
    assert li.account(run).delta(1.0) < 1e-100
    words = " ".join(li.TrainingRun.__doc__.split())
    assert "a loss curve on the data" not in words
    assert "no run covers it" in words


class TestSum:
    @pytest.mark.parametrize("label", ["yes", "no", "other", None, 7])
    def test_one_label_moves_the_accuracy_by_at_most_one(self, classifier, label):
        before, count = score_total(classifier, X, SIDES)
        assert before == np.sum(classifier.predict(X) == SIDES)
        labels = SIDES.astype(object)
        labels[3] = label
        after, _ = score_total(classifier, X, labels)
        assert abs(after - before) <= KINDS[ACCURACY].sensitivity("replace")
        assert count == 2_000

    @pytest.mark.parametrize("target", [1e300, -1e300, np.inf, np.nan, 0.0])
    def test_one_target_moves_the_error_by_at_most_one(self, regressor, target):
        before, _ = score_total(regressor, X, X[:, 0])
        targets = X[:, 0].copy()
        targets[3] = target
        after, _ = score_total(regressor, X, targets)
        assert abs(after - before) <= KINDS[ERRORS].sensitivity("replace")

    def test_a_bound_set_later_does_not_shrink_the_unit(self, regressor):
        before, _ = score_total(regressor, X, X[:, 0])
        regressor.set_params(target_bound=1e-3)
        assert score_total(regressor, X, X[:, 0])[0] == before
        regressor.set_params(target_bound=5.0)


class TestOtherRows:
    """Rows on the boundary, where the last bit of a product decides."""

    def rows(self, model):
        rows = np.random.default_rng(1).normal(size=(5_000, 30)) / 12.0
        weights, constant = model.coef_[0], model.intercept_[0]
        for _ in range(4):
            far = (rows @ weights + constant) / (weights @ weights)
            rows -= far[:, np.newaxis] * weights
        return rows

    def test_do_not_count_otherwise_where_one_cell_decides_how_all_lie_in_memory(self):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(400, 30)) / 12.0
        model = PrivateLogisticRegression(epsilon=3.0, classes=[0, 1], random_state=0)
        model.fit(X, X[:, 0] > 0.0)
        rows = self.rows(model)
        other = rows.astype(object)
        other[7, 0] = Decimal("0.01")
        double = np.zeros((rows.shape[0], 60))
        double[:, ::2] = rows
        expected = model.decision_function(rows)
        for found in (np.asfortranarray(rows), double[:, ::2], rows[::-1].copy()[::-1]):
            np.testing.assert_array_equal(model.decision_function(found), expected)
            moved = abs(score_total(model, found, np.ones(len(rows)))[0]
                        - score_total(model, other, np.ones(len(rows)))[0])  # fmt: skip
            assert moved <= 1.0


class TestNoise:
    def test_is_what_is_charged(self, classifier):
        guessed = RNG.permutation(SIDES)  # far from 0 and from 1, where scores are cut
        scores = [
            PrivateScore.of(classifier, X, guessed, epsilon=0.2, random_state=k) for k in range(80)
        ]
        exact = np.mean(classifier.predict(X) == guessed)
        values = np.array([one.value for one in scores])
        assert values.std() == pytest.approx(scores[0].std, rel=0.35)
        assert values.mean() == pytest.approx(exact, abs=4 * scores[0].std / 80**0.5 + 1e-3)
        assert 0.199 < scores[0].privacy.epsilon(1e-5) <= 0.2 * (1 + 1e-5)

    def test_without_a_seed_it_differs(self, regressor):
        first, second = (PrivateScore.of(regressor, X, X[:, 0], epsilon=0.5) for _ in "ab")
        assert first.value != second.value
        assert 0.0 <= first.value <= 1.0

    def test_model_and_score_compose(self, classifier):
        score = PrivateScore.of(classifier, X, SIDES, epsilon=0.5)
        both = score.joint_report(classifier.privacy_)
        assert both.other_releases == (score.release,)
        assert classifier.privacy_.epsilon(1e-5) < both.epsilon(1e-5) < 1.5
        alone = gdp_but_for_failure(classifier.privacy_)
        assert gdp_but_for_failure(both) == pytest.approx(
            np.hypot(alone, score.release.mu), rel=1e-9
        )
        assert np.isfinite(alone)

    def test_a_score_of_examples_is_none_of_persons(self, classifier):
        """Under either adjacency it hides one example, or a person's where the model does."""
        score = PrivateScore.of(classifier, X, SIDES, epsilon=0.5)
        report = classifier.privacy_
        assert li.compose(report, score.privacy).protected == report.protected
        assert score.privacy.compose(report).protected == report.protected
        persons = li.account(report.run.replace(examples_per_person=3))
        for way in (persons.compose, lambda other: li.compose(other, persons)):
            with pytest.raises(li.InvalidParameter, match="one number of examples per person"):
                way(score.privacy)

    def test_rounding_is_that_of_all_rows_that_were_scored(self, classifier):
        exact = li.account(classifier.privacy_.run).computed(Rounding(0.0, 0.0))
        for times in (1, 50):
            score = PrivateScore.of(
                classifier, np.tile(X, (times, 1)), np.tile(SIDES, times), epsilon=0.5
            )
            expected = release_rounding(score.release, times * len(X)).mu
            assert score.joint_report(exact).rounding.mu >= expected > (times == 50) * 1e-11


@pytest.mark.parametrize("epsilon", [0.0, -1.0, np.nan, "1"])
def test_refuses_what_is_no_budget(classifier, epsilon):
    with pytest.raises(InvalidParameter, match="epsilon must be"):
        PrivateScore.of(classifier, X, SIDES, epsilon=epsilon)


def test_refuses_too_few_targets(classifier):
    with pytest.raises(InvalidParameter, match="y must be as long as X"):
        PrivateScore.of(classifier, X, SIDES[1:], epsilon=1.0)


def test_a_pipeline_is_not_said_to_be_unfitted(classifier):
    with pytest.raises(InvalidParameter, match=r"model\[-1\], on transformed rows"):
        PrivateScore.of(make_pipeline(PrivateScaler(), classifier), X, SIDES, epsilon=1.0)
