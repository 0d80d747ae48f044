"""The estimators: the same parameters, report and certificate as those for rows in memory."""

import json
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

import lastiterate as li
from lastiterate import dask as there
from lastiterate import linear_model as here
from lastiterate.errors import InvalidParameter, PrivacyWarning

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
        remote = getattr(there, name)(**settings).fit(X, da.from_array(TARGETS, chunks=700))
        local = getattr(here, name)(**settings).fit(ROWS, TARGETS)
        np.testing.assert_allclose(remote.coef_, local.coef_, rtol=1e-6)
        score = remote.score(X, da.from_array(TARGETS, chunks=700))
        assert score == pytest.approx(local.score(ROWS, TARGETS), abs=1e-9)

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
        for _ in range(1_000):
            if set(client.who_has()) <= before:
                break
            time.sleep(0.05)
        assert set(client.who_has()) <= before

    def test_is_charged_to_a_ledger(self, tmp_path):
        ledger = li.Ledger(tmp_path / "l.jsonl", epsilon=1.2, delta=1e-5)
        unseeded = SETTINGS | {"random_state": None}
        there.PrivateLogisticRegression(**unseeded, ledger=ledger).fit(X, Y)
        with pytest.raises(li.LastIterateError):
            there.PrivateLogisticRegression(**unseeded, ledger=ledger).fit(X, Y)


class TestOtherKindsOfData:
    @pytest.fixture
    def frame(self):
        frame = pd.DataFrame(ROWS, columns=list("abcde"))
        return frame.assign(label=LABELS)

    def fitted(self, X, y, **settings):
        return there.PrivateLogisticRegression(**SETTINGS, **settings).fit(X, y).parameters_

    def test_data_frames(self, model, frame):
        table = dd.from_pandas(frame, npartitions=4)
        with pytest.raises(InvalidParameter, match="feature_bound must be set for a data frame"):
            self.fitted(table[list("abcde")], table["label"])
        found = self.fitted(table[list("abcde")], table["label"], feature_bound=1.0)
        np.testing.assert_allclose(found, model.parameters_, rtol=1e-6)

    def test_delayed_blocks(self, model):
        cuts = [(0, 700), (700, 1500), (1500, 2003)]
        rows = [dask.delayed(ROWS)[a:b] for a, b in cuts]
        labels = [dask.delayed(LABELS)[a:b] for a, b in cuts]
        np.testing.assert_allclose(self.fitted(rows, labels), model.parameters_, rtol=1e-6)

    def test_persisted_arrays(self, client, model):
        rows, labels = client.persist([X, Y])
        np.testing.assert_allclose(self.fitted(rows, labels), model.parameters_, rtol=1e-6)

    @pytest.mark.filterwarnings("ignore:The inplace keyword")  # dask's own
    def test_files(self, model, frame, tmp_path):
        (tmp_path / "table").mkdir()
        for k, part in enumerate((frame[:900], frame[900:])):
            part.to_parquet(tmp_path / "table" / f"part.{k}.parquet", index=False)
        found = self.fitted(tmp_path / "table", "label", feature_bound=1.0)
        np.testing.assert_allclose(found, model.parameters_, rtol=1e-6)
        da.to_zarr(X.rechunk((500, 5)), str(tmp_path / "x.zarr"))
        da.to_zarr(da.from_array(LABELS == "yes", chunks=500), str(tmp_path / "y.zarr"))
        settings = SETTINGS | {"classes": None}
        found = there.PrivateLogisticRegression(**settings).fit(
            str(tmp_path / "x.zarr"), tmp_path / "y.zarr"
        )
        np.testing.assert_allclose(found.parameters_, model.parameters_, rtol=1e-6)

    def test_rows_that_workers_do_not_hold(self, tmp_path):
        """As a mapped file, whose batches are blocks, too."""
        settings = SETTINGS | {"batch_size": 500}
        remote = there.PrivateLogisticRegression(**settings, in_memory=False).fit(X, Y)
        assert remote.privacy_.run.batches == li.ShuffledBlocksOnce(2_000, 500)
        mapped = np.memmap(tmp_path / "x", dtype=float, mode="w+", shape=ROWS.shape)
        mapped[:] = ROWS
        mapped.flush()
        mapped = np.memmap(tmp_path / "x", dtype=float, mode="r", shape=ROWS.shape)
        local = here.PrivateLogisticRegression(**settings).fit(mapped, LABELS)
        np.testing.assert_allclose(remote.parameters_, local.parameters_, rtol=1e-6)


class TestDefaults:
    def test_are_those_for_rows_in_memory_where_steps_are_few(self):
        run = there.PrivateLogisticRegression(classes=["yes", "no"]).fit(X, Y).privacy_.run
        local = here.PrivateLogisticRegression(classes=["yes", "no"]).fit(ROWS, LABELS)
        assert run.batches == local.privacy_.run.batches
        assert run.steps == local.privacy_.run.steps

    def test_steps_are_fewer_where_messages_take_longer(self):
        slow = there.PrivateLogisticRegression(classes=["yes", "no"], step_seconds=2.0)
        run = slow.fit(X, Y).privacy_.run
        assert run.steps == 20  # of at most 30, in whole passes
        assert run.batches.batch_size == 2_003 // 2 + 1

    def test_passes_that_are_stated_are_kept(self):
        found = there.PrivateLogisticRegression(classes=["yes", "no"], epochs=3).fit(X, Y)
        run = found.privacy_.run
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
