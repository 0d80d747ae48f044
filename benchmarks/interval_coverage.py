"""How often confidence intervals cover, on simulated data sets whose optimum is known exactly.

Rows are drawn from finitely many, and targets from finitely many given a row, so the optimum of the
clipped loss over the population is a finite sum's.  Results are kept in `interval_coverage.json`
after every cell, and a run goes on from there.

    python benchmarks/interval_coverage.py --cells logistic:2000:1,ridge:2000:1 --sets 1000
"""

import argparse
import itertools
import json
import warnings
from pathlib import Path

import numpy as np
from scipy.optimize import root
from scipy.special import expit
from scipy.stats import norm

from lastiterate.linear_model.regressors import PrivateHuberRegressor
from lastiterate.linear_model.classifiers import PrivateLogisticRegression
from lastiterate.linear_model.regressors import PrivateRidge
from lastiterate.train.objectives import Huber, Logistic

KEPT = Path(__file__).with_suffix(".json")
LEVEL = 0.95
COEF, INTERCEPT = np.array([3.0, -2.0, 0.0]), 0.5
SLOPES, MIDDLE, ERROR = np.array([0.5, -0.3, 0.0]), 0.1, 0.15
ATOMS = np.array(list(itertools.product(np.linspace(-1.0, 1.0, 5) / 3**0.5, repeat=3)))
ERRORS = norm.ppf((np.arange(41) + 0.5) / 41) * ERROR
MODELS = {
    "logistic": (PrivateLogisticRegression, {}, Logistic(clip=1.0)),
    "ridge": (PrivateRidge, {"target_bound": 1.0}, Huber(clip=1.0)),
    "huber": (PrivateHuberRegressor, {"target_bound": 1.0}, Huber(clip=0.25)),
}


def drawn(kind, examples, rng):
    """Rows and targets of a data set."""
    rows = ATOMS[rng.integers(len(ATOMS), size=examples)]
    if kind == "logistic":
        return rows, rng.random(examples) < expit(rows @ COEF + INTERCEPT)
    return rows, rows @ SLOPES + MIDDLE + rng.choice(ERRORS, size=examples)


def optimum(kind):
    """Coefficients and intercept of the least clipped loss over the population."""
    objective = MODELS[kind][2]
    rows = np.column_stack([ATOMS, np.ones(len(ATOMS))])
    if kind == "logistic":
        targets = np.tile([0, 1], (len(ATOMS), 1))
        positive = expit(ATOMS @ COEF + INTERCEPT)
        weights = np.column_stack([1 - positive, positive])
    else:
        targets = (ATOMS @ SLOPES + MIDDLE)[:, np.newaxis] + ERRORS
        weights = np.full(targets.shape, 1 / ERRORS.size)

    def gradient(w):
        outputs = np.repeat((rows @ w)[:, np.newaxis], targets.shape[1], axis=1)
        residual = objective.residual(outputs, targets) * weights
        return rows.T @ residual.sum(axis=1) / len(rows)

    found = root(gradient, np.append(COEF, INTERCEPT) * 0.5, tol=1e-12)
    assert np.abs(gradient(found.x)).max() < 1e-9, found
    return found.x


def covered(kind, examples, epsilon, sets, adjacency="replace"):
    """The share of sets in which each interval covers, and the mean half width of each."""
    make, settings, _ = MODELS[kind]
    truth = optimum(kind)
    hits, widths = [], []
    for seed in range(sets):
        rows, targets = drawn(kind, examples, np.random.default_rng([seed, examples]))
        model = make(
            epsilon=epsilon,
            adjacency=adjacency,
            intervals=True,
            random_state=seed,
            **settings,
        )
        ends = model.fit(rows, targets).conf_int(LEVEL)
        hits.append((ends[:, 0] <= truth) & (truth <= ends[:, 1]))
        widths.append((ends[:, 1] - ends[:, 0]) / 2)
    shares, width = np.mean(hits, axis=0), np.median(widths, axis=0)
    return {
        "covered": [round(100 * one, 1) for one in shares.tolist()],
        "half width": [float(f"{one:.3g}") for one in width.tolist()],
        "infinite": int(np.isinf(widths).any(axis=1).sum()),
        "sets": sets,
    }


def main():
    warnings.simplefilter("ignore")
    every = [f"{kind}:{n}:{e}" for kind in MODELS for n in (2_000, 10_000, 50_000) for e in (1, 4)]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", default=",".join(every))
    parser.add_argument("--sets", type=int, default=1_000)
    options = parser.parse_args()
    for cell in options.cells.split(","):
        results = json.loads(KEPT.read_text()) if KEPT.exists() else {}
        if results.get(cell, {}).get("sets", 0) >= options.sets:
            continue
        kind, examples, epsilon = cell.split(":")
        found = covered(kind, int(examples), float(epsilon), options.sets)
        print(cell, found, flush=True)
        results[cell] = found
        KEPT.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
