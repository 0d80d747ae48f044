"""Certified epsilons, composition and lower bounds at batch fractions at which people train.

Part of `scoreboard.py`, which writes the page; every cell is kept in a table beside it, so that
some of them can be computed anew.
"""

import csv
import itertools
import math
import statistics
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from multiprocessing import get_context

from rich.progress import track

import lastiterate as li
from lastiterate import plot
from lastiterate.plot.style import PALETTE
from lastiterate.bounds.bound import LineStyle
from lastiterate.run.batch_rules.base import Resampling

DELTA = 1e-6
SIZE = 10_000
BATCHES = (40, 250, 1_000, 10_000)  # an epoch
EPOCHS = (1, 10, 100, 1_000)
RATIOS = (0.1, 0.3, 1.0, 3.0)
CURVATURES = (0.0, 1e-4, 1e-2)
RULES = {
    rule.name: rule
    for rule in (
        li.ShuffledEachEpoch,
        li.ShuffledOnce,
        li.SampledWithoutReplacement,
        li.PoissonSampled,
    )
}
TITLES = {
    "shuffled-each-epoch": "shuffled each epoch",
    "shuffled-once": "shuffled once",
    "sampled": "sampled",
    "poisson": "Poisson",
}
ADJACENCIES = ("replace", "zero-out")
DRAWN_ANEW_EPOCHS = (100,)  # where a cell takes seconds; --whole has all
KEY = ("rule", "adjacency", "batches", "epochs", "r", "curvature")
COLUMNS = (*KEY, "certified", "bound", "composition", "lower_bound", "by", "ratio")

HEADING = "\n## At realistic batch fractions\n"
PAGE = (
    HEADING
    + """
Epsilon at delta 1e-6 of {count:,} runs with batches of b = 10,000 examples. b/n is from 1/40 to
1/10,000, the number of epochs from 1 to 1,000. r, from 0.1 to 3, is the distance by which one
participation moves a step, divided by the noise of that step. The curvature is 0, 1e-4 or 1e-2, and
step_size * smoothness is 1. [All runs as a table](scoreboard.csv), with the instance of the lower
bound. {drawn_anew}

Ratio of the certified epsilon to the lower bound, median and worst:

| batches | adjacency | {fractions} |
|---|---|{rule}
{ratios}

![The certified epsilon over the lower bound, against the batches of an epoch](scoreboard.png)
"""
)


def cells(whole):
    """Every key, few of them where batches are drawn anew."""
    for rule, adjacency in itertools.product(RULES, ADJACENCIES):
        costly = RULES[rule].resampling is Resampling.EACH_STEP
        epochs = DRAWN_ANEW_EPOCHS if costly and not whole else EPOCHS
        yield from itertools.product((rule,), (adjacency,), BATCHES, epochs, RATIOS, CURVATURES)


def run_of(rule, adjacency, batches, epochs, r, curvature):
    """Step size, noise and smoothness 1."""
    made = RULES[rule](SIZE * batches, SIZE)
    sensitivity = r * SIZE
    varies = not made.exact_size
    return li.TrainingRun(
        loss=li.Loss(
            smoothness=1.0,
            strong_convexity=curvature,
            regulariser=curvature if varies or adjacency == "zero-out" else 0.0,
            lipschitz=sensitivity / 2 if varies and adjacency == "replace" else None,
        ),
        sensitivity=sensitivity,
        batches=made,
        steps=batches * epochs,
        step_size=1.0,
        noise_std=1.0,
        adjacency=adjacency,
    )


@cache
def composed(adjacency, batches, epochs, r):
    rule = li.PoissonSampled if adjacency == "zero-out" else li.SampledWithoutReplacement
    run = run_of(rule.name, adjacency, batches, epochs, r, 0.0)
    return li.account(run, bounds="composition").epsilon(DELTA)


