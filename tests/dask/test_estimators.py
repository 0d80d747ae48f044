"""The estimators: the same parameters, report and certificate as those for rows in memory."""

import json
import logging
import pickle
import time
from dataclasses import replace

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

import lastiterate as li
from lastiterate import dask as there
from lastiterate import linear_model as here
from lastiterate._progress import throughout, track
from lastiterate.cli import main
from lastiterate.dask import ClusterFailure, estimators
from lastiterate.dask.estimators import StepCost, affordable_batches
from lastiterate.dask.shards import blocks_of
from lastiterate.errors import InvalidParameter, InvalidType, PrivacyWarning
from lastiterate.features import RandomFourierFeatures, Scattering2D
from lastiterate.linear_model import PrivateSchema
from lastiterate.train.defaults import default_run, steps_asked_for
from lastiterate.train.objectives import Logistic

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(2_003, 5)) / 3 + 0.1
LABELS = np.where(ROWS[:, 0] + ROWS[:, 1] > 0.2, "yes", "no")
CHUNKS = (501, 499, 502, 501)
X = da.from_array(ROWS, chunks=(CHUNKS, 5))
Y = da.from_array(LABELS, chunks=500)
SETTINGS = {"classes": ["yes", "no"], "epochs": 4, "batch_size": 300, "random_state": 7}
TARGETS = ROWS @ np.arange(5.0)

pytestmark = pytest.mark.usefixtures("client")


@pytest.fixture(scope="module")
def model(client):
    return there.PrivateLogisticRegression(client=client, **SETTINGS).fit(X, Y)


def without(certificate, *parts):
    return {key: one for key, one in json.loads(certificate).items() if key not in parts}


class TestFit:
    def test_gives_the_same_model_and_certificate(self, model):
        local = here.PrivateLogisticRegression(**SETTINGS).fit(ROWS, LABELS)
        np.testing.assert_allclose(model.parameters_, local.parameters_, rtol=1e-6)
        assert model.outliers_ == local.outliers_
        assert np.array_equal(model.center_, local.center_)
        assert model.classes_.tolist() == local.classes_.tolist()
        differing = ("trusted", "model", "digest")
        assert without(model.certificate_, *differing) == without(local.certificate_, *differing)
        trusted, *others = model.privacy_.caveats
        assert trusted.startswith("Trusted cluster")
        assert tuple(others) == local.privacy_.caveats
        assert str(replace(model.privacy_, caveats=local.privacy_.caveats)) == str(local.privacy_)

    def test_says_whom_it_trusts(self, model):
        assert json.loads(model.certificate_)["trusted"].startswith("cluster: ")
        with pytest.warns(PrivacyWarning, match="seed"):
            report = li.verify(model.certificate_, parameters=model.parameters_)
        assert report.epsilon(1e-5) <= 1.0
        forged = model.certificate_.replace("saw rows", "saw no rows")
        with pytest.raises(li.LastIterateError, match="whom its training trusted"):
            li.verify(forged)

    @pytest.mark.parametrize("name", ["PrivateRidge", "PrivateHuberRegressor"])
    def test_of_regressors(self, name):
        settings = {"target_range": (-4, 4), "epochs": 3, "batches": "full", "random_state": 1}
        targets = da.from_array(TARGETS, chunks=700)
        remote = getattr(there, name)(**settings).fit(X, targets)
        local = getattr(here, name)(**settings).fit(ROWS, TARGETS)
        np.testing.assert_allclose(remote.coef_, local.coef_, rtol=1e-6)
        score = local.score(ROWS, TARGETS)
        assert remote.score(X, targets) == pytest.approx(score, abs=1e-9)

    def test_of_a_support_vector_machine_in_float32(self):
        settings = SETTINGS | {"batches": "full", "batch_size": None}
        remote = there.PrivateLinearSVC(**settings).fit(X.astype("float32"), Y)
        local = here.PrivateLinearSVC(**settings).fit(ROWS.astype("float32"), LABELS)
        np.testing.assert_allclose(remote.parameters_, local.parameters_, rtol=1e-3)
        assert json.loads(remote.certificate_)["arithmetic"]["products"] == "float64"

    def test_leaves_nothing_on_the_cluster(self, client, model):
        del model
        before = set(client.who_has())
        there.PrivateLogisticRegression(**SETTINGS).fit(X, Y)
        tries = 1_000
        while tries and not set(client.who_has()) <= before:
            time.sleep(0.05)
            tries -= 1
        assert tries

    def test_is_charged_to_a_ledger(self, tmp_path):
        ledger = li.Ledger(tmp_path / "l.jsonl", epsilon=1.2, delta=1e-5)
        unseeded = SETTINGS | {"random_state": None}
        there.PrivateLogisticRegression(**unseeded, ledger=ledger).fit(X, Y)
        with pytest.raises(li.LastIterateError):
            there.PrivateLogisticRegression(**unseeded, ledger=ledger).fit(X, Y)


