r"""The interface that every privacy guarantee has.

A profile bounds, for every pair of adjacent data sets and in both directions, the
hockey-stick divergence :math:`\delta(\varepsilon) = \sup_S P(S) - e^\varepsilon Q(S)` of what
is published.  Everything else follows from that curve.  Numbers are rounded towards less
privacy: epsilon, delta and divergences up, trade-off values down.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, overload

import numpy as np

from lastiterate import _check
from lastiterate._numerics.rounding import Array, at_most, ulps
from lastiterate._numerics.search import least_below
from lastiterate.errors import InvalidParameter, InvalidType

_LARGEST_EPSILON = 1e15


class Protected(NamedTuple):
    """The change that a guarantee hides: of which kind, and of how many examples at once.

    The adjacency is None if it is hidden under either.  `removed` if it is of examples that were
    removed by unlearning, and of no others.
    """

    adjacency: str | None
    examples_per_person: int
    removed: bool = False

    def __str__(self) -> str:
        kind = "either adjacency" if self.adjacency is None else f"adjacency={self.adjacency!r}"
        unlearned = ", removed examples alone" if self.removed else ""
        return f"{kind}, examples_per_person={self.examples_per_person}{unlearned}"


class PrivacyProfile(ABC):
    """An upper bound on the privacy loss of one published result.

    It holds for both directions of adjacent data sets.  A subclass has `deltas`, `renyi` and `gdp`.

    Examples
    --------
    >>> from lastiterate import GaussianProfile
    >>> profile = GaussianProfile(1.0)
    >>> round(profile.epsilon(1e-5), 4), round(profile.compose(profile).gdp(), 4)
    (4.3772, 1.4142)
    """

    @property
    def protected(self) -> Protected | None:
        """The change that the guarantee hides; None where only whoever made it knows.

        Examples
        --------
        >>> import lastiterate as li
        >>> run = li.TrainingRun.from_dp_sgd(
        ...     examples=1_000, batch_size=100, epochs=5, clip_norm=2.0, noise_multiplier=5.0)
        >>> print(li.account(run).protected, li.GaussianProfile(1.0).protected)
        adjacency='zero-out', examples_per_person=1 None
        """
        return None

    @abstractmethod
    def deltas(self, epsilons: Array) -> Array:
        """delta at each of several epsilons, rounded up.

        Parameters
        ----------
        epsilons : array
            Numbers at least 0.

        Returns
        -------
        array
            Of the same shape.

        Examples
        --------
        >>> import numpy as np
        >>> from lastiterate import GaussianProfile
        >>> GaussianProfile(1.0).deltas(np.array([0.0, 1.0])).round(4)
        array([0.3829, 0.1269])
        """

    def delta(self, epsilon: float) -> float:
        """The least delta of (epsilon, delta)-DP.

        Parameters
        ----------
        epsilon : float
            At least 0.

        Returns
        -------
        float
            delta, rounded up.

        Raises
        ------
        InvalidParameter, InvalidType
            If `epsilon` is out of range or no number.

        Examples
        --------
        >>> from lastiterate import GaussianProfile
        >>> round(GaussianProfile(1.0).delta(1.0), 4)
        0.1269
        """
        value = _check.number("epsilon", epsilon, at_least=0.0, infinite=True)
        return float(self.deltas(np.array([value]))[0])

    def epsilon(self, delta: float) -> float:
        """The least epsilon of (epsilon, delta)-DP; inf if there is none.

        Parameters
        ----------
        delta : float
            Of (epsilon, delta)-DP, in [0, 1].

        Returns
        -------
        float
            epsilon, rounded up.

        Raises
        ------
        InvalidParameter, InvalidType
            If `delta` is out of range or no number.

        Examples
        --------
        >>> from lastiterate import GaussianProfile
        >>> round(GaussianProfile(1.0).epsilon(1e-5), 4)
        4.3772
        """
        target = _check.number("delta", delta, at_least=0.0, at_most=1.0)

        def curve(epsilon: float) -> float:
            return float(self.deltas(np.array([epsilon]))[0])

        if curve(0.0) <= target:
            return 0.0
        low, high = 0.0, 1.0
        while not curve(high) <= target:
            low, high = high, 2.0 * high
            if high > _LARGEST_EPSILON:
                return math.inf
        return least_below(curve, target, low, high)

    @overload
    def tradeoff(self, fpr: float) -> float: ...
    @overload
    def tradeoff(self, fpr: Array | Sequence[float]) -> Array: ...
    def tradeoff(self, fpr: Any) -> float | Array:
        """The least false-negative rate of any test with this false-positive rate.

        Parameters
        ----------
        fpr : float or array
            False-positive rates in [0, 1].

        Returns
        -------
        float or array
            Rates of the same shape, rounded down.

        Raises
        ------
        InvalidParameter, InvalidType
            If `fpr` is out of range or no number.

        Examples
        --------
        >>> from lastiterate import GaussianProfile
        >>> round(GaussianProfile(1.0).tradeoff(0.05), 4)
        0.7405
        """
        rates = false_positive_rates(fpr)
        if rates is None:
            return self._tradeoff_at(_check.number("fpr", fpr, at_least=0.0, at_most=1.0))
        found = [self._tradeoff_at(float(alpha)) for alpha in rates.ravel()]
        return np.array(found, dtype=np.float64).reshape(rates.shape)

    def _tradeoff_at(self, alpha: float) -> float:
        """The trade-off at one rate in [0, 1], which was checked."""
        return curve_tradeoff(self.deltas, alpha)

    @abstractmethod
    def renyi(self, order: float) -> float:
        """The Renyi divergence; inf if none is known.

        Parameters
        ----------
        order : float
            At least 1, where it is the Kullback-Leibler divergence.

        Returns
        -------
        float
            The divergence, rounded up.

        Raises
        ------
        InvalidParameter, InvalidType
            If `order` is out of range or no number.

        Examples
        --------
        >>> from lastiterate import GaussianProfile
        >>> round(GaussianProfile(1.0).renyi(8.0), 9)
        4.0
        """

    @abstractmethod
    def gdp(self) -> float:
        """The least mu of Gaussian differential privacy; inf if there is none.

        Returns
        -------
        float
            mu, rounded up.

        Examples
        --------
        >>> from lastiterate import GaussianProfile
        >>> GaussianProfile(1.0).gdp()
        1.0
        """

    def _exceeds(self, epsilon: float, delta: float) -> bool:
        """Whether its epsilon at this delta is larger, where that is quicker to tell."""
        return False

    def cheap(self) -> PrivacyProfile:
        """A guarantee that may be weaker, and whose whole curve is quick to compute.

        Returns
        -------
        PrivacyProfile
            This one, unless its curve takes long.

        Examples
        --------
        >>> from lastiterate import GaussianProfile
        >>> GaussianProfile(1.0).cheap()
        GaussianProfile(mu=1.0)
        """
        return self

    def advantage(self) -> float:
        """The most by which any attacker's true-positive rate exceeds its false-positive rate.

        Returns
        -------
        float
            delta at epsilon = 0.

        Examples
        --------
        >>> from lastiterate import GaussianProfile
        >>> round(GaussianProfile(1.0).advantage(), 4)
        0.3829
        """
        return self.delta(0.0)

    def compose(self, *others: PrivacyProfile) -> PrivacyProfile:
        """The guarantee of publishing this result and others, one after the other.

        Parameters
        ----------
        *others : PrivacyProfile
            Guarantees of independent randomness.  Reports must be for one adjacency and as many
            examples per person; a plain profile does not say what it is for, so that is up to you.

        Returns
        -------
        PrivacyProfile
            The guarantee of all together.

        Raises
        ------
        InvalidParameter, InvalidType
            If two are known to hide different changes, or one is no `PrivacyProfile`.

        Examples
        --------
        >>> from lastiterate import GaussianProfile
        >>> round(GaussianProfile(3.0).compose(GaussianProfile(4.0)).gdp(), 9)
        5.0
        """
        from lastiterate.profile.compose import compose

        return compose(self, *others)

    def to_pld(self, *, discretization: float = 1e-4) -> Any:
        """A pessimistic `dp_accounting` privacy loss distribution.

        Parameters
        ----------
        discretization : float
            The size of the cells of losses.

        Returns
        -------
        dp_accounting.pld.PrivacyLossDistribution
            The losses in both directions.

        Examples
        --------
        >>> from lastiterate import GaussianProfile
        >>> pld = GaussianProfile(1.0).to_pld(discretization=1e-2)
        >>> round(pld.get_epsilon_for_delta(1e-5), 2)
        4.38
        """
        from lastiterate.profile.pld import to_pld

        return to_pld(self, discretization=discretization)


def protected_by_all(profiles: Iterable[PrivacyProfile]) -> Protected | None:
    """The one change that these guarantees hide, so that together they hide it, too.

    None if none of them says; `InvalidParameter` if they say different ones.
    """
    stated = dict.fromkeys(one.protected for one in profiles if one.protected is not None)
    known = [one for one in stated if one.adjacency is not None]
    if known:  # what holds under either adjacency holds under this one
        stated = dict.fromkeys(
            one._replace(adjacency=known[0].adjacency) if one.adjacency is None else one
            for one in stated
        )
    if len(stated) > 1:
        must_be = (
            "for one adjacency, one number of examples per person, and all examples or removed "
            "ones: together they would protect neither change as stated; account for every run "
            "with the same (TrainingRun.under gives a run's sensitivity under the other adjacency)"
        )
        raise InvalidParameter("profiles", must_be=must_be, found=" beside ".join(map(str, stated)))
    return next(iter(stated), None)


def check_order(order: float) -> float:
    """A Renyi order, at least 1 (1 is the Kullback-Leibler divergence)."""
    return _check.number("order", order, at_least=1.0, infinite=True)


def curve_tradeoff(deltas: Callable[[Array], Array], alpha: float) -> float:
    """The least false-negative rate at the false-positive rate `alpha`, rounded down.

    It is the sup over epsilon of 1 - delta - e^epsilon alpha and e^-epsilon (1 - delta - alpha);
    every epsilon gives a valid value, so a search suffices.
    """
    epsilons = np.concatenate([[0.0], np.geomspace(1e-6, 700.0, 400)])
    best = 0.0
    for _ in range(3):
        off = ulps(4) * (1.0 + np.exp(epsilons) * alpha)
        values = least_misses(alpha, epsilons, deltas(epsilons), off=off)
        top = int(np.argmax(values))
        best = max(best, float(values[top]))
        near = epsilons[max(top - 1, 0)], epsilons[min(top + 1, epsilons.size - 1)]
        epsilons = np.linspace(*near, 100)
    return at_most(best, ulps=16)


def false_positive_rates(fpr: Any) -> Array | None:
    """Rates in [0, 1] as an array; None if a single number was given, or nothing of the kind."""
    if isinstance(fpr, (str, bytes)) or np.ndim(fpr) == 0:
        return None
    rates = np.asarray(fpr)
    must_be = "a number in [0, 1], or an array of such numbers"
    if rates.dtype.kind not in "iuf" and rates.size:
        raise InvalidType("fpr", fpr, must_be=must_be)
    rates = rates.astype(np.float64)
    if not ((rates >= 0.0) & (rates <= 1.0)).all():  # nan fails both
        raise InvalidParameter("fpr", fpr, must_be=must_be)
    return rates


def least_misses(
    fpr: float | Array, epsilons: Array, deltas: Array, *, off: float | Array = 0.0
) -> Array:
    """The least false-negative rates that (epsilon, delta)-DP, each by itself, leaves possible.

    1 - delta - e^epsilon fpr and e^-epsilon (1 - delta - fpr), whichever is more; negative where
    nothing is said.  `off` is what the numerators may be off by.
    """
    kept, growth = 1.0 - deltas, np.exp(epsilons)
    with np.errstate(over="ignore"):
        steep = kept - growth * fpr - off
    return np.asarray(np.maximum(steep, (kept - fpr - off) / growth))
