"""Tables of the pages that the library or the benchmarks compute, between two comments of a page.

`python docs/generate/tables.py` writes them anew; a test compares.
"""

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
    """A module of benchmarks/ and its stored results."""
    folder = ROOT / "benchmarks"
    sys.path.insert(0, str(folder))
    try:
        return import_module(name), json.loads((folder / f"{name}.json").read_text())
    finally:
        sys.path.remove(str(folder))


def _table(head: str, align: str, rows: list[str]) -> str:
    return "\n".join([head, align, *rows])


def unlearning_accuracy() -> str:
    """Extra steps and accuracy after removing rows, from stored results."""
    module, found = benchmark("unlearning")
    return str(module.table(found["3 against 8"]))


def unlearning_rivals() -> str:
    """Accuracy of other ways to remove rows, from stored results."""
    module, found = benchmark("unlearning_rivals")
    return str(module.table(found))


def unlearning_papers() -> str:
    """Epsilon of this library at the noise that two papers need for theirs."""
    from lastiterate._display import up
    from lastiterate.reproduce import chien_li as unlearning_figures

    figures = unlearning_figures.FIGURES
    rows = []
    for title, batches in (
        ("this library, full batches, one extra step", False),
        ("this library, batches of 128, one extra epoch", True),
    ):
        examples = unlearning_figures.PARTS if batches else unlearning_figures.FULL
        found = [
            unlearning_figures.ours(noise[batches], batches=batches).epsilon(1 / examples)
            for _, _, *noise in figures
        ]
        rows.append(f"| {title} | {' | '.join(map(up, found))} |")
    head = f"| the papers | {' | '.join(f'{one[0]:g}' for one in figures)} |"
    return _table(head, "|---|" + "---:|" * len(figures), rows)


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
    found = json.loads((ROOT / "benchmarks" / "private_selection.json").read_text())
    titles = {"adult": "Adult", "imdb": "IMDb"}
    tuned = {"size": "the size of rows", "clip": "clip and penalty"}
    rows = []
    for one in found:
        pairs = [pair for name, pair in one.items() if name.startswith("accuracy")]
        cells = " | ".join(f"{mean:.1f} ± {spread:.1f}" for mean, spread in pairs)
        rows.append(f"| {titles[one['data']]}, {tuned[one['grid']]} | {cells} |")
    methods = (
        "defaults | `PrivateSelection` | all 20, sharing the epsilon | best, if choosing were free"
    )
    return _table(f"| data, what is tuned | {methods} |", "|---|---:|---:|---:|---:|", rows)


TABLES: dict[str, Callable[[], str]] = {
    "odds": odds,
    "private-selection": private_selection,
    "unlearning-accuracy": unlearning_accuracy,
    "unlearning-papers": unlearning_papers,
    "unlearning-rivals": unlearning_rivals,
}


def main() -> None:
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        if (anew := filled_in(text)) != text:
            page.write_text(anew, encoding="utf-8")
            print(f"written: {page.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