FRAME = pd.DataFrame(ROWS, columns=list("abcde")).assign(label=LABELS)
CUTS = [slice(0, 700), slice(700, 1500), slice(1500, 2003)]


def in_frames(client, folder):
    table = dd.from_pandas(FRAME, npartitions=4)
    with pytest.raises(InvalidParameter, match="feature_bound must be set for a data frame"):
        there.PrivateLogisticRegression(**SETTINGS).fit(table[list("abcde")], table["label"])
    return table[list("abcde")], table["label"], {"feature_bound": 1.0}


def in_delayed_blocks(client, folder):
    return *([dask.delayed(each)[cut] for cut in CUTS] for each in (ROWS, LABELS)), {}


def persisted(client, folder):
    return *client.persist([X, Y]), {}


def in_parquet(client, folder):
    for k, part in enumerate((FRAME[:900], FRAME[900:])):
        part.to_parquet(folder / f"part.{k}.parquet", index=False)
    return folder, "label", {"feature_bound": 1.0}


def in_zarr(client, folder):
    da.to_zarr(X.rechunk((500, 5)), str(folder / "x.zarr"))
    da.to_zarr(da.from_array(LABELS == "yes", chunks=500), str(folder / "y.zarr"))
    return str(folder / "x.zarr"), folder / "y.zarr", {"classes": None}


class TestOtherKindsOfData:
    @pytest.mark.filterwarnings("ignore:The inplace keyword")  # dask's own
    @pytest.mark.parametrize("put", [in_frames, in_delayed_blocks, persisted, in_parquet, in_zarr])
    def test_train_the_same_model(self, client, model, tmp_path, put):
        rows, labels, changes = put(client, tmp_path)
        found = there.PrivateLogisticRegression(**SETTINGS | changes).fit(rows, labels)
        np.testing.assert_allclose(found.parameters_, model.parameters_, rtol=1e-6)

    def test_rows_that_workers_do_not_hold(self, tmp_path):
        """As a mapped file, whose batches are blocks, too."""
        settings = SETTINGS | {"batch_size": 500}
        remote = there.PrivateLogisticRegression(**settings, in_memory=False).fit(X, Y)
        assert remote.privacy_.run.batches == li.ShuffledBlocksOnce(2_000, 500)
        np.memmap(tmp_path / "x", dtype=float, mode="w+", shape=ROWS.shape)[:] = ROWS
        mapped = np.memmap(tmp_path / "x", dtype=float, mode="r", shape=ROWS.shape)
        local = here.PrivateLogisticRegression(**settings).fit(mapped, LABELS)
        np.testing.assert_allclose(remote.parameters_, local.parameters_, rtol=1e-6)


class TestDefaults:
    def run(self, **settings):
        model = there.PrivateLogisticRegression(classes=["yes", "no"], **settings)
        return model.fit(X, Y).privacy_.run

    def test_are_those_for_rows_in_memory_where_steps_are_few(self):
        local = here.PrivateLogisticRegression(classes=["yes", "no"]).fit(ROWS, LABELS)
        run = self.run()
        assert (run.batches, run.steps) == (local.privacy_.run.batches, local.privacy_.run.steps)

    def test_steps_are_fewer_where_messages_take_longer(self):
        run = self.run(step_seconds=2.0)
        assert run.steps == 20  # of at most 30, in whole passes
        assert run.batches.batch_size == 2_003 // 2 + 1

    def test_passes_that_are_stated_are_kept(self):
        run = self.run(epochs=3)
        assert run.steps <= 3 * run.batches.batches_per_epoch


