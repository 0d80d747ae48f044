"""Numbers in columns, the same on a terminal and in a pipe."""

from collections.abc import Mapping

from lastiterate._digits import up


def epsilon_table(title: str, rows: Mapping[str, Mapping[str, float]]) -> str:
    """One row for each key, one column for each bound, its id over two lines.

    Rounded up: what is printed is certified too.
    """
    ids = list(dict.fromkeys(id_ for row in rows.values() for id_ in row))
    heads = [id_.partition("/") for id_ in ids]
    lines = [["", *(family + slash for family, slash, _ in heads)]]
    lines.append([title, *(condition for _, _, condition in heads)])
    for key, row in rows.items():
        lines.append([key, *(up(row[id_]) if id_ in row else "-" for id_ in ids)])
    widths = [max(len(line[k]) for line in lines) for k in range(len(ids) + 1)]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    )
