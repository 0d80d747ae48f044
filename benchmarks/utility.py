"""Accuracy of private models, ours untuned against others with defaults and tuned.

    make bench-utility DATA=folder                 (an hour or two; can be taken up again)
    python benchmarks/utility.py --from-results    (the page and the picture, without training)

Rivals are tuned *on the test set*, which flatters them: first over the grids below, then by going
from the best setting of the first seed to its neighbours, one number halved or doubled, two rounds
long; the six best of all that was tried are then compared by all seeds.  delta is 1e-5.  Two
notions of adjacency are kept apart: replacing an example, and leaving it out (which promises less,
so that it looks better).
"""

import argparse
import importlib.util
import itertools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
EPSILONS = (0.5, 1.0, 2.0, 4.0)
PASSES = (20, 2)
DATASETS = ("mnist", "adult", "imdb")
MOST_ROUNDS = 2
FINALISTS = 6


@dataclass(frozen=True)
class Method:
    """`scores(data, passes, seed, trials)` gives the accuracy of each (epsilon, setting)."""

    adjacency: str
    scores: Callable
    default: Mapping = field(default_factory=dict)
    grid: Mapping = field(default_factory=dict)
    limits: Mapping = field(default_factory=dict)
    iterative: bool = True


def one_by_one(accuracy):
    def scores(data, passes, seed, trials):
        return [accuracy(data, epsilon, passes, seed, **setting) for epsilon, setting in trials]

    return scores


def with_common_batches(scores):
    """DP-SGD trains those side by side that have their batches in common."""

    def grouped(data, passes, seed, trials):
        found = [0.0] * len(trials)
        for batches in dict.fromkeys(setting["batches"] for _, setting in trials):
            those = [i for i, (_, setting) in enumerate(trials) if setting["batches"] == batches]
            for i, score in zip(
                those, scores(data, passes, seed, [trials[i] for i in those]), strict=True
            ):
                found[i] = score
        return found

    return grouped


def ours(data, epsilon, passes, seed, *, adjacency):
    from lastiterate.linear_model import PrivateLogisticRegression

    rows, labels, test_rows, test_labels = data
    model = PrivateLogisticRegression(
        epsilon=epsilon, delta=1e-5, epochs=passes, adjacency=adjacency, random_state=seed
    )
    return model.fit(rows, labels).score(test_rows, test_labels)


def gaussian_objective_perturbation(*arguments, **setting):
    from objective_perturbation import accuracy

    return accuracy(*arguments, **setting)


def rival(name, **options):
    def accuracy(*arguments, **setting):
        import rivals

        return getattr(rivals, name)(*arguments, **setting, **options)

    return accuracy


SGD = {
    "default": {"batches": 234, "step_size": 0.1, "clip": 1.0},  # as in Opacus's examples
    "grid": {
        "batches": (10, 40, 160),
        "step_size": (8.0, 32.0, 128.0, 512.0),
        "clip": (0.1, 0.35, 1.0),
    },
    "limits": {"batches": (1, 2_000), "clip": (0.0, 2**0.5)},
}
METHODS = {
    "ours, untuned": Method("replace", one_by_one(partial(ours, adjacency="replace"))),
    "fixed-size composition": Method(
        "replace", with_common_batches(rival("dp_sgd", poisson=False)), **SGD
    ),
    "output perturbation": Method(
        "replace",
        one_by_one(rival("output_perturbation")),
        default={"stretch": 1.0},
        grid={"stretch": (0.125, 0.25, 0.5, 1.0)},
    ),
    "diffprivlib": Method(
        "replace",
        one_by_one(rival("objective_perturbation")),
        default={"C": 1.0},
        grid={"C": (1e-3, 0.01, 0.1, 1.0)},
        iterative=False,
    ),
    "objective perturbation": Method(
        "replace",
        one_by_one(gaussian_objective_perturbation),
        default={"penalty": 1.0, "clip": 1.0},
        grid={"penalty": (1.0, 8.0, 64.0, 256.0), "clip": (0.25, 1.0)},
        limits={"clip": (0.0, 1.0)},
        iterative=False,
    ),
    "ours, untuned (zero-out)": Method("zero-out", one_by_one(partial(ours, adjacency="zero-out"))),
    "DP-SGD as in Opacus": Method(
        "zero-out", with_common_batches(rival("dp_sgd", poisson=True)), **SGD
    ),
}


def key(name, passes, epsilon, method):
    return f"{name}|{passes}|{epsilon:g}|{method}"


def measured(method, data, passes, options):
    """For each epsilon, accuracies in per cent with the default setting and with the best found."""
    defaults = [(epsilon, method.default) for epsilon in EPSILONS]
    results = {epsilon: {"default": []} for epsilon in EPSILONS}
    for seed in range(options.seeds):
        for (epsilon, _), score in zip(
            defaults, method.scores(data, passes, seed, defaults), strict=True
        ):
            results[epsilon]["default"].append(100 * score)
    if method.grid:
        for epsilon, found in tuned(method, data, passes, options).items():
            results[epsilon] |= found
    return results


