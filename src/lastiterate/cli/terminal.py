"""Line widths of a terminal, and files that are not overwritten by accident."""

import shutil
from pathlib import Path

from lastiterate.errors import InvalidParameter

_NARROWEST = 60


def line_width(widest: int) -> int:
    """The terminal's width, but at most `widest`; `widest` itself without a terminal."""
    columns = shutil.get_terminal_size(fallback=(widest, 24)).columns
    return max(min(columns, widest), _NARROWEST)


def refuse_overwriting(*paths: Path | None, force: bool) -> None:
    """Raise an error if a file exists, unless forced: it may be the only copy of a release."""
    existing = [str(path) for path in paths if path is not None and path.exists()]
    if existing and not force:
        must_be = "a new file or folder; add --force to overwrite"
        raise InvalidParameter("out", must_be=must_be, found=", ".join(existing))
