"""What a tuned model costs, and how good it is: the best of a random number of tries against all.

    python benchmarks/private_selection.py --data data --examples 10000

For two grids of 20 settings, under one target: the library's defaults, untuned; `PrivateSelection`;
every setting once, with the target shared among them (naive); and the best setting as if choosing
were free.
"""

import argparse
import json
import time
import warnings
from pathlib import Path

import datasets
import numpy as np
from sklearn.model_selection import ParameterGrid

import lastiterate as li
from lastiterate.linear_model import PrivateLogisticRegression, PrivateScore, PrivateSelection
from lastiterate.run.serialise import from_dict
from lastiterate.train.defaults import gaussian_parameter

# Settings that the library chooses well by itself; and one that it cannot know, the size of rows.
GRIDS = {
    "clip": {"clip_norm": [0.03, 0.06, 0.125, 0.25, 0.5], "l2": [0.0, 1e-4, 1e-3, 1e-2]},
    "size": {"feature_bound": np.geomspace(1e-3, 1e3, 20).tolist()},
}
SIZES = {"clip": 1.0, "size": 0.03}
DELTA = 1e-5
SCORING = 0.2


def model(labels, **settings):
    fixed = {"batches": "cyclic", "epochs": 5, "counting": 0.0, "delta": DELTA}
    return PrivateLogisticRegression(classes=labels, **(fixed | settings))


def all_of_them(rows, targets, labels, mu, settings):
    """Every setting, and a noisy score of each: the parts of this mu of each."""
    each = mu / np.sqrt(len(settings))
    part = li.GaussianProfile(each * np.sqrt(1 - SCORING**2)).epsilon(DELTA)
    score = li.GaussianProfile(each * SCORING).epsilon(DELTA)
    fitted = [model(labels, epsilon=part, **one).fit(rows, targets) for one in settings]
    scores = [PrivateScore.of(m, rows, targets, epsilon=score).value for m in fitted]
    return fitted[int(np.argmax(scores))]


def measured(name, folder, examples, epsilon, repeats, kind):
    grid, settings = GRIDS[kind], list(ParameterGrid(GRIDS[kind]))
    rows, targets, test_rows, test_targets = datasets.load(name, folder)
    chosen = np.random.default_rng(0).permutation(len(rows))[:examples]
    rows, targets, labels = rows[chosen], targets[chosen], np.unique(targets).tolist()
    rows, test_rows = SIZES[kind] * rows, SIZES[kind] * test_rows
    mu = gaussian_parameter(epsilon, DELTA)

    def right(fitted):
        return 100 * fitted.score(test_rows, test_targets)

    def several(make, repeats=repeats):
        values = [right(make()) for _ in range(repeats)]
        return round(float(np.mean(values)), 2), round(float(np.std(values)), 2)

    start = time.perf_counter()
    default = several(lambda: model(labels, epsilon=epsilon).fit(rows, targets))
    oracle = best_setting(several, labels, epsilon, rows, targets, settings)
    selection = PrivateSelection(model(labels), grid, epsilon=epsilon, delta=DELTA, scoring=SCORING)
    tuned = several(lambda: selection.fit(rows, targets))
    naive = several(lambda: all_of_them(rows, targets, labels, mu, settings))
    certificate = json.loads(selection.certificate_)
    one_try = li.account(from_dict(certificate["selection"]["candidates"][0]["run"]))
    return {
        "data": name,
        "grid": kind,
        "examples": examples,
        "epsilon": round(selection.privacy_.epsilon(DELTA), 4),
        "epsilon of one try": round(one_try.epsilon(DELTA), 4),
        "epsilon of 20 tries, composed": round(
            li.compose(*[li.GaussianProfile(one_try.gdp())] * 20).epsilon(DELTA), 4
        ),
        "accuracy, defaults": default,
        "accuracy, PrivateSelection": tuned,
        "accuracy, all 20 under the same epsilon": naive,
        "accuracy, best setting if choosing were free": oracle,
        "seconds": round(time.perf_counter() - start, 1),
    }


def best_setting(several, labels, epsilon, rows, targets, settings):
    return max(
        several(lambda one=one: model(labels, epsilon=epsilon, **one).fit(rows, targets), 2)
        for one in settings
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--sets", nargs="+", default=["adult", "imdb"])
    parser.add_argument("--examples", type=int, default=10_000)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--grids", nargs="+", default=list(GRIDS), choices=list(GRIDS))
    parser.add_argument("--results", type=Path)
    options, results = parser.parse_args(), []
    warnings.simplefilter("ignore")
    for name in options.sets:
        for kind in options.grids:
            sizes = (options.examples, options.epsilon, options.repeats)
            found = measured(name, options.data, *sizes, kind)
            results.append(found)
            for what, value in found.items():
                print(f"{what:46} {value}")
            print(flush=True)
            if options.results is not None:
                options.results.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
