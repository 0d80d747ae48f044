"""What runs on a cluster is what runs here, or nothing; rows go where nobody else listens."""

import math
import os
import signal
import threading
import time
from itertools import product
from types import SimpleNamespace

import dask
import dask.array as da
import mpmath as mp
import numpy as np
import pytest
from distributed import Client, LocalCluster
from distributed import actor as distributed_actor
from distributed.actor import ProxyRPC
from distributed.security import Security
from scipy import sparse

import lastiterate as li
from lastiterate.dask import ClusterFailure, PrivateLogisticRegression, cluster
from lastiterate.dask.cluster import ShardActors, checked_client, is_secure, shard_blocks
from lastiterate.dask.shards import Shard, blocks_of
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.train.arithmetic import problem_of, step_errors
from lastiterate.train.centring import Centre
from lastiterate.train.data import bounded
from lastiterate.train.noise import Randomness, SeededBits
from lastiterate.train.noisy_descent import counted_batches, noisy_descent
from lastiterate.train.objectives import Huber, Logistic, Softmax

from ..reference import exact_step
from ..train.problems import RULES, examples, run_of
from ..train.test_step_error import exact_rows, hostile
from .problems import ONCE, as_they_are, on_cluster, one_direction_each, seeded

BLOCKS = {
    "blocks once": li.ShuffledBlocksOnce(100, 20),
    "blocks each": li.ShuffledBlocksEachEpoch(100, 20),
    "cyclic": li.Cyclic(100, 20),
    "full": li.FullBatch(103),
}
ROWS = np.random.default_rng(0).normal(size=(200, 3))
X, Y = da.from_array(ROWS, chunks=(50, 3)), da.from_array(ROWS[:, 0] > 0, chunks=50)
ONE_WORKER = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": ":0"}
TWO_WORKERS = ONE_WORKER | {"n_workers": 2}
LOGISTIC = Logistic()
each_way = pytest.mark.parametrize("held", [True, False])


def seen(shards, rule, seed):
    """The examples of each of 17 steps, each as often as it is summed."""
    start, found = np.zeros((1, len(shards))), []
    batches = shards.batches(rule, Logistic(clip=0.25), seeded(seed))
    for _, gradient in zip(range(17), batches, strict=False):
        times = gradient(start)[0] / 0.125
        assert np.array_equal(times, np.rint(times))
        found.append(np.repeat(np.arange(len(shards)), times.astype(int)).tolist())
    return found


class TestBatches:
    @pytest.fixture
    def data(self):
        return one_direction_each()

    @pytest.mark.parametrize("name", RULES)
    def test_are_those_that_the_rule_draws_here(self, client, data, name):
        rule, chance = RULES[name], seeded(5)
        order = rule.arrangement(chance)
        order = np.arange(103) if order is None else order
        chosen = zip(range(17), rule.selections(chance), strict=False)
        expected = [np.sort(order[one]).tolist() for _, one in chosen]
        assert seen(on_cluster(client, data), rule, seed=5) == expected

    @pytest.mark.parametrize("name", BLOCKS)
    def test_of_rows_that_are_read_anew_every_step(self, client, data, name):
        rule, chance = BLOCKS[name], seeded(2)
        chosen = zip(range(17), rule.selections(chance), strict=False)
        expected = [np.arange(103)[one].tolist() for _, one in chosen]
        assert seen(on_cluster(client, data, held=False), rule, seed=2) == expected

    def test_of_many_chunks_are_on_all_workers(self, client, data):
        shards = on_cluster(client, data, chunks=(10,) * 10 + (3,))
        for first in range(0, 100, 20):
            assert (shards.layout.counts_between(first, first + 20) == 10).all()

    @pytest.mark.parametrize("name", ["once", "sampled", "bins"])
    def test_that_are_scattered_are_refused_there(self, client, data, name):
        shards = on_cluster(client, data, held=False)
        with pytest.raises(InvalidParameter, match=r"one of .*ShuffledBlocksOnce"):
            shards.batches(RULES[name], LOGISTIC, seeded())

    def test_of_another_number_of_examples_are_refused(self, client, data):
        with pytest.raises(InvalidParameter, match="103, the number of examples"):
            on_cluster(client, data).batches(li.ShuffledOnce(104, 20), LOGISTIC, seeded())


class Troubled(Randomness):
    """Draws as always, keeps what it drew, and makes trouble before the noise of some steps."""

    def __init__(self, trouble=None, steps=(), seed=3):
        super().__init__(SeededBits(seed))
        self.trouble, self.steps, self.drawn = trouble, set(steps), []

    def rounded_normals(self, shape, bits):
        if len(self.drawn) in self.steps:
            self.trouble()
        drawn = super().rounded_normals(shape, bits)
        self.drawn.append(drawn * 2.0**-bits)
        return drawn


