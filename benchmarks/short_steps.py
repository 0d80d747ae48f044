"""Certified epsilons and lower bounds of runs with short steps, by the rule that draws batches.

Part of `scoreboard.py`, which writes the page; every cell is kept in a table beside it, so that
some of them can be computed anew, and a run that was interrupted goes on where it stopped.
"""

import csv
import itertools
import math
import statistics
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from rich.progress import track

import lastiterate as li

DELTA = 1e-6
SIZE = 1_000
LIPSCHITZ, NOISE_MULTIPLIER, PENALTY = 1.0, 1.0, 1.0 / 26.0  # the penalty is relative
LENGTHS = (0.013, 0.13, 0.5, 1.0, 1.6)  # of steps: step_size * smoothness
SHORT = 0.2
GROUPS = {"up to 0.2": (0.0, SHORT), "0.5 and 1": (SHORT, 1.0), "1.6": (1.0, 2.0)}
SHAPES = ((100, 1), (100, 10), (100, 100), (100, 1_000), (20, 100), (1_000, 10))
USUAL = (100, 100)  # batches an epoch, epochs
RULES = {
    rule.name: rule
    for rule in (
        li.Cyclic,
        li.ShuffledOnce,
        li.ShuffledEachEpoch,
        li.BallsAndBins,
        li.BallsAndBinsEachEpoch,
        li.SampledWithoutReplacement,
        li.PoissonSampled,
    )
}
MOMENTUM, MOMENTUM_LENGTHS, MOMENTUM_SHAPES = 0.9, (0.013, 0.13, 0.5), ((100, 1), (100, 10))
KEY = ("rule", "adjacency", "momentum", "length", "batches", "epochs")
COLUMNS = (*KEY, "certified", "bound", "lower_bound", "by", "ratio")

HEADING = "\n## Short steps\n"
PAGE = (
    HEADING
    + """
Epsilon at delta 1e-6 of {count} runs with batches of 1,000 examples, noise multiplier 1, a penalty
of 1/26 of the smoothness, gradients of norm at most 1 and `outputs=1`. The *length* of a step is
step_size * smoothness; below 1, steps keep noise that was drawn before a participation
([proof](tightness.md#short-steps)). An epoch has 20, 100 or 1,000 batches, a run 1 to 1,000 epochs.
[All runs as a table](scoreboard_short_steps.csv).

Ratio of the certified epsilon to the lower bound, median and worst:

| batches | {groups} |
|---|{rule}
{ratios}

For sampled batches nothing is proved of noise before a participation. Beyond a length of 0.2 the
lower bounds are at fault, too: where batch sizes are random, only instances of constant curvature
are known, and that of a cyclic order is not found in 100,000 steps.
"""
)


def cells():
    """Every key: most runs leave an example out, some replace it, a few have momentum."""
    for rule, length in itertools.product(RULES, LENGTHS):
        for shape in SHAPES:
            yield (rule, "zero-out", 0.0, length, *shape)
        yield (rule, "replace", 0.0, length, *USUAL)
    for length, shape in itertools.product(MOMENTUM_LENGTHS, MOMENTUM_SHAPES):
        yield ("cyclic", "zero-out", MOMENTUM, length, *shape)
        yield ("cyclic", "zero-out", 0.0, length, *shape)


def run_of(rule, adjacency, momentum, length, batches, epochs):
    """The smoothness is the length; with momentum steps are shorter by as much as it adds."""
    return li.TrainingRun.from_dp_sgd(
        loss=li.Loss(
            smoothness=length, regulariser=PENALTY * length, lipschitz=LIPSCHITZ, outputs=1
        ),
        batches=RULES[rule](SIZE * batches, SIZE),
        clip_norm=LIPSCHITZ,
        noise_multiplier=NOISE_MULTIPLIER,
        steps=batches * epochs,
        step_size=1.0 - momentum,
        adjacency=adjacency,
    ).replace(momentum=momentum)


def computed(key):
    """A row of the table; a certificate below a lower bound is an error."""
    report = li.account(run_of(*key))
    lower = {id_: profile.epsilon(DELTA) for id_, profile in report.lower_bounds.items()}
    by = max(lower, key=lower.get)
    certified, lowest = report.epsilon(DELTA), lower[by]
    if certified < lowest:
        raise SystemExit(f"{key}: certified {certified} is below a lower bound of {lowest}")
    ratio = certified / lowest if lowest > 0.0 else math.inf
    found = (*key, certified, report.bound_at(DELTA), lowest, by, ratio)
    return dict(zip(COLUMNS, map(str, found), strict=True))


def updated(path, words):
    """The rows of the table: those that it lacks, and those of the rules in `words`, anew."""
    rows = {}
    if path.exists():
        with path.open(newline="") as file:
            rows = {tuple(row[name] for name in KEY): row for row in csv.DictReader(file)}
    every = {tuple(map(str, key)): key for key in cells()}
    rows = {name: row for name, row in rows.items() if name in every}
    wanted = [key for name, key in every.items() if name not in rows or key[0] in words]
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as workers:
        found = workers.map(computed, wanted)
        for row in track(found, "short steps", total=len(wanted), transient=True):
            rows[tuple(row[name] for name in KEY)] = row
            _write(path, [rows[name] for name in every if name in rows])
    return [rows[name] for name in every]


def _write(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def page(rows):
    """The part of the page that is about these runs."""
    plain = [row for row in rows if float(row["momentum"]) == 0.0]
    return PAGE.format(
        count=len(rows),
        groups=" | ".join(GROUPS),
        rule="---:|" * len(GROUPS),
        ratios="\n".join(_ratios(rule, plain) for rule in RULES),
    )


def ratios_of(rows, rule, group):
    """The ratios of a rule, of steps whose length is above the first and up to the second."""
    low, high = group
    return [
        float(row["ratio"])
        for row in rows
        if row["rule"] == rule and low < float(row["length"]) <= high
    ]


def _title(rule):
    return RULES[rule].name.replace("-", " ").replace("poisson", "Poisson")


def _ratios(rule, rows):
    found = [ratios_of(rows, rule, group) for group in GROUPS.values()]
    shown = [f"{statistics.median(one):.2f}, {max(one):.2f}" for one in found]
    return f"| {_title(rule)} | {' | '.join(shown)} |"
