"""Guarantees for one result, each computed when it is first needed."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial

from lastiterate.profile.best import BestProfile
from lastiterate.profile.privacy_profile import PrivacyProfile


class LazyProfiles(Mapping[str, PrivacyProfile]):
    """Guarantees by name; `evaluate` computes one, once."""

    def __init__(self, names: Collection[str], evaluate: Callable[[str], PrivacyProfile]) -> None:
        self._names, self._evaluate = dict.fromkeys(names), evaluate
        self._known: dict[str, PrivacyProfile] = {}

    def __getitem__(self, name: str) -> PrivacyProfile:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._known:
            self._known[name] = self._evaluate(name)
        return self._known[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


Change = Callable[[PrivacyProfile], PrivacyProfile]


def changed_profiles(profiles: Mapping[str, PrivacyProfile], change: Change) -> LazyProfiles:
    """These guarantees, each changed when it is first needed."""
    return LazyProfiles(list(profiles), partial(_changed, profiles, change))


# Neither this nor what follows is a lambda, so that guarantees can be pickled.
def _changed(profiles: Mapping[str, PrivacyProfile], change: Change, name: str) -> PrivacyProfile:
    return change(profiles[name])


def cheap(profile: PrivacyProfile) -> PrivacyProfile:
    """The quick substitute of a guarantee."""
    return profile.cheap()


def _never(name: str, epsilon: float, delta: float) -> bool:
    return False


class StagedProfile(BestProfile):
    """The least of several guarantees, which are the stages of one proof.

    `is_above` tells quickly that a stage has a larger epsilon at a delta than the one given, so
    that it need not be computed.  `quick` are the stages whose whole curves take little time.
    """

    def __init__(
        self,
        stages: Mapping[str, PrivacyProfile],
        *,
        is_above: Callable[[str, float, float], bool] = _never,
        quick: Collection[str] = (),
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
        return min(self.epsilons(delta).values())

    def epsilons(self, delta: float) -> dict[str, float]:
        """The epsilon of every stage that may have the least."""
        found: dict[str, float] = {}
        for name in self.stages:
            least = min(found.values(), default=math.inf)
            if not (least < math.inf and self._is_above(name, least, delta)):
                found[name] = self.stages[name].epsilon(delta)
        return found

    def each(self, change: Change) -> StagedProfile:
        """The least of the changed guarantees; a change must not make any of them smaller."""
        changed = changed_profiles(self.stages, change)
        return StagedProfile(changed, is_above=self._is_above, quick=self._quick)

    def cheap(self) -> PrivacyProfile:
        """The least of the quick stages, or a quick substitute of each if none is quick."""
        names = [name for name in self.stages if name in self._quick] or list(self.stages)
        return StagedProfile(
            LazyProfiles(names, partial(_changed, self.stages, cheap)),
            is_above=self._is_above,
            quick=names,
        )
