"""Conversion of releases, in the forms that users have them in, to charges of a ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, down
from lastiterate.accounting import PrivacyReport
from lastiterate.certificate.fields import NAME as ARITHMETIC
from lastiterate.certificate.fields import is_charged, training_digest
from lastiterate.certificate.unlearning import UNLEARNING
from lastiterate.certificate.verify import candidate_roundings, read, verified_certificate
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.ledger import charges, events
from lastiterate.ledger.charges import Charge
from lastiterate.ledger.unit import PER_PERSON, covered_by
from lastiterate.other_releases import Release, without_published
from lastiterate.profile.rounded import Rounding
from lastiterate.profile.selection import Tries
from lastiterate.train.arithmetic import release_rounding

# The most that a published statistic may have; its rounding grows with both.
_MOST_EXAMPLES, _MOST_FEATURES = 2**32, 2**20
_MUST_BE = (
    "a certificate (text or file), a PrivacyReport, a PrivateScore or its release, a dp-accounting "
    "event, or a pair (epsilon, delta)"
)


@dataclass(frozen=True)
class ReleaseCharge:
    """The charge of a release, and its certificate if it has one."""

    charge: Charge
    certificate: Mapping[str, Any] | None = None
    seeded: bool = False

    @property
    def digest(self) -> str | None:
        """Digest that tells this release from all others; None without a certificate."""
        return None if self.certificate is None else training_digest(self.certificate)


def release_charge(
    release: Any, *, adjacency: str, examples_per_person: int | None = None
) -> ReleaseCharge:
    """A release as a charge; certificates are derived again.

    `adjacency` and `examples_per_person` are what is said of a release that does not say them.
    """
    found = _release_charge(
        release, adjacency, 1 if examples_per_person is None else examples_per_person
    )
    own = covered_by(found.charge)
    if examples_per_person is not None and own != examples_per_person:
        must_be = f"{own}, as the release has it, or left out"
        raise InvalidParameter(PER_PERSON, examples_per_person, must_be=must_be)
    return found


def _release_charge(release: Any, adjacency: str, covered: int) -> ReleaseCharge:
    if isinstance(release, (str, Path)):
        record = read(release)
        if UNLEARNING in record:
            must_be = (
                "of a training: unlearn(.., ledger=..) charges the steps of a request before they "
                "are taken; charged alone, this one would leave out the models that it follows"
            )
            raise InvalidParameter("release", must_be=must_be, found="a request to be forgotten")
        found = verified_certificate(release)
        return ReleaseCharge(charge_of(record), record, found.seeded)
    if isinstance(release, PrivacyReport):
        if release.selected:
            must_be = (
                "its certificate: a report of the best of several tries does not hold the others"
            )
            raise InvalidParameter("release", must_be=must_be, found="such a report")
        if release.followed is not None:
            must_be = "of a training: unlearn(.., ledger=..) charges what follows it"
            raise InvalidParameter("release", must_be=must_be, found="a report of several models")
        return ReleaseCharge(charges.training(release), seeded=release.seeded)
    inner = getattr(release, "release", release)
    if isinstance(inner, Release):
        covered = getattr(release, PER_PERSON, covered)  # a score knows
        rounding = _rounding_alone(inner) if inner is release else release.privacy.rounding
        charge = charges.statistic(
            inner, adjacency="replace", examples_per_person=covered, rounding=rounding
        )
        return ReleaseCharge(charge)
    if isinstance(release, tuple) and len(release) == 2:
        charge = charges.stated(*release, adjacency=adjacency, examples_per_person=covered)
        return ReleaseCharge(charge)
    if type(release).__name__.endswith("DpEvent"):
        return ReleaseCharge(charges.event(events.as_record(release), examples_per_person=covered))
    raise InvalidType("release", release, must_be=_MUST_BE)


def _rounding_alone(release: Release) -> Rounding:
    """The rounding of a statistic of which neither the examples nor the width are known."""
    return release_rounding(release, _MOST_EXAMPLES, _MOST_FEATURES)


def certificate_record(certificate: str) -> Mapping[str, Any]:
    """The record of a certificate, with none of its content checked."""
    return read(certificate)


def charge_of(record: Mapping[str, Any]) -> Charge:
    """The charge of what a certificate is about."""
    if "selection" in record:
        chosen = record["selection"]
        tries = Tries(chosen["shape"], chosen["stop"])
        return charges.selection(tries, chosen["candidates"], candidate_roundings(record))
    other_releases = [without_published(one) for one in record["other_releases"]]
    charge = {"kind": "training", "run": record["run"], "other_releases": other_releases}
    if not is_charged(record):
        return charge
    arithmetic = record[ARITHMETIC]
    return charge | charges.rounded(Rounding(arithmetic["mu"], arithmetic["failure"]))


def is_charge_of(charge: Charge, record: Mapping[str, Any]) -> bool:
    """Whether a charge is of what a certificate is about, with no less rounding."""
    exact, roundings = _taken_apart(charge)
    certified, least = _taken_apart(charge_of(record))
    return exact == certified and all(map(_no_less, roundings, least))


def _taken_apart(charge: Charge) -> tuple[Charge, list[Rounding | None]]:
    """A charge of exact results, and the roundings of all of them."""
    exact = {name: value for name, value in charge.items() if name != charges.ROUNDING}
    if "candidates" not in charge:
        return exact, [charges.rounding_of(charge)]
    every = [_taken_apart(one) for one in charge["candidates"]]
    return exact | {"candidates": [one for one, _ in every]}, [found for _, (found,) in every]


def _no_less(stated: Rounding | None, least: Rounding | None) -> bool:
    if stated is None or least is None:
        return stated is least
    return stated.mu >= down(least.mu, MILLIONS_OF_ROUNDINGS) and stated.failure >= down(
        least.failure, MILLIONS_OF_ROUNDINGS
    )
