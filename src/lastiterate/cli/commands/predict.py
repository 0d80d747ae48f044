"""predict: what a model says of new rows."""

import csv
import io
import sys
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from lastiterate._numerics.arrays import Array
from lastiterate.cli.atomic_write import refuse_overwriting
from lastiterate.cli.choosing import Choice
from lastiterate.cli.options.table_options import Data, Delimiter, Force
from lastiterate.errors import InvalidParameter
from lastiterate.saved_model.file_writing import write_text
from lastiterate.saved_model.model_file import SavedModel, read_model
from lastiterate.tables.cells import texts_of
from lastiterate.tables.file_encoding import numbered_blocks
from lastiterate.tables.table_files import TableFile, open_table

_ROW = "row"


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("predict")(predict)


def predict(
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help="the model.json that train wrote, or its folder"),
    ],
    data: Data,
    proba: Annotated[bool, typer.Option("--proba", help="and the probability of each class")] = (
        False
    ),
    scores: Annotated[
        bool, typer.Option("--scores", help="and the score of each class, or of the second of two")
    ] = False,
    top: Annotated[
        int | None,
        typer.Option(help="only so many rows, those with the highest score of --positive first"),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="answer --positive where its probability is above this, not the likeliest"
        ),
    ] = None,
    positive: Annotated[
        str | None,
        typer.Option(help="the label of --top and --threshold; the second of two if left out"),
    ] = None,
    id_: Annotated[str | None, typer.Option("--id", help="a column to repeat beside them")] = None,
    delimiter: Delimiter = None,
    out: Annotated[Path | None, typer.Option(help="a CSV file; else printed")] = None,
    force: Force = False,
) -> None:
    """Labels, or numbers, for new rows, one a line.

    The rows need the columns that the model was trained on; others are not looked at.

    Where one label is rare, hardly any row may be more likely than not to have it. Then rank:
    --top 100 prints the 100 rows with the highest probability of it, with their numbers, or choose
    a --threshold below a half.

    Example: lastiterate predict model/model.json people.csv --proba
    """
    saved = read_model(model / "model.json" if model.is_dir() else model)
    refuse_overwriting(out, force=force)
    _check_asked(saved, proba=proba, scores=scores)
    choice = Choice.of(saved, top=top, threshold=threshold, positive=positive)
    outputs, ids = _outputs(saved, open_table(data, delimiter=delimiter), id_)
    columns = {} if top is None else {_ROW: [str(k + 1) for k in range(len(outputs))]}
    columns |= {} if id_ is None else {id_: ids}
    likely = probabilities(outputs) if saved.record["model"] == "logistic" else None
    named = f"predicted {saved.target}" if id_ == saved.target else saved.target
    columns[named] = choice.labels(predicted(saved, outputs), likely)
    if likely is not None and (proba or top is not None):
        columns |= _named("probability of", saved, likely)
    if scores or (top is not None and saved.record["model"] == "svc"):
        columns |= _named("score of", saved, outputs)
    text = io.StringIO()
    lines = choice.listed(list(zip(*columns.values(), strict=True)), outputs)
    csv.writer(text, lineterminator="\n").writerows([list(columns), *lines])
    if out is None:
        sys.stdout.write(text.getvalue())
    else:
        write_text(out, text.getvalue())


def predicted(saved: SavedModel, outputs: Array) -> list[str]:
    """The most likely labels, or the numbers."""
    if saved.classes is None:
        return [repr(number) for number in outputs[:, 0].tolist()]
    alone = outputs.shape[1] == 1
    chosen = (outputs[:, 0] > 0.0).astype(int) if alone else outputs.argmax(axis=1)
    return [saved.classes[k] for k in chosen]


def probabilities(outputs: Array) -> Array:
    """The probability of each class, a row for each row of outputs."""
    from scipy.special import expit, softmax

    if outputs.shape[1] == 1:
        second = expit(outputs[:, 0])
        return np.column_stack([1.0 - second, second])
    return np.asarray(softmax(outputs, axis=1))


def _outputs(saved: SavedModel, file: TableFile, id_: str | None) -> tuple[Array, list[str]]:
    encoder = saved.encoder
    # Ids are repeated as they are written, also those that are features too.
    kinds = encoder.column_kinds | ({} if id_ is None else {id_: "text"})
    outputs, ids = [], []
    for before, count, block in numbered_blocks(file, kinds):
        rows = np.empty((count, encoder.width))
        encoder.encode(block, rows, before=before)
        outputs.append(saved.outputs(rows))
        if id_ is not None:
            ids += texts_of(block[id_])
    return np.concatenate(outputs), ids


def _check_asked(saved: SavedModel, *, proba: bool, scores: bool) -> None:
    kind = saved.record["model"]
    if proba and kind != "logistic":
        must_be = "left out: only --model logistic has probabilities"
        raise InvalidParameter("proba", must_be=must_be, found=f"a model of kind {kind}")
    if scores and saved.classes is None:
        must_be = "left out: numbers are predicted as they are"
        raise InvalidParameter("scores", must_be=must_be, found=f"a model of kind {kind}")


def _named(what: str, saved: SavedModel, numbers: Array) -> dict[str, list[str]]:
    assert saved.classes is not None
    classes = saved.classes if numbers.shape[1] > 1 else saved.classes[1:]
    return {
        f"{what} {label}": [f"{number:.6g}" for number in numbers[:, k].tolist()]
        for k, label in enumerate(classes)
    }
