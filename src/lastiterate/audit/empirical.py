"""Audits of a trainer: does what it releases contradict its certificate?

The trainer runs many times on each of two adjacent data sets.  On the first half of the runs a
test is chosen: a direction (Fisher's discriminant) and a threshold.  On the other half it is
judged, so that its error rates have valid limits.  A refutation is a proof, up to
the confidence; that nothing was refuted proves nothing beyond this pair and this test.

**Limits.**  A test rejects in h of n runs in the first world and fails to in m of n in the second.
By Clopper and Pearson each rate is below its limit except with probability (1 - confidence)/2, so
both are with the confidence.  A certificate says that the second rate is at least f of the first, a
decreasing function: it is refuted where the limits say otherwise.

**The file.**  Runs are kept in a file so that none is made twice.  Seeds are derived from the
block's number, so that a result depends neither on how many processes made it nor on whether the
audit was interrupted.  The file has one JSON record a line: what is audited, then one for each
block; a last line that was cut short is made again.  Looking at results before going on is noted
too: each look is a chance to refute by accident.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import beta, binom

from lastiterate import _check
from lastiterate._files import IsOurs, write_whole
from lastiterate._numerics.rounding import Array
from lastiterate._progress import track
from lastiterate.errors import InvalidParameter, InvalidType, MissingExtra, NumericalFailure
from lastiterate.profile.lower import OneTestLowerProfile
from lastiterate.profile.profile import least_misses

Data = tuple[Any, Any]
_MIN_RUNS = 20
_MAX_THRESHOLDS = 400
Seeds = NDArray[np.uint64]
Trainer = Callable[[int, Seeds], Any]
Block = tuple[int, int]  # world, number
_FORMAT = "lastiterate audit 2"
_RUNS_JUDGED = "judged after"


__all__ = [
    "Claim",
    "Evidence",
    "Seeds",
    "Trainer",
    "Verdict",
    "audit",
    "judge",
    "one_at_a_time",
    "power",
]


@dataclass(frozen=True)
class Verdict:
    """The result of an audit: whether it refutes the certificate, and the evidence.

    `epsilon(delta)` and `gdp()` are lower bounds that the runs prove, with the confidence.
    """

    refuted: bool
    evidence: Evidence
    direction: tuple[float, ...]
    threshold: float

    @property
    def lower(self) -> OneTestLowerProfile:
        """The lower bound on every true guarantee that the runs prove, with the confidence."""
        return self.evidence.lower

    def epsilon(self, delta: float) -> float:
        """No (epsilon, delta) with a smaller epsilon is true, with the confidence."""
        return self.lower.epsilon(delta)

    def gdp(self) -> float:
        """No mu-GDP with a smaller mu is true, with the confidence."""
        return self.lower.gdp()

    def __str__(self) -> str:
        false, missed = self.evidence.limits
        denied = f"the trainer is not mu-GDP for mu < {self.gdp():.4g}"
        return (
            f"{'REFUTED' if self.refuted else 'not refuted'} at {self.evidence.confidence:.3%} "
            f"confidence: a test with false-positive rate at most {false:.4g} and false-negative "
            f"rate at most {missed:.4g} ({self.evidence.runs} judged runs in each world); "
            f"{denied if self.gdp() > 0.0 else 'too few runs to deny anything'}"
        )


def audit(
    trainer: Trainer,
    certificate: Certificate,
    *,
    runs: int = 2_000,
    confidence: float = 0.99,
    seed: int = 0,
    block: int = 500,
    jobs: int = 1,
    file: str | Path | None = None,
    name: str = "",
) -> Verdict:
    """Run a trainer on two adjacent data sets, and hold what it releases against a certificate.

    Parameters
    ----------
    trainer : callable
        `trainer(world, seeds)` trains once for each seed, on the data set of the world, 0 or 1,
        and returns what each run releases, a row each.  `one_at_a_time` makes one of a function
        of a world and a single seed, `fits` of an estimator.
    certificate : PrivacyProfile, PrivacyReport or Claim
        What is claimed of the trainer.
    runs : int
        Runs in each world; half of them choose the test.
    confidence : float
        Of a refutation.
    seed : int
        From which the seeds of all runs are derived.
    block : int
        Runs made, and recorded, together.
    jobs : int
        Processes; more than one needs the extra `audit`.
    file : path, optional
        Where results are appended; an audit that was killed goes on from there.
    name : str
        What the file belongs to; another name is refused.

    Examples
    --------
    >>> import numpy as np
    >>> from lastiterate import GaussianProfile
    >>> from lastiterate.audit import empirical
    >>> def trainer(world, seeds):
    ...     return world + 0.5 * np.random.default_rng(seeds).normal(size=len(seeds))
    >>> empirical.audit(trainer, GaussianProfile(2.0)).refuted
    False
    >>> empirical.audit(trainer, GaussianProfile(1.5)).refuted
    True
    """
    if not callable(trainer):
        raise InvalidType("trainer", trainer, must_be="a function of a world and seeds")
    _check_claim(certificate, confidence)
    _check.count("runs", runs, at_least=_MIN_RUNS)
    first, second = outputs(
        trainer,
        runs=runs,
        seed=seed,
        block=block,
        jobs=jobs,
        file=None if file is None else Path(file),
        name=name,
    )
    return judge(first, second, certificate, confidence=confidence)


def judge(
    first: Array, second: Array, certificate: Certificate, *, confidence: float = 0.99
) -> Verdict:
    """The verdict on what a trainer released in each world: a row for each run, as many of each.

    The rows must be in an order that has nothing to do with what they hold.
    """
    _check_claim(certificate, confidence)
    first, second = (np.asarray(one, dtype=float).reshape(len(one), -1) for one in (first, second))
    if first.shape != second.shape or len(first) < _MIN_RUNS:
        must_be = f"two arrays of the same shape, of at least {_MIN_RUNS} rows"
        raise InvalidParameter("results", (first.shape, second.shape), must_be=must_be)
    half = len(first) // 2
    direction = _discriminant(first[:half], second[:half])
    scores = [rows @ direction for rows in (first, second)]
    judged = len(first) - half
    threshold = _best_threshold(scores[0][:half], scores[1][:half], certificate, judged, confidence)
    evidence = Evidence(
        runs=judged,
        false_positives=int(np.count_nonzero(scores[0][half:] > threshold)),
        false_negatives=int(np.count_nonzero(scores[1][half:] <= threshold)),
        confidence=confidence,
    )
    refuted = evidence.refutes(certificate)
    return Verdict(refuted, evidence, tuple(direction.tolist()), threshold)


def one_at_a_time(train: Callable[[int, int], Any]) -> Trainer:
    """A trainer of many seeds from a function of a world and one seed."""
    if not callable(train):
        raise InvalidType("train", train, must_be="a function of a world and a seed")

    def trainer(world: int, seeds: Seeds) -> Array:
        return np.array([np.ravel(train(world, int(seed))) for seed in seeds], dtype=float)

    return trainer


def fits(make: Callable[[int], Any], first: Data, second: Data) -> Trainer:
    """A trainer of estimators in the manner of scikit-learn, on two adjacent data sets.

    `make(seed)` is an estimator that is not fitted; `first` and `second` are (X, y), alike but
    for one example, such as a canary.  Released are its `coef_` and `intercept_`.
    """

    def train(world: int, seed: int) -> Array:
        fitted = make(seed).fit(*(first, second)[world])
        return np.concatenate([np.ravel(fitted.coef_), np.ravel(fitted.intercept_)])

    return one_at_a_time(train)


def _discriminant(first: Array, second: Array) -> Array:
    """Fisher's direction, along which the worlds differ most in units of their spread."""
    gap = second.mean(axis=0) - first.mean(axis=0)
    if gap.size == 1:
        return np.array([1.0 if gap[0] >= 0.0 else -1.0])
    spread = (np.cov(first.T) + np.cov(second.T)) / 2.0
    scale = float(np.trace(spread)) / gap.size
    if not scale > 0.0:
        return np.asarray(gap if gap.any() else np.ones(gap.size))
    direction = np.linalg.solve(spread + 1e-9 * scale * np.eye(gap.size), gap)
    norm = float(np.linalg.norm(direction))
    return np.asarray(direction / norm if norm > 0.0 else np.ones(gap.size))


