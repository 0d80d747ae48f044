"""reproduce"""

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("reproduce")(reproduce)


def _items(typed: str) -> list[str]:
    from lastiterate.reproduce.papers import ITEMS

    return [item for item in (*ITEMS, "all") if item.startswith(typed)]


def reproduce(
    item: Annotated[
        str | None,
        typer.Argument(metavar="ITEM", help="a table or figure, or all", autocompletion=_items),
    ] = None,
    out: Annotated[Path, typer.Option(help="where files go")] = Path("reproduced"),
    data: Annotated[
        Path | None, typer.Option(help="the folder with MNIST, or an .npz file of features")
    ] = None,
    seeds: Annotated[int, typer.Option(help="how many trainings are averaged")] = 5,
    coverage: Annotated[
        bool, typer.Option("--coverage", help="list every item of the papers and where it is")
    ] = False,
) -> int:
    """The tables and figures of the papers, beside print.

    Example: lastiterate reproduce bsa-table-3
    """
    from rich.console import Console

    from lastiterate.reproduce.items import FigureItem
    from lastiterate.reproduce.papers import ITEMS, PAPERS, as_text, find, write_page

    console = Console()
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
