"""The fields that a certificate may have, what they state, and what verification takes on trust.

An unknown field is refused: a reader would take it for verified.  The arithmetic of a training is a
field, too: which rounding its guarantee includes, and the constants from which that follows.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from lastiterate import _check
from lastiterate.bounds import conditions
from lastiterate.bounds.bound import Hypothesis
from lastiterate.bounds.catalogue import RECORDS
from lastiterate.errors import InvalidParameter
from lastiterate.features.known_maps import FEATURE_MAPS, UnknownScale, encoded_maps, map_of
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
    Release,
    noise_of_counts,
)
from lastiterate.profile.rounded import Rounding
from lastiterate.run.training_run import TrainingRun
from lastiterate.train.arithmetic import Arithmetic, Problem, arithmetic
from lastiterate.train.centring import MEAN_BOUND, MEAN_DIGEST
from lastiterate.train.data import is_digest
from lastiterate.train.noise import REPRODUCIBLE, SECURE
from lastiterate.train.objectives import Objective, from_record

FORMAT = 8  # of 7 there were several; docs/review.md#exit-codes
LONGER_ROWS = "scaled down to the bound"
PUBLIC = "the number of examples, the label set, and every parameter of the estimator"
LABELS_DECLARED = "declared: an example with another label has gradient 0"
LABELS_INFERRED = (
    "inferred: the labels that occur are published, and a label that one example alone has tells "
    "of it, which the guarantee does not include"
)
NO_LABELS = "none: targets are numbers"
NO_ENCODING = "none: rows were given as numbers, without names"
CLUSTER = (
    "cluster: its workers and scheduler saw rows and iterates; the guarantee is of what left it"
)
PREPROCESSING = "preprocessing"
_FITTED, _DECLARED_PUBLIC = "fitted", "declared public"
_NOT_INCLUDED = (
    "what fitted steps learnt from the same examples is published with the model, and the "
    "guarantee does not include it"
)
LABELS = (LABELS_DECLARED, LABELS_INFERRED, NO_LABELS)
_ENFORCED: dict[Hypothesis, str] = {
    conditions.ONLY_LAST_ITERATE: "the trainer returns the final parameters and reports"
    " step counts only",
    conditions.SECRET_ORDER: "drawn from the generator under randomness, used once and discarded",
    conditions.CONVEX: "the residuals are clipped so that they are the gradient of a convex loss",
    conditions.SMOOTH: "from the bound on features, to which longer rows are scaled down,"
    " and the clip",
    conditions.SHORT_STEPS: "the step size is a constant of the run,"
    " checked against the smoothness",
    conditions.NO_ACTIVE_CLIP: "no norm clipping: the clipped loss is the one described",
}
_NOT_ENFORCED = "not at all: stated by whoever trained"
UNSIGNED_PARTS = ("digest", "signature", "earlier")  # about all others; and those followed

ARITHMETIC = "arithmetic"
CHARGED = (
    "charged: iterates lie on a grid, noise is an exactly rounded Gaussian, and the error of every "
    "product is bounded; a computational guarantee, since the noise comes from a cipher"
)
CHARGED_WITH_SEED = (
    "charged as for secret noise; of noise from a seed nothing is claimed to whoever knows it"
)
NOT_CHARGED = (
    "not charged: the guarantee is that of exact arithmetic, and the rounding of matrix products "
    "is no part of it"
)
ASSUMES = [
    "IEEE 754 binary64, rounded to nearest, with subnormal numbers",
    "a matrix product sums products, in any order",
    "exponentials and logarithms are right to 2^-44",
    "AES-256 in counter mode cannot be told from random words",
]
NOT_COVERED = "timing, memory, faults, and whoever reads the process"
# Only of sparse rows around a centre is the centre subtracted from outputs, which rounds more.
TOGETHER, APART = "dense, or not centred", "sparse, and centred"
ARITHMETIC_FIELDS = (
    "rounding",
    "products",
    "rows",
    "offset",
    "grid bits",
    "reach",
    "mu",
    "failure",
    "assumes",
    "not covered",
)
_RELATIVE_SLACK = 1e-9  # other machines may round the same constants otherwise

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
    ARITHMETIC: dict.fromkeys(ARITHMETIC_FIELDS),
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
# Earlier certificates are checked one by one.
_FIELDS: Names = {**_TRAINING, "unlearning": _REQUEST, "earlier": None}
NAMES = frozenset(_FIELDS)
_SOFTWARE = r"lastiterate [0-9A-Za-z.+!_-]+"
# Fields that no other field implies.
_STATED_WORDS = {
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
_NOISY_WORDS = {
    OUTLIERS: "the noisy counts of outliers",
    UNDECLARED: "the noisy counts of undeclared values",
    MEAN: "the noisy mean",
    RATES: "the noisy rates",
    INTERVALS: "the noisy numbers of the intervals",
    ACCURACY: "the noisy accuracy",
    ERRORS: "the noisy mean of the errors",
}


def preprocessing(fitted: Sequence[str], declared_public: Sequence[str]) -> dict[str, Any]:
    """The certificate's record of preprocessing: fitted steps, and steps declared public."""
    return {
        _FITTED: list(fitted),
        _DECLARED_PUBLIC: list(declared_public),
        "not included": _NOT_INCLUDED,
    }


