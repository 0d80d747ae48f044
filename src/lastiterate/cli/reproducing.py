"""reproduce"""

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("reproduce")(reproduce)


def reproduce(
    item: Annotated[str | None, typer.Argument(help="a table or figure, or all")] = None,
    out: Annotated[Path, typer.Option(help="where files go")] = Path("reproduced"),
    data: Annotated[Path | None, typer.Option(help="the folder with MNIST, for accuracies")] = None,
) -> int:
    """The tables and figures of the papers, beside print.

    Example: lastiterate reproduce bsa-table-3
    """
    from lastiterate.reproduce.__main__ import main

    arguments = ([] if item is None else [item]) + ["--out", str(out)]
    return main(arguments + ([] if data is None else ["--data", str(data)]))
