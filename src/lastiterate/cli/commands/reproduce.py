"""reproduce"""

from pathlib import Path
from typing import Annotated

import typer

from lastiterate.errors import InvalidParameter


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("reproduce")(reproduce)


def _items(typed: str) -> list[str]:
    from lastiterate.reproduce.registry import ITEMS

    return [item for item in (*ITEMS, "all") if item.startswith(typed)]


def reproduce(
    item: Annotated[
        str | None,
        typer.Argument(metavar="ITEM", help="a table or figure, or all", autocompletion=_items),
    ] = None,
    out: Annotated[Path, typer.Option(help="where files go")] = Path("reproduced"),
    data: Annotated[Path | None, typer.Option(help="the folder with MNIST, for accuracies")] = None,
) -> int:
    """The tables and figures of the papers, beside print.

    Example: lastiterate reproduce bsa-table-3
    """
    from lastiterate.reproduce.__main__ import main
    from lastiterate.reproduce.items import find
    from lastiterate.reproduce.registry import ITEMS

    if item not in (None, "all"):
        found = find(ITEMS, item)
        if data is None and getattr(found, "needs_data", False):
            raise InvalidParameter("data", None, must_be="given: --data, the folder with MNIST")
    arguments = ([] if item is None else [item]) + [f"--out={out}"]
    return main(arguments + ([] if data is None else [f"--data={data}"]))
