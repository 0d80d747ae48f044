"""`summary`: names, units and intervals of coefficients, and designs that determine none."""

import warnings

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

import lastiterate as li
from lastiterate.errors import InvalidParameter, InvalidType, PrivacyWarning
from lastiterate.features.transformers import RandomFourierFeatures
from lastiterate.linear_model.classifiers import PrivateLinearSVC, PrivateLogisticRegression
from lastiterate.linear_model.coefficient_table import summary
from lastiterate.linear_model.intervals import InfiniteIntervalsWarning
from lastiterate.linear_model.preprocessing import PrivateScaler
from lastiterate.linear_model.private_schema import PrivateSchema
from lastiterate.linear_model.regressors import PrivateHuberRegressor, PrivateRidge

JOBS = ["clerk", "nurse", "cook"]
SCHEMA = {
    "age": {"range": [18, 90], "missing": 40, "indicator": True},
    "job": {"values": JOBS, "baseline": "nurse"},
    "hours": {"cuts": [20, 40], "baseline": 30},
    "temperature": {"range": [-10, 60]},
}
PAY, AT_ZERO = {"age": 600.0, "temperature": -50.0}, 20_000.0
BY_JOB = {"clerk": -8_000.0, "nurse": 0.0, "cook": 5_000.0}
RANGE = (0.0, 120_000.0)
BASE = {"target_range": RANGE, "random_state": 0}


def people(count=20_000, *, empty=0.05):
    rng = np.random.default_rng(1)
    table = {
        "age": np.where(rng.random(count) < empty, np.nan, rng.integers(18, 91, count)),
        "job": rng.choice(JOBS, count),
        "hours": rng.uniform(0.0, 60.0, count),
        "temperature": rng.uniform(-10.0, 60.0, count),
    }
    pay = AT_ZERO + 600.0 * np.nan_to_num(table["age"], nan=40.0) - 50.0 * table["temperature"]
    pay += np.array([BY_JOB[job] for job in table["job"]]) + 4_000.0 * (table["hours"] >= 40)
    return table, pay + rng.normal(0.0, 4_000.0, count)


def outputs_of(table, found):
    """The outputs that the rows of a summary give, column by column."""
    by_name = {row.name: row.estimate for row in found.rows}
    age, job, hours = table["age"], table["job"], table["hours"]
    parts = [
        by_name["(intercept)"] + by_name["age"] * np.nan_to_num(age, nan=40.0),
        by_name["age is missing"] * np.isnan(age),
        by_name["temperature"] * table["temperature"],
        by_name["job=clerk"] * (job == "clerk") + by_name["job=cook"] * (job == "cook"),
        by_name["hours < 20"] * (hours < 20) + by_name["hours >= 40"] * (hours >= 40),
    ]
    return np.sum(parts, axis=0)


@pytest.mark.parametrize("bound", [1.0, 0.3, None])
@pytest.mark.parametrize("kind", [PrivateRidge, PrivateHuberRegressor, PrivateLogisticRegression])
def test_they_predict_what_the_pipeline_does(kind, bound):
    table, pay = people(3_000)
    given = {"random_state": 0} if kind is PrivateLogisticRegression else BASE
    truth = pay > 50_000 if kind is PrivateLogisticRegression else pay
    schema = PrivateSchema(SCHEMA, bound=bound)
    own = {"feature_bound": 2.5} if bound is None else {}
    # Around a mean the farthest rows are scaled down, each by its own factor.
    model = kind(epsilon=2.0, center=False, **given, **own)
    pipeline = make_pipeline(schema, model).fit(table, truth)
    outputs = pipeline.predict if kind is not PrivateLogisticRegression else (
        pipeline.decision_function)  # fmt: skip
    found = summary(pipeline)
    np.testing.assert_allclose(outputs_of(table, found), outputs(table), rtol=1e-7, atol=1e-7)
    assert all(row.low is None and row.high is None for row in found.rows)


@pytest.fixture(scope="module")
def measured():
    table, pay = people(40_000)
    ridge = PrivateRidge(epsilon=4.0, intervals=True, **BASE)
    return make_pipeline(PrivateSchema(SCHEMA), ridge).fit(table, pay)