def _best_threshold(
    first: Array, second: Array, certificate: Certificate, judged: int, confidence: float
) -> float:
    """The threshold at which these runs, scaled to `judged`, contradict the certificate most."""
    values = np.unique(np.concatenate([first, second]))
    if values.size == 1:
        return float(values[0])
    between = (values[1:] + values[:-1]) / 2.0
    picked = np.linspace(0, between.size - 1, min(between.size, _MAX_THRESHOLDS)).astype(int)
    thresholds = between[np.unique(picked)]
    hits = first.size - np.searchsorted(np.sort(first), thresholds, side="right")
    missed = np.searchsorted(np.sort(second), thresholds, side="right")
    level = (1.0 + confidence) / 2.0
    scale = judged / first.size
    false, passed = (upper_limits(np.round(n * scale), judged, level) for n in (hits, missed))
    return float(thresholds[int(np.argmax(margins(false, passed, certificate)))])


def _check_claim(certificate: Certificate, confidence: float) -> None:
    if not callable(getattr(certificate, "tradeoff", None)):
        must_be = "a PrivacyProfile, a PrivacyReport or a Claim"
        raise InvalidType("certificate", certificate, must_be=must_be)
    _check.number("confidence", confidence, above=0.0, below=1.0)


class Certificate(Protocol):
    """Anything that says how well no test can do: profiles, reports, claims."""

    def tradeoff(self, fpr: float) -> float:
        """The least false-negative rate at this false-positive rate."""
        ...


