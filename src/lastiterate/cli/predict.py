"""predict: labels or numbers for new rows."""

from __future__ import annotations

import csv
import io
import math
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from lastiterate import _check
from lastiterate._files import refuse_replacing, write_whole
from lastiterate._numerics.rounding import Array
from lastiterate.accounting import PrivacyReport
from lastiterate.cli.options import Data, Delimiter
from lastiterate.errors import InvalidParameter, NumericalFailure
from lastiterate.other_releases import ACCURACY, ERRORS, Release
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.saved_model.model_file import SavedModel, read_model
from lastiterate.tables.cells import BadCells, texts_of
from lastiterate.tables.encoder import numbered_blocks
from lastiterate.tables.files import TableFile, open_table
from lastiterate.train.arithmetic import with_score
from lastiterate.train.defaults import gaussian_parameter

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
    ] = (False),
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
    _check_columns(saved, proba=proba, scores=scores)
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
        columns |= _named("probability of", saved, likely)
    if scored:
        columns |= _named("score of", saved, outputs)
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
            try:
                ids += texts_of(block[id_])
            except BadCells as bad:
                must_be = "a column of text, numbers or dates"
                raise InvalidParameter(
                    "--id", id_, must_be=must_be, found=bad.found(before)
                ) from None
    return np.concatenate(outputs), ids


def _check_columns(saved: SavedModel, *, proba: bool, scores: bool) -> None:
    kind = saved.record["model"]
    if proba and kind != "logistic":
        must_be = "left out: only --model logistic has probabilities"
        raise InvalidParameter("proba", must_be=must_be, found=f"a model of kind {kind}")
    if scores and saved.classes is None:
        must_be = "left out: numbers are predicted as they are"
        raise InvalidParameter("scores", must_be=must_be, found=f"a model of kind {kind}")


def _names(what: str, saved: SavedModel) -> list[str]:
    """The columns of probabilities, one for each label, or of scores, of which two labels share."""
    classes = saved.classes or ()
    shared = what == "score of" and len(classes) == 2
    return [f"{what} {label}" for label in (classes[1:] if shared else classes)]


