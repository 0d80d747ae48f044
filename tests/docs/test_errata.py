"""That the errata page names what the catalogue has; its demonstrations are doctests."""

import re
from pathlib import Path

import pytest

from lastiterate.bounds.catalogue import CATALOGUE

PAGE = Path(__file__).parents[2] / "docs" / "errata.md"


def test_every_id_exists():
    ids = re.findall(r"published/[a-z-]+/[a-z-]+", PAGE.read_text())
    assert ids
    assert set(ids) <= set(CATALOGUE)


@pytest.mark.parametrize("name", ["altschuler_talwar_3_6", "chien_li_3_12", "footnote_4"])
def test_false_forms_are_nowhere_but_under_reproduce(name):
    source = PAGE.parent.parent / "src" / "lastiterate"
    holders = {
        path.parent.name
        for path in source.rglob("*.py")
        if re.search(rf"def \w*{name}", path.read_text())
    }
    assert holders == {"reproduce"}
