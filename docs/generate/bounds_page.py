"""The table of bounds, from the records that `account` itself uses."""

import inspect
from collections.abc import Iterable

from docstrings import as_markdown

from lastiterate.bounds.bound import Bound, Certainty, Statement
from lastiterate.bounds.catalogue import APPROXIMATIONS, CATALOGUE, PUBLISHED, RECORDS
from lastiterate.lower_bounds.catalogue import LOWER_BOUNDS

_HEAD = """# Table of bounds

Made from the library's own records when these pages are built: what is listed here is what runs.
`lastiterate bounds --explain ID` prints the words, without formulas, in a terminal.

| certainty | meaning |
|---|---|
"""
_WHAT_ACCOUNT_USES = """
`account` takes, at every point, the best of the **library's own** bounds that apply. Those of
papers are never below them; they are there to be compared with, and answer only when asked for by
name: `li.account(run, bounds="published/...")` or `li.account(run, including="published")`.
"""


def text() -> str:
    """The page, as Markdown."""
    own = [bound for bound in CATALOGUE.values() if not bound.id.startswith(f"{PUBLISHED}/")]
    papers = [bound for bound in CATALOGUE.values() if bound not in own]
    parts = [
        _HEAD + "".join(f"| `{one.name}` | {_cell(one.value)} |\n" for one in Certainty),
        "| estimate | what a limit theorem suggests; it has no epsilon and is never a bound |\n",
        _WHAT_ACCOUNT_USES,
        _section("The library's own", own),
        _section("Stages", [one for id_, one in RECORDS.items() if id_ not in CATALOGUE]),
        _section("As in the papers", papers),
        _section("Lower bounds", LOWER_BOUNDS.values()),
        _section("Estimates", APPROXIMATIONS.values()),
    ]
    return "".join(parts)


def _section(title: str, statements: Iterable[Statement]) -> str:
    statements = list(statements)
    rows = [f"| [`{one.id}`](#{_anchor(one)}) | {_cell(one.gives)} |\n" for one in statements]
    summary = "| id | gives |\n|---|---|\n" + "".join(rows)
    return f"\n## {title}\n\n{summary}" + "".join(map(_entry, statements))


def _entry(one: Statement) -> str:
    rules = ", ".join(f"`{rule.__name__}`" for rule in one.covers)
    certainty = one.certainty.name if isinstance(one, Bound) else None
    needs = "".join(f"| {_cell(each.needs)} | {_cell(each.remedy)} |\n" for each in one.needs)
    lines = [
        f"\n### {one.id} {{ #{_anchor(one)} }}\n\n{_capital(one.gives)}.\n",
        f"\nCertainty: `{certainty}`.\n" if certainty else "",
        f"\nBatches: {rules}.\n\nSource: {'. '.join(map(str, one.source.parts))}.\n",
        f"\n| needs | otherwise |\n|---|---|\n{needs}" if needs else "",
        f'\n??? note "Statement"\n\n{_indented(_statement(one))}\n',
    ]
    return "".join(lines)


def _statement(one: Statement) -> str:
    return as_markdown(inspect.cleandoc(one.evaluate.__doc__ or ""))  # type: ignore[attr-defined]  # every kind of statement has it


def _indented(markdown: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in markdown.splitlines())


def _anchor(one: Statement) -> str:
    return one.id.replace("/", "-")


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _cell(sentence: str) -> str:
    return sentence.replace("|", "\\|")
