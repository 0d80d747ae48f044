"""Other releases of the same data beside a model: statistics with Gaussian noise.

Each is a vector to whose coordinates independent noise was added.  It is worth a mu, the most that
one example can move the vector over the noise, and composes with the training.  A kind says how
far that is; more of them can be added to `KINDS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lastiterate import _check
from lastiterate._numerics.rounding import at_least
from lastiterate.errors import InvalidParameter

MEAN = "mean"
OUTLIERS = "outliers"
UNDECLARED = "undeclared"
RATES = "rates"
INTERVALS = "intervals"
# Of the squared norm: gradient and Hessian, then a second gradient and the covariance.
INTERVAL_SHARES = ((0.1, 0.4), (0.4, 0.1))
ACCURACY = "accuracy"
ERRORS = "errors"
PUBLISHED = "published (noisy)"
NOISE_OF_COUNTS = "noise_std of each count"
OUTLIER_COUNTS = ("long rows", "short rows", "targets outside")


@dataclass(frozen=True)
class StatisticKind:
    """A statistic, and how far one example can move it at least, by the adjacency.

    `words` is what certificates state, so it must not change; reports have their own.
    """

    words: str
    sensitivity: Callable[[str], float]
    summed: str = ""  # what the noise is added to
    published: str = ""  # what readers see

    def __post_init__(self) -> None:
        object.__setattr__(self, "summed", self.summed or self.words)
        object.__setattr__(self, "published", self.published or f"{self.words}, with noise")


def _interval_sensitivity(adjacency: str) -> float:
    """The distance by which one example moves both releases together; their parts are at most 1."""
    # Another one: gradients in opposite directions, and matrices without common directions.
    of_gradient, of_matrix = (4.0, 2.0) if adjacency == "replace" else (1.0, 1.0)
    return math.sqrt(math.fsum(of_gradient * g + of_matrix * m for g, m in INTERVAL_SHARES))


KINDS: dict[str, StatisticKind] = {
    MEAN: StatisticKind(
        "the sum of all rows, and half that of their squared lengths, each row within the bound on "
        "features and in units of it",
        lambda adjacency: 2.0 if adjacency == "replace" else math.sqrt(1.25),
        summed="the sum of the clipped rows and half the sum of their squared norms, in units of "
        "the bound on features",
        published="a noisy mean and mean squared norm of the clipped rows",
    ),
    # Two of the three exclude each other, so that replacing an example changes at most three.
    OUTLIERS: StatisticKind(
        "how many rows are ten times as long as the bound, how many a tenth, and how many targets "
        "are outside theirs",
        lambda adjacency: math.sqrt(3.0 if adjacency == "replace" else 2.0),
        summed="the counts of rows ten times as long as the bound on features, of rows a tenth as "
        "long, and of targets outside their range",
        published="noisy counts of very long rows, very short rows and targets out of range",
    ),
    # Each of d counts changes by at most one, so that all together change by sqrt(d).
    UNDECLARED: StatisticKind(
        "the number of rows, for each column of text, that have none of its declared values, over "
        "the square root of how many such columns there are",
        lambda _: 1.0,
        summed="the counts, for each text column, of rows with none of its declared values, over "
        "the square root of the number of text columns",
        published="a noisy count of undeclared values for each text column",
    ),
    # Three vectors of nonnegative parts that add up to at most 1: each is moved by at most 1, or by
    # sqrt(2) if an example is another.
    RATES: StatisticKind(
        "the counts of the classes, and twice the sums of all rows' class probabilities, the "
        "second time by the model that the first led to",
        lambda adjacency: math.sqrt(6.0 if adjacency == "replace" else 3.0),
        summed="the counts of the classes and two sums of class probabilities",
        published="a shift of the intercepts by noisy class counts and noisy sums of probabilities",
    ),
    INTERVALS: StatisticKind(
        "the sums of gradients and of Hessians at the published parameters, and those of gradients "
        "and of their products at the parameters that the first led to, each in units of its "
        f"bound, with shares of {', '.join(f'{s:g}' for pair in INTERVAL_SHARES for s in pair)} of "
        "the squared norm",
        _interval_sensitivity,
        summed="the sums of gradients and Hessians at the published parameters, and of gradients "
        "and their products at those that the first led to, each in units of its bound",
        published="confidence intervals by two noisy gradients, a Hessian and a gradient "
        "covariance",
    ),
    ACCURACY: StatisticKind(
        "how many predictions are right",
        lambda _: 1.0,
        summed="the number of correct predictions",
        published="a noisy accuracy",
    ),
    ERRORS: StatisticKind(
        "the sum of absolute errors, each at most the bound, in units of it",
        lambda _: 1.0,
        summed="the sum of the clipped absolute errors, in units of their bound",
        published="a noisy mean absolute error",
    ),
}


@dataclass(frozen=True)
class Release:
    """A statistic of a known kind, published with noise of this standard deviation."""

    kind: str
    sensitivity: float
    noise_std: float

    def __post_init__(self) -> None:
        _check.choice("kind", self.kind, among=tuple(KINDS))
        for name in ("sensitivity", "noise_std"):
            number = _check.number(name, getattr(self, name), above=0.0)
            object.__setattr__(self, name, number)

    @classmethod
    def of_mu(cls, kind: str, mu: float, *, adjacency: str) -> Release:
        """A release of this kind whose noise gives this mu."""
        _check.choice("kind", kind, among=tuple(KINDS))
        sensitivity = at_least(KINDS[kind].sensitivity(adjacency), ulps=1.0)
        noise = at_least(sensitivity / _check.number("mu", mu, above=0.0), ulps=2.0)
        return cls(kind, sensitivity, noise)

    @property
    def mu(self) -> float:
        """The mu of Gaussian differential privacy, sensitivity over noise, rounded up."""
        return at_least(self.sensitivity / self.noise_std, ulps=1.0)

    def under(self, adjacency: str) -> Release:
        """This release with its sensitivity raised to at least that of the adjacency."""
        least = at_least(KINDS[self.kind].sensitivity(adjacency), ulps=1.0)
        return Release(self.kind, max(self.sensitivity, least), self.noise_std)

    def as_record(self) -> dict[str, Any]:
        """The record of this release in a certificate."""
        return {
            "kind": self.kind,
            "what": KINDS[self.kind].words,
            "sensitivity": self.sensitivity,
            "noise_std": self.noise_std,
        }


def release_from_record(record: Mapping[str, Any], *, adjacency: str) -> Release:
    """The release that a certificate states, if its sensitivity is large enough."""
    release = Release(record["kind"], record["sensitivity"], record["noise_std"])
    if record["what"] != KINDS[release.kind].words:
        raise InvalidParameter("what", record["what"], must_be=KINDS[release.kind].words)
    least = KINDS[release.kind].sensitivity(adjacency)
    if not release.sensitivity >= least:
        must_be = f"at least {least!r} for {release.kind}"
        raise InvalidParameter("sensitivity", release.sensitivity, must_be=must_be)
    return release


def published_record(release: Release, published: Any) -> dict[str, Any]:
    """A certificate's record of a release and of its published values, noise included."""
    record = release.as_record() | {PUBLISHED: published}
    if release.kind in (OUTLIERS, UNDECLARED):
        record[NOISE_OF_COUNTS] = noise_of_counts(release.kind, release.noise_std, len(published))
    return record


def without_published(record: Mapping[str, Any]) -> dict[str, Any]:
    """The release that a record is of, without its published numbers."""
    return {name: one for name, one in record.items() if name not in (PUBLISHED, NOISE_OF_COUNTS)}


def noise_of_counts(kind: str, noise_std: float, counts: int) -> float:
    """The noise of each count; undeclared values are released over the root of their number."""
    return noise_std * math.sqrt(counts) if kind == UNDECLARED else noise_std


def joint_mu(releases: Iterable[Release]) -> float:
    """The GDP mu of all these releases together, rounded up; 0 for none."""
    mus = [release.mu for release in releases]
    return at_least(math.hypot(*mus), ulps=len(mus) + 1.0) if mus else 0.0
