"""The fields that a certificate may have, and those that verification takes on trust.

An unknown field is refused: a reader would take it for verified.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from lastiterate.bounds.catalogue import RECORDS
from lastiterate.certificate import statements
from lastiterate.certificate.arithmetic_record import FIELDS, NAME
from lastiterate.errors import InvalidParameter
from lastiterate.features.known_maps import FEATURE_MAPS, UnknownScale, map_of
from lastiterate.other_releases import (
    ACCURACY,
    ERRORS,
    INTERVALS,
    MEAN,
    NOISE_OF_COUNTS,
    OUTLIER_COUNTS,
    OUTLIERS,
    PUBLISHED,
    RATES,
    UNDECLARED,
    noise_of_counts,
)
from lastiterate.run.training_run import TrainingRun
from lastiterate.train.centring import MEAN_BOUND, MEAN_DIGEST
from lastiterate.train.data_digest import is_digest
from lastiterate.train.noise import REPRODUCIBLE, SECURE
from lastiterate.train.objectives import from_record

Names = Mapping[str, Any]  # a field by its name, to the names inside it; None where it is a value

_RELEASE: Names = dict.fromkeys(("kind", "what", "sensitivity", "noise_std"))
_FEATURES: Names = dict.fromkeys(("width", "bound", "intercept", "longer rows"))
_CANDIDATE: Names = {
    "run": None,  # refuses unknown names itself, as does the objective
    "other_releases": [_RELEASE],
    "objective": None,
    "features": _FEATURES,
}
_TRAINING: Names = {
    **dict.fromkeys(("format", "software", "run", "objective", "labels", "encoding", "hypotheses")),
    **dict.fromkeys(("randomness", "public", "model", "digest", "data", "trusted", "head")),
    "guarantee": dict.fromkeys(("epsilon", "delta", "adjacency", "bound", "certainty", "source")),
    "other_releases": [{**_RELEASE, PUBLISHED: None, NOISE_OF_COUNTS: None}],
    "features": _FEATURES,
    NAME: dict.fromkeys(FIELDS),
    "selection": {
        **dict.fromkeys(("law", "shape", "stop")),
        "score": dict.fromkeys(("scored", "published")),
        "candidates": [_CANDIDATE],
    },
    "signature": dict.fromkeys(("kind", "value")),
    "preprocessing": dict.fromkeys(("fitted", "declared public", "not included")),
    FEATURE_MAPS: None,  # refuse unknown names themselves
}
_REQUEST: Names = {
    **dict.fromkeys(("follows", "request", "removed", "promised", "not promised")),
    "guarantee": dict.fromkeys(("epsilon", "delta", "examples", "bound")),
}
_ALL: Names = {**_TRAINING, "unlearning": _REQUEST, "earlier": None}  # whose own are looked at
NAMES = frozenset(_ALL)
_SOFTWARE = r"lastiterate [0-9A-Za-z.+!_-]+"
# Fields that no other field implies.
_STATED = {
    "software": "which version trained it",
    "randomness": "where the noise came from",
    "labels": "whether the labels were declared",
    "encoding": "what columns and classes its numbers stand for",
    "data": "which table it is of",
    "trusted": "who else saw the rows",
    "head": "which layer it is",
    "preprocessing": "what was fitted before the training",
    FEATURE_MAPS: "which fixed features the rows are",
}
_ON_TRUST = (
    "on trust: that this run took place as described, on these examples, and that nothing else was "
    "published of it"
)
_ON_TRUST_OF_CHAINS = (
    "on trust, unless every certificate of the chain is signed: that no request was left out of "
    "the chain, and that no more rows went than are named"
)


def wrong_statements(record: Mapping[str, Any], run: TrainingRun) -> list[str]:
    """Reasons why statements and fields other than epsilon do not follow from the run."""
    guarantee = record["guarantee"]
    bound = RECORDS[guarantee["bound"]]
    hypotheses = statements.stated_hypotheses(guarantee["bound"], run)
    derived = {
        "format": (record["format"], statements.FORMAT),
        "certainty": (guarantee["certainty"], bound.certainty.value),
        "source": (guarantee["source"], str(bound.source)),
        "hypotheses": (record["hypotheses"], hypotheses),
        "treatment of longer rows": (record["features"]["longer rows"], statements.LONGER_ROWS),
        "list of what is public": (record["public"], statements.PUBLIC),
    }
    reasons = [
        f"its {what} is not {must!r}" for what, (is_, must) in derived.items() if is_ != must
    ]
    reasons += _wrong_fields(record)
    if record["randomness"] not in (SECURE, REPRODUCIBLE):
        reasons.append("its source of randomness is unknown")
    if record["encoding"] != statements.NO_ENCODING and not is_sha256(record["encoding"]):
        reasons.append("what its model's numbers stand for is unknown")
    if record["labels"] not in statements.LABELS:
        reasons.append("where its label set is from is unknown")
    if record.get("trusted", statements.CLUSTER) != statements.CLUSTER:
        reasons.append("whom its training trusted is unknown")
    stated = record.get(statements.PREPROCESSING)
    if stated is not None and not statements.is_preprocessing(stated):
        reasons.append("which of its steps were fitted on the same examples is unknown")
    try:
        if FEATURE_MAPS in record and not _are_maps(record):
            reasons.append("its feature maps are unknown, or give rows of another width")
    except UnknownScale as error:
        reasons.append(str(error).rstrip("."))
    if "data" in record and not is_digest(record["data"]):
        reasons.append("which data it is of is unknown")
    return reasons


def _wrong_fields(record: Mapping[str, Any]) -> list[str]:
    """Reasons why the fields of one certificate are invalid, whatever the run."""
    reasons = []
    if unknown := list(_unknown(record, _ALL, "")):
        reasons.append(f"it has fields that are not known: {', '.join(unknown)}")
    if not is_sha256(record.get("model")):
        reasons.append("to which model it belongs is unknown")
    if "head" in record and not is_sha256(record["head"]):
        reasons.append("to which layer it belongs is unknown")
    if not re.fullmatch(_SOFTWARE, str(record.get("software"))):
        reasons.append("what software issued it is unknown")
    for one in record["other_releases"]:
        if not _is_noisy(one):
            reasons.append(f"what was published as {one['kind']} is no number with stated noise")
        elif one["kind"] == MEAN and not _is_within(one[PUBLISHED], record["features"]["bound"]):
            reasons.append("the bound around the mean is not positive and within that on features")
        elif one["kind"] == RATES and len(one[PUBLISHED]) != _outputs(record):
            reasons.append("it does not have one shift of an intercept for each output")
    return reasons


def _outputs(record: Mapping[str, Any]) -> int:
    return from_record(record["objective"]).outputs


def _are_maps(record: Mapping[str, Any]) -> bool:
    """Whether the stated maps are known, can follow one another, and give rows of this width."""
    stated = record[FEATURE_MAPS]
    if not isinstance(stated, list) or not stated:
        return False
    try:
        maps = [map_of(one) for one in stated]
    except UnknownScale:
        raise
    except InvalidParameter:
        return False
    follow = all(one.width == other.input_width for one, other in pairwise(maps))
    return follow and maps[-1].width == record["features"]["width"]


_NOISY = {
    OUTLIERS: "the noisy counts of outliers",
    UNDECLARED: "the noisy counts of undeclared values",
    MEAN: "the noisy mean",
    RATES: "the noisy rates",
    INTERVALS: "the noisy numbers of the intervals",
    ACCURACY: "the noisy accuracy",
    ERRORS: "the noisy mean of the errors",
}


def on_trust(record: Mapping[str, Any]) -> list[str]:
    """Lines that name what verification takes on trust."""
    named = [words for name, words in _STATED.items() if name in record]
    named += [
        _NOISY.get(one["kind"], f"the noisy {one['kind']}") for one in record["other_releases"]
    ]
    if "selection" in record:
        named.append("the score of the selection")
    if "unlearning" in record:
        named.append("which rows went")
    lines = [_ON_TRUST, f"only stated, and not derived from anything: {'; '.join(named)}"]
    return [*lines, _ON_TRUST_OF_CHAINS] if "unlearning" in record else lines


def noisy_counts(record: Mapping[str, Any]) -> Iterator[str]:
    """A line for each release of noisy counts, which may be negative."""
    for one in record["other_releases"]:
        if one["kind"] in (OUTLIERS, UNDECLARED):
            counts = ", ".join(f"{name} {count:,}" for name, count in one[PUBLISHED].items())
            about = one[NOISE_OF_COUNTS]
            yield f"counted (noisy, give or take {about:,.0f} each): {counts}"


def is_sha256(value: object) -> bool:
    """Whether this may be a digest of a model."""
    return isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value) is not None


def _unknown(value: Any, names: Any, where: str) -> Iterator[str]:
    if isinstance(names, Sequence):
        for one in value:
            yield from _unknown(one, names[0], where)
    elif names is not None:
        for name, inside in value.items():
            if name not in names:
                yield f"{where}{name}"
            else:
                yield from _unknown(inside, names[name], f"{where}{name}.")


def _is_noisy(one: Mapping[str, Any]) -> bool:
    """Whether what was published is numbers of the kind, and nothing else."""
    kind, published = one["kind"], one[PUBLISHED]
    if kind not in (OUTLIERS, UNDECLARED):
        known = _IS_PUBLISHED.get(kind, _is_number)(published)
        return known and NOISE_OF_COUNTS not in one
    if kind == OUTLIERS and tuple(published) != OUTLIER_COUNTS:
        return False
    whole = all(type(count) is int for count in published.values())
    expected = noise_of_counts(kind, one["noise_std"], len(published))
    return whole and math.isclose(one[NOISE_OF_COUNTS], expected, rel_tol=1e-9)


def _is_mean(published: Mapping[str, Any]) -> bool:
    named = set(published) == {MEAN_DIGEST, MEAN_BOUND}
    return named and is_sha256(published[MEAN_DIGEST]) and type(published[MEAN_BOUND]) is float


def _is_within(published: Mapping[str, Any], bound: float) -> bool:
    return bool(0.0 < published[MEAN_BOUND] <= bound)


def _is_number(published: Any) -> bool:
    return type(published) in (int, float)


def _are_numbers(published: Any) -> bool:
    return isinstance(published, list) and all(type(one) is float for one in published)


_IS_PUBLISHED: Mapping[str, Callable[[Any], bool]] = {
    MEAN: _is_mean,
    RATES: _are_numbers,
    INTERVALS: is_sha256,
}
