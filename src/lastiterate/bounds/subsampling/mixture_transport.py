r"""A secret choice among Gaussian guarantees that stays secret: heavier borrow from lighter.

What is chosen, V, is a set of independent events, and more of them never cost less:
:math:`\mu(V) \le \mu(W)` for :math:`V \subset W`.  :math:`P_V, Q_V` are the laws of what is
published, given V, on one and the other data set.  Revealing V costs the average
:math:`E\,\delta_{\mu(V)}(\varepsilon)`, most of which is due to the few heaviest V.  But the
attacker does not know V.

**Theorem.** Let :math:`P_V` against :math:`Q_W` be :math:`\mu(V)`-GDP for all :math:`W \subset V`.
Then for every increasing g with :math:`E\,g(V) \le e^\varepsilon`,

.. math:: \sup_A P(A) - e^\varepsilon Q(A) \le E\,\delta_{\mu(V)}(\log g(V)) .

*Proof.* Suppose that t(V, W) >= 0 vanishes unless :math:`W \subset V`, and that the sum over W is
:math:`p_V g(V)` and that over V at most :math:`e^\varepsilon p_W`.  Then :math:`P - e^\varepsilon Q
\le \sum_V (p_V P_V - \sum_W t(V, W) Q_W)`; the supremum of a sum is at most the sum of suprema, and
that of the term of V is, by convexity, at most :math:`p_V \delta_{\mu(V)}(\log g(V))`.  Such a t
exists if, for every set of V, what they ask for is no more than what all their subsets can lend
(Gale); it is enough to look at sets D that have, with V, all subsets of V, for which
:math:`E\,g 1_D \le E\,g\,P(D)` by Harris's inequality, as g increases and D decreases.

The best g has one price z, :math:`\log g = \mu (z - \mu/2)` up to :math:`\mu = z` and constant from
there, which makes the bound that of telling N(mu, 1), mu random, from N(0, 1).

*Followed by other results.* If :math:`P_V` against :math:`Q_W` is dominated by a Gaussian mechanism
composed with some other one, the same for all V and W, the theorem holds with the curve of that
composition in place of :math:`\delta_\mu` (`hidden_moments`).

*Laws that are too heavy.* Only an upper bound of the law of mu(V) is needed: a variable that
dominates it can be written as an increasing function of mu(V) and an independent one, which is one
more event.  What is lost of a law is counted as infinite.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from lastiterate._numerics.rounding import ulps, up
from lastiterate.profile.delta_curve import ParametricProfile
from lastiterate.profile.gaussian import gaussian_deltas
from lastiterate.profile.gaussian_mixture import GaussianMixtureProfile


class HiddenMixtureProfile(ParametricProfile):
    """mu_i-GDP with probability weight_i, which of them being secret and staying so.

    `lost` is the probability that is not accounted for, or not where it should be.

    Examples
    --------
    >>> law = [0.999, 0.001], [0.1, 1.0]
    >>> hidden, revealed = HiddenMixtureProfile(*law), GaussianMixtureProfile(*law)
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
        return f"HiddenMixtureProfile({self._revealed!r})"

    def renyi(self, order: float) -> float:
        """The Renyi divergence as if the choice were revealed."""
        return self._revealed.renyi(order)

    def gdp(self) -> float:
        """mu as if the choice were revealed."""
        return self._revealed.gdp()

    def _at(self, price: float) -> tuple[float, float]:
        """An epsilon, and a delta that holds there."""
        capped = np.minimum(self._mus, price)
        asked = capped * (price - capped / 2)
        largest = float(asked.max(initial=0.0))  # what is lost has no use for more
        terms = self._weights @ np.exp(asked - largest) + self._lost
        rounding = ulps(self._mus.size + 64 + 4 * largest)
        # Asking for 1 from all is what epsilon = 0 allows, to the last digit.
        epsilon = largest + math.log(up(float(terms), rounding)) if price > 0.0 else 0.0
        delta = float(self._weights @ gaussian_deltas(self._mus, asked)) + self._lost
        return max(epsilon, 0.0), min(up(delta, ulps(self._mus.size + 64)), 1.0)
