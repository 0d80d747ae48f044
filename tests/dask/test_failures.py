"""Workers that die, sleep, lie or are cut off: the same model, or an error and none."""

import os
import signal
import threading
import time

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster

import lastiterate as li
from lastiterate.dask import cluster as shard_actors
from lastiterate.dask.cluster import ClusterFailure, ShardActors
from lastiterate.dask.shards import Shard
from lastiterate.train.noise import Randomness, SeededBits
from lastiterate.train.noisy_descent import noisy_descent
from lastiterate.train.objectives import Logistic

from ..train.problems import examples, run_of
from .problems import on_cluster

STEPS = 40


class Troubled(Randomness):
    """Draws as always, and makes trouble when the noise of some steps is drawn."""

    def __init__(self, trouble, steps=()):
        super().__init__(SeededBits(3))
        self.trouble, self.steps, self.drawn = trouble, set(steps), 0

    def rounded_normals(self, shape, bits):
        if self.drawn in self.steps:
            self.trouble()
        self.drawn += 1
        return super().rounded_normals(shape, bits)


def trained(shards, source, rule):
    run = run_of(shards, rule, steps=STEPS, release_noise_std=0.3)
    return noisy_descent(run, Logistic(), shards, source)


@pytest.fixture(scope="module")
def processes():
    """Two workers that can be killed, and have time to come back."""
    settings = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
    patient = {
        "distributed.comm.timeouts.connect": "300s",
        "distributed.deploy.lost-worker-timeout": "600s",
    }
    with (
        dask.config.set(patient),
        LocalCluster(processes=True, death_timeout=600, **settings) as cluster,
        Client(cluster) as connected,
    ):
        yield connected


def killed(client, rng):
    pids = list(client.run(os.getpid).values())
    os.kill(int(rng.choice(pids)), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("held", [True, False])
def test_workers_killed_ten_times(processes, held):
    data, rng = examples(), np.random.default_rng(0)
    rule = li.ShuffledOnce(103, 20) if held else li.ShuffledBlocksOnce(100, 20)
    shards = on_cluster(processes, data, held=held)
    undisturbed = trained(shards, Troubled(None), rule)
    for step in rng.choice(STEPS, size=10, replace=False).tolist():
        processes.wait_for_workers(2, timeout=300)
        shards = on_cluster(processes, data, held=held)
        source = Troubled(lambda: killed(processes, rng), [step])
        found = trained(shards, source, rule)
        assert shards.actors.rebuilt >= 1 or step == STEPS - 1
        assert source.drawn == STEPS + 1  # no noise is drawn again for a step that is repeated
        np.testing.assert_allclose(found, undisturbed, rtol=1e-6)


@pytest.mark.slow
def test_a_worker_that_sleeps(processes):
    def asleep():
        pid = next(iter(processes.run(os.getpid).values()))
        os.kill(pid, signal.SIGSTOP)
        threading.Timer(5.0, os.kill, (pid, signal.SIGCONT)).start()

    data, rule = examples(), li.ShuffledOnce(103, 20)
    undisturbed = trained(on_cluster(processes, data), Troubled(None), rule)
    found = trained(on_cluster(processes, data), Troubled(asleep, [7]), rule)
    np.testing.assert_allclose(found, undisturbed, rtol=1e-6)


def lost(actors):
    """As if the worker of a shard were gone: its actor answers no more."""
    for future in actors._futures.values():
        future.cancel()


class TestWithoutProcesses:
    def test_shards_that_are_lost_are_rebuilt(self, client):
        data, rule = examples(), li.ShuffledOnce(103, 20)
        undisturbed = trained(on_cluster(client, data), Troubled(None), rule)
        shards = on_cluster(client, data)
        source = Troubled(lambda: lost(shards.actors), [3, 11])
        found = trained(shards, source, rule)
        assert shards.actors.rebuilt == 4
        assert source.drawn == STEPS + 1
        np.testing.assert_allclose(found, undisturbed, rtol=1e-6)

    def test_a_connection_that_is_restarted(self, client):
        """The scheduler forgets all that the client had, as it does when a connection is lost."""
        data, rule = examples(), li.ShuffledOnce(103, 20)
        undisturbed = trained(on_cluster(client, data), Troubled(None), rule)
        with Client(client.cluster, set_as_default=False) as other:
            shards = on_cluster(other, data)

            def cut():
                other.loop.add_callback(other.scheduler_comm.comm.abort)
                while any(one.status == "finished" for one in shards.actors._futures.values()):
                    time.sleep(0.01)

            found = trained(shards, Troubled(cut, [5]), rule)
            assert shards.actors.rebuilt >= 2
        np.testing.assert_allclose(found, undisturbed, rtol=1e-6)

    def test_no_worker_at_the_start(self, client, monkeypatch):
        """For a moment, as where the only ones have just been restarted."""
        usual, asked = shard_actors.workers_of, []

        def late(client):
            asked.append(1)
            return {} if 1 < len(asked) <= 4 else usual(client)  # the first plans the shards

        monkeypatch.setattr(shard_actors, "workers_of", late)
        data, rule = examples(), li.ShuffledOnce(103, 20)
        shards = on_cluster(client, data)
        assert shards.actors.rebuilt >= 1
        monkeypatch.undo()
        expected = trained(on_cluster(client, data), Troubled(None), rule)
        np.testing.assert_allclose(trained(shards, Troubled(None), rule), expected, rtol=1e-6)

    def test_rows_that_are_gone_for_good(self, client):
        import dask.array as da

        from lastiterate.dask.cluster import shard_blocks
        from lastiterate.dask.shards import blocks_of

        from .problems import as_they_are

        data = examples()
        rows, targets = client.persist(
            [da.from_array(data.rows, chunks=(30, 4)), da.from_array(data.targets, chunks=30)]
        )
        blocks = blocks_of(rows, targets, client)
        shards = shard_blocks(client, blocks, as_they_are, bound=1.0, intercept=0.5)

        def gone():
            client.cancel([rows, targets], force=True)
            lost(shards.actors)

        with pytest.raises(ClusterFailure, match="nothing was released"):
            trained(shards, Troubled(gone, [5]), li.ShuffledOnce(103, 20))

    @pytest.mark.parametrize("factor", [1.01, np.nan, np.inf])
    def test_a_gradient_longer_than_its_rows_allow(self, client, monkeypatch, factor):
        honest = Shard.gradient

        def lying(self, parameters, chosen):
            told = np.array(honest(self, parameters, chosen))
            count = chosen[1] - chosen[0]
            return told / np.linalg.norm(told) * count * 0.25 * np.hypot(1.0, 0.5) * factor

        data = examples()
        shards = on_cluster(client, data, chunks=(103,))
        monkeypatch.setattr(Shard, "gradient", lying)
        with pytest.raises(ClusterFailure, match="longer than its rows allow"):
            trained(shards, Troubled(None), li.FullBatch(103))

    def test_each_shard_is_asked_once_a_step(self, client, monkeypatch):
        asked, honest = [], ShardActors._sent

        def counted(self, shard, method, question):
            asked.append(method)
            return honest(self, shard, method, question)

        monkeypatch.setattr(ShardActors, "_sent", counted)
        trained(on_cluster(client, examples()), Troubled(None), li.FullBatch(103))
        assert asked.count("survey") == asked.count("arrange") == 2
        assert asked.count("gradient") == 2 * STEPS
