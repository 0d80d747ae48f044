"""`summary`: names, units, meanings and intervals of coefficients, and designs that fix none."""

import inspect
import warnings
from typing import Any, NamedTuple

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

import lastiterate as li
from lastiterate.errors import InvalidParameter, InvalidType, PrivacyWarning
from lastiterate.features import RandomFourierFeatures
from lastiterate.linear_model import (
    InfiniteIntervalsWarning,
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateScaler,
    PrivateSchema,
    summary,
)
from lastiterate.tables import column_rules
from lastiterate.tables.column_rules import DaysBetween, DroppedColumn

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
        quick = {"batches": "cyclic", "epochs": 1}
        ridge = PrivateRidge(**given | quick | settings)
        pipeline = make_pipeline(PrivateSchema(schema), ridge)
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


SPAN = ["admitted", "discharged"]
FIRST, LATER = "2022-03-01", "2022-03-08"
ZERO = "every column at 0 or its baseline"
NO_FEATURE = "every column at 0, at its baseline or with none of its features"


class Pair(NamedTuple):
    """A change from another cell than that of the row which the intercept is for."""

    before: Any
    after: Any


# Entries of a schema, their cells in the row that the intercept is for (None if there is no such
# row), what it is said to be for, and for each feature its meaning and the cell after a change of
# so many units.
CASES = {
    "number": ({"range": [-18, 90]}, 0, ZERO, [("one unit of x", 7, 7.0)]),
    "far from 0": (
        {"range": [1e6, 1.1e6]}, None, ZERO, [("one unit of x", Pair(1.01e6, 1.02e6), 1e4)],
    ),
    "in single precision": (
        {"range": [-0.1, 0.3]}, 0, ZERO, [("one unit of x", 0.25, 0.25)],
    ),
    "number, empty": (
        {"range": [-18, 90], "missing": 40.5, "indicator": True}, 0, ZERO,
        [("one unit of x", -3, -3.0), ("an empty cell, against 40.5", Pair(40.5, ""), 1.0)],
    ),
    "as it is": ("as it is", 0, ZERO, [("one unit of x", 0.25, 0.25)]),
    "as it is, empty": (
        {"as it is": True, "missing": 0.25, "indicator": True}, 0, ZERO,
        [("one unit of x", -0.5, -0.5), ("an empty cell, against 0.25", Pair(0.25, ""), 1.0)],
    ),
    "values": (
        {"values": ["a", "b"]}, "other", NO_FEATURE,
        [("no baseline", "a", 1.0), ("no baseline", "b", 1.0)],
    ),
    "values, baseline": (
        {"values": ["a", "b", "c"], "baseline": "b"}, "b", ZERO,
        [("against x=b", "a", 1.0), ("against x=b", "c", 1.0)],
    ),
    "values, no other": (
        {"values": ["a"], "baseline": None}, "z", ZERO, [("against any other x", "a", 1.0)],
    ),
    "intervals": (
        {"cuts": [20]}, None, NO_FEATURE,
        [("no baseline", Pair(5, 20), None), ("no baseline", Pair(5, 20), None)],
    ),
    "intervals, baseline": (
        {"cuts": [20, 40], "baseline": 30}, 30, ZERO,
        [("against 20 <= x < 40", 5, 1.0), ("against 20 <= x < 40", 40, 1.0)],
    ),
    "intervals, empty": (
        {"range": [0, 60], "bins": 2, "missing": 10, "indicator": True, "baseline": 1}, 1, ZERO,
        [("against x < 30", 31, 1.0), ("an empty cell, against 10", "", 1.0)],
    ),
    "dates": (
        {"dates": ["2021-01-01", "2024-12-31"]}, "2021-01-01", f"{ZERO}, x at 2021-01-01",
        [("one day of x", "2021-01-11", 10.0)],
    ),
    "times": (
        {"dates": ["2021-01-01 06:00", "2024-12-31"]}, "2021-01-01 06:00",
        f"{ZERO}, x at 2021-01-01T06:00:00", [("one day of x", "2021-01-03 18:00", 2.5)],
    ),
    "dates, empty": (
        {"dates": ["2021-01-01", "2024-12-31"], "missing": "2022-01-01", "indicator": True},
        "2021-01-01", f"{ZERO}, x at 2021-01-01",
        [("one day of x", "2021-01-02", 1.0),
         ("an empty cell, against 2022-01-01", Pair("2022-01-01", ""), 1.0)],
    ),
    "days": (
        {"days_between": SPAN, "range": [0, 60]}, (FIRST, FIRST), ZERO,
        [("one day of x", (FIRST, LATER), 7.0)],
    ),
    "days, empty": (
        {"days_between": SPAN, "range": [0, 60], "missing": 30, "indicator": True}, (FIRST, FIRST),
        ZERO,
        [("one day of x", (FIRST, LATER), 7.0),
         ("an empty cell, against 30", Pair((FIRST, "2022-03-31"), (FIRST, "")), 1.0)],
    ),
    "days in bins": (
        {"days_between": SPAN, "range": [0, 9], "bins": 3, "baseline": 1}, (FIRST, FIRST), ZERO,
        [("against x < 3", (FIRST, "2022-03-05"), 1.0), ("against x < 3", (FIRST, LATER), 1.0)],
    ),
    "days in intervals": (
        {"days_between": SPAN, "cuts": [3], "missing": 1, "indicator": True, "baseline": 1},
        (FIRST, FIRST), ZERO,
        [("against x < 3", (FIRST, LATER), 1.0), ("an empty cell, against 1", (FIRST, ""), 1.0)],
    ),
}  # fmt: skip


