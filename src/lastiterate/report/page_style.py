"""How the page looks, and pictures that follow it from day to night."""

from __future__ import annotations

import re

from lastiterate.plot import style

# Each colour of the pictures: its name on the page, and what it is on a dark ground.
_COLOURS = {
    style.INK: ("ink", "#e6e8eb"),
    style.GREY: ("grey", "#9aa1aa"),
    style.FAINT: ("faint", "#3a4048"),
    style.BLUE: ("blue", "#4aa8e0"),
    style.VERMILLION: ("vermillion", "#f07f2e"),
    style.GREEN: ("green", "#2fc39a"),
    style.PURPLE: ("purple", "#dc96bd"),
    style.ORANGE: ("orange", "#e9ae2b"),
    style.SKY: ("sky", "#7cc8f4"),
}
_DAY = "".join(f"--{name}: {colour}; " for colour, (name, _) in _COLOURS.items())
_NIGHT = "".join(f"--{name}: {colour}; " for name, colour in _COLOURS.values())
_VARIABLE = {colour: f"var(--{name})" for colour, (name, _) in _COLOURS.items()}

CSS = f"""
:root {{ color-scheme: light dark; {_DAY}--ground: #ffffff; --used: #e8f4ee; }}
@media (prefers-color-scheme: dark) {{
  :root {{ {_NIGHT}--ground: #14171a; --used: #1c3129; }}
}}
body {{ margin: 0; background: var(--ground); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", sans-serif; }}
main {{ max-width: 54rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }}
h1 {{ font-size: 1.6rem; margin: 0 0 .5rem; }}
h2 {{ font-size: 1.15rem; margin: 2.2rem 0 .6rem; }}
.answer {{ font-size: 1.15rem; margin: 1.2rem 0 .2rem; }}
.answer strong {{ font-size: 1.9rem; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; width: 100%; font-size: .88rem; }}
th, td {{ text-align: left; padding: .4rem .7rem .4rem 0; vertical-align: top;
  border-bottom: 1px solid var(--faint); }}
.number {{ text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }}
.id, th {{ white-space: nowrap; }}
.used td {{ background: var(--used); font-weight: 600; }}
.source {{ font-weight: normal; font-size: .8rem; color: var(--grey); }}
@media (max-width: 40rem) {{
  main {{ padding: 1.2rem .8rem 3rem; }}
  .id {{ white-space: normal; overflow-wrap: anywhere; }}
  table {{ font-size: .8rem; }}
  th {{ white-space: normal; }}
  th, td {{ padding-right: .45rem; }}
}}
figure {{ margin: 1.4rem 0; }}
figure svg {{ width: 100%; height: auto; }}
figcaption {{ font-size: .88rem; color: var(--grey); }}
pre {{ overflow-x: auto; padding: .9rem; border: 1px solid var(--faint); font-size: .82rem; }}
@media print {{ main {{ max-width: none; padding: 0; }} }}
"""


def themed(svg: str, *, prefix: str) -> str:
    """The picture in the page's colours, with names of its own for its parts."""
    for colour, variable in _VARIABLE.items():
        svg = svg.replace(colour, variable)
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r'href="#', f'href="#{prefix}-', svg)
    return svg.replace("url(#", f"url(#{prefix}-")
