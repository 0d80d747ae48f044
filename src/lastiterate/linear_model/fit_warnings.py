r"""Warnings of a fit: too few examples, several fits on the same data, too large a delta.

All follow from public quantities and published numbers.  With n examples of K classes and a
Gaussian parameter mu, the examples of one class move an output by at most :math:`n\mu/2K` standard
deviations of its noise (twice that for zero-out adjacency), and only the part by which classes
differ helps.

Noise also hides the mean of the rows.  If the published mean is off by t and the constant feature
of the intercept is k, both in units of the bound, weights make up for :math:`t^2/(t^2 + k^2)` of
the intercept that a rare class needs, and scores rank by that.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from lastiterate.errors import PrivacyWarning, warn
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.train.defaults import gaussian_parameter
from lastiterate.train.settings import RunSettings

# Accuracy on ten digits is 19 % at 2.8, 29 % at 5.7, 51 % at 11; on twenty blobs 17 % at 1.8 and
# 72 % at 7.1; on two digits 76 % at 1.8 and 98 % at 7.1 (benchmarks/validation.py).
_HOPELESS_SIGNAL, _WORTHWHILE_SIGNAL = 3.0, 10.0

_MOST_BY_WEIGHTS = 0.6  # of the intercept
_MOST_NAMED_CLASSES = 3  # classes

# Modules that fit a model several times, or fit something else on the same examples.
_REFITTING_MODULES = (
    "sklearn.calibration",
    "sklearn.ensemble",
    "sklearn.feature_selection",
    "sklearn.inspection",
    "sklearn.model_selection",
    "sklearn.multiclass",
    "sklearn.multioutput",
    "sklearn.semi_supervised",
)

_UNCHARGED = (
    "every fit, and every choice made by scores on private data, costs privacy that privacy_ of a "
    "single model does not include; a Ledger charges every fit (ledger=..), and PrivateSelection "
    "chooses among settings at far less than their sum"
)

_UNCHARGED_SCORES = (
    "the ledger charges every fit, but not a choice made by scores on private data: score on "
    "public data, or with PrivateScore, or use PrivateSelection"
)


class TooFewExamplesWarning(UserWarning):
    """The noise dominates: too few examples for this epsilon.

    Examples
    --------
    >>> import warnings
    >>> from lastiterate.linear_model import TooFewExamplesWarning
    >>> warnings.simplefilter("ignore", TooFewExamplesWarning)
    """


def warn_of_dominant_noise(settings: RunSettings, *, examples: int, classes: int) -> None:
    """Warn if noise is expected to dominate; 1 class stands for a regression."""
    if settings.epsilon is None:
        return
    each = classes * (2.0 if settings.adjacency == "replace" else 1.0)
    mu = gaussian_parameter(settings.epsilon, settings.delta)
    if examples * mu / each >= _HOPELESS_SIGNAL:
        return
    needed = _WORTHWHILE_SIGNAL * each
    enough = GaussianProfile(needed / examples).epsilon(settings.delta)
    fewer = int(examples * mu * classes / needed)
    data = f"{examples:,} examples"
    remedies = [f"epsilon of {enough:.2g} or more", f"about {needed / mu:,.0f} examples"]
    if classes > 1:
        data += f" of {classes} classes"
        if fewer >= 2:
            remedies.append(f"{fewer} classes")
    warn(
        f"at epsilon = {settings.epsilon:g} noise dominates {data}: expect chance accuracy.  "
        f"It would take {', or '.join(remedies)}",
        TooFewExamplesWarning,
    )


def warn_of_lost_centre(lost: float, constant: float) -> None:
    """Warn if rows differ by less than the noise on their published mean."""
    if not lost * lost > _MOST_BY_WEIGHTS * (lost * lost + constant * constant):
        return
    warn(
        "rows differ by less than the noise on their published mean, so a rare class may be "
        "ranked at random.  Subtract publicly known middles from columns and lower the feature "
        "bound (ranges in a schema do both); or declare the class prior if it is public; or "
        "raise epsilon or the number of examples",
        TooFewExamplesWarning,
    )


def warn_of_few_to_match(few: Mapping[int, int], classes: Sequence[Any], noise_std: float) -> None:
    """Warn of classes whose rate was matched by published numbers that noise dominates."""
    if not few:
        return
    said = [f"about {count:,} of {classes[k]!r}" for k, count in few.items()]
    named = ", ".join(said[:_MOST_NAMED_CLASSES])
    named += (
        f" and {len(said) - _MOST_NAMED_CLASSES} more classes"
        if len(said) > _MOST_NAMED_CLASSES
        else ""
    )
    warn(
        f"too few examples for rate matching, {named}, where noise has a standard deviation of "
        f"{noise_std:,.0f}: mean probabilities may be several times too large or too small.  Raise "
        "rate_matching, epsilon or the number of examples, or go by rankings",
        TooFewExamplesWarning,
    )


def warn_of_several_fits(*, charged: bool) -> None:
    """Warn if such a module calls; `charged` if a ledger charges every fit."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        found = next((one for one in _REFITTING_MODULES if f"{name}.".startswith(f"{one}.")), None)
        if found is not None:
            warn(
                f"this model is being fitted by a routine of {found}: "
                + (_UNCHARGED_SCORES if charged else _UNCHARGED),
                PrivacyWarning,
            )
            return
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop


def warn_of_delta(delta: float, examples: int) -> None:
    """Warn if delta allows publishing a whole example."""
    if delta * examples >= 1.0:
        warn(
            f"delta = {delta:g} is not below 1/n for n = {examples:,} examples: publishing one of "
            "them in full would satisfy it; use a far smaller delta",
            PrivacyWarning,
        )
