"""Certificates of unlearning requests: each names the certificate that it follows.

A certificate contains all that it follows, the training's first.  Verification derives every
training and request again, and the guarantees for removed and for remaining examples.  Removed
rows are named by digests under a key that only the owner of the data has.

Every request removes some examples and takes extra steps from what was published last, with the
step size, the noise and the batches of the training, in a new order, and noise on release that
may be larger.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any

import lastiterate
from lastiterate import _check
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, at_least, down
from lastiterate.accounting import PrivacyReport
from lastiterate.certificate import fields
from lastiterate.certificate.fields import ARITHMETIC, arithmetic_record
from lastiterate.certificate.issue import stated_guarantee, with_digest
from lastiterate.errors import InvalidCertificate, InvalidParameter
from lastiterate.features.known_maps import FEATURE_MAPS
from lastiterate.other_releases import KINDS, MEAN, OUTLIERS, UNDECLARED, Release
from lastiterate.profile.best import BestProfile
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.profile.rounded import RoundedProfile, Rounding, gdp_but_for_failure
from lastiterate.run.serialise import to_dict
from lastiterate.run.training_run import TrainingRun
from lastiterate.train.arithmetic import Arithmetic, Problem, arithmetic
from lastiterate.train.data import is_digest
from lastiterate.train.noise import REPRODUCIBLE
from lastiterate.train.objectives import Objective
from lastiterate.unlearn.sequential import quick_report, report_on_all_models
from lastiterate.unlearn.unlearning import (
    RequestSteps,
    Unlearning,
    run_of_retained_examples,
    unlearning,
)

UNLEARNING, EARLIER = "unlearning", "earlier"
PROMISED = (
    "what the model publishes is as close, in both directions, to what it would publish had the "
    "removed examples never been part of any sum"
)
NOT_PROMISED = (
    "anything against someone who holds an earlier model too, or where the request depends on a "
    "published model; certificates name earlier models by digest, and the removed under a key"
)
# Fields that a request does not change.
_UNCHANGED = (
    "objective",
    "features",
    "labels",
    "encoding",
    "public",
    "format",
    "data",
    "preprocessing",
    FEATURE_MAPS,
)
_MAX_NOISE_FACTOR = 1e6


@dataclass(frozen=True)
class Link:
    """One certificate of a chain, without those that it follows."""

    record: Mapping[str, Any]

    @property
    def removed(self) -> list[str]:
        """Keyed digests of the removed rows."""
        return list(self.record[UNLEARNING]["removed"]) if self.follows else []

    @property
    def follows(self) -> bool:
        """Whether this is the certificate of a request, not of a training."""
        return UNLEARNING in self.record


def chain_of(record: Mapping[str, Any]) -> list[Link]:
    """The certificates of a chain, first to last."""
    earlier = record.get(EARLIER, [])
    if not isinstance(earlier, list) or not all(isinstance(one, dict) for one in earlier):
        raise InvalidCertificate(["what it follows cannot be read"])
    last = {name: part for name, part in record.items() if name != EARLIER}
    return [Link(one) for one in (*earlier, last)]


def broken_links(chain: Sequence[Link]) -> list[str]:
    """Reasons why these certificates are not one chain; empty if they are."""
    reasons = []
    if chain[0].follows:
        return ["it follows another certificate, which does not come with it"]
    if any(EARLIER in link.record for link in chain) or not all(one.follows for one in chain[1:]):
        return ["what it follows is not a training and its requests"]
    if len(chain) > 1 and not is_digest(chain[0].record.get("data")):
        reasons.append("of its training no digest of the data is known")
    removed: set[str] = set()
    for number, (before, link) in enumerate(pairwise(chain), 1):
        stated = link.record[UNLEARNING]
        where = f"request {number}"
        if before.record.get("digest") != fields.digest(before.record):
            reasons.append(f"the digest of what {where} follows is not that of its text")
        if stated["follows"] != before.record.get("digest"):
            reasons.append(f"{where} does not follow what comes before it")
        if stated["request"] != number:
            reasons.append(f"{where} has another number")
        other = [name for name in _UNCHANGED if link.record.get(name) != before.record.get(name)]
        if kept_releases(before.record["other_releases"]) != link.record["other_releases"]:
            other.append("other_releases")
        if other:
            reasons.append(f"{where} is of another training ({', '.join(other)})")
        own = stated["removed"]
        if not own or not all(map(is_digest, own)) or len({*own}) < len(own) or removed & {*own}:
            reasons.append(f"{where} removes no rows, or some twice")
        removed |= {*own}
    return reasons


def kept_releases(other_releases: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Records of the other releases that are published again with a model after unlearning."""
    return [dict(one) for one in other_releases if one["kind"] in (MEAN, OUTLIERS, UNDECLARED)]


