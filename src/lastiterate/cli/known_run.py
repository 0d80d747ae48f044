"""What the last iterate of a run of DP-SGD costs that many will know, for the demo."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from lastiterate._digits import up
from lastiterate._progress import told

if TYPE_CHECKING:
    from lastiterate.run.training_run import TrainingRun

DELTA = 1e-5
EPOCHS = (10, 30, 100, 300)
EVERY, POISSON, SHUFFLED = (
    "every iterate, by dp-accounting",
    "the last iterate alone",
    "the last iterate, batches shuffled each epoch",
)
_HEAD = """\
What does it save to publish the last iterate alone? DP-SGD on 50,000 examples, Poisson batches of
512, noise multiplier 1, a linear model with a penalty of curvature 0.01; epsilon at delta = 1e-05
if one example is left out (zeroed):
"""
_MEANING = """\
It stops growing because the penalty lets steps shrink what earlier ones left of an example: without
curvature or a bounded domain it goes on growing, too. A network that nothing is known of, momentum
and Adam gain nothing, as then every iterate is charged for."""

Table = dict[str, list[float]]


def run_of(epochs: int, batches: str) -> "TrainingRun":
    """The run."""
    from lastiterate.run.loss import Loss
    from lastiterate.run.training_run import TrainingRun

    return TrainingRun.from_dp_sgd(
        examples=50_000,
        batch_size=512,
        batches=batches,
        epochs=epochs,
        clip_norm=1.0,
        noise_multiplier=1.0,
        step_size=0.5,
        loss=Loss(smoothness=1.01, regulariser=0.01, lipschitz=1.0),
    )


def epsilons() -> Table:
    """Of each row at each number of epochs."""
    from lastiterate.accounting import account

    table: Table = {EVERY: [], POISSON: [], SHUFFLED: []}
    hidden = "random-order/poisson-hidden-participations"  # the least here, and at once
    for epochs in told("comparing", EPOCHS):
        poisson, shuffled = run_of(epochs, "poisson"), run_of(epochs, "shuffled-each-epoch")
        table[EVERY].append(of_every_iterate(poisson, replaced=False))
        table[POISSON].append(account(poisson, bounds=hidden).epsilon(DELTA))
        table[SHUFFLED].append(account(shuffled).epsilon(DELTA))
    return table


def of_every_iterate(run: "TrainingRun", *, replaced: bool) -> float:
    """What `dp_accounting` says of as many steps of DP-SGD with Poisson batches and this noise."""
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    multiplier = float(run.noise_std) * run.batches.batch_size / run.sensitivity  # type: ignore[arg-type]  # no schedule
    rate = run.batches.batch_size / run.batches.examples
    relation = dp_accounting.NeighboringRelation
    step = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(multiplier))
    accountant = PLDAccountant(relation.REPLACE_ONE if replaced else relation.ADD_OR_REMOVE_ONE)
    accountant.compose(dp_accounting.SelfComposedDpEvent(step, run.steps))
    return float(accountant.get_epsilon(DELTA))


def as_text(table: Table) -> str:
    """The table, between what it is of and what it means."""
    return "\n".join([_HEAD, *_rows(table), "", _MEANING])


def _rows(table: Table) -> Iterator[str]:
    yield f"  {'epochs':<46}" + "".join(f"{epochs:>10}" for epochs in EPOCHS)
    for what, values in table.items():
        yield f"  {what:<46}" + "".join(f"{up(value):>10}" for value in values)


def save_picture(table: Table, path: Path) -> None:
    """The same, drawn."""
    from lastiterate.plot.named_lines import lines
    from lastiterate.plot.save import save

    names = {what: what.replace(", ", ",\n") for what in table}
    canvas = lines(
        list(EPOCHS),
        {names[what]: values for what, values in table.items()},
        across="epochs",
        up=f"epsilon at delta = {DELTA:g} of DP-SGD with a penalty, by epochs",
    )
    save(canvas, path)
