"""bounds: the catalogue of bounds, lower bounds and estimates, and an explanation of each."""

import inspect
import textwrap
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from lastiterate.cli.terminal import line_width
from lastiterate.errors import InvalidParameter

if TYPE_CHECKING:
    from lastiterate.bounds.bound import Approximation, Bound, LowerBound

    Explainable = Bound | LowerBound | Approximation

_WIDEST_LINE = 96
_FORMULA = ":math:"  # which a terminal cannot show


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("bounds")(bounds)


def bound_ids(typed: str) -> list[str]:
    """Ids of bounds that begin with the typed text, or whose last part is the typed text."""
    from lastiterate.bounds.catalogue import RECORDS

    return [id_ for id_ in RECORDS if id_.startswith(typed) or id_.split("/")[-1] == typed]


def _explainable_ids(typed: str) -> list[str]:
    return [id_ for id_ in _statements() if id_.startswith(typed)]


def bounds(
    id_: Annotated[
        str | None,
        typer.Argument(
            metavar="[ID]", help="explain this one; like --explain", autocompletion=_explainable_ids
        ),
    ] = None,
    explain: Annotated[
        str | None,
        typer.Option(help="an id, its last part, or a family", autocompletion=_explainable_ids),
    ] = None,
) -> None:
    """List all bounds, lower bounds and estimates, or explain one.

    Example: lastiterate bounds random-order/shuffled
    """
    from lastiterate.bounds.catalogue import APPROXIMATIONS, CATALOGUE
    from lastiterate.lower_bounds.catalogue import LOWER_BOUNDS

    if id_ is not None and explain is not None:
        raise InvalidParameter("explain", explain, must_be="left out where an ID is given")
    explain = explain if id_ is None else id_
    if explain is not None:
        print("\n\n".join(_explanation(one) for one in _statements_named(explain)))
        return
    parts = (
        _list_text("Bounds", CATALOGUE.values()),
        _list_text("Lower bounds", LOWER_BOUNDS.values()),
        _list_text("Estimates", APPROXIMATIONS.values()),
    )
    print("\n\n".join(parts))


def _certainty(one: "Explainable") -> str:
    from lastiterate.bounds.bound import Approximation

    if isinstance(one, Approximation):
        return "an estimate from a limit theorem, not a bound"
    return one.certainty.value.replace("`", "")


def _list_text(title: str, statements: "Iterable[Explainable]") -> str:
    from lastiterate.bounds.bound import Certainty

    lines = [f"{title}:"]
    for one in statements:
        lines += [one.id, *_wrap(one.gives, "    ")]
        if title == "Bounds" and (certainty := _certainty(one)) != Certainty.UPPER.value:
            lines += _wrap(f"({certainty})", "    ")
    return "\n".join(lines)


def _statements() -> "dict[str, Explainable]":
    """Bounds with their stages, lower bounds and estimates, by id."""
    from lastiterate.bounds.catalogue import APPROXIMATIONS, RECORDS
    from lastiterate.lower_bounds.catalogue import LOWER_BOUNDS

    return {**RECORDS, **LOWER_BOUNDS, **APPROXIMATIONS}


def _statements_named(name: str) -> "list[Explainable]":
    """The statements with this id, in this family, or whose id has this last part."""
    from lastiterate.bounds.catalogue import CATALOGUE

    known = _statements()
    if name in known:
        return [known[name]]
    stages = known.keys() - CATALOGUE.keys()
    family = [
        one
        for id_, one in known.items()
        if id_.startswith(f"{name.rstrip('/')}/")
        and not (id_ in stages and id_.rpartition("/")[0] in CATALOGUE)
    ]
    named = family or [one for id_, one in known.items() if id_.split("/")[-1] == name]
    if not named:
        must_be = "an id that `lastiterate bounds` lists, its last part, or a family"
        raise InvalidParameter("explain", name, must_be=must_be)
    return named


def _explanation(bound: "Explainable") -> str:
    kind = _certainty(bound)
    lines = [bound.id, *_wrap(bound.gives, "    "), *_wrap(f"({kind})", "    "), ""]
    lines += [line for one in bound.source.parts for line in _wrap(str(one), "")]
    for paragraph in inspect.cleandoc(bound.evaluate.__doc__ or "").split("\n\n"):
        if _FORMULA not in paragraph:
            lines += ["", *_wrap(paragraph.replace("**", ""), "")]
    lines += ["", f"With formulas: docs/bounds.md#{bound.id.replace('/', '-')}"]
    stages = [id_ for id_ in bound_ids(f"{bound.id}/") if not bound.id.startswith("published")]
    if stages:
        lines += ["", "Stages, each of which can be explained by its id:"]
        lines += [f"  - {id_}" for id_ in stages]
    lines += ["", "Needs:"]
    for one in bound.needs:
        lines += _wrap(one.needs, "  - ") + _wrap(f"otherwise: {one.remedy}", "    ")
    return "\n".join(lines)


def _wrap(text: str, before: str) -> list[str]:
    return textwrap.wrap(
        " ".join(text.split()),
        line_width(_WIDEST_LINE),
        initial_indent=before,
        subsequent_indent=" " * len(before),
    )