def chain_tied_to_encoding(certificate: str, encoding: Mapping[str, Any]) -> str:
    """The chain with a digest of the model's columns and classes in every certificate.

    A chain that has it already is returned unchanged.  Any other must not be signed.
    """
    record = json.loads(certificate)
    if record["encoding"] == fields.encoding_digest(encoding):
        return certificate
    bound: list[dict[str, Any]] = []
    for link in chain_of(record):
        own = fields.used_as(link.record, encoding)
        if "signature" in own:
            must_be = "one without a signature, which would no longer be that of its text"
            raise InvalidParameter("certificate", must_be=must_be, found="a signed one")
        if bound:
            own[UNLEARNING] = {**own[UNLEARNING], "follows": bound[-1]["digest"]}
        bound.append({**own, "digest": fields.digest(own)})
    *earlier, last = bound
    return with_digest({**last, EARLIER: earlier} if earlier else last)


def issue_request(
    certificate: str,
    requests: UnlearningHistory,
    *,
    removed: Sequence[str],
    parameters: Any,
    delta: float,
    provenance: str,
) -> str:
    """The certificate of the last of these requests, which follows `certificate`."""
    record = json.loads(certificate)
    chain = chain_of(record)
    found = requests.request_guarantee(len(requests.done) - 1)
    guarantee = stated_guarantee(requests.retained_report, record["guarantee"]["delta"])
    own = {
        **{name: record[name] for name in _UNCHANGED if name in record},
        "software": f"lastiterate {lastiterate.__version__}",
        "guarantee": guarantee,
        "run": to_dict(requests.extra_run(requests.done[-1].taken)),
        "other_releases": kept_releases(record["other_releases"]),
        "hypotheses": fields.stated_hypotheses(guarantee["bound"], requests.retained_report.run),
        "randomness": provenance,
        ARITHMETIC: _arithmetic(record, requests, seeded=provenance == REPRODUCIBLE),
        "model": fields.model_digest(parameters),
        UNLEARNING: {
            "follows": record["digest"],
            "request": len(chain),
            "removed": list(removed),
            "guarantee": _guarantee_record(found, delta),
            "promised": PROMISED,
            "not promised": NOT_PROMISED,
        },
    }
    return with_digest(own | {EARLIER: [link.record for link in chain]})


def _arithmetic(
    record: Mapping[str, Any], requests: UnlearningHistory, *, seeded: bool
) -> dict[str, Any]:
    """The record of the arithmetic of the training and of all requests together."""
    stated = record[ARITHMETIC]
    if requests.problem is None:
        return dict(stated)
    return arithmetic_record(
        requests.arithmetic,
        requests.problem,
        precision=stated["products"],
        seeded=seeded,
    )


def _guarantee_record(found: Unlearning, delta: float) -> dict[str, Any]:
    """The record of the guarantee for the removed examples."""
    return {
        "epsilon": found.epsilon(delta),
        "delta": delta,
        "examples": found.examples,
        "bound": found.report.bound_at(delta),
    }


