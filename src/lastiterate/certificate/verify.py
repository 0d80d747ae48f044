"""Verification: everything that a certificate implies is derived again from its run and objective.

A digest over the whole text catches changes of what cannot be derived (versions, where the
randomness came from, which model it belongs to), unless the digest is forged too: against that
there are signatures.  A model that is the best of several tries has a certificate that lists every
setting that might have been tried; the guarantee of the choice is derived from all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import lastiterate
from lastiterate import _check
from lastiterate._files import with_an_end
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, down
from lastiterate.accounting import PrivacyReport, account
from lastiterate.certificate import fields
from lastiterate.certificate.fields import (
    ARITHMETIC,
    stated_problem,
    wrong_arithmetic,
    wrong_statements,
)
from lastiterate.certificate.signature import wrong_signature
from lastiterate.certificate.unlearning import (
    EARLIER,
    UNLEARNING,
    UnlearningHistory,
    broken_links,
    chain_of,
    kept_releases,
    wrong_promise,
)
from lastiterate.errors import (
    InvalidCertificate,
    InvalidParameter,
    InvalidType,
    LastIterateError,
    OtherVersionCertificate,
    PrivacyWarning,
    version_in,
    warn,
)
from lastiterate.other_releases import (
    ACCURACY,
    ERRORS,
    Release,
    release_from_record,
    without_published,
)
from lastiterate.profile.rounded import Rounding
from lastiterate.profile.selection import AverageProfile, SelectedProfile, Tries
from lastiterate.report.sentences import fitted_steps_text
from lastiterate.run.serialise import from_dict, to_dict, unambiguous_json
from lastiterate.run.training_run import TrainingRun
from lastiterate.train.arithmetic import arithmetic
from lastiterate.train.data import checked_bounds
from lastiterate.train.noise import REPRODUCIBLE
from lastiterate.train.objectives import Objective, broken_promises, from_record

# Errors that a value of an unexpected type may raise.
READ_ERRORS = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    LastIterateError,
)
MOST_STEPS = 10_000_000  # which take about half a minute, and less than 2 GB
MOST_PER_PERSON = 1_000  # which take some minutes
MOST_DRAWN_EPOCHS = 1_000  # whose batches are drawn together
MOST_STEPS_OF_PERSON = 2_000_000  # where a person has several examples
_DRAWN_FOR_EVERY_STEP = ("PoissonSampled", "SampledWithoutReplacement")
_VERSIONS = ("format", "software")
_RELATIVE_SLACK = 1e-12  # relative; other machines may round the same constants otherwise
LAW = (
    "truncated negative binomial; drawn from the generator under randomness, as is every try's "
    "setting, evenly; their number and all tries but the best are discarded"
)
PUBLIC_SCORE = "on public data"
PRIVATE_SCORE = "on the training data, with noise, as listed under other_releases"
SCORE_KINDS = (ACCURACY, ERRORS)
SCORES = (PUBLIC_SCORE, PRIVATE_SCORE)


@dataclass(frozen=True)
class VerifiedCertificate:
    """The content of a valid certificate; `radius` bounds the norm of a row with its intercept."""

    report: PrivacyReport
    objective: Objective
    radius: float
    seeded: bool
    requests: UnlearningHistory
    training_report: PrivacyReport  # of the first model, if unlearning requests followed
    fitted_steps: tuple[str, ...] = ()  # preprocessing that learnt from the same examples

    def warn(self) -> None:
        """Warn of what voids the guarantee, or is outside of it."""
        if self.seeded:
            warn(f"the training was {REPRODUCIBLE}", PrivacyWarning)
        if self.fitted_steps:
            warn(fitted_steps_text(self.fitted_steps), PrivacyWarning)


def verify(
    certificate: str | Path, *, parameters: Any = None, signed_by: str | Path | None = None
) -> PrivacyReport:
    """The report that the certificate's run implies, or `InvalidCertificate` with every reason.

    The run is accounted for if nothing else is wrong, and refused if that would take hours.
    It warns if the training had a seed, since the guarantee then fails against anyone who knows
    the seed, and if preprocessing learnt from the same examples, which no number here includes.
    It cannot check that the run took place as described and that nothing else was published.
    A certificate with unknown fields is refused.

    Parameters
    ----------
    certificate : str or Path
        The JSON text, or the file that holds it.
    parameters : array, optional
        The published parameters (`model.parameters_`), to check that they are the certified ones.
    signed_by : str or Path, optional
        A file with a public key (Ed25519), to check that its owner signed the certificate.

    Returns
    -------
    PrivacyReport
        The report that the run implies.

    Raises
    ------
    InvalidCertificate
        If anything in the certificate does not follow from its run, with every reason.
    OtherVersionCertificate
        If another version issued it, in a format that this one cannot check.

    Examples
    --------
    >>> from lastiterate import verify
    >>> verify("{}")
    Traceback (most recent call last):
    lastiterate.errors.InvalidCertificate: ...
    """
    content = verified_certificate(certificate, parameters=parameters, signed_by=signed_by)
    content.warn()
    return content.report


def verified_certificate(
    certificate: str | Path,
    *,
    parameters: Any = None,
    signed_by: str | Path | None = None,
    encoding: Mapping[str, Any] | None = None,
) -> VerifiedCertificate:
    """The content of a valid certificate, or `InvalidCertificate` with every reason."""
    record = read(certificate)
    _refuse_too_large(record)
    derived = _derive_chain if UNLEARNING in record or EARLIER in record else _derive_training
    try:
        content, reasons = derived(record, signed_by)
    except MemoryError:
        raise InvalidCertificate(["there is not enough memory here to derive it again"]) from None
    shape = _parameter_shape(content.objective, record["features"])
    if parameters is not None and (
        record.get("model") != fields.model_digest(parameters) or np.shape(parameters) != shape
    ):
        reasons.append("it belongs to another model")
    if encoding is not None and record["encoding"] != fields.encoding_digest(encoding):
        reasons.append("it belongs to a model of other columns, ranges, values or classes")
    if reasons:
        raise InvalidCertificate(reasons)
    return content


def read(certificate: str | Path) -> Mapping[str, Any]:
    """The record of a certificate, whose content is not checked."""
    text = _certificate_text(certificate)
    try:
        record = unambiguous_json(text)
    except (ValueError, RecursionError) as error:
        raise InvalidCertificate([f"it is not JSON ({error})"]) from error
    if not isinstance(record, dict):
        raise InvalidCertificate(["it is not a JSON object"])
    refuse_other_version(record)
    return record


def _certificate_text(certificate: str | Path) -> str:
    """The JSON text itself, or that of the file or folder, if a path was given."""
    must_be = "the text of a certificate, which is JSON, or the path of a file that holds one"
    if not isinstance(certificate, (str, Path)):
        raise InvalidType("certificate", certificate, must_be=must_be)
    if isinstance(certificate, str) and certificate.lstrip().startswith("{"):
        return certificate
    try:
        path = Path(certificate or "no file")
        if path.is_dir():
            return with_an_end(path / "certificate.json").read_text(encoding="utf-8")
        return with_an_end(path).read_text(encoding="utf-8")
    except PermissionError:
        raise
    except (OSError, ValueError):
        found = f"{str(certificate)[:80]!r}, which is neither"
        raise InvalidParameter("certificate", must_be=must_be, found=found) from None


def refuse_other_version(record: Mapping[str, Any]) -> None:
    """Raise `OtherVersionCertificate` if another version issued a certificate, in its own words."""
    chain = record.get(EARLIER, [])
    for one in (*(chain if isinstance(chain, list) else []), record):
        found, software = (one.get(name) if isinstance(one, dict) else None for name in _VERSIONS)
        other = version_in(software) not in (None, lastiterate.__version__)
        if other and type(found) is int and found != fields.FORMAT:
            known = f"format {fields.FORMAT}"
            raise OtherVersionCertificate.of("the certificate", f"format {found}", known, software)


def refuse_unverifiable(name: str, record: Mapping[str, Any]) -> None:
    """Raise, before anything is trained, if `verify` would refuse its certificate as too large.

    `record` holds the runs where a certificate does; `name` is of the argument to change.
    """
    try:
        _refuse_too_large(record)
    except InvalidCertificate as error:
        must_be = "smaller, so that its certificate can be verified"
        raise InvalidParameter(name, must_be=must_be, found=", ".join(error.reasons)) from None


def _refuse_too_large(record: Mapping[str, Any]) -> None:
    """Raise if runs are so large, all together, that deriving them would take hours or more.

    What is stated costs its author nothing, and deriving it costs time and memory in proportion.
    """
    steps, waiting = 0.0, [record]
    while waiting:
        one = waiting.pop()
        run, selection = one.get("run"), one.get("selection")
        if isinstance(run, dict):
            steps += _number_or_zero(run, "steps")
            _refuse_large_groups(run)
        candidates = selection.get("candidates") if isinstance(selection, dict) else None
        for part in (one.get(EARLIER), candidates):
            if isinstance(part, list):
                waiting += [each for each in part if isinstance(each, dict)]
    _refuse_above(MOST_STEPS, steps, "steps")


def _refuse_large_groups(run: Mapping[str, Any]) -> None:
    """Raise if one person, or one draw of batches, has so much that its cost takes hours."""
    people, batches = _number_or_zero(run, "examples_per_person"), run.get("batches")
    _refuse_above(MOST_PER_PERSON, people, "examples of a person")
    if people > 1:
        several = "steps times examples of a person"
        _refuse_above(MOST_STEPS_OF_PERSON, people * _number_or_zero(run, "steps"), several)
    if isinstance(batches, dict) and batches.get("kind") not in _DRAWN_FOR_EVERY_STEP:
        size = max(_number_or_zero(batches, "batch_size"), 1.0)
        of_epoch = _number_or_zero(batches, "examples") / size
        _refuse_above(
            MOST_DRAWN_EPOCHS, _number_or_zero(batches, "epochs"), "epochs in a draw of its batches"
        )
        drawn = of_epoch * max(_number_or_zero(batches, "epochs"), 1.0)
        _refuse_above(MOST_STEPS, drawn, "steps in a draw of its batches")


def _number_or_zero(record: Mapping[str, Any], name: str) -> float:
    """The number under this name, which may be written as 1e6; 0 if it is anything else."""
    value = record.get(name)
    try:
        return float(value) if isinstance(value, int | float) else 0.0
    except OverflowError:
        return math.inf


def _refuse_above(most: int, stated: float, what: str) -> None:
    if not stated <= most:
        why = f"its runs have {stated:,.0f} {what}, too many to check here: at most {most:,}"
        raise InvalidCertificate([why])


def _derive_training(
    record: Mapping[str, Any], signed_by: str | Path | None
) -> tuple[VerifiedCertificate, list[str]]:
    """Derived content of a training's certificate, and the reasons why it does not hold."""
    reasons = _wrong_seals(record, signed_by)
    try:
        run, objective = from_dict(record["run"]), from_record(record["objective"])
        features = record["features"]
        radius = math.hypot(features["bound"], features["intercept"])
        for broken in broken_promises(run, objective, radius, slack=_RELATIVE_SLACK):
            reasons.append(f"its {broken}".removesuffix("."))
        other_releases = _stated_releases(record["other_releases"], run)
        seeded = record["randomness"] == REPRODUCIBLE
        problem = stated_problem(record, objective, other_releases)
        rounding, wrong = wrong_arithmetic(record, problem, [run], other_releases, seeded=seeded)
        reasons += wrong
        reasons += wrong_statements(record, run)
        _parameter_shape(objective, features)
        requests = history_before_requests(record)
        if reasons:  # what does not hold anyway is not worth the time of accounting
            raise InvalidCertificate(reasons)
        report = account(run, other_releases=other_releases)
        report = report if rounding is None else report.computed(rounding)
        if "selection" in record:
            report = selected_report(record, report)
        reasons += _wrong_guarantee(report, record["guarantee"])
    except InvalidCertificate:
        raise
    except READ_ERRORS as error:
        raise InvalidCertificate([*reasons, f"it cannot be read ({error!r})"]) from error
    caveats = fields.caveats(record["labels"], record.get("trusted"))
    fitted = fields.fitted_steps(record)
    report = replace(report, enforced=True, seeded=seeded, caveats=caveats, preprocessing=fitted)
    return VerifiedCertificate(report, objective, radius, seeded, requests, report, fitted), reasons


