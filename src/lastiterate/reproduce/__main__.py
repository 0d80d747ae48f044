"""python -m lastiterate.reproduce [ID | all] [--out FOLDER] [--data PATH] [--seeds N] [--coverage]

The command `lastiterate reproduce` is the same.
"""

import argparse
from pathlib import Path

from rich.console import Console

from lastiterate.errors import LastIterateError
from lastiterate.reproduce.items import FigureItem
from lastiterate.reproduce.papers import ITEMS, PAPERS, as_text, find, write_page


def main(arguments: list[str] | None = None, console: Console | None = None) -> int:
    """The exit code: 0, 1 where print and computation differ, 2 for a wrong argument."""
    parser = argparse.ArgumentParser(prog="python -m lastiterate.reproduce", description=__doc__)
    parser.add_argument("id", nargs="?", help="a table or figure, or all; without it a list")
    parser.add_argument("--out", type=Path, default=Path("reproduced"), help="where files go")
    parser.add_argument("--data", type=Path, help="a folder with MNIST, or a file of features")
    parser.add_argument("--seeds", type=int, default=5, help="trainings that are averaged")
    parser.add_argument("--coverage", action="store_true", help="list every item of the papers")
    options = parser.parse_args(arguments)
    out = console or Console()
    try:
        return reproduce(
            options.id, out=options.out, data=options.data, seeds=options.seeds,
            coverage=options.coverage, console=out,
        )  # fmt: skip
    except LastIterateError as error:
        out.print(str(error), style="red", markup=False)
        return 2


def reproduce(
    item: str | None,
    *,
    out: Path,
    data: Path | None,
    seeds: int,
    coverage: bool,
    console: Console,
) -> int:
    """The exit code, after a list, the coverage, a table or the paths of figures are printed."""
    if coverage:
        from lastiterate.reproduce.coverage import coverage_text

        console.print(coverage_text(), markup=False, highlight=False, soft_wrap=True)
        return 0
    if item is None:
        for one in ITEMS.values():
            console.print(f"{one.id:16s} {one.title}", markup=False)
        console.print("", *(f"{short}: {paper}" for short, paper in PAPERS.items()), sep="\n")
        return 0
    if item == "all":
        page, left_out = write_page(list(ITEMS.values()), out, data=data, seeds=seeds)
        console.print(f"written: {page}", markup=False)
        for id_, why in left_out.items():
            console.print(f"left out: {id_} ({why})", markup=False)
        return 0
    found = find(item)
    if isinstance(found, FigureItem):
        out.mkdir(parents=True, exist_ok=True)
        for path in found.save(out):
            console.print(f"written: {path}", markup=False)
        for note in found.notes:
            console.print(note, markup=False)
        return 0
    table = found.table(data, seeds)
    console.print(as_text(table))
    return 1 if table.unexplained else 0


if __name__ == "__main__":
    raise SystemExit(main())
