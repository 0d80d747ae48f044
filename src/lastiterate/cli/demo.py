"""demo: a private model of handwritten digits, beside the same model without privacy.

It writes tables and trains on them as `train` does with any table.
"""

import csv
import io
import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lastiterate._display import up
from lastiterate._files import begins_with, is_sealed, sealed, write_whole
from lastiterate._numerics.rounding import up as rounded_up
from lastiterate._progress import track
from lastiterate.cli.train import check_sklearn, train
from lastiterate.errors import InvalidParameter, MissingExtra
from lastiterate.saved_model.model_file import read_model
from lastiterate.tables.encoder import encode_file
from lastiterate.tables.files import open_table

if TYPE_CHECKING:
    from lastiterate.accounting import PrivacyReport
    from lastiterate.run.training_run import TrainingRun

EPOCHS = (10, 30, 100, 300)
EVERY, POISSON, SHUFFLED = (
    "standard accountant (every iterate)",
    "last iterate, Poisson batches",
    "last iterate, shuffled batches",
)
_TARGET = "digit"
_EPSILON, _DELTA = 4.0, 1e-5
_PASSES, _L2 = 40, 0.002  # enough of both that the last iterate reveals less than all of them
_FEATURES = "scattering:8x8,scales=1"
_TRAIN = """\
Train a private model on {rows:,} of scikit-learn's handwritten digits:

$ {me} train {out}/train.csv --target {target} --epsilon {epsilon:g} \\
    --schema {out}/schema.json --features {features} \\
    --test {out}/test.csv --test-is-public --epochs {epochs} --l2 {l2:g} \\
    --out {out}/model --force
"""
_RESULT = """\
Trained: logistic regression with L2 penalty on fixed features of the images
(no privacy cost), {steps:,} steps, batches {batches}.
Certified: epsilon = {epsilon} at delta = {delta:g}, {change}.

  accuracy on {tested} test rows    private {private:.1%}
                               without privacy {public:.1%}, chance {chance:.1%}
  standard accountant          epsilon = {composed}: it charges every iterate;
                               {sampled} if batches were Poisson sampled
"""
_LONGER = """\
Longer trainings gain more. DP-SGD, logistic regression with L2 penalty 0.01,
50,000 examples, batches of 400, noise multiplier 1, one example left out;
epsilon at delta = {delta:g}:
"""
_LEVELS_OFF = """\
Epsilon of the last iterate levels off because the penalty makes every step a
contraction. Without a penalty or bounded weights it grows, too.
"""
_FILES = """\
Files in {out}, the first two of which may be published:
  model/model.json         the model and its schema
  model/certificate.json   the run and its guarantee, for `lastiterate verify`
  {report}
Next, verify the certificate, which needs no data:
$ {me} verify {out}/model"""
Table = dict[str, list[float]]


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("demo")(demo)


def demo(
    out: Annotated[Path, typer.Option(help="the folder for all files")] = Path("lastiterate-demo"),
    full: Annotated[bool, typer.Option("--report", help="also print the full report")] = False,
) -> None:
    """Train privately on handwritten digits, and compare with no privacy.

    Example: lastiterate demo
    """
    check_sklearn("the demo")
    _check_folder(out)
    out.mkdir(parents=True, exist_ok=True)
    names = {"me": _name_of_command(), "out": out}
    labels = _write_tables(out)
    about = {"rows": len(labels["train"]), "target": _TARGET, "epsilon": _EPSILON}
    about |= {"epochs": _PASSES, "l2": _L2}
    print(_TRAIN.format(**names, **about, features=_FEATURES))
    with redirect_stdout(io.StringIO()):  # the numbers are printed below
        train(
            out / "train.csv",
            target=_TARGET,
            epsilon=_EPSILON,
            delta=_DELTA,
            schema=out / "schema.json",
            features=_FEATURES,
            epochs=_PASSES,
            l2=_L2,
            test=out / "test.csv",
            test_is_public=True,
            out=out / "model",
            force=True,
        )
    from lastiterate.certificate.verify import verify
    from lastiterate.report.text import as_text

    report = verify(out / "model" / "certificate.json")
    print(_result(report, out, labels))
    table = epsilon_table()
    print("\n".join([_LONGER.format(delta=_DELTA), *_rows(table), _LEVELS_OFF]))
    text = as_text(report, delta=_DELTA)
    sealed_text = sealed((text + "\n").encode(), comment=("", ""))
    write_whole("out", out / "report.txt", sealed_text, is_sealed)
    if full:
        print(f"{text}\n")
    print(_FILES.format(**names, report=_pictures(report, table, out)))


def dp_sgd_run(epochs: int, batches: str) -> "TrainingRun":
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
        loss=Loss(smoothness=0.26, regulariser=0.01, lipschitz=1.0, outputs=1),
    )


def epsilon_table() -> Table:
    """Epsilon of each row at each number of epochs."""
    from lastiterate.accounting import account

    table: Table = {EVERY: [], POISSON: [], SHUFFLED: []}
    for epochs in track("comparing", EPOCHS):
        poisson, shuffled = dp_sgd_run(epochs, "poisson"), dp_sgd_run(epochs, "shuffled-each-epoch")
        table[EVERY].append(_standard_epsilon(poisson))
        # This stage gives the least epsilon here, and quickly.
        stage = account(poisson, bounds="random-order/poisson/hidden-participations")
        table[POISSON].append(stage.epsilon(_DELTA))
        table[SHUFFLED].append(account(shuffled).epsilon(_DELTA))
    return table


