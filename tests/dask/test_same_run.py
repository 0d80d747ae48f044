"""What runs on a cluster is what runs here: the same batches, the same noise, the same model."""

import dask.array as da
import numpy as np
import pytest
from scipy import sparse

import lastiterate as li
from lastiterate.errors import InvalidParameter
from lastiterate.train.centring import Centre
from lastiterate.train.noise import Randomness, SeededBits
from lastiterate.train.noisy_descent import noisy_descent
from lastiterate.train.objectives import Huber, Logistic, Softmax

from ..train.problems import RULES, examples, run_of
from ..train.test_noisy_descent import Recorder
from .problems import on_cluster, one_direction_each

BLOCKS = {
    "blocks once": li.ShuffledBlocksOnce(100, 20),
    "blocks each": li.ShuffledBlocksEachEpoch(100, 20),
    "cyclic": li.Cyclic(100, 20),
    "full": li.FullBatch(103),
}


def seeded(seed=0):
    return Randomness(SeededBits(seed))


def seen(shards, rule, *, steps=17, seed=0):
    """The examples of each step, each as often as it is summed."""
    start, found = np.zeros((1, len(shards))), []
    batches = shards.batches(rule, Logistic(clip=0.25), seeded(seed))
    for _, gradient in zip(range(steps), batches, strict=False):
        times = gradient(start)[0] / 0.125
        assert np.array_equal(times, np.rint(times))
        found.append(np.repeat(np.arange(len(shards)), times.astype(int)))
    return found


class TestBatches:
    @pytest.fixture
    def data(self):
        return one_direction_each()

    @pytest.mark.parametrize("name", RULES)
    def test_are_those_that_the_rule_draws_here(self, client, data, name):
        rule = RULES[name]
        chance = seeded(5)
        order = rule.arrangement(chance)
        order = np.arange(103) if order is None else order
        expected = [
            np.sort(order[chosen])
            for _, chosen in zip(range(17), rule.selections(chance), strict=False)
        ]
        found = seen(on_cluster(client, data), rule, seed=5)
        for one, other in zip(found, expected, strict=True):
            assert one.tolist() == other.tolist()

    @pytest.mark.parametrize("name", RULES)
    def test_have_the_size_that_is_accounted_and_nobody_twice(self, client, data, name):
        rule = RULES[name]
        for batch in seen(on_cluster(client, data), rule):
            assert np.unique(batch).size == batch.size
            if rule.exact_size:
                assert batch.size == rule.batch_size

    def test_every_epoch_has_each_example_once_or_leaves_it_out(self, client, data):
        for name in ("once", "each"):
            found = seen(on_cluster(client, data), RULES[name], steps=15)
            epochs = [np.sort(np.concatenate(found[k : k + 5])) for k in (0, 5, 10)]
            assert all(np.unique(epoch).size == epoch.size == 100 for epoch in epochs)
            same = [np.array_equal(found[0], found[k]) for k in (5, 10)]
            assert same == [name == "once"] * 2

    @pytest.mark.parametrize("name", ["once", "sampled"])
    def test_are_no_fixed_slices_of_shards(self, client, data, name):
        """How many of a batch are on one shard varies, as it does for a uniform arrangement."""
        shards = on_cluster(client, data)
        owner = shards.layout.owner_of_rows()
        first = [np.sum(owner[batch] == 0) for batch in seen(shards, RULES[name])]
        assert len(set(first)) > 1

    def test_of_many_chunks_are_on_all_workers(self, client, data):
        shards = on_cluster(client, data, chunks=(10,) * 10 + (3,))
        for first in range(0, 100, 20):
            assert (shards.layout.counts_between(first, first + 20) == 10).all()

    @pytest.mark.parametrize("name", BLOCKS)
    def test_of_rows_that_are_read_anew_every_step(self, client, data, name):
        rule, chance = BLOCKS[name], seeded(2)
        found = seen(on_cluster(client, data, held=False), rule, seed=2)
        expected = zip(range(17), rule.selections(chance), strict=False)
        for batch, (_, chosen) in zip(found, expected, strict=True):
            assert batch.tolist() == np.arange(103)[chosen].tolist()

    @pytest.mark.parametrize("name", ["once", "sampled", "bins"])
    def test_that_are_scattered_are_refused_there(self, client, data, name):
        shards = on_cluster(client, data, held=False)
        with pytest.raises(InvalidParameter, match=r"one of .*ShuffledBlocksOnce"):
            shards.batches(RULES[name], Logistic(), seeded())

    def test_of_another_number_of_examples_are_refused(self, client, data):
        with pytest.raises(InvalidParameter, match="103, the number of examples"):
            on_cluster(client, data).batches(li.ShuffledOnce(104, 20), Logistic(), seeded())


