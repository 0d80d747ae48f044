"""No useless model in silence: what cannot be seen is refused or counted, and said."""

import warnings

import numpy as np
import pytest

from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.linear_model.classifiers import PrivateLogisticRegression
from lastiterate.linear_model.fit_warnings import TooFewExamplesWarning
from lastiterate.linear_model.preprocessing import PrivateScaler
from lastiterate.linear_model.published_statistics import OutlierWarning
from lastiterate.linear_model.regressors import PrivateHuberRegressor, PrivateRidge
from tests.train.problems import MODELS, REGRESSORS, made

RNG = np.random.default_rng(0)
PEOPLE = np.column_stack([RNG.uniform(18, 90, 4_000), RNG.uniform(10, 200, 4_000)])
RICH = PEOPLE[:, 1] > 100


class Frame:
    """As much of a data frame as is looked at."""

    def __init__(self, rows):
        self.rows, self.shape, self.columns = rows, rows.shape, ["age", "income"]

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.rows, dtype=dtype)

    def __len__(self):
        return len(self.rows)


class TestRows:
    @pytest.mark.parametrize("model", MODELS)
    def test_a_data_frame_needs_a_bound(self, model):
        with pytest.raises(InvalidParameter, match=r"feature_bound must be set for a data frame"):
            made(model).fit(Frame(PEOPLE), RICH)

    def test_a_bound_beyond_what_scaled_columns_have(self):
        with pytest.warns(UserWarning, match="the largest column dominates all others"):
            PrivateLogisticRegression(feature_bound=300.0).fit(Frame(PEOPLE), RICH)

    def test_scaled_columns_are_taken(self):
        scaled = PrivateScaler(2**0.5, low=[18, 0], high=[90, 200]).fit_transform(PEOPLE)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings(
                "ignore", "rows differ by less than the noise"
            )  # as noise has it
            model = PrivateLogisticRegression(feature_bound=2**0.5).fit(Frame(scaled), RICH)
        assert model.score(scaled, RICH) > 0.95

    def test_raw_rows_are_refused_by_a_count_with_noise(self):
        with pytest.raises(
            InvalidParameter, match=r"about \d+ % \(a noisy count, give or take \d+ %\) of the ro"
        ):
            PrivateLogisticRegression().fit(PEOPLE, RICH)

    def test_where_a_bound_was_set_that_is_a_warning(self):
        with pytest.warns(OutlierWarning, match="more than ten times as long"):
            PrivateLogisticRegression(feature_bound=1.0).fit(PEOPLE, RICH)


