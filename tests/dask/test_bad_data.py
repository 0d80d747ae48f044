"""What cannot be trained on is refused, by the number of a chunk and nothing that it holds."""

import io
import logging

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from lastiterate.dask.cluster import ClusterFailure
from lastiterate.dask.estimators import PrivateLogisticRegression, PrivateRidge
from lastiterate.errors import InvalidParameter

SECRET = 0.123456789
ROWS = np.full((200, 3), SECRET)
LABELS = np.arange(200) % 2
X, Y = da.from_array(ROWS, chunks=(20, 3)), da.from_array(LABELS, chunks=20)

pytestmark = pytest.mark.usefixtures("client")


def refused(match, X=X, y=Y, kind=InvalidParameter, **settings):
    """The message, of which nothing may quote the data; nor may any log."""
    heard = io.StringIO()
    handler = logging.StreamHandler(heard)
    logging.getLogger("distributed").addHandler(handler)
    model = PrivateLogisticRegression(**({"classes": [0, 1]} | settings))
    try:
        with pytest.raises(kind, match=match) as caught:
            model.fit(X, y)
    finally:
        logging.getLogger("distributed").removeHandler(handler)
    assert not hasattr(model, "parameters_")
    said = str(caught.value) + heard.getvalue()
    assert "0.123" not in said
    assert "Alice" not in said
    assert caught.value.__cause__ is None
    return said


def with_block(number, change):
    """The rows, with one chunk changed."""

    def changed(block, block_info=None):
        at = block_info[0]["chunk-location"][0] if block_info else -1
        return change(block) if at == number else block

    return X.map_blocks(changed, dtype=float, meta=np.empty((0, 0)))


class TestRows:
    def test_not_finite_in_one_chunk_of_a_hundred(self):
        broken = ROWS.copy()
        broken[75, 1] = np.nan
        refused(r"X must be finite.*chunk 37", da.from_array(broken, chunks=(2, 3)))

    @pytest.mark.parametrize("held", [True, False])
    def test_of_another_precision_in_one_chunk(self, held):
        mixed = with_block(4, lambda block: block.astype(np.float32))
        refused("X must be of float64 throughout; found float32 .chunk 4", mixed, in_memory=held)

    def test_of_another_shape_in_one_chunk(self):
        refused("20 rows and 3 columns.*chunk 7", with_block(7, lambda block: block[:1]))

    def test_neither_dense_nor_sparse_in_one_chunk(self):
        refused("all dense or all sparse.*chunk 8", with_block(8, sparse.csr_matrix))
        refused("numpy arrays or.*chunk 8", with_block(8, pd.DataFrame))

    def test_that_cannot_be_computed(self):
        def raises(block):
            raise ValueError(f"Alice has {block[0, 0]}")

        with pytest.raises(ClusterFailure, match=r"chunk 9 could not be computed \(a ValueError"):
            PrivateLogisticRegression(classes=[0, 1]).fit(with_block(9, raises), Y)
        refused("readable; found a ValueError .chunk 9", with_block(9, raises), in_memory=False)

    def test_of_another_number_than_targets(self):
        refused("y must be as long as X, 20;", X[da.arange(200, chunks=20) % 10 == 0])

    def test_in_blocks_of_columns(self):
        refused("blocks of whole rows", X.rechunk((50, 2)))

    def test_in_empty_chunks(self):
        empty = da.from_array(ROWS, chunks=((10, 0, 190), (3,)))
        refused("none in chunk 1", empty)

    def test_of_text(self):
        frame = pd.DataFrame({"a": ROWS[:, 0], "b": ["Alice"] * 200, "y": LABELS})
        table = dd.from_pandas(frame, npartitions=4)
        refused(
            "numbers alone.*1 columns that are none",
            table[["a", "b"]],
            table["y"],
            feature_bound=1.0,
        )
        refused("float32 or float64; found", X.astype(str))

    def test_that_are_no_collection(self):
        refused("a dask array or data frame", ROWS)
        refused("a dask array or data frame", X, LABELS)
        refused("a path that exists", "nowhere", Y)

    def test_of_several_kinds_in_a_list(self):
        rows = [dask.delayed(ROWS), dask.delayed(ROWS[:, :2])]
        refused("one width and one kind.*chunk 1", rows, [dask.delayed(LABELS)] * 2)
        refused("a list of 2 dask.delayed", rows, Y)


class TestTargets:
    def test_of_labels_that_nobody_declared(self):
        refused("classes must be declared", classes=None)

    def test_of_another_number(self):
        refused("as long as X, 200; found 199", X, Y[:199])

    def test_of_labels_that_are_not_among_those_declared(self, client):
        """They count, with gradient 0, as they do for rows in memory."""
        model = PrivateLogisticRegression(
            classes=[0, 5], batches="full", counting=0.0, center=False
        )
        assert model.fit(X, Y).classes_.tolist() == [0, 5]

    def test_that_are_no_numbers(self):
        targets = da.from_array(np.where(np.arange(200) == 77, np.nan, 0.5), chunks=20)
        with pytest.raises(InvalidParameter, match=r"y must be finite numbers.*chunk 3\)"):
            PrivateRidge(target_bound=1.0).fit(X, targets)
