"""A figure as files: the same bytes for the same figure."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lastiterate.errors import InvalidParameter
from lastiterate.plot.style import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# No dates and no versions, so that the same picture is the same file.
_METADATA: dict[str, dict[str, Any]] = {
    ".svg": {"Date": None, "Creator": None},
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
_PIXELS_PER_INCH = 200


def save(figure: Figure, out: str | Path) -> list[Path]:
    """Write `out`.svg and `out`.png; or, if it ends in .svg, .png or .pdf, that file alone.

    The background of .png files is white, that of the others is left to the page.
    """
    paths = check(out)
    paths[0].parent.mkdir(parents=True, exist_ok=True)
    with style():
        for one in paths:
            figure.savefig(
                one,
                dpi=_PIXELS_PER_INCH,
                metadata=_METADATA[one.suffix],
                facecolor="white" if one.suffix == ".png" else "none",
            )
    return paths


def check(out: str | Path) -> list[Path]:
    """The files that `save` would write."""
    path = Path(out)
    if path.suffix in _METADATA:
        return [path]
    if path.suffix or path.name in ("", ".."):
        must_be = "a name without ending, for SVG and PNG, or one that ends in .svg, .png or .pdf"
        raise InvalidParameter("out", str(out), must_be=must_be)
    return [path.with_suffix(kind) for kind in (".svg", ".png")]


def as_svg(figure: Figure) -> str:
    """The picture as an SVG element, to be put into a page."""
    out = StringIO()
    with style():
        figure.savefig(out, format="svg", metadata=_METADATA[".svg"])
    text = out.getvalue()
    start, end = text.find("<metadata>"), text.find("</metadata>")
    if end >= 0:
        text = text[:start] + text[end + len("</metadata>") :]
    return text[text.index("<svg") :]
