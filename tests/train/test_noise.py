"""Noise: the right law, uniform orders, secure unless a seed is given, never twice."""

import copy
import os
import pickle
import sys
from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from lastiterate.errors import InvalidParameter, MissingExtra
from lastiterate.train import noise
from lastiterate.train.noise import DuplicatedRandomness, Randomness, SecureBits, SeededBits


def seeded(seed=0):
    return Randomness(SeededBits(seed))


class FixedBits:
    provenance = "fixed"

    def __init__(self, *draws):
        self.draws = list(draws)

    def words(self, count):
        drawn = np.asarray(self.draws.pop(0), dtype=np.uint64)
        assert drawn.size == count
        return drawn


class TestOrders:
    def test_permutations_are_uniform(self):
        source = seeded(2)
        counts = Counter(tuple(source.permutation(4).tolist()) for _ in range(4_800))
        assert set(counts) == set(permutations(range(4)))
        assert stats.chisquare(list(counts.values())).pvalue > 1e-3

    def test_equal_keys_are_drawn_again(self):
        source = Randomness(FixedBits([5, 5, 1], [3, 2, 1]))
        assert source.permutation(3).tolist() == [2, 1, 0]
        source = Randomness(FixedBits([5, 5, 1], [3, 2, 1]))
        assert sorted(source.subset(3, 2).tolist()) == [1, 2]

    def test_subsets_are_uniform(self):
        source = seeded(3)
        counts = Counter(tuple(sorted(source.subset(5, 2).tolist())) for _ in range(4_000))
        assert len(counts) == 10
        assert stats.chisquare(list(counts.values())).pvalue > 1e-3

    def test_each_is_drawn_with_its_probability(self):
        drawn = seeded(4).each_with_probability(100_000, 1, 3)
        assert abs(drawn.size - 100_000 / 3) < 4 * (100_000 * 2 / 9) ** 0.5
        assert seeded().each_with_probability(7, 3, 3).tolist() == list(range(7))

    def test_no_probability_is_rounded(self):
        """A third of 2^64 is no whole number: the word at the threshold is in by a third."""
        third = 2**64 // 3
        for word in (0, third - 1, third + 1, 2**64 - 1):
            bits = FixedBits([third - 1, third, third - 1, third + 1], [word])
            drawn = Randomness(bits).each_with_probability(4, 1, 3)
            assert drawn.tolist() == ([0, 1, 2] if word < third else [0, 2])
        bits = FixedBits([third], [third], [third - 1])
        assert Randomness(bits).each_with_probability(1, 1, 3).tolist() == [0]

    def test_positions_are_drawn_with_their_probability(self):
        places = seeded(5).each_to_a_position(100_000, 3, 2, 7)
        counts = [np.count_nonzero(places == place) for place in (-1, 0, 1, 2)]
        expected = 100_000 * np.array([1, 2, 2, 2]) / 7
        assert stats.chisquare(counts, expected).pvalue > 1e-3
        assert set(seeded().each_to_a_position(50, 2, 3, 6).tolist()) == {0, 1}

    def test_words_that_would_favour_a_position_are_drawn_again(self):
        """Of 2^64 words the last is one too many for three places."""

        class Listed(SeededBits):
            left = iter([2**64 - 1, 4, 2**64 - 2, 2**64 - 1, 5])

            def words(self, count):
                return np.array([next(self.left) for _ in range(count)], dtype=np.uint64)

        picked = Randomness(Listed(0)).each_to_a_position(3, 3, 1, 3)
        assert picked.tolist() == [2, 1, 2]  # of 5, 4 and 2^64 - 2


class TestSecurity:
    def test_none_is_secure_and_differs_every_time(self):
        first, second = noise.randomness(None), noise.randomness(None)
        assert first.provenance == noise.SECURE
        assert not np.array_equal(first.rounded_normals((8,), 40), second.rounded_normals((8,), 40))

    @pytest.mark.parametrize("state", [7, np.random.RandomState(7), np.random.default_rng(7)])
    def test_seeds_are_reproducible_and_say_so(self, state):
        again = copy.deepcopy(state)
        first, second = noise.randomness(state), noise.randomness(again)
        assert "not private against someone who knows the seed" in first.provenance
        drawn = [one.rounded_normals((8,), 40) for one in (first, second)]
        np.testing.assert_array_equal(*drawn)

    @pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
    def test_a_secure_generator_cannot_be_copied(self, duplicate):
        with pytest.raises(DuplicatedRandomness, match="copied or pickled"):
            duplicate(SecureBits())

    @pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
    def test_a_secure_generator_does_not_survive_a_fork(self):
        bits = SecureBits()
        child = os.fork()
        if child == 0:
            try:
                bits.words(1)
            except DuplicatedRandomness:
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert bits.words(1).size == 1

    def test_the_missing_extra_is_named(self, monkeypatch):
        for name in [n for n in sys.modules if n.startswith("cryptography")]:
            monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(MissingExtra, match=r"lastiterate\[sklearn\]"):
            SecureBits()

    @pytest.mark.parametrize("state", [-1, 1.5, "seed", True])
    def test_bad_seeds_are_refused(self, state):
        with pytest.raises(InvalidParameter, match="random_state must be"):
            noise.randomness(state)
