"""A figure as files: the same bytes for the same figure."""

from __future__ import annotations

from io import BytesIO, StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lastiterate._files import IsOurs, refuse_replacing, write_whole
from lastiterate.errors import InvalidParameter
from lastiterate.plot.style import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_OURS = "lastiterate"  # by which a picture is known as one that may be drawn again
# No dates and no versions, so that the same picture is the same file.
_METADATA: dict[str, dict[str, Any]] = {
    ".svg": {"Date": None, "Creator": _OURS},
    ".png": {"Software": _OURS},
    ".pdf": {"CreationDate": None, "Creator": _OURS, "Producer": None},
}
# By our name where it is in pictures that we write; elsewhere it may be part of another's work.
_IS_OURS: dict[str, IsOurs] = {
    ".svg": lambda content: (
        content.startswith(b"<?xml") and b"<dc:title>lastiterate</dc:title>" in content[:1_000]
    ),
    ".png": lambda content: (
        content.startswith(b"\x89PNG") and content[37:].startswith(b"tEXtSoftware\x00lastiterate")
    ),
    ".pdf": lambda content: (
        content.startswith(b"%PDF-") and b"/Creator (lastiterate)" in content[-4_000:]
    ),
}
_PIXELS_PER_INCH = 200


def save(figure: Figure, out: str | Path) -> list[Path]:
    """Write `out`.svg and `out`.png; or, if it ends in .svg, .png or .pdf, that file alone.

    The background of .png files is white, that of the others is left to the page.  A file that is
    there is replaced if it is a picture that `save` wrote, and refused if it is anything else.
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
    refuse_replacing("out", path, _IS_OURS[path.suffix])
    drawn = BytesIO()
    figure.savefig(drawn, format=path.suffix[1:], metadata=_METADATA[path.suffix], **settings)
    write_whole("out", path, drawn.getvalue(), _IS_OURS[path.suffix])


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
        refuse_replacing("out", one, _IS_OURS[one.suffix])
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