def wrong_promise(link: Link, found: Unlearning) -> list[str]:
    """Reasons why the stated promise of an unlearning request does not follow from its steps."""
    stated = link.record[UNLEARNING]
    guarantee = stated["guarantee"]
    where = f"request {stated['request']}"
    reasons = []
    epsilon = found.epsilon(guarantee["delta"])
    given = _check.number("guarantee.epsilon", guarantee["epsilon"], at_least=0.0)
    if not given >= down(epsilon, MILLIONS_OF_ROUNDINGS):
        reasons.append(f"{where} states epsilon {given!r}, but its steps give {epsilon!r}")
    if guarantee["examples"] != len(stated["removed"]):
        reasons.append(f"{where} promises for another number of examples than it removes")
    if guarantee["bound"] not in found.report.all:
        reasons.append(f"{where} names a bound that does not cover it")
    if (stated["promised"], stated["not promised"]) != (PROMISED, NOT_PROMISED):
        reasons.append(f"{where} does not say what is promised")
    return reasons


@dataclass(frozen=True)
class UnlearningRequest:
    """The number of removed examples, and the extra steps."""

    examples: int
    taken: RequestSteps

    @property
    def steps(self) -> int:
        return self.taken.steps


@dataclass(frozen=True)
class UnlearningHistory:
    """A training, the other releases from its data, and its unlearning requests in order."""

    run: TrainingRun
    other_releases: tuple[Release, ...]
    objective: Objective
    radius: float
    done: tuple[UnlearningRequest, ...] = ()
    problem: Problem | None = None  # None where rounding is not charged

    def with_request(
        self, examples: int, steps: int, release_noise_std: float
    ) -> UnlearningHistory:
        """The history with one more request."""
        taken = RequestSteps(steps, release_noise_std)
        return replace(self, done=(*self.done, UnlearningRequest(examples, taken)))

    def noise(self, noisier: float) -> float:
        """Noise on release that is `noisier` times the training's."""
        times = _check.number("noisier", noisier, at_least=1.0, at_most=_MAX_NOISE_FACTOR)
        return times * self.run.release_noise_std

    def plan_request(
        self, examples: int, *, epsilon: float, delta: float, noise: float
    ) -> Unlearning:
        """The next request with the fewest steps that reach the target, at least one."""
        target = epsilon
        while True:
            found = self._unlearning(
                len(self.done), RequestSteps(0, noise), examples, epsilon=target, delta=delta
            )
            steps = max(found.extra_steps, 1)
            result = self.with_request(examples, steps, noise).request_guarantee(len(self.done))
            reached = result.epsilon(delta)
            if reached <= epsilon or found.extra_steps == 0:
                return result
            # Rounding costs hardly anything, but more than nothing.
            target = down(min(target * epsilon / reached, target), MILLIONS_OF_ROUNDINGS)

    def request_guarantee(self, number: int) -> Unlearning:
        """Guarantee of request `number`, counted from 0, for the model that it published."""
        return _request_guarantee(replace(self, done=self.done[: number + 1]))

    def current_request_guarantee(self, number: int) -> Unlearning:
        """Guarantee of request `number` for the last model, after all later steps."""
        later = self.done[number:]
        taken = RequestSteps(sum(one.steps for one in later), later[-1].taken.release_noise_std)
        found = self._unlearning(number, taken, later[0].examples, extra_steps=taken.steps)
        return self._as_computed(found)

    def _as_computed(self, found: Unlearning) -> Unlearning:
        """The guarantee of what was computed in all these runs."""
        return replace(found, report=self.computed_report(found.report))

    @cached_property
    def joint_request_guarantee(self) -> PrivacyProfile:
        """Joint guarantee of the last model for all removed examples: the sum of mu, rounded up."""
        found = [self.current_request_guarantee(number) for number in range(len(self.done))]
        mus = [gdp_but_for_failure(one.report) for one in found]
        joint = GaussianProfile(at_least(sum(mus), ulps=2.0 * len(mus)))
        if self.problem is None:
            return joint
        # The distance is in every mu already.
        return RoundedProfile(joint, Rounding(0.0, self.arithmetic.failure))

    def computed_report(self, exact: PrivacyReport) -> PrivacyReport:
        """The report on what was computed in all these runs, if rounding is charged."""
        return exact if self.problem is None else exact.computed(self.arithmetic.rounding)

    @property
    def arithmetic(self) -> Arithmetic:
        """The arithmetic of the training and of all requests together."""
        assert self.problem is not None
        return _history_arithmetic(self.runs, self.problem, self.other_releases)

    @property
    def runs(self) -> tuple[TrainingRun, ...]:
        """The training and the extra steps of every request, each from what was published last."""
        return (self.run, *(self.extra_run(one.taken) for one in self.done))

    def extra_run(self, taken: RequestSteps) -> TrainingRun:
        """The extra steps as a run that starts at the published parameters."""
        steps = _check.count("extra_steps", taken.steps, at_least=1)
        return self.run.replace(steps=steps, release_noise_std=taken.release_noise_std)

    @property
    def retained_report(self) -> PrivacyReport:
        """Guarantee of all published models together, for the remaining examples."""
        return _retained_report(self)

    @property
    def retained_against_last_model(self) -> PrivacyProfile:
        """Guarantee for the remaining examples against someone who holds the last model alone."""
        return _retained_against_last_model(self)

    def _unlearning(
        self,
        number: int,
        taken: RequestSteps,
        examples: int,
        *,
        extra_steps: int | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
    ) -> Unlearning:
        before = [one.taken for one in self.done[:number]]
        exact = self.objective.sensitivity(radius=self.radius, adjacency="zero-out")
        run = self.run.replace(adjacency="zero-out", sensitivity=exact, examples_per_person=1)
        return unlearning(
            self._run_in_all(run, before),
            examples=examples,
            extra_steps=extra_steps,
            epsilon=epsilon,
            delta=delta,
            release_noise_std=taken.release_noise_std,
            batches=self.run.batches,
            other_releases=[_with_left_out_sensitivity(one) for one in self.other_releases],
        )

    def _run_in_all(self, run: TrainingRun, before: Sequence[RequestSteps]) -> TrainingRun:
        """Training and extra steps as one run for an example that takes part in all of them."""
        whole = run_of_retained_examples(run, before) if self.run.batches.exact_size else None
        if whole is None:
            raise _not_offered(self.run)
        return whole


