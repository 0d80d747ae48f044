"""What someone who waits for a fit is told, and when nothing is."""

import logging

import dask.array as da
import numpy as np
import pytest

from lastiterate._progress import throughout, track
from lastiterate.dask import estimators as feedback
from lastiterate.dask.estimators import PrivateLogisticRegression
from lastiterate.dask.shards import blocks_of

ROWS = np.random.default_rng(0).normal(size=(200, 3))
X, Y = da.from_array(ROWS, chunks=(50, 3)), da.from_array(ROWS[:, 0] > 0, chunks=50)
SETTINGS = {"epsilon": 2.0, "epochs": 2, "batch_size": 50}


class TestLines:
    @pytest.fixture
    def clock(self, monkeypatch):
        now = [0.0]
        monkeypatch.setattr(feedback, "monotonic", lambda: now[0])
        return now

    def test_tell_how_much_is_done_and_left(self, clock, capsys):
        with feedback.progress_lines(verbose=True):
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
        with feedback.progress_lines(verbose=True):
            list(track("counting", range(100)))
            with throughout("reading"):
                clock[0] += 3.0
        assert capsys.readouterr().err.splitlines() == [
            "lastiterate: counting",
            "lastiterate: reading",
            "lastiterate: reading, done after 3 s",
        ]

    def test_are_not_written_unasked(self, clock, capsys):
        with feedback.progress_lines(verbose=False):
            for _ in track("waiting", range(100)):
                clock[0] += 1.0
        assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("client")
class TestFits:
    def test_show_progress_if_asked(self, capsys):
        PrivateLogisticRegression(**SETTINGS, verbose=True).fit(X, Y)
        lines = capsys.readouterr().err.splitlines()
        assert "lastiterate: bringing rows to the workers" in lines
        assert "lastiterate: training" in lines
        PrivateLogisticRegression(**SETTINGS).fit(X, Y)
        assert "lastiterate: " not in capsys.readouterr().err

    def test_log_how_long_they_are(self, caplog):
        with caplog.at_level(logging.INFO, "lastiterate.dask"):
            PrivateLogisticRegression(**SETTINGS).fit(X, Y)
        assert "8 steps, each on 50 of 200 rows, on 2 workers" in caplog.messages

    def test_tell_that_one_machine_needs_no_cluster(self, caplog):
        PrivateLogisticRegression(**SETTINGS).fit(X, Y)
        (said,) = [one.getMessage() for one in caplog.records if one.name == "lastiterate.dask"]
        assert "lastiterate.linear_model" in said
        assert "X.compute()" in said


class TestOneMachine:
    HERE = ("tcp://127.0.0.1:4000", "inproc://192.0.2.2/9/1")

    def told(self, caplog, client, *more):
        feedback.log_single_machine((*self.HERE, *more), blocks_of(X, Y, client))
        return caplog.messages

    def test_is_not_spoken_of_where_a_worker_is_elsewhere(self, client, caplog):
        assert self.told(caplog, client, "tls://192.0.2.1:4000") == []

    def test_may_have_less_memory_than_rows(self, client, caplog, monkeypatch):
        monkeypatch.setattr(feedback, "MEMORY_LIMIT", 4_800)  # bytes, which rows alone need
        (said,) = self.told(caplog, client)
        assert "numpy.memmap" in said
        assert "compute()" not in said
