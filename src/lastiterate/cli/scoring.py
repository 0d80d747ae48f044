"""How good a model is: on rows that are public, or on private ones for a part of the budget."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate import _check
from lastiterate._numerics.arrays import Array
from lastiterate.accounting import PrivacyReport
from lastiterate.cli.ranking import area_in_words
from lastiterate.errors import InvalidParameter, NumericalFailure
from lastiterate.other_releases import ACCURACY, ERRORS, Release
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.train.default_releases import gaussian_parameter

_TRIALS = 8
_SEEN = 0.0005  # the least difference between two accuracies that shows in print
_SPARED = 0.002  # of epsilon, so that one training is nearly always enough


@dataclass(frozen=True)
class Asked:
    """A file to test with: public, or with an epsilon of its own."""

    path: Path
    epsilon: float | None

    @classmethod
    def of(
        cls, path: Path | None, *, public: bool, epsilon: float | None, whole: float
    ) -> Asked | None:
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
class Budget:
    """The privacy budget of training and score together, and the release of the score."""

    epsilon: float
    delta: float
    score: Release

    @classmethod
    def of(cls, epsilon: float, delta: float, part: float, *, labels: bool) -> Budget:
        """With a score that costs `part`, were it alone."""
        kind = ACCURACY if labels else ERRORS
        mu = gaussian_parameter(part, delta)
        return cls(epsilon, delta, Release.of_mu(kind, mu, adjacency="replace"))

    def fitted(self, make: Any, rows: Any, targets: Any, key: Path | None = None) -> Any:
        """A model of `make(epsilon)` that leaves enough for the score.

        Whether another trial is needed follows from the run alone, which is public.
        """
        whole = gaussian_parameter(self.epsilon, self.delta)
        rest = GaussianProfile(math.sqrt(whole**2 - self.score.mu**2)).epsilon(self.delta)
        rest *= 1.0 - _SPARED
        for _ in range(_TRIALS):
            model = make(rest).fit(rows, targets, key=key)
            found = self.together(model.privacy_).epsilon(self.delta)
            if found <= self.epsilon:
                return model
            rest *= (1.0 - _SPARED) * self.epsilon / found
        raise NumericalFailure(
            f"no training was found that leaves room for the score within {self.epsilon!r}."
        )

    def together(self, report: PrivacyReport) -> PrivacyReport:
        """The privacy report of the model and its score together."""
        return report.with_release(self.score)


def public_score(
    outputs: Array, truth: NDArray[Any], name: str, *, classes: tuple[str, ...] | None
) -> str:
    """In words; beside an accuracy, what the most frequent label would have, and the AUC."""
    if classes is not None:
        alone = outputs.shape[1] == 1
        chosen = (outputs[:, 0] > 0.0).astype(int) if alone else outputs.argmax(axis=1)
        counts = np.bincount(truth[truth >= 0], minlength=2)
        unknown = np.sum(truth < 0)
        wrong = f"; {unknown:,} of them have another label than was declared, which counts as wrong"
        right, most = np.mean(chosen == truth), counts.max() / truth.size
        area = area_in_words(outputs, truth, classes, better=right - most > _SEEN)
        return (
            f"accuracy on {truth.size:,} rows of {name}: {right:.1%} (the most frequent label "
            f"alone: {most:.1%}){wrong if unknown else ''}{area}"
        )
    errors = outputs[:, 0] - truth
    spread = float(np.mean((truth - truth.mean()) ** 2))
    explained = 1.0 - float(np.mean(errors**2)) / spread if spread > 0.0 else math.nan
    return (
        f"mean absolute error on {truth.size:,} rows of {name}: {np.mean(np.abs(errors)):.4g}; "
        f"R2 {explained:.3f} (the mean alone: 0)"
    )


def private_score(value: float, std: float, rows: int, name: str, *, unit: float | None) -> str:
    """In words; errors are in units of half the range, `unit`."""
    if unit is None:
        return (
            f"accuracy on {rows:,} rows of {name}: {value:.1%}, with noise of standard deviation "
            f"{100 * std:.2g} %, which the guarantee includes"
        )
    return (
        f"mean absolute error on {rows:,} rows of {name}: {value * unit:.4g}, with noise of "
        f"standard deviation {std * unit:.2g}, which the guarantee includes"
    )
