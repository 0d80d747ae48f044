"""Rows that others change while a model is fitted: the bound holds for what is really used."""

import numpy as np
import pytest
from scipy import sparse

from lastiterate.errors import InvalidParameter
from lastiterate.linear_model.classifiers import PrivateLogisticRegression
from lastiterate.other_releases import MEAN, Release
from lastiterate.train import centring
from lastiterate.train.centring import published_centre
from lastiterate.train.noise import Randomness, SeededBits
from lastiterate.train.rows import norm_factors
from lastiterate.train.settings import TRAINED
from tests.slow import slow_if

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(400, 3))
SIDES = ROWS[:, 0] > 0
LONG = ROWS / np.linalg.norm(ROWS, axis=1, keepdims=True) * RNG.uniform(2, 3, size=(400, 1))


def model(**settings):
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
    expected = model(**settings).fit(kind(ROWS), SIDES).parameters_
    rows, sides = kind(ROWS), SIDES.copy()

    def spoil():
        (rows if isinstance(rows, np.ndarray) else rows.data)[:] *= 1e4
        sides[:] = ~sides

    done = during("rounded_normals", spoil)
    np.testing.assert_array_equal(model(**settings).fit(rows, sides).parameters_, expected)
    assert done


def test_norms_are_those_of_the_copy(during):
    rows = ROWS.copy()
    expected = model().fit(1e4 * ROWS, SIDES).parameters_
    done = during("permutation", lambda: rows.__imul__(1e4))
    np.testing.assert_array_equal(model().fit(rows, SIDES).parameters_, expected)
    assert done


def test_sums_are_of_what_was_bounded(monkeypatch):
    """For the mean that is published, each row is read once."""
    release, rows = Release(MEAN, 2.0, 1e-9), ROWS.copy()
    usual = centring.norm_factors

    def spoiling(some, bound):
        factors = usual(some, bound)
        rows.__imul__(1e4)
        return factors

    expected = published_centre(ROWS, release, Randomness(SeededBits(0)), bound=1.0)
    monkeypatch.setattr(centring, "norm_factors", spoiling)
    found = published_centre(rows, release, Randomness(SeededBits(0)), bound=1.0)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-12)


class TestMapped:
    def mapped(self, path):
        LONG.tofile(path)
        return np.memmap(path, dtype=float, mode="r", shape=LONG.shape)

    def test_each_batch_is_brought_within_the_bound_as_it_is_read(self, during, tmp_path):
        rows = self.mapped(tmp_path / "rows")
        expected = model(batch_size=50).fit(rows, SIDES).parameters_
        done = during("rounded_normals", lambda: (1e4 * LONG).tofile(tmp_path / "rows"))
        np.testing.assert_allclose(
            model(batch_size=50).fit(rows, SIDES).parameters_, expected, rtol=1e-6
        )
        assert done

    @pytest.mark.parametrize(
        "spoilt, match", [(LONG[:9], "keeps its length"), (LONG * np.nan, "finite throughout")]
    )
    def test_files_that_become_none(self, during, tmp_path, spoilt, match):
        rows = self.mapped(tmp_path / "rows")
        done = during("rounded_normals", lambda: spoilt.tofile(tmp_path / "rows"))
        with pytest.raises(InvalidParameter, match=match):
            model(batch_size=50).fit(rows, SIDES)
        assert done


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("width", [1, 3, 1_000, 1_024, 1_025, 5_000])
@pytest.mark.parametrize("size", [1e-22, 1e-9, 1.0, 1e9, 1e17, 1e22])
def test_factors_suffice_and_lose_little(dtype, width, size):
    """Against sums in a longer format."""
    rows = (RNG.standard_t(2, size=(40, width)) * size).astype(dtype)
    rows[::7] = 0.0
    norms = np.sqrt((rows.astype(np.longdouble) ** 2).sum(axis=1))
    for bound in (1e-11, 1e-10, 1.0, float(np.median(norms)), 1e12):
        scaled = norms * norm_factors(rows, bound)
        assert (scaled <= bound).all()
        assert (scaled >= np.minimum(norms, bound) * (1 - 1e-4)).all()
