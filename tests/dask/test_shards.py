"""Rows count on workers as by themselves; what cannot be used is refused, and not quoted."""

import io
import logging

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from lastiterate.dask import ClusterFailure, PrivateLogisticRegression, PrivateRidge
from lastiterate.dask.shards import Shard, ShardPlan
from lastiterate.errors import InvalidParameter
from lastiterate.train.centring import sum_in_units
from lastiterate.train.objectives import Logistic
from lastiterate.train.rows import far_rows

from ..train.test_row_independence import BOUND, CENTRES, DTYPES, alone, rows_of
from .problems import as_they_are


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


@pytest.mark.parametrize("lengths", [(40,), (1,) * 40, (17, 1, 22)], ids=len)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", [np.array, np.asfortranarray, sparse.csr_array, sparse.coo_array])
class TestPartitions:
    def test_what_is_published_beside_the_model_is_the_same(self, kind, dtype, lengths):
        rows = rows_of(11, dtype)
        found = shard(rows, lengths, kind).survey()
        assert (found.long, found.short) == far_rows(rows, BOUND)
        thick = kind in (np.array, np.asfortranarray)
        here = sum_in_units(rows if thick else kind(rows).tocsr(), bound=BOUND)
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


SECRET = 0.123456789
ROWS, LABELS = np.full((200, 3), SECRET), np.arange(200) % 2
X, Y = da.from_array(ROWS, chunks=(20, 3)), da.from_array(LABELS, chunks=20)


def with_block(number, change):
    """The rows, with one chunk changed."""

    def changed(block, block_info=None):
        at = block_info[0]["chunk-location"][0] if block_info else -1
        return change(block) if at == number else block

    return X.map_blocks(changed, dtype=float, meta=np.empty((0, 0)))


def not_finite():
    broken = ROWS.copy()
    broken[75, 1] = np.nan
    return da.from_array(broken, chunks=(2, 3))


def raises(block):
    raise ValueError(f"Alice has {block[0, 0]}")


def of_single(block):
    return block.astype(np.float32)


TABLE = dd.from_pandas(
    pd.DataFrame({"a": ROWS[:, 0], "b": ["Alice"] * 200, "y": LABELS}), npartitions=4
)
DELAYED = [dask.delayed(ROWS), dask.delayed(ROWS[:, :2])]
READ = {"in_memory": False}
SINGLE = "X must be of float64 throughout; found float32 .chunk 4"
# Rows and targets, what is said of them, and settings.
REFUSED = {
    "not finite in one chunk": (not_finite(), Y, r"X must be finite.*chunk 37", {}),
    "single precision in one chunk": (with_block(4, of_single), Y, SINGLE, {}),
    "the same, read anew": (with_block(4, of_single), Y, SINGLE, READ),
    "another shape in one chunk": (
        with_block(7, lambda block: block[:1]), Y, "20 rows and 3 columns.*chunk 7", {},
    ),
    "a sparse chunk": (
        with_block(8, sparse.csr_matrix), Y, "all dense or all sparse.*chunk 8", {},
    ),
    "a frame as a chunk": (with_block(8, pd.DataFrame), Y, "numpy arrays or.*chunk 8", {}),
    "that cannot be computed": (
        with_block(9, raises), Y, r"chunk 9 could not be computed \(a ValueError", {},
    ),
    "that cannot be read": (
        with_block(9, raises), Y, "readable; found a ValueError .chunk 9", READ,
    ),
    "fewer rows than targets": (
        X[da.arange(200, chunks=20) % 10 == 0], Y, "y must be as long as X, 20;", {},
    ),
    "blocks of columns": (X.rechunk((50, 2)), Y, "blocks of whole rows", {}),
    "an empty chunk": (
        da.from_array(ROWS, chunks=((10, 0, 190), (3,))), Y, "none in chunk 1", {},
    ),
    "text in a frame": (
        TABLE[["a", "b"]], TABLE["y"], "numbers alone.*1 columns that are none",
        {"feature_bound": 1.0},
    ),
    "text": (X.astype(str), Y, "float32 or float64; found", {}),
    "no collection": (ROWS, Y, "a dask array or data frame", {}),
    "targets that are no collection": (X, LABELS, "a dask array or data frame", {}),
    "no file": ("nowhere", Y, "a path that exists", {}),
    "several widths": (
        DELAYED, [dask.delayed(LABELS)] * 2, "one width and one kind.*chunk 1", {},
    ),
    "delayed rows and other targets": (DELAYED, Y, "a list of 2 dask.delayed", {}),
    "labels that nobody declared": (X, Y, "classes must be declared", {"classes": None}),
    "fewer targets than rows": (X, Y[:199], "as long as X, 200; found 199", {}),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(client, name):
    """By the number of a chunk; neither the message nor any log quotes the data."""
    rows, targets, match, settings = REFUSED[name]
    heard = io.StringIO()
    handler = logging.StreamHandler(heard)
    logging.getLogger("distributed").addHandler(handler)
    model = PrivateLogisticRegression(**({"classes": [0, 1]} | settings))
    kind = ClusterFailure if name == "that cannot be computed" else InvalidParameter
    try:
        with pytest.raises(kind, match=match) as caught:
            model.fit(rows, targets)
    finally:
        logging.getLogger("distributed").removeHandler(handler)
    assert not hasattr(model, "parameters_")
    said = str(caught.value)
    if kind is InvalidParameter:
        said += heard.getvalue()
        assert caught.value.__cause__ is None
    assert "0.123" not in said
    assert "Alice" not in said


def test_labels_that_are_not_among_those_declared(client):
    """They count, with gradient 0, as they do for rows in memory."""
    model = PrivateLogisticRegression(classes=[0, 5], batches="full", counting=0.0, center=False)
    assert model.fit(X, Y).classes_.tolist() == [0, 5]


def test_targets_that_are_no_numbers(client):
    targets = da.from_array(np.where(np.arange(200) == 77, np.nan, 0.5), chunks=20)
    with pytest.raises(InvalidParameter, match=r"y must be finite numbers.*chunk 3\)"):
        PrivateRidge(target_bound=1.0).fit(X, targets)
