"""`PrivateSchema`: the command's schema as a transformer."""

import json
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

from lastiterate.errors import InvalidParameter
from lastiterate.linear_model import PrivateLogisticRegression, PrivateSchema

SCHEMA = {
    "age": {"range": [18, 90]},
    "job": {"values": ["clerk", "nurse"]},
    "name": "drop",
    "rich": {"values": ["no", "yes"]},
}
TOKEN = "Tr0ub4dor"


def people(count=3_000):
    rng = np.random.default_rng(0)
    age, job = rng.integers(18, 91, count), rng.choice(["clerk", "nurse", "spy"], count)
    return {"age": age, "job": job, "name": [TOKEN] * count}, age + 20 * (job == "nurse") > 60


class Frame:
    """As data frames are asked: names, and columns by name."""

    def __init__(self, columns):
        self._columns = columns
        self.columns = list(columns)

    def __getitem__(self, name):
        return np.asarray(self._columns[name])


def test_learns_nothing_but_names():
    table, _ = people(50)
    one = PrivateSchema(SCHEMA, target="rich").fit(table)
    other = PrivateSchema(SCHEMA, target="rich").fit({name: cells[:1] for name, cells in
                                                      table.items()})  # fmt: skip
    assert np.array_equal(one.transform(table), other.transform(table))
    assert one.feature_names_in_.tolist() == ["age", "job", "name"]
    assert one.get_feature_names_out().tolist() == ["age", "job=clerk", "job=nurse"]
    assert TOKEN not in repr(vars(one))


@pytest.mark.parametrize("kind", ["frame", "pyarrow", "target inside"])
def test_tables_of_other_kinds(kind):
    table, rich = people(50)
    expected = PrivateSchema(SCHEMA, target="rich").fit_transform(table)
    if kind == "pyarrow":
        given = pytest.importorskip("pyarrow").table(table)
    else:
        more = {"rich": np.where(rich, "yes", "no")} if kind == "target inside" else {}
        given = Frame(table | more)
    assert np.array_equal(PrivateSchema(SCHEMA, target="rich").fit_transform(given), expected)


def test_a_pipeline_needs_nothing_else():
    table, rich = people()
    pipeline = make_pipeline(
        PrivateSchema(SCHEMA, target="rich"), PrivateLogisticRegression(epsilon=2.0)
    )
    assert pipeline.fit(table, rich).score(table, rich) > 0.9
    again = pickle.loads(pickle.dumps(pipeline))
    assert np.array_equal(again.predict(table), pipeline.predict(table))


@pytest.mark.parametrize("bound", [1.0, 0.25, 3.0])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_reach_the_bound_and_are_not_longer(bound, dtype):
    encoder = PrivateSchema(SCHEMA, target="rich", bound=bound, dtype=dtype)
    rows = encoder.fit_transform({"age": [90, 1e9, 54], "job": ["nurse"] * 3, "name": [""] * 3})
    assert rows.dtype == dtype
    norms = np.linalg.norm(rows.astype(float), axis=1)
    assert norms[:2] == pytest.approx(bound, rel=1e-6)
    assert norms.max() <= bound * (1 + 2 * np.finfo(dtype).eps)


def test_clones_are_not_fitted():
    table, _ = people(5)
    encoder = PrivateSchema(SCHEMA, target="rich", bound=None).fit(table)
    copy = clone(encoder)
    assert copy.get_params() == encoder.get_params()
    with pytest.raises(NotFittedError):
        copy.transform(table)
    with pytest.raises(NotFittedError):
        copy.get_feature_names_out()


