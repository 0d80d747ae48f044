"""Items that can be reproduced: tables beside the printed values, and figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lastiterate import _check
from lastiterate.errors import InvalidParameter, MissingExtra

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


@dataclass(frozen=True)
class Cell:
    """One printed number and ours; `within` is how far apart random results may be."""

    where: str
    ours: float
    printed: float
    digits: int
    explained: str = ""
    within: float = 0.0

    @property
    def agrees(self) -> bool:
        """Whether ours, rounded as printed, is what is printed, or within the tolerance."""
        if round(self.ours, self.digits) == self.printed:
            return True
        return abs(self.ours - self.printed) <= self.within


@dataclass(frozen=True)
class Table:
    """All cells of one table, in reading order; `beside` heads the numbers that ours are beside."""

    id: str
    title: str
    cells: tuple[Cell, ...]
    notes: tuple[str, ...] = ()
    beside: str = "printed"

    @property
    def unexplained(self) -> list[Cell]:
        """Cells that differ from print for no stated reason."""
        return [cell for cell in self.cells if not cell.agrees and not cell.explained]


@dataclass(frozen=True)
class TableItem:
    """How to compute a table.

    `data` says what it is trained on, empty where nothing is trained; then `compute` takes no
    arguments, and otherwise the path of the data and the number of seeds.
    """

    id: str
    title: str
    compute: Callable[..., Table]
    data: str = ""

    def table(self, data: Path | None = None, seeds: int = 5) -> Table:
        """The table; `InvalidParameter` where it needs data and none are given."""
        if not self.data:
            return self.compute()
        if data is None:
            raise InvalidParameter("data", None, must_be=self.data)
        return self.compute(data, _check.count("seeds", seeds, at_least=1))


@dataclass(frozen=True)
class FigureItem:
    """How to draw a figure."""

    id: str
    title: str
    draw: Callable[[Any], None]
    notes: tuple[str, ...] = ()
    size: tuple[float, float] = field(default=(7.2, 3.2))

    def save(self, folder: Path) -> list[Path]:
        """The paths of the figure as PNG and as SVG."""
        from lastiterate.plot.save import write_picture

        canvas = self.canvas()
        paths = [folder / f"{self.id}.{kind}" for kind in ("png", "svg")]
        for path in paths:
            write_picture(canvas, path, dpi=160)
        return paths

    def canvas(self) -> Canvas:
        """The drawn figure."""
        try:
            from matplotlib import rc_context
            from matplotlib.figure import Figure as Canvas
        except ImportError:
            raise MissingExtra("drawing", "matplotlib", extra="plot") from None
        with rc_context(_STYLE):
            canvas = Canvas(figsize=self.size, layout="constrained")
            self.draw(canvas)
            return canvas


_STYLE: Any = {
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 8.0,
    "lines.linewidth": 1.6,
    "svg.fonttype": "none",
}
