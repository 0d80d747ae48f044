"""How shards are asked: by the shortest way that there is."""

import numpy as np
import pytest
from distributed import Client, LocalCluster
from distributed.actor import ProxyRPC

import lastiterate as li
from lastiterate.train.noise import Randomness, SeededBits
from lastiterate.train.objectives import Logistic

from ..train.problems import examples
from .problems import on_cluster


def first_gradient(shards):
    batches = shards.batches(li.ShuffledOnce(103, 20), Logistic(), Randomness(SeededBits(3)))
    return next(iter(batches))(np.zeros((1, shards.parameters)))


@pytest.fixture(scope="module")
def client():
    """A worker in another process: those in this one are asked directly anyway."""
    settings = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0"}
    with (
        LocalCluster(processes=True, **settings) as cluster,
        Client(cluster, set_as_default=False) as connected,
        connected.as_current(),
    ):
        yield connected


@pytest.fixture
def by_way_of_the_scheduler(client, monkeypatch):
    """Messages to workers that the scheduler was asked to pass on."""
    passed = []

    class Noted(ProxyRPC):
        def __getattr__(self, name):
            passed.append(name)
            return super().__getattr__(name)

    monkeypatch.setattr("distributed.actor.ProxyRPC", Noted)
    assert not client.direct_to_workers
    return passed


def test_workers_are_asked_themselves(client, by_way_of_the_scheduler):
    assert first_gradient(on_cluster(client, examples())).any()
    assert by_way_of_the_scheduler == []


def test_the_scheduler_is_where_they_cannot_be_reached(
    client, by_way_of_the_scheduler, monkeypatch
):
    def unreachable(_):
        raise OSError

    shortest = first_gradient(on_cluster(client, examples()))
    monkeypatch.setattr(client, "rpc", unreachable)
    assert np.array_equal(first_gradient(on_cluster(client, examples())), shortest)
    assert by_way_of_the_scheduler == ["actor_execute"] * 3  # survey, order, step
