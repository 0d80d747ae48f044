"""How the constants of the default rule were chosen: on parts of the training data held out.

    python benchmarks/validation.py --data folder --datasets adult imdb --seeds 5
    python benchmarks/validation.py --data folder --datasets adult --settings batches descent
    python benchmarks/validation.py --data folder --settings falling --passes 2 --epsilons 2 4
    python benchmarks/validation.py --data folder --datasets tables --epsilons 0.5 1 3

No test set is read.  For each split a fifth of the training rows is held out; all settings of a
group are trained on the same rows from the same seeds, and compared with the first of them.
"""

import argparse
import csv
import gzip
import itertools
import warnings
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest import mock

import datasets
import numpy as np
import regression_data
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

from lastiterate.linear_model import PrivateHuberRegressor, PrivateLogisticRegression, PrivateRidge
from lastiterate.linear_model import estimator as fit_inputs
from lastiterate.train import defaults, noisy_descent
from lastiterate.train import defaults as centring_share
from lastiterate.train.centring import RowReach
from lastiterate.train.noisy_descent import State
from lastiterate.train.objectives import Huber, Objective

EPSILONS = (0.5, 2.0)
CLASSIFICATION = {
    "default": {},
    "not centred": {"center": False},
    "share of mu .1": {"share": 0.1},
    "share of mu .2": {"share": 0.2},
    "reach .65": {"reach": 0.65},
    "reach 1": {"reach": 1.0},
    "reach 1.25": {"reach": 1.25},
    "constant 1/4": {"constant": 0.25},
    "constant 1/2": {"constant": 0.5},
}
BATCHES = {
    "default": {},
    "shuffled each epoch": {"batches": "shuffled-each-epoch"},
    "balls and bins": {"batches": "balls-and-bins-each-epoch"},
    "sampled": {"batches": "sampled"},
}
DESCENT = {
    "default": {},
    "release noise 1/8 epoch": {"worth": 0.125},
    "release noise 2 epochs": {"worth": 2.0},
    "release noise 8 epochs": {"worth": 8.0},
    "2/3 of the steps": {"run": {"count": 2 / 3}},
    "3/2 of the steps": {"run": {"count": 1.5}},
    "steps falling to 1/5": {"run": {"last": 0.2}},
    "the same, 3/2 of them": {"run": {"last": 0.2, "count": 1.5}},
    "mean of the last half, as if free": {"averaged": 0.5},
    "mean of the last fifth, as if free": {"averaged": 0.2},
    "label prior, as if free": {"prior": True},
}
LONGER = {
    "default": {},
    "steps 1.5 times as long": {"run": {"longer": 1.5}},
    "the same, 2/3 of them": {"run": {"longer": 1.5, "count": 2 / 3}},
}
FALLING = {
    "default": {},
    "even": {"falling": defaults.EVEN},
    "even, 4/5 of the steps": {"falling": defaults.EVEN, "run": {"count": 0.8}},
    "to 1/5, release worth 1/10": {
        "falling": replace(defaults.FALLING, last=0.2, release_worth=0.1)
    },
    "all of the sum of steps": {"falling": replace(defaults.FALLING, share=1.0)},
    "batches of at least 16": {"falling": replace(defaults.FALLING, least_batch=16)},
}
SHARES = {
    "default": {},
    "not centred": {"center": False},
    "not counted": {"counting": 0.0},
    "neither": {"center": False, "counting": 0.0},
    "share of mu .15, noise up to 1/4": {"share": 0.15, "most_noise": 0.25},
    "noise up to 1": {"most_noise": 1.0},
    "share of mu .3 throughout": {"share": 0.3},
}
CLASSIFIERS = {
    "falling": FALLING,
    "centring": CLASSIFICATION,
    "batches": BATCHES,
    "descent": DESCENT,
    "longer": LONGER,
    "shares": SHARES,
}
REGRESSION = {
    "default": {},
    "not centred": {"center": False},
    "reach 1.2 throughout": {"reach": 1.2},
    "reach 1.35 throughout": {"reach": 1.35},
    "reach 1.5 throughout": {"reach": 1.5},
    "all steps fall": {"few": 10**6},
    "noise .07": {"unit": 0.07},
    "noise .15": {"unit": 0.15},
    "constant 1/8": {"constant": 0.125},
    "constant 1/2": {"constant": 0.5},
    "constant 1": {"constant": 1.0},
}
REGRESSORS = {"ridge": PrivateRidge, "huber": PrivateHuberRegressor}