class TestNoise:
    @pytest.mark.parametrize("name", RULES)
    def test_is_drawn_once_a_step_and_once_on_release(self, client, name):
        data, source = examples(), Recorder(3)
        run = run_of(data, RULES[name], release_noise_std=0.3)
        noisy_descent(run, Logistic(), on_cluster(client, data), source)
        assert len(source.drawn) == run.steps + 1
        together = np.concatenate([drawn.ravel() for drawn in source.drawn])
        assert np.unique(together).size == together.size == (run.steps + 1) * 5


class TestModels:
    @pytest.mark.parametrize("name", RULES)
    def test_are_the_same(self, client, name):
        data = examples()
        run = run_of(data, RULES[name], l2=0.1, release_noise_std=0.3)
        here = noisy_descent(run, Logistic(), data, seeded(1))
        there = noisy_descent(run, Logistic(), on_cluster(client, data), seeded(1))
        np.testing.assert_allclose(there, here, rtol=1e-6, atol=1e-12)

    @pytest.mark.parametrize("held", [True, False])
    def test_with_rows_longer_than_the_bound_and_around_a_centre(self, client, held):
        data = examples()
        assert data.factors.min() < 0.5
        centre = Centre(np.array([0.1, 0.2, -0.1, 0.0]), 0.5)
        run = run_of(data, li.FullBatch(103))
        here = noisy_descent(run, Logistic(), data.around(centre), seeded(1))
        shards = on_cluster(client, data, held=held).around(centre)
        there = noisy_descent(run, Logistic(), shards, seeded(1))
        np.testing.assert_allclose(there, here, rtol=1e-6)

    @pytest.mark.parametrize(
        "objective", [Softmax(classes=2), Softmax(classes=2, kind="margin"), Huber(clip=0.5)]
    )
    def test_of_every_loss(self, client, objective):
        data = examples()
        run = run_of(data, RULES["once"], objective=objective)
        here = noisy_descent(run, objective, data, seeded(1))
        there = noisy_descent(run, objective, on_cluster(client, data), seeded(1))
        np.testing.assert_allclose(there, here, rtol=1e-6)

    @pytest.mark.parametrize("held", [True, False])
    def test_of_sparse_chunks(self, client, held):
        from lastiterate.dask.cluster import shard_blocks
        from lastiterate.dask.shards import blocks_of

        from .problems import CHUNKS, as_they_are

        data = examples()
        rows = da.from_array(data.rows, chunks=(CHUNKS, 4)).map_blocks(sparse.csr_matrix)
        blocks = blocks_of(rows, da.from_array(data.targets, chunks=(CHUNKS,)), client)
        thin = shard_blocks(client, blocks, as_they_are, bound=1.0, intercept=0.5, held=held)
        rule = RULES["once"] if held else BLOCKS["blocks once"]
        run = run_of(data, rule)
        if held:
            here = noisy_descent(run, Logistic(), data, seeded(1))
        else:
            here = noisy_descent(run, Logistic(), on_cluster(client, data, held=False), seeded(1))
        np.testing.assert_allclose(noisy_descent(run, Logistic(), thin, seeded(1)), here, rtol=1e-6)

    def test_other_releases_are_summed_exactly(self, client):
        data = examples()
        for chunks in [(103,), (50, 53), (1,) * 103]:
            shards = on_cluster(client, data, chunks=chunks)
            assert shards.in_units().tolist() == data.in_units().tolist()
            assert shards.far_rows() == data.far_rows()