class TestRefusals:
    @pytest.mark.parametrize(
        "column",
        [
            np.arange(6.0).reshape(3, 2),
            np.array([["a", "b"]] * 3),
            np.ma.masked_array(np.ones((3, 2)), mask=np.eye(3, 2)),
            ("pandas", "DataFrame"),
            ("polars", "DataFrame"),
            ("pyarrow", "table"),
        ],
        ids=str,
    )
    @pytest.mark.parametrize(
        "entry", ["as it is", {"range": [0, 1]}, {"values": ["a"]}, {"cuts": [1]}], ids=str
    )
    def test_columns_that_are_tables(self, column, entry):
        if isinstance(column, tuple):
            column = getattr(pytest.importorskip(column[0]), column[1])({"a": [1.0, 2.0, 3.0]})
        encoder = PrivateSchema({"x": entry, "y": "as it is"}, bound=None)
        encoder.fit(table := {"x": column, "y": np.ones(3)})
        with pytest.raises(InvalidParameter, match=r"'x'.*one cell for each row.*of shape"):
            encoder.transform(table)

    @pytest.mark.parametrize(
        "change, said",
        [
            ({"schema": {"age": {"range": [0, 1]}}}, "nothing about job, name"),
            ({"schema": [3]}, "schema must be a mapping"),
            ({"target": None}, "about columns of the table"),
            ({"bound": 0.0}, "bound"),
            ({"bound": float("nan")}, "bound"),
            ({"schema": SCHEMA | {"age": "as it is"}}, "bound must be None where columns .*age"),
            ({"dtype": int}, "dtype must be float32 or float64"),
        ],
    )
    def test_settings(self, change, said):
        table, _ = people(5)
        settings = {"schema": SCHEMA, "target": "rich"} | change
        with pytest.raises(InvalidParameter, match=said):
            PrivateSchema(**settings).fit(table)

    @pytest.mark.parametrize("X", [np.zeros((3, 2)), [[1, 2]], {}, {1: [2]}, None, "abc"])
    def test_what_has_no_names(self, X):
        with pytest.raises(TypeError, match="a table whose columns have names"):
            PrivateSchema(SCHEMA).fit(X)


FILLED = {"a": {"range": [0, 10]}, "job": {"values": ["x", "y"]}, "pay": {"values": ["l", "h"]}}
TABLE = {"a": [0, 10, 5], "job": ["x", "y", "z"]}


class TestSchemaFiles:
    """The same file is the command's `--schema`, with an entry for the column to predict."""

    class Named(list):
        name = "pay"

    @pytest.fixture
    def file(self, tmp_path):
        path = tmp_path / "people.json"
        path.write_text(json.dumps(FILLED))
        return path

    def test_are_taken_by_path(self, file):
        for given in (file, str(file), FILLED):
            rows = PrivateSchema(given, target="pay", bound=None).fit_transform(TABLE)
            assert rows.tolist() == [[-1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]

    def test_the_name_of_the_targets_is_enough(self, file):
        y = self.Named("lhl")
        for given in (file, FILLED):
            assert PrivateSchema(given).fit(TABLE, y).encoder_.width == 3

    def test_a_feature_is_none(self):
        """A column of that name is in the table, so it may be a feature."""
        table = TABLE | {"pay": ["l", "h", "l"]}
        assert PrivateSchema(FILLED).fit(table, self.Named("lhl")).encoder_.width == 5

    def test_a_column_that_the_table_lacks(self, file):
        with pytest.raises(InvalidParameter, match=r"the table has no column 'pay'; it has a, job"):
            PrivateSchema(file).fit(TABLE)
        encoder = PrivateSchema(file, target="pay").fit(TABLE)
        with pytest.raises(InvalidParameter, match=r"the table has no column 'a'; it has job, z"):
            encoder.transform({"job": ["x"], "z": [1]})

    def test_refusals(self, tmp_path):
        for wrong in (str(tmp_path / "none.json"), tmp_path):
            with pytest.raises(InvalidParameter, match="path of a JSON file"):
                PrivateSchema(wrong).fit(TABLE)
        (tmp_path / "list.json").write_text("[1]")
        with pytest.raises(InvalidParameter, match="schema must be JSON such as"):
            PrivateSchema(tmp_path / "list.json").fit(TABLE)
        with pytest.raises(InvalidParameter, match="empty ranges or values of a"):
            PrivateSchema({"a": {"range": [None, None]}, "job": "drop"}).fit(TABLE)
