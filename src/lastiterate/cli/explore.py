"""explore: a local page with sliders for a run."""

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("explore")(explore)


def explore(
    run: Annotated[Path | None, typer.Option(help="start with the run in this file")] = None,
    port: Annotated[int, typer.Option(help="0 for any free port")] = 0,
    browser: Annotated[
        bool,
        typer.Option(
            "--browser/--no-browser", help="open the page in a browser, or only print its address"
        ),
    ] = True,
    host: Annotated[
        str, typer.Option(help="address to listen on; other than this computer's needs --token")
    ] = "127.0.0.1",
    token: Annotated[
        str | None, typer.Option(help="access token of the page [default: random]")
    ] = None,
) -> None:
    """Open a local page that shows how the guarantee changes with the run.

    Nothing is fetched from elsewhere and nothing leaves the computer. Needs the extra `explore`.

    Example: lastiterate explore --run run.toml
    """
    from lastiterate.cli.options import read_run
    from lastiterate.explore.page_runs import page_words
    from lastiterate.explore.server import serve

    words = None if run is None else page_words(read_run(run, {}))
    serve(words, host=host, port=port, token=token, browser=browser)
