"""The part of mu that is spent on the mean of rows, from public quantities only.

What is spent on it must pay for itself.  With many rows .15 of mu gives a mean that is good enough.
With few, more is spent, up to .3: as much as brings the noise of the mean to a quarter of the bound
on features.  Where even that leaves noise of more than half the bound, nothing is, as the mean
would be lost in it.

Chosen on validation splits of small data sets (`benchmarks/validation.py`, settings `shares`).
Against .15 of mu and noise of at most a quarter throughout, columns that were mapped to ranges, and
so have much in common, gain 4 to 20 points of accuracy where the rule differs (scikit-learn's
digits, breast cancer and wine); rows that have nothing in common lose up to .7.
"""

from __future__ import annotations

import math

from lastiterate.other_releases import MEAN, Release

LEAST, MOST = 0.15, 0.3  # of mu
_ENOUGH, _TOO_MUCH = 0.25, 0.5  # noise of the mean, in units of the bound on features


def mean_release(mu: float, *, adjacency: str, features: int, examples: int) -> Release | None:
    """The release of the mean with its share of mu; None where it would be lost in noise."""

    def noise(share: float) -> float:
        release = Release.of_mu(MEAN, share * mu, adjacency=adjacency)
        return release.noise_std * math.sqrt(features) / examples

    share = min(max(LEAST * noise(LEAST) / _ENOUGH, LEAST), MOST)
    if not noise(share) <= _TOO_MUCH:
        return None
    return Release.of_mu(MEAN, share * mu, adjacency=adjacency)