def fitted_steps(record: Mapping[str, Any]) -> tuple[str, ...]:
    """The steps that learnt from the same examples before the training."""
    return tuple(record.get(PREPROCESSING, {}).get(_FITTED, ()))


def steps_declared_public(record: Mapping[str, Any]) -> tuple[str, ...]:
    """The steps that are stated, and not checked, to have learnt nothing from them."""
    return tuple(record.get(PREPROCESSING, {}).get(_DECLARED_PUBLIC, ()))


def is_preprocessing(stated: Any) -> bool:
    """Whether this record says of one step or more on whose rows they were fitted."""
    record = {PREPROCESSING: stated}
    fitted, public = fitted_steps(record), steps_declared_public(record)
    named = all(isinstance(name, str) and name for name in (*fitted, *public))
    return bool(fitted or public) and named and stated == preprocessing(fitted, public)


def stated_hypotheses(bound: str, run: TrainingRun) -> list[dict[str, str]]:
    """Hypotheses of the bound with this id on the run, each with how it is enforced, if it is."""
    needed = [
        {"needs": each.needs, "enforced": _ENFORCED.get(each, "by the description of the run")}
        for each in RECORDS[bound].all_needs(run)
    ]
    if run.examples_per_person > 1:
        most = f"no person with more than {run.examples_per_person} of the examples"
        needed.append({"needs": most, "enforced": _NOT_ENFORCED})
    return needed


def caveats(labels: str, trusted: str | None) -> tuple[str, ...]:
    """Sentences on what the guarantee leaves out: labels that occur, and who saw the rows."""
    left_out = [f"Labels {LABELS_INFERRED}."] if labels == LABELS_INFERRED else []
    return (*left_out, *([] if trusted is None else [f"Trusted {trusted}."]))


def arithmetic_record(
    found: Arithmetic | None,
    problem: Problem,
    *,
    precision: str,
    seeded: bool,
) -> dict[str, Any]:
    """The record of an arithmetic that is charged, or of one that is not if none was found."""
    if found is None:
        return {"rounding": NOT_CHARGED, "products": precision}
    return {
        "rounding": CHARGED_WITH_SEED if seeded else CHARGED,
        "products": precision,
        "rows": APART if problem.apart else TOGETHER,
        "offset": problem.offset,
        "grid bits": found.bits,
        "reach": found.reach,
        "mu": found.mu,
        "failure": found.failure,
        "assumes": ASSUMES,
        "not covered": NOT_COVERED,
    }


def is_charged(record: Mapping[str, Any]) -> bool:
    """Whether a certificate's guarantee includes rounding."""
    return bool(record[ARITHMETIC]["rounding"] != NOT_CHARGED)


def stated_problem(
    record: Mapping[str, Any], objective: Objective, releases: Sequence[Release]
) -> Problem | None:
    """The public quantities that the charge follows from; None where nothing is charged."""
    if not is_charged(record):
        return None
    features, stated = record["features"], record[ARITHMETIC]
    return Problem(
        objective,
        _check.count("features.width", features["width"], at_least=1),
        _check.number("features.bound", features["bound"], above=0.0),
        _check.number("features.intercept", features["intercept"], at_least=0.0),
        _check.number("arithmetic.offset", stated["offset"], at_least=0.0),
        apart=_check.choice("arithmetic.rows", stated["rows"], among=(TOGETHER, APART)) == APART
        and any(one.kind == MEAN for one in releases),
    )