def computed(key):
    """A row of the table; a certificate below a lower bound is an error."""
    run = run_of(*key)
    report = li.account(run)
    lower = {id_: profile.epsilon(DELTA) for id_, profile in report.lower_bounds.items()}
    by = max(lower, key=lower.get)
    certified, lowest = report.epsilon(DELTA), lower[by]
    if certified < lowest:
        raise SystemExit(f"{key}: certified {certified} is below a lower bound of {lowest}")
    adjacency, batches, epochs, r = key[1:5]
    numbers = (certified, report.bound_at(DELTA), composed(adjacency, batches, epochs, r), lowest)
    ratio = certified / lowest if lowest > 0.0 else math.inf
    return dict(zip(COLUMNS, map(str, (*key, *numbers, by, ratio)), strict=True))


def asked_for(key, words):
    """Whether a cell matches one of the words about its rule, its adjacency and its fraction."""
    has = (*key[:2], f"1/{key[2]}")
    known = ({*RULES}, {*ADJACENCIES}, {f"1/{batches}" for batches in BATCHES})
    asked = [(one, words & every) for one, every in zip(has, known, strict=True) if words & every]
    return bool(asked) and all(one in chosen for one, chosen in asked)


def updated(path, only, *, whole):
    """The rows of the table, those that are asked for computed anew, and kept one by one."""
    rows = {}
    if path.exists():
        with path.open(newline="") as file:
            rows = {tuple(row[name] for name in KEY): row for row in csv.DictReader(file)}
    wanted = [key for key in cells(whole) if only is None or asked_for(key, set(only))]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as workers:
        found = workers.map(computed, wanted, chunksize=len(CURVATURES))
        for row in track(found, "cells", total=len(wanted), transient=True):
            rows[tuple(row[name] for name in KEY)] = row
            _write(path, rows)
    return list(rows.values())


def _write(path, rows):
    order = {tuple(map(str, key)): number for number, key in enumerate(cells(whole=True))}
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[key] for key in sorted(rows, key=lambda key: order.get(key, 0)))


def page(rows):
    """The part of the page that is about these runs."""
    pairs = list(itertools.product(RULES, ADJACENCIES))
    by_pair = {
        pair: [row for row in rows if (row["rule"], row["adjacency"]) == pair] for pair in pairs
    }
    anew = sum(
        len(found)
        for (rule, _), found in by_pair.items()
        if RULES[rule].resampling is Resampling.EACH_STEP
    )
    everything = len(list(cells(whole=True)))
    drawn_anew = (
        ""
        if len(rows) == everything
        else f"Only {anew} runs have sampled or Poisson batches, which take longest."
    )
    return PAGE.format(
        count=len(rows),
        drawn_anew=drawn_anew,
        fractions=" | ".join(f"1/{batches:,}" for batches in BATCHES),
        rule="---:|" * len(BATCHES),
        ratios="\n".join(_ratios(pair, found) for pair, found in by_pair.items() if found),
    )


def _ratios(pair, rows):
    shown = []
    for batches in BATCHES:
        found = [float(row["ratio"]) for row in rows if int(row["batches"]) == batches]
        shown.append(f"{statistics.median(found):.2f}, {max(found):.2f}" if found else "-")
    return f"| {TITLES[pair[0]]} | {pair[1]} | {' | '.join(shown)} |"


def shown_epsilon(text, rounded):
    """Four digits of an epsilon; a dash where it is too large to say anything."""
    value = float(text)
    if not value < 1e6:
        return "-"
    unit = 10.0 ** (math.floor(math.log10(value)) - 3) if value > 0.0 else 1.0
    digits = max(0, -round(math.log10(unit)))
    return f"{rounded(value / unit) * unit:.{digits}f}"


def picture(rows, path):
    """Median and worst ratio of every rule, against the batches of an epoch."""
    curves, line_styles = {}, {}
    for colour, (name, title) in zip(PALETTE, TITLES.items(), strict=False):
        for kind, dash, summary in (("", "-", statistics.median), (", worst", ":", max)):
            label = f"{title}{kind}"
            curves[label] = [
                summary(found)
                if (
                    found := [
                        float(row["ratio"])
                        for row in rows
                        if row["rule"] == name and int(row["batches"]) == batches
                    ]
                )
                else math.nan
                for batches in BATCHES
            ]
            line_styles[label] = LineStyle(colour, dash)
    drawn = plot.lines(
        BATCHES,
        curves,
        across="batches of an epoch",
        up="certified over lower bound",
        line_styles=line_styles,
    )
    plot.save(drawn, path)
