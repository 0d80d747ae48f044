"""Every table and figure by id, and one page that shows them all."""

from __future__ import annotations

import html
from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table as TextTable

from lastiterate import _check
from lastiterate._files import is_sealed, refuse_replacing, sealed, write_whole
from lastiterate._progress import track
from lastiterate.errors import InvalidParameter
from lastiterate.reproduce import bok_su_altschuler, chien_li, renyi_figures, ye_shokri
from lastiterate.reproduce.items import FigureItem, Table, TableItem

ITEMS: dict[str, TableItem | FigureItem] = {
    item.id: item
    for item in (
        *bok_su_altschuler.TABLES,
        *bok_su_altschuler.ACCURACY_TABLES,
        *ye_shokri.TABLES,
        *chien_li.TABLES,
        *bok_su_altschuler.FIGURES,
        *renyi_figures.FIGURES,
        *chien_li.FIGURES,
    )
}
PAPERS = {  # as the ids begin
    "bsa": "Bok, Su and Altschuler 2024",
    "ys": "Ye and Shokri 2022",
    "cl": "Chien and Li 2024",
    "cys": "Chourasia, Ye and Shokri 2021",
    "cwcl": "Chien, Wang, Chen and Li 2024",
    "at": "Altschuler and Talwar 2022",
}
_HEAD = """<!doctype html><html lang="en"><meta charset="utf-8">
<title>Tables and figures, computed anew</title><style>
body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:.5rem 0}
td,th{padding:.1rem .8rem;text-align:right;border-bottom:1px solid #eee}
td:first-child,th:first-child{text-align:left}
.differs{color:#a33} .note{color:#666;font-size:.9em} svg{max-width:100%;height:auto}
</style><h1>Tables and figures, computed anew</h1>
"""


def find(id_: str) -> TableItem | FigureItem:
    """The item with this id, or `InvalidParameter` with the list of them."""
    if id_ not in ITEMS:
        must_be = f"one of {', '.join(ITEMS)}{_check.similar(id_, ITEMS)}"
        raise InvalidParameter("id", id_, must_be=must_be)
    return ITEMS[id_]


def as_text(table: Table) -> TextTable:
    """The table for a terminal."""
    result = TextTable(title=f"{table.id}: {table.title}", box=SIMPLE_HEAD)
    if table.cells:
        result.add_column("cell")
        for heading in ("ours", table.beside, "difference"):
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
    if not table.cells:
        for note in table.notes:
            result.add_row(note)
        return result
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
    head = f"<tr><th>cell<th>ours<th>{table.beside}<th>difference<th>"
    listed = f"<table>{head}{''.join(rows)}</table>" if rows else ""
    return f'<h2 id="{table.id}">{table.id}: {html.escape(table.title)}</h2>{listed}{notes}\n'


def _figure_html(item: FigureItem, folder: Path) -> str:
    _, svg = item.save(folder)
    text = svg.read_text(encoding="utf-8")
    notes = "".join(f'<p class="note">{html.escape(note)}' for note in item.notes)
    drawing = text[text.index("<svg") :]
    return f'<h2 id="{item.id}">{item.id}: {html.escape(item.title)}</h2>{drawing}{notes}\n'


def _item_html(item: TableItem | FigureItem, folder: Path, data: Path | None, seeds: int) -> str:
    if isinstance(item, FigureItem):
        return _figure_html(item, folder)
    return _table_html(item.table(data, seeds))


def write_page(
    items: Sequence[TableItem | FigureItem],
    folder: Path,
    *,
    data: Path | None = None,
    seeds: int = 5,
) -> tuple[Path, dict[str, str]]:
    """The path of one page with all of `items`, and why some are not on it, by id.

    An item that needs data, or an extra that is missing, says so instead.
    """
    page = folder / "index.html"
    refuse_replacing("out", page, is_sealed)
    folder.mkdir(parents=True, exist_ok=True)
    parts, left_out = [], {}
    for item in track("reproducing", items):
        try:
            parts.append(_item_html(item, folder, data, seeds))
        except (ImportError, InvalidParameter) as missing:
            left_out[item.id] = str(missing)
            parts.append(f"<h2>{item.id}</h2><p>{html.escape(str(missing))}\n")
    write_whole("out", page, sealed("".join([_HEAD, *parts]).encode()), is_sealed)
    return page, left_out
