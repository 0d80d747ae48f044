"""Scores of a model: on public rows, or on private rows for a part of the budget."""

from __future__ import annotations

import math
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate import _check
from lastiterate._numerics.rounding import Array
from lastiterate.accounting import PrivacyReport
from lastiterate.cli.predict import likeliest_classes
from lastiterate.errors import InvalidParameter, NumericalFailure
from lastiterate.other_releases import ACCURACY, ERRORS, Release
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.train.arithmetic import with_score
from lastiterate.train.defaults import gaussian_parameter

_MAX_TRIALS = 8
_VISIBLE_DIFFERENCE = 0.0005  # the least difference between two accuracies that shows in print
_SPARED_SHARE = 0.002  # of epsilon, so that one training is nearly always enough
_NOISE_STDS = 2.0  # standard deviations of its noise within which a score may be another
_CHANCE_STDS = 3.0  # standard deviations that scores of pure chance stay within


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
        """The budget, with a score whose own cost is the epsilon `part`."""
        kind = ACCURACY if labels else ERRORS
        mu = gaussian_parameter(part, delta)
        return cls(epsilon, delta, Release.of_mu(kind, mu, adjacency="replace"))

    def fit(self, make: Any, rows: Any, targets: Any, key: Path | None = None) -> Any:
        """A fitted model of `make(epsilon)` that leaves enough of the budget for the score.

        Whether another trial is needed depends on the run alone, which is public.
        """
        whole = gaussian_parameter(self.epsilon, self.delta)
        rest = GaussianProfile(math.sqrt(whole**2 - self.score.mu**2)).epsilon(self.delta)
        rest *= 1.0 - _SPARED_SHARE
        for _ in range(_MAX_TRIALS):
            model = make(rest).fit(rows, targets, key=key)
            joint = self.joint_report(model.privacy_).epsilon(self.delta)
            if joint <= self.epsilon:
                return model
            rest *= (1.0 - _SPARED_SHARE) * self.epsilon / joint
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
        chosen = likeliest_classes(outputs)
        counts = np.bincount(truth[truth >= 0], minlength=2)
        unknown = np.sum(truth < 0)
        wrong = f"; {unknown:,} of them have an undeclared label, which counts as wrong"
        right, most = np.mean(chosen == truth), counts.max() / truth.size
        area = auc_text(outputs, truth, classes, better=right - most > _VISIBLE_DIFFERENCE)
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
    if score.value - share > _NOISE_STDS * score.std:
        return said
    return f"{said}, so this accuracy shows nothing; {ranking}"


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
    if not area - 0.5 > _CHANCE_STDS * _spread_by_chance(positive):
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


def _spread_by_chance(positive: NDArray[np.bool_]) -> float:
    """The standard deviation of the area if scores had nothing to do with labels."""
    many, others = int(positive.sum()), int((~positive).sum())
    return math.sqrt((many + others + 1) / (12.0 * many * others))
