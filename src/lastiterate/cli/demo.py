"""demo: the whole path on a data set that scikit-learn brings along.

It writes tables, then does with them what `train` and `predict` do with anyone's.
"""

import csv
import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lastiterate._numerics.rounding import up
from lastiterate.cli.known_run import as_text as as_text_of_known
from lastiterate.cli.known_run import epsilons, of_every_iterate, save_picture
from lastiterate.cli.predicting import predict
from lastiterate.cli.training import train
from lastiterate.errors import MissingExtra
from lastiterate.saved_model.model_file import read_model
from lastiterate.tables.encoded import encoded
from lastiterate.tables.files import open_table

if TYPE_CHECKING:
    from lastiterate.releases import Release
    from lastiterate.run.training_run import TrainingRun

_TARGET = "digit"
_EPSILON, _DELTA = 4.0, 1e-5
_SAMPLED = """\
Others certify such costs for Poisson sampling only: were these batches drawn so, every iterate
would cost {0:.2f} or {1:.2f}. So short a training has little past to hide; the longer one above
has more."""
_NEXT = """\
What to do next:
  {me} verify {out}/certificate.json --model {out}/model.json
  {me} predict {out}/model.json {out}/test.csv
  {me} train {out}/train.csv --target digit --schema {out}/schema.json --epsilon 2 --out {out}/2
  {me} account --clip-norm 1 --noise-multiplier 1.1 --batch-size 256 --epochs 10 --examples 60000
The third trains on any table (--schema holds what is public of its columns), the fourth accounts
for any DP-SGD run; --help of each says more."""


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
    print(
        "Now a model: 1,347 of scikit-learn's handwritten digits, of 64 pixels each, as anyone's "
        "table.\n"
    )
    tables = _write_tables(out)
    train(
        out / "train.csv",
        target=_TARGET,
        epsilon=_EPSILON,
        delta=_DELTA,
        schema=out / "schema.json",
        out=out,
        force=True,
    )
    from lastiterate.certificate.verify import verify
    from lastiterate.report.text import as_text

    report = verify(out / "certificate.json")
    (out / "report.txt").write_text(as_text(report, delta=_DELTA) + "\n", encoding="utf-8")
    print(f"\n{_charges(report.run, report.besides)}\n\n{_accuracies(out, tables)}\n")
    pictured = _can_draw()
    if pictured:
        save_picture(table, out / "epsilon.png")
        report.to_html(out / "report.html", delta=_DELTA)
    print(f"written to {out}: {', '.join(sorted(path.name for path in out.iterdir()))}")
    if not pictured:
        print(f"no picture: {MissingExtra('drawing', 'matplotlib', extra='plot')}")
    print(f"\n{_NEXT.format(me=_name_of_command(), out=out)}")


def _check_extra() -> None:
    try:
        import sklearn  # noqa: F401 - only whether it is there
    except ImportError:
        raise MissingExtra("the demo", "scikit-learn", extra="sklearn") from None


def _name_of_command() -> str:
    """What to type: the full path where the command is not found by its name."""
    if shutil.which("lastiterate") is None and Path(sys.argv[0]).name == "lastiterate":
        return sys.argv[0]
    return "lastiterate"


def _write_tables(out: Path) -> dict[str, list[int]]:
    """The rows to train on and those to test with; their labels."""
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


def _charges(run: "TrainingRun", besides: tuple["Release", ...]) -> str:
    """The same training, and what was counted besides, as charged by others."""
    from lastiterate.accounting import account

    # Half the sensitivity but for the errors of residuals, which are charged in either case.
    left_out = run.replace(adjacency="zero-out", sensitivity=up(run.sensitivity / 2, 1e-6))
    runs = (run, left_out)
    rows = [
        (
            "lastiterate: the last iterate, all that is released",
            [account(one, besides=besides) for one in runs],
        ),
        (
            "composition: every iterate",
            [account(one, bounds="composition/fixed-order", besides=besides) for one in runs],
        ),
    ]
    lines = [
        f"epsilon at delta = {_DELTA:g}, if one example is ..                 replaced  left out"
    ]
    lines += [
        f"  {what:<58}{one.epsilon(_DELTA):>10.2f}{other.epsilon(_DELTA):>10.2f}"
        for what, (one, other) in rows
    ]
    sampled = [of_every_iterate(left_out, replaced=replaced) for replaced in (True, False)]
    return "\n".join([*lines, _SAMPLED.format(*sampled)])


def _accuracies(out: Path, labels: dict[str, list[int]]) -> str:
    """On rows that were not trained on, which count as public here."""
    from sklearn.linear_model import LogisticRegression

    predict(out / "model.json", out / "test.csv", out=out / "predictions.csv", force=True)
    guesses = (out / "predictions.csv").read_text(encoding="utf-8").split()[1:]
    private = _share(guesses, labels["test"])
    encoder = read_model(out / "model.json").encoder
    rows = {name: encoded(open_table(out / f"{name}.csv"), encoder, {}).rows for name in labels}
    other = LogisticRegression(max_iter=1_000)
    other.fit(rows["train"], labels["train"])
    open_ = _share(other.predict(rows["test"]).tolist(), labels["test"])
    return (
        f"accuracy on {len(labels['test'])} other digits: {private:.1%} with privacy, "
        f"{open_:.1%} without"
    )


def _share(guesses: list[Any], truth: list[int]) -> float:
    right = [str(guess) == str(label) for guess, label in zip(guesses, truth, strict=True)]
    return sum(right) / len(right)


def _can_draw() -> bool:
    try:
        import matplotlib.figure  # noqa: F401 - only whether it is there
    except ImportError:
        return False
    return True
