"""How well scores rank rows, whatever the threshold: the area under the ROC curve."""

from __future__ import annotations

import math
import shlex
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from lastiterate._numerics.arrays import Array

_BY_CHANCE = 3.0  # standard deviations that scores of pure chance stay within


def area_under_roc(scores: Array, positive: NDArray[np.bool_]) -> float:
    """The probability that a random positive row scores above a random other one; nan if no such.

    Ties count half.
    """
    many, others = int(positive.sum()), int((~positive).sum())
    if many == 0 or others == 0:
        return math.nan
    ranks = rankdata(scores)
    return float((ranks[positive].sum() - many * (many + 1) / 2.0) / many / others)


def area_in_words(
    outputs: Array, truth: NDArray[Any], classes: tuple[str, ...], *, better: bool
) -> str:
    """The area under the ROC curve; unless accuracy is `better` than the most frequent label's,
    also what that means.

    For three or more classes it is the mean over the classes, each against all others.  Rows
    without a declared label (-1) are left out.
    """
    known = truth >= 0
    scores, labels = outputs[known], truth[known]
    if scores.shape[1] > 1:
        each = [area_under_roc(scores[:, k], labels == k) for k in range(len(classes))]
        found = [area for area in each if not math.isnan(area)]
        if not found:
            return ""
        return f"; mean AUC {math.fsum(found) / len(found):.3f}"
    positive = labels == 1
    area = area_under_roc(scores[:, 0], positive)
    if math.isnan(area):
        return ""
    said = f"; AUC {area:.3f} (by chance 0.5)"
    if better:
        return said
    if not area - 0.5 > _BY_CHANCE * _spread(positive):
        return f"{said}. Neither shows that the model has learnt anything"
    rarer = int(2 * positive.sum() <= positive.size)
    one, other = classes[rarer], classes[1 - rarer]
    return (
        f"{said}. The accuracy is no better than always answering {other!r}, but the model ranks "
        f"rows: with probability {area:.2f} it scores a row that is {one!r} above one that is not. "
        f"`lastiterate predict MODEL DATA --positive {shlex.quote(one)} --top 100` lists the rows "
        f"that most likely are, and --threshold 0.1 answers {one!r} from that probability on"
    )


def _spread(positive: NDArray[np.bool_]) -> float:
    """The standard deviation of the area if scores had nothing to do with labels."""
    many, others = int(positive.sum()), int((~positive).sum())
    return math.sqrt((many + others + 1) / (12.0 * many * others))
