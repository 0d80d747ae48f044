"""Formulas as MathML, made when the pages are built: nothing is fetched to view them."""

import re
from html import unescape
from textwrap import dedent
from typing import Any

from griffe import Extension, Object
from latex2mathml.converter import convert

_ROLE = re.compile(r":math:`([^`]+)`")
_DIRECTIVE = re.compile(r"^\.\. math:: (.*(?:\n[ \t]+\S.*)*)", re.MULTILINE)
_INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
_DISPLAY = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)


def as_markdown(docstring: str) -> str:
    """The roles and directives that docstrings use for formulas, as the pages write them."""
    text = _DIRECTIVE.sub(lambda found: f"\n$$\n{dedent(found[1])}\n$$\n", docstring)
    return _ROLE.sub(lambda found: f"${' '.join(found[1].split())}$", text)


def as_mathml(page: str) -> str:
    """A page's HTML with every formula drawn by the browser itself."""
    page = _INLINE.sub(lambda found: convert(unescape(found[1])), page)
    return _DISPLAY.sub(lambda found: convert(unescape(found[1]), display="block"), page)


class Formulas(Extension):
    """Docstrings as Markdown."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
