"""Reports as HTML: a page without scripts, with pictures for day and night, and a notebook card."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from lastiterate._display import card, mu, times, up
from lastiterate._files import PAGE_START, is_sealed, refuse_replacing, sealed, write_whole
from lastiterate.accounting import USUAL_DELTA, PrivacyReport
from lastiterate.bounds.catalogue import RECORDS
from lastiterate.errors import InvalidParameter
from lastiterate.plot import style
from lastiterate.plot.curves import delta_by_epsilon, epsilon_by_steps, shift_schedule, tradeoff
from lastiterate.plot.style import as_svg
from lastiterate.report.sentences import (
    COLUMNS_EXPLAINED,
    LISTED_ONLY,
    MAY_BE_PUBLISHED,
    VOIDED_BY,
    advice,
    protection_sentence,
    run_sentence,
)
from lastiterate.report.summary import Summary, summary, training_alone_text
from lastiterate.run.training_run import if_one_example_is

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PAGE = f"""{PAGE_START}\
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{{title}}</title>
<style>{{css}}</style>
</head>
<body>
<main>
{{body}}
</main>
</body>
</html>
"""
_VOUCHED_FOR = {
    False: (
        "<h2>What you state</h2>",
        "<p>The guarantee rests on this, and the model alone cannot show it:</p>",
    ),
    True: (
        "<h2>What the trainer enforced</h2>",
        "<p>The guarantee rests on this, which the library's trainer enforces:</p>",
    ),
}
_STEPS_CAPTION = "Epsilon of this run if it had stopped earlier or continued."
_DELTA_CAPTION = "Delta against epsilon, for every bound that applies."
_SCHEDULE_CAPTION = (
    "For the most exposed position in the order: each participation of the example drives the two "
    "runs apart, and each step's noise hides a part of the distance, its shift. mu squared is the "
    "sum of the squared ratios of shift to noise."
)
_WRONG_OF_100 = 5  # in 100, the false positives that people are told of
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


def write_html(
    report: PrivacyReport,
    path: str | Path,
    *,
    delta: float,
    title: str,
    name: str = "path",
    allowed: bool = True,
    remedy: str = "",
) -> None:
    """The page as a file, which may replace an earlier page where allowed, and nothing else."""
    check_page(name, path, allowed=allowed, remedy=remedy)
    text = as_html(report, delta=delta, title=title)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_whole(name, Path(path), sealed(text.encode()), is_sealed if allowed else None, remedy)


def check_page(name: str, path: str | Path, *, allowed: bool = True, remedy: str = "") -> None:
    """Raise unless a page can be written there; `name` is of the argument that has the path."""
    refuse_replacing(name, path, is_sealed, allowed=allowed, remedy=remedy)


def as_html(report: PrivacyReport, *, delta: float, title: str = "Privacy report") -> str:
    """The page as text."""
    content = summary(report, delta)
    body = [
        f"<h1>{escape(title)}</h1>",
        _answer(content),
        f"<p>{escape(_in_plain_words(report))}</p>",
        f"<p>{escape(run_sentence(report.run))} {escape(protection_sentence(report.run))}</p>",
        *(f"<p>{escape(one)}</p>" for one in content.qualifications),
        *_steps_picture(report, delta),
        "<h2>Bounds that apply</h2>",
        _bounds(content),
        *(f"<p>{escape(one)}</p>" for one in (content.why, *advice(report, delta))),
        *_VOUCHED_FOR[report.enforced],
        _bullets(content.assumptions),
        "<h2>What may be published</h2>",
        f"<p>{MAY_BE_PUBLISHED}</p>",
        _bullets(content.release.allowed),
        f"<p>{VOIDED_BY}</p>",
        _bullets(content.release.voided_by),
        "<h2>What it means for an attacker</h2>",
        *_picture("tradeoff", lambda: tradeoff(report), _tradeoff_caption(content)),
        *_picture(
            "delta", lambda: delta_by_epsilon(report, delta=_drawable_delta(delta)), _DELTA_CAPTION
        ),
        *_schedule_section(report),
        *_refusals_section(content),
        "<h2>The run</h2>",
        "<details open><summary>As TOML, which <code>lastiterate account</code> takes</summary>",
        f"<pre>{escape(report.run.to_toml().strip())}</pre></details>",
    ]
    return _PAGE.format(title=escape(title), css=CSS, body="\n".join(body))


def _answer(content: Summary) -> str:
    without = (
        f"<p><strong>{escape(content.not_included)}</strong></p>" if content.not_included else ""
    )
    condition = if_one_example_is(content.adjacency, content.per_person)
    beside = f"{content.other_adjacency_sentence} {content.tightness}".strip()
    return (
        f'<p class="answer"><strong>&epsilon; = {escape(up(content.epsilon))}</strong> at '
        f"&delta; = {content.delta:g} {condition}, {content.kind}</p>"
        f"{without}\n<p>{escape(beside)}</p>"
    )


def _in_plain_words(report: PrivacyReport) -> str:
    """A sentence on the success of attackers, without a symbol."""
    most, adjacency = report.run.examples_per_person, report.run.adjacency
    rows = "one row was" if most == 1 else f"the rows of one person, at most {most:,}, were"
    other = "left out"
    if adjacency == "replace":
        other = "another one in its place" if most == 1 else "others in their place"
    right = min(math.ceil(100.0 * (1.0 - report.tradeoff(_WRONG_OF_100 / 100.0))), 100)
    return (
        "In plain words: suppose somebody knows all other rows and how the model was trained, and "
        f"tries to tell from what is published whether {rows} used, or {other}. If they wrongly "
        f"say \u201cused\u201d in {_WRONG_OF_100} of 100 cases, "
        f"they rightly say it in at most {right} of 100."
    )


def _steps_picture(report: PrivacyReport, delta: float) -> list[str]:
    """Epsilon by steps, if the report is of one run."""
    if report.of_more_than_the_run:
        return []
    caption = f"{_STEPS_CAPTION} {training_alone_text(report)}".strip()
    return _picture("steps", lambda: epsilon_by_steps(report.run, delta=delta), caption)


def _bounds(content: Summary) -> str:
    heads = ("&epsilon;", "&mu; (GDP)", "advantage", "ratio")
    rows = []
    for row in content.near:
        name = escape(row.id) + ("" if row.used else " *")
        works = RECORDS[row.id].source.parts
        source = "".join(f'<div class="source">{escape(str(one))}</div>' for one in works)
        cells = [up(row.epsilon), mu(row.mu), up(row.advantage), times(row.ratio)]
        numbers = "".join(f'<td class="number">{escape(cell)}</td>' for cell in cells)
        chosen = ' class="used"' if row.id == content.bound else ""
        rows.append(f'<tr{chosen}><td><span class="id">{name}</span>{source}</td>{numbers}</tr>')
    columns = "".join(f'<th class="number">{one}</th>' for one in heads)
    table = f"<table><tr><th>bound, and where it is from</th>{columns}</tr>\n"
    notes = (
        content.far_bounds_text,
        LISTED_ONLY if content.lists_unused else "",
        COLUMNS_EXPLAINED,
    )
    paragraphs = "".join(f"\n<p>{escape(one)}</p>" for one in notes if one)
    return f'<div class="wide">{table}' + "\n".join(rows) + f"\n</table></div>{paragraphs}"


def _bullets(clauses: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{escape(clause)}</li>" for clause in clauses) + "</ul>"


def _tradeoff_caption(content: Summary) -> str:
    most = content.per_person
    unit = "one example" if most == 1 else f"the examples of one person, at most {most:,},"
    return (
        f"Whoever tries to tell two data sets that differ in {unit} apart, by what is published, "
        "errs at least so often. Dashed: Gaussian mechanisms."
    )


def _drawable_delta(delta: float) -> float:
    """A delta that the picture can mark."""
    return delta if 0.0 < delta < 1.0 else USUAL_DELTA


def _schedule_section(report: PrivacyReport) -> list[str]:
    """The shift schedule, for runs that have a single one."""
    if report.of_more_than_the_run:
        return []
    caption = f"{_SCHEDULE_CAPTION} {training_alone_text(report)}".strip()
    try:
        drawn = _picture("plan", lambda: shift_schedule(report.run), caption)
    except InvalidParameter:
        return []
    return ["<h2>How the noise of other steps hides an example</h2>", *drawn]


def _picture(name: str, draw: Callable[[], Figure], caption: str) -> list[str]:
    svg = themed(as_svg(draw()), prefix=name)
    label = escape(caption, quote=True)
    return [
        f'<figure role="img" aria-label="{label}">{svg}<figcaption>{label}</figcaption></figure>'
    ]


def themed(svg: str, *, prefix: str) -> str:
    """The picture in the page's colours, with names of its own for its parts."""
    for colour, variable in _VARIABLE.items():
        svg = svg.replace(colour, variable)
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r'href="#', f'href="#{prefix}-', svg)
    return svg.replace("url(#", f"url(#{prefix}-")


