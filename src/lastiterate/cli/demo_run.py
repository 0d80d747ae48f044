"""Epsilon of the README's DP-SGD run, for every iterate and for the last one, for the demo."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from lastiterate._digits import up
from lastiterate._progress import track

if TYPE_CHECKING:
    from lastiterate.run.training_run import TrainingRun

DELTA = 1e-5
EPOCHS = (10, 30, 100, 300)
EVERY, POISSON, SHUFFLED = (
    "standard accountant, charging every step",
    "last iterate, Poisson batches",
    "last iterate, shuffled batches",
)
_HEAD = """\
1. What is gained by publishing only the final model

DP-SGD for logistic regression with L2 penalty 0.01: 50,000 examples, batches
of 400, noise multiplier 1. Epsilon at delta = 1e-05, one example left out:
"""
_MEANING = """\
The final model's epsilon levels off because the penalty makes every step
shrink the traces of earlier steps. Without a penalty or bounded weights it
grows too. Deep networks, momentum and Adam gain nothing."""

Table = dict[str, list[float]]


def run_of(epochs: int, batches: str) -> "TrainingRun":
    """The README's run with this many epochs."""
    from lastiterate.run.loss import Loss
    from lastiterate.run.training_run import TrainingRun

    return TrainingRun.from_dp_sgd(
        examples=50_000,
        batch_size=400,
        batches=batches,
        epochs=epochs,
        clip_norm=1.0,
        noise_multiplier=1.0,
        step_size=0.5,
        loss=Loss(smoothness=0.26, regulariser=0.01, lipschitz=1.0),
    )


def epsilons() -> Table:
    """Epsilon of each row at each number of epochs."""
    from lastiterate.accounting import account

    table: Table = {EVERY: [], POISSON: [], SHUFFLED: []}
    hidden = "random-order/poisson/hidden-participations"  # the least here, and at once
    for epochs in track("comparing", EPOCHS):
        poisson, shuffled = run_of(epochs, "poisson"), run_of(epochs, "shuffled-each-epoch")
        table[EVERY].append(of_every_iterate(poisson))
        table[POISSON].append(account(poisson, bounds=hidden).epsilon(DELTA))
        table[SHUFFLED].append(account(shuffled).epsilon(DELTA))
    return table


def of_every_iterate(run: "TrainingRun") -> float:
    """The epsilon that `dp_accounting` charges for every step, with Poisson batches."""
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    multiplier = float(run.noise_std) * run.batches.batch_size / run.sensitivity  # type: ignore[arg-type]  # no schedule
    rate = run.batches.batch_size / run.batches.examples
    step = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(multiplier))
    accountant = PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(dp_accounting.SelfComposedDpEvent(step, run.steps))
    return float(accountant.get_epsilon(DELTA))


def as_text(table: Table) -> str:
    """The table with a heading and a conclusion."""
    return "\n".join([_HEAD, *_rows(table), "", _MEANING])


def _rows(table: Table) -> Iterator[str]:
    yield f"  {'epochs':<42}" + "".join(f"{epochs:>9}" for epochs in EPOCHS)
    for what, values in table.items():
        yield f"  {what:<42}" + "".join(f"{up(value):>9}" for value in values)


def save_picture(table: Table, path: Path) -> None:
    """Draws the table into a file."""
    from lastiterate.plot.named_lines import lines
    from lastiterate.plot.save import save

    names = {what: what.replace(", ", ",\n") for what in table}
    canvas = lines(
        list(EPOCHS),
        {names[what]: values for what, values in table.items()},
        across="epochs",
        up=f"epsilon at delta = {DELTA:g} of DP-SGD with an L2 penalty",
    )
    save(canvas, path)
