r"""Privacy profiles of secret participations V that stay hidden, from the law of mu(V).

Given V the runs are :math:`\mu(V)`-GDP.  For every increasing g with :math:`E\,g(\mu) \le
e^\varepsilon`,

.. math:: \delta(\varepsilon) \le E\,\delta_\mu(\log g(\mu))

holds if V consists of independent events and more of them never lower mu
(`docs/tightness.md#sampled-batches` has the theorem).  The best g has one Lagrange multiplier z:
:math:`\log g = \mu (z - \mu/2)` up to :math:`\mu = z`, and constant from there.

`MixtureTransportProfile` needs a law that dominates that of mu.  `MomentTransportProfile` needs
only bounds on :math:`E\,e^{s\mu^2}` for several s.  It averages an increasing f by

.. math:: f(\mu) \le w_0 + w e^{s\mu^2} + w' e^{s'\mu^2} \text{ for all } \mu
          \implies E\,f(\mu) \le w_0 + w M(s) + w' M(s') ,

where :math:`w_0` may be negative.  The last term bounds f at large mu, the others touch f where it
matters: if f is concave as a function of :math:`e^{s\mu^2}`, they are as good as the knowledge that
:math:`\mu^2 = \log M(s)/s`.  There g is a step function: between consecutive points of a grid it
has its value at the upper one, and :math:`\delta_\mu` is at most that of the upper one.
"""

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr

from lastiterate import _check
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, Array, down, ulps, up
from lastiterate.bounds.subsampling.lagrangian_table import HIGH, LOW, LagrangianTable
from lastiterate.profile.curve import ParametricProfile
from lastiterate.profile.gaussian import GaussianMixtureProfile, gaussian_deltas
from lastiterate.profile.pld import LossDistributionProfile
from lastiterate.profile.profile import check_order

_NEAR_POINTS = np.concatenate([[0.0], LOW, np.arange(0.8, 1.4, 0.001), HIGH])
_FAR_POINTS = (2.1, 40.0)
_FAR_SPACING = 1.14
_NEAR_CUTS, _FAR_CUT = (1.2, 1.5), 3  # in units of a typical mu; every third of the far points
_EXCHANGES = 8  # of the points of a line, at most
_LARGEST_EXPONENT = 600.0
_USUAL_RATE, _MOST_OVER_MEAN = 2.0, 1.3  # for a typical mu
_LARGEST_MU = 15.0  # above it nothing is certified


class MixtureTransportProfile(ParametricProfile):
    """The profile of mu_i-GDP with probability weight_i, if i stays hidden.

    A probability `lost` has no guarantee.

    Examples
    --------
    >>> law = [0.999, 0.001], [0.1, 1.0]
    >>> hidden, revealed = MixtureTransportProfile(*law), GaussianMixtureProfile(*law)
    >>> hidden.epsilon(1e-6) < 0.5 < 2.0 < revealed.epsilon(1e-6)
    True
    """

    _knots, _largest_multiplier, _tolerance = 48, 40.0, 1e-5

    def __init__(self, weights: ArrayLike, mus: ArrayLike, *, lost: float = 0.0) -> None:
        parts = self._revealed = GaussianMixtureProfile(weights, mus, lost=lost)
        finite = np.isfinite(parts.mus)
        used = finite & (parts.weights > 0.0)
        self._mus, self._weights = parts.mus[used], parts.weights[used]
        self._lost = min(parts.lost + float(parts.weights[~finite].sum()), 1.0)

    def __repr__(self) -> str:
        return f"MixtureTransportProfile({self._revealed!r})"

    def renyi(self, order: float) -> float:
        """The Renyi divergence as if i were revealed."""
        return self._revealed.renyi(order)

    def gdp(self) -> float:
        """mu as if i were revealed."""
        return self._revealed.gdp()

    def _at(self, multiplier: float) -> tuple[float, float]:
        """An epsilon, and a delta that holds there."""
        capped = np.minimum(self._mus, multiplier)
        logs = capped * (multiplier - capped / 2)  # of g
        largest = float(logs.max(initial=0.0))  # which lost mass has, too
        terms = self._weights @ np.exp(logs - largest) + self._lost
        rounding = ulps(self._mus.size + 64 + 4 * largest)
        # g = 1 everywhere is exactly feasible at epsilon = 0.
        epsilon = largest + math.log(up(float(terms), rounding)) if multiplier > 0.0 else 0.0
        delta = float(self._weights @ gaussian_deltas(self._mus, logs)) + self._lost
        return max(epsilon, 0.0), min(up(delta, ulps(self._mus.size + 64)), 1.0)


