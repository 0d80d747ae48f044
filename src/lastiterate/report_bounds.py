"""The bounds behind a report: those in use, their stages and positions, and lower bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property

from lastiterate._progress import track
from lastiterate.bounds.bound import Certainty, Estimate, LowerBound
from lastiterate.bounds.catalogue import APPROXIMATIONS, RECORDS
from lastiterate.errors import InvalidParameter
from lastiterate.lower_bounds.catalogue import LOWER_BOUNDS
from lastiterate.other_releases import KINDS, Release, joint_mu
from lastiterate.profile.best import BestProfile, StagedProfile, some_of
from lastiterate.profile.compose import compose_with_gaussian
from lastiterate.profile.lower import BestLowerProfile, LowerProfile
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.profile.rounded import RoundedProfile, Rounding
from lastiterate.report_forms import USUAL_DELTA
from lastiterate.run.training_run import TrainingRun


class ReportBounds(BestProfile):
    """The part of a `PrivacyReport` that concerns bounds; it uses the attributes listed here."""

    run: TrainingRun
    all: Mapping[str, PrivacyProfile]
    other_releases: tuple[Release, ...]
    selected: bool
    followed: tuple[int, int] | None
    rounding: Rounding | None

    @cached_property
    def used(self) -> Mapping[str, PrivacyProfile]:
        """The guarantees in use, by id: those of proved bounds, or all if no bound is proved."""
        proved = [id_ for id_ in self.all if RECORDS[id_].certainty is Certainty.UPPER]
        return some_of(self.all, proved) if proved else self.all

    @property
    def profiles(self) -> tuple[PrivacyProfile, ...]:
        """The guarantees in use."""
        return tuple(self.used[id_] for id_ in track("accounting", list(self.used)))

    @property
    def certainty(self) -> Certainty:
        """`UPPER`, or `AS_PUBLISHED` if no bound in use is proved."""
        return RECORDS[next(iter(self.used))].certainty

    def explain(self, delta: float = USUAL_DELTA) -> Mapping[str, float]:
        """The epsilon of every bound and, below it, of every stage of its proof that applies.

        Parameters
        ----------
        delta : float
            Of (epsilon, delta)-DP.

        Returns
        -------
        mapping of str to float
            Epsilons by the ids of bounds and stages.

        Examples
        --------
        >>> import lastiterate as li
        >>> run = li.TrainingRun.from_dp_sgd(
        ...     examples=1_000, batch_size=100, epochs=5, clip_norm=2.0, noise_multiplier=5.0)
        >>> list(li.account(run).explain())
        ['composition/fixed-order', 'composition/sampled']
        """
        epsilons: dict[str, float] = {}
        for id_, profile in self.used.items():
            epsilons[id_] = profile.epsilon(delta)
            exact = profile.exact if isinstance(profile, RoundedProfile) else profile
            if isinstance(exact, StagedProfile):
                for stage_id, stage in exact.stages.items():
                    epsilons[stage_id] = self._as_computed(stage).epsilon(delta)
        return epsilons

    @property
    def of_more_than_the_run(self) -> bool:
        """Whether the report is about more models than the one that `run` trained."""
        return self.selected or self.followed is not None

    @cached_property
    def lower_bounds(self) -> Mapping[str, LowerProfile]:
        """The lower bounds that apply, by id."""
        later = {one.id: one.profile(self.run) for one in self.later_lower_bounds}
        return {**self.quick_lower_bounds, **later}

    @cached_property
    def quick_lower_bounds(self) -> Mapping[str, LowerProfile]:
        """Those of them that take little time, which is what texts and pages evaluate."""
        return {one.id: one.profile(self.run) for one in self._applying if one.quick(self.run)}

    @property
    def later_lower_bounds(self) -> tuple[LowerBound, ...]:
        """The lower bounds that apply and may take longer than the guarantee itself."""
        return tuple(one for one in self._applying if not one.quick(self.run))

    @cached_property
    def _applying(self) -> tuple[LowerBound, ...]:
        if self.of_more_than_the_run:
            return ()
        return tuple(
            bound
            for bound in LOWER_BOUNDS.values()
            if not bound.listed_only and not bound.unmet(self.run)
        )

    @cached_property
    def estimates(self) -> Mapping[str, Estimate]:
        """Estimates of the run alone that apply, by id; they are no guarantees.

        An estimate may be below what really leaks.  None is part of the guarantee, of a
        certificate, of a ledger or of a statement.

        Examples
        --------
        >>> import lastiterate as li
        >>> run = li.TrainingRun.from_dp_sgd(
        ...     examples=1_000, batch_size=100, epochs=5, clip_norm=2.0, noise_multiplier=5.0,
        ...     step_size=0.1)
        >>> report = li.account(run)
        >>> found = report.estimates["published/steinke-et-al/linear-estimate"]
        >>> round(found.epsilon_estimate(1e-5), 2), round(report.epsilon(1e-5), 2)
        (0.52, 0.53)
        """
        if self.of_more_than_the_run:
            return {}
        return {
            one.id: one.estimate(self.run)
            for one in APPROXIMATIONS.values()
            if not one.unmet(self.run)
        }

    @property
    def lower(self) -> BestLowerProfile:
        """The largest of the lower bounds that apply: no valid guarantee is below it."""
        return BestLowerProfile(tuple(self.lower_bounds.values()))

    def ratio_to_lower_bound(self, delta: float) -> float:
        """The certified epsilon divided by the best lower bound; inf if that is not positive.

        Parameters
        ----------
        delta : float
            Of (epsilon, delta)-DP.

        Returns
        -------
        float
            At least 1.

        Examples
        --------
        >>> import lastiterate as li
        >>> run = li.TrainingRun(
        ...     loss=li.Loss(smoothness=1.0), sensitivity=1.0, batches=li.FullBatch(examples=100),
        ...     steps=10, step_size=0.1, noise_std=0.1)
        >>> round(li.account(run).ratio_to_lower_bound(1e-5), 6)
        1.0
        """
        return ratio_to_lower(self.epsilon(delta), self.lower.epsilon(delta))

    def by_position(self) -> Sequence[PrivacyProfile]:
        """The guarantee of each position in the order of the batches, first to last.

        Returns
        -------
        sequence of PrivacyProfile
            From the best bound that distinguishes positions; only this report if none does.

        Examples
        --------
        >>> import lastiterate as li
        >>> run = li.TrainingRun.from_dp_sgd(
        ...     examples=1_000, batch_size=100, epochs=5, clip_norm=2.0, noise_multiplier=5.0)
        >>> len(li.account(run).by_position())
        1
        """
        by_position = [id_ for id_ in self.used if RECORDS[id_].by_position is not None]
        if self.of_more_than_the_run or not by_position:
            return [self]
        best = min(by_position, key=lambda id_: self.all[id_].epsilon(USUAL_DELTA))
        positions = RECORDS[best].positions(self.run)
        assert positions is not None
        mu = person_mu(self.other_releases, self.run)
        return [self._as_computed(compose_with_gaussian(exact, mu)) for exact in positions]

    def _as_computed(self, exact: PrivacyProfile) -> PrivacyProfile:
        """A guarantee of exact arithmetic, weakened by the rounding of the results."""
        return exact if self.rounding is None else RoundedProfile(exact, self.rounding)


def ratio_to_lower(certified: float, lower: float) -> float:
    """A certified epsilon divided by a lower bound on every valid epsilon."""
    if certified == 0.0:
        return 1.0
    return certified / lower if lower > 0.0 else math.inf


def person_mu(other_releases: Sequence[Release], run: TrainingRun) -> float:
    """The mu-GDP parameter of other releases for a person whose examples all change them."""
    for release in other_releases:
        least = KINDS[release.kind].sensitivity(run.adjacency)
        if not release.sensitivity >= least:
            must_be = f"at least {least!r} for {release.kind!r} with adjacency={run.adjacency!r}"
            raise InvalidParameter("sensitivity", release.sensitivity, must_be=must_be)
    return run.examples_per_person * joint_mu(other_releases)