def _derive_chain(
    record: Mapping[str, Any], signed_by: str | Path | None
) -> tuple[VerifiedCertificate, list[str]]:
    """Derived content of a training and its requests, and the reasons why it does not hold."""
    try:
        chain = chain_of(record)
        reasons = broken_links(chain)
        if reasons:
            raise InvalidCertificate(reasons)
        first, reasons = _derive_training(chain[0].record, signed_by)
        requests, any_seeded = first.requests, first.seeded
        if chain[0].record.get("selection") is not None:
            reasons.append("it follows a choice among several tries")
        for link in chain[1:]:
            own = link.record
            reasons += _wrong_seals(own, signed_by)
            run = from_dict(own["run"])
            requests = requests.with_request(len(link.removed), run.steps, run.release_noise_std)
            if own["run"] != to_dict(requests.extra_run(requests.done[-1].taken)):
                reasons.append(f"request {len(requests.done)} has steps unlike the training's")
            reasons += wrong_promise(link, requests.request_guarantee(len(requests.done) - 1))
            reasons += _wrong_guarantee(requests.retained_report, own["guarantee"])
            reasons += wrong_statements(own, requests.retained_report.run)
            seeded = own["randomness"] == REPRODUCIBLE
            _, wrong = wrong_arithmetic(
                own, requests.problem, requests.runs, requests.other_releases, seeded=seeded
            )
            reasons += wrong
            any_seeded = any_seeded or seeded
    except InvalidCertificate:
        raise
    except READ_ERRORS as error:
        raise InvalidCertificate([f"it cannot be read ({error!r})"]) from error
    report = replace(
        requests.retained_report,
        seeded=any_seeded,
        caveats=first.report.caveats,
        preprocessing=first.fitted_steps,
    )
    return replace(first, report=report, seeded=any_seeded, requests=requests), reasons


