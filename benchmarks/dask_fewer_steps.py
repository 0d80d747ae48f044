"""What fewer steps on larger batches cost, which clusters make where messages would take too long.

    python benchmarks/dask_fewer_steps.py --data folder  # for benchmarks/dask_measured.md

Everything is trained here, without a cluster: with the same settings it makes the same model.
Adult is repeated eight times, so that there are as many rows as make the rule ask for many steps;
of its training rows the last 8,000 are the validation set, and its test set is not used.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
from datasets import load

from lastiterate.linear_model import PrivateLogisticRegression

MOST = (None, 5_000, 3_000, 2_000, 1_000)
PASSES, SEEDS = 20, 2


def synthetic(decay, rows=220_000, width=64, held_out=20_000):
    """Gaussian rows whose k-th column has a standard deviation of k to the power of -decay."""
    rng, scales = np.random.default_rng(0), np.arange(1, width + 1.0) ** -decay
    length = np.sqrt((scales**2).sum())
    features = rng.normal(size=(rows, width)) * scales / length
    features /= np.maximum(1.0, np.linalg.norm(features, axis=1))[:, np.newaxis]
    weights = 2.0 * rng.normal(size=width) / scales * length / np.sqrt(width)
    labels = rng.random(rows) < 1.0 / (1.0 + np.exp(-features @ weights))
    cut = rows - held_out
    features = features.astype(np.float32)
    return features[:cut], labels[:cut], features[cut:], labels[cut:]


def adult(folder, times=8, held_out=8_000):
    rows, labels, *_ = load("adult", folder)
    cut = len(rows) - held_out
    repeated = np.tile(rows[:cut], (times, 1)), np.tile(labels[:cut], times)
    return *repeated, rows[cut:], labels[cut:]


def accuracy(most, rows, labels, others, their_labels):
    """Steps that were made, and the mean share of other rows that are right."""
    size = None if most is None else -(-PASSES * len(rows) // most)
    found = []
    for seed in range(SEEDS):
        model = PrivateLogisticRegression(
            epsilon=1.0,
            delta=1e-6,
            classes=np.unique(labels),
            epochs=PASSES,
            batch_size=size,
            random_state=seed,
        ).fit(rows, labels)
        found.append(model.score(others, their_labels))
    return model.n_iter_, float(np.mean(found))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    data = parser.parse_args().data
    warnings.simplefilter("ignore")
    tasks = {"Adult, eight times": adult(data)}
    for decay in (0.0, 0.5, 1.0):
        tasks[f"synthetic, k^-{decay:g}"] = synthetic(decay)
    print("| rows | steps asked for |", " | ".join(f"{most:,}" for most in MOST[1:]), "|")
    print("|---|---:|", "---:|" * (len(MOST) - 1))
    for name, task in tasks.items():
        found = [accuracy(most, *task) for most in MOST]
        first = f"{100 * found[0][1]:.1f} % ({found[0][0]:,} steps)"
        print(
            f"| {name} | {first} |", " | ".join(f"{100 * one:.1f} %" for _, one in found[1:]), "|"
        )


if __name__ == "__main__":
    main()
