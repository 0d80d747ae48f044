"""A figure as files: the same bytes for the same figure."""

from __future__ import annotations

from io import BytesIO, StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lastiterate._files import is_sealed, refuse_replacing, sealed, write_whole
from lastiterate.errors import InvalidParameter
from lastiterate.plot.style import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# No dates and no versions, so that the same picture is the same file.
_METADATA: dict[str, dict[str, Any]] = {
    ".svg": {"Date": None, "Creator": "lastiterate"},
    ".png": {"Software": "lastiterate"},
    ".pdf": {"CreationDate": None, "Creator": "lastiterate", "Producer": None},
}
# What comes after the end of a picture is not read.
_COMMENTS = {".svg": ("<!-- ", " -->"), ".png": ("", ""), ".pdf": ("%", "")}
_PIXELS_PER_INCH = 200


def save(figure: Figure, out: str | Path) -> list[Path]:
    """Write `out`.svg and `out`.png; or, if it ends in .svg, .png or .pdf, that file alone.

    The background of .png files is white, that of the others is left to the page.  A file that is
    there is replaced if it is a picture as `save` wrote it, and refused if it is anything else.
    """
    paths = check(out)
    paths[0].parent.mkdir(parents=True, exist_ok=True)
    with style():
        for one in paths:
            ground = "white" if one.suffix == ".png" else "none"
            write_picture(figure, one, dpi=_PIXELS_PER_INCH, facecolor=ground)
    return paths


def write_picture(figure: Figure, path: Path, **settings: Any) -> None:
    """Write one file, by which we know later that it is ours; `settings` are of matplotlib."""
    refuse_replacing("out", path, is_sealed)
    drawn = BytesIO()
    figure.savefig(drawn, format=path.suffix[1:], metadata=_METADATA[path.suffix], **settings)
    content = sealed(drawn.getvalue(), comment=_COMMENTS[path.suffix])
    write_whole("out", path, content, is_sealed)


def check(out: str | Path) -> list[Path]:
    """The files that `save` would write, none of which is another's."""
    path = Path(out)
    paths = [path]
    if path.suffix not in _METADATA:
        if path.suffix or path.name in ("", ".."):
            must_be = (
                "a name without ending, for SVG and PNG, or one that ends in .svg, .png or .pdf"
            )
            raise InvalidParameter("out", str(out), must_be=must_be)
        paths = [path.with_suffix(kind) for kind in (".svg", ".png")]
    for one in paths:
        refuse_replacing("out", one, is_sealed)
    return paths


def as_svg(figure: Figure) -> str:
    """The picture as an SVG element, to be put into a page."""
    out = StringIO()
    with style():
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    start, end = text.find("<metadata>"), text.find("</metadata>")
    if end >= 0:
        text = text[:start] + text[end + len("</metadata>") :]
    return text[text.index("<svg") :]
