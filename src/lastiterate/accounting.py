"""The question: how private is the last iterate of this run?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from lastiterate import _check
from lastiterate._digits import up
from lastiterate._progress import track
from lastiterate.bounds.bound import Bound, Certainty
from lastiterate.bounds.catalogue import PUBLISHED, RECORDS, select
from lastiterate.bounds.fixed_order.nonconvex import NON_CONVEX
from lastiterate.errors import InvalidType, NoBoundApplies, Unmet
from lastiterate.lower_bounds.lower_catalogue import LOWER_BOUNDS
from lastiterate.other_releases import Release, joint_mu
from lastiterate.profile.best import (
    BestProfile,
    LazyProfiles,
    StagedProfile,
    changed_profiles,
    cheap,
)
from lastiterate.profile.compose_with_gaussian import compose_with_gaussian
from lastiterate.profile.lower import BestLowerProfile, LowerProfile
from lastiterate.profile.privacy_profile import PrivacyProfile
from lastiterate.report_forms import USUAL_DELTA as USUAL_DELTA
from lastiterate.report_forms import ReportForms
from lastiterate.run.adjacency import ADJACENCIES
from lastiterate.run.batch_rules.rules import Resampling
from lastiterate.run.training_run import TrainingRun

_COMPOSITION = "composition/"


@dataclass(frozen=True, eq=False, repr=False)
class PrivacyReport(ReportForms, BestProfile):
    """The certified guarantee of one run: at every point the best of the bounds that apply.

    A report is a `PrivacyProfile` and answers, and composes, as one.  `all` has the guarantee of
    each bound that applies, `unmet` the reasons of each that does not.  Bounds that are only as
    published are listed for comparison, and answer only where nothing else was asked for:
    `certainty` says so.  `other_releases` are statistics of the same examples that were published,
    too; every guarantee includes them.  `enforced` says that one of the library's trainers
    carried the run out, so that nobody has to vouch for its description.  `selected` says that
    what was published is the best of several tries, of which `run` is one: nothing about that
    follows from the run alone.
    `followed` is how many extra steps were taken after the run to make the model forget, in how
    many requests: the guarantee is then of all models that were published on the way.
    `seeded` says that the noise came from a seed, and `caveats` whom else the guarantee leaves out.
    `preprocessing` names steps that learnt from the same examples before the run, which no
    guarantee here includes.
    """

    run: TrainingRun
    all: Mapping[str, PrivacyProfile]
    unmet: Mapping[str, Sequence[Unmet]]
    other_releases: tuple[Release, ...] = ()
    enforced: bool = False
    selected: bool = False
    followed: tuple[int, int] | None = None
    seeded: bool = False
    caveats: tuple[str, ...] = ()
    preprocessing: tuple[str, ...] = ()

    @cached_property
    def used(self) -> Mapping[str, PrivacyProfile]:
        """The bounds that answer: the proved ones, or all if none of these was asked for."""
        proved = [id_ for id_ in self.all if RECORDS[id_].certainty is Certainty.UPPER]
        return LazyProfiles(proved, self.all.__getitem__) if proved else self.all

    @property
    def profiles(self) -> tuple[PrivacyProfile, ...]:
        """The profiles of the bounds that answer."""
        return tuple(self.used[id_] for id_ in track("accounting", list(self.used)))

    @property
    def certainty(self) -> Certainty:
        """`UPPER`, unless nothing but bounds that are only as published was asked for."""
        return RECORDS[next(iter(self.used))].certainty

    @cached_property
    def under_other_adjacency(self) -> PrivacyReport | None:
        """The report on this training under the other adjacency, where that takes little time.

        None where it takes longer, where this report is of more than the run or not certified, and
        where the run does not say what one example alone can add, as `TrainingRun.under`.
        """
        if self.of_more_than_the_run:
            return None
        (other,) = (one for one in ADJACENCIES if one != self.run.adjacency)
        run = self.run.under(other) if self._is_quick() else None
        if run is None or self.certainty is not Certainty.UPPER:
            return None
        return account(run, other_releases=[one.under(other) for one in self.other_releases])

    def cheap(self) -> PrivacyReport:
        """The report of the bounds whose whole curves take little time, by these curves."""
        quick = [id_ for id_ in self.used if RECORDS[id_].is_quick(self.run)] or list(self.used)
        used = LazyProfiles(quick, self.used.__getitem__)
        return replace(self, all=changed_profiles(used, cheap))

    def explain(self, delta: float = USUAL_DELTA) -> Mapping[str, float]:
        """The epsilon of every bound and, below it, of every stage of its proof that applies."""
        found: dict[str, float] = {}
        for id_, profile in self.used.items():
            found[id_] = profile.epsilon(delta)
            if isinstance(profile, StagedProfile):
                found |= {stage: one.epsilon(delta) for stage, one in profile.stages.items()}
        return found

    @property
    def of_more_than_the_run(self) -> bool:
        """Whether more models than that of `run` were trained: nothing follows from it alone."""
        return self.selected or self.followed is not None

    def _is_quick(self) -> bool:
        if self.run.batches.resampling is Resampling.EACH_STEP:
            return all(id_.startswith(_COMPOSITION) for id_ in self.all)
        return bool(NON_CONVEX.unmet(self.run))

    @cached_property
    def lower_bounds(self) -> Mapping[str, LowerProfile]:
        """Each lower bound that applies, by id."""
        if self.of_more_than_the_run:
            return {}
        applying = [bound for bound in LOWER_BOUNDS.values() if not bound.unmet(self.run)]
        return {bound.id: bound.evaluate(self.run) for bound in applying}

    @property
    def lower(self) -> BestLowerProfile:
        """The largest of the lower bounds that apply: no valid guarantee is below it."""
        return BestLowerProfile(tuple(self.lower_bounds.values()))

    def ratio_to_lower_bound(self, delta: float) -> float:
        """epsilon over the best lower bound's; inf where no lower bound says anything."""
        return ratio_to_lower(self.epsilon(delta), self.lower.epsilon(delta))

    @property
    def bound(self) -> str:
        """The id of the bound with the least epsilon at delta = 1e-5."""
        return self.bound_at(USUAL_DELTA)

    def bound_at(self, delta: float) -> str:
        """The id of the bound with the least epsilon at this delta (ties: the least mu)."""
        epsilons = self._epsilons(delta)
        least = min(epsilons.values())
        best = [id_ for id_ in self.used if epsilons.get(id_) == least]
        return best[0] if len(best) == 1 else min(best, key=lambda id_: self.used[id_].gdp())

    def epsilon(self, delta: float) -> float:
        """The least epsilon of (epsilon, delta)-DP; inf if there is none."""
        return min(self._epsilons(delta).values())

    def _epsilons(self, delta: float) -> Mapping[str, float]:
        """By every bound that may have the least; the same question is asked often."""
        delta = _check.number("delta", delta, at_least=0.0, at_most=1.0)
        if delta not in self._answered:
            found: dict[str, float] = {}
            for id_ in track("accounting", self._most_promising_first):
                least = min(found.values(), default=math.inf)
                if not self._is_above(id_, least, delta):
                    found[id_] = self.used[id_].epsilon(delta)
            self._answered[delta] = found
        return self._answered[delta]

    @cached_property
    def _answered(self) -> dict[float, Mapping[str, float]]:
        return {}

    @property
    def _most_promising_first(self) -> list[str]:
        """Ids of the bounds that answer; those with a quick lower bound on delta come last."""
        return sorted(self.used, key=lambda id_: RECORDS[id_].has_delta_lower_bound)

    def _is_above(self, id_: str, epsilon: float, delta: float) -> bool:
        """Whether this bound is known to be worse without being evaluated."""
        if self.of_more_than_the_run or not epsilon < math.inf:
            return False
        return RECORDS[id_].is_above(self.run, epsilon, delta)

    def by_position(self) -> Sequence[PrivacyProfile]:
        """The guarantee of each position in the order of the batches, first to last.

        By the best bound that tells positions apart; composition has one guarantee for all.
        """
        able = [id_ for id_ in self.used if RECORDS[id_].by_position is not None]
        if self.of_more_than_the_run or not able:
            return [self]
        best = min(able, key=lambda id_: self.all[id_].epsilon(USUAL_DELTA))
        positions = RECORDS[best].positions(self.run)
        assert positions is not None
        more = _mu_of(self.other_releases, self.run)
        return [compose_with_gaussian(profile, more) for profile in positions]

    def with_release(self, release: Release) -> PrivacyReport:
        """The report if this statistic of the same examples is published, too."""
        other_releases = (*self.other_releases, release)
        if not self.of_more_than_the_run:
            names = ("enforced", "seeded", "caveats", "preprocessing")
            kept = {name: getattr(self, name) for name in names}
            return replace(account(self.run, other_releases=other_releases), **kept)
        more = _mu_of([release], self.run)
        every = {id_: compose_with_gaussian(profile, more) for id_, profile in self.all.items()}
        return replace(self, all=every, other_releases=other_releases)

    def __repr__(self) -> str:
        epsilon = f"epsilon={up(self.epsilon(USUAL_DELTA))} at delta={USUAL_DELTA:g}"
        of = f"adjacency={self.run.adjacency!r}, bound={self.bound!r}, steps={self.run.steps}"
        if self.run.examples_per_person > 1:
            of += f", examples_per_person={self.run.examples_per_person}"
        more = [
            name
            for name in ("other_releases", "selected", "followed", "seeded")
            if getattr(self, name)
        ]
        apart = [f"not including={list(self.preprocessing)}"] if self.preprocessing else []
        return f"PrivacyReport({', '.join([epsilon, of, *more, *apart])})"


