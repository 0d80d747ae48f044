"""Every link from one page to another leads somewhere, to its heading too."""

import re

import pytest
from markdown.extensions.toc import slugify

from .pages import PAGES, ROOT, name

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FENCED = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
# When the site is built, which is strict about them.
_GENERATED = {ROOT / "docs" / one for one in ("bounds.md", "commands.md", "try/index.html")}
_PICTURES = ROOT / "docs" / "pictures"
_NAMED = re.compile(r"\{\s*#([\w-]+)\s*\}")


def links(page):
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    return [one for one in _LINK.findall(text) if not re.match(r"\w+:", one)]


def anchors(page):
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", r"\1", one) for one in headings]
    return {slugify(_NAMED.sub("", one), "-") for one in plain} | set(_NAMED.findall(text))


def broken(page):
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if target in _GENERATED or target.parent == _PICTURES:
            continue
        if not target.exists():
            yield f"{link}: no such file"
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            yield f"{link}: no such heading"


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"], ids=name
)
def test_lead_somewhere(page):
    assert list(broken(page)) == []


def test_pages_do_link():
    assert sum(len(links(page)) for page in PAGES) > 50


def test_what_leads_nowhere_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# A heading: `one`\n[a](#a-heading-one) [b](#two) [c](other.md) [d](page.md)\n"
    )
    assert list(broken(page)) == ["#two: no such heading", "other.md: no such file"]
