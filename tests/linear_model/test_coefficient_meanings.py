"""What `summary` says of every kind of column, against the outputs of the model."""

import inspect
import warnings
from typing import Any, NamedTuple

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline

from lastiterate.linear_model.classifiers import PrivateLogisticRegression
from lastiterate.linear_model.coefficient_table import summary
from lastiterate.linear_model.private_schema import PrivateSchema
from lastiterate.linear_model.regressors import PrivateRidge
from lastiterate.tables import column_rules
from lastiterate.tables.column_rules import DaysBetween, DroppedColumn

SPAN = ["admitted", "discharged"]
FIRST, LATER = "2022-03-01", "2022-03-08"
AT_ZERO = "every column at 0 or its baseline"
NO_FEATURE = "every column at 0, at its baseline or with none of its features"


class Pair(NamedTuple):
    """A change from another cell than that of the row which the intercept is for."""

    before: Any
    after: Any


# Entries of a schema, their cells in the row that the intercept is for (None if there is no such
# row), what it is said to be for, and for each feature its meaning and the cell after a change of
# so many units.
CASES = {
    "number": ({"range": [-18, 90]}, 0, AT_ZERO, [("one unit of x", 7, 7.0)]),
    "far from 0": (
        {"range": [1e6, 1.1e6]}, None, AT_ZERO, [("one unit of x", Pair(1.01e6, 1.02e6), 1e4)],
    ),
    "in single precision": (
        {"range": [-0.1, 0.3]}, 0, AT_ZERO, [("one unit of x", 0.25, 0.25)],
    ),
    "number, empty": (
        {"range": [-18, 90], "missing": 40.5, "indicator": True}, 0, AT_ZERO,
        [("one unit of x", -3, -3.0), ("an empty cell, against 40.5", Pair(40.5, ""), 1.0)],
    ),
    "as it is": ("as it is", 0, AT_ZERO, [("one unit of x", 0.25, 0.25)]),
    "as it is, empty": (
        {"as it is": True, "missing": 0.25, "indicator": True}, 0, AT_ZERO,
        [("one unit of x", -0.5, -0.5), ("an empty cell, against 0.25", Pair(0.25, ""), 1.0)],
    ),
    "values": (
        {"values": ["a", "b"]}, "other", NO_FEATURE,
        [("no baseline", "a", 1.0), ("no baseline", "b", 1.0)],
    ),
    "values, baseline": (
        {"values": ["a", "b", "c"], "baseline": "b"}, "b", AT_ZERO,
        [("against x=b", "a", 1.0), ("against x=b", "c", 1.0)],
    ),
    "values, no other": (
        {"values": ["a"], "baseline": None}, "z", AT_ZERO, [("against any other x", "a", 1.0)],
    ),
    "intervals": (
        {"cuts": [20]}, None, NO_FEATURE,
        [("no baseline", Pair(5, 20), None), ("no baseline", Pair(5, 20), None)],
    ),
    "intervals, baseline": (
        {"cuts": [20, 40], "baseline": 30}, 30, AT_ZERO,
        [("against 20 <= x < 40", 5, 1.0), ("against 20 <= x < 40", 40, 1.0)],
    ),
    "intervals, empty": (
        {"range": [0, 60], "bins": 2, "missing": 10, "indicator": True, "baseline": 1}, 1, AT_ZERO,
        [("against x < 30", 31, 1.0), ("an empty cell, against 10", "", 1.0)],
    ),
    "dates": (
        {"dates": ["2021-01-01", "2024-12-31"]}, "2021-01-01", f"{AT_ZERO}, x at 2021-01-01",
        [("one day of x", "2021-01-11", 10.0)],
    ),
    "times": (
        {"dates": ["2021-01-01 06:00", "2024-12-31"]}, "2021-01-01 06:00",
        f"{AT_ZERO}, x at 2021-01-01T06:00:00", [("one day of x", "2021-01-03 18:00", 2.5)],
    ),
    "dates, empty": (
        {"dates": ["2021-01-01", "2024-12-31"], "missing": "2022-01-01", "indicator": True},
        "2021-01-01", f"{AT_ZERO}, x at 2021-01-01",
        [("one day of x", "2021-01-02", 1.0),
         ("an empty cell, against 2022-01-01", Pair("2022-01-01", ""), 1.0)],
    ),
    "days": (
        {"days_between": SPAN, "range": [0, 60]}, (FIRST, FIRST), AT_ZERO,
        [("one day of x", (FIRST, LATER), 7.0)],
    ),
    "days, empty": (
        {"days_between": SPAN, "range": [0, 60], "missing": 30, "indicator": True}, (FIRST, FIRST),
        AT_ZERO,
        [("one day of x", (FIRST, LATER), 7.0),
         ("an empty cell, against 30", Pair((FIRST, "2022-03-31"), (FIRST, "")), 1.0)],
    ),
    "days in bins": (
        {"days_between": SPAN, "range": [0, 9], "bins": 3, "baseline": 1}, (FIRST, FIRST), AT_ZERO,
        [("against x < 3", (FIRST, "2022-03-05"), 1.0), ("against x < 3", (FIRST, LATER), 1.0)],
    ),
    "days in intervals": (
        {"days_between": SPAN, "cuts": [3], "missing": 1, "indicator": True, "baseline": 1},
        (FIRST, FIRST), AT_ZERO,
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
        settings = {"epsilon": 8.0, "random_state": 0, "epochs": 2, "center": False} | settings
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
