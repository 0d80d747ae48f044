"""explore: a local page on which a run can be moved."""

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("explore")(explore)


def explore(
    run: Annotated[Path | None, typer.Option(help="begin with the run in this file")] = None,
    port: Annotated[int, typer.Option(help="0 is any that is free")] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="open the page, or only print where")
    ] = True,
    host: Annotated[
        str, typer.Option(help="where to listen; other than this computer needs --token")
    ] = "127.0.0.1",
    token: Annotated[
        str | None, typer.Option(help="what the page is opened with [default: a random one]")
    ] = None,
) -> None:
    """Move a slider and see what the guarantee does, on a page of this computer.

    Nothing is fetched from elsewhere and nothing leaves the computer. Needs the extra `explore`.

    Example: lastiterate explore --run run.toml
    """
    from lastiterate.cli.run_file import read_run
    from lastiterate.explore.launch import serve
    from lastiterate.explore.page_runs import page_words

    words = None if run is None else page_words(read_run(run, {}))
    serve(words, host=host, port=port, token=token, browser=browser)