def tuned(method, data, passes, options):
    """For each epsilon the best of the finalists, by the mean over all seeds."""
    found = searched(method, data, passes, options)
    trials = [(e, each) for e in EPSILONS for each in found[e]["settings"][: options.finalists]]
    table = np.array([method.scores(data, passes, seed, trials) for seed in range(options.seeds)])
    results = {}
    for epsilon in EPSILONS:
        those = [i for i, (e, _) in enumerate(trials) if e == epsilon]
        best = max(those, key=lambda i: table[:, i].mean())
        results[epsilon] = {
            "tuned": (100 * table[:, best]).tolist(),
            "setting": trials[best][1],
            "settings_tried": found[epsilon]["tried"],
            "beyond": [
                name
                for name in trials[best][1]
                if beyond_all(name, trials[best][1], found[epsilon]["settings"])
            ],
        }
    return results


def beyond_all(name, best, settings):
    """Whether no larger, or no smaller, value than the best was tried."""
    values = [each[name] for each in settings]
    return best[name] in (min(values), max(values))


def searched(method, data, passes, options):
    """For each epsilon what was tried, from best to worst by the first seed."""
    axes = method.grid if options.grid is None else axes_from(options.grid, method.grid)
    grid = [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]
    tried = {epsilon: {} for epsilon in EPSILONS}
    pending = dict.fromkeys(EPSILONS, grid)
    for done in itertools.count():
        trials = [(epsilon, each) for epsilon, some in pending.items() for each in some]
        scores = method.scores(data, passes, 0, trials)
        for (epsilon, setting), score in zip(trials, scores, strict=True):
            tried[epsilon][tuple(setting.values())] = (score, setting)
        ranked = {
            e: [s for _, s in sorted(found.values(), key=lambda pair: -pair[0])]
            for e, found in tried.items()
        }
        pending = {
            e: [n for n in neighbours(best[0], method.limits) if tuple(n.values()) not in tried[e]]
            for e, best in ranked.items()
        }
        if done == options.rounds or not any(pending.values()):
            break
    return {e: {"tried": len(best), "settings": best} for e, best in ranked.items()}


def axes_from(texts, grid):
    """Axes as given on the command line, with values of the same types."""
    given = dict(text.split("=") for text in texts)
    return {
        name: tuple(type(values[0])(v) for v in given[name].split(",")) if name in given else values
        for name, values in grid.items()
    }


def neighbours(setting, limits):
    for name, value in setting.items():
        low, high = limits.get(name, (0.0, float("inf")))
        for other in (value / 2, value * 2):
            other = round(other) if isinstance(value, int) else other
            if low <= other <= high:
                yield setting | {name: other}


def run(options):
    """Measure what the file of results does not hold yet, and write it after every group."""
    import datasets

    path = Path(options.results)
    results = json.loads(path.read_text()) if path.exists() else {}
    load = cache(partial(datasets.load, folder=options.data))
    groups = list(itertools.product(options.datasets, options.passes, options.methods))
    # What does not go by passes comes last: it takes longest.
    for name, passes, title in sorted(
        groups, key=lambda group: METHODS[group[2]].iterative, reverse=True
    ):
        method = METHODS[title]
        if all(key(name, passes, epsilon, title) in results for epsilon in EPSILONS):
            continue
        if not method.iterative and passes != PASSES[0]:
            continue
        if title == "objective perturbation" and name == "mnist":
            continue  # its proof is for a single output
        if title == "diffprivlib" and not importlib.util.find_spec("diffprivlib"):
            continue
        for epsilon, found in measured(method, load(name), passes, options).items():
            results[key(name, passes, epsilon, title)] = found
            kinds = {k: round(np.mean(found[k]), 2) for k in ("default", "tuned") if k in found}
            print(key(name, passes, epsilon, title), kinds, flush=True)
        path.write_text(json.dumps(results, indent=1) + "\n")
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="folder with mnist/, adult/ and the npz file")
    parser.add_argument("--from-results", action="store_true", help="train nothing")
    parser.add_argument("--results", default=HERE / "utility.json", help="taken up again")
    parser.add_argument("--page", default=HERE.parent / "docs" / "utility.md", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=MOST_ROUNDS, help="of going to neighbours")
    parser.add_argument("--finalists", type=int, default=FINALISTS, help="compared by all seeds")
    parser.add_argument(
        "--grid", nargs="+", help="name=value,value,.. instead of the method's own", metavar="AXIS"
    )
    parser.add_argument("--datasets", nargs="+", default=list(DATASETS), choices=DATASETS)
    parser.add_argument("--passes", nargs="+", type=int, default=list(PASSES), choices=PASSES)
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    options = parser.parse_args()
    if not options.from_results:
        if options.data is None:
            parser.error("--data is needed, unless --from-results")
        run(options)
    from utility_page import write

    write(json.loads(Path(options.results).read_text()), options.page)


if __name__ == "__main__":
    main()
