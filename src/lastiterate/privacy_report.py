"""The certified guarantee of one run, with the reasons for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from lastiterate import _check
from lastiterate._display import up
from lastiterate.bounds.bound import Certainty
from lastiterate.bounds.catalogue import RECORDS
from lastiterate.bounds.fixed_order.nonconvex import NON_CONVEX
from lastiterate.errors import Unmet
from lastiterate.other_releases import Release
from lastiterate.profile.best import LazyProfiles, cheap, least_epsilons, some_of
from lastiterate.profile.compose import compose_with_gaussian
from lastiterate.profile.profile import PrivacyProfile, Protected
from lastiterate.profile.rounded import RoundedProfile, Rounding
from lastiterate.report_bounds import ReportBounds, person_mu
from lastiterate.report_forms import USUAL_DELTA, ReportForms
from lastiterate.run.batch_rules.base import Resampling
from lastiterate.run.optimizer import require_plain_steps
from lastiterate.run.training_run import ADJACENCIES, TrainingRun

_COMPOSITION = "composition/"


@dataclass(frozen=True, eq=False, repr=False)
class PrivacyReport(ReportForms, ReportBounds):
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

    @cached_property
    def under_other_adjacency(self) -> PrivacyReport | None:
        """The report on this training under the other adjacency, if that takes little time.

        None if it takes longer, if this report is about more than the run or not certified, or if
        the run does not state the largest gradient of one example (`TrainingRun.under`).
        """
        from lastiterate.accounting import account

        if self.of_more_than_the_run:
            return None
        (other,) = (adjacency for adjacency in ADJACENCIES if adjacency != self.run.adjacency)
        run = self.run.under(other) if self._is_quick() else None
        if run is None or self.certainty is not Certainty.UPPER:
            return None
        found = account(run, other_releases=[one.under(other) for one in self.other_releases])
        return found if self.rounding is None else found.computed(self.rounding)

    def cheap(self) -> PrivacyReport:
        """The report by those bounds alone whose whole curves take little time."""
        quick = [id_ for id_ in self.used if RECORDS[id_].is_quick(self.run)] or list(self.used)
        return replace(self, all=LazyProfiles(some_of(self.used, quick), cheap))

    def _is_quick(self) -> bool:
        if self.run.batches.resampling is Resampling.EACH_STEP:
            return all(id_.startswith(_COMPOSITION) for id_ in self.all)
        return bool(NON_CONVEX.unmet(self.run))

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
        if delta not in self._known:
            # Those with a quick lower bound on delta come last: they can often be left out.
            ids = sorted(self.used, key=lambda id_: RECORDS[id_].has_delta_lower_bound)
            is_above = {id_: partial(RECORDS[id_].is_above, self.run) for id_ in ids}
            self._known[delta] = least_epsilons(
                some_of(self.used, ids), delta, {} if self.of_more_than_the_run else is_above
            )
        return self._known[delta]

    @cached_property
    def _known(self) -> dict[float, Mapping[str, float]]:
        return {}

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
        from lastiterate.accounting import account

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
        profiles = {id_: compose_with_gaussian(_exact(old), mu) for id_, old in self.all.items()}
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
        profiles = LazyProfiles(self.all, partial(_computed, rounding))
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


def _computed(rounding: Rounding, profile: PrivacyProfile) -> PrivacyProfile:
    return RoundedProfile(profile, rounding)


def _exact(profile: PrivacyProfile) -> PrivacyProfile:
    return profile.exact if isinstance(profile, RoundedProfile) else profile
