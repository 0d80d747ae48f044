"""R2 of private regression on test rows, against AdaSSP, its boosted form, and without privacy.

Every setting is the library's own default, and ranges are the same for all (`regression_data.py`).
Results are kept in `regression.json` after every fit, and a run goes on from there.

    python benchmarks/regression.py --data folder --tasks synthetic ames --seeds 3
"""

import argparse
import itertools
import json
import warnings
from pathlib import Path

import numpy as np
import regression_data
import rivals
from sklearn.linear_model import Ridge

from lastiterate.linear_model.regressors import PrivateHuberRegressor
from lastiterate.linear_model.regressors import PrivateRidge

KEPT = Path(__file__).with_suffix(".json")
EPSILONS = ("0.5", "1", "3")
ROUNDS = (2, 5, 10)  # of the boosted form, which has the best of them on the test rows


def own(make, task, epsilon, adjacency, seed):
    """R2 of one of the library's regressors, predictions within the declared range."""
    model = make(
        epsilon=epsilon,
        adjacency=adjacency,
        feature_bound=task.bound,
        target_range=task.declared,
        random_state=seed,
    ).fit(task.rows, task.targets)
    return r2(np.clip(model.predict(task.test_rows), *task.declared), task.test_targets)


def r2(guess, truth):
    return float(1 - np.sum((guess - truth) ** 2) / np.sum((truth - truth.mean()) ** 2))


def score(method, task, epsilon, adjacency, seed):
    if method in ("ridge", "huber"):
        make = PrivateRidge if method == "ridge" else PrivateHuberRegressor
        return own(make, task, epsilon, adjacency, seed)
    data = task.rows, task.targets, task.test_rows, task.test_targets
    known = {"bound": task.bound, "declared": task.declared}
    return max(
        rivals.adassp(data, epsilon, adjacency, seed, rounds=rounds, **known)
        for rounds in ((1,) if method == "adassp" else ROUNDS)
    )


def main():
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tasks", nargs="+", default=list(regression_data.LOADERS))
    parser.add_argument("--adjacency", default="replace", choices=["zero-out", "replace"])
    parser.add_argument("--epsilons", nargs="+", default=list(EPSILONS))
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    results = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    for name in options.tasks:
        task = regression_data.load(name, options.data)
        plain = Ridge(1e-3).fit(task.rows, task.targets).predict(task.test_rows)
        results[f"{name}/not private"] = round(r2(plain, task.test_targets), 4)
        methods = ("adassp", "boosted", "ridge", "huber")
        for epsilon, method in itertools.product(options.epsilons, methods):
            for seed in range(options.seeds):
                key = f"{name}/{options.adjacency}/{epsilon}/{method}/{seed}"
                if key in results:
                    continue
                found = score(method, task, float(epsilon), options.adjacency, seed)
                results[key] = round(found, 4)
                KEPT.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
                print(key, results[key], flush=True)


if __name__ == "__main__":
    main()
