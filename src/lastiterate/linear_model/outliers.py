"""Rows and targets far from their bounds: counted with noise, and said where they are most.

Whether rows are cut down to a tenth decides what a model can learn, and depends on the data: so it
is not looked up but published, with noise that the guarantee includes.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate.releases import Release
from lastiterate.train.data import Examples
from lastiterate.train.noise import Randomness
from lastiterate.train.norms import norm_factors

_FAR = 10.0
_TOO_NOISY = 8.0
_LONG, _SHORT, _TARGETS = "long rows", "short rows", "targets outside"
_ADVICE = {
    _LONG: "are more than ten times as long as feature_bound and count as scaled down to it, so "
    "that little but their direction is left: map columns to [-1, 1] by ranges that are publicly "
    "known (PrivateScaler(low=.., high=..)), or, if they lie around 0, raise feature_bound",
    _SHORT: "are shorter than a tenth of feature_bound, so that noise drowns them: lower "
    "feature_bound, or map columns to [-1, 1] by ranges that are publicly known "
    "(PrivateScaler(low=.., high=..))",
    _TARGETS: "have a target outside target_bound, which counts as its end, or a label that is not "
    "in classes, which counts for nothing: declare what is publicly known of them, "
    "target_bound=.. or classes=[..]",
}


class OutlierWarning(UserWarning):
    """More than half of the examples are far from the bounds that they were given."""


def counted(
    examples: Examples, outside: NDArray[np.bool_], release: Release, source: Randomness
) -> dict[str, int]:
    """How many there are of each kind, with the noise of the release, to the nearest whole."""
    factors = norm_factors(examples.rows, examples.feature_bound / _FAR)
    exact = [(factors < _FAR**-2).sum(), (factors == 1.0).sum(), outside.sum()]
    noisy = np.array(exact, dtype=np.float64) + release.noise_std * source.release_normal((3,))
    return dict(zip((_LONG, _SHORT, _TARGETS), np.rint(noisy).astype(int).tolist(), strict=True))


def warn_of_outliers(counts: dict[str, int], release: Release, examples: int) -> None:
    """By what was published alone: of each kind that is surely more than half."""
    if release.noise_std > examples / _TOO_NOISY:
        return  # noise alone would set it off now and then
    for name, count in counts.items():
        if count - 2.0 * release.noise_std > examples / 2:
            share, spread = (_percent(part / examples) for part in (count, release.noise_std))
            warnings.warn(
                f"about {share} (give or take {spread}) of the examples {_ADVICE[name]}",
                OutlierWarning,
                stacklevel=5,
            )


def _percent(share: float) -> str:
    return f"{100 * min(max(share, 0.0), 1.0):.0f} %"


def as_record(release: Release, counts: dict[str, int]) -> dict[str, Any]:
    """What a certificate states."""
    return release.as_record() | {"published": counts}