_history_arithmetic = lru_cache(maxsize=64)(arithmetic)


@lru_cache(maxsize=8)
def _request_guarantee(requests: UnlearningHistory) -> Unlearning:
    request, number = requests.done[-1], len(requests.done) - 1
    found = requests._unlearning(number, request.taken, request.examples, extra_steps=request.steps)
    return requests._as_computed(found)


@lru_cache(maxsize=8)
def _training_report(run: TrainingRun, other_releases: tuple[Release, ...]) -> PrivacyReport:
    return replace(quick_report(run, other_releases), enforced=True)


@lru_cache(maxsize=8)
def _retained_report(requests: UnlearningHistory) -> PrivacyReport:
    first = _training_report(requests.run, requests.other_releases)
    exact = report_on_all_models(first, list(requests.runs[1:]))
    return requests.computed_report(exact)


@lru_cache(maxsize=8)
def _retained_against_last_model(requests: UnlearningHistory) -> PrivacyProfile:
    if not requests.done:
        return requests.retained_report
    taken = [one.taken for one in requests.done]
    run = requests._run_in_all(requests.run, taken)
    alone = requests.computed_report(quick_report(run, requests.other_releases))
    return BestProfile([requests.retained_report, alone])


def _not_offered(run: TrainingRun) -> InvalidParameter:
    """The error for batch rules without a last-model guarantee for the remaining examples."""
    must_be = "a rule with batches of one size, to unlearn; otherwise train again"
    return InvalidParameter("batches", run.batches.name, must_be=must_be)


def _with_left_out_sensitivity(release: Release) -> Release:
    """A release with the same noise and the sensitivity to leaving one example out, rounded up."""
    least = at_least(KINDS[release.kind].sensitivity("zero-out"), ulps=1.0)
    return Release(release.kind, least, release.noise_std)
