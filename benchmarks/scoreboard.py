"""The page with every bound and how far it is from a lower bound.

    python benchmarks/scoreboard.py
    python benchmarks/scoreboard.py --only shuffled-once shuffled-each-epoch 1/1000
    python benchmarks/scoreboard.py --only short-steps balls-and-bins balls-and-bins-each-epoch

A lower bound is the exact privacy of an instance that obeys the run's description, from a formula
or from a search.  No guarantee for such runs can be below it.
"""

import argparse
import math
import string
from pathlib import Path

import realistic
import short_steps
from rich.progress import track

import lastiterate as li
from lastiterate.audit import exact
from lastiterate.errors import LastIterateError

DELTA = 1e-5
EVERY_KIND, SHORT_STEPS = "every-kind", "short-steps"
HEAD = """# Scoreboard

**In a known order the certified epsilon is that of a run which fits the description, but for balls
and active clips. In a secret order it is mostly within a tenth of a lower bound, and above twice
that bound where batches are a very small part of the data, or sampled and steps are short.**

Epsilon at delta 1e-5 of runs of every kind (`make scoreboard`). The *lower bound* is the exact
privacy of the most exposed instance known that obeys the run's description. *Ratio* is the
certified epsilon over the lower bound: 1 means that no proof can do better. *Published* is the best
proved theorem of the five papers. The last column says what separates the two.

| run | certified | published | composition | lower bound | ratio | gap |
|---|---:|---:|---:|---:|---:|---|
"""
MNIST = {"sensitivity": 10.0, "steps": 2_000, "step_size": 0.05, "noise_std": 0.01}
POISSON_LOSS = li.Loss(smoothness=32.502, regulariser=0.002)
EXACT = "exact: drifting iterates attain it"
SHORT = "the change that an example makes varies with the iterate; the instance's does not"
HIDDEN = (
    "participations at the positions from which mass is transported are charged too, and earlier "
    "epochs are charged as if the example came last"
)
SAMPLED = (
    "the last steps are composed with a part of their noise, and the cost of earlier "
    "participations is bounded by its moments"
)
BALL = "the bound charges a diameter once; a walk in an interval contracts more than that"
LATE = "as for the ball, and the last participation is charged alone"
CLIPPED = "clipped gradients may expand distances; the instance is linear"
EXPANDS = "exact: drifting iterates of curvature -smoothness attain it"
POISSON = "the noise is split between the last steps and the earlier ones"


def mnist(batches, **changes):
    settings = {**MNIST, "loss": li.Loss(smoothness=32.502, strong_convexity=0.002), **changes}
    return li.TrainingRun(batches=batches(60_000, 1_500), **settings)


def small(batches, **changes):
    settings = {
        "loss": li.Loss(smoothness=1.0),
        "sensitivity": 1.0,
        "steps": 200,
        "step_size": 1.0,
        "noise_std": 1.0,
        **changes,
    }
    return li.TrainingRun(batches=batches, **settings)