class TestModels:
    def same(self, client, rule, *, objective=LOGISTIC, data=None, centre=None, **how):
        """Trains here and there, and returns what drew the noise there."""
        data, settings = examples() if data is None else data, {"release_noise_std": 0.3}
        shards, source = on_cluster(client, data, **how), Troubled()
        if centre is not None:
            data, shards = data.around(centre), shards.around(centre)
        run = run_of(data, rule, objective=objective, l2=0.1, **settings)
        here = noisy_descent(run, objective, data, seeded(3))
        there = noisy_descent(run, objective, shards, source)
        np.testing.assert_allclose(there, here, rtol=1e-6, atol=1e-12)
        return run, source

    @pytest.mark.parametrize("name", RULES)
    def test_are_the_same_with_noise_once_a_step_and_once_on_release(self, client, name):
        run, source = self.same(client, RULES[name])
        assert len(source.drawn) == run.steps + 1
        together = np.concatenate([drawn.ravel() for drawn in source.drawn])
        assert np.unique(together).size == together.size == (run.steps + 1) * 5

    @each_way
    def test_with_rows_longer_than_the_bound_and_around_a_centre(self, client, held):
        data = examples()
        assert data.factors.min() < 0.5
        centre = Centre(np.array([0.1, 0.2, -0.1, 0.0]), 0.5)
        self.same(client, li.FullBatch(103), data=data, centre=centre, held=held)

    @pytest.mark.parametrize(
        "objective", [Softmax(classes=2), Softmax(classes=2, kind="margin"), Huber(clip=0.5)]
    )
    def test_of_every_loss(self, client, objective):
        self.same(client, ONCE, objective=objective)

    def test_of_sparse_chunks(self, client):
        self.same(client, ONCE, made=sparse.csr_matrix)

    def test_of_sparse_chunks_that_are_read_anew(self, client):
        data, rule = examples(), BLOCKS["blocks once"]
        run = run_of(data, rule)
        thick, thin = (
            noisy_descent(run, LOGISTIC, on_cluster(client, data, held=False, made=made), seeded(1))
            for made in (np.array, sparse.csr_matrix)
        )
        np.testing.assert_allclose(thin, thick, rtol=1e-6)

    @pytest.mark.parametrize("chunks", [(103,), (50, 53), (1,) * 103], ids=len)
    def test_other_releases_are_summed_exactly(self, client, chunks):
        data = examples()
        shards = on_cluster(client, data, chunks=chunks)
        assert shards.in_units().tolist() == data.in_units().tolist()
        assert shards.far_rows() == data.far_rows()


STEPS = 40


def trained(shards, source=None, rule=ONCE):
    run = run_of(shards, rule, steps=STEPS, release_noise_std=0.3)
    return noisy_descent(run, LOGISTIC, shards, Troubled() if source is None else source)


@pytest.fixture(scope="module")
def processes():
    """Two workers that can be killed, and have time to come back."""
    patient = {
        "distributed.comm.timeouts.connect": "300s",
        "distributed.deploy.lost-worker-timeout": "600s",
    }
    with (
        dask.config.set(patient),
        LocalCluster(processes=True, death_timeout=600, **TWO_WORKERS) as cluster,
        Client(cluster) as connected,
    ):
        yield connected


def pids(client):
    return list(client.run(os.getpid).values())


@pytest.mark.slow
class TestProcesses:
    @each_way
    def test_killed_three_times(self, processes, held):
        data, rng = examples(), np.random.default_rng(0)
        rule = ONCE if held else BLOCKS["blocks once"]
        undisturbed = trained(on_cluster(processes, data, held=held), rule=rule)

        def kill():
            os.kill(int(rng.choice(pids(processes))), signal.SIGKILL)

        for step in rng.choice(STEPS, size=3, replace=False).tolist():
            processes.wait_for_workers(2, timeout=300)
            shards, source = on_cluster(processes, data, held=held), Troubled(kill, [step])
            found = trained(shards, source, rule)
            assert shards.actors.rebuilt >= 1 or step == STEPS - 1
            assert len(source.drawn) == STEPS + 1  # none again for a step that is repeated
            np.testing.assert_allclose(found, undisturbed, rtol=1e-6)

    def test_that_sleep(self, processes):
        def asleep():
            pid = pids(processes)[0]
            os.kill(pid, signal.SIGSTOP)
            threading.Timer(5.0, os.kill, (pid, signal.SIGCONT)).start()

        undisturbed = trained(on_cluster(processes, examples()))
        found = trained(on_cluster(processes, examples()), Troubled(asleep, [7]))
        np.testing.assert_allclose(found, undisturbed, rtol=1e-6)


@pytest.fixture(scope="module")
def undisturbed(client):
    return trained(on_cluster(client, examples()))


def lost(actors):
    """As if the worker of a shard were gone: its actor answers no more."""
    for future in actors._futures.values():
        future.cancel()


