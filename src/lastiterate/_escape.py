"""Text that was read from a file, as it may be shown: no control characters, no markup."""

from __future__ import annotations

import re

_MARKUP = re.compile(r"[\\`*_{}\[\]<>#|!&~$]")


def printable(text: str) -> str:
    """The text with escapes for line ends and all else that a terminal might obey or hide."""
    return "".join(one if one.isprintable() else _escaped(one) for one in text)


def as_markdown(text: str) -> str:
    """The text as Markdown that shows it, and nothing else."""
    return _MARKUP.sub(lambda found: f"\\{found[0]}", printable(text))


def _escaped(one: str) -> str:
    return one.encode("unicode_escape").decode("ascii")
