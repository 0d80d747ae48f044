r"""A secret choice among Gaussian guarantees that stays secret, of which only moments are known.

As in `hidden_mixture`, for every increasing g with :math:`E\,g(\mu) \le e^\varepsilon`,
:math:`\delta(\varepsilon) \le E\,\delta_\mu(\log g(\mu))`.  Here the law of :math:`\mu^2` is not
known, but bounds on :math:`E\,e^{s\mu^2}` for several s are.  An increasing f is averaged by

.. math:: f(\mu) \le w_0 + w e^{s\mu^2} + w' e^{s'\mu^2} \text{ for all } \mu
          \implies E\,f(\mu) \le w_0 + w M(s) + w' M(s') .

:math:`w_0` may be negative.  The last term keeps far values of :math:`\mu` away, the others touch f
where it matters: if f is concave as a function of :math:`e^{s\mu^2}`, they are as good as knowing
that :math:`\mu^2 = \log M(s)/s`.

g has steps: between consecutive points of a grid it is what it is at the upper one, and
:math:`\delta_\mu` is at most that of the upper one.
"""

import math

import numpy as np
from scipy.special import ndtr

from lastiterate import _check
from lastiterate._numerics.arrays import Array
from lastiterate._numerics.rounding import (
    MILLIONS_OF_ROUNDINGS,
    down,
    ulps,
    up,
)
from lastiterate.bounds.subsampling.lagrangian_table import HIGH, LOW, Borrowed
from lastiterate.profile.delta_curve import ParametricProfile
from lastiterate.profile.pld import LossDistributionProfile
from lastiterate.profile.privacy_profile import check_order

_NEAR_POINTS = np.concatenate([[0.0], LOW, np.arange(0.8, 1.4, 0.001), HIGH])
_FAR_POINTS = (2.1, 40.0)
_FAR_SPACING = 1.14
_NEAR_CUTS, _FAR_CUT = (1.2, 1.5), 3  # in units of a typical mu; every third of the far points
_EXCHANGES = 8
_LARGEST_EXPONENT = 600.0
_USUAL_RATE, _MOST_OVER_MEAN = 2.0, 1.3
_LARGEST_MU = 15.0  # more, and nothing is promised


def _between(rates: Array, logs: Array) -> tuple[Array, Array]:
    """As many again: logarithms of moments are convex, so that chords lie above them."""
    if rates.size < 2:
        return rates, logs
    middles = 0.5 * (rates[1:] + rates[:-1])
    every = np.sort(np.append(rates, middles))
    return every, np.asarray(np.interp(every, rates, logs))


def _points(typical: float) -> Array:
    """In units of a typical mu.  Where that is small, a single rare cost may be far from it."""
    first, last = _FAR_POINTS
    last = max(last, _LARGEST_MU / typical)
    number = math.ceil(math.log(last / first) / math.log(_FAR_SPACING))
    return np.concatenate([_NEAR_POINTS, np.geomspace(first, last, number + 1)])


