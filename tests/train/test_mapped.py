"""Training from a mapped file: contiguous batches in a secret order, little memory, same result."""

import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

import lastiterate as li
from lastiterate.errors import InvalidParameter
from lastiterate.linear_model.classifiers import PrivateLogisticRegression
from lastiterate.run.batch_rules.ordered import ShuffledBlocksEachEpoch, ShuffledBlocksOnce
from lastiterate.train.data import bounded
from lastiterate.train.noise import Randomness, SeededBits
from lastiterate.train.noisy_descent import batch_sequence, noisy_descent
from lastiterate.train.objectives import Logistic
from lastiterate.train.rows import is_mapped

from .problems import RULES, run_of

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(103, 4)).astype(np.float32)
LABELS = ROWS[:, 0] > 0


@pytest.fixture
def mapped(tmp_path):
    path = tmp_path / "rows.f32"
    path.write_bytes(b"\0" * 64 + ROWS.tobytes())
    return np.memmap(path, dtype=np.float32, mode="r", offset=64, shape=ROWS.shape)


def positions(rule, examples, seed):
    """The step of the first epoch in which each of the first 100 examples is seen."""
    _, batches = batch_sequence(rule, examples, Randomness(SeededBits(seed)))
    place = np.full(100, -1)
    for step in range(5):
        chosen = next(batches)
        place[chosen] = step
    return place


class TestOrder:
    @pytest.mark.parametrize("kind", [ShuffledBlocksOnce, ShuffledBlocksEachEpoch])
    def test_every_position_is_uniform(self, mapped, kind):
        examples = bounded(mapped, LABELS, bound=1.0, intercept=0.0)
        places = np.array([positions(kind(100, 20), examples, seed) for seed in range(500)])
        assert places.min() == 0  # everyone is seen once an epoch
        for example in (0, 19, 20, 99):
            counts = np.bincount(places[:, example], minlength=5)
            assert stats.chisquare(counts).pvalue > 1e-3

    def test_is_the_same_in_every_epoch_if_shuffled_once(self, mapped):
        examples = bounded(mapped, LABELS, bound=1.0, intercept=0.0)
        rule = ShuffledBlocksOnce(100, 20)
        _, batches = batch_sequence(rule, examples, Randomness(SeededBits(0)))
        epochs = [[next(batches).start for _ in range(5)] for _ in range(3)]
        assert epochs[0] == epochs[1] == epochs[2]
        assert sorted(epochs[0]) == [0, 20, 40, 60, 80]

    @pytest.mark.parametrize("name", ["full", "sampled", "poisson", "bins"])
    def test_other_rules_are_refused(self, mapped, name):
        examples = bounded(mapped, LABELS, bound=1.0, intercept=0.0)
        with pytest.raises(InvalidParameter, match="for a mapped file"):
            noisy_descent(run_of(examples, RULES[name]), Logistic(), examples)

    @pytest.mark.parametrize("kind", [li.ShuffledOnce, li.ShuffledEachEpoch])
    def test_blocks_are_no_shuffle_of_examples(self, mapped, kind):
        """Two examples of the same block never change places, which a shuffle's bounds use."""
        examples = bounded(mapped, LABELS, bound=1.0, intercept=0.0)
        with pytest.raises(
            InvalidParameter, match=r"one of .*ShuffledBlocksOnce.* for a mapped file"
        ):
            noisy_descent(run_of(examples, kind(100, 20)), Logistic(), examples)

    def test_rows_that_are_never_seen_do_not_count_as_left_out_by_chance(self, mapped):
        examples = bounded(mapped, LABELS, bound=1.0, intercept=0.0)
        with pytest.raises(InvalidParameter, match=r"batches\.examples must be 100"):
            noisy_descent(run_of(examples, li.Cyclic(103, 20)), Logistic(), examples)


class TestResult:
    def test_is_that_of_the_same_rows_in_memory(self, mapped):
        whole, file = (bounded(rows, LABELS, bound=1.0, intercept=0.5) for rows in (ROWS, mapped))
        run = run_of(whole, li.Cyclic(103, 20))
        ends = [
            noisy_descent(run.replace(batches=batches), Logistic(), data, Randomness(SeededBits(1)))
            for data, batches in ((whole, li.Cyclic(103, 20)), (file, li.Cyclic(100, 20)))
        ]
        np.testing.assert_array_equal(*ends)

    def test_estimator(self, mapped):
        model = PrivateLogisticRegression(epsilon=8.0, batch_size=20).fit(mapped, LABELS)
        assert model.privacy_.run.batches == ShuffledBlocksOnce(100, 20)
        assert "random-order/shuffled/joint-transport" not in model.privacy_.all
        assert model.privacy_.epsilon(1e-5) <= 8.0
        assert model.predict(ROWS).shape == (103,)

    def test_parts_of_a_map_are_ordinary_arrays(self, mapped):
        assert is_mapped(mapped)
        assert not is_mapped(mapped[3:])
        assert not is_mapped(mapped.T)
        assert not is_mapped(ROWS)

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_what_is_not_finite_is_refused(self, tmp_path, bad):
        rows = ROWS.copy()
        rows[50, 2] = bad
        path = tmp_path / "bad.f32"
        rows.tofile(path)
        with pytest.raises(InvalidParameter, match="X must be finite"):
            PrivateLogisticRegression().fit(
                np.memmap(path, dtype=np.float32, mode="r", shape=ROWS.shape), LABELS
            )


MEMORY = """
import resource, numpy as np, sys
from lastiterate.linear_model import PrivateLogisticRegression
rows = np.memmap(sys.argv[1], dtype=np.float32, mode="r", shape=(60_000, 500))
labels = np.arange(60_000) % 2
def most(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
PrivateLogisticRegression().fit(np.random.rand(100, 500), labels[:100])  # load everything
before = most()
PrivateLogisticRegression(epochs=1, feature_bound=13.0).fit(rows, labels)
print(most() - before)
"""


def test_only_a_batch_is_resident(tmp_path):

    path = tmp_path / "large.f32"
    path.write_bytes(np.random.default_rng(0).random(50_000, dtype=np.float32).tobytes() * 600)
    command = [sys.executable, "-c", MEMORY, str(path)]
    grown = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert grown < 36e6  # of 120 MB