class TestPredictions:
    @pytest.mark.parametrize(
        "method", ["predict", "decision_function", "predict_proba", "predict_log_proba"]
    )
    def test_are_lazy_and_those_of_the_local_model(self, model, method):
        lazy = getattr(model, method)(X)
        assert isinstance(lazy, da.Array)
        assert lazy.chunks[0] == CHUNKS
        at_once = getattr(model, method)(ROWS)
        assert isinstance(at_once, np.ndarray)
        assert lazy.shape == at_once.shape
        assert lazy.dtype == at_once.dtype
        assert np.array_equal(lazy.compute(), at_once)

    def test_of_data_frames(self, model):
        table = dd.from_pandas(pd.DataFrame(ROWS), npartitions=3)
        assert np.array_equal(model.predict(table).compute(), model.predict(ROWS))

    def test_are_scored_where_they_are(self, model):
        assert model.score(X, Y) == model.score(ROWS, LABELS)

    def test_of_other_widths_are_refused(self, model):
        with pytest.raises(InvalidParameter, match="of 5 columns"):
            model.predict(X[:, :3])
        with pytest.raises(InvalidParameter, match="blocks of whole rows"):
            model.predict(X.rechunk((500, 2)))


class TestWhatIsNotOffered:
    def test_keys_and_unlearning(self, model):
        with pytest.raises(InvalidParameter, match="key must be left out"):
            there.PrivateLogisticRegression(**SETTINGS).fit(X, Y, key=b"0" * 16)
        with pytest.raises(InvalidParameter, match="fitted on a cluster"):
            model.unlearn(X, Y, rows=[1], key=b"0" * 16, epsilon=1.0)

    def test_selection(self, model):
        with pytest.raises(InvalidParameter, match="estimator"):
            here.PrivateSelection(model, {"epochs": [1, 2]}).fit(X, Y)

    def test_connections_are_not_pickled_and_models_are_cloned(self, client, model):
        again = pickle.loads(pickle.dumps(model))
        assert again.client is None
        assert np.array_equal(again.predict(ROWS), model.predict(ROWS))
        assert clone(model).client is client


def chosen(examples, *, features=64, workers=2, block=1, step_seconds=0.02, **settings):
    """The run that follows from what is left open, and the steps that the rule asks for."""
    asked = there.PrivateLogisticRegression(epsilon=1.0, delta=1e-10, **settings).checked()
    public = {"examples": examples, "radius": 1.0}
    wanted = steps_asked_for(Logistic(), asked, **public)
    cost = StepCost(features, 1, workers, step_seconds)
    asked.batch_size, asked.epochs = affordable_batches(
        asked, Logistic(), cost, **public, block=block
    )
    return default_run(Logistic(), asked, **public), wanted


class TestMessagesOfAMinute:
    """Steps that are left open: as for rows in memory, unless their messages take too long."""

    def test_are_enough_for_few_rows(self):
        run, wanted = chosen(20_000)
        local = there.PrivateLogisticRegression(epsilon=1.0, delta=1e-10, epochs=20).checked()
        assert wanted < 3_000
        assert run.steps == wanted
        assert run.batches == default_run(Logistic(), local, examples=20_000, radius=1.0).batches

    @pytest.mark.parametrize("examples, epochs", [(200_000, None), (200_000, 20), (1_000_003, 3)])
    def test_limit_the_steps_for_more_and_batches_are_larger(self, examples, epochs):
        run, wanted = chosen(examples, epochs=epochs)
        assert wanted > 5_000
        assert 2_900 <= run.steps <= 3_000
        assert run.steps * run.batches.batch_size <= (epochs or 20) * examples

    def test_are_counted_by_what_a_message_costs(self):
        run, wanted = chosen(200_000, step_seconds=0.06)
        assert 900 <= run.steps <= 1_000
        assert chosen(200_000, step_seconds=1e-9)[0].steps == wanted

    def test_may_be_longer_where_computing_is(self):
        """Twenty passes over ten million rows of a thousand columns take ten workers 40 seconds."""
        assert 2_900 <= chosen(10_000_000, features=1_000, workers=10)[0].steps <= 3_000
        run, wanted = chosen(10_000_000, features=1_000, workers=2)
        assert 9_900 <= run.steps <= 10_000 < wanted


