r"""Several results published one after the other.

**With a Gaussian mechanism.** Its privacy loss is l ~ N(mu^2/2, mu^2), independent of all else, so
that

.. math:: \delta(\varepsilon) = \mathbb E\,\delta_0(\varepsilon - l), \qquad
          \delta_0(-a) = 1 - e^{-a} + e^{-a}\,\delta_0(a)

(the second by exchanging the two data sets).  As a function of :math:`e^\varepsilon` a curve is
convex, so on a cell of l it lies below its chord; chords are averaged exactly.

**With a mixture of them.** Where mu is :math:`\mu_s` with probability :math:`w_s`, independently of
all else, whoever sees the results may know s: then
:math:`\delta(\varepsilon) = \sum_s w_s \delta_s(\varepsilon)`.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from scipy.special import ndtr

from lastiterate import _check
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, Array, at_least, ulps, up
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.profile.best import BestProfile, FallbackProfile, StagedProfile
from lastiterate.profile.curve import ChordCurve
from lastiterate.profile.gaussian import GaussianMixtureProfile, GaussianProfile
from lastiterate.profile.pld import LossDistributionProfile, least_discretization, to_pld
from lastiterate.profile.profile import PrivacyProfile, check_order, protected_by_all
from lastiterate.profile.renyi import RenyiProfile, ZCDPProfile, averaged
from lastiterate.profile.rounded import RoundedProfile, Rounding

_LEAST_DELTA, _LARGEST_EPSILON, _LOOKS = 1e-12, 1e9, 100  # where guarantees are compared
# Cells of l: as wide as this, or as this many standard deviations, whichever is less.
_CELL_WIDTH, _CELL_DEVIATIONS = 0.05, 0.25
_MAX_SEPARATE_EPSILONS = 4  # of more a table is made
_LEAST_CELL_FALL = 1e-5  # of e^-l over a cell, relative
_LEAST_FACTOR = 1e-290  # e^-l below this loses digits, or is 0


def compose(*profiles: PrivacyProfile) -> PrivacyProfile:
    """The guarantee of several results together, for independent randomness.

    Gaussian guarantees compose exactly; where one is known only through its Renyi divergences,
    these add up; all others go through privacy loss distributions.

    Parameters
    ----------
    *profiles : PrivacyProfile
        Guarantees.  Reports must be for one adjacency and as many examples per person, which the
        result is then for, too; a plain profile does not say what it is for, so that is up to you.

    Returns
    -------
    PrivacyProfile
        The guarantee of all together.

    Raises
    ------
    InvalidParameter, InvalidType
        If there is none, one is no `PrivacyProfile`, or two are known to hide different changes.

    Examples
    --------
    >>> from lastiterate import GaussianProfile, compose
    >>> compose(GaussianProfile(3.0), GaussianProfile(4.0)).gdp()
    5.000000000000003
    """
    if not profiles:
        raise InvalidParameter("profiles", profiles, must_be="at least one PrivacyProfile")
    for profile in profiles:
        if not isinstance(profile, PrivacyProfile):
            raise InvalidType("profiles", profile, must_be="PrivacyProfiles")
    protected = protected_by_all(profiles)
    composed = _compose(tuple(map(_simplify, profiles)))
    return composed if protected is None else BestProfile([composed], protected=protected)


def _compose(profiles: tuple[PrivacyProfile, ...]) -> PrivacyProfile:
    """The composition of profiles that are simplified and protect the same."""
    if len(profiles) == 1:
        return profiles[0]
    if any(_rounding(profile) is not None for profile in profiles):
        return _compose_rounded(profiles)
    if any(isinstance(p, BestProfile) for p in profiles):
        return _compose_best(list(profiles))
    gaussian = [p for p in profiles if isinstance(p, GaussianProfile)]
    others = [p for p in profiles if not isinstance(p, GaussianProfile)]
    if gaussian:
        mu = at_least(math.hypot(*(p.mu for p in gaussian)), ulps=len(gaussian))
        others.append(GaussianProfile(mu) if len(gaussian) > 1 else gaussian[0])
    if len(others) == 1:
        return others[0]
    if any(isinstance(p, (RenyiProfile, ZCDPProfile)) for p in others):
        return _add_divergences(others)
    return _compose_losses(others)


def _compose_rounded(profiles: tuple[PrivacyProfile, ...]) -> PrivacyProfile:
    """The exact results composed, and then how far all computed ones are from them."""
    whole = Rounding(0.0, 0.0)
    for profile in profiles:
        whole = whole.beside(_rounding(profile) or Rounding(0.0, 0.0))
    return RoundedProfile(compose(*map(_without_rounding, profiles)), whole)


def _rounding(profile: PrivacyProfile) -> Rounding | None:
    """The distance of the result from the exact one; None if a profile does not separate it."""
    if isinstance(profile, RoundedProfile):
        return profile.rounding
    if isinstance(profile, BestProfile):
        found = {_rounding(one) for one in profile.profiles}
        return found.pop() if len(found) == 1 else None
    return None


def _without_rounding(profile: PrivacyProfile) -> PrivacyProfile:
    """The guarantee of the exact result."""
    if _rounding(profile) is None:
        return profile
    if isinstance(profile, RoundedProfile):
        return profile.exact
    assert isinstance(profile, BestProfile)
    return BestProfile([_without_rounding(one) for one in profile.profiles])


def _simplify(profile: PrivacyProfile) -> PrivacyProfile:
    """The only profile of a best one, without fallbacks for small deltas."""
    if isinstance(profile, FallbackProfile):
        return _simplify(profile.usual)
    if isinstance(profile, BestProfile) and len(profile.profiles) == 1:
        return profile.profiles[0]
    return profile


def _compose_best(profiles: list[PrivacyProfile]) -> PrivacyProfile:
    """The better of two compositions: by Gaussian guarantees, if all have one, and by curves."""
    mus = [profile.gdp() for profile in profiles]
    ways: list[PrivacyProfile] = []
    if all(math.isfinite(mu) for mu in mus):
        ways.append(compose(*map(GaussianProfile, mus)))
    known = {id(p): _relevant(p) if isinstance(p, BestProfile) else p for p in profiles}
    plain = [known[id(p)] for p in profiles]
    if not all(isinstance(p, GaussianProfile) for p in plain):
        ways.append(_compose_losses(plain))
    return ways[0] if len(ways) == 1 else BestProfile(ways)


def _relevant(best: BestProfile) -> PrivacyProfile:
    """`best` without the profiles that are the least at no sampled epsilon.

    The result is still valid, and a curve may take long to be written out.
    """
    every = [stage for profile in best.profiles for stage in _stages(profile)]
    gaussians = [p for p in every if isinstance(p, GaussianProfile)]
    others = [p for p in every if not isinstance(p, GaussianProfile)]
    kept = others + ([min(gaussians, key=lambda p: p.mu)] if gaussians else [])
    if len(kept) > 1:
        far = min(best.epsilon(_LEAST_DELTA), _LARGEST_EPSILON)
        looks = np.array([profile.deltas(far * np.linspace(0.0, 1.0, _LOOKS)) for profile in kept])
        kept = [kept[k] for k in np.unique(np.argmin(looks, axis=0))]
    return kept[0] if len(kept) == 1 else BestProfile(kept)


def _stages(profile: PrivacyProfile) -> tuple[PrivacyProfile, ...]:
    return profile.profiles if isinstance(profile, StagedProfile) else (profile,)


def _add_divergences(profiles: list[PrivacyProfile]) -> PrivacyProfile:
    rates = [_linear_rate(profile) for profile in profiles]
    if None not in rates:
        return ZCDPProfile(at_least(math.fsum(r for r in rates if r is not None), ulps=2))
    return RenyiProfile(lambda order: at_least(math.fsum(p.renyi(order) for p in profiles), ulps=1))


def _linear_rate(profile: PrivacyProfile) -> float | None:
    """rho where the divergence is rho times the order, else None."""
    if isinstance(profile, GaussianProfile):
        return profile.mu * profile.mu / 2
    return profile.rho if isinstance(profile, ZCDPProfile) else None


def _compose_losses(profiles: list[PrivacyProfile]) -> PrivacyProfile:
    """The composition by privacy loss distributions, all on the coarsest grid of any."""
    if any(profile.delta(1e9) >= 1.0 for profile in profiles):
        return GaussianProfile(math.inf)
    discrete = [p for p in profiles if isinstance(p, LossDistributionProfile)]
    cell = max([p.discretization for p in discrete], default=1e-4)
    cell = max([cell, *(least_discretization(p) for p in profiles)])
    slack = math.fsum(profile.slack for profile in discrete)
    total, known = None, {}
    for profile in profiles:
        if isinstance(profile, LossDistributionProfile) and profile.discretization == cell:
            known[id(profile)] = profile.pld
        elif id(profile) not in known:  # the same one may be there many times
            known[id(profile)] = to_pld(profile, discretization=cell)
        pld = known[id(profile)]
        total = pld if total is None else total.compose(pld)
    composed = LossDistributionProfile(total)
    return LossDistributionProfile(total, slack=slack + composed.slack)


def compose_with_gaussian(profile: PrivacyProfile, mu: float) -> PrivacyProfile:
    """The guarantee of `profile` composed with a Gaussian mechanism of this mu."""
    mu = _check.number("mu", mu, at_least=0.0, infinite=True)
    if mu == 0.0:
        return profile
    if isinstance(profile, RoundedProfile):
        return RoundedProfile(compose_with_gaussian(profile.exact, mu), profile.rounding)
    if _is_gaussian(profile) or math.isinf(mu):
        whole = math.hypot(profile.gdp(), mu)
        return GaussianProfile(at_least(whole, ulps=2.0))
    if isinstance(profile, StagedProfile):
        return profile.each(partial(compose_with_gaussian, mu=mu))
    return GaussianCompositionProfile(profile.cheap(), mu)


def _is_gaussian(profile: PrivacyProfile) -> bool:
    """Whether the profile is no more than its mu."""
    if isinstance(profile, BestProfile):
        return all(isinstance(one, GaussianProfile) for one in profile.profiles)
    return isinstance(profile, GaussianProfile)


class GaussianCompositionProfile(PrivacyProfile):
    """The composition of any guarantee with a Gaussian mechanism.

    `table` is the guarantee's curve by chords, if that is known already.
    """

    def __init__(self, profile: PrivacyProfile, mu: float, table: ChordCurve | None = None) -> None:
        self.profile, self.mu = profile, mu
        self._table = table
        edges = _edges(mu)
        self._losses = mu * mu / 2.0 + mu * edges
        self._left, self._right = _chords(edges, mu)
        self._lowest, self._beyond = float(ndtr(edges[0])), float(ndtr(-edges[-1]))

    def deltas(self, epsilons: Array) -> Array:
        """delta at each epsilon, by chords in every cell of the loss, rounded up."""
        if epsilons.size > _MAX_SEPARATE_EPSILONS:
            return self.by_chords(epsilons)
        return self._average(_two_sided(self.profile, self._remaining(epsilons)))

    def by_chords(self, epsilons: Array) -> Array:
        """delta at each epsilon, from a table of the guarantee alone that is computed once."""
        if self._table is None:
            self._table = ChordCurve(self.profile.epsilon, self.profile.deltas)
        return self._average(self._table.deltas(self._remaining(epsilons)))

    def _remaining(self, epsilons: Array) -> Array:
        """Each epsilon minus each loss, rounded down."""
        whole = epsilons[:, np.newaxis]
        finite = np.where(np.isfinite(whole), whole, 0.0)  # an infinite one has no rounding
        return np.asarray(whole - self._losses - ulps(2) * (finite + np.abs(self._losses)))

    def _average(self, at: Array) -> Array:
        """The mean over the losses of deltas that are known at the edges of cells."""
        inside = at[:, :-1] @ self._left + at[:, 1:] @ self._right
        whole = inside + self._lowest * at[:, 0] + self._beyond
        return np.minimum(up(whole, MILLIONS_OF_ROUNDINGS), 1.0)

    def renyi(self, order: float) -> float:
        """The Renyi divergence: those of the two parts add up."""
        alpha = check_order(order)
        own = alpha * self.mu * self.mu / 2.0
        return at_least(self.profile.renyi(alpha) + own, ulps=4.0)

    def gdp(self) -> float:
        """mu: squares add up."""
        return at_least(math.hypot(self.profile.gdp(), self.mu), ulps=2.0)

    def __repr__(self) -> str:
        return f"GaussianCompositionProfile({self.profile!r}, mu={self.mu:.4g})"


def _edges(mu: float) -> Array:
    """Edges of cells in standard deviations of l; hardly any probability is beyond the last."""
    step = max(min(_CELL_DEVIATIONS, _CELL_WIDTH / mu), 0.01)
    return np.concatenate([np.arange(-6.0, 6.0, step), np.arange(6.0, 12.5, step), [20.0, 38.0]])


def _chords(edges: Array, mu: float) -> tuple[Array, Array]:
    r"""The weights of the two ends of each cell's chord.

    With :math:`t = e^{-l}` the chord at l has weight :math:`(t - t_2)/(t_1 - t_2)` on its left end,
    and the mean of t over a cell is that of a Gaussian shifted by mu: :math:`E[e^{-l}; cell]` is
    the mass of the cell under N(-mu^2/2, mu^2).  A cell whose t is too small for that counts as its
    right end, where the curve is highest.
    """
    masses, shifted = _masses(edges), _masses(edges + mu)
    t = np.exp(-np.minimum(mu * mu / 2.0 + mu * edges, -math.log(_LEAST_FACTOR) + 1.0))
    # Where t hardly falls over a cell, the differences below are nothing but rounding.
    known = (t[1:] > _LEAST_FACTOR) & (t[:-1] - t[1:] > _LEAST_CELL_FALL * t[:-1])
    left = np.zeros_like(masses)
    np.divide(shifted - t[1:] * masses, t[:-1] - t[1:], out=left, where=known)
    left = np.clip(left, 0.0, masses)
    return left, masses - left


def _masses(edges: Array) -> Array:
    """Standard normal probabilities of the cells, each from the shorter tail."""
    below, above = np.diff(ndtr(edges)), -np.diff(ndtr(-edges))
    return np.asarray(np.where(edges[1:] <= 0.0, below, above))


def _two_sided(profile: PrivacyProfile, epsilons: Array) -> Array:
    """The curve at any epsilon, negative ones too."""
    sizes = np.abs(epsilons)
    known = profile.deltas(sizes.ravel()).reshape(sizes.shape)
    shrunk = np.exp(-sizes)
    return np.where(epsilons >= 0.0, known, 1.0 - shrunk + shrunk * known)


def compose_with_mixture(profile: PrivacyProfile, more: GaussianMixtureProfile) -> PrivacyProfile:
    """The guarantee of `profile` composed with a Gaussian mechanism whose mu has this law."""
    if isinstance(profile, GaussianCompositionProfile):
        return compose_with_mixture(profile.profile, _join_mixtures(more, _always(profile.mu)))
    if isinstance(profile, StagedProfile):
        return profile.each(partial(compose_with_mixture, more=more))
    profile = profile.cheap()
    if isinstance(profile, GaussianProfile) or more.lost > 0.0 or math.isinf(more.gdp()):
        return _join_mixtures(more, _always(profile.gdp()))
    if isinstance(profile, GaussianMixtureProfile):
        return _join_mixtures(more, profile)
    return MixtureCompositionProfile(profile, more)


class MixtureCompositionProfile(PrivacyProfile):
    """The composition of any guarantee with a Gaussian mechanism whose mu has a law."""

    def __init__(self, profile: PrivacyProfile, more: GaussianMixtureProfile) -> None:
        self.profile, self.more = profile, more
        table = ChordCurve(profile.epsilon, profile.deltas)
        self._parts = [
            GaussianCompositionProfile(profile, mu, table).by_chords if mu > 0.0 else table.deltas
            for mu in more.mus.tolist()
        ]

    def deltas(self, epsilons: Array) -> Array:
        """delta at each epsilon: the average over mu, by chords."""
        whole = np.zeros(epsilons.size)
        for weight, part in zip(self.more.weights, self._parts, strict=True):
            whole += weight * part(epsilons)
        return np.minimum(up(whole, MILLIONS_OF_ROUNDINGS), 1.0)

    def renyi(self, order: float) -> float:
        """The Renyi divergence of the composition, with mu known to the attacker; rounded up."""
        alpha = check_order(order)
        own = self.profile.renyi(alpha)
        if not math.isfinite(own) or math.isinf(alpha):
            return math.inf
        values = alpha * self.more.mus**2 / 2.0 + own
        return at_least(averaged(self.more.weights, values, alpha), ulps=16.0)

    def gdp(self) -> float:
        """The mu of the composition: the squares of the largest mu of both add up to its square."""
        return at_least(math.hypot(self.profile.gdp(), self.more.gdp()), ulps=2.0)

    def __repr__(self) -> str:
        return f"MixtureCompositionProfile({self.profile!r}, {self.more!r})"


def _always(mu: float) -> GaussianMixtureProfile:
    return GaussianMixtureProfile([1.0], [mu])


def _join_mixtures(
    one: GaussianMixtureProfile, other: GaussianMixtureProfile
) -> GaussianMixtureProfile:
    """The composition of two mixtures with independent laws: squares of mu add up."""
    weights = np.outer(one.weights, other.weights).ravel()
    mus = up(np.hypot.outer(one.mus, other.mus).ravel(), MILLIONS_OF_ROUNDINGS)
    return GaussianMixtureProfile(weights, mus, lost=min(one.lost + other.lost, 1.0))