def history_before_requests(record: Mapping[str, Any]) -> UnlearningHistory:
    """The training that a certificate describes, before any request; nothing is checked."""
    run, features = from_dict(record["run"]), record["features"]
    other_releases = _stated_releases(kept_releases(record["other_releases"]), run)
    radius = math.hypot(features["bound"], features["intercept"])
    objective = from_record(record["objective"])
    problem = stated_problem(record, objective, other_releases)
    return UnlearningHistory(run, tuple(other_releases), objective, radius, problem=problem)


def _stated_releases(records: Sequence[Mapping[str, Any]], run: TrainingRun) -> list[Release]:
    return [release_from_record(one, adjacency=run.adjacency) for one in records]


def _wrong_seals(record: Mapping[str, Any], signed_by: str | Path | None) -> list[str]:
    reasons = []
    if record.get("digest") != fields.digest(record):
        reasons.append("its digest is not that of its text")
    if signed_by is not None and (wrong := wrong_signature(record, signed_by)) is not None:
        reasons.append(wrong)
    return reasons


def _wrong_guarantee(report: PrivacyReport, guarantee: Mapping[str, Any]) -> list[str]:
    epsilon = report.epsilon(guarantee["delta"])
    reasons = []
    _check.number("guarantee.delta", guarantee["delta"], at_least=0.0, below=1.0)
    stated = _check.number("guarantee.epsilon", guarantee["epsilon"], at_least=0.0)
    if not stated >= down(epsilon, MILLIONS_OF_ROUNDINGS):
        reasons.append(f"it states epsilon {guarantee['epsilon']!r}, but the run has {epsilon!r}")
    if guarantee["adjacency"] != report.run.adjacency:
        reasons.append("its adjacency is not the run's")
    if guarantee["bound"] not in report.all:
        reasons.append(f"its bound {guarantee['bound']!r} does not cover the run")
    return reasons


