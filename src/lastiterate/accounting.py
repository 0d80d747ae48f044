"""Accounting: the certified privacy of what a run releases.

`account` asks every proved bound of the catalogue whether it covers the run.  The `PrivacyReport`
that it returns holds the guarantee of each bound that does, computed when it is first needed, and
is itself the least of them at every epsilon, delta, order or mu.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from lastiterate import _check
from lastiterate._display import up
from lastiterate._progress import track
from lastiterate.bounds.bound import Bound, Certainty, Estimate, LowerBound
from lastiterate.bounds.catalogue import APPROXIMATIONS, PUBLISHED, RECORDS, Chosen, select
from lastiterate.bounds.fixed_order.nonconvex import NON_CONVEX
from lastiterate.errors import InvalidParameter, InvalidType, NoBoundApplies, Unmet
from lastiterate.lower_bounds.catalogue import LOWER_BOUNDS
from lastiterate.other_releases import KINDS, Release, joint_mu
from lastiterate.profile.best import (
    BestProfile,
    LazyProfiles,
    StagedProfile,
    cheap,
    least_epsilons,
    some_of,
)
from lastiterate.profile.compose import compose_with_gaussian
from lastiterate.profile.lower import BestLowerProfile, LowerProfile
from lastiterate.profile.profile import PrivacyProfile, Protected
from lastiterate.profile.rounded import RoundedProfile, Rounding
from lastiterate.run.batch_rules.base import Resampling
from lastiterate.run.optimizer import require_plain_steps
from lastiterate.run.training_run import ADJACENCIES, TrainingRun

USUAL_DELTA = 1e-5
_COMPOSITION = "composition/"


def account(
    run: TrainingRun,
    *,
    bounds: Chosen | None = None,
    including: Chosen | None = None,
    other_releases: Sequence[Release] = (),
) -> PrivacyReport:
    """The tightest certified privacy of what `run` releases.

    Parameters
    ----------
    run : TrainingRun
        The description of the training.
    bounds : str, Bound of the catalogue, or list of them, optional
        Ids, families such as "fixed-order", or bounds of `CATALOGUE`, to use instead of all
        certified bounds.
    including : str, Bound of the catalogue, or list of them, optional
        The same, to be evaluated in addition, such as "published".
    other_releases : sequence of Release, optional
        Statistics of the same examples that are also published, with Gaussian noise.

    Returns
    -------
    PrivacyReport
        The guarantee of every bound that applies, and why the others do not.

    Raises
    ------
    NoBoundApplies
        If no bound applies; the error lists the reasons for each.
    InvalidParameter, InvalidType
        If `run` is not a TrainingRun, or `bounds` or `including` names no bound.

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
    chosen = select(bounds) if bounds is not None else _proved_bounds()
    if including is not None:
        chosen += [bound for bound in select(including, name="including") if bound not in chosen]
    unmet = {bound.id: bound.unmet(run) for bound in chosen}
    other_mu = person_mu(other_releases, run)
    applying = [bound for bound in chosen if not unmet[bound.id]]
    refused = {id_: reasons for id_, reasons in unmet.items() if reasons}
    for bound in applying:
        refused |= bound.unmet_stages(run)
    if not applying:
        raise NoBoundApplies(run, refused)
    by_id = {bound.id: bound for bound in applying}
    guarantees = LazyProfiles(by_id, partial(_guarantee, run, other_mu))
    return PrivacyReport(run, guarantees, refused, tuple(other_releases))


def _guarantee(run: TrainingRun, other_mu: float, bound: Bound) -> PrivacyProfile:
    return compose_with_gaussian(bound.guarantee(run), other_mu)


def _proved_bounds() -> list[Bound]:
    """The proved bounds of the library, which are used by default.

    Published bounds are never below the library's own, and some are not proved.
    """
    return [
        bound
        for bound in select(None)
        if bound.certainty is Certainty.UPPER and not bound.id.startswith(f"{PUBLISHED}/")
    ]