class TestTargets:
    @pytest.mark.parametrize("model", REGRESSORS)
    def test_need_a_range(self, model):
        with pytest.raises(InvalidParameter, match=r"target_bound must be given.*found neither"):
            model().fit(PEOPLE / 200, RICH)
        with pytest.raises(InvalidParameter, match=r"target_bound must be given.*found both"):
            model(target_bound=1.0, target_range=(0, 1)).fit(PEOPLE / 200, RICH)

    @pytest.mark.parametrize(
        "given", [3, "ab", (1,), (1, 2, 3), (2, 1), (1, 1), (0, np.nan), (0, np.inf), ("0", "1")]
    )
    def test_ranges_that_are_none(self, given):
        with pytest.raises(InvalidParameter, match=r"target_range must be \(low, high\)"):
            PrivateRidge(target_range=given).fit(PEOPLE / 200, RICH)

    @pytest.mark.parametrize("given", [(0, 5e-324), (1e9, 1e9 + 10), (1.0, 1.0 + 1e-9)])
    def test_ranges_too_narrow_for_single_precision(self, given):
        with pytest.raises(InvalidParameter, match="at least 1/65,536 of its larger end wide"):
            PrivateRidge(target_range=given).fit(PEOPLE / 200, RICH)

    @pytest.mark.parametrize("odd", ["0.5", np.float64(0.3), None])
    def test_one_target_or_weight_does_not_change_the_others(self, odd):
        """In single precision others have other digits than in text."""
        rows = PEOPLE[:300] / 200
        plain = np.full(300, np.float32(0.1))
        mixed = np.array([*plain[:-1], 0.5 if odd is None else odd])
        plain[-1] = mixed[-1]
        model = PrivateRidge(target_range=(0, 0.7), random_state=0, feature_bound=1.0)
        ends = [model.fit(rows, y).parameters_ for y in (plain, mixed)]
        np.testing.assert_array_equal(*ends)
        ends = [model.fit(rows, plain, sample_weight=w).parameters_ for w in (plain, mixed)]
        np.testing.assert_array_equal(*ends)

    def test_a_bound_is_a_range_around_0(self):
        rows = RNG.normal(size=(500, 3)) / 3
        one, other = (
            PrivateRidge(random_state=0, **declared).fit(rows, rows[:, 0])
            for declared in ({"target_bound": 2.0}, {"target_range": (-2.0, 2.0)})
        )
        np.testing.assert_array_equal(one.predict(rows), other.predict(rows))

    @pytest.mark.parametrize("model", REGRESSORS)
    @pytest.mark.parametrize("middle", [0.0, 70_000.0])
    def test_where_the_range_lies_does_not_matter(self, model, middle):
        rows = RNG.normal(size=(5_000, 4)) / 4
        targets = middle + 40_000 * rows[:, 0]
        declared = (middle - 50_000, middle + 50_000)
        fitted = model(target_range=declared, random_state=0).fit(rows, targets)
        assert fitted.score(rows, targets) > 0.9

    @pytest.mark.parametrize("offset, least", [(0.0, 0.9), (2.0, 0.9), (5.0, 0.8)])
    @pytest.mark.parametrize("model", [PrivateRidge, PrivateHuberRegressor])
    def test_an_offset_is_learnt(self, model, offset, least):
        rng = np.random.default_rng(3)
        rows = rng.normal(size=(20_000, 10))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        targets = 3 * rows[:, 0] + offset
        fitted = model(target_bound=3 + offset, random_state=0).fit(rows, targets)
        assert fitted.score(rows, targets) > least

    def test_a_mistyped_label_of_a_quarter_is_said(self):
        labels = np.where(PEOPLE[:, 1] > 150, "Yes", "no")
        assert 0.2 < np.mean(labels == "Yes") < 0.3
        with pytest.warns(OutlierWarning, match="an undeclared label"):
            PrivateLogisticRegression(classes=["no", "yes"]).fit(PEOPLE / 200, labels)

    @pytest.mark.parametrize("classes", [[[0, 1], [2, 3]], [[0, 1], [2]], np.eye(2)])
    def test_labels_in_several_rows(self, classes):
        with pytest.raises(InvalidParameter, match="classes must be a sequence"):
            PrivateLogisticRegression(classes=classes).fit(PEOPLE / 200, RICH)


class TestPriors:
    def rare(self):
        rng = np.random.default_rng(0)
        rows = rng.normal(size=(3_000, 3)) / 3
        return rows, rows[:, 0] + 0.3 * rng.normal(size=3_000) > 0.95

    def test_are_where_the_intercept_begins(self):
        rows, rare = self.rare()
        share = {False: 0.98, True: 0.02}
        quiet = {"fit_intercept": False, "random_state": 0}
        model = PrivateLogisticRegression(class_prior=share, **quiet).fit(rows, rare)
        assert model.intercept_ == pytest.approx(np.log(0.02 / 0.98))
        three = PrivateLogisticRegression(
            class_prior={0: 0.5, 1: 0.3, 2: 0.2}, classes=[0, 1, 2], **quiet
        ).fit(rows, np.arange(3_000) % 3)
        at_zero = three.predict_proba(np.zeros((1, 3)))[0]
        np.testing.assert_allclose(at_zero, [0.5, 0.3, 0.2])

    def test_make_probabilities_better(self):
        rows, rare = self.rare()
        losses = []
        for prior in (None, {False: 0.98, True: 0.02}):
            model = PrivateLogisticRegression(epsilon=0.5, class_prior=prior, random_state=0)
            model.fit(rows, rare)
            losses.append(
                -np.mean(model.predict_log_proba(rows)[np.arange(3_000), rare.astype(int)])
            )
        assert losses[1] < losses[0]

    @pytest.mark.parametrize(
        "prior",
        [
            [0.98, 0.02],
            {False: 0.98},
            {False: 0.98, True: 0.5},
            {False: 1.0, True: 0.0},
            {False: 2.0, True: -1.0},
            {False: np.nan, True: 0.02},
            {"no": 0.98, "yes": 0.02},
            0.02,
        ],
    )
    def test_that_are_none(self, prior):
        with pytest.raises((InvalidParameter, InvalidType), match="class_prior must be"):
            PrivateLogisticRegression(class_prior=prior).fit(*self.rare())


