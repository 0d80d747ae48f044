"""What accountants charge for one run, trained longer and longer.

python benchmarks/against_others.py                        prints the table
python benchmarks/against_others.py --write docs/utility.md

The run: 60,000 examples, batches of 1,500, step size 0.05, gradients clipped to norm 5 (in a way
that keeps the loss convex), noise 0.01 on the averaged gradient, so a noise multiplier of 3, and
a penalty of 0.002 |w|^2 / 2.  Each accountant is asked through its own public functions about the
training that it supports; what is not installed is said in its row.
"""

import argparse
import math
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import lastiterate as li

DELTA = 1e-5
EXAMPLES, SIZE, CLIP, NOISE_STD = 60_000, 1_500, 5.0, 0.01
RATE, PER_EPOCH, MULTIPLIER = SIZE / EXAMPLES, EXAMPLES // SIZE, NOISE_STD * SIZE / CLIP
EPOCHS = (50, 200, 1_000, 10_000)


def run(batches, steps, *, replaced, releases="last-iterate"):
    return li.TrainingRun(
        loss=li.Loss(smoothness=32.502, regulariser=0.002, lipschitz=CLIP),
        sensitivity=2 * CLIP if replaced else CLIP,
        batches=batches(EXAMPLES, SIZE),
        steps=steps,
        step_size=0.05,
        noise_std=NOISE_STD,
        adjacency="replace" if replaced else "zero-out",
        releases=releases,
    )


def ours(batches, *, replaced):
    return lambda steps: li.account(run(batches, steps, replaced=replaced)).epsilon(DELTA)


def dp_accounting_pld(*, replaced):
    def epsilon(steps):
        import dp_accounting
        from dp_accounting.pld import PLDAccountant

        relation = dp_accounting.NeighboringRelation
        step = dp_accounting.PoissonSampledDpEvent(RATE, dp_accounting.GaussianDpEvent(MULTIPLIER))
        accountant = PLDAccountant(relation.REPLACE_ONE if replaced else relation.ADD_OR_REMOVE_ONE)
        accountant.compose(dp_accounting.SelfComposedDpEvent(step, steps))
        return accountant.get_epsilon(DELTA)

    return epsilon


def opacus(mechanism):
    def epsilon(steps):
        from opacus.accountants import create_accountant

        accountant = create_accountant(mechanism)
        accountant.history = [(MULTIPLIER, RATE, steps)]
        return accountant.get_epsilon(delta=DELTA)

    return epsilon


def prv_accountant(steps):
    from prv_accountant.dpsgd import DPSGDAccountant

    accountant = DPSGDAccountant(MULTIPLIER, RATE, steps, eps_error=0.1, delta_error=DELTA / 1000)
    return accountant.compute_epsilon(delta=DELTA, num_steps=steps)[2]


def riskcal(steps):
    from riskcal.accountants import CTDAccountant

    accountant = CTDAccountant()
    accountant.history = [(MULTIPLIER, RATE, steps)]
    return accountant.get_epsilon(delta=DELTA)


def diffprivlib(steps):
    """One Gaussian mechanism an epoch, at half of delta, and the other half as slack."""
    from diffprivlib import BudgetAccountant

    epochs = steps // PER_EPOCH
    each = DELTA / 2 / epochs
    step = li.GaussianProfile(2 * CLIP / (SIZE * NOISE_STD)).epsilon(each)
    spent = [(step, each)] * epochs
    return BudgetAccountant(slack=DELTA / 2, spent_budget=spent).total()[0]


EVERY, LAST = "every iterate", "the last iterate"
SHUFFLED, POISSON = "shuffled once", "Poisson"
REPLACED, LEFT_OUT = "replaced", "left out"
ROWS = [  # package, its accountant, what is charged for, batches, one example is, function
    ("lastiterate", "", LAST, SHUFFLED, REPLACED, ours(li.ShuffledOnce, replaced=True)),
    ("lastiterate", "", LAST, SHUFFLED, LEFT_OUT, ours(li.ShuffledOnce, replaced=False)),
    ("lastiterate", "", LAST, POISSON, REPLACED, ours(li.PoissonSampled, replaced=True)),
    ("lastiterate", "", LAST, POISSON, LEFT_OUT, ours(li.PoissonSampled, replaced=False)),
    ("dp-accounting", "PLD", EVERY, POISSON, REPLACED, dp_accounting_pld(replaced=True)),
    ("dp-accounting", "PLD", EVERY, POISSON, LEFT_OUT, dp_accounting_pld(replaced=False)),
    ("opacus", "prv", EVERY, POISSON, LEFT_OUT, opacus("prv")),
    ("opacus", "rdp", EVERY, POISSON, LEFT_OUT, opacus("rdp")),
    ("prv-accountant", "", EVERY, POISSON, LEFT_OUT, prv_accountant),
    ("riskcal", "CTD", EVERY, POISSON, LEFT_OUT, riskcal),
    ("diffprivlib", "budget", EVERY, "any order", REPLACED, diffprivlib),
]


def shown(function, epochs):
    """Epsilon, or why there is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = float(function(epochs * PER_EPOCH))
    except ImportError:
        return "not installed"
    except Exception as error:  # whatever another package raises is what its row shows
        return f"fails: {type(error).__name__}"
    return f"{math.ceil(value * 100) / 100:.2f}" if math.isfinite(value) else "∞"


def named(package, accountant):
    try:
        found = version(package)
    except PackageNotFoundError:
        found = ""
    return " ".join(filter(None, (package, found, accountant)))


def table(rows=ROWS, epochs=EPOCHS):
    """Markdown, one line a row."""
    columns = ["accountant", "charges for", "batches", "one example is"]
    columns += [f"{length:,} epochs" for length in epochs]
    yield f"| {' | '.join(columns)} |"
    yield "|" + "---|" * 4 + "---:|" * len(epochs)
    for package, accountant, *said, function in rows:
        cells = [named(package, accountant), *said]
        yield f"| {' | '.join(cells + [shown(function, length) for length in epochs])} |"


MARK, END = "<!-- other accountants -->", "<!-- end of other accountants -->"

if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--write", type=Path, help="also write the table into this page")
    options = arguments.parse_args()
    lines = []
    for line in table():
        print(line, flush=True)
        lines.append(line)
    if options.write:
        page = options.write.read_text(encoding="utf-8")
        head, _, rest = page.partition(MARK)
        _, end, tail = rest.partition(END)
        anew = "".join([head, MARK, "\n\n", "\n".join(lines), "\n\n", end, tail])
        options.write.write_text(anew, encoding="utf-8")