def ratio_to_lower(certified: float, lower: float) -> float:
    """A certified epsilon over a lower bound on every valid one."""
    if certified == 0.0:
        return 1.0
    return certified / lower if lower > 0.0 else math.inf


def account(
    run: TrainingRun,
    *,
    bounds: str | list[str] | tuple[str, ...] | None = None,
    including: str | list[str] | tuple[str, ...] | None = None,
    other_releases: Sequence[Release] = (),
) -> PrivacyReport:
    """The tightest certified privacy of what `run` releases.

    Parameters
    ----------
    run : TrainingRun
        What was done.
    bounds : str or list of str, optional
        Ids, or families such as "fixed-order", to use instead of all certified bounds.
    including : str or list of str, optional
        Ids or families to list as well, such as "published"; None is nothing more.
    other_releases : sequence of Release, optional
        Statistics of the same examples that are published, too, with Gaussian noise.

    Examples
    --------
    >>> import lastiterate as li
    >>> run = li.TrainingRun(
    ...     loss=li.Loss(smoothness=32.502, strong_convexity=0.002), sensitivity=10.0,
    ...     batches=li.Cyclic(examples=60_000, batch_size=1_500), steps=2_000,
    ...     step_size=0.05, noise_std=0.01)
    >>> report = li.account(run)
    >>> round(report.epsilon(delta=1e-5), 4), report.bound
    (4.3392, 'fixed-order/convex')
    """
    if not isinstance(run, TrainingRun):
        raise InvalidType("run", run, must_be="a TrainingRun")
    chosen = select(bounds) if bounds is not None else _by_default()
    if including is not None:
        chosen += [bound for bound in select(including) if bound not in chosen]
    unmet = {bound.id: bound.unmet(run) for bound in chosen}
    more = _mu_of(other_releases, run)
    applying = [bound for bound in chosen if not unmet[bound.id]]
    refused = {id_: reasons for id_, reasons in unmet.items() if reasons}
    for bound in applying:
        refused |= bound.unmet_stages(run)
    if not applying:
        raise NoBoundApplies(run, refused)
    guarantees = LazyProfiles([bound.id for bound in applying], partial(_beside, run, more))
    return PrivacyReport(run, guarantees, refused, tuple(other_releases))


def _beside(run: TrainingRun, more: float, id_: str) -> PrivacyProfile:
    return compose_with_gaussian(RECORDS[id_].guarantee(run), more)


def _mu_of(other_releases: Sequence[Release], run: TrainingRun) -> float:
    """The GDP mu of other releases for one person, each of whose examples changes them."""
    return run.examples_per_person * joint_mu(other_releases)


def _by_default() -> list[Bound]:
    """All proved bounds of the library.

    Published bounds are never below the library's own, and some are not proved.
    """
    return [
        bound
        for bound in select(None)
        if bound.certainty is Certainty.UPPER and not bound.id.startswith(f"{PUBLISHED}/")
    ]
