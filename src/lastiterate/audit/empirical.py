"""Audits of a trainer: does what it releases contradict its certificate?

The trainer runs many times on each of two adjacent data sets.  On the first half of the runs a
test is chosen: a direction (Fisher's discriminant) and a threshold.  On the other half it is
judged, so that its error rates have valid limits (`evidence`).  A refutation is a proof, up to
the confidence; that nothing was refuted proves nothing beyond this pair and this test.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lastiterate import _check
from lastiterate._numerics.rounding import Array
from lastiterate.audit.evidence import Certificate, Claim, Evidence, margins, power, upper_limits
from lastiterate.audit.trials import Seeds, Trainer, outputs
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.profile.lower import OneTestLowerProfile

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

Data = tuple[Any, Any]

_FEWEST = 20
_THRESHOLDS = 400


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
    _check.count("runs", runs, at_least=_FEWEST)
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
    if first.shape != second.shape or len(first) < _FEWEST:
        must_be = f"two arrays of the same shape, of at least {_FEWEST} rows"
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
    picked = np.linspace(0, between.size - 1, min(between.size, _THRESHOLDS)).astype(int)
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