def _parameter_shape(objective: Objective, features: Mapping[str, Any]) -> tuple[int, int]:
    """Shape of the parameters."""
    width = _check.count("features.width", features["width"], at_least=1)
    names = ("features.bound", "features.intercept")
    _, intercept = checked_bounds(features["bound"], features["intercept"], names=names)
    return objective.outputs, width + (intercept > 0.0)


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


def selected_report(record: Mapping[str, Any], chosen: PrivacyReport) -> PrivacyReport:
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
        reasons += _broken_in_candidate(one)
    if reasons:  # what does not hold anyway is not worth the time of accounting
        raise InvalidCertificate(reasons)
    reports: list[PrivacyReport] = []
    for one in stated["candidates"]:
        run = from_dict(one["run"])
        other_releases = _stated_releases(one["other_releases"], run)
        known = [
            each
            for each in reports
            if each.run == run and list(each.other_releases) == other_releases
        ]
        reports.append(known[0] if known else _candidate_report(record, one, run, other_releases))
    tries = Tries(stated["shape"], stated["stop"])
    return as_selected(chosen, selected(reports, tries), bound=bound)


def _have_one_score(candidates: Sequence[Mapping[str, Any]]) -> bool:
    """Whether every candidate lists one noisy score, and all of them the same."""
    scores = [
        [without_published(one) for one in each["other_releases"] if one["kind"] in SCORE_KINDS]
        for each in candidates
    ]
    return all(len(one) == 1 and one == scores[0] for one in scores)