def table_of(kind, cells):
    """A table of these cells, beside a column of numbers."""
    beside = {"other": np.zeros(len(cells))}
    if "days_between" not in kind:
        return {"x": np.array(cells, dtype=object)} | beside
    return {name: [str(cell[k]) for cell in cells] for k, name in enumerate(SPAN)} | beside


def pairs_of(start, feature):
    """The cell before and after the change."""
    change = feature[1]
    return change if isinstance(change, Pair) else (start, change)


@pytest.fixture(scope="module", params=CASES)
def case(request):
    """An entry, its pipeline fitted to anything, and what is expected of it."""
    kind, start, zero, features = CASES[request.param]
    entries = {"x": kind, "other": {"range": [-1, 1]}}
    if "days_between" in kind:
        entries |= dict.fromkeys(SPAN, "drop")
    cells = [cell for one in features for cell in pairs_of(start, one)]
    table = table_of(kind, [cells[k % len(cells)] for k in range(400)])
    table["other"] = np.random.default_rng(1).uniform(-1, 1, 400)
    ridge = PrivateRidge(
        target_range=(0, 10), epsilon=1.0, center=False, feature_bound=4.0, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pipeline = make_pipeline(PrivateSchema(entries, bound=None), ridge)
        pipeline.fit(table, np.arange(400) % 10)
    return kind, start, zero, features, pipeline


def test_a_coefficient_is_the_change_of_the_output(case):
    kind, start, _, features, pipeline = case
    rows = [row for row in summary(pipeline).rows if row.name not in ("other", "(intercept)")]
    assert [row.meaning for row in rows] == [meaning for meaning, _, _ in features]
    for k, (row, feature) in enumerate(zip(rows, features, strict=True)):
        assert abs(row.estimate) > 1e-12
        before, after = pipeline.predict(table_of(kind, pairs_of(start, feature)))
        if feature[2] is None:  # every cell has a feature: they differ by two of these
            expected = rows[1].estimate - rows[0].estimate
        else:
            expected = feature[2] * rows[k].estimate
        assert after - before == pytest.approx(expected, rel=1e-6)


def test_the_intercept_is_the_output_of_the_row_that_it_names(case):
    kind, start, zero, features, pipeline = case
    row = summary(pipeline).rows[-1]
    assert row.meaning == zero
    if start is not None:
        (output,) = pipeline.predict(table_of(kind, [start]))
        assert row.estimate == pytest.approx(output, rel=1e-9)
    elif features[0][2] is not None:  # 0 is outside of the range: the slope is continued
        cell = features[0][1].before
        (output,) = pipeline.predict(table_of(kind, [cell]))
        slope = summary(pipeline).rows[0].estimate
        assert row.estimate == pytest.approx(output - cell * slope, rel=1e-9)


def test_every_kind_of_rule_is_among_them():
    """A rule that is new must say what its coefficients are for."""
    classes = {
        one
        for _, one in inspect.getmembers(column_rules, inspect.isclass)
        if one.__module__ == column_rules.__name__ and hasattr(one, "encode")
    } - {column_rules.ColumnRule}
    seen = {DroppedColumn}  # has no features
    for kind, *_ in CASES.values():
        rule = column_rules.rule_of("x", kind)
        seen |= {type(rule)} | ({type(rule.number)} if isinstance(rule, DaysBetween) else set())
    assert seen == classes


@pytest.mark.filterwarnings("ignore:no coefficient has a finite")
class TestNote:
    X = np.random.default_rng(0).uniform(-0.5, 0.5, size=(4_000, 2))
    LABELS = (X[:, 0] > 0) + 0
    CLIPPED = (
        "These coefficients are those of the clipped loss and usually too far from 0; for the "
        "usual ones fit "
    )

    def note(self, classes=2, **settings):
        quick = {"batches": "cyclic", "epochs": 2, "center": False}
        settings = {"epsilon": 8.0, "random_state": 0} | quick | settings
        model = PrivateLogisticRegression(classes=range(classes), **settings)
        found = summary(model.fit(self.X, self.LABELS))
        assert str(found).endswith(found.note or f"{found.adds_to}.")
        return found.note

    def test_a_clipped_loss_is_said_with_what_to_do(self):
        assert self.note() == f"{self.CLIPPED}with intervals=True."
        assert self.note(clip_norm=0.5) == self.note()
        assert self.note(clip_norm=0.5, intervals=True) == f"{self.CLIPPED}without clip_norm."
        assert self.note(classes=3) == f"{self.CLIPPED}with clip_norm=1.426 and center=False."

    def test_rows_that_are_scaled_down_are_said(self):
        """A summary's coefficients are not those of rows far from the mean."""
        text = self.note(clip_norm=1.0, center=True)
        assert text.startswith("Rows far from the published mean are scaled down")
        assert "center=False" in text
        assert self.note(center=True) == f"{self.note()} {text}"
        ridge = PrivateRidge(target_range=(0, 1), epsilon=8.0, random_state=0)
        assert summary(ridge.fit(self.X, self.LABELS)).note == text

    @pytest.mark.parametrize(
        "settings",
        [{"intervals": True}, {"clip_norm": 1.0}, {"classes": 3, "clip_norm": 1.426}],
        ids=str,
    )
    def test_the_remedies_are_remedies(self, settings):
        assert self.note(**settings) is None

    def test_plain_regression_says_nothing(self):
        ridge = PrivateRidge(target_range=(0, 1), center=False, random_state=0)
        assert summary(ridge.fit(self.X, self.LABELS)).note is None
