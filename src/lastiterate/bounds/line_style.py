"""The colour and dash of a bound, the same in every picture."""

from dataclasses import dataclass

Dash = str | tuple[float, tuple[float, ...]]

GREY = "#7a7f87"
# Okabe and Ito 2008, without black and yellow.
BLUE, VERMILLION, GREEN = "#0072b2", "#d55e00", "#009e73"
PURPLE, ORANGE, SKY = "#cc79a7", "#e69f00", "#56b4e9"
DASHES: tuple[Dash, ...] = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))


@dataclass(frozen=True)
class LineStyle:
    """A colour and a dash."""

    colour: str
    dash: Dash = "-"
