"""What a command reads itself is what typer would have read; the rest is left to typer."""

from pathlib import Path
from typing import Annotated

import pytest
import typer

from lastiterate.cli.options.option_types import whole_number
from lastiterate.cli.startup import PlainCommand, PlainGroup


def answers(words, **kinds):
    """What a command is given, or what is said instead."""
    app, given = typer.Typer(cls=kinds.get("group")), []
    app.callback()(lambda: None)

    @app.command("say", cls=kinds.get("command"))
    def say(
        file: Annotated[Path | None, typer.Argument()] = None,
        rate: Annotated[float | None, typer.Option()] = None,
        usual: Annotated[float, typer.Option()] = 0.5,
        times: Annotated[int, typer.Option()] = 1,
        size: Annotated[int | None, typer.Option(parser=whole_number)] = None,
        few: Annotated[int, typer.Option(min=1, max=3)] = 2,
        word: Annotated[str | None, typer.Option()] = None,
        loud: Annotated[bool, typer.Option("--loud")] = False,
    ) -> None:
        given.append((file, rate, usual, times, size, few, word, loud))

    try:
        typer.main.get_command(app).main(["say", *words], standalone_mode=False)
    except typer.TyperException as error:
        return error.format_message()
    return [[(type(value), value) for value in values] for values in given]


NUMBERS = [
    "1", "0.05", ".5", "5.", "-2", "+3", "1e-6", "1E+2", "1e400", "-1e-400", "1_000", "1,000",
    " 5 ", "nan", "inf", "-Infinity", "0x10", "1e", "e5", ".", "", "five",
    "\N{ARABIC-INDIC DIGIT FIVE}", "123456789012345678901234567890", "0.1234567890123456789",
]  # fmt: skip


@pytest.mark.parametrize("flag", ["rate", "usual", "times", "size", "few"])
@pytest.mark.parametrize("text", NUMBERS)
def test_numbers(flag, text):
    words = [f"--{flag}={text}"]
    assert repr(answers(words, command=PlainCommand, group=PlainGroup)) == repr(answers(words))


@pytest.mark.parametrize(
    "words",
    [[], ["--loud"], ["--word", "shuffled once"], ["--word="], ["here.toml"], ["--none"]],
    ids=" ".join,
)
def test_others(words):
    assert answers(words, command=PlainCommand, group=PlainGroup) == answers(words)