class MomentTransportProfile(ParametricProfile):
    """The profile of mu-GDP for a hidden mu, with log E e^(rates mu^2) at most `logs`.

    A probability `lost` has no guarantee, and mu itself may be larger by `extra_mu`.  The profile
    `composed_with` is that of a mechanism that is released as well, whatever mu is.

    Examples
    --------
    >>> always = MomentTransportProfile([0.5, 2.0, 8.0], [0.5, 2.0, 8.0])
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
        extra_mu: float = 0.0,
        composed_with: LossDistributionProfile | None = None,
    ) -> None:
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
        # Each interval has the value of its upper end; beyond the last point delta is 1.
        upper = np.sqrt(squares)[1:]
        self._upper = up(upper + extra_mu, ulps(4))
        self._table = LagrangianTable(math.sqrt(typical), composed_with)
        exponents = self._rates[:, None] * squares - self._logs[:, None]
        # Rounded down, since it is a divisor.
        self._weights = np.exp(np.clip(exponents, -_LARGEST_EXPONENT, _LARGEST_EXPONENT))
        self._weights = down(self._weights, MILLIONS_OF_ROUNDINGS)
        far = np.arange(_NEAR_POINTS.size, points.size - 1, _FAR_CUT)
        self._cuts = np.append(np.searchsorted(points, _NEAR_CUTS), far).tolist()

    def _typical_square(self) -> float:
        """A typical mu^2, at a usual rate but near the mean, which the least rate gives."""
        usual = int(np.argmin(np.abs(np.log(self._rates / _USUAL_RATE))))
        sizes = self._logs / self._rates
        return min(float(sizes[usual]), _MOST_OVER_MEAN * float(sizes[0]))

    def __repr__(self) -> str:
        return f"MomentTransportProfile({self._rates.size} moments, lost {self._lost:.1e})"

    def renyi(self, order: float) -> float:
        """inf, since the lost probability has no guarantee."""
        check_order(order)
        return math.inf

    def gdp(self) -> float:
        """inf, since the largest mu is not known."""
        return math.inf

    def _at(self, multiplier: float) -> tuple[float, float]:
        if not self._rates.size:
            return 0.0, 1.0
        logs, costs = self._table.at_multiplier(float(ndtr(-multiplier)), self._upper)
        logs = np.append(logs, logs[-1])
        largest = float(logs[-1])
        total = self._average(np.exp(logs - largest)) + self._lost
        rounding = ulps(logs.size + 64 + 4 * largest)
        epsilon = largest + math.log(up(total, rounding))
        delta = self._average(np.append(costs, 1.0)) + self._lost + self._table.lost
        return max(epsilon, 0.0), min(up(delta, ulps(64)), 1.0)

    def _average(self, values: Array) -> float:
        """An upper bound of E f, where f is values[i] from the i-th point up to the next."""
        rising = np.maximum.accumulate(values)
        least = min(float(rising[-1]), self._near(rising.size, rising))
        for cut in self._cuts:
            far = float(np.min(np.max(rising[cut:] / self._weights[:, cut:], axis=1)))
            if far < least:
                least = min(least, far + self._near(cut, rising))
        return up(least, MILLIONS_OF_ROUNDINGS)

    def _near(self, cut: int, rising: Array) -> float:
        """The concave envelope of f up to `cut` as a function of a weight, at the mean weight 1.

        Any line above f is valid.  The best one passes through two points of f on both sides of 1,
        which are exchanged until they do not change.
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
            # Lost probability has no weight: there a line may be below 0.
            line += np.maximum(-above[rows, touching], 0.0) * self._lost
            least = np.minimum(least, line)
            beyond = weights[rows, touching] > 1.0
            if np.all((touching == left) | (touching == right)):
                break
            right, left = np.where(beyond, touching, right), np.where(beyond, left, touching)
        return float(least.min())


def _between(rates: Array, logs: Array) -> tuple[Array, Array]:
    """The rates and those in between, by chords: logarithms of moments are convex."""
    if rates.size < 2:
        return rates, logs
    middles = 0.5 * (rates[1:] + rates[:-1])
    every = np.sort(np.append(rates, middles))
    return every, np.asarray(np.interp(every, rates, logs))


def _points(typical: float) -> Array:
    """A grid of mu in units of a typical mu, with far points for rare, large mus."""
    first, last = _FAR_POINTS
    last = max(last, _LARGEST_MU / typical)
    number = math.ceil(math.log(last / first) / math.log(_FAR_SPACING))
    return np.concatenate([_NEAR_POINTS, np.geomspace(first, last, number + 1)])
