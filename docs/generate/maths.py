"""Formulas as MathML, made when the pages are built: nothing is fetched to view them."""

import re
from html import unescape

from latex2mathml.converter import convert

_INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
_DISPLAY = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)
_BARS = re.compile("<mo>(&#x02016;|&#x0007C;)</mo>")


def as_mathml(page: str) -> str:
    """A page's HTML with every formula drawn by the browser itself."""
    page = _INLINE.sub(lambda found: _formula(found[1]), page)
    return _DISPLAY.sub(_moved_sideways, page)


def _moved_sideways(found: re.Match[str]) -> str:
    """A formula that is too wide for a phone scrolls in a box of its own."""
    return f'<div class="formula">{_formula(found[1], display="block")}</div>'


def _formula(latex: str, *, display: str = "inline") -> str:
    # Of two bars only the first grows with an exponent after the second.
    return _BARS.sub(r'<mo stretchy="false">\1</mo>', convert(unescape(latex), display=display))
