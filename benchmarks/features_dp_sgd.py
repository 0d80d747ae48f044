"""Accuracy of tuned DP-SGD on the features of `features.py`, for comparison with untuned models.

DP-SGD is that of `rivals.py`: Poisson batches, per-example gradients clipped by norm, noise for
every step, calibrated by privacy loss distributions under add-or-remove adjacency.  Every setting
of a grid is trained on all but 10,000 training images and scored on these; the best one is then
trained on all of them, by seed, and scored on the test images.  Results are kept in
`features_dp_sgd.json`.

    python benchmarks/features_dp_sgd.py --data folder --cache folder --cells mnist:1:3,cifar:1:3
"""

import argparse
import itertools
import json
from pathlib import Path

import features
import numpy as np
import rivals

KEPT = Path(__file__).with_suffix(".json")
HELD_OUT = 10_000
# On MNIST and Fashion-MNIST 20 passes were worse, and so were larger batches and shorter steps.
PASSES = 60
BATCHES = (32, 128)  # a pass
GRID = [
    {"clip": clip, "step_size": step}
    for clip, step in itertools.product((0.1, 0.4, 1.0), (64.0, 256.0))
]


def tuned(data, epsilons):
    """The best setting by epsilon, with its accuracy on images that are held out."""
    rows, labels = data[:2]
    kept = slice(None, len(rows) - HELD_OUT), slice(len(rows) - HELD_OUT, None)
    split = [part[where] for where in kept for part in (rows, labels)]
    scores = {epsilon: [] for epsilon in epsilons}
    for batches in BATCHES:
        trials = [(e, {**one, "batches": batches}) for e in epsilons for one in GRID]
        found = rivals.dp_sgd(split, PASSES, 0, trials, poisson=True)
        for (epsilon, setting), accuracy in zip(trials, found, strict=True):
            scores[epsilon].append((100.0 * accuracy, setting))
        best = {e: max(some, key=lambda one: one[0]) for e, some in scores.items()}
        print(batches, best, flush=True)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--kind", default="scattering", choices=["scattering", "mirrored"])
    parser.add_argument("--cells", default="mnist:1:3,fashion:1:3,cifar:1:3")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    for cell in options.cells.split(","):
        name, *given = cell.split(":")
        data = features.features(name, options.data, options.cache, options.kind)
        data = [np.ascontiguousarray(part) for part in data]
        for epsilon, (validated, setting) in tuned(data, [float(one) for one in given]).items():
            scores = [
                100.0 * rivals.dp_sgd(data, PASSES, seed, [(epsilon, setting)], poisson=True)[0]
                for seed in range(options.seeds)
            ]
            found = {
                "accuracy": [round(one, 2) for one in scores],
                "held out": round(validated, 2),
                "setting": setting,
            }
            results = json.loads(KEPT.read_text()) if KEPT.exists() else {}
            results[f"{name}/{options.kind}/{epsilon:g}"] = found
            KEPT.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
            print(name, epsilon, found, flush=True)


if __name__ == "__main__":
    main()
