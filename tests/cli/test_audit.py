"""audit: a record that goes on, and `--cluster` at an address where no scheduler is."""

import json
import time

import numpy as np
import pytest

from lastiterate.cli import audit
from lastiterate.errors import InvalidParameter
from lastiterate.linear_model import PrivateLogisticRegression


def test_goes_on(answer, folder):
    """And says how many looks there were, and how many runs would tell something."""
    X = np.random.default_rng(0).normal(size=(40, 2))
    settings = {"counting": 0.0, "epochs": 1, "batches": "cyclic", "batch_size": 20}
    model = PrivateLogisticRegression(**settings).fit(X, X[:, 0] > 0)
    (folder / "c.json").write_text(model.certificate_)
    words = ["audit", "--certificate", "c.json", "--record", "audit.jsonl", "--runs"]
    first = answer(*words, "20")
    assert "no lower bound above 0 from these runs" in first
    assert "would be refuted by" in first
    assert "looks" not in first
    kept = (folder / "audit.jsonl").read_text().splitlines()
    second = answer(*words, "25")
    assert "2 looks at this record, after 20, 25 runs" in second
    lines = (folder / "audit.jsonl").read_text().splitlines()
    assert lines[: len(kept)] == kept
    made = [json.loads(line) for line in lines[len(kept) :]]
    assert sum(len(one["outputs"]) for one in made if "outputs" in one) == 10
    assert answer(*words, "25") == second
    (folder / "other.json").write_text(model.certificate_ + "\n")
    other = ["audit", "--certificate", "other.json", "--record", "audit.jsonl", "--runs", "20"]
    assert "of another certificate" in answer(*other, code=2)


def silent(address, timeout):
    """Something that accepts the connection, and says nothing."""
    del address, timeout
    time.sleep(60.0)


def another(address, timeout):
    raise RuntimeError(f"{address} speaks of other things")


@pytest.mark.parametrize(
    "client, said", [(silent, "TimeoutError: no answer"), (another, "RuntimeError: tcp://here:1")]
)
def test_an_address_of_something_else_is_refused_in_words(monkeypatch, client, said):
    monkeypatch.setattr(audit, "_PATIENCE_SECONDS", 0.01)
    with pytest.raises(InvalidParameter, match=r"cluster must be the address of .*8786") as refused:
        audit._connect(client, "tcp://here:1")
    assert said in str(refused.value)


def test_a_scheduler_is_taken():
    assert audit._connect(lambda address, timeout: address, "tcp://here:1") == "tcp://here:1"