@dataclass(frozen=True, eq=False, repr=False)
class PrivacyReport(BestProfile):
    """The certified guarantee of one run: at every point the best of the bounds that apply.

    A report is a `PrivacyProfile` and answers, and composes, as one.  `account` makes it.

    Parameters
    ----------
    run : TrainingRun
        The description of the training.
    all : mapping of str to PrivacyProfile
        The guarantee of each bound that applies, by id.  Bounds whose published proof has a gap are
        listed for comparison; they are used only if no proved bound was requested.
    unmet : mapping of str to sequence of Unmet
        For each bound that does not apply, the hypotheses that the run does not meet.
    other_releases : tuple of Release
        Statistics of the same examples that were also published; every guarantee includes them.
    enforced : bool
        Whether one of the library's trainers carried out the run, so that its description is known
        to be true.
    selected : bool
        Whether the published model is the best of several, of which `run` trained one.  The report
        is then about the selection as a whole.
    followed : tuple of int, optional
        The number of extra steps taken after the run to unlearn examples, and of requests.  The
        guarantee then holds for all models published on the way together.
    seeded : bool
        Whether the noise came from a seed.
    caveats : tuple of str
        Sentences on whom the guarantee does not protect.
    preprocessing : tuple of str
        Steps fitted on the same examples before the run, which the guarantee does not include.
    rounding : Rounding, optional
        How far what was computed is from exact arithmetic, which every guarantee then includes.

    Examples
    --------
    >>> import lastiterate as li
    >>> run = li.TrainingRun.from_dp_sgd(
    ...     examples=1_000, batch_size=100, epochs=5, clip_norm=2.0, noise_multiplier=5.0)
    >>> report = li.account(run)
    >>> report.bound, sorted(report.unmet)[:1], report.certainty.name
    ('composition/sampled', ['composition/balanced'], 'UPPER')
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
    rounding: Rounding | None = None

    @property
    def protected(self) -> Protected:
        """The change that the guarantee hides."""
        return Protected(self.run.adjacency, self.run.examples_per_person)

    @property
    def of_more_than_the_run(self) -> bool:
        """Whether the report is about more models than the one that `run` trained."""
        return self.selected or self.followed is not None

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

    @property
    def bound(self) -> str:
        """The id of the bound with the least epsilon at delta = 1e-5."""
        return self.bound_at(USUAL_DELTA)

    def bound_at(self, delta: float) -> str:
        """The id of the bound with the least epsilon at this delta (ties: the least mu).

        Parameters
        ----------
        delta : float
            Of (epsilon, delta)-DP.

        Returns
        -------
        str
            The id, as in `all`.

        Examples
        --------
        >>> import lastiterate as li
        >>> run = li.TrainingRun.from_dp_sgd(
        ...     examples=1_000, batch_size=100, epochs=5, clip_norm=2.0, noise_multiplier=5.0)
        >>> li.account(run).bound_at(1e-9)
        'composition/sampled'
        """
        epsilons = self._epsilons(delta)
        least = min(epsilons.values())
        best = [id_ for id_ in self.used if epsilons.get(id_) == least]
        return best[0] if len(best) == 1 else min(best, key=lambda id_: self.used[id_].gdp())

    def epsilon(self, delta: float) -> float:
        """The least epsilon of (epsilon, delta)-DP, for a delta below 1; inf if there is none."""
        _check.number("delta", delta, at_least=0.0, below=1.0)
        return min(self._epsilons(delta).values())

    def _epsilons(self, delta: float) -> Mapping[str, float]:
        """The epsilon of every bound that may have the least epsilon, computed once per delta."""
        delta = _check.number("delta", delta, at_least=0.0, at_most=1.0)
        if delta not in self._epsilons_by_delta:
            # Those with a quick lower bound on delta come last: they can often be left out.
            ids = sorted(self.used, key=lambda id_: RECORDS[id_].has_delta_lower_bound)
            is_above = {id_: partial(RECORDS[id_].is_above, self.run) for id_ in ids}
            self._epsilons_by_delta[delta] = least_epsilons(
                some_of(self.used, ids), delta, {} if self.of_more_than_the_run else is_above
            )
        return self._epsilons_by_delta[delta]

    @cached_property
    def _epsilons_by_delta(self) -> dict[float, Mapping[str, float]]:
        return {}

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
            exact = _without_rounding(profile)
            if isinstance(exact, StagedProfile):
                for stage_id, stage in exact.stages.items():
                    epsilons[stage_id] = self._as_computed(stage).epsilon(delta)
        return epsilons

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

    @cached_property
    def lower_bounds(self) -> Mapping[str, LowerProfile]:
        """The lower bounds that apply, by id."""
        later = {one.id: one.profile(self.run) for one in self.later_lower_bounds}
        return {**self.quick_lower_bounds, **later}

    @cached_property
    def quick_lower_bounds(self) -> Mapping[str, LowerProfile]:
        """The lower bounds that apply and take little time: texts and pages evaluate these."""
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

    @cached_property
    def under_other_adjacency(self) -> PrivacyReport | None:
        """The report on this training under the other adjacency, if that takes little time.

        None if it takes longer, if this report is about more than the run or not certified, or if
        the run does not state the largest gradient of one example (`TrainingRun.under`).
        """
        if self.of_more_than_the_run:
            return None
        (other,) = (adjacency for adjacency in ADJACENCIES if adjacency != self.run.adjacency)
        run = self.run.under(other) if self._is_quick() else None
        if run is None or self.certainty is not Certainty.UPPER:
            return None
        report = account(run, other_releases=[one.under(other) for one in self.other_releases])
        return report if self.rounding is None else report.computed(self.rounding)

    def cheap(self) -> PrivacyReport:
        """The report by those bounds alone whose whole curves take little time."""
        quick = [id_ for id_ in self.used if RECORDS[id_].is_quick(self.run)] or list(self.used)
        return replace(self, all=LazyProfiles(some_of(self.used, quick), cheap))

    def _is_quick(self) -> bool:
        if self.run.batches.resampling is Resampling.EACH_STEP:
            return all(id_.startswith(_COMPOSITION) for id_ in self.all)
        return bool(NON_CONVEX.unmet(self.run))

    def with_release(self, release: Release, rounding: Rounding | None = None) -> PrivacyReport:
        """The report on this run and one more published statistic of the same examples.

        Parameters
        ----------
        release : Release
            The statistic and its noise.
        rounding : Rounding, optional
            The rounding error of the published statistic; needed if this report includes rounding.

        Returns
        -------
        PrivacyReport
            The guarantee of the model and all other releases together.

        Raises
        ------
        ValueError
            If this report includes rounding and `rounding` is not given.

        Examples
        --------
        >>> from lastiterate.other_releases import Release
        >>> import lastiterate as li
        >>> run = li.TrainingRun.from_dp_sgd(
        ...     examples=1_000, batch_size=100, epochs=5, clip_norm=2.0, noise_multiplier=5.0)
        >>> more = li.account(run).with_release(Release("mean", sensitivity=2.0, noise_std=4.0))
        >>> len(more.other_releases), more.epsilon(1e-5) > li.account(run).epsilon(1e-5)
        (1, True)
        """
        other_releases = (*self.other_releases, release)
        joint = None
        if self.rounding is not None:
            if rounding is None:
                raise ValueError("the rounding of this release must be given, too")
            joint = self.rounding.beside(rounding)
        if not self.of_more_than_the_run:
            names = ("enforced", "seeded", "caveats", "preprocessing")
            kept = {name: getattr(self, name) for name in names}
            exact = replace(account(self.run, other_releases=other_releases), **kept)
            return exact if joint is None else exact.computed(joint)
        mu = person_mu([release], self.run)
        profiles = {
            id_: compose_with_gaussian(_without_rounding(old), mu) for id_, old in self.all.items()
        }
        exact = replace(self, all=profiles, other_releases=other_releases, rounding=None)
        return exact if joint is None else exact.computed(joint)

    def computed(self, rounding: Rounding) -> PrivacyReport:
        """The report on rounded results, which differ from exact arithmetic by `rounding`.

        Parameters
        ----------
        rounding : Rounding
            The distance of the model and all other releases together.

        Returns
        -------
        PrivacyReport
            This report, with every guarantee weakened by twice the distance.

        Raises
        ------
        ValueError
            If this report includes rounding already.
        InvalidParameter
            If the run has momentum, or publishes an average: their rounding errors are not proved.

        Examples
        --------
        >>> import lastiterate as li
        >>> from lastiterate.profile.rounded import Rounding
        >>> run = li.TrainingRun.from_dp_sgd(
        ...     examples=1_000, batch_size=100, epochs=5, clip_norm=2.0, noise_multiplier=5.0)
        >>> exact = li.account(run)
        >>> exact.epsilon(1e-5) < exact.computed(Rounding(1e-6, 1e-18)).epsilon(1e-5)
        True
        """
        if self.rounding is not None:
            raise ValueError("the rounding of these results is charged already")
        require_plain_steps(self.run, "the charge for rounding")
        profiles = LazyProfiles(self.all, partial(RoundedProfile, rounding=rounding))
        return replace(self, all=profiles, rounding=rounding)

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

    def __str__(self) -> str:
        from lastiterate.report.text import as_text

        return as_text(self)

    def _repr_html_(self) -> str:
        from lastiterate.report.html import as_card

        return as_card(self)

    def to_html(
        self,
        path: str | Path | None = None,
        *,
        delta: float = USUAL_DELTA,
        title: str = "Privacy report",
    ) -> str | None:
        """The report, with pictures, as one page that needs nothing else.

        It needs the extra `plot`.

        Parameters
        ----------
        path : str or Path, optional
            Where to write the page; a file that is there is replaced if it is such a page, and
            refused if it is anything else.
        delta : float
            The delta at which epsilon is stated.
        title : str
            The title of the page.

        Returns
        -------
        str or None
            The text of the page, if no path is given.

        Examples
        --------
        >>> import lastiterate as li
        >>> run = li.TrainingRun.from_dp_sgd(
        ...     examples=1_000, batch_size=100, epochs=5, clip_norm=2.0, noise_multiplier=5.0)
        >>> page = li.account(run).to_html(title="Ours")  # doctest: +SKIP
        """
        from lastiterate.report.html import as_html, write_html

        if path is None:
            return as_html(self, delta=delta, title=title)
        write_html(self, path, delta=delta, title=title)
        return None

    def statement(
        self,
        *,
        delta: float = USUAL_DELTA,
        max_examples_per_user: int | None = None,
        format: str = "text",
    ) -> str:
        """The paragraph for a paper or a model card.

        Parameters
        ----------
        delta : float
            The delta at which epsilon is stated.
        max_examples_per_user : int, optional
            If given, the paragraph also states what group privacy gives a user with so many
            examples.
        format : {"text", "markdown", "model-card"}
            The format of the paragraph.

        Returns
        -------
        str
            The paragraph.

        Examples
        --------
        >>> import lastiterate as li
        >>> run = li.TrainingRun.from_dp_sgd(
        ...     examples=1_000, batch_size=100, epochs=5, clip_norm=2.0, noise_multiplier=5.0)
        >>> "epsilon" in li.account(run).statement()
        True
        """
        from lastiterate.report.text import statement

        return statement(
            self,
            delta=delta,
            max_examples_per_user=max_examples_per_user,
            format=format,
        )

    def to_json(self, *, delta: float = USUAL_DELTA) -> str:
        """The report as JSON with stable keys.

        Parameters
        ----------
        delta : float
            The delta at which epsilon is stated.

        Returns
        -------
        str
            JSON with all that `print` shows.

        Examples
        --------
        >>> import lastiterate as li
        >>> run = li.TrainingRun.from_dp_sgd(
        ...     examples=1_000, batch_size=100, epochs=5, clip_norm=2.0, noise_multiplier=5.0)
        >>> import json
        >>> json.loads(li.account(run).to_json())["bound"]
        'composition/sampled'
        """
        from lastiterate.report.summary import as_json

        return as_json(self, delta=delta)

    def to_dp_event(self) -> Any:
        """The report as an event of `dp_accounting`, to be composed with others.

        For adjacency "zero-out" a GaussianDpEvent of 1/mu, for accountants of REPLACE_SPECIAL
        (with Poisson batches ADD_OR_REMOVE_ONE); without a mu, and for "replace", an event that
        `lastiterate.dp_accounting.LastIterateAccountant` knows.  `to_pld` loses less.  A report
        of more than a run (other releases, private selection, unlearning) has no event for
        "replace" and is refused there.  A report that includes rounding, as that of every fitted
        model, is always refused: no event holds rounding, and `to_pld` includes it.  For persons
        with several examples the event is of whole persons, and all others composed with it must
        be, too.

        Returns
        -------
        dp_accounting.DpEvent
            The event.

        Raises
        ------
        InvalidParameter
            If the report is of more than a run and its adjacency is "replace", or includes
            rounding.

        Examples
        --------
        >>> import lastiterate as li
        >>> run = li.TrainingRun.from_dp_sgd(
        ...     examples=1_000, batch_size=100, epochs=5, clip_norm=2.0, noise_multiplier=5.0)
        >>> type(li.account(run).to_dp_event()).__name__
        'GaussianDpEvent'
        """
        from lastiterate.dp_accounting import event_of

        return event_of(self)


def _without_rounding(profile: PrivacyProfile) -> PrivacyProfile:
    return profile.exact if isinstance(profile, RoundedProfile) else profile


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
