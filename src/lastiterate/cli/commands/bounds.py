"""bounds: the catalogue, and what one of them says."""

import inspect
import textwrap
from typing import TYPE_CHECKING, Annotated

import typer

from lastiterate.cli.plain_text_math import plain
from lastiterate.cli.terminal import line_width
from lastiterate.errors import InvalidParameter

if TYPE_CHECKING:
    from lastiterate.bounds.bound import Bound

_WIDEST = 96


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("bounds")(bounds)


def bound_ids(typed: str) -> list[str]:
    """Ids of bounds that begin with the typed text, or whose last part is the typed text."""
    from lastiterate.bounds.catalogue import RECORDS

    return [id_ for id_ in RECORDS if id_.startswith(typed) or id_.split("/")[-1] == typed]


def bounds(
    explain: Annotated[
        str | None,
        typer.Option(help="an id, its last part, or a family", autocompletion=bound_ids),
    ] = None,
) -> None:
    """The catalogue of bounds.

    Example: lastiterate bounds --explain random-order/shuffled
    """
    from lastiterate.bounds.catalogue import CATALOGUE

    if explain is not None:
        print("\n\n".join(_explained(bound) for bound in _found(explain)))
        return
    for bound in CATALOGUE.values():
        lines = [bound.id, *_wrapped(bound.gives, "    ")]
        if bound.certainty.name != "UPPER":
            lines += _wrapped(f"({bound.certainty.value})", "    ")
        print("\n".join(lines))


def _found(asked: str) -> "list[Bound]":
    """Bounds with this whole id or in this family, or else those whose id has this last part."""
    from lastiterate.bounds.catalogue import RECORDS, select

    try:
        return select(asked)
    except InvalidParameter as error:
        named = [bound for id_, bound in RECORDS.items() if id_.split("/")[-1] == asked]
        if not named:
            raise InvalidParameter("explain", asked, must_be=error.must_be) from None
        return named


def _explained(bound: "Bound") -> str:
    certainty = bound.certainty.value.replace("`", "")
    lines = [bound.id, *_wrapped(bound.gives, "    "), *_wrapped(f"({certainty})", "    "), ""]
    lines += [line for one in bound.source.parts for line in _wrapped(str(one), "")]
    for paragraph in inspect.cleandoc(bound.evaluate.__doc__ or "").split("\n\n"):
        lines += ["", *_wrapped(plain(paragraph), "")]
    stages = [id_ for id_ in bound_ids(f"{bound.id}/") if not bound.id.startswith("published")]
    if stages:
        lines += ["", "Stages, each of which can be explained by its id:"]
        lines += [f"  - {id_}" for id_ in stages]
    lines += ["", "Needs:"]
    for one in bound.needs:
        lines += _wrapped(one.needs, "  - ") + _wrapped(f"otherwise: {one.remedy}", "    ")
    return "\n".join(lines)


def _wrapped(text: str, before: str) -> list[str]:
    return textwrap.wrap(
        " ".join(text.split()),
        line_width(_WIDEST),
        initial_indent=before,
        subsequent_indent=" " * len(before),
    )