def other_run(*, count=1.0, last=1.0, longer=1.0):
    """The rule's run with as many times the steps, falling to a share of the first, calibrated."""

    def made(objective, settings, *, features, **known):
        run = defaults.default_run(objective, settings, features=features, **known)
        # A pass more or less is not counted: what is asked is whether the descent is better.
        steps = max(1, round(run.steps * count))
        sizes = longer * run.step_size * np.linspace(1.0, last, steps)
        changed = run.replace(
            steps=steps,
            step_size=float(sizes[0]) if last == 1.0 else tuple(sizes.tolist()),
            sensitivity=run.sensitivity * (1 + 1e-3),  # room for the charge of another schedule
        )
        other_releases = defaults.default_releases(settings, run, features)
        return defaults._calibrate_run(
            changed, settings.epsilon, settings.delta, "noise", other_releases
        )

    return made


class Averaging:
    """Publishes the mean of the last share of the iterates, as if it cost nothing."""

    def __init__(self, share):
        self.share, self.iterates = share, []

    def stepping(self, usual):
        """A step that is remembered."""

        def step(state, *rest):
            usual(state, *rest)
            self.iterates.append(state.parameters.copy())

        return step

    def published(self, run, state, grid, randomness):
        kept = max(1, round(self.share * run.steps))
        mean = np.mean(self.iterates[-kept:], axis=0)
        self.iterates.clear()
        drawn = randomness.rounded_normals(mean.shape, grid.bits) * 2.0**-grid.bits
        return mean + run.release_noise_std * drawn


@contextmanager
def constants(
    estimator,
    *,
    share=None,
    most_noise=None,
    most_share=None,
    reach=None,
    constant=None,
    worth=None,
    run=None,
    averaged=None,
    falling=None,
    unit=None,
    few=None,
):
    """The default rule with other constants."""
    averaging = None if averaged is None else Averaging(averaged)
    patches = [
        (centring_share, "LEAST_SHARE", share),
        (centring_share, "MOST_SHARE", most_share or share),
        (centring_share, "_TOO_MUCH_NOISE", most_noise),
        (defaults, "EVEN", worth and replace(defaults.EVEN, release_worth=worth)),
        (defaults, "FALLING", falling),
        (estimator, "_reach", reach and RowReach(reach)),
        (estimator, "_constant", constant),
        (Huber, "output_unit", unit),
        (Objective, "few_rows", few),
        (Huber, "few_rows", few),
        (fit_inputs, "default_run", None if run is None else other_run(**run)),
        (State, "step", averaging and averaging.stepping(State.step)),
        (noisy_descent, "_with_release_noise", averaging and averaging.published),
    ]
    held = [mock.patch.object(owner, name, x) for owner, name, x in patches if x is not None]
    defaults._default_run.cache_clear()
    for patch in held:
        patch.start()
    try:
        yield
    finally:
        for patch in held:
            patch.stop()
        defaults._default_run.cache_clear()


def split(rows, targets, seed, most):
    """A fifth held out, the rest, or as many of it, to train on."""
    order = np.random.default_rng(1_000 + seed).permutation(len(targets))
    held = len(targets) // 5
    kept = order[held:][:most]
    return rows[kept], targets[kept], rows[order[:held]], targets[order[:held]]


def scores(make, data, options, changes):
    rows, targets = data
    found = []
    for seed in range(options.seeds):
        train, truth, held, held_truth = split(rows, targets, seed, options.examples)
        rest = dict(changes)
        own = ("center", "counting", "batches")
        settings = {name: rest.pop(name) for name in own if name in rest}
        if rest.pop("prior", False):
            labels, counts = np.unique(truth, return_counts=True)
            settings["class_prior"] = dict(
                zip(labels.tolist(), (counts / counts.sum()).tolist(), strict=True)
            )
        model = make(random_state=seed, epochs=options.passes, **settings)
        with constants(type(model), **rest):
            found.append(100 * model.fit(train, truth).score(held, held_truth))
    return np.array(found)


def compare(title, make, data, options, settings):
    first = None
    for name, changes in settings.items():
        found = scores(make, data, options, changes)
        first = found if first is None else first
        gain = found - first
        error = gain.std(ddof=1) / len(gain) ** 0.5 if len(gain) > 1 else float("nan")
        print(
            f"{title:<28}{name:<36}{found.mean():8.2f}{gain.mean():+8.2f} +- {error:.2f}",
            flush=True,
        )


def adult_ages(folder):
    """Ages from all else, in [17, 90]; the hours a week from all else, in [0, 100]."""
    rows = datasets.load("adult", folder)[0]
    with gzip.open(Path(folder) / "adult" / "adult.data.gz", "rt") as file:
        table = [row for row in csv.reader(file) if len(row) == 15]
    start = 0
    for column, cuts in datasets.ADULT_NUMBERS.items():
        width = len(cuts) + 1
        if column in (0, 12):
            rest = np.delete(rows, np.s_[start : start + width], axis=1)
            yield column, datasets.unit_rows(rest), np.array([float(row[column]) for row in table])
        start += width


