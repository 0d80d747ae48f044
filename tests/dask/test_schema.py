"""`PrivateSchema` of Dask's data frames: nothing is gathered, and the rows are the same."""

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline

from lastiterate import dask as there
from lastiterate import linear_model as here
from lastiterate.dask.cluster import ClusterFailure
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.linear_model.private_schema import PrivateSchema

SCHEMA = {
    "age": {"range": [18, 90], "missing": 40, "indicator": True},
    "job": {"values": ["clerk", "nurse", "?"], "missing": "?"},
    "paid": {"values": ["true", "false"]},
    "name": "drop",
}
RNG = np.random.default_rng(0)
COUNT = 1_200
PEOPLE = pd.DataFrame(
    {
        "age": RNG.integers(18, 91, COUNT).astype(float),
        "job": RNG.choice(["clerk", "nurse", "spy"], COUNT),
        "paid": pd.array(RNG.random(COUNT) < 0.5, dtype="boolean"),
        "name": "Alice",
    }
)
PEOPLE.loc[3, "age"] = np.nan
PEOPLE.loc[700, "job"] = None
PEOPLE.loc[900, "paid"] = pd.NA  # in the last partition alone
PEOPLE["rich"] = np.where(PEOPLE["age"] + 20 * (PEOPLE["job"] == "nurse") > 60, "yes", "no")
SETTINGS = {"classes": ["no", "yes"], "epochs": 4, "batch_size": 200, "random_state": 1}


def schema():
    return PrivateSchema(SCHEMA, target="rich")


@pytest.fixture
def frame():
    return dd.from_pandas(PEOPLE, npartitions=3)


class TestFeatures:
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_are_those_of_the_whole_table(self, frame, dtype):
        encoder = schema().set_params(dtype=dtype)
        lazy = encoder.fit_transform(frame)
        assert isinstance(lazy, da.Array)
        assert lazy.dtype == dtype
        assert lazy.shape[1] == 7
        assert lazy.numblocks == (3, 1)
        found = lazy.compute(scheduler="synchronous")
        assert np.array_equal(found, schema().set_params(dtype=dtype).fit_transform(PEOPLE))

    def test_are_not_computed_until_asked_for(self):
        def never():
            raise AssertionError("computed")

        frame = dd.from_delayed([dask.delayed(never)()] * 2, meta=PEOPLE.iloc[:0])
        lazy = schema().fit_transform(frame)
        with pytest.raises(AssertionError, match="computed"):
            lazy.compute(scheduler="synchronous")

    def test_do_not_change_with_the_schema_afterwards(self, frame):
        encoder = schema()
        lazy = encoder.fit_transform(frame)
        expected = schema().fit_transform(PEOPLE)
        encoder.set_params(bound=7.0).fit(frame)
        assert np.array_equal(lazy.compute(scheduler="synchronous"), expected)

    def test_need_the_columns(self, frame):
        with pytest.raises(InvalidParameter, match="no column 'age'"):
            schema().fit(frame).transform(frame[["job", "paid"]])

    def test_of_columns_that_would_be_gathered_are_refused(self):
        table = {"age": da.ones(4), "job": ["clerk"] * 4, "paid": [True] * 4, "name": [""] * 4}
        with pytest.raises(InvalidType, match="would be gathered"):
            schema().fit_transform(table)


@pytest.mark.usefixtures("client")
class TestPipelines:
    def pipeline(self, models, **settings):
        return make_pipeline(schema(), models.PrivateLogisticRegression(**SETTINGS, **settings))

    def test_are_those_of_the_whole_table(self, frame):
        remote = self.pipeline(there).fit(frame, frame["rich"])
        local = self.pipeline(here).fit(PEOPLE, PEOPLE["rich"])
        np.testing.assert_allclose(remote[-1].parameters_, local[-1].parameters_, rtol=1e-6)
        predicted = remote.predict(frame)
        assert isinstance(predicted, da.Array)
        assert np.array_equal(predicted.compute(), local.predict(PEOPLE))
        assert remote.score(frame, frame["rich"]) == local.score(PEOPLE, PEOPLE["rich"])

    @pytest.mark.parametrize("held", [True, False])
    def test_name_the_column_that_cannot_be_used(self, frame, held):
        strict = {**SCHEMA, "age": {"range": [18, 90]}}
        rows = PrivateSchema(strict, target="rich").fit_transform(frame)
        known = da.Array(rows.dask, rows.name, ((400,) * 3, (6,)), meta=rows._meta)
        model = there.PrivateLogisticRegression(**SETTINGS, in_memory=held)
        kinds = (InvalidParameter, ClusterFailure)
        with pytest.raises(kinds, match=r"column 'age' must be.*in row 4,.*of one partition"):
            model.fit(known, frame["rich"])
        with pytest.raises(InvalidParameter, match=r"column 'age' must be.*of one partition"):
            model.fit(rows, frame["rich"])


def test_a_local_model_refuses_the_lazy_features(frame):
    pipeline = make_pipeline(schema(), here.PrivateLogisticRegression(**SETTINGS))
    with pytest.raises(InvalidType, match=r"lastiterate\.dask has the same models"):
        pipeline.fit(frame, PEOPLE["rich"])
