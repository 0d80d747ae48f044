"""Several results published one after the other."""

import math

import numpy as np

from lastiterate._numerics.rounding import at_least
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.profile.best import BestProfile, FallbackProfile, StagedProfile
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.profile.privacy_profile import PrivacyProfile, protected_by_all
from lastiterate.profile.renyi import RenyiProfile, ZCDPProfile
from lastiterate.profile.rounded import RoundedProfile, Rounding

_LEAST_DELTA, _FARTHEST, _LOOKS = 1e-12, 1e9, 100


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
    >>> from lastiterate.profile.gaussian import GaussianProfile
    >>> from lastiterate.profile.compose import compose
    >>> compose(GaussianProfile(3.0), GaussianProfile(4.0)).gdp()
    5.000000000000003
    """
    if not profiles:
        raise InvalidParameter("profiles", profiles, must_be="at least one PrivacyProfile")
    for profile in profiles:
        if not isinstance(profile, PrivacyProfile):
            raise InvalidType("profiles", profile, must_be="PrivacyProfiles")
    protected = protected_by_all(profiles)
    composed = _compose(tuple(map(_simplified, profiles)))
    return composed if protected is None else BestProfile([composed], protected=protected)


def _compose(profiles: tuple[PrivacyProfile, ...]) -> PrivacyProfile:
    if len(profiles) == 1:
        return profiles[0]
    if any(_rounding(profile) is not None for profile in profiles):
        return _compose_computed(profiles)
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


def _compose_computed(profiles: tuple[PrivacyProfile, ...]) -> PrivacyProfile:
    """The exact results composed, and then how far all computed ones are from them."""
    whole = Rounding(0.0, 0.0)
    for profile in profiles:
        whole = whole.beside(_rounding(profile) or Rounding(0.0, 0.0))
    return RoundedProfile(compose(*map(_exact, profiles)), whole)


def _rounding(profile: PrivacyProfile) -> Rounding | None:
    """How far the result is from the exact one; None where that is not told apart."""
    if isinstance(profile, RoundedProfile):
        return profile.rounding
    if isinstance(profile, BestProfile):
        found = {_rounding(one) for one in profile.profiles}
        return found.pop() if len(found) == 1 else None
    return None


def _exact(profile: PrivacyProfile) -> PrivacyProfile:
    """The guarantee of the exact result."""
    if _rounding(profile) is None:
        return profile
    if isinstance(profile, RoundedProfile):
        return profile.exact
    assert isinstance(profile, BestProfile)
    return BestProfile([_exact(one) for one in profile.profiles])


def _simplified(profile: PrivacyProfile) -> PrivacyProfile:
    """The only profile of a best one, without fallbacks for small deltas."""
    if isinstance(profile, FallbackProfile):
        return _simplified(profile.usual)
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
    """`best` without the profiles that are the least at none of some epsilons.

    The result is still valid, and a curve may take long to be written out.
    """
    every = [stage for profile in best.profiles for stage in _stages(profile)]
    gaussians = [p for p in every if isinstance(p, GaussianProfile)]
    others = [p for p in every if not isinstance(p, GaussianProfile)]
    kept = others + ([min(gaussians, key=lambda p: p.mu)] if gaussians else [])
    if len(kept) > 1:
        far = min(best.epsilon(_LEAST_DELTA), _FARTHEST)
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
    from lastiterate.profile import pld as losses

    if any(profile.delta(1e9) >= 1.0 for profile in profiles):
        return GaussianProfile(math.inf)
    discrete = [p for p in profiles if isinstance(p, losses.LossDistributionProfile)]
    cell = max([p.discretization for p in discrete], default=1e-4)
    cell = max([cell, *(losses.least_discretization(p) for p in profiles)])
    slack = math.fsum(profile.slack for profile in discrete)
    total, known = None, {}
    for profile in profiles:
        if isinstance(profile, losses.LossDistributionProfile) and profile.discretization == cell:
            known[id(profile)] = profile.pld
        elif id(profile) not in known:  # the same one may be there many times
            known[id(profile)] = losses.to_pld(profile, discretization=cell)
        pld = known[id(profile)]
        total = pld if total is None else total.compose(pld)
    composed = losses.LossDistributionProfile(total)
    return losses.LossDistributionProfile(total, slack=slack + composed.slack)
