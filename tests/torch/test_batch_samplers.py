"""Samplers draw what their rules say, once, in secret, and share batches among ranks."""

import copy
import os
import pickle
import secrets
from collections import Counter, namedtuple
from itertools import chain

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import lastiterate as li
import lastiterate.torch as lt
from lastiterate.errors import PrivacyWarning, RefusedTraining
from lastiterate.torch.batch_samplers import SAMPLERS
from lastiterate.train.noise import SECURE, SHARED, DuplicatedRandomness

KEY = bytes(range(32))


SETTINGS = {lt.BalancedSampler: {"epochs": 3}}


def _sampler(kind, examples=120, batch_size=20, **settings):
    return kind(examples, batch_size, **SETTINGS.get(kind, {}) | settings)


class TestBatches:
    def test_balls_and_bins_put_every_example_into_one_batch_of_a_pass(self):
        sampler = lt.BallsAndBinsSampler(120, 20)
        for _ in range(3):
            batches = list(sampler)
            assert len(batches) == len(sampler) == 6
            assert sorted(row for batch in batches for row in batch) == list(range(120))

    def test_balls_and_bins_leave_out_as_many_as_do_not_fill_a_batch_on_average(self):
        sampler = lt.BallsAndBinsSampler(25, 10)
        seen = Counter(row for _ in range(2_000) for batch in sampler for row in batch)
        for row in range(25):
            assert seen[row] / 2_000 == pytest.approx(0.8, abs=5 * np.sqrt(0.16 / 2_000))

    def test_balanced_batches_have_every_example_equally_often(self):
        sampler = lt.BalancedSampler(120, 20, epochs=3)
        for _ in range(2):
            batches = [batch for _ in range(3) for batch in sampler]
            seen = Counter(row for batch in batches for row in batch)
            assert seen == dict.fromkeys(range(120), 3)
            assert all(len(set(batch)) == len(batch) for batch in batches)

    def test_balanced_batches_make_no_difference_between_steps(self):
        """Each of the 15 pairs of steps is as likely as any other."""
        sampler = lt.BalancedSampler(3_000, 1_000, epochs=2)
        steps = [set() for _ in range(3_000)]
        for k, batch in enumerate(batch for _ in range(2) for batch in sampler):
            for row in batch:
                steps[row].add(k)
        counts = Counter(map(frozenset, steps))
        assert len(counts) == 15
        assert sum((count - 200) ** 2 / 200 for count in counts.values()) < 45  # chance 5e-5

    def test_poisson_batches_have_each_example_with_its_probability(self):
        sampler = lt.PoissonSampler(40, 10)
        sizes = [len(batch) for _ in range(500) for batch in sampler]
        assert np.mean(sizes) == pytest.approx(10.0, abs=5 * np.sqrt(7.5 / len(sizes)))
        assert np.var(sizes) == pytest.approx(7.5, rel=0.2)

    @pytest.mark.parametrize("kind", SAMPLERS)
    def test_passes_and_samplers_differ(self, kind):
        one, other = _sampler(kind), _sampler(kind)
        assert list(one) != list(one)
        assert list(one) != list(other)
        assert one.provenance == SECURE
        assert one.divisor == 20

    @pytest.mark.parametrize("kind", SAMPLERS)
    def test_a_seed_is_for_tests_and_says_so(self, kind):
        with pytest.warns(PrivacyWarning, match="seed"):
            one = _sampler(kind, seed=3)
        with pytest.warns(PrivacyWarning, match="seed"):
            other = _sampler(kind, seed=3)
        assert list(one) == list(other)
        assert "not private" in repr(one)


class TestLoaders:
    @pytest.mark.parametrize("kind", SAMPLERS)
    @pytest.mark.parametrize("workers", [0, 2])
    def test_workers_get_every_batch_of_the_sampler_once(self, kind, workers):
        rows = TensorDataset(torch.arange(30))
        sampler = _sampler(kind, rows, 10)
        drawn = []
        sampler._batches = lambda number, batches: (
            drawn.extend(batches) or iter([np.asarray(batch).tolist() for batch in batches])
        )
        loader = DataLoader(
            rows, batch_sampler=sampler, collate_fn=lt.EmptyBatches(rows), num_workers=workers
        )
        seen = [batch.tolist() for _ in range(2) for (batch,) in loader]
        assert seen == [np.asarray(batch).tolist() for batch in drawn]
        assert len(loader) == len(sampler)

    def test_empty_batches_have_the_shape_of_others(self):
        Pair = namedtuple("Pair", "x y")
        cases = [TensorDataset(torch.zeros(4, 3, 2), torch.zeros(4, dtype=torch.long))]
        cases += [[{"x": torch.zeros(5), "y": 1.0}], [Pair(torch.zeros(2), 3)]]
        for rows in cases:
            collate = lt.EmptyBatches(rows)
            empty, one = collate([]), collate([rows[0]])
            assert type(empty) is type(one)
            parts = zip(
                *(b.values() if isinstance(b, dict) else b for b in (empty, one)), strict=True
            )
            for left, right in parts:
                assert left.shape == (0, *right.shape[1:])
                assert left.dtype == right.dtype

    def test_batches_without_rows_are_refused_if_they_cannot_be_made(self):
        with pytest.raises(li.InvalidParameter, match="made of tensors"):
            lt.EmptyBatches(["text"])