class HiddenMomentsProfile(ParametricProfile):
    """mu-GDP for a hidden mu, with log E e^(rates mu^2) at most `logs`.

    This holds but with probability `lost`.  `followed_by` is published as well, whatever mu is.

    Examples
    --------
    >>> always = HiddenMomentsProfile([0.5, 2.0, 8.0], [0.5, 2.0, 8.0])
    >>> 4.3772 < always.epsilon(1e-5) < 4.39
    True
    """

    _knots, _largest_multiplier, _tolerance = 40, 30.0, 1e-4

    def __init__(
        self,
        rates: Array,
        logs: Array,
        *,
        lost: float = 0.0,
        more: float = 0.0,
        followed_by: LossDistributionProfile | None = None,
    ) -> None:
        """mu itself may be larger by `more`."""
        rates = _check.numbers("rates", rates)
        self._logs = np.array(logs, dtype=np.float64)
        finite = np.isfinite(self._logs)
        self._rates, self._logs = _between(rates[finite], self._logs[finite])
        self._lost = _check.number("lost", lost, at_least=0.0, at_most=1.0)
        sizes = self._logs / self._rates
        modest = sizes < _LARGEST_MU**2
        self._rates, self._logs = self._rates[modest], self._logs[modest]
        if not self._rates.size:
            return
        typical = max(self._typical_square(), 1e-24)
        points = _points(math.sqrt(typical))
        squares = typical * np.square(points)
        # What holds up to the next point is charged from each point on; beyond the last, all.
        upper = np.sqrt(squares)[1:]
        self._upper = up(upper + more, ulps(4))
        self._borrowed = Borrowed(math.sqrt(typical), followed_by)
        exponents = self._rates[:, None] * squares - self._logs[:, None]
        # Rounded down, as it is divided by.
        self._weights = np.exp(np.clip(exponents, -_LARGEST_EXPONENT, _LARGEST_EXPONENT))
        self._weights = down(self._weights, MILLIONS_OF_ROUNDINGS)
        far = np.arange(_NEAR_POINTS.size, points.size - 1, _FAR_CUT)
        self._cuts = np.append(np.searchsorted(points, _NEAR_CUTS), far).tolist()

    def _typical_square(self) -> float:
        """At a usual rate, unless rare costs decide there: at the least rate it is the mean."""
        usual = int(np.argmin(np.abs(np.log(self._rates / _USUAL_RATE))))
        sizes = self._logs / self._rates
        return min(float(sizes[usual]), _MOST_OVER_MEAN * float(sizes[0]))

    def __repr__(self) -> str:
        return f"HiddenMomentsProfile({self._rates.size} moments, lost {self._lost:.1e})"

    def renyi(self, order: float) -> float:
        """inf: what is lost has no guarantee."""
        check_order(order)
        return math.inf

    def gdp(self) -> float:
        """inf: nothing is known of the largest mu."""
        return math.inf

    def _at(self, price: float) -> tuple[float, float]:
        if not self._rates.size:
            return 0.0, 1.0
        asked, costs = self._borrowed.at_price(float(ndtr(-price)), self._upper)
        asked = np.append(asked, asked[-1])
        largest = float(asked[-1])
        total = self._average(np.exp(asked - largest)) + self._lost
        rounding = ulps(asked.size + 64 + 4 * largest)
        epsilon = largest + math.log(up(total, rounding))
        delta = self._average(np.append(costs, 1.0)) + self._lost + self._borrowed.lost
        return max(epsilon, 0.0), min(up(delta, ulps(64)), 1.0)

    def _average(self, values: Array) -> float:
        """An upper bound of E f, f being values[i] from the i-th point up to the next."""
        rising = np.maximum.accumulate(values)
        least = min(float(rising[-1]), self._near(rising.size, rising))
        for cut in self._cuts:
            far = float(np.min(np.max(rising[cut:] / self._weights[:, cut:], axis=1)))
            if far < least:
                least = min(least, far + self._near(cut, rising))
        return up(least, MILLIONS_OF_ROUNDINGS)

    def _near(self, cut: int, rising: Array) -> float:
        """The least of the concave functions of a weight above f up to there, at weight 1.

        Weights are scaled so that 1 is their mean.  Any line above f serves; the one sought
        passes through two points of f, on both sides of 1, and is found by exchanging these.
        """
        weights = self._weights[:, :cut]
        rows = np.arange(weights.shape[0])
        right = np.minimum(np.count_nonzero(weights <= 1.0, axis=1), cut - 1)
        left = np.maximum(right - 1, 0)
        least = np.full(rows.size, rising[cut - 1])
        for _ in range(_EXCHANGES):
            apart = weights[rows, right] - weights[rows, left]
            rise = rising[right] - rising[left]
            slopes = np.divide(rise, apart, out=np.zeros(rows.size), where=apart > 0.0)
            above = rising[:cut] - slopes[:, None] * weights
            touching = np.argmax(above, axis=1)
            line = above[rows, touching] + slopes
            # What is lost has no weight: there a line may be below 0.
            line += np.maximum(-above[rows, touching], 0.0) * self._lost
            least = np.minimum(least, line)
            beyond = weights[rows, touching] > 1.0
            if np.all((touching == left) | (touching == right)):
                break
            right, left = np.where(beyond, touching, right), np.where(beyond, left, touching)
        return float(least.min())
