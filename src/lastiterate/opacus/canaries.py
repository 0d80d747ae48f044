"""Audit of a training loop of Opacus by canaries: what leaks at least, beside what is claimed.

A canary is an example made to leave a trace in a network, inserted into a training by Opacus.  It
takes part in every step with the rate of the loader, as an example would.  Its gradient
is added to the sum of clipped gradients before noise is, with a norm of at most the clip norm.
So a training with it and one without differ by one example, and what tells them apart is a lower
bound. (Nasr et al. 2021, 2023; Cebere, Bellet and Papernot 2025 for the last iterate.)
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from lastiterate import _check
from lastiterate.accounting import PrivacyReport
from lastiterate.audit.empirical import Verdict, audit, one_at_a_time
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.report.text import three_numbers

Parameters = Sequence[torch.Tensor]


@dataclass(frozen=True)
class Canary(ABC):
    """An example that an auditor makes up; `rate` is its probability of being in a batch."""

    # Whether its gradient is stretched to the clip norm, which is what an attacker would choose.
    of_largest_norm: ClassVar[bool] = False

    rate: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", _check.number("rate", self.rate, above=0.0, at_most=1.0))

    @abstractmethod
    def _gradient(self, model: Any, parameters: Parameters) -> list[torch.Tensor]:
        """The gradient of the canary at this model, one tensor for each parameter."""

    @abstractmethod
    def _score(self, model: Any, start: Parameters, end: Parameters) -> float:
        """A number that is larger if the canary took part in the training."""


@dataclass(frozen=True)
class GradientCanary(Canary):
    """A gradient that no step of the others is likely to have: a random direction, always the same.

    Parameters
    ----------
    rate : float, default=1.0
        The probability of being in a batch, that of the loader.
    seed : int, default=0
        The seed of the direction.

    Examples
    --------
    >>> import lastiterate.opacus as lo
    >>> lo.GradientCanary(rate=0.1).rate
    0.1
    """

    of_largest_norm: ClassVar[bool] = True

    seed: int = 0

    def _gradient(self, model: Any, parameters: Parameters) -> list[torch.Tensor]:
        """The direction, whose norm is 1."""
        del model
        source = torch.Generator().manual_seed(self.seed)
        drawn = [torch.randn(p.shape, generator=source) for p in parameters]
        norm = _norm(drawn)
        return [(one / norm).to(p) for one, p in zip(drawn, parameters, strict=True)]

    def _score(self, model: Any, start: Parameters, end: Parameters) -> float:
        """The distance that the parameters moved against the direction."""
        direction = self._gradient(model, start)
        moved = zip(start, end, direction, strict=True)
        return float(sum(((a - b) * one).sum() for a, b, one in moved))


@dataclass(frozen=True)
class InputCanary(Canary):
    """An example: inputs and target as the loader would give them, each a batch of one.

    Parameters
    ----------
    rate : float, default=1.0
        The probability of being in a batch, that of the loader.
    inputs, target : Tensor
        The example; both have a first dimension of size 1.
    criterion : callable, optional
        The loss of outputs and target; cross-entropy unless given.

    Examples
    --------
    >>> import torch
    >>> import lastiterate.opacus as lo
    >>> canary = lo.InputCanary(inputs=torch.ones(1, 4), target=torch.tensor([1]))
    >>> canary.inputs.shape[0]
    1
    """

    inputs: torch.Tensor | None = None
    target: torch.Tensor | None = None
    criterion: Callable[[Any, Any], Any] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("inputs", "target"):
            given = getattr(self, name)
            if not isinstance(given, torch.Tensor) or given.shape[:1] != (1,):
                raise InvalidType(name, must_be="a tensor of one example", found=repr(given)[:40])

    def _gradient(self, model: Any, parameters: Parameters) -> list[torch.Tensor]:
        """The gradient of the loss at the example."""
        with torch.enable_grad(), _without_hooks(model):
            return list(torch.autograd.grad(self._loss(model), list(parameters)))

    def _score(self, model: Any, start: Parameters, end: Parameters) -> float:
        """Minus the loss of the trained model at the example."""
        del start, end
        with torch.no_grad(), _without_hooks(model):
            return -float(self._loss(model))

    def _loss(self, model: Any) -> Any:
        criterion = self.criterion or torch.nn.functional.cross_entropy
        return criterion(model(self.inputs), self.target)


@contextmanager
def _without_hooks(model: Any) -> Iterator[None]:
    """While this lasts Opacus does not take what is computed for an example of a batch."""
    hooked = hasattr(model, "disable_hooks")
    if hooked:
        model.disable_hooks()
    try:
        yield
    finally:
        if hooked:
            model.enable_hooks()


class CanarySession:
    """One training of an audit: `watch` is called once, when model and optimizer are private.

    `audit_training` makes them.

    Parameters
    ----------
    canary : GradientCanary or InputCanary
        The canary.
    inserted : bool
        Whether it takes part in this training.
    seed : int
        The seed of the steps that it takes part in.

    Examples
    --------
    >>> import lastiterate.opacus as lo
    >>> session = lo.CanarySession(lo.GradientCanary(), inserted=True, seed=0)
    """

    def __init__(self, canary: Canary, *, inserted: bool, seed: int) -> None:
        self._canary, self._inserted = canary, inserted
        self._source = torch.Generator().manual_seed(seed)
        self._model: Any = None

    def watch(self, model: Any, optimizer: Any) -> None:
        """Insert the canary into the steps of this optimizer, if it takes part.

        Parameters
        ----------
        model : GradSampleModule
            The model, as `make_private` gives it.
        optimizer : DPOptimizer
            The optimizer, as `make_private` gives it.

        Raises
        ------
        InvalidType
            If the optimizer is not of Opacus, or clips by layers.

        Examples
        --------
        >>> session.watch(model, optimizer)  # doctest: +SKIP
        """
        for name in ("add_noise", "clip_and_accumulate", "max_grad_norm"):
            if not hasattr(optimizer, name):
                must_be = "a DPOptimizer of Opacus, as make_private gives it"
                raise InvalidType("optimizer", must_be=must_be, found=type(optimizer).__name__)
        if not isinstance(optimizer.max_grad_norm, (int, float)):
            must_be = "one number: clipping by layers is not audited"
            raise InvalidType("max_grad_norm", optimizer.max_grad_norm, must_be=must_be)
        self._model = model
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self._start = [p.detach().clone() for p in self._parameters]
        if not self._inserted:
            return
        add_noise = optimizer.add_noise

        def add_canary_and_noise() -> None:
            self._insert(float(optimizer.max_grad_norm))
            add_noise()

        optimizer.add_noise = add_canary_and_noise

    def _insert(self, clip_norm: float) -> None:
        if float(torch.rand((), generator=self._source)) >= self._canary.rate:
            return
        gradient = self._canary._gradient(self._model, self._parameters)
        norm = _norm(gradient)
        factor = clip_norm / norm if norm > 0.0 else 0.0
        if not self._canary.of_largest_norm:
            factor = min(factor, 1.0)
        for p, one in zip(self._parameters, gradient, strict=True):
            p.summed_grad += (factor * one).to(p.summed_grad)

    def score(self) -> float:
        """The score of the trained model.

        Returns
        -------
        float
            Larger if the canary took part.

        Raises
        ------
        InvalidParameter
            If `watch` was never called.

        Examples
        --------
        >>> session.score()  # doctest: +SKIP
        """
        if self._model is None:
            must_be = "a function that calls session.watch(model, optimizer) once"
            raise InvalidParameter("train", must_be=must_be, found="no call")
        end = [p.detach() for p in self._parameters]
        return self._canary._score(self._model, self._start, end)


def _norm(tensors: Sequence[torch.Tensor]) -> float:
    return float(torch.sqrt(sum((one.double() ** 2).sum() for one in tensors)))


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