def _candidate_report(
    record: Mapping[str, Any],
    one: Mapping[str, Any],
    run: TrainingRun,
    other_releases: Sequence[Release],
) -> PrivacyReport:
    """The report on one candidate, computed as the certificate states."""
    exact = account(run, other_releases=other_releases)
    rounding = _candidate_rounding(record, one, run, other_releases)
    return exact if rounding is None else exact.computed(rounding)


def candidate_roundings(record: Mapping[str, Any]) -> list[Rounding | None]:
    """The rounding of every candidate of a certificate, None where it is not charged."""
    found = []
    for one in record["selection"]["candidates"]:
        run = from_dict(one["run"])
        releases = _stated_releases(one["other_releases"], run)
        found.append(_candidate_rounding(record, one, run, releases))
    return found


def _candidate_rounding(
    record: Mapping[str, Any],
    one: Mapping[str, Any],
    run: TrainingRun,
    other_releases: Sequence[Release],
) -> Rounding | None:
    stated = {ARITHMETIC: record[ARITHMETIC], "features": one["features"]}
    problem = stated_problem(stated, from_record(one["objective"]), other_releases)
    if problem is None:
        return None
    try:
        return arithmetic([run], problem, other_releases).rounding
    except InvalidParameter:
        return Rounding(math.inf, 1.0)  # which nothing follows from


def _broken_in_candidate(one: Mapping[str, Any]) -> Iterator[str]:
    features = one["features"]
    checked_bounds(features["bound"], features["intercept"])
    radius = math.hypot(features["bound"], features["intercept"])
    objective = from_record(one["objective"])
    run = from_dict(one["run"])
    for broken in broken_promises(run, objective, radius, slack=_RELATIVE_SLACK):
        yield f"a candidate's {broken}".removesuffix(".")


def _as_candidate(record: Mapping[str, Any]) -> dict[str, Any]:
    """The record of one setting in a certificate or a candidate, without published values."""
    other_releases = [without_published(one) for one in record["other_releases"]]
    same = {name: record[name] for name in ("run", "objective", "features")}
    return same | {"other_releases": other_releases}