def wrong_arithmetic(
    record: Mapping[str, Any],
    problem: Problem | None,
    runs: Sequence[TrainingRun],
    releases: Sequence[Release],
    *,
    seeded: bool,
) -> tuple[Rounding | None, list[str]]:
    """The rounding that runs and public quantities imply, and why what is stated is not that."""
    stated = record[ARITHMETIC]
    if problem is None:
        known = set(stated) == {"rounding", "products"}
        known = known and stated["products"] in ("float32", "float64")
        wrong = [] if known else ["its arithmetic precision is unsupported"]
        if any(run.loss.outputs is not None for run in runs):
            # Shifts before a participation are proved for exact steps alone.
            wrong.append("its run states loss.outputs, but its rounding is not charged")
        return None, wrong
    try:
        found = arithmetic(runs, problem, releases)
    except InvalidParameter as error:
        return Rounding(math.inf, 1.0), [f"its {error}".removesuffix(".")]
    derived = arithmetic_record(
        found,
        problem,
        precision="float64",
        seeded=seeded,
    )
    wrong = [
        f"its arithmetic's {name} is not {must!r}"
        for name, must in derived.items()
        if name not in stated or not _agrees(stated[name], must)
    ]
    return found.rounding, wrong


def _agrees(stated: Any, derived: Any) -> bool:
    if isinstance(derived, float):
        number = isinstance(stated, (int, float)) and not isinstance(stated, bool)
        return number and math.isclose(stated, derived, rel_tol=_RELATIVE_SLACK)
    return bool(stated == derived) and type(stated) is type(derived)


def wrong_statements(record: Mapping[str, Any], run: TrainingRun) -> list[str]:
    """Reasons why statements and fields other than epsilon do not follow from the run."""
    guarantee = record["guarantee"]
    bound = RECORDS[guarantee["bound"]]
    hypotheses = stated_hypotheses(guarantee["bound"], run)
    derived = {
        "format": (record["format"], FORMAT),
        "certainty": (guarantee["certainty"], bound.certainty.value),
        "source": (guarantee["source"], str(bound.source)),
        "hypotheses": (record["hypotheses"], hypotheses),
        "treatment of longer rows": (record["features"]["longer rows"], LONGER_ROWS),
        "list of what is public": (record["public"], PUBLIC),
    }
    reasons = [
        f"its {what} is not {must!r}" for what, (is_, must) in derived.items() if is_ != must
    ]
    reasons += _wrong_fields(record)
    if record["randomness"] not in (SECURE, REPRODUCIBLE):
        reasons.append("its source of randomness is unknown")
    if record["encoding"] != NO_ENCODING and not is_sha256(record["encoding"]):
        reasons.append("what its model's numbers stand for is unknown")
    if record["labels"] not in LABELS:
        reasons.append("where its label set is from is unknown")
    if record.get("trusted", CLUSTER) != CLUSTER:
        reasons.append("whom its training trusted is unknown")
    stated = record.get(PREPROCESSING)
    if stated is not None and not is_preprocessing(stated):
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
    if unknown := list(_unknown(record, _FIELDS, "")):
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


def is_sha256(value: object) -> bool:
    """Whether this may be a digest of a model."""
    return isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value) is not None


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


def on_trust(record: Mapping[str, Any]) -> list[str]:
    """Lines that name what verification takes on trust."""
    named = [words for name, words in _STATED_WORDS.items() if name in record]
    named += [
        _NOISY_WORDS.get(one["kind"], f"the noisy {one['kind']}")
        for one in record["other_releases"]
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


def plain_text(record: Mapping[str, Any]) -> str:
    """Canonical JSON text of a record: equal content gives equal text."""
    return json.dumps(record, sort_keys=True, separators=(",", ":"))


def digest(record: Mapping[str, Any]) -> str:
    """SHA-256 of a record without `UNSIGNED_PARTS`; whoever forges a certificate can forge it."""
    stated = {name: value for name, value in record.items() if name not in UNSIGNED_PARTS}
    return hashlib.sha256(plain_text(stated).encode()).hexdigest()


def training_digest(record: Mapping[str, Any]) -> str:
    """SHA-256 of a training's record, independent of how its model is to be used."""
    same = {name: value for name, value in record.items() if name != FEATURE_MAPS}
    return digest({**same, "encoding": NO_ENCODING})


def used_as(record: Mapping[str, Any], encoding: Mapping[str, Any]) -> dict[str, Any]:
    """The record of a training with the model's encoding and fixed maps of rows."""
    maps = encoded_maps(encoding)
    named = {FEATURE_MAPS: maps} if maps else {}
    return {**record, "encoding": encoding_digest(encoding), **named}


def model_digest(parameters: Any) -> str:
    """SHA-256 that ties a certificate to the published parameters."""
    array = np.ascontiguousarray(parameters, dtype="<f8")
    return hashlib.sha256(repr(array.shape).encode() + array.tobytes()).hexdigest()


def encoding_digest(encoding: Mapping[str, Any]) -> str:
    """SHA-256 that ties a certificate to the names, ranges and values by which a model is used."""
    return hashlib.sha256(plain_text(encoding).encode()).hexdigest()
