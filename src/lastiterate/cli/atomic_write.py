"""Files that are never written over others without a word."""

from pathlib import Path

from lastiterate.errors import InvalidParameter


def refuse_overwriting(*paths: Path | None, force: bool) -> None:
    """Before anything is spent: what is there may be the only copy of a release."""
    there = [str(path) for path in paths if path is not None and path.exists()]
    if there and not force:
        must_be = "a place where nothing is yet, unless you add --force"
        raise InvalidParameter("out", must_be=must_be, found=", ".join(there))