def tables(folder):
    """Training rows of `regression_data.py`, with the public bounds."""
    for name in regression_data.LOADERS:
        task = regression_data.load(name, folder)
        bounds = {"feature_bound": task.bound, "target_range": task.declared}
        yield name, bounds, (task.rows, task.targets)


def regressions(folder):
    ranges = {0: ("age", (17, 90)), 12: ("hours", (0, 100))}
    for column, rows, targets in adult_ages(folder):
        name, declared = ranges[column]
        yield name, {"target_range": declared}, (rows, targets)
    for offset in (0.0, 2.0, 5.0):
        rng = np.random.default_rng(0)
        rows = datasets.unit_rows(rng.normal(size=(20_000, 10)))
        targets = 3 * rows[:, 0] + offset + 0.1 * rng.normal(size=20_000)
        bounds = {"target_range": (-3 - offset, 3 + offset)}
        yield f"offset {offset:g}", bounds, (rows, targets)


def embeddings(classes, examples, width=256):
    """Unit rows in a cone, of classes that overlap; as sentence embeddings are."""
    rng = np.random.default_rng(classes)
    labels = rng.integers(0, classes, examples)
    middle, apart = rng.normal(size=width), rng.normal(size=(classes, width))
    rows = 0.5 * middle + 0.35 * apart[labels] + rng.normal(size=(examples, width))
    return datasets.unit_rows(rows), labels


def bundled(load, low=0.0, high=1.0):
    """A set of scikit-learn's, columns mapped to [-1, 1] and rows within 1."""
    rows, labels = load(return_X_y=True)
    ends = (rows.min(axis=0), rows.max(axis=0)) if high is None else (low, high)
    rows = 2.0 * (rows - ends[0]) / np.maximum(ends[1] - ends[0], 1e-12) - 1.0
    return rows / rows.shape[1] ** 0.5, labels


SMALL = {
    "digits": partial(bundled, load_digits, 0.0, 16.0),
    "breast cancer": partial(bundled, load_breast_cancer, high=None),
    "wine": partial(bundled, load_wine, high=None),
    "20 topics": partial(embeddings, 20, 11_300),
    "8 topics": partial(embeddings, 8, 5_500),
}


def prospects(folder, options):
    """Accuracy where there are few examples for the noise; see linear_model/fit_warnings.py."""
    rows, labels = datasets.load("mnist", folder)[:2]
    mu = defaults.gaussian_parameter(0.5, 1e-5)
    for classes, examples in itertools.product((2, 10), (50, 100, 200, 400, 800, 1_600)):
        those = labels < classes
        found = []
        for seed in range(options.seeds):
            train, truth, held, held_truth = split(rows[those], labels[those], seed, examples)
            model = PrivateLogisticRegression(epsilon=0.5, classes=range(classes), epochs=10)
            found.append(100 * model.fit(train, truth).score(held, held_truth))
        worth = examples * mu / 2 / classes
        print(f"{classes:>3} digits {examples:>6} examples {worth:7.2f} {np.mean(found):6.1f} %")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="with mnist/, adult/ and the npz files")
    names = [*datasets.LOADERS, *SMALL, "regression", "tables", "prospects"]
    parser.add_argument("--datasets", nargs="+", default=names, choices=names)
    parser.add_argument("--settings", nargs="+", default=["centring"], choices=list(CLASSIFIERS))
    parser.add_argument("--epsilons", nargs="+", type=float, default=list(EPSILONS))
    parser.add_argument("--adjacency", default="replace", choices=("replace", "zero-out"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--passes", type=int, default=20)
    parser.add_argument("--examples", type=int, help="to train on, at most")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name, epsilon in itertools.product(options.datasets, options.epsilons):
        if name == "prospects":
            continue
        if name in ("regression", "tables"):
            known = regressions if name == "regression" else tables
            for (kind, regressor), (task, bounds, data) in itertools.product(
                REGRESSORS.items(), known(options.data)
            ):

                def make(*, epsilon=epsilon, bounds=bounds, regressor=regressor, **settings):
                    return regressor(epsilon=epsilon, **bounds, **settings)

                compare(f"{task}, {kind}, eps {epsilon:g}", make, data, options, REGRESSION)
            continue

        def make(*, epsilon=epsilon, **settings):
            return PrivateLogisticRegression(
                epsilon=epsilon, adjacency=options.adjacency, **settings
            )

        load = SMALL.get(name) or partial(datasets.load, name, options.data)
        rows, labels = load()[:2]
        for settings in options.settings:
            title = f"{name}, eps {epsilon:g}"
            compare(title, make, (rows, labels), options, CLASSIFIERS[settings])
    if "prospects" in options.datasets:
        prospects(options.data, options)


if __name__ == "__main__":
    main()
