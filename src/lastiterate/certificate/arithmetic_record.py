"""The record of the arithmetic of a training in its certificate, and its consequences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from lastiterate import _check
from lastiterate.errors import InvalidParameter
from lastiterate.other_releases import MEAN, Release
from lastiterate.profile.rounded import Rounding
from lastiterate.run.training_run import TrainingRun
from lastiterate.train.arithmetic import Arithmetic, arithmetic
from lastiterate.train.objectives import Objective
from lastiterate.train.step_error import Problem

NAME = "arithmetic"
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
FIELDS = (
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
_SLACK = 1e-9  # relative; other machines may round the same constants otherwise


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
    return bool(record[NAME]["rounding"] != NOT_CHARGED)


def stated_problem(
    record: Mapping[str, Any], objective: Objective, releases: Sequence[Release]
) -> Problem | None:
    """The public quantities that the charge follows from; None where nothing is charged."""
    if not is_charged(record):
        return None
    features, stated = record["features"], record[NAME]
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
    stated = record[NAME]
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
        if name not in stated or not _same(stated[name], must)
    ]
    return found.rounding, wrong


def _same(stated: Any, derived: Any) -> bool:
    if isinstance(derived, float):
        number = isinstance(stated, (int, float)) and not isinstance(stated, bool)
        return number and math.isclose(stated, derived, rel_tol=_SLACK)
    return bool(stated == derived) and type(stated) is type(derived)
