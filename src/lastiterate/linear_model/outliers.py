"""Rows and targets far from their bounds: counted with noise, and said where they are most.

Whether rows are cut down to a tenth decides what a model can learn, and depends on the data: so it
is not looked up but published, with noise that the guarantee includes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lastiterate._warning import warn
from lastiterate.errors import InvalidParameter
from lastiterate.linear_model.undeclared_labels_and_bounds import SCALED
from lastiterate.other_releases import OUTLIER_COUNTS, Release
from lastiterate.train.noise import Randomness
from lastiterate.train.shards import AnyExamples

_TOO_NOISY = 8.0
_LONG, _SHORT, _TARGETS = OUTLIER_COUNTS
# From which share on, and by how many standard deviations of the noise, it is said.
_SAID = {_LONG: (0.5, 2.0), _SHORT: (0.5, 2.0), _TARGETS: (0.05, 4.0)}
_LENGTH = "more than ten times as long as feature_bound"
_ADVICE = {
    _LONG: f"are {_LENGTH} and count as scaled down to it, so that little but their direction is "
    "left: map columns to [-1, 1] by ranges that are publicly known (in a schema, or "
    "PrivateScaler), or, if they lie around 0, raise feature_bound",
    _SHORT: "are shorter than a tenth of feature_bound, so that noise drowns them: lower "
    "feature_bound, or map columns to [-1, 1] by ranges that are publicly known (in a schema, or "
    "PrivateScaler)",
    _TARGETS: "have a target outside what was declared, which counts as its end, or a label that "
    "was not declared, which counts for nothing: compare the spelling of the labels that were "
    "declared (capitals, endings, blanks), or declare the labels, or the range, of the target as "
    "they are publicly known",
}


class OutlierWarning(UserWarning):
    """Many examples are far from the bounds that they were given."""


def counted(
    examples: AnyExamples, outside: NDArray[np.bool_] | int, release: Release, source: Randomness
) -> dict[str, int]:
    """How many there are of each kind, with the noise of the release, to the nearest whole."""
    exact = np.array([*examples.far_rows(), np.sum(outside)], dtype=np.float64)
    noisy = exact + release.noise_std * source.release_normal((3,))
    return dict(zip(OUTLIER_COUNTS, np.rint(noisy).astype(int).tolist(), strict=True))


def warn_of_outliers(counts: dict[str, int], release: Release, examples: int) -> None:
    """By what was published alone: of each kind that surely is too much."""
    for name in counts:
        if _is_said(name, counts, release, examples):
            share = about(counts[name], release.noise_std, examples)
            warn(
                f"{share} of the examples {_ADVICE[name]}",
                OutlierWarning,
            )


def refuse_long_rows(counts: dict[str, int], release: Release, examples: int) -> None:
    """By what was published alone, where nobody has said how long rows may be."""
    if _is_said(_LONG, counts, release, examples):
        share = about(counts[_LONG], release.noise_std, examples)
        raise InvalidParameter(
            "feature_bound",
            must_be=f"set for such rows: {SCALED}",
            found=f"{share} of the rows {_LENGTH}, 1 by default (the count was taken with noise, "
            f"and spent a mu of {release.mu:.2g})",
        )


def _is_said(name: str, counts: dict[str, int], release: Release, examples: int) -> bool:
    return surely_more(counts[name], *_SAID[name], release.noise_std, examples)


def surely_more(count: int, share: float, sure: float, noise_std: float, examples: int) -> bool:
    """Than this share, by so many standard deviations of the noise."""
    # With more noise, that alone would set it off now and then.
    return noise_std <= examples / _TOO_NOISY and count - sure * noise_std > share * examples


def about(count: int, noise_std: float, examples: int) -> str:
    """Text that states a noisy count and its noise as shares of the examples."""
    share, spread = (_percent(part / examples) for part in (count, noise_std))
    return f"about {share} (a noisy count, give or take {spread})"


def _percent(share: float) -> str:
    return f"{100 * min(max(share, 0.0), 1.0):.0f} %"
