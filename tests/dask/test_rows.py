"""Rows count on workers as they do by themselves, however they are spread."""

import numpy as np
import pytest
from scipy import sparse

from lastiterate.dask.shards import Shard, ShardPlan
from lastiterate.train.centring import sum_in_units
from lastiterate.train.objectives import Logistic
from lastiterate.train.rows import far_rows

from ..train.test_row_independence import BOUND, CENTRES, DTYPES, alone, rows_of
from .problems import as_they_are

PARTS = [(40,), (1,) * 40, (17, 1, 22)]


def shard(rows, lengths, kind):
    ends = np.cumsum(lengths)
    blocks = [kind(rows[end - n : end]) for end, n in zip(ends, lengths, strict=True)]
    targets = [np.zeros(n, dtype=np.intp) for n in lengths]
    plan = ShardPlan(
        chunks=range(len(lengths)),
        starts=(ends - lengths).tolist(),
        lengths=lengths,
        features=rows.shape[1],
        precision=str(rows.dtype),
        encode=as_they_are,
        bound=BOUND,
        is_sparse=sparse.issparse(kind(rows)),
        arithmetic="fast",
        intercept=0.0,
        offset=None,
        sources=None,
    )
    return Shard(plan, list(zip(blocks, targets, strict=True)))


@pytest.mark.parametrize("lengths", PARTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", [np.array, np.asfortranarray, sparse.csr_array, sparse.coo_array])
class TestPartitions:
    def test_what_is_published_beside_the_model_is_the_same(self, kind, dtype, lengths):
        rows = rows_of(11, dtype)
        found = shard(rows, lengths, kind).survey()
        expected = far_rows(rows, BOUND)
        assert (found.long, found.short) == expected
        here = sum_in_units(
            rows if kind in (np.array, np.asfortranarray) else kind(rows).tocsr(), bound=BOUND
        )
        np.testing.assert_array_equal(found.in_units, here)

    @pytest.mark.parametrize("centre", CENTRES)
    def test_rows_count_alike(self, kind, dtype, lengths, centre):
        rows = rows_of(12, dtype)
        spread = shard(rows, lengths, kind)
        assert spread.survey() is not None
        assert spread.arrange(Logistic(clip=0.25), centre, None) is None
        batch = spread._own.batch(slice(0, len(rows)))
        used = batch.rows if isinstance(batch.rows, np.ndarray) else batch.rows.toarray()
        found = used.astype(np.longdouble) * batch.factors[:, np.newaxis]
        if centre is not None:
            found = found - np.outer(batch.shifts.astype(np.longdouble), batch.mean)
        of_one = (lambda row: kind(row).tocsr()) if sparse.issparse(kind(rows)) else np.array
        np.testing.assert_array_equal(found, alone(rows, centre, of_one))
