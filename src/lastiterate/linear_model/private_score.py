"""A score on private data, published with noise.

A loss or an accuracy on private examples reveals them unless noise is added.  Predictions are those
of a model that was published before, so the score is a sum to which one example adds at most 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import is_classifier
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from lastiterate import _check
from lastiterate._numerics.rounding import Array
from lastiterate.accounting import PrivacyReport
from lastiterate.errors import InvalidParameter
from lastiterate.ledger.ledger import charge_statistic, ledgers_of, one_ledger
from lastiterate.linear_model.inputs import (
    as_column,
    check_length,
    numbers_in,
    positions_of,
    rows_alone,
)
from lastiterate.other_releases import ACCURACY, ERRORS, Release
from lastiterate.profile.best import BestProfile
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.profile.group import for_group
from lastiterate.profile.profile import PrivacyProfile, Protected
from lastiterate.profile.rounded import RoundedProfile
from lastiterate.train.arithmetic import release_rounding, with_score
from lastiterate.train.defaults import gaussian_parameter
from lastiterate.train.discreet import discreet
from lastiterate.train.noise import Randomness, noisy, randomness

_UNIT = 2.0**-20  # sums of thousands of millions of whole units are exact


@dataclass(frozen=True)
class PrivateScore:
    """The score of a fitted model on private examples, published with noise.

    For classifiers the accuracy; for regressors the mean absolute error, each error clipped to
    `target_bound` and in units of it.  The number of examples is public.  Made by
    `PrivateScore.of`.

    Parameters
    ----------
    value : float
        The score, noise included.
    std : float
        The standard deviation of that noise.
    release : Release
        The release, for `account(run, other_releases=[..])`.
    examples_per_person : int
        The largest number of examples of one person, as set for the model.

    Examples
    --------
    >>> import numpy as np
    >>> from lastiterate.linear_model import PrivateLogisticRegression, PrivateScore
    >>> X = np.random.default_rng(0).normal(size=(4_000, 3))
    >>> y = X[:, 0] > 0.0
    >>> model = PrivateLogisticRegression(epsilon=0.9).fit(X, y)
    >>> score = PrivateScore.of(model, X, y, epsilon=0.1)
    >>> score.value > 0.7, score.joint_report(model.privacy_).epsilon(1e-5) < 1.0
    (True, True)
    """

    value: float
    std: float
    release: Release
    examples_per_person: int = 1

    @classmethod
    @discreet
    def of(
        cls,
        model: Any,
        X: Any,
        y: Any,
        *,
        epsilon: float,
        delta: float = 1e-5,
        random_state: Any = None,
        ledger: Any = None,
    ) -> PrivateScore:
        """The noisy score of a model on the examples that it was fitted on, or on others.

        Parameters
        ----------
        model : estimator
            A private model that is fitted.
        X, y : array
            The examples.
        epsilon, delta : float
            The guarantee of the score alone.
        random_state : int, optional
            A seed, for tests: whoever knows it can remove the noise.
        ledger : Ledger or path, optional
            The ledger that the score is charged to, before it is computed; by default the one of
            the model: of its constructor or its fit.  A model from `lastiterate.load` has none.

        Returns
        -------
        PrivateScore
            The noisy score.

        Raises
        ------
        InvalidParameter
            If the model is a pipeline, or a parameter or the data cannot be used.
        BudgetExceeded
            If the budget of the ledger does not suffice.
        """
        if isinstance(model, Pipeline):
            must_be = (
                "a private model; score the last step of a pipeline, model[-1], on transformed rows"
            )
            raise InvalidParameter("model", must_be=must_be, found="a Pipeline")
        check_is_fitted(model, "parameters_")
        mu = gaussian_parameter(
            _check.target_epsilon("epsilon", epsilon),
            _check.number("delta", delta, above=0.0, below=1.0),
        )
        kind = score_kind(model)
        most = model.privacy_.run.examples_per_person
        release = Release.of_mu(kind, mu / most, adjacency="replace")
        source = randomness(random_state)
        charge_statistic(
            one_ledger(*(ledgers_of(model) if ledger is None else [ledger])),
            release,
            f"a score, {kind}",
            examples_per_person=most,
            rounding=release_rounding(release, as_column(y).size),
            seeded=random_state is not None,
        )
        share, _, count = noisy_score(model, X, y, release, source)
        return cls(share, release.noise_std / count, release, most)

    @property
    def privacy(self) -> PrivacyProfile:
        """The guarantee of the score alone; all there is for examples outside the fit."""
        exact = for_group(GaussianProfile(self.release.mu), self.examples_per_person)
        # One example changes the sum by at most 1, replaced or left out.
        hides = Protected(None, self.examples_per_person)
        known = BestProfile([exact], protected=hides)
        return RoundedProfile(known, release_rounding(self.release, self._examples))

    @property
    def _examples(self) -> int:
        """The number of scored examples, from the noise of the sum and of the score."""
        return max(round(self.release.noise_std / self.std), 1)

    def joint_report(self, report: PrivacyReport) -> PrivacyReport:
        """The report on model and score together, for examples that the model was fitted on.

        Parameters
        ----------
        report : PrivacyReport
            The report on the model.

        Returns
        -------
        PrivacyReport
            The report on both releases.
        """
        return with_score(report, self.release, self._examples)


def score_kind(model: Any) -> str:
    """The kind of release that the score of a model is."""
    return ACCURACY if is_classifier(model) else ERRORS


def noisy_score(
    model: Any, X: Any, y: Any, release: Release, source: Randomness
) -> tuple[float, float, int]:
    """The mean score in [0, 1] and the sum, both with noise, and the number of examples."""
    total, count = score_total(model, X, y)
    published = float(noisy(np.array([total]), release.noise_std, source, largest=2.0 * count)[0])
    return min(max(published / count, 0.0), 1.0), published, count


def score_total(model: Any, X: Any, y: Any) -> tuple[float, int]:
    """The sum of scores of examples, each at most 1, and their number."""
    rows = rows_alone(model, X)
    targets = check_length(as_column(y), rows.shape[0])
    each = (
        _correct_predictions(model, rows, targets)
        if is_classifier(model)
        else _clipped_errors(model, rows, targets)
    )
    # In whole units, so that the sum is exact and one example changes it by at most 1.
    return float(np.sum(np.rint(each / _UNIT))) * _UNIT, int(targets.size)


def _correct_predictions(model: Any, rows: Any, targets: NDArray[Any]) -> Array:
    """1 where a prediction is correct; a label unknown to the model never is."""
    known = positions_of(targets, model.classes_)
    return np.asarray(positions_of(model.predict(rows), model.classes_) == known, dtype=np.float64)


def _clipped_errors(model: Any, rows: Any, targets: NDArray[Any]) -> Array:
    numbers = numbers_in(targets, finite=False)
    with np.errstate(over="ignore"):
        errors = np.abs(numbers - model.predict(rows)) / model.target_bound_
    # A target that is no number has the largest error, as any target may.
    return np.clip(np.where(np.isnan(errors), 1.0, errors), 0.0, 1.0)
