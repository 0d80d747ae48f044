"""Sentences on the pages that state numbers, each with what must be true for them to stay."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from tests.readme_run import readme_run

from .pages import ROOT, blocks

CLAIMS: dict[str, "Claim"] = {}
WORDS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "ten": 10, "fifty": 50}
RUN = readme_run()


@dataclass(frozen=True)
class Claim:
    """A sentence as a pattern, whose groups are handed to `check`."""

    page: str
    sentence: str
    check: Callable[..., None]

    def found(self) -> re.Match[str] | None:
        """Where the page says so; line breaks do not matter."""
        return re.search(self.sentence.replace(" ", r"\s+"), text_of(self.page))


def claim(page: str, sentence: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Declares that the decorated function checks what this page says in this sentence."""

    def declared(check: Callable[..., None]) -> Callable[..., None]:
        name = f"{page}: {check.__name__}"
        assert name not in CLAIMS, name
        CLAIMS[name] = Claim(page, sentence, check)
        return check

    return declared


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def settings_in_code(page: str, containing: str) -> dict[str, float]:
    """Numbers that are given by name in the one block of code that contains this text."""
    (block,) = [one.text for one in blocks(ROOT / page) if containing in one.text]
    found = re.findall(r"\b(\w+)=([\d._]+(?:e-?\d+)?)\b", block)
    return {name: float(value) for name, value in found}


def value(formula, **names):
    """Of a formula as it is typed on a page: `R^2/4 + lam`, `sqrt(2) R`."""
    python = re.sub(r"(?<=[\d)]) (?=[A-Za-z(])", " * ", formula.replace("^", "**"))
    return eval(python, {"sqrt": math.sqrt}, names)
