r"""Several models published in turn, each of which goes on from the one before.

Whoever holds all of them knows where the steps of each began.  So these are a run of their own,
from a point that is public, on batches that are drawn anew: what chance hides there, it hides from
everybody, and amplification by sampling, hidden places and noise on release count as in any run
that short.  Guarantees that hold from every start compose, whatever was published before (Zhu, Dong
and Wang 2022, Theorem 10; Dong, Roth and Su 2022, Theorem 3.2).

**A public order** goes on where it was left.  The example at a place then has
:math:`\mu^2 = \sum_i \mu_i^2`, of its own participations in each of the runs: who is seen soon
after a publication was not seen just before it.  For linear gradients that is exact.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from lastiterate._numerics.arrays import Array
from lastiterate._numerics.rounding import THOUSANDS_OF_ROUNDINGS, at_least, up
from lastiterate.accounting import USUAL_DELTA, PrivacyReport, account
from lastiterate.bounds.bound import Bound
from lastiterate.bounds.catalogue import CATALOGUE
from lastiterate.other_releases import Release, joint_mu
from lastiterate.profile.chord_curve import ChordCurve
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.profile.pld import (
    LossDistributionProfile,
    least_discretization,
    self_composed,
    to_pld,
)
from lastiterate.profile.privacy_profile import PrivacyProfile, check_order
from lastiterate.run.batch_rules.rules import Resampling
from lastiterate.run.training_run import TrainingRun

_CELL = 2e-3  # of losses: finer ones change the fifth digit
_BY_POSITION = "fixed-order/convex"


def quick_report(run: TrainingRun, other_releases: Sequence[Release] = ()) -> PrivacyReport:
    """The account of a run by bounds that are quick beside others; the rest gains little there."""
    report = account(run, other_releases=other_releases)
    return (
        report.cheap()
        if run.batches.resampling in (Resampling.ONCE, Resampling.EACH_EPOCH)
        else report
    )


def in_turn(first: PrivacyReport, then: Sequence[TrainingRun]) -> PrivacyReport:
    """The report on the first model and its successors together, for people who are in all."""
    if not then:
        return first
    every: dict[str, PrivacyProfile] = {
        id_: _gaussian([profile.gdp(), *(_short(extra).gdp() for extra in then)])
        for id_, profile in first.used.items()
        if isinstance(profile, GaussianProfile) or first.run.batches.resampling is Resampling.NEVER
    }
    if first.run.batches.resampling is Resampling.NEVER:
        if _BY_POSITION in every and first.run.examples_per_person == 1:
            every[_BY_POSITION] = _gaussian([float(_by_place(first, then).max())])
    elif others := [id_ for id_ in first.used if id_ not in every]:
        best = min(others, key=lambda id_: first.used[id_].epsilon(USUAL_DELTA))
        every[best] = _hidden(first.used[best], best, then)
    return replace(first, all=every, followed=(sum(one.steps for one in then), len(then)))


def _hidden(profile: PrivacyProfile, bound: str, then: Sequence[TrainingRun]) -> PrivacyProfile:
    """The curve of one bound, composed with those of the runs that followed."""
    often = Counter(then)
    curves = {extra: _by_bound(extra, bound) for extra in often}
    known = {extra: _losses(curve) for extra, curve in curves.items()}
    own = _losses(profile)
    if own is None or None in known.values():
        return _gaussian([profile.gdp(), *(curves[extra].gdp() for extra in then)])
    whole = LossDistributionProfile(own)
    for extra, times in often.items():
        more = self_composed(known[extra], times)
        composed = LossDistributionProfile(whole.pld.compose(more.pld))
        slack = math.fsum([whole.slack, more.slack, composed.slack])
        whole = LossDistributionProfile(composed.pld, slack=slack)
    return whole


@lru_cache(maxsize=16)
def _losses(profile: PrivacyProfile) -> Any:
    """None where they are too large to be told apart so finely."""
    if least_discretization(profile) > _CELL:
        return None
    return to_pld(_ByChords(profile), discretization=_CELL)


@lru_cache(maxsize=64)  # many requests take as many steps
def _short(extra: TrainingRun) -> PrivacyReport:
    return quick_report(extra)


def _by_bound(extra: TrainingRun, bound: str) -> PrivacyProfile:
    """The profile by this bound if it covers these steps, too, else by the best that does."""
    known = _short(extra).used
    return known[bound] if bound in known else known[_short(extra).bound_at(USUAL_DELTA)]


def _by_place(first: PrivacyReport, then: Sequence[TrainingRun]) -> Array:
    """mu of all models together for each place of a public order."""
    length = first.run.batches.batches_per_epoch
    squares = np.full(length, joint_mu(first.other_releases) ** 2)
    begun = 0
    for run in (first.run, *then):
        own = _squares(run)
        squares[(begun + np.arange(own.size)) % length] += own
        begun += run.steps
    return np.asarray(up(np.sqrt(squares), THOUSANDS_OF_ROUNDINGS))


@lru_cache(maxsize=64)
def _squares(run: TrainingRun) -> Array:
    """mu^2 of each place, beginning with that which the first step sees."""
    bound: Bound = CATALOGUE[_BY_POSITION]
    positions = bound.positions(run)
    assert positions is not None
    return np.array([one.gdp() for one in positions]) ** 2


def _gaussian(mus: Sequence[float]) -> GaussianProfile:
    return GaussianProfile(at_least(math.hypot(*mus), ulps=len(mus)))


class _ByChords(PrivacyProfile):
    """A profile by chords of its curve, for one whose many points take long."""

    def __init__(self, profile: PrivacyProfile) -> None:
        self._profile = profile
        self._curve = ChordCurve(profile.epsilon, profile.deltas)

    def deltas(self, epsilons: Array) -> Array:
        return self._curve.on_both_sides(epsilons)

    def renyi(self, order: float) -> float:
        return self._profile.renyi(check_order(order))

    def gdp(self) -> float:
        return self._profile.gdp()
