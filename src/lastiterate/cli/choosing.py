"""Which label a row is given, and which rows are listed, by the score of one label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lastiterate import _check
from lastiterate._numerics.arrays import Array
from lastiterate.errors import InvalidParameter
from lastiterate.saved_model.model_file import SavedModel


@dataclass(frozen=True)
class Choice:
    """The label that is looked for, how many rows are listed, and from which probability on."""

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
    ) -> Choice:
        """The choice that these flags describe; an error if the model cannot answer it."""
        if top is not None:
            _check.count("top", top, at_least=1)
        if threshold is not None:
            _check.number("threshold", threshold, at_least=0.0, below=1.0)
            if saved.record["model"] != "logistic":
                must_be = "left out: only --model logistic has probabilities; --top ranks rows"
                found = f"a model of kind {saved.record['model']}"
                raise InvalidParameter("threshold", must_be=must_be, found=found)
        asked = top is not None or threshold is not None
        return cls(saved.classes, _place(saved.classes, positive, asked), top, threshold)

    def labels(self, likeliest: list[str], probabilities: Array | None) -> list[str]:
        """The likeliest labels, unless the probability of the one looked for decides."""
        if self.threshold is None:
            return likeliest
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
        """Scores in the order of the probabilities of the label looked for."""
        if outputs.shape[1] == 1:
            return outputs[:, 0] if self.positive == 1 else -outputs[:, 0]
        from scipy.special import log_softmax

        return np.asarray(log_softmax(outputs, axis=1)[:, self.positive])


def _place(classes: tuple[str, ...] | None, positive: str | None, asked: bool) -> int:
    """The place of the label looked for; 1 for numbers."""
    if classes is None:
        if positive is not None:
            must_be = "left out: the model predicts numbers, which --top ranks as they are"
            raise InvalidParameter("positive", positive, must_be=must_be)
        return 1
    must_be = f"one of the labels {', '.join(classes)}"
    if positive is None:
        if asked and len(classes) > 2:
            must_be += ", whose probability --top and --threshold go by"
            raise InvalidParameter("positive", must_be=must_be, found="none")
        return 1
    if positive not in classes:
        raise InvalidParameter("positive", positive, must_be=must_be)
    if not asked:
        must_be = "left out without --top or --threshold"
        raise InvalidParameter("positive", positive, must_be=must_be)
    return classes.index(positive)