class TestIntervals:
    def test_they_cover_the_truth_in_the_units_of_the_table(self, measured):
        found = {row.name: row for row in summary(measured, level=0.9999).rows}
        true = PAY | {f"job={job}": BY_JOB[job] for job in ("clerk", "cook")}
        true |= {"hours < 20": 0.0, "hours >= 40": 4_000.0, "(intercept)": AT_ZERO}
        true |= {"age is missing": 0.0}
        assert found.keys() == true.keys()
        for name, value in true.items():
            assert found[name].low < value < found[name].high, name
        assert found["age"].high - found["age"].low < 60.0
        assert found["job=clerk"].meaning == "against job=nurse"
        assert found["hours < 20"].meaning == "against 20 <= hours < 40"
        assert found["age is missing"].meaning == "an empty cell, against 40"

    def test_that_of_the_intercept_follows_from_the_covariance(self, measured):
        """By the variance of the output of an encoded row, extended to a table of zeros."""
        middle = {"age": [54.0], "job": ["nurse"], "hours": [30.0], "temperature": [25.0]}
        encoded = measured[0].transform(middle)[0]
        for name, step in (("age", 27.0), ("temperature", 12.5)):
            lower = {**middle, name: [middle[name][0] - step]}
            encoded = encoded + 2.0 * (measured[0].transform(lower)[0] -
                                       measured[0].transform(middle)[0])  # fmt: skip
        row = np.append(encoded, 1.0)
        model = measured[-1]
        reach = 1.959964 * np.sqrt(row @ model.interval_covariance_ @ row)
        found = summary(measured).rows[-1]
        assert found.estimate == pytest.approx(row @ model.interval_estimate_)
        assert (found.high - found.low) / 2.0 == pytest.approx(reach, rel=1e-6)

    def test_those_of_a_model_alone_are_its_own(self, measured):
        found = summary(measured[-1], level=0.9)
        ends = [(row.low, row.high) for row in found.rows]
        np.testing.assert_allclose(ends, measured[-1].conf_int(0.9))
        assert [row.name for row in found.rows[:2]] == ["feature 0", "feature 1"]

    def test_saved_models_have_the_same(self, measured, tmp_path):
        li.save(measured, tmp_path)
        with pytest.warns(PrivacyWarning, match="seed"):
            again = li.load(tmp_path)
        assert summary(again) == summary(measured)

    def test_text_and_records(self, measured):
        found = summary(measured)
        assert str(found).splitlines()[1].startswith("age  ")
        assert "95 % interval" in str(found)
        assert found.records()[0].keys() >= {"name", "estimate", "low", "high", "meaning"}


class TestOtherModels:
    def test_labels(self):
        table, pay = people(2_000)
        labels = np.digitize(pay, [40_000, 60_000])
        pipeline = make_pipeline(
            PrivateSchema(SCHEMA),
            PrivateLogisticRegression(epsilon=2.0, classes=[0, 1, 2], center=False, random_state=0),
        ).fit(table, labels)
        found = summary(pipeline)
        assert {row.label for row in found.rows} == {"0", "1", "2"}
        width = len(found.rows) // 3
        assert width == pipeline[0].get_feature_names_out().size + 1
        assert found.adds_to == "the score of each label"
        assert "label" in str(found)
        outputs = pipeline.decision_function(table)
        for k in range(3):
            own = type(found)(found.rows[k * width : (k + 1) * width], "")
            np.testing.assert_allclose(outputs_of(table, own), outputs[:, k], atol=1e-6)

    def test_other_steps_leave_features_as_they_are(self):
        rng = np.random.default_rng(0)
        X = rng.uniform(-1.0, 1.0, size=(2_000, 2))
        svc = PrivateLinearSVC(epsilon=2.0, random_state=0)
        pipeline = make_pipeline(PrivateScaler(2.0), svc).fit(X, X[:, 0] > 0)
        assert [row.name for row in summary(pipeline).rows] == ["x0", "x1", "(intercept)"]
        assert summary(pipeline).rows[0].estimate == svc.coef_[0, 0]
        assert summary(pipeline).adds_to == "the score of True"
        table, pay = people(2_000)
        fourier = RandomFourierFeatures(8)
        pipeline = make_pipeline(PrivateSchema(SCHEMA), fourier, PrivateRidge(**BASE, epsilon=2.0))
        found = summary(pipeline.fit(table, pay))
        assert len(found.rows) == pipeline[-1].coef_.size + 1
        assert {row.meaning for row in found.rows[:-1]} == {"one unit of the feature"}

    def test_rows_that_the_model_scales_down_have_no_units_of_the_table(self):
        table, pay = people(2_000)
        ridge = PrivateRidge(**BASE, epsilon=2.0, feature_bound=0.5)
        found = summary(make_pipeline(PrivateSchema(SCHEMA), ridge).fit(table, pay))
        assert found.rows[0].estimate == ridge.coef_[0]
        assert found.rows[0].meaning == "one unit of the feature"

    def test_others_are_refused(self):
        with pytest.raises(InvalidType, match="private linear model"):
            summary(object())
        table, pay = people(2_000)
        model = make_pipeline(PrivateSchema(SCHEMA), PrivateRidge(**BASE)).fit(table, pay)
        for level in (0.0, 1.0, float("nan")):
            with pytest.raises(InvalidParameter, match="level"):
                summary(model, level=level)