@dataclass(frozen=True)
class Claim:
    """(epsilon, delta)-DP, as somebody states it.

    >>> round(Claim(1.0, 1e-5).tradeoff(0.1), 4)
    0.7282
    """

    epsilon: float
    delta: float

    def __post_init__(self) -> None:
        _check.number("epsilon", self.epsilon, at_least=0.0, at_most=700.0)
        _check.number("delta", self.delta, at_least=0.0, at_most=1.0)

    def tradeoff(self, fpr: float) -> float:
        """The least false-negative rate of any test with this false-positive rate."""
        alpha = _check.number("fpr", fpr, at_least=0.0, at_most=1.0)
        allowed = least_misses(alpha, np.array([self.epsilon]), np.array([self.delta]))
        return max(0.0, float(allowed[0]))


def upper_limits(counts: Array, runs: int, confidence: float) -> Array:
    """Clopper and Pearson's limits: rates above them are this unlikely to give counts this low."""
    limits = beta.ppf(confidence, np.asarray(counts) + 1.0, runs - np.asarray(counts))
    return np.where(np.asarray(counts) >= runs, 1.0, limits)


@dataclass(frozen=True)
class Evidence:
    """One test, fixed beforehand, tried on `runs` runs in each world."""

    runs: int
    false_positives: int
    false_negatives: int
    confidence: float

    @property
    def lower(self) -> OneTestLowerProfile:
        """The lower bound on every true guarantee that these counts prove, with the confidence."""
        false, missed = self.limits
        return OneTestLowerProfile(false, 1.0 - missed)

    @property
    def limits(self) -> tuple[float, float]:
        """The rates of false positives and negatives are both below, with the confidence."""
        counts = np.array([self.false_positives, self.false_negatives], dtype=float)
        false, missed = upper_limits(counts, self.runs, (1.0 + self.confidence) / 2.0)
        return float(false), float(missed)

    def refutes(self, certificate: Certificate) -> bool:
        """Whether no true certificate could say this, in either direction."""
        false, missed = self.limits
        return missed < certificate.tradeoff(false) or false < certificate.tradeoff(missed)


def margins(false: Array, missed: Array, certificate: Certificate) -> Array:
    """The amount by which pairs of limits contradict a certificate, in standard deviations."""
    edge = 1e-12
    grid = np.unique(np.concatenate([np.geomspace(1e-6, 0.5, 60), np.linspace(0.02, 1.0, 50)]))
    allowed = np.array([certificate.tradeoff(float(rate)) for rate in grid])
    found = []
    for one, other in ((false, missed), (missed, false)):
        least = np.clip(np.interp(one, grid, allowed), edge, 1.0 - edge)
        found.append(ndtri(least) - ndtri(np.clip(other, edge, 1.0 - edge)))
    return np.asarray(np.maximum(*found))


def power(
    fpr: float, fnr: float, certificate: Certificate, *, runs: int, confidence: float = 0.99
) -> float:
    """The chance that `runs` judged runs in each world refute, for a test of known error rates.

    >>> from lastiterate import GaussianProfile
    >>> round(power(0.2, 0.2, GaussianProfile(1.0), runs=1_000), 3)
    1.0
    """
    level = (1.0 + confidence) / 2.0
    spread = 8.0 * math.sqrt(runs * fpr * (1.0 - fpr)) + 8.0
    low, high = max(0, int(runs * fpr - spread)), min(runs, math.ceil(runs * fpr + spread))
    hits = np.unique(np.linspace(low, high, 200).astype(int))
    missed_limits = upper_limits(np.arange(runs + 1.0), runs, level)
    chances = []
    for limit in upper_limits(hits.astype(float), runs, level):
        needed = certificate.tradeoff(float(limit))
        most = int(np.searchsorted(missed_limits, needed)) - 1
        chances.append(float(binom.cdf(most, runs, fnr)))
    # More false positives never help, so between those looked at the later one's chance holds.
    below = np.diff(binom.cdf(hits, runs, fpr), prepend=0.0)
    return float(np.sum(below * np.array(chances)))


