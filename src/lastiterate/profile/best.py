"""Several guarantees for one result: the best of them, each computed when it is needed."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from lastiterate._numerics.rounding import Array
from lastiterate._progress import track
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.profile.profile import PrivacyProfile, Protected, protected_by_all

_Source = TypeVar("_Source")

IsAbove = Callable[[float, float], bool]
"""Whether a guarantee is quickly known to have a larger epsilon than this one at this delta."""


class BestProfile(PrivacyProfile):
    """Several guarantees for the same result: at every point the best of them."""

    _protected: Protected | None = None

    def __init__(
        self, profiles: Sequence[PrivacyProfile], *, protected: Protected | None = None
    ) -> None:
        _check_profiles(profiles)
        self._profiles = tuple(profiles)
        self._protected = protected_by_all(profiles) if protected is None else protected

    @property
    def protected(self) -> Protected | None:
        """The change that all of them hide."""
        return self._protected

    @property
    def profiles(self) -> tuple[PrivacyProfile, ...]:
        """The guarantees."""
        return self._profiles

    def __repr__(self) -> str:
        return f"BestProfile(profiles={self.profiles!r})"

    def deltas(self, epsilons: Array) -> Array:
        return np.asarray(np.min([p.deltas(epsilons) for p in self.profiles], axis=0))

    def epsilon(self, delta: float) -> float:
        return min(profile.epsilon(delta) for profile in self.profiles)

    def _tradeoff_at(self, alpha: float) -> float:
        return max(profile.tradeoff(alpha) for profile in self.profiles)

    def renyi(self, order: float) -> float:
        return min(profile.renyi(order) for profile in self.profiles)

    def gdp(self) -> float:
        return min(profile.gdp() for profile in self.profiles)


def _check_profiles(profiles: object) -> None:
    must_be = "a sequence of at least one PrivacyProfile"
    if not isinstance(profiles, Sequence) or not all(
        isinstance(profile, PrivacyProfile) for profile in profiles
    ):
        raise InvalidType("profiles", profiles, must_be=must_be)
    if not profiles:
        raise InvalidParameter("profiles", profiles, must_be=must_be)


class FallbackProfile(PrivacyProfile):
    """`usual`, and for deltas below a limit the better of it and what `fallback` makes.

    That is made when it is first needed, which is hardly ever: also where `usual` has no epsilon.

    >>> from lastiterate import GaussianProfile
    >>> from lastiterate.profile import GaussianMixtureProfile
    >>> rounded = GaussianMixtureProfile([1.0], [0.5], lost=1e-9)
    >>> both = FallbackProfile(rounded, below=1e-7, fallback=lambda: GaussianProfile(0.6))
    >>> rounded.epsilon(1e-12), round(both.epsilon(1e-12), 2)
    (inf, 4.18)
    """

    def __init__(
        self, usual: PrivacyProfile, *, below: float, fallback: Callable[[], PrivacyProfile]
    ) -> None:
        self.usual = usual
        self._below, self._make = below, fallback

    def __repr__(self) -> str:
        return f"FallbackProfile({self.usual!r}, below={self._below:.1e})"

    @cached_property
    def _other_profile(self) -> PrivacyProfile:
        return self._make()

    def deltas(self, epsilons: Array) -> Array:
        deltas = np.array(self.usual.deltas(epsilons), dtype=np.float64)
        small = deltas < self._below
        if np.any(small):
            deltas[small] = np.minimum(deltas[small], self._other_profile.deltas(epsilons[small]))
        return deltas

    def epsilon(self, delta: float) -> float:
        usual = self.usual.epsilon(delta)
        if delta < self._below or math.isinf(usual):
            return min(usual, self._other_profile.epsilon(delta))
        return usual

    def _tradeoff_at(self, alpha: float) -> float:
        return self.usual.tradeoff(alpha)

    def renyi(self, order: float) -> float:
        return self.usual.renyi(order)

    def gdp(self) -> float:
        return self.usual.gdp()

    def cheap(self) -> PrivacyProfile:
        return FallbackProfile(self.usual.cheap(), below=self._below, fallback=self._make)


class LazyProfiles(Mapping[str, PrivacyProfile]):
    """Guarantees by name; `evaluate` makes each from its source, once, when it is looked at."""

    def __init__(
        self, sources: Mapping[str, _Source], evaluate: Callable[[_Source], PrivacyProfile]
    ) -> None:
        self._sources: Mapping[str, Any] = sources
        self._evaluate, self._known = evaluate, dict[str, PrivacyProfile]()

    def __getitem__(self, name: str) -> PrivacyProfile:
        if name not in self._known:
            self._known[name] = self._evaluate(self._sources[name])
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        return name in self._sources

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)


def some_of(profiles: Mapping[str, PrivacyProfile], names: Iterable[str]) -> LazyProfiles:
    """The guarantees with these names, in this order."""
    return LazyProfiles({name: name for name in names}, profiles.__getitem__)


def cheap(profile: PrivacyProfile) -> PrivacyProfile:
    """The quick substitute of a guarantee; not a lambda, so that guarantees can be pickled."""
    return profile.cheap()


def least_epsilons(
    profiles: Mapping[str, PrivacyProfile], delta: float, is_above: Mapping[str, IsAbove]
) -> dict[str, float]:
    """The epsilon of every guarantee that may have the least; others need not be computed."""
    epsilons: dict[str, float] = {}
    for name in track("accounting", profiles, len(profiles)):
        least = min(epsilons.values(), default=math.inf)
        if least < math.inf and (
            (name in is_above and is_above[name](least, delta))
            or profiles[name]._exceeds(least, delta)
        ):
            continue
        epsilons[name] = profiles[name].epsilon(delta)
    return epsilons


class StagedProfile(BestProfile):
    """The least of several guarantees, which are the stages of one proof.

    `is_above` knows of some stages whether they need not be computed.  `quick` are the stages whose
    whole curves take little time.
    """

    def __init__(
        self,
        stages: Mapping[str, PrivacyProfile],
        *,
        is_above: Mapping[str, IsAbove],
        quick: Collection[str],
    ) -> None:
        self.stages = stages
        self._is_above, self._quick = is_above, frozenset(quick)

    @property
    def profiles(self) -> tuple[PrivacyProfile, ...]:
        """The guarantee of every stage."""
        return tuple(self.stages.values())

    def __repr__(self) -> str:
        return f"StagedProfile({', '.join(self.stages)})"

    def epsilon(self, delta: float) -> float:
        """The least epsilon of any stage."""
        return min(least_epsilons(self.stages, delta, self._is_above).values())

    def each(self, change: Callable[[PrivacyProfile], PrivacyProfile]) -> StagedProfile:
        """The least of the changed guarantees; a change must not make any of them smaller."""
        changed = LazyProfiles(self.stages, change)
        return StagedProfile(changed, is_above=self._is_above, quick=self._quick)

    def cheap(self) -> PrivacyProfile:
        """The least of the quick stages, or a quick substitute of each if none is quick."""
        names = [name for name in self.stages if name in self._quick] or list(self.stages)
        quick = LazyProfiles(some_of(self.stages, names), cheap)
        return StagedProfile(quick, is_above=self._is_above, quick=names)