class TestUndeterminedCoefficients:
    @pytest.mark.parametrize(
        "entry, settings, warned",
        [
            ({"values": JOBS}, {}, True),
            ({"cuts": [1.5]}, {}, True),
            ({"values": JOBS}, {"l2": 0.01}, False),
            ({"values": JOBS}, {"fit_intercept": False}, False),
            ({"values": JOBS}, {"intervals": False}, False),
            ({"values": JOBS, "baseline": "cook"}, {}, False),
            ({"values": JOBS[:2], "baseline": None}, {}, False),
        ],
    )
    def test_a_warning_comes_before_anything_is_spent(self, entry, settings, warned, tmp_path):
        rng = np.random.default_rng(0)
        jobs = rng.choice(JOBS, 6_000) if "values" in entry else rng.integers(1, 4, 6_000)
        table = {"job": jobs, "age": rng.uniform(18, 90, 6_000)}
        schema = {"job": entry, "age": {"range": [18, 90]}}
        ledger = li.Ledger(tmp_path / "ledger", epsilon=20.0, delta=1e-4)
        given = {"target_range": RANGE, "epsilon": 10.0, "intervals": True, "ledger": ledger}
        ridge = PrivateRidge(**given | settings)
        pipeline = make_pipeline(PrivateSchema(schema), ridge)
        with warnings.catch_warnings():
            warnings.simplefilter("error", InfiniteIntervalsWarning)
            if not warned:
                pipeline.fit(table, 600.0 * table["age"])
                return
            with pytest.raises(InfiniteIntervalsWarning, match=r"'job' add up .*baseline"):
                pipeline.fit(table, 600.0 * table["age"])
        assert ledger.spent().epsilon(1e-4) == 0.0

    def test_afterwards_features_are_named(self):
        """Also where none could know before: one-hot by hand, and a value that no row has."""
        rng = np.random.default_rng(0)
        age = rng.uniform(-0.5, 0.5, 20_000)
        jobs = np.eye(3)[rng.integers(0, 3, 20_000)] / 2
        X = np.column_stack([age, jobs])
        ridge = PrivateRidge(epsilon=4.0, target_bound=1.0, intervals=True, random_state=0)
        named = "'feature 1', 'feature 2', 'feature 3', 'the intercept'"
        with pytest.warns(InfiniteIntervalsWarning, match=named):
            ridge.fit(X, age)
        with pytest.warns(InfiniteIntervalsWarning, match="baseline"):
            assert np.isinf(ridge.conf_int()).all()
        schema = {
            "age": {"range": [-0.5, 0.5]},
            "job": {"values": [*JOBS, "spy"], "baseline": "clerk"},
        }
        table = {"age": age, "job": rng.choice(JOBS, 20_000)}
        pipeline = make_pipeline(PrivateSchema(schema), ridge)
        with pytest.warns(InfiniteIntervalsWarning, match=r"these features: 'job=spy'\. The"):
            pipeline.fit(table, age)

    def test_the_first_value_of_each_column(self):
        table, pay = people(20_000)
        schema = {"job": {"values": JOBS}, "hours": {"cuts": [20, 40]}, "*": "drop"}
        ridge = PrivateRidge(epsilon=8.0, intervals=True, **BASE)
        pipeline = make_pipeline(PrivateSchema(schema, baseline="first"), ridge).fit(table, pay)
        assert pipeline[0].get_feature_names_out().tolist() == [
            "job=nurse", "job=cook", "20 <= hours < 40", "hours >= 40",
        ]  # fmt: skip
        assert np.isfinite(pipeline[-1].conf_int()).all()
        with pytest.raises(InvalidParameter, match="baseline"):
            PrivateSchema(schema, baseline="last").fit(table)
