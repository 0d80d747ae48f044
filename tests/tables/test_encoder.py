"""What a schema may say of columns, and the features that it makes of them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastiterate.errors import InvalidParameter
from lastiterate.tables.column_rules import rule_of, with_first_baseline
from lastiterate.tables.encoder import Encoder, LabelTarget, NumberTarget


def rows(schema, **columns):
    return Encoder.of(schema, list(columns)).rows(columns)


class TestFeatures:
    def test_numbers_go_from_their_range_to_plus_and_minus_one(self):
        found = rows({"a": {"range": [10, 20]}}, a=[10, 15, 20, 9, 1e300, -1.7e308])
        assert found.ravel().tolist() == [-1, 0, 1, -1, 1, -1]

    def test_missing_numbers(self):
        schema = {"a": {"range": [0, 10], "missing": 5, "indicator": True}}
        found = rows(schema, a=[0, None, "NA", float("nan"), " ", "10"])
        assert found.tolist() == [[-1, 0], [0, 1], [0, 1], [0, 1], [0, 1], [1, 0]]
        schema = {"a": {"as it is": True, "missing": -7}}
        assert rows(schema, a=["", "3"]).ravel().tolist() == [-7, 3]

    def test_huge_numbers_stay_finite_in_single_precision(self):
        encoder = Encoder.of({"a": "as it is"}, ["a"])
        assert np.isfinite(encoder.rows({"a": ["1e300", -1.7e308]}, dtype=np.float32)).all()

    def test_values(self):
        schema = {"a": {"values": ["x", 2, "?"], "missing": "?"}}
        found = rows(schema, a=["x", "2", "?", "", None, "other", " x "])
        assert found.argmax(axis=1).tolist() == [0, 1, 2, 2, 2, 0, 0]
        assert found.any(axis=1).tolist() == [True] * 5 + [False, True]

    def test_values_that_are_numbers(self):
        with pytest.raises(InvalidParameter, match="all different, as numbers in single"):
            rule_of("a", {"values": ["0", "1", "true"]})
        schema = {"a": {"values": ["5", "0", "true"]}}
        assert rows(schema, a=np.array([1, 0, 7])).argmax(axis=1).tolist() == [2, 1, 0]

    @pytest.mark.parametrize(
        "values, cells",
        [
            (["1", "2"], [1, 2, 1]),
            (["1.0", "2.0"], [1, 2, 1]),
            (["true", "false"], [True, False, True]),
            (["True", "False"], [True, False, True]),
            ([1, 0], [True, False, True]),
            (["1.0", "0"], [True, False, True]),
            (["true", "false"], [1, 0, 1]),
            (["0.1", "0.2"], [0.1, 0.2, 0.1]),
        ],
    )
    def test_how_a_column_is_stored_decides_nothing(self, values, cells):
        """A reader that meets one cell of text stores all others of its column as text, too."""
        rule = rule_of("c", {"values": values})
        ways = [
            np.array(cells),
            np.array(cells, dtype=np.float64),
            np.array(cells, dtype=object),
            *(np.array([*cells, odd], dtype=object) for odd in ("x", None, math.nan, 7, 2.5)),
            [str(cell) for cell in cells],
            [str(float(cell)) for cell in cells],
            np.array([*map(str, cells), "unknown"]),
        ]
        assert [rule.positions(way)[:3].tolist() for way in ways] == [[0, 1, 0]] * len(ways)

    def test_cut_points(self):
        """An interval has its lower end; numbers beyond all cuts are in the outer ones."""
        schema = {"a": {"cuts": [0, 2.5, 10]}}
        found = rows(schema, a=[-1e300, -0.1, 0, 2.4, 2.5, "10", 1e300])
        assert found.argmax(axis=1).tolist() == [0, 0, 1, 1, 2, 3, 3]
        assert found.sum(axis=1).tolist() == [1] * 7
        encoder = Encoder.of(schema, ["a"])
        assert encoder.names == ["a < 0", "0 <= a < 2.5", "2.5 <= a < 10", "a >= 10"]
        assert encoder.feature_bound == 1.0
        assert encoder.text_columns == {}

    def test_equal_intervals(self):
        schema = {"a": {"range": [0, 10], "bins": 4}}
        listed = {"a": {"range": [0, 10], "cuts": [2.5, 5, 7.5]}}
        cells = np.linspace(-3, 13, 65)
        assert np.array_equal(rows(schema, a=cells), rows(listed, a=cells))

    def test_a_cut_at_the_upper_end_tells_it_from_all_below(self):
        found = rows({"a": {"range": [1, 3], "cuts": [2, 3]}}, a=[1, 2, 3, 99])
        assert found.argmax(axis=1).tolist() == [0, 1, 2, 2]

    def test_missing_numbers_with_cut_points(self):
        schema = {"a": {"cuts": [5], "missing": 7, "indicator": True}}
        assert rows(schema, a=[1, "", 9]).tolist() == [[1, 0, 0], [0, 1, 1], [0, 1, 0]]
        assert Encoder.of(schema, ["a"]).names == ["a < 5", "a >= 5", "a is missing"]
        with pytest.raises(InvalidParameter, match="an empty cell in row 2"):
            rows({"a": {"cuts": [5]}}, a=[1, ""])

    @pytest.mark.parametrize(
        "baseline, left", [("x", ["y", "z"]), ("y", ["x", "z"]), (None, "xyz")]
    )
    def test_a_baseline_has_no_feature(self, baseline, left):
        schema = {"a": {"values": ["x", "y", "z"], "baseline": baseline}}
        encoder = Encoder.of(schema, ["a"])
        assert encoder.names == [f"a={value}" for value in left]
        found = encoder.rows({"a": ["x", "y", "z", "?", "w"]})
        expected = [[float(cell == value) for value in left] for cell in ("x", "y", "z", "?", "w")]
        assert found.tolist() == expected
        assert encoder.text_columns == {}  # a row of zeros is no sign of an undeclared value
        assert encoder.without_baseline == []
        assert encoder.feature_bound == 1.0

    def test_an_empty_cell_may_be_the_baseline(self):
        schema = {"a": {"values": ["x", "y"], "missing": "x", "baseline": "x"}}
        assert rows(schema, a=["", "x", "y"]).ravel().tolist() == [0, 0, 1]
        schema = {"a": {"values": ["x", "y"], "missing": "y", "baseline": "x"}}
        assert rows(schema, a=["", "x", "y"]).ravel().tolist() == [1, 0, 1]

    @pytest.mark.parametrize("baseline", [-100, 0, 29, 30, 50, 60, 1e9])
    def test_an_interval_may_be_the_baseline(self, baseline):
        whole = {"cuts": [30, 60], "missing": 45, "indicator": True}
        cells = [0, 30, 59, 60, "", 200]
        plain = rows({"a": whole}, a=cells)
        found = Encoder.of({"a": {**whole, "baseline": baseline}}, ["a"])
        own = int(baseline >= 30) + int(baseline >= 60)
        assert np.array_equal(found.rows({"a": cells}), np.delete(plain, own, axis=1))
        names = Encoder.of({"a": whole}, ["a"]).names
        assert found.names == [*names[:own], *names[own + 1 :]]
        assert found.baselines == {"a": names[own]}

    @pytest.mark.parametrize(
        "entry",
        [
            {"values": ["x", "y"], "baseline": "z"},
            {"values": ["x", "y"], "baseline": 1},
            {"values": ["x"], "baseline": "x"},
            {"cuts": [30], "baseline": "30"},
            {"cuts": [30], "baseline": math.nan},
            {"cuts": [30], "baseline": True},
            {"cuts": [30], "baseline": None},
            {"range": [0, 1], "baseline": 0},
        ],
    )
    def test_a_baseline_that_is_none_is_refused(self, entry):
        with pytest.raises(InvalidParameter, match="schema"):
            rule_of("a", entry)

    @pytest.mark.parametrize(
        "entry, left",
        [
            ({"values": ["x", "y"]}, ["a=y"]),
            ({"values": ["x"]}, ["a=x"]),
            ({"values": ["x", "y"], "baseline": "y"}, ["a=x"]),
            ({"values": ["x", "y"], "baseline": None}, ["a=x", "a=y"]),
            ({"cuts": [-2, 5]}, ["-2 <= a < 5", "a >= 5"]),
            ({"range": [0, 3], "bins": 3}, ["1 <= a < 2", "a >= 2"]),
            ({"cuts": [1e18]}, ["a >= 1e+18"]),
            ({"range": [0, 3]}, ["a"]),
            ("as it is", ["a"]),
            ("drop", []),
        ],
    )
    def test_the_first_value_as_the_baseline(self, entry, left):
        assert rule_of("a", with_first_baseline("a", entry)).names("a") == left

    def test_columns_and_their_names(self):
        schema = {"a": "drop", "b": "as it is", "*": {"range": [0, 2]}}
        encoder = Encoder.of(schema, ["d", "a", "b", "c"])
        assert encoder.names == ["d", "b", "c"]
        assert encoder.column_kinds == {"d": "number", "b": "number", "c": "number"}
        assert encoder.unbounded == ["b"]
        assert math.isinf(encoder.feature_bound)

    @given(
        cells=st.lists(
            st.tuples(
                st.floats(allow_nan=True, allow_infinity=False) | st.none(),
                st.floats(allow_nan=True, allow_infinity=False),
                st.sampled_from(["x", "y", "z", ""]),
            ),
            min_size=1,
        ),
        fill=st.floats(-3, 4),
    )
    def test_no_row_is_longer_than_the_bound(self, cells, fill):
        schema = {
            "a": {"range": [-3, 4], "missing": fill, "indicator": True},
            "b": {"range": [0, 1], "missing": 0.5, "indicator": True},
            "c": {"values": ["x", "y"], "missing": "y"},
            "d": {"range": [-3, 4], "bins": 5, "missing": fill, "indicator": True},
        }
        encoder = Encoder.of(schema, list("abcd"))
        table = dict(zip("abc", zip(*cells, strict=True), strict=True))
        found = encoder.rows(table | {"d": table["a"]})
        assert np.linalg.norm(found, axis=1).max() <= encoder.feature_bound * (1 + 1e-15)

    def test_the_bound_is_reached(self):
        schema = {"a": {"range": [0, 4], "missing": 4, "indicator": True}, "b": {"values": ["x"]}}
        encoder = Encoder.of(schema, ["a", "b"])
        found = encoder.rows({"a": [None], "b": ["x"]})
        assert np.linalg.norm(found) == pytest.approx(encoder.feature_bound) == math.sqrt(3)


class TestRefusals:
    @pytest.mark.parametrize(
        "rule",
        [
            None, 3, [], {}, "take it", {"range": [0, 1], "values": ["a"]}, {"as it is": False},
            {"range": [1, 0]}, {"range": [0, 0]}, {"range": [0]}, {"range": [None, None]},
            {"range": ["0", "1"]}, {"range": [0, math.nan]}, {"range": [-math.inf, 0]},
            {"range": [False, True]}, {"range": [0, 1], "missing": 2}, {"range": [0, 1],
            "missing": "x"}, {"range": [0, 1], "missing": math.nan}, {"range": [0, 1],
            "indicator": True}, {"range": [0, 1], "missing": 1, "indicator": 1}, {"values": []},
            {"values": "ab"}, {"values": ["a", "a"]}, {"values": ["1", 1]}, {"values": [None]},
            {"values": [["a"]]}, {"values": ["a"], "missing": "b"}, {"values": ["a"], "x": 1},
            {"values": [math.nan]}, {"range": [0, 10**400]}, {"cuts": []}, {"cuts": 5},
            {"cuts": [1, 1]}, {"cuts": [2, 1]}, {"cuts": [math.nan]}, {"cuts": [0, math.inf]},
            {"cuts": ["1"]}, {"cuts": [True]}, {"cuts": [None]}, {"cuts": [10**400]},
            {"cuts": [1], "bins": 2, "range": [0, 2]}, {"cuts": [0], "range": [0, 2]},
            {"cuts": [3], "range": [0, 2]}, {"cuts": [1], "values": ["a"]}, {"bins": 3},
            {"range": [0, 1], "bins": 1}, {"range": [0, 1], "bins": 1001}, {"range": [0, 1],
            "bins": 2.5}, {"range": [0, 1], "bins": True}, {"range": [1, 1 + 1e-15], "bins": 50},
            {"cuts": [1], "indicator": True}, {"cuts": [1], "missing": "x"}, {"cuts": [1], "as it "
            "is": True}, {"range": [0, 1], "bins": None}, {"range": [2, 1], "cuts": [1]},
        ],
    )  # fmt: skip
    def test_what_is_no_rule(self, rule):
        with pytest.raises(InvalidParameter, match=r"schema\['a'\]"):
            rule_of("a", rule)

    def test_columns_that_are_not_declared(self):
        with pytest.raises(InvalidParameter, match=r"about every column.*nothing about b, c"):
            Encoder.of({"a": "as it is"}, ["a", "b", "c"])

    def test_what_is_no_column(self):
        with pytest.raises(InvalidParameter, match=r"the table has no column 'aa'; it has a\."):
            Encoder.of({"a": "as it is", "aa": "drop"}, ["a"])

    def test_nothing_to_learn_from(self):
        with pytest.raises(InvalidParameter, match="at least one column that is not dropped"):
            Encoder.of({"a": "drop"}, ["a"])

    def test_tables_that_lack_something(self):
        encoder = Encoder.of({"*": "as it is"}, ["a", "b"])
        with pytest.raises(InvalidParameter, match="the table has no column 'b'; it has a"):
            encoder.rows({"a": [1]})
        with pytest.raises(InvalidParameter, match="of the same length"):
            encoder.rows({"a": [1], "b": [1, 2]})

    @pytest.mark.parametrize(
        "cell", ["Tr0ub4dor", b"x", 1j, "1,5", "12 %", math.inf, "1e999", object(), [1.0]]
    )
    def test_what_is_no_number(self, cell):
        with pytest.raises(InvalidParameter, match=r"column 'a' .* in row 2,") as refused:
            rows({"a": "as it is"}, a=[1.0, cell])
        assert "Tr0ub4dor" not in str(refused.value)


class TestTargets:
    def test_labels(self):
        labels = LabelTarget("y", rule_of("y", {"values": ["no", "yes"]}))
        assert labels.encode(["yes", "no", "maybe", "51234.56"]).tolist() == [1, 0, -1, -1]
        with pytest.raises(InvalidParameter, match=r"leave out rows .* in row 103,"):
            labels.encode(["yes", "no", ""], before=100)
        filled = LabelTarget("y", rule_of("y", {"values": ["no", "yes"], "missing": "no"}))
        assert filled.encode(["yes", "", None]).tolist() == [1, 0, 0]

    @pytest.mark.parametrize("entry", [{"values": ["a"]}, {"values": ["a", ""], "missing": ""}])
    def test_too_few_labels(self, entry):
        with pytest.raises(InvalidParameter, match="at least two labels"):
            LabelTarget("y", rule_of("y", entry))

    def test_amounts(self):
        amounts = NumberTarget("y", rule_of("y", {"range": [0, 9]}))
        assert amounts.encode(["3", 4.5, "99"]).tolist() == [3, 4.5, 99]
        for cell in ("", "x", math.inf):
            with pytest.raises(InvalidParameter, match=r"target 'y' must be a finite .* in row 1,"):
                amounts.encode([cell])