def settings():
    strong = [li.Loss(smoothness=32.5 + m, strong_convexity=m) for m in (0.02, 0.2)]
    full = li.FullBatch(4)
    yield (
        "full batch, strongly convex",
        small(full, loss=li.Loss(smoothness=1.0, strong_convexity=0.1)),
        EXACT,
    )
    yield "full batch, convex", small(full, steps=20), EXACT
    yield "cyclic, strongly convex", mnist(li.Cyclic), EXACT
    yield "cyclic, 200 epochs", mnist(li.Cyclic, steps=8_000), EXACT
    yield "cyclic, curvature 0.2", mnist(li.Cyclic, loss=strong[1]), EXACT
    yield "cyclic, release noise", mnist(li.Cyclic, release_noise_std=0.002), EXACT
    softmax = li.Loss(smoothness=32.502, strong_convexity=0.002, outputs=10)
    yield "cyclic, short steps", mnist(li.Cyclic, step_size=0.015, loss=softmax), SHORT
    yield "shuffled once", mnist(li.ShuffledOnce), HIDDEN
    yield "shuffled once, 200 epochs", mnist(li.ShuffledOnce, steps=8_000), HIDDEN
    yield "shuffled once, curvature 0.02", mnist(li.ShuffledOnce, loss=strong[0]), HIDDEN
    yield "shuffled once, release noise", mnist(li.ShuffledOnce, release_noise_std=0.002), HIDDEN
    yield "shuffled each epoch", mnist(li.ShuffledEachEpoch), HIDDEN
    yield "sampled", mnist(li.SampledWithoutReplacement), SAMPLED
    yield "sampled, curvature 0.02", mnist(li.SampledWithoutReplacement, loss=strong[0]), SAMPLED
    yield "sampled, curvature 0.2", mnist(li.SampledWithoutReplacement, loss=strong[1]), SAMPLED
    yield (
        "Poisson, left out",
        mnist(li.PoissonSampled, adjacency="zero-out", sensitivity=5.0, loss=POISSON_LOSS),
        POISSON,
    )
    curved = li.Loss(smoothness=32.7, regulariser=0.2)
    yield (
        "Poisson, left out, curvature 0.2",
        mnist(li.PoissonSampled, adjacency="zero-out", sensitivity=5.0, loss=curved),
        SAMPLED,
    )
    yield "full batch, ball", small(full, domain=li.Ball(4.0)), BALL
    yield "full batch, ball, less noise", small(full, domain=li.Ball(4.0), noise_std=0.3), BALL
    yield "cyclic, ball", small(li.Cyclic(40, 4), domain=li.Ball(4.0)), LATE
    yield (
        "non-convex, cyclic",
        small(
            li.Cyclic(40, 4), steps=20, loss=li.Loss(smoothness=1.0, convex=False), noise_std=0.5
        ),
        EXPANDS,
    )
    yield (
        "norm-clipped convex, cyclic",
        small(
            li.Cyclic(40, 4),
            steps=30,
            loss=li.Loss(smoothness=0.1),
            sensitivity=2.0,
            clip_norm=1.0,
            noise_std=10.0,
        ),
        CLIPPED,
    )


def row(name, run, why):
    ours = li.account(run).epsilon(DELTA)
    report = li.account(run, including="published")

    def least(prefix):
        found = [p.epsilon(DELTA) for id_, p in report.used.items() if id_.startswith(prefix)]
        return min(found, default=math.inf)

    lower = report.lower.epsilon(DELTA)
    try:
        searched = exact.worst(run, delta=DELTA, tries=16).epsilon
    except LastIterateError:
        searched = 0.0
    lowest = max(lower, searched)
    ratio = ours / lowest if lowest > 0 else math.inf
    if ratio < 1.0:
        raise SystemExit(f"{name}: certified {ours} is below a lower bound of {lowest}")
    numbers = [ours, least("published"), least("composition"), lowest]
    shown = [f"{math.ceil(x * 1e4) / 1e4:.4f}" if x < 1e6 else "-" for x in numbers[:3]]
    shown.append(f"{math.floor(lowest * 1e4) / 1e4:.4f}")
    return name, [*shown, f"{ratio:.3f}"], why


def first_table(rows):
    """The table of numbers, and a list of the gaps."""
    reasons = list(dict.fromkeys(why for *_, why in rows))
    letters = dict(zip(reasons, string.ascii_lowercase, strict=False))
    lines = [f"| {name} | {' | '.join(shown)} | {letters[why]} |" for name, shown, why in rows]
    left = [f"- {letter}: {why}." for why, letter in letters.items()]
    return "\n".join([HEAD + "\n".join(lines), "", *left]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("docs/scoreboard.md"), help="the page")
    parser.add_argument(
        "--only",
        nargs="*",
        metavar="WORD",
        help="compute only runs of this rule (shuffled-once), adjacency (replace) and fraction "
        "(1/1000), or the first table (every-kind), and keep the rest; after the word short-steps "
        "the rules of that table; without a word, write the page from the tables",
    )
    parser.add_argument(
        "--whole", action="store_true", help="all epochs of batches drawn anew, too: may take hours"
    )
    options = parser.parse_args()
    if options.only is None or EVERY_KIND in options.only:
        first = [row(*one) for one in track(list(settings()), "runs", transient=True)]
        page = first_table(first)
    else:
        page = options.out.read_text().partition(realistic.HEADING)[0]
    table = options.out.with_suffix(".csv")
    short_table = table.with_stem(f"{table.stem}_short_steps")
    only = options.only
    of_short_steps = short_steps.RULES if only is None else only if SHORT_STEPS in only else ()
    short = short_steps.updated(short_table, of_short_steps)
    rows = realistic.updated(table, [] if of_short_steps and only else only, whole=options.whole)
    options.out.write_text(page + realistic.page(rows) + short_steps.page(short))
    realistic.picture(rows, options.out.with_suffix(".png"))
    print(f"written: {options.out}, {table}, {short_table}")


if __name__ == "__main__":
    main()