def _refusals_section(content: Summary) -> list[str]:
    if not content.refusals:
        return []
    rows = [
        f'<tr><td class="id">{"<br>".join(map(escape, one.bounds))}</td>'
        f"<td>{escape(one.reason.needs)}</td><td>{escape(one.reason.found)}</td>"
        f"<td>{escape(one.reason.remedy)}</td></tr>"
        for one in content.refusals
    ]
    head = "<tr><th>bound</th><th>needs</th><th>found</th><th>what would help</th></tr>"
    return [
        "<h2>Bounds that do not apply</h2>",
        f'<div class="wide"><table>{head}\n' + "\n".join(rows) + "\n</table></div>",
    ]


def as_card(report: PrivacyReport) -> str:
    """The first lines of the printed report and what voids the guarantee, as HTML."""
    content = summary(report, USUAL_DELTA)
    rows = [
        (row.id, f"epsilon {up(row.epsilon)}, mu {mu(row.mu)}, advantage {up(row.advantage)}")
        for row in content.near
    ]
    lead = f"{run_sentence(report.run)} {protection_sentence(report.run)} {content.tightness}"
    notes = [
        *([content.not_included] if content.not_included else []),
        *content.qualifications,
        f"{content.release}",
        f"{VOIDED_BY} {'; '.join(content.release.voided_by)}.",
    ]
    return card(content.answer, rows, lead=lead, notes=notes)
