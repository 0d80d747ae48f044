r"""The best of a random number of tries.

A mechanism is run K times, on the same data, each time with fresh randomness, and of its K results
that with the greatest score is published, score included; all else, K too, stays secret.  K has a
truncated negative binomial law (Papernot and Steinke 2022) of shape :math:`\eta > -1`, which
includes the geometric (1; Liu and Talwar 2019) and the logarithmic one (0):

.. math:: f(x) = \mathbb E\,x^K, \qquad f'(x) = f'(1)
          \Big(\frac{\gamma}{1 - (1-\gamma)x}\Big)^{\eta+1}, \qquad K \ge 1.

**Theorem.** Let a single try have the curve :math:`\delta_0`, for what it would publish: model,
score and setting.  Then for every :math:`\varepsilon_1 \ge 0` with
:math:`(1-\gamma)\,\delta_0(\varepsilon_1) \le \gamma (e^{\varepsilon_1} - 1)`

.. math:: \delta(\varepsilon) \le
          \mathbb E[K]\;\delta_0\big(\varepsilon - (\eta+1)\varepsilon_1\big)
          \quad\text{at}\quad \varepsilon \ge (\eta+1)\varepsilon_1.

**Proof.** Give every try a uniform number of its own and let it decide between equal scores.  The
tries are independent and alike, so that the law of what is published is that of taking the first of
the best.  Now results z are totally ordered, without ties.  With Q for the law of a try on one data
set, the best lies in S with probability :math:`\sum_k P(K=k)\,k\int_S Q(\le z)^{k-1}dQ(z) = \int_S
f'(Q(\le z))\,dQ(z)`; with Q' for the other data set, likewise.  Results above z are an event, so
:math:`Q'(> z) \le e^{\varepsilon_1} Q(> z) + \delta_0(\varepsilon_1)`, and

.. math:: \Big(\frac{f'(Q(\le z))}{f'(Q'(\le z))}\Big)^{1/(\eta+1)}
          = \frac{\gamma + (1-\gamma)Q'(> z)}{\gamma + (1-\gamma)Q(> z)}
          \le \frac{\gamma + (1-\gamma)\delta_0(\varepsilon_1) + (1-\gamma)e^{\varepsilon_1}Q(> z)}
                   {\gamma + (1-\gamma)Q(> z)} \le e^{\varepsilon_1},

the last by the condition on :math:`\varepsilon_1`.  Hence the probability of S less
:math:`e^\varepsilon` times its other one is at most

.. math:: \int_S f'(Q(\le z))\,\big(dQ - e^{\varepsilon - (\eta+1)\varepsilon_1} dQ'\big)
          \le f'(1) \int \big(dQ - e^{\varepsilon - (\eta+1)\varepsilon_1} dQ'\big)^+,

since f' increases, and :math:`f'(1) = \mathbb E\,K`.  The same holds with both data sets exchanged.

For a try that is (epsilon, 0)-DP this is :math:`((2 + \eta)\varepsilon, 0)`, as in the papers.  In
general :math:`\varepsilon_1` is where the curve has fallen to about :math:`\gamma\varepsilon_1`,
far less than where it has fallen to delta.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import cached_property

import numpy as np

from lastiterate import _check
from lastiterate._numerics.rounding import THOUSANDS_OF_ROUNDINGS, Array, at_least, down, ulps, up
from lastiterate._numerics.search import least_true
from lastiterate.errors import InvalidParameter
from lastiterate.profile.profile import PrivacyProfile, check_order, protected_by_all

_WORD_BITS = 64
_SPARE_DIGITS = 60  # beyond one a bit: 1 - stop^shape may cancel 20 of them
_NEAR_ZERO = 1e-8  # below this shape powers cannot be told from the logarithm


@dataclass(frozen=True)
class Tries:
    """The law of the number of tries: `stop` is gamma, the rate at which its tail falls.

    >>> round(Tries(shape=1.0, stop=0.05).mean, 6)
    20.0
    """

    shape: float
    stop: float

    def __post_init__(self) -> None:
        shape = _check.number("shape", self.shape, above=-1.0, at_most=100.0)
        object.__setattr__(self, "shape", 0.0 if abs(shape) < _NEAR_ZERO else shape)
        object.__setattr__(self, "stop", _check.number("stop", self.stop, above=0.0, below=1.0))

    @classmethod
    def of_mean(cls, mean: float, *, shape: float) -> Tries:
        """The law with at most this many tries on average."""
        mean = _check.number("tries", mean, above=1.0, at_most=1e6)

        def enough(log_stop: float) -> bool:
            return cls(shape, math.exp(log_stop)).mean <= mean

        return cls(shape, math.exp(least_true(enough, -300.0, -1e-9)))

    @cached_property
    def mean(self) -> float:
        """The average number of tries, rounded up."""
        log = math.log(self.stop)
        often = -log if self.shape == 0.0 else -math.expm1(self.shape * log) / self.shape
        return at_least((1.0 - self.stop) / (self.stop * often), ulps=64.0)

    def number(self, word: Callable[[], int]) -> int:
        """A number of tries with exactly this law, drawn from uniform words of 64 bits.

        It is the least k whose cumulative probability exceeds a uniform number, of which further
        bits are drawn until they decide.
        """
        uniform, bits = word(), _WORD_BITS
        while (found := self._number_at(uniform, bits)) is None:
            uniform, bits = (uniform << _WORD_BITS) | word(), bits + _WORD_BITS
        return found

    def _number_at(self, uniform: int, bits: int) -> int | None:
        """The number for all uniform numbers that begin with these bits; None if there are two."""
        with localcontext(prec=bits + _SPARE_DIGITS) as context:
            low, high = (Decimal(one) / 2**bits for one in (uniform, uniform + 1))
            shape, stop = Decimal(self.shape), Decimal(self.stop)
            power = stop**shape
            often = -stop.ln() if shape == 0 else (1 - power) / shape
            mass = (1 - stop) * power / often
            # Far more than roundings add up to, and far less than two numbers are apart.
            slack = context.power(10, -bits)
            k, total = 1, mass
            while low >= total + slack:
                mass *= (1 - stop) * (k + shape) / (k + 1)
                k, total = k + 1, total + mass
            return k if high <= total - slack else None

    def missed(self, share: float) -> float:
        """The probability that no try is among this share of them, f(1 - share)."""
        rest = (1.0 - self.stop) * (1.0 - _check.number("share", share, at_least=0.0, at_most=1.0))
        if self.shape == 0.0:
            return math.log1p(-rest) / math.log(self.stop)
        scale = math.expm1(-self.shape * math.log(self.stop))
        return math.expm1(-self.shape * math.log1p(-rest)) / scale


class AverageProfile(PrivacyProfile):
    """One of several results, drawn evenly and named: joint convexity."""

    def __init__(self, profiles: Sequence[PrivacyProfile]) -> None:
        self.profiles = tuple(profiles)
        if not self.profiles:
            raise InvalidParameter("profiles", profiles, must_be="at least one PrivacyProfile")
        protected_by_all(self.profiles)

    def deltas(self, epsilons: Array) -> Array:
        total = sum(
            many * profile.deltas(epsilons) for profile, many in Counter(self.profiles).items()
        )
        mean = np.asarray(total) / len(self.profiles)
        return np.asarray(np.minimum(up(mean, THOUSANDS_OF_ROUNDINGS), 1.0))

    def renyi(self, order: float) -> float:
        """The largest divergence of the profiles."""
        return max(profile.renyi(order) for profile in self.profiles)

    def gdp(self) -> float:
        """The largest mu of the profiles."""
        return max(profile.gdp() for profile in self.profiles)


class SelectedProfile(PrivacyProfile):
    """The best of a random number of results of one kind; see the theorem above.

    >>> from lastiterate.profile import PureProfile
    >>> selected = SelectedProfile(PureProfile(0.1), Tries(shape=1.0, stop=0.05))
    >>> round(selected.epsilon(1e-9), 4)
    0.2809
    """

    def __init__(self, profile: PrivacyProfile, tries: Tries) -> None:
        self.profile, self.tries = profile, tries
        self.shift = at_least((tries.shape + 1.0) * self._least_epsilon(), ulps=4.0)

    def _least_epsilon(self) -> float:
        """The least epsilon_1."""
        stop = self.tries.stop

        def holds(epsilon: float) -> bool:
            allowed = down(stop * math.expm1(epsilon), THOUSANDS_OF_ROUNDINGS)
            return up((1.0 - stop) * self.profile.delta(epsilon), ulps(4)) <= allowed

        # Even a delta of 1 is allowed at log(1/gamma).
        return least_true(holds, 0.0, -math.log(stop) + THOUSANDS_OF_ROUNDINGS * 1e3)

    def deltas(self, epsilons: Array) -> Array:
        rest = epsilons - self.shift - ulps(4) * epsilons
        deltas = self.profile.deltas(np.maximum(rest, 0.0))
        known = np.minimum(up(self.tries.mean * deltas, ulps(4)), 1.0)
        return np.where(rest >= 0.0, known, 1.0)

    def renyi(self, order: float) -> float:
        """inf: the curve alone is used."""
        check_order(order)
        return math.inf

    def gdp(self) -> float:
        """inf: the curve alone is used."""
        return math.inf

    def __repr__(self) -> str:
        return f"SelectedProfile({self.profile!r}, {self.tries!r})"
