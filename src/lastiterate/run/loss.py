"""The known properties of the loss of every single example, and the losses that they admit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lastiterate import _check
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, up
from lastiterate.errors import InvalidParameter, InvalidType

if TYPE_CHECKING:
    from lastiterate.run.training_run import TrainingRun

Span = tuple[float, float]


@_check.spelled_keywords
@dataclass(frozen=True, kw_only=True)
class Loss:
    """Properties shared by the losses of all admissible examples.

    Parameters
    ----------
    smoothness : float, optional
        M: without the regulariser every gradient is (M - regulariser)-Lipschitz, so that with
        it it is M-Lipschitz.  None if unknown.
    strong_convexity : float
        m: every loss minus m|x|^2/2 is convex, regulariser included.
    convex : bool
        Whether every loss is convex.
    holder : (float, float), optional
        (H, order) with |grad f(x) - grad f(y)| <= H |x - y|^order, regulariser *not*
        included, order in (0, 1].
    lipschitz : float, optional
        Every gradient, regulariser *not* included, has norm at most this.
    regulariser : float
        Curvature of a quadratic penalty shared by all examples and added, unclipped,
        in every step.  It is part of `smoothness` and `strong_convexity`.
    outputs : int, optional
        The dimension of the space that the gradients of one example, regulariser *not* included,
        stay in, wherever they are taken: for a linear model its number of outputs, which is 1 for
        regression and for two classes, and K for a softmax of K classes; for other models the
        number of parameters.  None if unknown; bounds for short steps need it.

    Examples
    --------
    >>> Loss(smoothness=32.502, strong_convexity=0.002)
    Loss(smoothness=32.502, strong_convexity=0.002, convex=True)
    """

    smoothness: float | None = None
    strong_convexity: float = 0.0
    convex: bool = True
    holder: tuple[float, float] | None = None
    lipschitz: float | None = None
    regulariser: float = 0.0
    outputs: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.convex, (bool, np.bool_)):
            raise InvalidType("convex", self.convex, must_be="True or False")
        self._set("convex", bool(self.convex))
        regulariser = _check.number("regulariser", self.regulariser, at_least=0.0)
        strong = _check.number("strong_convexity", self.strong_convexity, at_least=0.0)
        if self.convex:
            strong = max(strong, regulariser)
        elif strong > 0.0:
            raise InvalidParameter(
                "strong_convexity",
                self.strong_convexity,
                must_be="0 when convex=False (a shared penalty goes into regulariser)",
            )
        self._set("regulariser", regulariser)
        self._set("strong_convexity", strong)
        if self.smoothness is not None:
            smooth = _check.number("smoothness", self.smoothness, at_least=0.0)
            least = max(strong, regulariser)
            if not smooth >= least:
                name = "strong_convexity" if strong >= regulariser else "regulariser"
                raise InvalidParameter(
                    "smoothness", smooth, must_be=f"at least {name} = {least!r}, or None"
                )
            self._set("smoothness", smooth)
        if self.lipschitz is not None:
            self._set("lipschitz", _check.number("lipschitz", self.lipschitz, above=0.0))
        if self.holder is not None:
            self._set("holder", _holder(self.holder))
        if self.outputs is not None:
            self._set("outputs", _check.count("outputs", self.outputs, at_least=1))

    def __repr__(self) -> str:
        shown = [
            f"smoothness={self.smoothness!r}",
            f"strong_convexity={self.strong_convexity!r}",
            f"convex={self.convex!r}",
        ]
        shown += [f"holder={self.holder!r}"] if self.holder else []
        shown += [f"lipschitz={self.lipschitz!r}"] if self.lipschitz is not None else []
        shown += [f"regulariser={self.regulariser!r}"] if self.regulariser else []
        shown += [f"outputs={self.outputs!r}"] if self.outputs is not None else []
        return f"Loss({', '.join(shown)})"

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


def _holder(pair: object) -> tuple[float, float]:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise InvalidType("holder", pair, must_be="a pair (constant, order)")
    constant = _check.number("holder[0]", pair[0], at_least=0.0)
    order = _check.number("holder[1]", pair[1], above=0.0, at_most=1.0)
    return constant, order


def local_curvatures(run: TrainingRun) -> Span | None:
    """The least and largest curvature, penalty included, that losses may have somewhere.

    None if no loss obeys the description everywhere.  An unknown smoothness counts as what a step
    makes use of; a Hoelder gradient of an order below 1 is curved on short ways only, so that its
    losses are taken for linear.
    """
    loss, longest = run.loss, float(np.max(run.step_size))
    low = max(loss.strong_convexity - loss.regulariser, 0.0)
    if loss.holder is not None and loss.holder[1] < 1.0:
        high = 0.0
    else:
        known = [] if loss.smoothness is None else [loss.smoothness - loss.regulariser]
        known += [] if loss.holder is None else [loss.holder[0]]
        high = min(known, default=max(low, 1.0 / longest))
    if not loss.convex:
        low = -high
    return (low + loss.regulariser, high + loss.regulariser) if low <= high else None


def quadratic_curvatures(run: TrainingRun) -> Span | None:
    """The least and largest curvature of quadratic losses that obey the description, or None.

    But for the penalty a loss must be linear where its gradient is bounded, or where the example
    may be left out altogether.
    """
    span, penalty = local_curvatures(run), run.loss.regulariser
    if span is None or not has_bounded_gradients(run):
        return span
    return (penalty, penalty) if span[0] <= penalty <= span[1] else None


def has_bounded_gradients(run: TrainingRun) -> bool:
    """Whether no example's gradient, penalty excluded, may be arbitrarily large.

    Where an example may be left out, the sensitivity bounds its gradient.
    """
    return run.gradient_bound is not None or run.adjacency == "zero-out"


def gradient_reach(run: TrainingRun) -> float:
    """The norm up to which gradients, penalty excluded, are all admitted together; inf if any are.

    Two examples of the reach, or one and none, are within the sensitivity of each other.
    """
    if not has_bounded_gradients(run):
        return math.inf
    return run.sensitivity * (1.0 if run.adjacency == "zero-out" else 0.5)


@dataclass(frozen=True)
class Gradients:
    """The gradients of an instance on the line, penalty excluded, in units of the sensitivity.

    `ours` and `theirs` are those of the example in question in the two worlds.  Those of all others
    stay between the two `others`.  With `shared`, all examples have one more, of any size, in
    common.
    """

    ours: float
    theirs: float
    others: Span = (0.0, 0.0)
    shared: bool = False

    def moves(self, *, exact_size: bool) -> tuple[float, float]:
        """The change of a batch's sum by the example that joins it, in each world.

        In a batch of exact size it has the position of another, and all others are alike.
        """
        displaced = self.others[0] if exact_size else 0.0
        return self.ours - displaced, self.theirs - displaced

    def not_admitted(self, run: TrainingRun) -> str | None:
        """How they break what the run's description says of gradients; None if they obey it."""
        every = (self.ours, self.theirs, *self.others)
        longest, bound = max(map(abs, every)), run.gradient_bound
        if self.shared and (has_bounded_gradients(run) or not run.batches.exact_size):
            return "a gradient of any size that all examples share"
        if run.adjacency == "zero-out":
            widest = longest  # every example may be left out
            if 0.0 not in (self.ours, self.theirs):
                return "an example that is not left out in either world"
        else:
            widest = max(every) - min(every)
        if not widest <= up(1.0, MILLIONS_OF_ROUNDINGS):
            return f"gradients that differ by {widest!r} times the sensitivity"
        if bound is not None and not longest * run.sensitivity <= up(bound, MILLIONS_OF_ROUNDINGS):
            return f"gradients of {longest * run.sensitivity!r}"
        return None


def linear_gradients(run: TrainingRun) -> list[Gradients]:
    """Gradients of instances whose losses are all equally curved, and linear where they must be.

    In a batch of exact size the example may have the position of one that pulls the other way.  In
    batches of random size the others have no gradient, so that only the example is told.
    """
    if run.adjacency == "zero-out":
        free = Gradients(1.0, 0.0)
        return [free, Gradients(1.0, 0.0, (-1.0, -1.0))] if run.batches.exact_size else [free]
    if run.batches.exact_size:
        return [Gradients(0.5, -0.5, (-0.5, -0.5), shared=not has_bounded_gradients(run))]
    bound = run.gradient_bound
    longest = 1.0 if bound is None else min(max(bound / run.sensitivity, 0.5), 1.0)
    return [Gradients(longest, longest - 1.0)]
