"""How shards are asked: by the shortest way that there is."""

import numpy as np
import pytest

import lastiterate as li
from lastiterate.train.noise import Randomness, SeededBits
from lastiterate.train.objectives import Logistic

from ..train.problems import examples
from .problems import on_cluster


def first_gradient(shards):
    batches = shards.batches(li.ShuffledOnce(103, 20), Logistic(), Randomness(SeededBits(3)))
    return next(iter(batches))(np.zeros((1, shards.parameters)))


@pytest.fixture
def by_way_of_the_scheduler(client, monkeypatch):
    """Messages to workers that the scheduler was asked to pass on."""
    passed = []
    proxy = client.cluster.scheduler.handlers["proxy"]

    async def noted(*given, **named):
        passed.append(named["msg"]["op"])
        return await proxy(*given, **named)

    monkeypatch.setitem(client.cluster.scheduler.handlers, "proxy", noted)
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
    assert by_way_of_the_scheduler.count("actor_execute") == 6  # survey, order and step of each