class TestProspects:
    def fit(self, examples, classes, **settings):
        rows = np.random.default_rng(0).normal(size=(examples, 3))
        model = PrivateLogisticRegression(classes=range(classes), **settings)
        return model.fit(rows, np.arange(examples) % classes)

    def test_hopeless_tasks_are_said_to_be(self):
        words = r"0.5 noise dominates 500 examples of 20 classes.* of \S+ or more, or about \d"
        with pytest.warns(TooFewExamplesWarning, match=words):
            self.fit(500, 20, epsilon=0.5)
        with pytest.warns(TooFewExamplesWarning, match="or 3 classes"):
            self.fit(500, 20, epsilon=0.5)
        with pytest.warns(TooFewExamplesWarning, match="noise dominates 6 examples"):
            PrivateRidge(target_bound=1.0).fit(np.eye(6), np.zeros(6))

    @pytest.mark.parametrize("remedy", ["epsilon", "examples", "classes", "adjacency"])
    def test_each_remedy_helps(self, remedy):
        task = {"examples": 300, "classes": 6, "epsilon": 0.5}
        changed = {"epsilon": 4.0, "examples": 3_000, "classes": 2, "adjacency": "zero-out"}
        with pytest.warns(TooFewExamplesWarning):
            self.fit(**task | {"examples": 200})
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings(
                "ignore", "rows differ by less than the noise"
            )  # as noise has it
            self.fit(**task | {remedy: changed[remedy]})

    def test_not_where_the_noise_is_given(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings(
                "ignore", "rows differ by less than the noise"
            )  # as noise has it
            self.fit(40, 20, epsilon=None, noise_std=0.1)


class TestFramesWithText:
    class Mixed(Frame):
        dtypes = ("float64", "object")

    def test_the_right_tool_is_named(self):
        with pytest.raises(InvalidParameter, match=r"PrivateSchema.*text in the columns income"):
            PrivateLogisticRegression().fit(self.Mixed(PEOPLE), RICH)

    def test_also_where_a_bound_is_set(self):
        rows = np.array([["a", "b"], ["c", "d"]], dtype=object)
        with pytest.raises(InvalidParameter, match=r"PrivateSchema.*not a number"):
            PrivateLogisticRegression(feature_bound=1.0).fit(rows, [True, False])

    def test_numbers_kept_as_objects_are_taken_with_a_bound(self):
        frame = self.Mixed((PEOPLE / 200).astype(object))
        assert PrivateLogisticRegression(feature_bound=2**0.5).fit(frame, RICH).privacy_

    def test_polars_and_pandas_where_they_are(self):
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame({"age": [1.0, 2.0], "job": ["x", "y"]})
        for one in (frame, frame.astype({"job": "category"}), frame.astype({"job": "string"})):
            with pytest.raises(InvalidParameter, match=r"text in the columns job\."):
                PrivateLogisticRegression().fit(one, [True, False])


class TestEmptyCells:
    def test_of_rows(self):
        rows = np.where(PEOPLE > 190, np.nan, PEOPLE)
        with pytest.raises(InvalidParameter, match="contains NaN -> fill empty cells with a publi"):
            PrivateLogisticRegression().fit(rows, RICH)

    def test_of_targets(self):
        targets = np.where(RICH, np.nan, 1.0)
        with pytest.raises(InvalidParameter, match="y contains NaN -> leave out the rows that"):
            PrivateRidge(target_bound=1.0).fit(PEOPLE, targets)

    def test_rows_without_bounds(self):
        rows = np.where(PEOPLE > 190, np.inf, PEOPLE)
        with pytest.raises(InvalidParameter, match=r"infinity.* -> clip columns to publicly"):
            PrivateLogisticRegression().fit(rows, RICH)
