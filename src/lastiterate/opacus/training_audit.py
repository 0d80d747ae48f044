"""Audit of a training loop of Opacus by canaries: what leaks at least, beside what is claimed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lastiterate import _check
from lastiterate.accounting import PrivacyReport
from lastiterate.audit.empirical import Verdict, audit, one_at_a_time
from lastiterate.errors import InvalidType
from lastiterate.opacus.canaries import Canary, CanarySession
from lastiterate.report.three_numbers import three_numbers

Train = Callable[[CanarySession, int], Any]


@dataclass(frozen=True)
class TrainingAudit:
    """The verdict on a loop, with the report that it was held against.

    `print` shows the lower bound, the estimate and the guarantee in one table.  A loop is refuted
    if the test contradicts any point of the guarantee's trade-off curve: of few runs that is far
    more sensitive than the lower bound on epsilon at a small delta.

    Parameters
    ----------
    verdict : Verdict
        The test, its counts, and whether it refutes the report.
    report : PrivacyReport
        The guarantee.
    delta : float
        The delta of the table.

    Examples
    --------
    >>> print(lo.audit_training(train, report, canary))  # doctest: +SKIP
    """

    verdict: Verdict
    report: PrivacyReport
    delta: float

    @property
    def refuted(self) -> bool:
        """Whether the loop leaks more than the report says, up to the confidence."""
        return self.verdict.refuted

    @property
    def lower_epsilon(self) -> float:
        """No smaller epsilon is true of the loop at this delta, with the confidence."""
        return self.verdict.epsilon(self.delta)

    def __str__(self) -> str:
        sure = f"{self.verdict.evidence.confidence:.3%} confidence"
        found = {f"this canary, at {sure}": self.lower_epsilon}
        table = three_numbers(self.report, delta=self.delta, audited=found)
        return f"{table}\n{self.verdict}"


def audit_training(
    train: Train,
    report: PrivacyReport,
    canary: Canary,
    *,
    delta: float = 1e-5,
    runs: int = 400,
    confidence: float = 0.99,
    seed: int = 0,
) -> TrainingAudit:
    """The audit of a training loop: how much its last iterate tells of a canary.

    Parameters
    ----------
    train : callable
        `train(session, seed)` trains one network from a fixed start, with the noise and the batches
        of this seed (`torch.manual_seed(seed)`), and calls `session.watch(model, optimizer)` once,
        after `make_private`.  What it returns is not used.
    report : PrivacyReport
        The guarantee of the loop as it is described, for an example that is left out.
    canary : GradientCanary or InputCanary
        The example that takes part in half of the trainings.
    delta : float
        The delta of the table.
    runs : int
        Trainings with the canary, and as many without; half of them choose the test.
    confidence : float
        Of the lower bound, by Clopper and Pearson, and of a refutation.
    seed : int
        From which all seeds are derived.

    Returns
    -------
    TrainingAudit
        The lower bound, and whether it refutes the guarantee.

    Raises
    ------
    InvalidParameter, InvalidType
        If the arguments are not of these kinds, or `train` never calls `watch`.

    Examples
    --------
    >>> import lastiterate.opacus as lo
    >>> audit = lo.audit_training(train, report, lo.GradientCanary())  # doctest: +SKIP
    """
    if not isinstance(report, PrivacyReport):
        raise InvalidType("report", report, must_be="a PrivacyReport")
    if not isinstance(canary, Canary):
        raise InvalidType("canary", canary, must_be="a GradientCanary or an InputCanary")
    _check.number("delta", delta, above=0.0, below=1.0)

    def trained(world: int, one: int) -> float:
        session = CanarySession(canary, inserted=world == 1, seed=one)
        train(session, one)
        return session.score()

    verdict = audit(one_at_a_time(trained), report, runs=runs, confidence=confidence, seed=seed)
    return TrainingAudit(verdict, report, delta)