def _named(what: str, saved: SavedModel, numbers: Array) -> dict[str, list[str]]:
    return {
        name: [f"{number:.6g}" for number in numbers[:, k].tolist()]
        for k, name in enumerate(_names(what, saved))
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
        return cls(saved.classes, _index(saved.classes, positive, needed), top, threshold)

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


def _index(classes: tuple[str, ...] | None, positive: str | None, needed: bool) -> int:
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


# Scores of a model: on public rows, or on private rows for a part of the budget.

_TRIALS = 8

_SEEN = 0.0005  # the least difference between two accuracies that shows in print

_SPARED = 0.002  # of epsilon, so that one training is nearly always enough


@dataclass(frozen=True)
class TestOptions:
    """The test file of `train`: public, or scored for a part of epsilon."""

    path: Path
    epsilon: float | None

    @classmethod
    def of(
        cls, path: Path | None, *, public: bool, epsilon: float | None, whole: float
    ) -> TestOptions | None:
        """None without a file; `whole` is the budget of which `epsilon` is a part."""
        if path is None:
            if public or epsilon is not None:
                raise InvalidParameter("test", must_be="a file, to test with", found="none")
            return None
        if public == (epsilon is not None):
            must_be = (
                "either public, --test-is-public, or charged for: --test-epsilon 0.1 spends a part "
                "of --epsilon on its score"
            )
            found = "both" if public else "neither"
            raise InvalidParameter("the test file", must_be=must_be, found=found)
        if epsilon is not None:
            _check.number("test_epsilon", epsilon, above=0.0, below=whole)
        return cls(path, epsilon)


@dataclass(frozen=True)
class JointBudget:
    """The privacy budget of training and score together."""

    epsilon: float
    delta: float
    score: Release

    @classmethod
    def of(cls, epsilon: float, delta: float, part: float, *, labels: bool) -> JointBudget:
        """The budget with a score that alone would cost the epsilon `part`."""
        kind = ACCURACY if labels else ERRORS
        mu = gaussian_parameter(part, delta)
        return cls(epsilon, delta, Release.of_mu(kind, mu, adjacency="replace"))

    def fit(self, make: Any, rows: Any, targets: Any, key: Path | None = None) -> Any:
        """A fitted model of `make(epsilon)` that leaves enough of the budget for the score.

        Whether another trial is needed depends on the run alone, which is public.
        """
        whole = gaussian_parameter(self.epsilon, self.delta)
        rest = GaussianProfile(math.sqrt(whole**2 - self.score.mu**2)).epsilon(self.delta)
        rest *= 1.0 - _SPARED
        for _ in range(_TRIALS):
            model = make(rest).fit(rows, targets, key=key)
            joint = self.joint_report(model.privacy_).epsilon(self.delta)
            if joint <= self.epsilon:
                return model
            rest *= (1.0 - _SPARED) * self.epsilon / joint
        raise NumericalFailure(
            f"no training was found that leaves room for the score within {self.epsilon!r}."
        )

    def joint_report(self, report: PrivacyReport) -> PrivacyReport:
        """The privacy report of the model and its score together."""
        return with_score(report, self.score)


def public_score(
    outputs: Array, truth: NDArray[Any], name: str, *, classes: tuple[str, ...] | None
) -> str:
    """The score in words: accuracy, that of the most frequent label and AUC; or errors and R2."""
    if classes is not None:
        alone = outputs.shape[1] == 1
        chosen = (outputs[:, 0] > 0.0).astype(int) if alone else outputs.argmax(axis=1)
        counts = np.bincount(truth[truth >= 0], minlength=2)
        unknown = np.sum(truth < 0)
        wrong = f"; {unknown:,} of them have an undeclared label, which counts as wrong"
        right, most = np.mean(chosen == truth), counts.max() / truth.size
        area = auc_text(outputs, truth, classes, better=right - most > _SEEN)
        return (
            f"accuracy on {truth.size:,} rows of {name}: {right:.1%} (most frequent label: "
            f"{most:.1%}){wrong if unknown else ''}{area}"
        )
    errors = outputs[:, 0] - truth
    spread = float(np.mean((truth - truth.mean()) ** 2))
    explained = 1.0 - float(np.mean(errors**2)) / spread if spread > 0.0 else math.nan
    return (
        f"mean absolute error on {truth.size:,} rows of {name}: {np.mean(np.abs(errors)):.4g}; "
        f"R2 {explained:.3f} (the mean alone: 0)"
    )


def private_score(value: float, std: float, rows: int, name: str, *, unit: float | None) -> str:
    """The noisy score in words; errors are in units of half the target's range, `unit`."""
    if unit is None:
        return (
            f"accuracy on {rows:,} rows of {name}: {value:.1%}, with noise of standard deviation "
            f"{100 * std:.2g} %, which the guarantee includes"
        )
    return (
        f"mean absolute error on {rows:,} rows of {name}: {value * unit:.4g}, with noise of "
        f"standard deviation {std * unit:.2g}, which the guarantee includes"
    )


_WITHIN = 2.0  # standard deviations of its noise within which a score may be another


def base_rate_text(score: Any, classes: tuple[str, ...], prior: list[float] | None) -> str:
    """The public share of the most frequent label, with which a noisy accuracy is compared."""
    ranking = (
        "how well the model ranks rows (AUC) is not measured on private rows; --test-is-public "
        "prints it for public ones"
    )
    if prior is None:
        return (
            ". Always predicting the most frequent label may be right as often: compare with its "
            f"share, if that is publicly known (it is private here); {ranking}"
        )
    share, label = max(zip(prior, classes, strict=True))
    said = f". Always predicting {label!r} would be right for {share:.1%}, by --class-prior"
    if score.value - share > _WITHIN * score.std:
        return said
    return f"{said}, so this accuracy shows nothing; {ranking}"


_BY_CHANCE = 3.0  # standard deviations that scores of pure chance stay within


def area_under_roc(scores: Array, positive: NDArray[np.bool_]) -> float:
    """The probability that a random positive row scores above a random other one; nan if no such.

    Ties count half.
    """
    from sklearn.metrics import roc_auc_score

    if positive.all() or not positive.any():
        return math.nan
    return float(roc_auc_score(positive, scores))


def auc_text(outputs: Array, truth: NDArray[Any], classes: tuple[str, ...], *, better: bool) -> str:
    """The area under the ROC curve in words, with an explanation unless accuracy is `better`.

    For three or more classes it is the mean over the classes, each against all others.  Rows
    without a declared label (-1) are left out.
    """
    known = truth >= 0
    scores, labels = outputs[known], truth[known]
    if scores.shape[1] > 1:
        each = [area_under_roc(scores[:, k], labels == k) for k in range(len(classes))]
        areas = [area for area in each if not math.isnan(area)]
        if not areas:
            return ""
        return f"; mean AUC {math.fsum(areas) / len(areas):.3f}"
    positive = labels == 1
    area = area_under_roc(scores[:, 0], positive)
    if math.isnan(area):
        return ""
    said = f"; AUC {area:.3f} (chance: 0.5)"
    if better:
        return said
    if not area - 0.5 > _BY_CHANCE * _spread(positive):
        return f"{said}. Neither shows that the model learned anything"
    rarer = int(2 * positive.sum() <= positive.size)
    one, other = classes[rarer], classes[1 - rarer]
    return (
        f"{said}. The accuracy is no better than that of always predicting {other!r}, but the "
        f"model ranks rows: with probability {area:.2f} it scores a row with label {one!r} above "
        f"one without. `lastiterate predict MODEL DATA --positive {shlex.quote(one)} --top 100` "
        f"lists the rows that most likely have it, and --positive {shlex.quote(one)} --threshold "
        f"0.1 predicts {one!r} from that probability on (trained "
        "without --rate-matching, probabilities of a rare label are far too small for that)"
    )


def _spread(positive: NDArray[np.bool_]) -> float:
    """The standard deviation of the area if scores had nothing to do with labels."""
    many, others = int(positive.sum()), int((~positive).sum())
    return math.sqrt((many + others + 1) / (12.0 * many * others))