class TestFailures:
    """Workers that are lost, lie or are cut off: the same model, or an error and none."""

    def test_shards_that_are_lost_are_rebuilt(self, client, undisturbed):
        shards = on_cluster(client, examples())
        source = Troubled(lambda: lost(shards.actors), [3, 11])
        np.testing.assert_allclose(trained(shards, source), undisturbed, rtol=1e-6)
        assert shards.actors.rebuilt == 4
        assert len(source.drawn) == STEPS + 1

    def test_a_connection_that_is_restarted(self, client, undisturbed):
        """The scheduler forgets all that the client had, as it does when a connection is lost."""
        with Client(client.cluster, set_as_default=False) as other:
            shards = on_cluster(other, examples())

            def cut():
                other.loop.add_callback(other.scheduler_comm.comm.abort)
                while any(one.status == "finished" for one in shards.actors._futures.values()):
                    time.sleep(0.01)

            found = trained(shards, Troubled(cut, [5]))
            assert shards.actors.rebuilt >= 2
        np.testing.assert_allclose(found, undisturbed, rtol=1e-6)

    def test_no_worker_at_the_start(self, client, undisturbed, monkeypatch):
        """For a moment, as where the only ones have just been restarted."""
        usual, asked = cluster.workers_of, []

        def late(client):
            asked.append(1)
            return {} if 1 < len(asked) <= 4 else usual(client)  # the first plans the shards

        monkeypatch.setattr(cluster, "workers_of", late)
        shards = on_cluster(client, examples())
        assert shards.actors.rebuilt >= 1
        monkeypatch.undo()
        np.testing.assert_allclose(trained(shards), undisturbed, rtol=1e-6)

    def test_rows_that_are_gone_for_good(self, client):
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
            trained(shards, Troubled(gone, [5]))

    @pytest.mark.parametrize("factor", [1.01, np.nan, np.inf])
    def test_a_gradient_longer_than_its_rows_allow(self, client, monkeypatch, factor):
        honest = Shard.gradient

        def lying(self, parameters, chosen):
            told = np.array(honest(self, parameters, chosen))
            count = chosen[1] - chosen[0]
            return told / np.linalg.norm(told) * count * 0.25 * np.hypot(1.0, 0.5) * factor

        shards = on_cluster(client, examples(), chunks=(103,))
        monkeypatch.setattr(Shard, "gradient", lying)
        with pytest.raises(ClusterFailure, match="longer than its rows allow"):
            trained(shards, rule=li.FullBatch(103))

    def test_each_shard_is_asked_once_a_step(self, client, monkeypatch):
        asked, honest = [], ShardActors._send

        def counted(self, shard, method, question):
            asked.append(method)
            return honest(self, shard, method, question)

        monkeypatch.setattr(ShardActors, "_send", counted)
        trained(on_cluster(client, examples()), rule=li.FullBatch(103))
        assert asked.count("survey") == asked.count("arrange") == 2
        assert asked.count("gradient") == 2 * STEPS


def test_workers_are_asked_themselves_or_by_way_of_the_scheduler(monkeypatch):
    """By TCP, as if they were in another process."""
    passed = []  # messages that the scheduler was asked to pass on

    class Noted(ProxyRPC):
        def __getattr__(self, name):
            passed.append(name)
            return super().__getattr__(name)

    def unreachable(_):
        raise OSError

    def first_gradient():
        shards = on_cluster(client, examples())
        return next(iter(shards.batches(ONCE, LOGISTIC, seeded(3))))(np.zeros((1, 5)))

    monkeypatch.setattr(distributed_actor, "ProxyRPC", Noted)
    with (
        LocalCluster(processes=False, protocol="tcp://", **ONE_WORKER) as cluster,
        Client(cluster, set_as_default=False) as client,
        client.as_current(),
    ):
        assert not client.direct_to_workers
        shortest = first_gradient()
        assert shortest.any()
        assert passed == []
        with monkeypatch.context() as patch:
            patch.setattr(client, "rpc", unreachable)
            assert np.array_equal(first_gradient(), shortest)
        assert passed == ["actor_execute"] * 3  # survey, order, step


EXAMPLES, WIDTH, ETA = 40, 5, 0.5
CENTRE = Centre(np.array([0.3, -0.2, 0.5, 0.1, 0.0]), 0.2)