def _standard_epsilon(run: "TrainingRun") -> float:
    """The epsilon that `dp_accounting` gives for every iterate, with Poisson batches."""
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    multiplier = float(run.noise_std) * run.batches.batch_size / run.sensitivity  # type: ignore[arg-type]  # no schedule
    rate = run.batches.batch_size / run.batches.examples
    step = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(multiplier))
    accountant = PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    accountant.compose(dp_accounting.SelfComposedDpEvent(step, run.steps))
    return float(accountant.get_epsilon(_DELTA))


def _rows(table: Table) -> Iterator[str]:
    yield f"  {'epochs':<38}" + "".join(f"{epochs:>9}" for epochs in EPOCHS)
    for name, values in table.items():
        yield f"  {name:<38}" + "".join(f"{up(value):>9}" for value in values)


def _result(report: "PrivacyReport", out: Path, labels: dict[str, list[int]]) -> str:
    """Guarantee and accuracy of the model, beside no privacy and a standard accountant."""
    from lastiterate.report.sentences import protected_change

    run = report.run
    return _RESULT.format(
        steps=run.steps,
        batches=run.batches.in_words,
        epsilon=up(report.epsilon(_DELTA)),
        delta=_DELTA,
        change=protected_change(run),
        tested=len(labels["test"]),
        **_accuracies(out, labels),
        **_charges(report),
    )


def _pictures(report: "PrivacyReport", table: Table, out: Path) -> str:
    """A line on the report's file; the report and the table are drawn where matplotlib is."""
    try:
        import matplotlib.figure  # noqa: F401 - only whether it is there
    except ImportError:
        missing = MissingExtra("drawing", "matplotlib", extra="plot")
        return f"report.txt               the full report (no picture: {missing})"
    from lastiterate.plot.style import lines, save

    curves = {name.replace(", ", ",\n").replace(" (", "\n("): table[name] for name in table}
    axis = f"epsilon at delta = {_DELTA:g} of DP-SGD with an L2 penalty"
    save(lines(list(EPOCHS), curves, across="epochs", up=axis), out / "epsilon.png")
    report.to_html(out / "report.html", delta=_DELTA)
    return "report.html              the report, with pictures; epsilon.png: the table"


def _name_of_command() -> str:
    """The command to type: its full path if the shell does not find it by its name."""
    if shutil.which("lastiterate") is None and Path(sys.argv[0]).name == "lastiterate":
        return sys.argv[0]
    return "lastiterate"


def _check_folder(out: Path) -> None:
    """Raise unless the folder is new, empty, or of an earlier demo, whose files are replaced."""
    if out.is_dir() and any(out.iterdir()):
        tables = _table_texts()[0].items()
        ours = all((out / n).is_file() and (out / n).read_text() == text for n, text in tables)
        if not ours:
            must_be = "a new or empty folder, or that of an earlier demo"
            raise InvalidParameter("out", must_be=must_be, found=f"other files in {out}")


def _write_tables(out: Path) -> dict[str, list[int]]:
    """Write train.csv, test.csv and schema.json, and return the labels of both tables."""
    texts, labels = _table_texts()
    for name, text in texts.items():
        write_whole("out", out / name, text, begins_with(text.encode()))
    return labels


def _table_texts() -> tuple[dict[str, str], dict[str, list[int]]]:
    """The texts of train.csv, test.csv and schema.json, and the labels of both tables."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    pixels, digits = load_digits(return_X_y=True)
    columns = [f"pixel{k}" for k in range(pixels.shape[1])]
    parts = train_test_split(pixels.astype(int), digits, test_size=0.25, random_state=0)
    texts, labels = {}, {}
    for name, rows, truth in (("train", *parts[::2]), ("test", *parts[1::2])):
        labels[name] = truth.tolist()
        text = io.StringIO()
        lines = ([*row, label] for row, label in zip(rows.tolist(), labels[name], strict=True))
        csv.writer(text, lineterminator="\n").writerows([[*columns, _TARGET], *lines])
        texts[f"{name}.csv"] = text.getvalue()
    schema: dict[str, Any] = {column: {"range": [0, 16]} for column in columns}
    schema[_TARGET] = {"values": list(range(10))}
    texts["schema.json"] = json.dumps(schema, indent=1) + "\n"
    return texts, labels


def _charges(report: "PrivacyReport") -> dict[str, str]:
    """Epsilons of the same training and statistics if every iterate were published."""
    from lastiterate.accounting import account
    from lastiterate.run.batch_rules.drawn import PoissonSampled

    run, others = report.run, report.other_releases
    clip = rounded_up(run.sensitivity / 2, 1e-6)
    poisson = run.replace(
        batches=PoissonSampled(run.batches.examples, run.batches.batch_size),
        loss=replace(run.loss, lipschitz=clip),
        sensitivity=2 * clip,
    )
    composed = account(run, bounds="composition/fixed-order", other_releases=others)
    sampled = account(poisson, bounds="composition/sampled", other_releases=others)
    return {"composed": up(composed.epsilon(_DELTA)), "sampled": up(sampled.epsilon(_DELTA))}


def _accuracies(out: Path, labels: dict[str, list[int]]) -> dict[str, float]:
    """Shares of test rows that each model, and the most frequent label, predict correctly."""
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    saved, truth = read_model(out / "model" / "model.json"), np.array(labels["test"])
    rows = {
        name: encode_file(open_table(out / f"{name}.csv"), saved.encoder, {}).rows
        for name in labels
    }
    seen = {name: saved.features(some) for name, some in rows.items()}
    other = LogisticRegression(C=100.0, max_iter=1_000).fit(seen["train"], labels["train"])
    return {
        "private": float(np.mean(saved.outputs(rows["test"]).argmax(axis=1) == truth)),
        "public": float(other.score(seen["test"], truth)),
        "chance": float(np.bincount(truth).max() / truth.size),
    }
