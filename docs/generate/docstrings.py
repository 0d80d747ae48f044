"""The library's docstrings as Markdown: formulas and tables are reStructuredText in the source."""

import inspect
import re
from importlib import import_module
from textwrap import dedent
from typing import Any

from griffe import Attribute, Class, Docstring, ExprCall, Extension, Object

from lastiterate.errors import MissingExtra

_ROLE = re.compile(r":math:`([^`]+)`")
_DIRECTIVE = re.compile(r"^\.\. math:: (.*(?:\n[ \t]+\S.*)*)", re.MULTILINE)
_SESSION = re.compile(r"^>>> .*(?:\n\S.*)*", re.MULTILINE)
_EXAMPLES = "Examples\n--------\n"
_RULE = r"^=+(?: +=+)+ *(?:\n|\Z)"
_TABLE = re.compile(rf"({_RULE})((?:.+\n)+?)({_RULE})((?:[^=\n].*\n)+{_RULE})?", re.MULTILINE)


def as_markdown(docstring: str) -> str:
    """A docstring as the pages are written."""
    before, heading, examples = docstring.partition(_EXAMPLES)
    # Under that heading sessions are known for what they are; elsewhere they would be quotations.
    docstring = _SESSION.sub(r"```pycon\n\g<0>\n```", before) + heading + examples
    text = _DIRECTIVE.sub(lambda found: f"\n$$\n{dedent(found[1])}\n$$\n", docstring)
    text = _TABLE.sub(_table, text)
    return _ROLE.sub(lambda found: f"${' '.join(found[1].split())}$", text)


def _table(found: re.Match[str]) -> str:
    columns = [column.span() for column in re.finditer("=+", found[1])]
    ends = [*(start for start, _ in columns[1:]), None]
    spans = [(start, end) for (start, _), end in zip(columns, ends, strict=True)]
    head, body = found[2].splitlines(), (found[4] or "").splitlines()[:-1]
    if not body:
        head, body = [""], head
    rows = [[_cell(line[a:b].strip()) for a, b in spans] for line in [*head, *body]]
    rows.insert(1, ["---"] * len(spans))
    return "\n" + "".join(f"| {' | '.join(row)} |\n" for row in rows) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", r"\vert " if ":math:" in text else r"\|")


class Docstrings(Extension):
    """Docstrings as Markdown, those that are put together when a module is loaded included."""

    def on_attribute_instance(self, *, attr: Attribute, **_: Any) -> None:
        if isinstance(attr.value, ExprCall) and str(attr.value.function) == "setting":
            attr.value = attr.value.arguments[0]  # the default, which readers want to see

    def on_class(self, *, cls: Class, **_: Any) -> None:
        if cls.docstring is not None and "{parameters}" in cls.docstring.value:
            try:
                found = getattr(import_module(cls.module.path), cls.name)
            except MissingExtra:  # which the pages are built without
                return
            cls.docstring = Docstring(inspect.getdoc(found) or "", parent=cls)

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
