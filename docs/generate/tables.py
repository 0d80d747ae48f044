"""Tables of the pages that the library or the benchmarks compute, between two comments of a page.

`python docs/generate/tables.py` writes them anew; a test compares.
"""

import itertools
import json
import math
import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]
_MARKED = re.compile(r"(<!-- table: ([\w-]+) -->\n)(.*?)(<!-- end of table -->)", re.DOTALL)


def filled_in(text: str) -> str:
    """The text with every marked table as it is computed now."""
    return _MARKED.sub(lambda found: f"{found[1]}\n{TABLES[found[2]]()}\n\n{found[4]}", text)


def benchmark(name: str) -> tuple[ModuleType, Any]:
    """A module of benchmarks/ and its stored results, if it has any."""
    folder = ROOT / "benchmarks"
    sys.path.insert(0, str(folder))
    try:
        results = folder / f"{name}.json"
        return import_module(name), json.loads(results.read_text()) if results.exists() else None
    finally:
        sys.path.remove(str(folder))


def stored(name: str) -> Any:
    """Results that a benchmark left."""
    return json.loads((ROOT / "benchmarks" / f"{name}.json").read_text())


def _table(head: str, align: str, rows: list[str]) -> str:
    return "\n".join([head, align, *rows])


def _mean(numbers: list[float], digits: int) -> str:
    return f"{sum(numbers) / len(numbers):.{digits}f}"


def accuracy() -> str:
    """What untuned models reach at epsilon 1, and the best of others, tuned on the test set."""
    module, results = benchmark("utility_page")[0], stored("utility")
    kept, rows = stored("features"), []
    for name, title, features in (
        ("adult", "Adult", None),
        ("mnist", "MNIST", "mnist/scattering"),
        ("cifar", "CIFAR-10", "cifar/mirrored"),
    ):
        plain = rivals = with_features = "-"
        if name in module.DATASETS:
            plain = _mean(module.cell(results, name, 20, 1.0, "ours, untuned", "default"), 1)
            rivals = f"{max(module.tuned_rivals(results, 'replace', name, 20, 1.0)):.1f}"
        if features:
            begin = f"{features}/replace/1/"
            found = [one["accuracy"] for key, one in kept.items() if key.startswith(begin)]
            with_features = _mean(found, 1)
        rows.append(f"| {title} | {plain} | {rivals} | {with_features} |")
    said = "this library, untuned | best of others, tuned on the test set | with fixed features"
    return _table(f"| accuracy in %, epsilon 1 | {said} |", "|---|---:|---:|---:|", rows)


def utility() -> str:
    """Accuracy of ours and of the best tuned rival, from stored results."""
    page, results = benchmark("utility_page")[0], stored("utility")
    return "\n".join([page.result(results), "", *page.best_of_each(results)])


def images() -> str:
    """Accuracy on images with fixed features, from stored results."""
    module, found = benchmark("features")
    head = f"| images | features, adjacency | epsilon {' | '.join(module.EPSILONS)} |"
    ends = "tuned DP-SGD, 3 | Tramer and Boneh, 3 | not private"
    rows = [row for row in module.rows_of_page(found) if "raw pixels" not in row]
    return _table(f"{head} {ends} |", "|---|---|" + "---:|" * 7, rows)


def regression() -> str:
    """R2 of two regressors and two rivals, from stored results."""
    found, rows = stored("regression"), []
    for (task, title), adjacency in itertools.product(
        (
            ("synthetic", "synthetic, linear"),
            ("ames", "Ames house prices"),
            ("diamonds", "diamonds, price"),
            ("adult age", "Adult, age"),
            ("flights", "flights, delay"),
        ),
        ("replace", "zero-out"),
    ):
        cells = []
        for method in ("adassp", "boosted", "ridge", "huber"):
            begin = f"{task}/{adjacency}/1/{method}/"
            means = [one for key, one in found.items() if key.startswith(begin)]
            if means:
                cells.append(_mean(means, 3))
        if cells:
            plain = found[f"{task}/not private"]
            rows.append(f"| {title} | {adjacency} | {plain:.3f} | {' | '.join(cells)} |")
    methods = "AdaSSP | boosted AdaSSP | `PrivateRidge` | `PrivateHuberRegressor`"
    head = f"| data | adjacency | not private | {methods} |"
    return _table(head, "|---|---|" + "---:|" * 5, rows)


def interval_coverage() -> str:
    """How often intervals covered, over sizes, epsilons and coefficients, from stored results."""
    rows = []
    found = stored("interval_coverage")
    for kind in sorted({key.partition(":")[0] for key in found}):
        cells = {key: one for key, one in found.items() if key.startswith(kind)}
        covered = [share for one in cells.values() for share in one["covered"]]
        sizes = sorted({int(key.split(":")[1]) for key in cells})
        shown = f"{sizes[0]:,} to {sizes[-1]:,} | {min(covered):.1f} to {max(covered):.1f}"
        rows.append(f"| {kind} | {shown} |")
    return _table("| model | examples | covered |", "|---|---:|---:|", rows)


def unlearning_accuracy() -> str:
    """Extra steps and accuracy after removing rows, from stored results."""
    module, found = benchmark("unlearning")
    head, align, *rows = str(module.table(found["3 against 8"])).splitlines()
    return _table(head, align, [row.replace(" ± ", "±") for row in rows if "| 1 times |" in row])


def odds() -> str:
    """How often an attacker can be right, for some values of epsilon at the usual delta."""
    rows = []
    for epsilon in (0.1, 0.5, 1.0, 2.0, 4.0):
        rightly = math.ceil(100 * most_rightly_said(epsilon, 0.05, 1e-5))
        factor = math.ceil(100 * math.exp(epsilon)) / 100
        rows.append(f"| {epsilon:g} | {factor:.2f} | 5 in 100 | {rightly} in 100 |")
    said = 'they wrongly say "used" about | then they rightly say it about at most'
    return _table(f"| epsilon | factor | {said} |", "|---:|---:|---:|---:|", rows)


def most_rightly_said(epsilon: float, wrongly: float, delta: float) -> float:
    """The largest true positive rate at a false positive rate, from the definition of privacy."""
    return min(math.exp(epsilon) * wrongly + delta, 1 - math.exp(-epsilon) * (1 - wrongly - delta))


def private_selection() -> str:
    """Accuracies of private selection and of its alternatives, from stored results."""
    found = stored("private_selection")
    titles = {"adult": "Adult", "imdb": "IMDb"}
    tuned = {"size": "the size of rows", "clip": "clip and penalty"}
    rows = []
    for one in found:
        pairs = [pair for name, pair in one.items() if name.startswith("accuracy")]
        cells = " | ".join(f"{mean:.1f}±{spread:.1f}" for mean, spread in pairs)
        rows.append(f"| {titles[one['data']]}, {tuned[one['grid']]} | {cells} |")
    methods = (
        "defaults | `PrivateSelection` | all 20, sharing the epsilon | best, if choosing were free"
    )
    return _table(f"| data, what is tuned | {methods} |", "|---|---:|---:|---:|---:|", rows)


TABLES: dict[str, Callable[[], str]] = {
    "accuracy": accuracy,
    "images": images,
    "interval-coverage": interval_coverage,
    "odds": odds,
    "private-selection": private_selection,
    "regression": regression,
    "unlearning-accuracy": unlearning_accuracy,
    "utility": utility,
}


def main() -> None:
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        if (anew := filled_in(text)) != text:
            page.write_text(anew, encoding="utf-8")
            print(f"written: {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
