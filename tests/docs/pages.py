"""The pages, and the blocks of text in them."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block and its language."""

    language: str
    text: str


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    return [Block(*found.groups()) for found in _BLOCK.finditer(page.read_text(encoding="utf-8"))]


def commands(page: Path) -> list[str]:
    """Every line that calls `lastiterate`, continued lines joined."""
    text = "\n".join(block.text for block in blocks(page) if block.language == "sh")
    lines = text.replace("\\\n", " ").splitlines()
    return [" ".join(line.split()) for line in lines if line.startswith("lastiterate")]