class TestErrors:
    """Sums over shards, in 60 digits again: none is wrong by more than is charged for a step."""

    def worst(self, shards, data, rule, scale):
        """The largest error of a step without grid over its charge, at random parameters."""
        objective = LOGISTIC
        run = run_of(data, rule, objective=objective, steps=3, step_size=ETA, noise_std=1.0)
        rng, found = np.random.default_rng(0), []
        rows = [row for batch in counted_batches(data, slice(None)) for row in exact_rows(batch)]
        order = rule.arrangement(seeded(4))
        order = np.arange(EXAMPLES) if order is None else order
        loss = {"name": "Logistic", "clip": objective.clip}
        chosen = rule.selections(seeded())
        gradients = shards.batches(rule, objective, seeded(4))
        for _, gradient, part in zip(range(3), gradients, chosen, strict=False):
            here = scale * rng.normal(size=(1, WIDTH + 1))
            own = order[part]
            start = [[mp.mpf(float(x)) for x in here[0]]]
            ideal = exact_step.step(
                start, [rows[k] for k in own], data.targets[own].tolist(), loss=loss,
                intercept=data.intercept, offset=np.zeros(1), size=rule.batch_size, l2=0.0,
                eta=ETA, diameter=None, guesses=[None] * own.size,
            )  # fmt: skip
            total = gradient(here)[0]
            step = mp.mpf(ETA) / rule.batch_size
            end = [[x - step * mp.mpf(float(g)) for x, g in zip(start[0], total, strict=True)]]
            reach = math.nextafter(float(np.linalg.norm(here)), math.inf)
            problem, etas = problem_of(objective, shards), np.array([ETA])
            charged = step_errors(run, problem, etas, np.zeros(1), reach)
            found.append(float(exact_step.distance(end, ideal) / mp.mpf(float(charged[0]))))
        return max(found)

    def data(self, dtype=np.float64):
        rows = hostile(dtype, seed=1, count=EXAMPLES, width=WIDTH)
        targets = np.random.default_rng(2).integers(2, size=EXAMPLES)
        return bounded(rows, targets, bound=1.5, intercept=0.25)

    def shards(self, client, data, **how):
        return on_cluster(client, data, chunks=(1, 7, 12, 1, 19), **how)

    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    @pytest.mark.parametrize("centre", [None, CENTRE])
    @each_way
    def test_are_charged_for(self, client, held, centre, dtype):
        """Chunks of one row, rows of all sizes, held by workers or read again in every step."""
        data = self.data(dtype)
        around = data if centre is None else data.around(centre)
        rules = [li.FullBatch(EXAMPLES), li.Cyclic(EXAMPLES, 20)]
        rules += [li.ShuffledOnce(EXAMPLES, 20)] if held else []
        for rule, scale in product(rules, (3.0, 1e-3)):
            shards = self.shards(client, data, held=held)
            shards = shards if centre is None else shards.around(centre)
            assert self.worst(shards, around, rule, scale) <= 1.0

    def test_of_sums_in_float32_are_seen_by_the_oracle(self, client):
        data = self.data()
        shards = self.shards(client, data)
        usual = shards.actors.ask

        def short(method, questions):
            answers = usual(method, questions)
            kept = method != "gradient"
            return answers if kept else [np.float32(one).astype(np.float64) for one in answers]

        shards.actors.ask = short
        assert self.worst(shards, data, li.FullBatch(EXAMPLES), 3.0) > 100.0


SECURE = [
    "tcp://127.0.0.1:8786", "tcp://[::1]:8786", "tcp://localhost:8786", "inproc://192.0.2.2/9/1",
    "tls://192.0.2.1:8786", "wss://example.org:443",
]  # fmt: skip
OPEN = [
    "tcp://192.0.2.1:8786", "tcp://example.org:8786", "ws://192.0.2.1:80",
    "ucx://192.0.2.1:13337", "192.0.2.1:8786", "",
]  # fmt: skip


@pytest.mark.parametrize("address", SECURE + OPEN)
def test_addresses(address):
    assert is_secure(address) is (address in SECURE)


class Elsewhere(Client):
    """A client whose scheduler, or one of whose workers, says that it is elsewhere."""

    asynchronous = False
    status = "running"

    def __init__(self, scheduler="tcp://127.0.0.1:8786", *workers):
        self.scheduler, self.workers = SimpleNamespace(address=scheduler), workers

    def scheduler_info(self, n_workers=-1):
        return {"workers": {one: {} for one in self.workers}} if self.workers else {}

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
        with LocalCluster(processes=False, **ONE_WORKER) as cluster:
            client = Client(cluster, set_as_default=False)
            client.close()
        with pytest.raises(InvalidParameter, match=r"client must be connected.*that is closed"):
            PrivateLogisticRegression(client=client).fit(X, Y)

    def test_whose_scheduler_is_gone(self):
        """Of which distributed says that it knows nothing."""
        with pytest.raises(InvalidParameter, match=r"client must be connected.*does not answer"):
            checked_client(Elsewhere(), allow_insecure=True)

    @pytest.mark.slow
    def test_with_tls(self):
        pytest.importorskip("cryptography")
        security = Security.temporary()
        with (
            LocalCluster(security=security, protocol="tls://", **TWO_WORKERS) as cluster,
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
