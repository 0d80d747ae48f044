"""Rows go to no cluster that others on the network could listen to, unless somebody says so."""

from types import SimpleNamespace

import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster
from distributed.security import Security

from lastiterate.dask.cluster import checked_client, is_secure
from lastiterate.dask.estimators import PrivateLogisticRegression
from lastiterate.errors import InvalidParameter, InvalidType

ROWS = np.random.default_rng(0).normal(size=(200, 3))
X, Y = da.from_array(ROWS, chunks=(50, 3)), da.from_array(ROWS[:, 0] > 0, chunks=50)


@pytest.mark.parametrize(
    "address, secure",
    [
        ("tcp://127.0.0.1:8786", True),
        ("tcp://[::1]:8786", True),
        ("tcp://localhost:8786", True),
        ("inproc://192.0.2.2/9/1", True),
        ("tls://192.0.2.1:8786", True),
        ("wss://example.org:443", True),
        ("tcp://192.0.2.1:8786", False),
        ("tcp://example.org:8786", False),
        ("ws://192.0.2.1:80", False),
        ("ucx://192.0.2.1:13337", False),
        ("192.0.2.1:8786", False),
        ("", False),
    ],
)
def test_addresses(address, secure):
    assert is_secure(address) is secure


class Elsewhere(Client):
    """A client whose scheduler, or one of whose workers, says that it is elsewhere."""

    asynchronous = False
    status = "running"

    def __init__(self, scheduler, worker):
        self.scheduler, self.worker = SimpleNamespace(address=scheduler), worker

    def scheduler_info(self, n_workers=-1):
        return {"workers": {self.worker: {}}}

    def __del__(self):
        pass

    def __repr__(self):
        return "elsewhere"


class TestClients:
    @pytest.mark.parametrize("which", [0, 1])
    def test_of_plain_remote_addresses_are_refused(self, which):
        addresses = ["tcp://127.0.0.1:8786"] * 2
        addresses[which] = "tcp://192.0.2.1:8786"
        client = Elsewhere(*addresses)
        with pytest.raises(InvalidParameter, match=r"with TLS.*tcp://192\.0\.2\.1:8786"):
            checked_client(client, allow_insecure=False)
        with pytest.raises(InvalidParameter, match="with TLS"):
            PrivateLogisticRegression(client=client).fit(X, Y)
        assert checked_client(client, allow_insecure=True) is client

    def test_that_are_none(self):
        with pytest.raises(InvalidType, match=r"a dask\.distributed\.Client"):
            checked_client("tcp://127.0.0.1:8786", allow_insecure=False)

    def test_that_are_closed(self):
        settings = {"n_workers": 1, "dashboard_address": ":0"}
        with LocalCluster(processes=False, **settings) as cluster:
            client = Client(cluster, set_as_default=False)
            client.close()
        with pytest.raises(InvalidParameter, match=r"client must be connected.*that is closed"):
            PrivateLogisticRegression(client=client).fit(X, Y)

    def test_whose_scheduler_is_gone(self, monkeypatch):
        client = Elsewhere("tcp://127.0.0.1:8786", "tcp://127.0.0.1:8787")
        monkeypatch.setattr(Elsewhere, "scheduler_info", lambda *_, **__: {})  # as distributed does
        with pytest.raises(InvalidParameter, match=r"client must be connected.*does not answer"):
            checked_client(client, allow_insecure=True)

    @pytest.mark.slow
    def test_with_tls(self):
        pytest.importorskip("cryptography")
        security = Security.temporary()
        settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
        with (
            LocalCluster(security=security, protocol="tls://", **settings) as cluster,
            Client(cluster, security=security) as client,
        ):
            assert client.scheduler.address.startswith("tls://")
            model = PrivateLogisticRegression(client=client, batches="full", epochs=3).fit(X, Y)
            assert model.predict(X).compute().size == 200


def test_no_worker_is_told_what_noise_is_made_of(client, monkeypatch):
    """Neither the seed nor the ledger, nor anything of an iterate in the name of a task."""
    plans, keys, submit = [], [], client.submit

    def noted(kind, plan, *args, key, **kwargs):
        plans.append(plan)
        keys.append(key)
        return submit(kind, plan, *args, key=key, **kwargs)

    monkeypatch.setattr(client, "submit", noted)
    PrivateLogisticRegression(client=client, random_state=4711, batches="full").fit(X, Y)
    sent = [plan.encode.args[0] for plan in plans]
    assert len(sent) == 2
    assert all(one.random_state is None and one.client is None for one in sent)
    assert all(key.startswith("lastiterate-shard-") for key in keys)
