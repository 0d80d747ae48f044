"""Small problems on a cluster, and the same ones here."""

import dask.array as da
import numpy as np

import lastiterate as li
from lastiterate.dask.cluster import shard_blocks
from lastiterate.dask.shards import EncodedTargets, blocks_of
from lastiterate.train.noise import Randomness, SeededBits

from ..train.problems import examples

CHUNKS = (11, 30, 1, 29, 32)  # of 103 rows
ONCE = li.ShuffledOnce(103, 20)


def as_they_are(targets):
    return EncodedTargets(targets)


def on_cluster(client, data, *, chunks=CHUNKS, held=True, made=lambda rows: rows):
    """The same examples, spread over workers; `made` may change every block of rows."""
    rows = da.from_array(data.rows, chunks=(chunks, data.features)).map_blocks(made)
    blocks = blocks_of(rows, da.from_array(data.targets, chunks=(chunks,)), client)
    public = {"bound": data.feature_bound, "intercept": data.intercept}
    return shard_blocks(client, blocks, as_they_are, held=held, **public)


def one_direction_each(count=103):
    """Examples whose gradients have no direction in common, so that a sum tells who is in it."""
    data = examples(count, count, intercept=0.0)
    return type(data)(np.eye(count) / 2, np.zeros(count, dtype=np.intp), 1.0, 0.0)


def seeded(seed=0):
    return Randomness(SeededBits(seed))