def outputs(
    trainer: Trainer,
    *,
    runs: int,
    seed: int = 0,
    block: int = 500,
    jobs: int = 1,
    file: Path | None = None,
    name: str = "",
) -> tuple[Array, Array]:
    """Outputs of `trainer(world, seeds)` in each of two worlds: a row for each of `runs` runs."""
    size = _check.count("block", block, at_least=1)
    count = _check.count("runs", runs, at_least=2)
    start = _check.count("seed", seed, at_least=0)
    lengths = [min(size, count - first) for first in range(0, count, size)]
    wanted = [(world, number) for number in range(len(lengths)) for world in (0, 1)]
    header = {"format": _FORMAT, "name": name, "seed": start, "block": size}
    done = {} if file is None else _read_blocks(file, header)
    # A last block of another length is made anew: an audit may go on to more runs.
    todo = [one for one in wanted if one not in done or len(done[one]) != lengths[one[1]]]

    def make(one: Block) -> tuple[Block, Array]:
        world, number = one
        state = np.random.SeedSequence([start, world, number])
        # 53 bits, which every generator takes and every float holds.
        seeds = state.generate_state(lengths[number], np.uint64).astype(np.uint64) >> np.uint64(11)
        return one, _as_rows(trainer(world, seeds), lengths[number])

    made = _outputs_of(make, todo, _check.count("jobs", jobs, at_least=1))
    for one, rows in track("runs of the trainer", made, len(todo)):
        done[one] = rows
        if file is not None:
            record = {"world": one[0], "number": one[1], "outputs": rows.tolist()}
            with file.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(record) + "\n")
    worlds = [
        np.concatenate([done[world, number] for number in range(len(lengths))]) for world in (0, 1)
    ]
    return worlds[0], worlds[1]


def _as_rows(released: Any, runs: int) -> Array:
    rows = np.asarray(released, dtype=float)
    rows = rows.reshape(runs, -1) if rows.size and rows.size % runs == 0 else rows
    if rows.ndim != 2 or rows.shape[0] != runs:
        must_be = f"an array with a row for each of {runs} seeds"
        raise InvalidParameter("trainer's result", must_be=must_be, found=f"shape {rows.shape}")
    if not np.isfinite(rows).all():
        raise NumericalFailure("a run of the trainer released numbers that are not finite.")
    return rows


def _outputs_of(
    make: Callable[[Block], tuple[Block, Array]], todo: list[Block], jobs: int
) -> Iterator[tuple[Block, Array]]:
    if jobs == 1 or len(todo) < 2:
        yield from map(make, todo)
        return
    try:
        from joblib import Parallel, delayed
    except ImportError:
        raise MissingExtra("an audit on several cores", "joblib", extra="audit") from None
    yield from Parallel(n_jobs=jobs, return_as="generator_unordered")(
        delayed(make)(one) for one in todo
    )


def _read_blocks(file: Path, header: dict[str, Any]) -> dict[Block, Array]:
    """The blocks that the file holds; its header is written, and a cut last line removed."""
    content = file.read_bytes() if file.exists() else b""
    if not content:
        write_whole("file", file, json.dumps(header) + "\n", _has_content(b""))
        return {}
    whole = content[: content.rfind(b"\n") + 1]
    records = [_parse(file, line) for line in whole.splitlines()]
    if not records or records[0] != header:
        raise InvalidParameter("file", str(file), must_be=_difference_text(records, header))
    if whole != content:
        write_whole("file", file, whole, _has_content(content))
    try:
        return {
            (one["world"], one["number"]): np.array(one["outputs"])
            for one in records[1:]
            if _RUNS_JUDGED not in one
        }
    except (KeyError, TypeError) as error:
        raise InvalidParameter("file", str(file), must_be="the record of an audit") from error


def _has_content(content: bytes) -> IsOurs:
    """Recognises what was read."""
    return lambda found: found == content


def looks(file: Path, runs: int) -> list[int]:
    """After how many runs this record was judged, this time included, which is noted in it."""
    records = [_parse(file, line) for line in file.read_text(encoding="utf-8").splitlines()]
    before = sorted({one[_RUNS_JUDGED] for one in records if _RUNS_JUDGED in one})
    if runs not in before:
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps({_RUNS_JUDGED: runs}) + "\n")
    return sorted({*before, runs})


def _difference_text(records: list[dict[str, Any]], header: dict[str, Any]) -> str:
    """In what a record is another audit's."""
    first = records[0] if records else {}
    differ = [name for name in header if first.get(name) != header[name]]
    told = {"name": "certificate"}
    return (
        "absent, or the record of the same audit; this one is of another "
        f"{' and '.join(told.get(name, name) for name in differ) or 'kind'}"
    )


def _parse(file: Path, line: str | bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise InvalidParameter("file", str(file), must_be="one JSON object a line")
    return record
