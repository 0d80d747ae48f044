"""How wide lines may be: as the terminal is, if there is one, and no wider than reads well."""

import shutil

_NARROWEST = 60


def line_width(widest: int) -> int:
    """At most `widest`; that where nobody looks, as in a pipe."""
    columns = shutil.get_terminal_size(fallback=(widest, 24)).columns
    return max(min(columns, widest), _NARROWEST)
