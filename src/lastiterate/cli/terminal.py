"""Line widths of a terminal, and the option that replaces files."""

import shutil

_NARROWEST = 60
OTHER_VERSION = 3  # an exit code: neither confirmed nor refuted here
WITH_FORCE = "add --force to replace what lastiterate wrote there"


def line_width(widest: int) -> int:
    """The terminal's width, but at most `widest`; `widest` itself without a terminal."""
    columns = shutil.get_terminal_size(fallback=(widest, 24)).columns
    return max(min(columns, widest), _NARROWEST)