class TestOneUse:
    @pytest.mark.parametrize("kind", SAMPLERS)
    def test_a_pass_ends_where_the_next_begins(self, kind):
        sampler = _sampler(kind)
        first = iter(sampler)
        next(first)
        next(iter(sampler))
        with pytest.raises(RefusedTraining, match="one iterator at a time"):
            next(first)

    @pytest.mark.parametrize("kind", SAMPLERS)
    def test_an_iterator_has_one_pass(self, kind):
        batches = iter(_sampler(kind))
        assert len(list(batches)) == 6
        assert list(batches) == []

    @pytest.mark.parametrize("settings", [{}, {"ranks": 2, "shared_key": KEY}])
    def test_no_copy_draws_the_same_batches(self, settings):
        sampler = _sampler(lt.BallsAndBinsSampler, **settings)
        for twice in (copy.deepcopy, pickle.dumps):
            with pytest.raises(DuplicatedRandomness):
                twice(sampler)

    def test_no_forked_process_draws_the_same_batches(self):
        sampler = _sampler(lt.BallsAndBinsSampler)
        process = os.fork()
        if process == 0:
            code = 1
            try:
                next(iter(sampler))
            except DuplicatedRandomness:
                code = 0
            os._exit(code)
        assert os.waitpid(process, 0)[1] == 0


class TestRanks:
    @pytest.mark.parametrize("kind", SAMPLERS)
    def test_shares_add_up_to_the_batches_of_all(self, kind):
        key = secrets.token_bytes(32)
        whole = _sampler(kind, shared_key=key)
        shares = [_sampler(kind, rank=rank, ranks=3, shared_key=key) for rank in range(3)]
        assert whole.provenance == SHARED
        for number in range(3):
            batches = list(whole)
            if number == 1:
                # One rank does not finish its pass, and still agrees on the next.
                for share in shares[1:]:
                    list(share)
                next(iter(shares[0]))
                continue
            parts = [list(share) for share in shares]
            together = [sorted(chain(*one)) for one in zip(*parts, strict=True)]
            assert together == [sorted(batch) for batch in batches]

    def test_ranks_that_cannot_agree_are_refused(self):
        with pytest.raises(li.InvalidParameter, match="shared_key must be 32 secret bytes"):
            lt.PoissonSampler(100, 10, rank=0, ranks=2)
        for bad in (b"short", "x" * 32):
            with pytest.raises(li.InvalidParameter, match="shared_key must be 32 bytes") as error:
                lt.PoissonSampler(100, 10, ranks=2, shared_key=bad)
            assert str(bad) not in str(error.value)
        with pytest.raises(li.InvalidParameter, match="rank must be"):
            lt.PoissonSampler(100, 10, rank=2, ranks=2, shared_key=KEY)

    def test_a_process_group_needs_ranks(self, monkeypatch):
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 4)
        with pytest.raises(li.InvalidParameter, match="ranks must be 4"):
            lt.PoissonSampler(100, 10)
        assert len(lt.PoissonSampler(100, 10, ranks=4, shared_key=KEY)) == 10


class TestRefusals:
    def test_rules_that_lay_out_examples_first(self):
        with pytest.raises(li.InvalidParameter, match="takes part on its own"):
            lt.SecretBatchSampler(li.ShuffledOnce(100, 10), 10)

    @pytest.mark.parametrize("kind", SAMPLERS)
    @pytest.mark.parametrize("source", [0, -1, "", 2.5, None])
    def test_no_examples(self, kind, source):
        with pytest.raises(li.InvalidParameter, match="data_source"):
            _sampler(kind, source, 1)

    @pytest.mark.parametrize("kind", SAMPLERS)
    @pytest.mark.parametrize("size", [0, 121, float("nan")])
    def test_batch_sizes(self, kind, size):
        with pytest.raises(li.InvalidParameter, match="batch_size"):
            _sampler(kind, 120, size)
