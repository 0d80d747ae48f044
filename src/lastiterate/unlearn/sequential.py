r"""The guarantee of several models published one after another, each trained on from the last.

An adversary who holds all of them knows where the steps of each began.  So each part is a run of
its own, from a public point, on batches that are drawn anew: amplification by sampling, secret
positions and noise on release count as in any run of that length.  Guarantees that hold from every
start compose, whatever was published before (Zhu, Dong and Wang 2022, Theorem 10; Dong, Roth and Su
2022, Theorem 3.2).

**A public order** continues where it was left.  The example at a position then has
:math:`\mu^2 = \sum_i \mu_i^2`, over its own participations in each of the runs: an example that
participates soon after a publication did not participate just before it.  For linear gradients
that is exact.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from lastiterate._numerics.rounding import THOUSANDS_OF_ROUNDINGS, Array, at_least, up
from lastiterate.accounting import USUAL_DELTA, PrivacyReport, account
from lastiterate.bounds.bound import Bound
from lastiterate.bounds.catalogue import CATALOGUE
from lastiterate.other_releases import Release, joint_mu
from lastiterate.profile.curve import ChordProfile
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.profile.pld import (
    LossDistributionProfile,
    least_discretization,
    self_composed,
    to_pld,
)
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.run.batch_rules.base import Resampling
from lastiterate.run.training_run import TrainingRun

_LOSS_CELL = 2e-3  # of losses: finer ones change the fifth digit
_BY_POSITION = "fixed-order/convex"


def quick_report(run: TrainingRun, other_releases: Sequence[Release] = ()) -> PrivacyReport:
    """The account of a run by bounds that are quick to compose; the others gain little there."""
    report = account(run, other_releases=other_releases)
    return (
        report.cheap()
        if run.batches.resampling in (Resampling.ONCE, Resampling.EACH_EPOCH)
        else report
    )


def report_on_all_models(first: PrivacyReport, then: Sequence[TrainingRun]) -> PrivacyReport:
    """The report on the first model and all later ones together, for examples that are in all."""
    if not then:
        return first
    every: dict[str, PrivacyProfile] = {
        id_: _joint_gaussian(
            [profile.gdp(), *(_report_on_extra_steps(extra).gdp() for extra in then)]
        )
        for id_, profile in first.used.items()
        if isinstance(profile, GaussianProfile) or first.run.batches.resampling is Resampling.NEVER
    }
    if first.run.batches.resampling is Resampling.NEVER:
        if _BY_POSITION in every and first.run.examples_per_person == 1:
            every[_BY_POSITION] = _joint_gaussian([float(_mu_by_position(first, then).max())])
    elif others := [id_ for id_ in first.used if id_ not in every]:
        best = min(others, key=lambda id_: first.used[id_].epsilon(USUAL_DELTA))
        every[best] = _composed_curve(first.used[best], best, then)
    return replace(first, all=every, followed=(sum(one.steps for one in then), len(then)))


def _composed_curve(
    profile: PrivacyProfile, bound: str, then: Sequence[TrainingRun]
) -> PrivacyProfile:
    """The curve of one bound, composed with those of the runs that followed."""
    often = Counter(then)
    curves = {extra: _profile_by_bound(extra, bound) for extra in often}
    known = {extra: _losses(curve) for extra, curve in curves.items()}
    own = _losses(profile)
    if own is None or None in known.values():
        return _joint_gaussian([profile.gdp(), *(curves[extra].gdp() for extra in then)])
    whole = LossDistributionProfile(own)
    for extra, times in often.items():
        more = self_composed(known[extra], times)
        composed = LossDistributionProfile(whole.pld.compose(more.pld))
        slack = math.fsum([whole.slack, more.slack, composed.slack])
        whole = LossDistributionProfile(composed.pld, slack=slack)
    return whole


@lru_cache(maxsize=16)
def _losses(profile: PrivacyProfile) -> Any:
    """The privacy loss distribution of a profile; None if its losses need larger cells."""
    if least_discretization(profile) > _LOSS_CELL:
        return None
    return to_pld(ChordProfile(profile), discretization=_LOSS_CELL)


@lru_cache(maxsize=64)  # many requests have the same number of steps
def _report_on_extra_steps(extra: TrainingRun) -> PrivacyReport:
    return quick_report(extra)


def _profile_by_bound(extra: TrainingRun, bound: str) -> PrivacyProfile:
    """The profile of the extra steps by this bound, or by the best one if this does not apply."""
    known = _report_on_extra_steps(extra).used
    return (
        known[bound]
        if bound in known
        else known[_report_on_extra_steps(extra).bound_at(USUAL_DELTA)]
    )


def _mu_by_position(first: PrivacyReport, then: Sequence[TrainingRun]) -> Array:
    """mu of all models together for each position of a public order."""
    length = first.run.batches.batches_per_epoch
    squares = np.full(length, joint_mu(first.other_releases) ** 2)
    begun = 0
    for run in (first.run, *then):
        own = _squared_mus(run)
        squares[(begun + np.arange(own.size)) % length] += own
        begun += run.steps
    return np.asarray(up(np.sqrt(squares), THOUSANDS_OF_ROUNDINGS))


@lru_cache(maxsize=64)
def _squared_mus(run: TrainingRun) -> Array:
    """mu^2 of each position, beginning with the one in the first step."""
    bound: Bound = CATALOGUE[_BY_POSITION]
    positions = bound.positions(run)
    assert positions is not None
    return np.array([one.gdp() for one in positions]) ** 2


def _joint_gaussian(mus: Sequence[float]) -> GaussianProfile:
    return GaussianProfile(at_least(math.hypot(*mus), ulps=len(mus)))
