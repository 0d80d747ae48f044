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

    from lastiterate.reproduce.__main__ import reproduce as print_item

    return print_item(item, out=out, data=data, seeds=seeds, coverage=coverage, console=Console())
