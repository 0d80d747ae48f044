"""Every number in the prose of the pages is what the library computes.

Numbers in blocks of code are doctests, and scripts write the pages under `GENERATED`.  What is left
is a claim here: a pattern that finds the sentence, and a function that gets the numbers in it.
"""

import re

import pytest

from . import (  # noqa: F401 - they declare claims
    numbers_of_arithmetic,
    numbers_of_evidence,
    numbers_of_features,
    numbers_of_guides,
    numbers_of_lower_bounds,
    numbers_of_momentum,
)
from .claims import CLAIMS
from .pages import PAGES, name

GENERATED = {
    "docs/scoreboard.md",
    "docs/utility.md",
    "docs/against_others.md",
    "docs/dask_measured.md",
    "docs/arithmetic.md",  # measured, partly on data that are not here
}


@pytest.mark.parametrize("name", CLAIMS)
def test_what_is_said_is_so(name):
    said = CLAIMS[name].found()
    assert said is not None, CLAIMS[name].sentence
    CLAIMS[name].check(*said.groups())


PAPERS_OWN = r"[A-Z\d][\d.]*"
# Code, formulas and addresses; where something is in a paper; what needs data to be computed.
NOT_CLAIMED = (
    r"^<!-- table: (?s:.*?)^<!-- end of table -->$",  # compared in test_generated.py
    r"^```(?s:.*?)^```$",
    r"^\$\$(?s:.*?)^\$\$$",
    r"`[^`]*`",
    r"\$[^$]*\$",
    r"\]\([^)]*\)",
    r"^\| (?:50,000|the same|1,000,000)\b.* epochs \|.*$",  # compared in tests/test_examples.py
    r"^#.*$",
    r"(?:[\w/|^)] (?:=|>=)|diameter|clip|section|step size)\s+[\d.,]+",  # as its code sets
    r"^\| (?:Ye|Altschuler|Chien|Bok), .*$",
    r"(?:Theorem|Table|Corollary|Proposition|Observation)s? "
    rf"{PAPERS_OWN}(?:(?:,| and| to) {PAPERS_OWN})*",
    r"\(\d+(?:\.\d+)?\)",
    r"Apache-2\.0",
    r"about \.3 points lower after 50 epochs \(`lastiterate reproduce bsa-table-2",
)
NUMBER = re.compile(
    r"(?<![\w.^])(?:\d*\.\d+|\d+e-?\d+|\d{1,3}(?:,\d{3})+|\d+(?= (?:%|per cent|points|times)))"
)


@pytest.mark.parametrize("page", [one for one in PAGES if name(one) not in GENERATED], ids=name)
def test_no_number_is_left_unchecked(page):
    text = page.read_text(encoding="utf-8")
    spans = [
        found.span() for one in CLAIMS.values() if one.page == name(page) and (found := one.found())
    ]
    for pattern in NOT_CLAIMED:
        spans += [found.span() for found in re.finditer(pattern, text, re.MULTILINE)]
    left = [
        text[max(0, found.start() - 60) : found.end() + 20]
        for found in NUMBER.finditer(text)
        if not any(start <= found.start() < end for start, end in spans)
    ]
    assert not left
