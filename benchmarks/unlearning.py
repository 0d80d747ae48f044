"""Accuracy before and after forgetting, and after training again, with the steps and seconds.

    python benchmarks/unlearning.py --data data

MNIST, three against eight and 12,000 of all ten digits, on rows of norm 1.  Each model is trained
once for epsilon 1; then 1, 10 and 100 rows go, for several targets; beside that, a training without
them.  Writes `unlearning.json` next to itself.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import datasets
import numpy as np

from lastiterate.errors import LastIterateError
from lastiterate.linear_model import PrivateLogisticRegression

KEY, DELTA = bytes(32), 1e-5
ROWS, EPSILONS = (1, 10, 100), (0.1, 0.5, 1.0)
SETTINGS = {
    "epsilon": 1.0,
    "delta": DELTA,
    "batches": "cyclic",
    "l2": 0.01,
    "center": False,
    "counting": 0.0,
}
TASKS = {
    "3 against 8": {"classes": [3, 8], "batch_size": 400, "epochs": 100},
    "ten digits": {"classes": list(range(10)), "batch_size": 400, "epochs": 40},
}
MOST = 12_000  # rows


def timed(work):
    start = time.perf_counter()
    return work(), round(time.perf_counter() - start, 2)


def measured(task, folder):
    rows, targets, test_rows, test_targets = datasets.load("mnist", folder)
    classes = TASKS[task]["classes"]
    rows, test_rows = rows[np.isin(targets, classes)], test_rows[np.isin(test_targets, classes)]
    rows, targets = rows[:MOST], targets[np.isin(targets, classes)][:MOST]
    test_targets = test_targets[np.isin(test_targets, classes)]

    def right(model):
        return round(100 * model.score(test_rows, test_targets), 2)

    def new():
        return PrivateLogisticRegression(**SETTINGS, **TASKS[task])

    model, seconds = timed(lambda: new().fit(rows, targets, key=KEY))
    found = {
        "examples": len(rows),
        "steps": int(model.n_iter_),
        "seconds": seconds,
        "accuracy": right(model),
        "requests": [],
    }
    order = np.random.default_rng(0).permutation(len(rows))
    for many in ROWS:
        gone = order[:many].tolist()
        rest = np.setdiff1d(np.arange(len(rows)), gone)
        again, took = timed(lambda rest=rest: new().fit(rows[rest], targets[rest]))
        for epsilon in EPSILONS:
            one = {"rows": many, "epsilon": epsilon, "again": right(again), "again seconds": took}
            try:
                after, seconds = timed(
                    lambda gone=gone, epsilon=epsilon: model.unlearn(
                        rows, targets, rows=gone, epsilon=epsilon, key=KEY
                    )
                )
            except LastIterateError as error:
                found["requests"].append(one | {"refused": str(error)})
                continue
            steps = after.unlearning_.extra_steps
            found["requests"].append(
                one | {"steps": steps, "seconds": seconds, "accuracy": right(after)}
            )
            print(task, found["requests"][-1], flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", choices=list(TASKS))
    given = parser.parse_args()
    file = Path(__file__).with_suffix(".json")
    results = json.loads(file.read_text()) if file.exists() else {}
    warnings.simplefilter("ignore")
    for task in [given.only] if given.only else TASKS:
        results[task] = measured(task, given.data)
        file.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
