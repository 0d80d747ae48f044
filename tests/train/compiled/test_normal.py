"""Compiled normal numbers are those of numpy, from the same words."""

import numpy as np
import pytest

from lastiterate.train import noise
from lastiterate.train.compiled import normal
from lastiterate.train.noise import Randomness, SeededBits, _box_muller

EXTREME = np.array([0, -1, 1, 2**63 - 1, -(2**63), 2**61, -(2**61), 2**62, -(2**62), 3 * 2**61])


def both(words):
    half = words.shape[1] // 2
    fast, slow = np.empty(words.shape), np.empty(words.shape)
    normal.normals(words, fast)
    _box_muller(words[:, :half], words[:, half:], slow)
    return fast, slow


@pytest.mark.parametrize("shape", [(1, 2), (1, 1_002), (7, 48)])
def test_as_numpy_has_them(shape):
    words = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, size=shape, endpoint=True)
    fast, slow = both(words)
    np.testing.assert_allclose(fast, slow, rtol=0, atol=5e-15)


def test_at_the_ends_of_words_and_quarters():
    radii, angles = np.meshgrid(EXTREME, EXTREME)
    fast, slow = both(np.concatenate([radii.ravel(), angles.ravel()])[np.newaxis])
    assert np.isfinite(fast).all()
    np.testing.assert_allclose(fast, slow, rtol=0, atol=1e-14)


def test_long_draws_are_compiled_and_the_same(monkeypatch):
    fast = Randomness(SeededBits(5)).normals((3, 7), 400)
    monkeypatch.setattr(noise, "compiled", lambda name, size: None)
    slow = Randomness(SeededBits(5)).normals((3, 7), 400)
    assert not np.array_equal(fast, slow)  # were they, nothing would have been compiled
    np.testing.assert_allclose(fast, slow, rtol=0, atol=5e-15)
