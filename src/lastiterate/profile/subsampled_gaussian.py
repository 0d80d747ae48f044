"""One step on a sampled batch."""

import math

import numpy as np

from lastiterate._numerics.arrays import Array
from lastiterate._numerics.rounding import FEW_ROUNDINGS, down, up
from lastiterate.profile.gaussian import gaussian_deltas
from lastiterate.profile.privacy_profile import PrivacyProfile


class SubsampledGaussian(PrivacyProfile):
    """A Gaussian mechanism on a batch that has the example with some probability.

    delta(t) = p delta_mu(log(1 + (e^t - 1)/p)) for t >= 0, in both directions: C_p(G(mu)) of Dong,
    Roth and Su 2022.

    >>> SubsampledGaussian(0.01, 1.0).delta(0.5) < 0.01
    True
    """

    def __init__(self, probability: float, ratio: float) -> None:
        self._probability, self._ratio = probability, ratio

    def deltas(self, epsilons: Array) -> Array:
        with np.errstate(over="ignore"):
            shifted = np.log1p(np.expm1(np.minimum(epsilons, 700.0)) / self._probability)
        shifted = down(np.minimum(shifted, 1e6), FEW_ROUNDINGS)
        deltas = gaussian_deltas(np.full(epsilons.shape, self._ratio), shifted)
        return np.minimum(up(self._probability * deltas, FEW_ROUNDINGS), 1.0)

    def renyi(self, order: float) -> float:
        return math.inf

    def gdp(self) -> float:
        return math.inf
