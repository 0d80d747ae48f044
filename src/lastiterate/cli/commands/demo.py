"""demo: the whole path on a data set that scikit-learn brings along.

It writes tables and trains on them as `train` does with any table.
"""

import csv
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lastiterate._digits import up
from lastiterate._numerics.rounding import up as rounded_up
from lastiterate.cli.commands.train import train
from lastiterate.cli.demo_run import as_text as as_text_of_known
from lastiterate.cli.demo_run import epsilons, save_picture
from lastiterate.errors import MissingExtra
from lastiterate.saved_model.model_file import read_model
from lastiterate.tables.file_encoding import encode_file
from lastiterate.tables.table_files import open_table

if TYPE_CHECKING:
    from lastiterate.accounting import PrivacyReport

_TARGET = "digit"
_EPSILON, _DELTA = 4.0, 1e-5
_TRAIN = """\
2. A private model: 1,347 of scikit-learn's handwritten digits, 64 pixels each

$ {me} train {out}/train.csv --target {target} --epsilon {epsilon:g} \\
    --schema {out}/schema.json --test {out}/test.csv \\
    --test-is-public --out {out} --force"""
_COMPARED = """\
Without privacy: accuracy {open:.1%}. A standard accountant, which charges every
step, reports epsilon = {composed} for these shuffled batches, and {sampled} if
they were Poisson sampled: so short a training has little to gain."""
_NEXT = """\
Next, check the certificate, which needs no data:
$ {me} verify {out}"""


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("demo")(demo)


def demo(
    out: Annotated[Path, typer.Option(help="where everything goes")] = Path("lastiterate-demo"),
) -> None:
    """Train privately on handwritten digits, and see what that costs.

    Example: lastiterate demo
    """
    _check_extra()
    out.mkdir(parents=True, exist_ok=True)
    table = epsilons()
    print(f"{as_text_of_known(table)}\n")
    names = {"me": _name_of_command(), "out": out}
    print(f"{_TRAIN.format(**names, target=_TARGET, epsilon=_EPSILON)}\n")
    labels = _write_tables(out)
    train(
        out / "train.csv",
        target=_TARGET,
        epsilon=_EPSILON,
        delta=_DELTA,
        schema=out / "schema.json",
        test=out / "test.csv",
        test_is_public=True,
        out=out,
        force=True,
    )
    from lastiterate.certificate.verify import verify
    from lastiterate.report.plain_text import as_text

    report = verify(out / "certificate.json")
    (out / "report.txt").write_text(as_text(report, delta=_DELTA) + "\n", encoding="utf-8")
    print(f"\n{_COMPARED.format(open=_accuracy_without_privacy(out, labels), **_charges(report))}")
    if _can_draw():
        save_picture(table, out / "epsilon.png")
        report.to_html(out / "report.html", delta=_DELTA)
        print(f"Also in {out}: report.html (full report), epsilon.png (the table)")
    else:
        print(f"Also in {out}: report.txt (full report)")
        print(f"no picture: {MissingExtra('drawing', 'matplotlib', extra='plot')}")
    print(_NEXT.format(**names))


def _check_extra() -> None:
    try:
        import sklearn  # noqa: F401 - only whether it is there
    except ImportError:
        raise MissingExtra("the demo", "scikit-learn", extra="sklearn") from None


def _name_of_command() -> str:
    """The word to type: the full path if the shell does not find the command by its name."""
    if shutil.which("lastiterate") is None and Path(sys.argv[0]).name == "lastiterate":
        return sys.argv[0]
    return "lastiterate"


def _write_tables(out: Path) -> dict[str, list[int]]:
    """The labels of the rows to train on and of those to test with, which are written."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    pixels, digits = load_digits(return_X_y=True)
    columns = [f"pixel{k}" for k in range(pixels.shape[1])]
    parts = train_test_split(pixels.astype(int), digits, test_size=0.25, random_state=0)
    labels = {}
    for name, rows, truth in (("train", *parts[::2]), ("test", *parts[1::2])):
        labels[name] = truth.tolist()
        with (out / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            lines = ([*row, label] for row, label in zip(rows.tolist(), labels[name], strict=True))
            csv.writer(file, lineterminator="\n").writerows([[*columns, _TARGET], *lines])
    schema: dict[str, Any] = {column: {"range": [0, 16]} for column in columns}
    schema[_TARGET] = {"values": list(range(10))}
    (out / "schema.json").write_text(json.dumps(schema, indent=1) + "\n", encoding="utf-8")
    return labels


def _charges(report: "PrivacyReport") -> dict[str, str]:
    """Epsilons of the same training and statistics if every iterate were published."""
    from lastiterate.accounting import account
    from lastiterate.run.batch_rules.rules import PoissonSampled

    run, other_releases = report.run, report.other_releases
    clip = rounded_up(run.sensitivity / 2, 1e-6)
    poisson = run.replace(
        batches=PoissonSampled(run.batches.examples, run.batches.batch_size),
        loss=replace(run.loss, lipschitz=clip),
        sensitivity=2 * clip,
    )
    composed = account(run, bounds="composition/fixed-order", other_releases=other_releases)
    sampled = account(poisson, bounds="composition/sampled", other_releases=other_releases)
    return {"composed": up(composed.epsilon(_DELTA)), "sampled": up(sampled.epsilon(_DELTA))}


def _accuracy_without_privacy(out: Path, labels: dict[str, list[int]]) -> float:
    """The share of test rows that scikit-learn's logistic regression predicts correctly."""
    from sklearn.linear_model import LogisticRegression

    encoder = read_model(out / "model.json").encoder
    rows = {name: encode_file(open_table(out / f"{name}.csv"), encoder, {}).rows for name in labels}
    other = LogisticRegression(max_iter=1_000).fit(rows["train"], labels["train"])
    return float(other.score(rows["test"], labels["test"]))


def _can_draw() -> bool:
    try:
        import matplotlib.figure  # noqa: F401 - only whether it is there
    except ImportError:
        return False
    return True
