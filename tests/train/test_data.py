"""Rows in memory that others change, and rows in a mapped file: trained on as they are bounded."""

import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse, stats

import lastiterate as li
from lastiterate.errors import InvalidParameter
from lastiterate.linear_model import PrivateLogisticRegression
from lastiterate.other_releases import MEAN, Release
from lastiterate.run.batch_rules.ordered import ShuffledBlocksEachEpoch, ShuffledBlocksOnce
from lastiterate.train import centring
from lastiterate.train.data import bounded
from lastiterate.train.noise import Randomness, SeededBits
from lastiterate.train.noisy_descent import batch_sequence, noisy_descent
from lastiterate.train.objectives import Logistic
from lastiterate.train.rows import is_mapped
from lastiterate.train.settings import TRAINED
from tests.slow import slow_if
from tests.train.problems import RULES, published_centre, run_of

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


@pytest.mark.slow
def test_only_a_batch_is_resident(tmp_path):
    path = tmp_path / "large.f32"
    path.write_bytes(np.random.default_rng(0).random(50_000, dtype=np.float32).tobytes() * 600)
    command = [sys.executable, "-c", MEMORY, str(path)]
    grown = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert grown < 36e6  # of 120 MB


GIVEN = RNG.normal(size=(400, 3))
SIDES = GIVEN[:, 0] > 0
LONG = GIVEN / np.linalg.norm(GIVEN, axis=1, keepdims=True) * RNG.uniform(2, 3, size=(400, 1))


def quick(**settings):
    fixed = {"epsilon": 8.0, "epochs": 3, "random_state": 0, "counting": 0, "center": False}
    return PrivateLogisticRegression(**fixed | settings)


@pytest.fixture
def during(monkeypatch):
    """Something happens when the trainer first calls a method of its randomness."""

    def arrange(method, action):
        usual, done = getattr(Randomness, method), []

        def first_that(self, *args):
            # Noise of other releases is no matrix.
            if not done and (method != "rounded_normals" or len(args[0]) == 2):
                done.append(True)
                action()
            return usual(self, *args)

        monkeypatch.setattr(Randomness, method, first_that)
        return done

    return arrange


@pytest.mark.parametrize("kind", [np.array, sparse.csr_matrix, sparse.csr_array])
@pytest.mark.parametrize("batches", slow_if("sampled".__eq__, TRAINED))
def test_what_is_written_after_training_began_is_not_used(during, batches, kind):
    settings = {"batches": batches} | ({} if batches == "full" else {"batch_size": 100})
    expected = quick(**settings).fit(kind(GIVEN), SIDES).parameters_
    rows, sides = kind(GIVEN), SIDES.copy()

    def spoil():
        (rows if isinstance(rows, np.ndarray) else rows.data)[:] *= 1e4
        sides[:] = ~sides

    done = during("rounded_normals", spoil)
    np.testing.assert_array_equal(quick(**settings).fit(rows, sides).parameters_, expected)
    assert done


def test_norms_are_those_of_the_copy(during):
    rows = GIVEN.copy()
    expected = quick().fit(1e4 * GIVEN, SIDES).parameters_
    done = during("permutation", lambda: rows.__imul__(1e4))
    np.testing.assert_array_equal(quick().fit(rows, SIDES).parameters_, expected)
    assert done


def test_sums_are_of_what_was_bounded(monkeypatch):
    """For the mean that is published, each row is read once."""
    release, rows = Release(MEAN, 2.0, 1e-9), GIVEN.copy()
    usual = centring.norm_factors

    def spoiling(some, bound):
        factors = usual(some, bound)
        rows.__imul__(1e4)
        return factors

    expected = published_centre(GIVEN, release, Randomness(SeededBits(0)), bound=1.0)
    monkeypatch.setattr(centring, "norm_factors", spoiling)
    found = published_centre(rows, release, Randomness(SeededBits(0)), bound=1.0)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-12)


class TestMapped:
    def mapped(self, path):
        LONG.tofile(path)
        return np.memmap(path, dtype=float, mode="r", shape=LONG.shape)

    def test_each_batch_is_brought_within_the_bound_as_it_is_read(self, during, tmp_path):
        rows = self.mapped(tmp_path / "rows")
        expected = quick(batch_size=50).fit(rows, SIDES).parameters_
        done = during("rounded_normals", lambda: (1e4 * LONG).tofile(tmp_path / "rows"))
        np.testing.assert_allclose(
            quick(batch_size=50).fit(rows, SIDES).parameters_, expected, rtol=1e-6
        )
        assert done

    @pytest.mark.parametrize(
        "spoilt, match", [(LONG[:9], "keeps its length"), (LONG * np.nan, "finite throughout")]
    )
    def test_files_that_become_none(self, during, tmp_path, spoilt, match):
        rows = self.mapped(tmp_path / "rows")
        done = during("rounded_normals", lambda: spoilt.tofile(tmp_path / "rows"))
        with pytest.raises(InvalidParameter, match=match):
            quick(batch_size=50).fit(rows, SIDES)
        assert done
