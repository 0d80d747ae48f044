"""python -m lastiterate.reproduce [ID | all] [--out FOLDER] [--data FOLDER]"""

import argparse
from pathlib import Path

from rich.console import Console

from lastiterate.errors import LastIterateError
from lastiterate.reproduce.items import FigureItem, find
from lastiterate.reproduce.page import as_text, write_page
from lastiterate.reproduce.registry import ITEMS, PAPERS


def main(arguments: list[str] | None = None, console: Console | None = None) -> int:
    """List, or reproduce one or all; the exit code is 1 where print and computation differ."""
    parser = argparse.ArgumentParser(prog="python -m lastiterate.reproduce", description=__doc__)
    parser.add_argument("id", nargs="?", help="a table or figure, or all; without it a list")
    parser.add_argument("--out", type=Path, default=Path("reproduced"), help="where files go")
    parser.add_argument("--data", type=Path, help="the folder with MNIST, for accuracies")
    options = parser.parse_args(arguments)
    out = console or Console()
    try:
        return _run(options, out)
    except LastIterateError as error:
        out.print(str(error), style="red", markup=False)
        return 2


def _run(options: argparse.Namespace, out: Console) -> int:
    if options.id is None:
        for item in ITEMS.values():
            out.print(f"{item.id:16s} {item.title}", markup=False)
        out.print("", *(f"{short}: {paper}" for short, paper in PAPERS.items()), sep="\n")
        return 0
    if options.id == "all":
        page = write_page(list(ITEMS.values()), options.out, data=options.data)
        out.print(f"written: {page}", markup=False)
        return 0
    item = find(ITEMS, options.id)
    if isinstance(item, FigureItem):
        options.out.mkdir(parents=True, exist_ok=True)
        for path in item.save(options.out):
            out.print(f"written: {path}", markup=False)
        for note in item.notes:
            out.print(note, markup=False)
        return 0
    if item.needs_data and options.data is None:
        out.print(f"{item.id} needs --data, a folder with MNIST", markup=False)
        return 2
    table = item.compute(options.data) if item.needs_data else item.compute()
    out.print(as_text(table))
    return 1 if table.unexplained else 0


if __name__ == "__main__":
    raise SystemExit(main())
