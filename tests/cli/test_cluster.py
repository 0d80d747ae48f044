"""`audit --cluster` at an address where no scheduler is."""

import time

import pytest

from lastiterate.cli import audit
from lastiterate.errors import InvalidParameter


def silent(address, timeout):
    """Something that accepts the connection, and says nothing."""
    del address, timeout
    time.sleep(60.0)


def another(address, timeout):
    raise RuntimeError(f"{address} speaks of other things")


@pytest.mark.parametrize(
    "client, said", [(silent, "TimeoutError: no answer"), (another, "RuntimeError: tcp://here:1")]
)
def test_is_refused_in_words(monkeypatch, client, said):
    monkeypatch.setattr(audit, "_PATIENCE", 0.01)
    with pytest.raises(InvalidParameter, match=r"cluster must be the address of .*8786") as refused:
        audit._connected(client, "tcp://here:1")
    assert said in str(refused.value)


def test_a_scheduler_is_taken(monkeypatch):
    monkeypatch.setattr(audit, "_PATIENCE", 60.0)
    assert audit._connected(lambda address, timeout: address, "tcp://here:1") == "tcp://here:1"