class TestWhatIsStated:
    def test_batches_have_passes_that_take_a_minute(self):
        run, _ = chosen(200_000, batch_size=100_000)
        assert run.batches.batch_size == 100_000
        assert 40 < run.steps <= 3_000
        run, _ = chosen(200_000, batch_size=100)
        assert run.steps <= 20 * 2_000

    def test_full_batches(self):
        run, wanted = chosen(200_000, batches="full")
        assert 20 < run.steps <= 3_000 < wanted
        assert chosen(200_000, batches="full", epochs=7)[0].steps == 7

    def test_blocks_are_kept_whole(self):
        run, _ = chosen(200_000, block=25_000)
        assert run.batches.batch_size == 25_000


def test_cost_of_a_step():
    cost = StepCost(1_000, 1, 100, step_seconds=0.02, rate=1e9, network=1e9)
    assert cost.bytes == 1_600_000
    assert cost.hidden_rows == 1_000_000
    assert cost.seconds(1_000_000) == pytest.approx(0.02 + 0.0016 + 0.02)
    assert cost.most_steps(1_000_000) == 3_000


SHORT = {"epsilon": 2.0, "epochs": 2, "batch_size": 500, "classes": ["yes", "no"]}


class TestLines:
    """What someone who waits for a fit is told, and when nothing is."""

    @pytest.fixture
    def clock(self, monkeypatch):
        now = [0.0]
        monkeypatch.setattr(estimators, "monotonic", lambda: now[0])
        return now

    def test_tell_how_much_is_done_and_left(self, clock, capsys):
        with estimators.progress_lines(verbose=True):
            for _ in track("waiting", range(100)):
                clock[0] += 1.0
        assert capsys.readouterr().err.splitlines() == [
            "lastiterate: waiting",
            "lastiterate: waiting, after 5 s 5% done, about 95 s left",
            "lastiterate: waiting, after 15 s 15% done, about 85 s left",
            "lastiterate: waiting, after 35 s 35% done, about 65 s left",
            "lastiterate: waiting, after 75 s 75% done, about 25 s left",
            "lastiterate: waiting, done after 100 s",
        ]

    def test_are_one_for_what_is_quick_or_cannot_be_counted(self, clock, capsys):
        with estimators.progress_lines(verbose=True):
            list(track("counting", range(100)))
            with throughout("reading"):
                clock[0] += 3.0
        assert capsys.readouterr().err.splitlines() == [
            "lastiterate: counting",
            "lastiterate: reading",
            "lastiterate: reading, done after 3 s",
        ]

    def test_are_not_written_unasked(self, clock, capsys):
        with estimators.progress_lines(verbose=False):
            for _ in track("waiting", range(100)):
                clock[0] += 1.0
        assert capsys.readouterr().err == ""


class TestFits:
    def test_show_progress_if_asked(self, capsys):
        there.PrivateLogisticRegression(**SHORT, verbose=True).fit(X, Y)
        lines = capsys.readouterr().err.splitlines()
        assert "lastiterate: bringing rows to the workers" in lines
        assert "lastiterate: training" in lines
        there.PrivateLogisticRegression(**SHORT).fit(X, Y)
        assert "lastiterate: " not in capsys.readouterr().err

    def test_log_how_long_they_are(self, caplog):
        with caplog.at_level(logging.INFO, "lastiterate.dask"):
            there.PrivateLogisticRegression(**SHORT).fit(X, Y)
        assert "8 steps, each on 500 of 2,003 rows, on 2 workers" in caplog.messages

    def test_tell_that_one_machine_needs_no_cluster(self, caplog):
        there.PrivateLogisticRegression(**SHORT).fit(X, Y)
        (said,) = [one.getMessage() for one in caplog.records if one.name == "lastiterate.dask"]
        assert "lastiterate.linear_model" in said
        assert "X.compute()" in said


