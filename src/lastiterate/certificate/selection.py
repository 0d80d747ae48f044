"""Certificate records of a model that is the best of several tries, and what they imply."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lastiterate.accounting import PrivacyReport, account
from lastiterate.certificate.arithmetic_record import NAME, stated_problem
from lastiterate.errors import InvalidCertificate, InvalidParameter
from lastiterate.other_releases import ACCURACY, ERRORS, Release, without_published
from lastiterate.other_releases import from_record as from_release
from lastiterate.profile.rounded import Rounding
from lastiterate.profile.selection import AverageProfile, SelectedProfile, Tries
from lastiterate.run.serialise import from_dict, to_dict
from lastiterate.run.training_run import TrainingRun
from lastiterate.train.arithmetic import arithmetic
from lastiterate.train.data import checked_bounds
from lastiterate.train.objectives import Objective, from_record
from lastiterate.train.run_claims import broken_promises

LAW = (
    "truncated negative binomial; drawn from the generator under randomness, as is every try's "
    "setting, evenly; their number and all tries but the best are discarded"
)
PUBLIC_SCORE = "on public data"
PRIVATE_SCORE = "on the training data, with noise, as listed under other_releases"
SCORE_KINDS = (ACCURACY, ERRORS)
SCORES = (PUBLIC_SCORE, PRIVATE_SCORE)


def candidate_record(
    report: PrivacyReport, objective: Objective, features: Mapping[str, Any]
) -> dict[str, Any]:
    """The certificate's record of one setting that might have been tried."""
    return {
        "run": to_dict(report.run),
        "other_releases": [release.as_record() for release in report.other_releases],
        "objective": objective.as_record(),
        "features": dict(features),
    }


def selection_record(
    tries: Tries, candidates: Sequence[Mapping[str, Any]], *, score: float, scored: str
) -> dict[str, Any]:
    """The certificate's record of the choice among the tries."""
    return {
        "law": LAW,
        "shape": tries.shape,
        "stop": tries.stop,
        "score": {"scored": scored, "published": score},
        "candidates": [dict(one) for one in candidates],
    }


def selected(reports: Sequence[PrivacyReport], tries: Tries) -> SelectedProfile:
    """The guarantee of the best of the tries, each of one of these, drawn evenly."""
    return SelectedProfile(AverageProfile(reports), tries)


def as_selected(chosen: PrivacyReport, profile: SelectedProfile, *, bound: str) -> PrivacyReport:
    """The report of the chosen run, as one of the tries."""
    return replace(chosen, all={bound: profile}, selected=True)


def selected_report(
    record: Mapping[str, Any], chosen: PrivacyReport, *, slack: float
) -> PrivacyReport:
    """The report that a certificate of a choice implies; raises if there are reasons against it."""
    stated, bound = record["selection"], record["guarantee"]["bound"]
    reasons = [] if bound in chosen.all else [f"its bound {bound!r} does not cover the run"]
    if stated["law"] != LAW or stated["score"]["scored"] not in SCORES:
        reasons.append("how its tries were made is unknown")
    if _as_candidate(record) not in [_as_candidate(one) for one in stated["candidates"]]:
        reasons.append("its run is not one of its candidates")
    if stated["score"]["scored"] == PRIVATE_SCORE and not _have_one_score(stated["candidates"]):
        reasons.append("its candidates are not all listed with the same score")
    for one in stated["candidates"]:
        if from_dict(one["run"]).adjacency != chosen.run.adjacency:
            reasons.append("its candidates have different adjacencies")
        if not isinstance(one["other_releases"], list):
            reasons.append("other releases of its candidates are no list")
        reasons += _broken(one, slack=slack)
    if reasons:  # what does not hold anyway is not worth the time of accounting
        raise InvalidCertificate(reasons)
    reports: list[PrivacyReport] = []
    for one in stated["candidates"]:
        run = from_dict(one["run"])
        other_releases = [
            from_release(each, adjacency=run.adjacency) for each in one["other_releases"]
        ]
        known = [
            each
            for each in reports
            if each.run == run and list(each.other_releases) == other_releases
        ]
        reports.append(known[0] if known else _report(record, one, run, other_releases))
    tries = Tries(stated["shape"], stated["stop"])
    return as_selected(chosen, selected(reports, tries), bound=bound)


def _have_one_score(candidates: Sequence[Mapping[str, Any]]) -> bool:
    """Whether every candidate lists one noisy score, and all of them the same."""
    scores = [
        [without_published(one) for one in each["other_releases"] if one["kind"] in SCORE_KINDS]
        for each in candidates
    ]
    return all(len(one) == 1 and one == scores[0] for one in scores)


def _report(
    record: Mapping[str, Any],
    one: Mapping[str, Any],
    run: TrainingRun,
    other_releases: Sequence[Release],
) -> PrivacyReport:
    """The report on one candidate, computed as the certificate states."""
    exact = account(run, other_releases=other_releases)
    rounding = _rounding(record, one, run, other_releases)
    return exact if rounding is None else exact.computed(rounding)


def candidate_roundings(record: Mapping[str, Any]) -> list[Rounding | None]:
    """The rounding of every candidate of a certificate, None where it is not charged."""
    found = []
    for one in record["selection"]["candidates"]:
        run = from_dict(one["run"])
        releases = [from_release(each, adjacency=run.adjacency) for each in one["other_releases"]]
        found.append(_rounding(record, one, run, releases))
    return found


def _rounding(
    record: Mapping[str, Any],
    one: Mapping[str, Any],
    run: TrainingRun,
    other_releases: Sequence[Release],
) -> Rounding | None:
    stated = {NAME: record[NAME], "features": one["features"]}
    problem = stated_problem(stated, from_record(one["objective"]), other_releases)
    if problem is None:
        return None
    try:
        return arithmetic([run], problem, other_releases).rounding
    except InvalidParameter:
        return Rounding(math.inf, 1.0)  # which nothing follows from


def _broken(one: Mapping[str, Any], *, slack: float) -> Iterator[str]:
    features = one["features"]
    checked_bounds(features["bound"], features["intercept"])
    radius = math.hypot(features["bound"], features["intercept"])
    objective = from_record(one["objective"])
    for broken in broken_promises(from_dict(one["run"]), objective, radius, slack=slack):
        yield f"a candidate's {broken}".removesuffix(".")


def _as_candidate(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record of one setting in a certificate or a candidate, without published values."""
    other_releases = [without_published(one) for one in record["other_releases"]]
    same = {name: record[name] for name in ("run", "objective", "features")}
    return same | {"other_releases": other_releases}
