"""Items that can be reproduced, tables beside printed values and figures; the printed values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lastiterate import _check
from lastiterate.errors import InvalidParameter, MissingExtra

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

_STYLE: Any = {
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "legend.fontsize": 8.0,
    "lines.linewidth": 1.6,
    "svg.fonttype": "none",
}
EPOCHS = (50, 100, 200)
REGULARISERS = (0.002, 0.004)
# Table 1: epsilon by composition, by Renyi divergences, by their bound.
TABLE_1 = {50: (30.51, 5.82, 4.34), 100: (49.88, 7.61, 5.60), 200: (83.83, 9.88, 7.58)}
# Table 3: mu by composition (cyclic; sampled, by a limit theorem), by their bound.
TABLE_3 = {
    50: (4.71, 1.03, 0.99, 0.99),
    100: (6.67, 1.45, 1.24, 1.22),
    200: (9.43, 2.05, 1.59, 1.51),
}
# Table 4: epsilon by composition (cyclic; sampled), Renyi divergences, their bound.
TABLE_4 = {
    50: (30.51, 4.44, 5.82, 5.61, 4.34, 4.32),
    100: (49.88, 6.65, 7.61, 7.00, 5.60, 5.51),
    200: (83.83, 10.11, 9.88, 8.38, 7.58, 7.09),
}
# Tables 2, 5, 6: accuracy in per cent, mean over ten runs; cyclic then sampled, by regulariser.
TABLE_5 = {
    50: (89.36, 89.23, 89.36, 89.22),
    100: (90.24, 90.00, 90.25, 89.99),
    200: (90.85, 90.39, 90.84, 90.37),
}
TABLE_6 = {
    50: (90.12, 90.03, 90.12, 90.00),
    100: (90.94, 90.70, 90.97, 90.75),
    200: (91.37, 91.02, 91.40, 91.01),
}
CONTRACTIONS_7 = (0.92, 0.96, 0.98, 0.99, 0.995)
# Table 7: mu by composition, then by contraction.
TABLE_7 = {
    10: (0.316, 0.308, 0.314, 0.316, 0.316, 0.316),
    100: (1.000, 0.490, 0.688, 0.871, 0.961, 0.990),
    1000: (3.162, 0.490, 0.700, 0.995, 1.411, 1.984),
}
STEP_SIZES_8 = (0.2, 0.1, 0.05)
# Table 8: (t*, mu*) by L/n and step size.
TABLE_8 = {
    0.25: ((80, 0.280), (160, 0.395), (320, 0.559)),
    0.5: ((40, 0.395), (80, 0.559), (160, 0.791)),
    1.0: ((20, 0.559), (40, 0.791), (80, 1.118)),
}
COLUMNS_9 = tuple((length, c) for length in (10, 20, 40) for c in (0.98, 0.99, 0.995))
# Table 9: mu by composition, then by number of batches and contraction.
TABLE_9 = {
    5: (0.447, 0.229, 0.233, 0.235, 0.211, 0.215, 0.217, 0.202, 0.205, 0.208),
    50: (1.414, 0.270, 0.334, 0.410, 0.216, 0.237, 0.275, 0.203, 0.208, 0.219),
    500: (4.472, 0.270, 0.336, 0.439, 0.216, 0.237, 0.276, 0.203, 0.208, 0.219),
}
STEP_SIZES_10 = (0.04, 0.02, 0.01)
# Tables 10, 11, 12: (E*, mu*) by L/b and step size, for 10, 20 and 40 batches.
TABLES_10_TO_12 = {
    10: {
        0.25: ((31, 0.534), (62, 0.750), (123, 1.057)),
        0.5: ((17, 0.764), (33, 1.067), (65, 1.500)),
        1.0: ((10, 1.106), (20, 1.528), (40, 2.134)),
    },
    20: {
        0.25: ((16, 0.382), (31, 0.534), (62, 0.750)),
        0.5: ((9, 0.553), (17, 0.764), (33, 1.067)),
        1.0: ((5, 0.816), (10, 1.106), (20, 1.528)),
    },
    40: {
        0.25: ((8, 0.276), (16, 0.382), (31, 0.534)),
        0.5: ((5, 0.408), (9, 0.553), (17, 0.764)),
        1.0: ((3, 0.624), (5, 0.816), (10, 1.106)),
    },
}


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
        from lastiterate.plot.style import write_picture

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
