"""What a step costs on a Dask cluster: against the loop on rows in memory, and against the disk.

    python benchmarks/dask_steps.py overhead          # milliseconds a step beyond the local loop
    python benchmarks/dask_steps.py network           # bytes, where the network is slow
    python benchmarks/dask_steps.py disk --gigabytes 6 --folder /tmp    # Zarr against reading it
    python benchmarks/dask_steps.py scale             # the cost model, for data nobody here has
    python benchmarks/dask_steps.py all --write benchmarks/dask_measured.md

All but `scale` start a LocalCluster.  Times are medians of wall time, which load on the machine
adds to: what they are compared with is timed in between.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import time
from pathlib import Path

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

import lastiterate as li
from lastiterate.dask.cluster import shard_blocks
from lastiterate.dask.estimators import StepCost
from lastiterate.dask.shards import EncodedTargets, Shard, blocks_of
from lastiterate.train.data import bounded
from lastiterate.train.noise import Randomness, SeededBits
from lastiterate.train.objectives import Logistic

OBJECTIVE = Logistic()


def as_they_are(targets):
    return EncodedTargets(targets)


def cluster(workers, **settings):
    return LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0", **settings)


def timed(gradients, parameters, steps):
    """Seconds of each of so many steps, by the clock and of this process."""
    found = []
    for _, gradient in zip(range(steps), gradients, strict=False):
        begun = time.perf_counter(), time.process_time()
        gradient(parameters)
        found.append((time.perf_counter() - begun[0], time.process_time() - begun[1]))
    return found


def clock(times):
    return [one for one, _ in times]


def local_gradients(rows, targets, rule):
    from functools import partial

    from lastiterate.train.noisy_descent import batch_sequence
    from lastiterate.train.noisy_descent import gradient_sum

    own, batches = batch_sequence(
        rule, bounded(rows, targets, bound=1.0, intercept=0.125), Randomness(SeededBits(0))
    )
    return (partial(gradient_sum, OBJECTIVE, own, chosen) for chosen in batches)


def on_workers(client, rows, targets, chunk, **settings):
    blocks = blocks_of(
        da.from_array(rows, chunks=(chunk, rows.shape[1])),
        da.from_array(targets, chunks=chunk),
        client,
    )
    return shard_blocks(client, blocks, as_they_are, bound=1.0, intercept=0.125, **settings)


def overhead(workers=(1, 2, 4), chunks_each=(1, 8), steps=300, rows=2_000, width=50):
    """Milliseconds a step, beyond the loop on the same rows in memory."""
    rng = np.random.default_rng(0)
    features, targets = rng.normal(size=(rows, width)), rng.integers(0, 2, rows)
    rule = li.ShuffledOnce(rows, rows // 2)
    start = np.zeros((1, width + 1))
    yield f"A step on {rows:,} rows of {width} columns, beyond the loop on the same rows here."
    yield ""
    yield (
        "| workers | chunks on each | median ms | least ms | of that driver and scheduler compute, "
        "median ms | load of the machine |"
    )
    yield "|---:|---:|---:|---:|---:|---:|"
    for count in workers:
        with cluster(count) as running, Client(running) as client:
            kinds = {"here": local_gradients(features, targets, rule)}
            for chunks in chunks_each:
                shards = on_workers(client, features, targets, rows // (count * chunks))
                kinds[chunks] = shards.batches(rule, OBJECTIVE, Randomness(SeededBits(0)))
            found = {kind: [] for kind in kinds}
            for step in range(steps + 20):  # by turns, so that all meet the same load
                for kind, batches in kinds.items():
                    seconds = timed(batches, start, 1)
                    found[kind] += seconds if step >= 20 else []
            for chunks in chunks_each:
                there, here = clock(found[chunks]), clock(found["here"])
                median, least = (
                    1e3 * (average(there) - average(here)) for average in (statistics.median, min)
                )
                own = 1e3 * statistics.median(cpu for _, cpu in found[chunks])
                load = os.getloadavg()[0]
                measured = (
                    count,
                    chunks,
                    f"{median:.1f}",
                    f"{least:.1f}",
                    f"{own:.1f}",
                    f"{load:.1f}",
                )
                yield f"| {' | '.join(map(str, measured))} |"


class Slow(Shard):
    """Answers as if every byte had to cross a slow network, both ways."""

    bytes_a_second = 1e6

    def gradient(self, parameters, chosen):
        answer = super().gradient(parameters, chosen)
        time.sleep(2 * parameters.nbytes / self.bytes_a_second)
        return answer


def network(workers=2, steps=30, width=20_000):
    """A step against what the model says of it, where messages are large and the network slow."""
    from lastiterate.dask import cluster as shard_actors

    rng = np.random.default_rng(0)
    features, targets = rng.normal(size=(200, width)), rng.integers(0, 2, 200)
    start, rule = np.zeros((1, width + 1)), li.FullBatch(200)
    found = {}
    with cluster(workers) as running, Client(running) as client:
        for kind in (Shard, Slow):
            shard_actors.Shard = kind
            shards = on_workers(client, features, targets, 200 // workers)
            batches = shards.batches(rule, OBJECTIVE, Randomness(SeededBits(0)))
            timed(batches, start, 5)
            found[kind] = statistics.median(clock(timed(batches, start, steps)))
    # Each worker has its own connection here, so that they wait side by side.
    each = StepCost(width + 1, 1, 1, network=Slow.bytes_a_second)
    yield (
        f"{each.bytes:,.0f} bytes a step to and from each worker at {Slow.bytes_a_second:,.0f} a "
        f"second: {each.bytes / each.network:.3f} s by the model; measured "
        f"{found[Slow] - found[Shard]:.3f} s more than without that network."
    )


def disk(gigabytes, folder, width=1_000, workers=2, memory="2GB", chunk=20_000, passes=1):
    """Rows a second that are trained on, where workers cannot hold them, against reading them."""
    path = Path(folder) / "lastiterate-bench.zarr"
    shutil.rmtree(path, ignore_errors=True)
    batch = 4 * workers * chunk
    rows = int(gigabytes * 1e9 / (4 * width)) // batch * batch
    shape, size = (rows, width), rows * width * 4
    try:
        with cluster(workers, memory_limit=memory) as running, Client(running) as client:
            drawn = da.random.default_rng(0).random(shape, dtype=np.float32, chunks=(chunk, width))
            da.to_zarr(drawn / np.float32(width**0.5), str(path), compressors=None)
            targets = da.zeros(rows, dtype=np.int64, chunks=chunk)
            blocks = blocks_of(da.from_zarr(str(path)), targets, client)
            shards = shard_blocks(client, blocks, as_they_are, bound=1.0, intercept=0.0, held=False)
            rule = li.ShuffledBlocksOnce(rows, batch)
            batches = shards.batches(rule, OBJECTIVE, Randomness(SeededBits(0)))
            start = np.zeros((1, width))
            yield f"{size / 1e9:.1f} GB of float32 in Zarr, {workers} workers of {memory}."
            yield ""
            yield "| pass | read, MB/s | trained, MB/s | ratio |"
            yield "|---:|---:|---:|---:|"
            for number in range(passes):
                parts = [(str(path), first, chunk, workers) for first in range(workers)]
                begun = time.perf_counter()
                client.gather(client.map(read, parts, pure=False))
                reading = size / (time.perf_counter() - begun) / 1e6
                training = size / sum(clock(timed(batches, start, rule.batches_per_epoch))) / 1e6
                ratio = training / reading
                yield f"| {number + 1} | {reading:.0f} | {training:.0f} | {ratio:.2f} |"
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            yield ""
            yield f"Driver and scheduler, one process: {peak:.0f} MB at most."
    finally:
        shutil.rmtree(path, ignore_errors=True)


def read(what):
    """All of the chunks of one worker, and nothing done with them."""
    import zarr

    path, first, chunk, workers = what
    array = zarr.open_array(path, mode="r")
    for start in range(first * chunk, array.shape[0], workers * chunk):
        array[start : start + chunk]


def scale(rows=10**9, width=1_000, workers=100, delta=1e-10, network=1.25e9, disk=2e8):
    """Steps, hours and epsilon of a logistic regression, for several penalties."""
    cost = StepCost(width, 1, workers, network=network)
    held = rows * width * 4 / workers
    rule = li.ShuffledBlocksOnce(rows, cost.hidden_rows)
    yield (
        f"{rows:,} rows of {width:,} columns of float32 on {workers} workers, {held / 1e9:.0f} GB "
        f"each; {network / 1e6:,.0f} MB/s at the driver, {disk / 1e6:,.0f} MB/s of every disk. A "
        f"step sends {cost.bytes / 1e6:.1f} MB, waits {cost.step_seconds} s for messages, and sees "
        f"{rule.batch_size:,} rows; the noise is the same in all runs, delta {delta:g}."
    )
    yield ""
    yield "| penalty | steps | passes | hours, rows held | hours, rows read | epsilon |"
    yield "|---:|---:|---:|---:|---:|---:|"
    for l2 in (0.0, 1e-4, 1e-3, 1e-2):
        for steps in (20_000, 200_000):
            run = _described(rule, l2, steps)
            passes = steps * rule.batch_size / rows
            memory = steps * cost.seconds(rule.batch_size) / 3_600
            reading = memory + passes * held / disk / 3_600
            yield (
                f"| {l2:g} | {steps:,} | {passes:.0f} | {memory:.2f} | {reading:.1f} | "
                f"{li.account(run).epsilon(delta):.3f} |"
            )


def _described(rule, l2, steps, noise=2e-6):
    loss = OBJECTIVE.loss(radius=1.0, l2=l2)
    step = 2.0 / (loss.smoothness + l2) * (1 - 1e-9)
    return li.TrainingRun(
        loss=loss,
        sensitivity=OBJECTIVE.sensitivity(radius=1.0, adjacency="replace"),
        batches=rule,
        steps=steps,
        step_size=step,
        noise_std=noise,
        release_noise_std=step * noise * (rule.batches_per_epoch / 2) ** 0.5,
    )


PARTS = {
    "overhead": "Messages of a step",
    "network": "A slow network",
    "disk": "Rows that workers cannot hold",
    "scale": "A thousand million rows",
}
PAGE = """# Dask: what was measured

Printed by `python benchmarks/dask_steps.py all`, on {cores} cores. What is meant is said on
[the page about Dask](../docs/dask.md).
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=[*PARTS, "all"])
    parser.add_argument("--gigabytes", type=float, default=6.0)
    parser.add_argument("--passes", type=int, default=1)
    parser.add_argument("--folder", default="/tmp")
    parser.add_argument("--write", type=Path)
    asked = parser.parse_args()
    made = {
        "overhead": overhead,
        "network": network,
        "disk": lambda: disk(asked.gigabytes, asked.folder, passes=asked.passes),
        "scale": scale,
    }
    page = [PAGE.format(cores=os.cpu_count())]
    for name in PARTS if asked.what == "all" else [asked.what]:
        page.append(f"## {PARTS[name]}\n")
        print(page[-1])
        for line in made[name]():
            print(line, flush=True)
            page.append(line)
        page.append("")
    if asked.write is not None:
        asked.write.write_text("\n".join(page).rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