class TestOneMachine:
    HERE = ("tcp://127.0.0.1:4000", "inproc://192.0.2.2/9/1")

    def told(self, caplog, client, *more):
        estimators.log_single_machine((*self.HERE, *more), blocks_of(X, Y, client))
        return caplog.messages

    def test_is_not_spoken_of_where_a_worker_is_elsewhere(self, client, caplog):
        assert self.told(caplog, client, "tls://192.0.2.1:4000") == []

    def test_may_have_less_memory_than_rows(self, client, caplog, monkeypatch):
        monkeypatch.setattr(estimators, "MEMORY_LIMIT", 80_000)  # bytes, which rows alone need
        (said,) = self.told(caplog, client)
        assert "numpy.memmap" in said
        assert "compute()" not in said


SCHEMA = {
    "age": {"range": [18, 90], "missing": 40, "indicator": True},
    "job": {"values": ["clerk", "nurse", "?"], "missing": "?"},
    "paid": {"values": ["true", "false"]},
    "name": "drop",
}
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
RICH = SETTINGS | {"batch_size": 200}


def schema():
    return PrivateSchema(SCHEMA, target="rich")


@pytest.fixture
def frame():
    return dd.from_pandas(PEOPLE, npartitions=3)


class TestSchema:
    """`PrivateSchema` of data frames: nothing is gathered, and the rows are the same."""

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


class TestPipelinesWithSchemas:
    def pipeline(self, models, **settings):
        return make_pipeline(schema(), models.PrivateLogisticRegression(**RICH, **settings))

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
        model = there.PrivateLogisticRegression(**RICH, in_memory=held)
        kinds = (InvalidParameter, ClusterFailure)
        with pytest.raises(kinds, match=r"column 'age' must be.*in row 4,.*of one partition"):
            model.fit(known, frame["rich"])
        with pytest.raises(InvalidParameter, match=r"column 'age' must be.*of one partition"):
            model.fit(rows, frame["rich"])


def test_a_local_model_refuses_the_lazy_features(frame):
    pipeline = make_pipeline(schema(), here.PrivateLogisticRegression(**RICH))
    with pytest.raises(InvalidType, match=r"lastiterate\.dask has the same models"):
        pipeline.fit(frame, PEOPLE["rich"])


@pytest.mark.parametrize("features", [Scattering2D((8, 8), scales=1), RandomFourierFeatures(16)])
def test_fixed_features_train_predict_and_verify(client, features):
    images = np.random.default_rng(0).random((400, 64))
    rows = da.from_array(images, chunks=(100, 64))
    labels = da.from_array(images[:, 0] > 0.5, chunks=100)
    lazy = features.fit(rows).transform(rows)
    assert isinstance(lazy, da.Array)
    np.testing.assert_allclose(lazy.compute(), features.transform(images), atol=1e-6)
    model = there.PrivateLogisticRegression(epsilon=4.0, epochs=2, counting=0, client=client)
    pipeline = make_pipeline(features, model).fit(rows, labels)
    assert pipeline[-1].feature_bound_ == 1.0
    record = json.loads(pipeline[-1].certificate_)
    assert record["feature maps"] == [features.feature_map(64).as_record()]
    li.verify(pipeline[-1].certificate_, parameters=pipeline[-1].parameters_)
    assert pipeline.predict(rows).compute().shape == (400,)


@pytest.mark.filterwarnings("ignore")  # joblib's own, of how it sends functions
def test_an_audit_is_the_same_on_a_cluster(client, tmp_path, capsys):
    model = here.PrivateLogisticRegression(batches="full", epochs=2).fit(
        ROWS[:200, :2], LABELS[:200]
    )
    (tmp_path / "certificate.json").write_text(model.certificate_)
    words = ["audit", "--certificate", str(tmp_path / "certificate.json"), "--runs", "40"]
    said = []
    for more in ([], ["--cluster", client.scheduler.address]):
        assert main([*words, *more]) == 0
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert main([*words, "--cluster", client.scheduler.address, "--jobs", "2"]) == 2
