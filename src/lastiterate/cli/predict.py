"""predict: labels or numbers for new rows."""

from __future__ import annotations

import csv
import io
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from lastiterate import _check
from lastiterate._files import refuse_replacing, write_whole
from lastiterate._numerics.rounding import Array
from lastiterate.cli.options import Data, Delimiter
from lastiterate.errors import InvalidParameter
from lastiterate.saved_model.model_file import SavedModel, read_model
from lastiterate.tables.cells import BadCells, texts_of
from lastiterate.tables.encoder import numbered_blocks
from lastiterate.tables.files import TableFile, open_table

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
    proba: Annotated[
        bool, typer.Option("--proba", help="also print the probability of each class")
    ] = False,
    scores: Annotated[
        bool, typer.Option("--scores", help="also print the score of each class")
    ] = False,
    top: Annotated[
        int | None,
        typer.Option(help="print only this many rows, by decreasing score of --positive"),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(help="predict --positive where its probability is above this"),
    ] = None,
    positive: Annotated[
        str | None,
        typer.Option(help="the label of --top and --threshold, which need it"),
    ] = None,
    id_: Annotated[str | None, typer.Option("--id", help="a column to copy to the output")] = None,
    delimiter: Delimiter = None,
    out: Annotated[Path | None, typer.Option(help="a new CSV file [default: printed]")] = None,
) -> None:
    """Predict the labels or numbers of new rows, one per line.

    The rows need the columns that the model was trained on; others are ignored.

    A rare label may have a probability below 1/2 in every row. Then rank rows: --top 100 prints the
    100 rows with its highest probability, with their row numbers; or use a --threshold below 1/2.

    Example: lastiterate predict model people.csv --proba
    """
    saved = read_model(model / "model.json" if model.is_dir() else model)
    _check_column_options(saved, proba=proba, scores=scores)
    selection = RowSelection.of(saved, top=top, threshold=threshold, positive=positive)
    file = open_table(data, delimiter=delimiter)
    logistic = saved.record["model"] == "logistic"
    named = f"predicted {saved.target}" if id_ == saved.target else saved.target
    probable = logistic and (proba or top is not None)
    scored = scores or (top is not None and saved.record["model"] == "svc")
    if out is not None:  # a table of predictions has nothing by which it could be told from others
        refuse_replacing("out", out)
    outputs, ids = _outputs(saved, file, id_)
    columns = {} if top is None else {_ROW: [str(k + 1) for k in range(len(outputs))]}
    columns |= {} if id_ is None else {id_: ids}
    likely = probabilities(outputs) if logistic else None
    columns[named] = selection.labels(predicted(saved, outputs), likely)
    if likely is not None and probable:
        columns |= _columns_of("probability of", saved, likely)
    if scored:
        columns |= _columns_of("score of", saved, outputs)
    lines = selection.listed(list(zip(*columns.values(), strict=True)), outputs)
    text = _as_csv([list(columns), *lines])
    if out is None:
        sys.stdout.write(text)
    else:
        write_whole("out", out, text)


