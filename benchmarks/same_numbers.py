"""Every number of the README's and the scoreboard's runs, to the last digit, to be compared.

    python benchmarks/same_numbers.py before.json            # in one checkout
    python benchmarks/same_numbers.py after.json --than before.json

Exits with 1 and a table where two files differ: a change that is to leave numbers alone can be
held against the state before it.
"""

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table
from scoreboard import mnist, settings

import lastiterate as li

DELTAS = (1e-3, 1e-5, 1e-8)


def readme():
    """The runs behind the README's example and its table."""
    left_out = {"adjacency": "zero-out", "sensitivity": 5.0}
    penalty = {"loss": li.Loss(smoothness=32.502, regulariser=0.002)}
    yield "README, example, release noise", mnist(li.ShuffledOnce, release_noise_std=0.002)
    for epochs in (50, 200, 1_000, 10_000):
        steps = {"steps": 40 * epochs}
        yield f"README, shuffled once, {epochs}", mnist(li.ShuffledOnce, **steps)
        yield f"README, left out, {epochs}", mnist(li.ShuffledOnce, **steps, **left_out)
        poisson = mnist(li.PoissonSampled, clip_norm=5.0, **steps, **penalty)
        lipschitz = li.Loss(smoothness=32.502, regulariser=0.002, lipschitz=5.0)
        yield f"README, Poisson, {epochs}", poisson.replace(loss=lipschitz)
        yield (
            f"README, Poisson left out, {epochs}",
            mnist(li.PoissonSampled, **steps, **penalty, **left_out),
        )


def numbers(run):
    report = li.account(run, including="published")
    found = {
        f"{id_} at {delta:g}": profile.epsilon(delta)
        for id_, profile in {**report.all, **report.lower_bounds}.items()
        for delta in DELTAS
    }
    return {name: repr(float(value)) for name, value in sorted(found.items())}


def measured():
    runs = [*readme(), *((name, run) for name, run, _ in settings())]
    return {name: numbers(run) for name, run in track(runs, "accounting")}


def differences(before, after):
    for run in sorted({*before, *after}):
        old, new = before.get(run, {}), after.get(run, {})
        for name in sorted({*old, *new}):
            if old.get(name) != new.get(name):
                yield run, name, old.get(name, "-"), new.get(name, "-")


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("out", type=Path)
    arguments.add_argument("--than", type=Path, help="what to compare with")
    chosen = arguments.parse_args()
    found = measured()
    chosen.out.write_text(json.dumps(found, indent=1) + "\n")
    count = sum(map(len, found.values()))
    if chosen.than is None:
        print(f"{count} numbers of {len(found)} runs written to {chosen.out}")
        return 0
    table = Table("run", "bound", "before", "after")
    for row in differences(json.loads(chosen.than.read_text()), found):
        table.add_row(*row)
    if table.row_count:
        Console().print(table)
    print(f"{count} numbers of {len(found)} runs, {table.row_count} differ")
    return 1 if table.row_count else 0


if __name__ == "__main__":
    sys.exit(main())
