"""Accuracy before and after unlearning, and after training again, with the steps and seconds.

    python benchmarks/unlearning.py --data data
    python benchmarks/unlearning.py

MNIST, three against eight and 12,000 of all ten digits, on rows of norm 1.  Models are trained for
epsilon 1; then 1, 10 and 100 rows go, for several targets; beside that, a training without them.
All of it several times, and averaged.  Writes `unlearning.json` next to itself, whose table the
second command prints.
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
# Rows, epsilon, and how many times as much noise on release.
ASKED = [(1, 0.1, 2.5), *((many, epsilon, 1.0) for many in ROWS for epsilon in EPSILONS)]
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
    return work(), time.perf_counter() - start


def measured(task, folder, repeats):
    rows, targets, test_rows, test_targets = datasets.load("mnist", folder)
    classes = TASKS[task]["classes"]
    rows, test_rows = rows[np.isin(targets, classes)], test_rows[np.isin(test_targets, classes)]
    rows, targets = rows[:MOST], targets[np.isin(targets, classes)][:MOST]
    test_targets = test_targets[np.isin(test_targets, classes)]

    def right(model):
        return 100 * model.score(test_rows, test_targets)

    def new():
        return PrivateLogisticRegression(**SETTINGS, **TASKS[task])

    tries = []
    for number in range(repeats):
        order = np.random.default_rng(number).permutation(len(rows))
        model, seconds = timed(lambda: new().fit(rows, targets, key=KEY))
        known = {"accuracy": right(model), "seconds": seconds, "steps": int(model.n_iter_)}
        for many in ROWS:
            rest = np.setdiff1d(np.arange(len(rows)), order[:many])
            again, took = timed(lambda rest=rest: new().fit(rows[rest], targets[rest]))
            known[f"again {many}"] = {"accuracy": right(again), "seconds": took}
        for many, epsilon, noisier in ASKED:
            gone = order[:many].tolist()
            try:
                after, took = timed(
                    lambda gone=gone, epsilon=epsilon, noisier=noisier, model=model: model.unlearn(
                        rows,
                        targets,
                        rows=gone,
                        epsilon=epsilon,
                        noisier=noisier,
                        key=KEY,
                        at_any_cost=True,
                    )
                )
            except LastIterateError as error:
                known[f"{many} {epsilon} {noisier}"] = {"refused": str(error)}
                continue
            known[f"{many} {epsilon} {noisier}"] = {
                "accuracy": right(after),
                "seconds": took,
                "steps": int(after.unlearning_.extra_steps),
                "staying": after.privacy_.epsilon(DELTA),
            }
        tries.append(known)
        print(task, number, known, flush=True)
    return {"examples": len(rows), "repeats": repeats, **_averaged(tries)}


def _averaged(tries):
    """Means, and standard errors of accuracies, key by key."""
    found = {}
    for key, value in tries[0].items():
        all_ = [one[key] for one in tries]
        if isinstance(value, dict):
            found[key] = _averaged(all_)
        elif isinstance(value, str):
            found[key] = value
        else:
            found[key] = round(float(np.mean(all_)), 4)
            if key == "accuracy":
                found["error"] = round(float(np.std(all_, ddof=1) / len(all_) ** 0.5), 4)
    return found


def table(found):
    """As on the page."""
    lines = [
        "| rows removed | epsilon | release noise | extra steps | accuracy | trained again |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for many, epsilon, noisier in ASKED:
        one, again = found[f"{many} {epsilon} {noisier}"], found[f"again {many}"]
        if "refused" in one:
            continue
        lines.append(
            f"| {many} | {epsilon} | {noisier:g} times | {one['steps']:.0f} | "
            f"{one['accuracy']:.1f} ± {one['error']:.1f} | "
            f"{again['accuracy']:.1f} ± {again['error']:.1f} |"
        )
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="measure again")
    parser.add_argument("--only", choices=list(TASKS))
    parser.add_argument("--repeats", type=int, default=10)
    given = parser.parse_args()
    file = Path(__file__).with_suffix(".json")
    results = json.loads(file.read_text()) if file.exists() else {}
    warnings.simplefilter("ignore")
    for task in [given.only] if given.only else TASKS:
        if given.data is not None:
            results[task] = measured(task, given.data, given.repeats)
            file.write_text(json.dumps(results, indent=1) + "\n")
        print(f"\n{task}: {results[task]['steps']:.0f} steps, {results[task]['accuracy']:.1f} %\n")
        print(table(results[task]))


if __name__ == "__main__":
    main()