def _as_csv(lines: list[Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def predicted(saved: SavedModel, outputs: Array) -> list[str]:
    """The most likely labels, or the numbers."""
    if saved.classes is None:
        return [repr(number) for number in outputs[:, 0].tolist()]
    return [saved.classes[k] for k in likeliest_classes(outputs)]


def likeliest_classes(outputs: Array) -> Array:
    """The index of the most likely class of each row; two classes share one output."""
    if outputs.shape[1] == 1:
        return np.asarray((outputs[:, 0] > 0.0).astype(int))
    return np.asarray(outputs.argmax(axis=1))


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
            try:
                ids += texts_of(block[id_])
            except BadCells as bad:
                must_be = "a column of text, numbers or dates"
                raise InvalidParameter(
                    "--id", id_, must_be=must_be, found=bad.found(before)
                ) from None
    return np.concatenate(outputs), ids


def _check_column_options(saved: SavedModel, *, proba: bool, scores: bool) -> None:
    kind = saved.record["model"]
    if proba and kind != "logistic":
        must_be = "left out: only --model logistic has probabilities"
        raise InvalidParameter("proba", must_be=must_be, found=f"a model of kind {kind}")
    if scores and saved.classes is None:
        must_be = "left out: numbers are predicted as they are"
        raise InvalidParameter("scores", must_be=must_be, found=f"a model of kind {kind}")


def _column_names(what: str, saved: SavedModel) -> list[str]:
    """The columns of probabilities, one for each label, or of scores, of which two labels share."""
    classes = saved.classes or ()
    shared = what == "score of" and len(classes) == 2
    return [f"{what} {label}" for label in (classes[1:] if shared else classes)]


def _columns_of(what: str, saved: SavedModel, numbers: Array) -> dict[str, list[str]]:
    return {
        name: [f"{number:.6g}" for number in numbers[:, k].tolist()]
        for k, name in enumerate(_column_names(what, saved))
    }


@dataclass(frozen=True)
class RowSelection:
    """The options --positive, --top and --threshold of a prediction."""

    classes: tuple[str, ...] | None  # None for numbers, which are ranked by themselves
    positive: int
    top: int | None
    threshold: float | None

    @classmethod
    def of(
        cls,
        saved: SavedModel,
        *,
        top: int | None,
        threshold: float | None,
        positive: str | None,
    ) -> RowSelection:
        """The checked options; an error if the model has no such label or no probabilities."""
        if top is not None:
            _check.count("top", top, at_least=1)
        if top is not None and threshold is not None:
            must_be = "left out with --top, which lists rows whatever their probability is"
            raise InvalidParameter("threshold", must_be=must_be, found="both")
        if threshold is not None:
            _check.number("threshold", threshold, at_least=0.0, below=1.0)
            if saved.record["model"] != "logistic":
                must_be = "left out: only --model logistic has probabilities; --top ranks rows"
                found = f"a model of kind {saved.record['model']}"
                raise InvalidParameter("threshold", must_be=must_be, found=found)
        needed = top is not None or threshold is not None
        return cls(saved.classes, _positive_index(saved.classes, positive, needed), top, threshold)

    def labels(self, most_likely: list[str], probabilities: Array | None) -> list[str]:
        """The most likely labels, or those that the threshold gives."""
        if self.threshold is None:
            return most_likely
        assert self.classes is not None
        assert probabilities is not None
        others = probabilities.copy()
        others[:, self.positive] = -1.0
        chosen = np.where(
            probabilities[:, self.positive] > self.threshold, self.positive, others.argmax(axis=1)
        )
        return [self.classes[k] for k in chosen]

    def listed(self, lines: list[Any], outputs: Array) -> list[Any]:
        """All lines, or those of the rows with the highest scores, the highest first."""
        if self.top is None:
            return lines
        order = np.argsort(-self._scores(outputs), kind="stable")[: self.top]
        return [lines[k] for k in order]

    def _scores(self, outputs: Array) -> Array:
        """Scores that rank rows as the probability of the positive label does."""
        if outputs.shape[1] == 1:
            return outputs[:, 0] if self.positive == 1 else -outputs[:, 0]
        from scipy.special import log_softmax

        return np.asarray(log_softmax(outputs, axis=1)[:, self.positive])


def _positive_index(classes: tuple[str, ...] | None, positive: str | None, needed: bool) -> int:
    """The index of the positive label; 1 for regression."""
    if classes is None:
        if positive is not None:
            must_be = "left out: the model predicts numbers, which --top ranks as they are"
            raise InvalidParameter("positive", positive, must_be=must_be)
        return 1
    must_be = f"one of the labels {', '.join(classes)}"
    if positive is None:
        if needed:
            must_be += ", whose probability --top and --threshold go by"
            raise InvalidParameter("positive", must_be=must_be, found="none")
        return 1
    if positive not in classes:
        raise InvalidParameter("positive", positive, must_be=must_be)
    if not needed:
        must_be = "left out without --top or --threshold"
        raise InvalidParameter("positive", positive, must_be=must_be)
    return classes.index(positive)
