"""Tables as text and as HTML, and one page with everything."""

from __future__ import annotations

import html
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table as TextTable

from lastiterate._progress import track
from lastiterate.reproduce.items import FigureItem, Table, TableItem

_HEAD = """<!doctype html><html lang="en"><meta charset="utf-8">
<title>Tables and figures, computed anew</title><style>
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:.5rem 0}
td,th{padding:.1rem .8rem;text-align:right;border-bottom:1px solid #eee}
td:first-child,th:first-child{text-align:left}
.differs{color:#a33} .note{color:#666;font-size:.9em} svg{max-width:100%;height:auto}
</style><h1>Tables and figures, computed anew</h1>
"""


def as_text(table: Table) -> TextTable:
    """For a terminal."""
    result = TextTable(title=f"{table.id}: {table.title}", box=SIMPLE_HEAD)
    result.add_column("cell")
    for heading in ("ours", "printed", "difference"):
        result.add_column(heading, justify="right")
    result.add_column("")
    for cell in table.cells:
        verdict = "" if cell.agrees else cell.explained or "DIFFERS"
        result.add_row(
            cell.where,
            f"{cell.ours:.{cell.digits + 2}f}",
            f"{cell.printed:.{cell.digits}f}",
            f"{cell.ours - cell.printed:+.{cell.digits + 2}f}",
            verdict,
        )
    result.caption = "\n".join(table.notes) or None
    return result


def _table_html(table: Table) -> str:
    rows = []
    for cell in table.cells:
        mark = "" if cell.agrees else ' class="differs"'
        why = "" if cell.agrees else html.escape(cell.explained or "differs")
        rows.append(
            f"<tr{mark}><td>{html.escape(cell.where)}<td>{cell.ours:.{cell.digits + 2}f}"
            f"<td>{cell.printed:.{cell.digits}f}<td>{cell.ours - cell.printed:+.{cell.digits + 2}f}"
            f'<td class="note">{why}'
        )
    notes = "".join(f'<p class="note">{html.escape(note)}' for note in table.notes)
    head = "<tr><th>cell<th>ours<th>printed<th>difference<th>"
    return (
        f'<h2 id="{table.id}">{table.id}: {html.escape(table.title)}</h2>'
        f"<table>{head}{''.join(rows)}</table>{notes}\n"
    )


def _figure_html(item: FigureItem, folder: Path) -> str:
    _, svg = item.save(folder)
    text = svg.read_text(encoding="utf-8")
    notes = "".join(f'<p class="note">{html.escape(note)}' for note in item.notes)
    drawing = text[text.index("<svg") :]
    return f'<h2 id="{item.id}">{item.id}: {html.escape(item.title)}</h2>{drawing}{notes}\n'


def write_page(
    items: list[TableItem | FigureItem],
    folder: Path,
    *,
    data: Path | None = None,
) -> Path:
    """One page with all of `items`; what needs data or an extra that is missing says so."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = [_HEAD]
    for item in track("reproducing", items):
        try:
            if isinstance(item, FigureItem):
                parts.append(_figure_html(item, folder))
            elif item.needs_data and data is None:
                parts.append(f"<h2>{item.id}</h2><p>needs --data, a folder with MNIST\n")
            else:
                table = item.compute(data) if item.needs_data else item.compute()
                parts.append(_table_html(table))
        except ImportError as missing:
            parts.append(f"<h2>{item.id}</h2><p>{html.escape(str(missing))}\n")
    page = folder / "index.html"
    page.write_text("".join(parts), encoding="utf-8")
    return page
