"""schema: a description of a table's columns to fill in."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from lastiterate import _check
from lastiterate._files import refuse_replacing, write_whole
from lastiterate.cli.options import CLASSIFICATION, REGRESSION, TASKS, Data, Delimiter, Force
from lastiterate.cli.terminal import WITH_FORCE

_NEXT = """\
Fill in what is publicly known, not what you find in the data:
  {"range": [0, 90]}           a number; beyond the ends it counts as they do
  {"cuts": [30, 45, 60]}       a number by the interval it lies in: below 30, from 30 to 45, ..
  {"range": [0, 90], "bins": 9}
                               the same with 9 intervals of equal width
  {"values": ["a", "b"]}       text; any other is all zeros
  {"values": ["a", "b"], "baseline": "a"}
                               the same for coefficients that compare b with a
  {"dates": ["2021-01-01", "2024-12-31"]}
                               a date from a range; "format": "%d.%m.%Y" if it is not written so
  "stay": {"days_between": ["admitted", "discharged"], "range": [0, 60]}
                               under a new name, the days between two columns of dates
  "drop"                       a column to leave out: names, numbers of rows
  "as it is"                   a number of any size (train then needs --feature-bound)
  {"range": [0, 90], "missing": 45, "indicator": true}
                               an empty cell counts as 45, and a feature tells that it was empty
  "*": ..                      all columns without an entry
Numbers with a decimal comma (22,5) are text here: write them with a point first."""


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("schema")(schema)


def schema(
    data: Data,
    target: Annotated[str | None, typer.Option(help="the column to predict")] = None,
    task: Annotated[str, typer.Option(help="classification or regression")] = CLASSIFICATION,
    delimiter: Delimiter = None,
    out: Annotated[Path | None, typer.Option(help="a JSON file [default: printed]")] = None,
    force: Force = False,
) -> None:
    """Write a schema to fill in: the columns of a table, whether of numbers, dates or text.

    No cell of the table is written or printed. Fill in ranges and values that are publicly known,
    and pass the file to `lastiterate train --schema`.

    Example: lastiterate schema people.csv --target income
    """
    from lastiterate.tables.encoder import is_skeleton, skeleton
    from lastiterate.tables.files import open_table

    _check.choice("task", task, among=TASKS)
    text = skeleton(
        open_table(data, delimiter=delimiter), target=target, regression=task == REGRESSION
    )
    if out is not None:
        refuse_replacing("out", out, is_skeleton, allowed=force, remedy=WITH_FORCE)
    if out is None:
        print(text, end="")
    else:
        write_whole("out", out, text, is_skeleton if force else None, WITH_FORCE)
        print(f"written: {out}")
    print(_NEXT, file=sys.stderr)
