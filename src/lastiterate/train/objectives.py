r"""Objectives of linear models whose clipped losses stay convex.

The loss of an example with features x and target y is :math:`\ell_y(Wx)`, where x ends in a
constant if an intercept is fitted, plus a penalty :math:`\lambda|W|^2/2` on all of W, the
intercept included (strong convexity must hold in every direction).  If :math:`\ell_y` is convex,
its gradient, the *residual*, has norm at most c and Lipschitz constant h, and
:math:`|x| \le R`, then the gradient in W is the residual times x, and

- the loss is convex and :math:`(h R^2 + \lambda)`-smooth, since its Hessian is that of
  :math:`\ell_y` times :math:`xx^T`, plus :math:`\lambda`;
- it is :math:`\lambda`-strongly convex;
- the gradient without the penalty has norm at most cR, so two examples' gradients differ by at
  most 2cR, and an example's from 0 by cR.

Each class proves c and h for its clipped loss, so that what is descended is what is described.
Outputs and residuals have one row for each output and one column for each example.

**Clipping that leaves a convex loss.** Scaling a softmax residual down to a norm is *not* the
gradient of a convex function with three or more classes, and a step along it may drive two models
apart.  The two clips here are gradients of convex losses.

=====  ==============================================================
u      logits, (classes, examples)
y      labels, whole numbers below `classes`
p      softmax of u; the residual is p - e_y
c      the largest norm of a residual
=====  ==============================================================
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from lastiterate import _check
from lastiterate._numerics.rounding import Array, at_least
from lastiterate.errors import InvalidParameter
from lastiterate.run.loss import Loss
from lastiterate.run.training_run import TrainingRun
from lastiterate.train import envelope
from lastiterate.train.compiled import compiled
from lastiterate.train.envelope import CERTIFIED, clipped_wrong_part

__all__ = [
    "CLIPS",
    "OBJECTIVES",
    "Huber",
    "Logistic",
    "Objective",
    "SmoothedHinge",
    "Softmax",
    "from_record",
]

CLIPS = ("envelope", "margin")  # of several classes
ELEMENTARY = 2.0**-44  # relative error of exponentials and logarithms that is allowed for
UNIT_ROUNDOFF = 2.0**-53  # of float64
_LEAST_CLIP = 1e-100  # whose squares are numbers
# Targets, in units of the clip, whose residuals are clipped whatever the iterate.
_FAR_TARGET = 1e6
OBJECTIVES: dict[str, type[Objective]] = {}
_ULPS = 8
Labels = NDArray[np.intp]


def from_record(record: Mapping[str, Any]) -> Objective:
    """The objective that a certificate states."""
    parameters = dict(record)
    name = parameters.pop("loss")
    if name not in OBJECTIVES:
        must_be = "one of " + ", ".join(OBJECTIVES)
        raise InvalidParameter("objective.loss", name, must_be=must_be)
    kind = OBJECTIVES[name]
    # All of them, so that a certificate does not lean on what happens to be a default.
    expected = list(inspect.signature(kind).parameters)
    if set(parameters) != set(expected):
        must_be = f"given by {', '.join(expected)}"
        raise InvalidParameter("objective", sorted(parameters), must_be=must_be)
    return kind(**parameters)


# The interface of objectives: all that runs, trainers, audits and certificates ask of one.


@dataclass(frozen=True, kw_only=True)
class Objective(ABC):
    """A convex loss of the outputs of a linear model.

    `residual_bound` is c, `curvature` is h, `residual_error` is how far a computed residual may be
    from the exact one of the same outputs, and `loss_at_start` bounds the loss at outputs of 0.

    An objective is a frozen dataclass of keywords that states, as class attributes,

    ==============  ==========================================================================
    output_unit     the noise of an output that a run aims for: 1 in a logit, and a tenth of
                    the largest target otherwise
    step_share      the step that a run takes, as a share of the longest, 2/smoothness
    few_rows        rows a batch below which steps fall; 32 unless stated
    least_unclipped the least clip at which no residual is clipped; inf unless stated
    ==============  ==========================================================================

    and implements the abstract methods.  One that lacks any of this cannot be defined or made.
    By its name, that of the class, certificates find it in `OBJECTIVES`.
    """

    clip: float

    output_unit: ClassVar[float]
    step_share: ClassVar[float]
    few_rows: ClassVar[int] = 32
    least_unclipped: ClassVar[float] = math.inf

    def __init_subclass__(cls, *, abstract: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if abstract:
            return
        missing = [one for one in ("output_unit", "step_share") if not hasattr(cls, one)]
        if missing:
            raise TypeError(f"objective {cls.__name__} does not state {', '.join(missing)}")
        known = OBJECTIVES.get(cls.__name__, cls)
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"there is an objective called {cls.__name__} already")
        OBJECTIVES[cls.__name__] = cls

    @property
    def outputs(self) -> int:
        """The number of outputs of the model."""
        return 1

    @property
    def residual_bound(self) -> float:
        """The largest norm of a residual."""
        return self.clip

    @property
    @abstractmethod
    def residual_error(self) -> float:
        """The largest error of a computed residual, for the same outputs."""

    @property
    @abstractmethod
    def curvature(self) -> float:
        """The Lipschitz constant of the residual."""

    @abstractmethod
    def loss_at_start(self, offset: float) -> float:
        """A bound on the loss, whose infimum is 0, at outputs of norm `offset`; inf if none is."""

    @abstractmethod
    def residual(self, u: Array, y: NDArray[Any]) -> Array:
        """The gradient of the loss in the outputs `u`."""

    def slopes(self, u: Array, y: NDArray[Any]) -> Array:
        """The slope of the residual in a single output, in [0, h]; for intervals only."""
        raise NotImplementedError

    @abstractmethod
    def admits(self, y: NDArray[Any]) -> bool:
        """Whether these are targets that the constants hold for."""

    @property
    @abstractmethod
    def exposing_targets(self) -> NDArray[Any]:
        """Two targets whose residuals are as far apart as the clip allows, near the start."""

    def as_record(self) -> dict[str, Any]:
        """The certificate's record of the objective: its loss and parameters."""
        return {"loss": type(self).__name__} | asdict(self)

    def loss(self, *, radius: float, l2: float) -> Loss:
        """Loss constants for bounds, for rows (intercept's constant included) within `radius`."""
        smoothness = at_least(self.curvature * radius * radius + l2, ulps=_ULPS)
        return Loss(smoothness=smoothness, strong_convexity=l2, regulariser=l2)

    def gradient_bound(self, *, radius: float) -> float:
        """The largest norm of an example's gradient, the penalty's left out."""
        return at_least(self.residual_bound * radius, ulps=_ULPS)

    def sensitivity(self, *, radius: float, adjacency: str) -> float:
        """How far two examples' gradients (or one and 0, if left out) may be apart."""
        return self.gradient_bound(radius=radius) * (2.0 if adjacency == "replace" else 1.0)


@dataclass(frozen=True, kw_only=True)
class Logistic(Objective):
    r"""Logistic loss of two classes, y in {0, 1}, with derivative clipped at `clip`.

    The residual is :math:`\sigma(u) - y` cut to [-c, c]: non-decreasing in u, so the gradient of
    a convex function.  Where it is not cut its slope is :math:`|r|(1 - |r|)` with
    :math:`|r| \le c`, so :math:`h = t(1 - t)`, t = min(c, 1/2); elsewhere it is 0.
    """

    clip: float = 0.25

    output_unit = 1.0
    step_share = 1.0
    least_unclipped = 1.0

    def __post_init__(self) -> None:
        clip = _check.number("clip", self.clip, at_least=_LEAST_CLIP)
        object.__setattr__(self, "clip", min(clip, 1.0))

    @property
    def curvature(self) -> float:
        return _largest_variance(self.clip)

    @property
    def residual_error(self) -> float:
        return 2.0 * ELEMENTARY  # the sigmoid is an exponential and two roundings, at most 1

    def loss_at_start(self, offset: float) -> float:
        return _round_up(math.log(2.0) + self.clip * offset)

    def admits(self, y: NDArray[Any]) -> bool:
        return are_labels(y, 2)

    @property
    def exposing_targets(self) -> NDArray[Any]:
        return np.array([0, 1])

    def residual(self, u: Array, y: NDArray[Any]) -> Array:
        if (fast := compiled("loops", u.size)) is not None:
            return np.asarray(fast.residuals(u, y, self.clip))
        residual: Array = expit(u)
        residual -= y
        # In two, which numpy does in half the time of a clip.
        np.minimum(residual, self.clip, out=residual)
        return np.maximum(residual, -self.clip, out=residual)

    def slopes(self, u: Array, y: NDArray[Any]) -> Array:
        p = expit(u)
        return np.where(np.abs(p - y) < self.clip, p * (1.0 - p), 0.0)


@dataclass(frozen=True, kw_only=True)
class Softmax(Objective):
    r"""Cross-entropy of K classes, y in {0, .., K-1}, clipped so that convexity is kept.

    ``kind="envelope"``: the residual is that of the largest c-Lipschitz convex function below the
    loss (`envelope_clipped_residual`).  The Hessian of the loss is
    diag(p) - pp^T, whose norm is at most :math:`2\max_i p_i(1 - p_i)` (Gershgorin).  Where
    :math:`|p - e_y| \le c` the wrong mass is at most :math:`t = c\sqrt{(K-1)/K}`, so that no
    :math:`p_i` but :math:`p_y \ge 1 - t` exceeds t, and :math:`h = 2t(1-t)` for
    :math:`t \le 1/2`, else 1/2.  An infimal convolution with c|.| moves a point to one where the
    loss has that gradient, and is no less smooth there.

    ``kind="margin"``: cheaper; cut at wrong mass :math:`\tau = c/\sqrt2`, with
    :math:`h = 2t(1-t)`, t = min(tau, 1/2).
    """

    classes: int
    clip: float = field(default=2**0.5 / 4)
    kind: str = "envelope"

    output_unit = 1.0
    step_share = 1.0
    least_unclipped = 2**0.5

    def __post_init__(self) -> None:
        _check.count("classes", self.classes, at_least=2)
        _check.choice("kind", self.kind, among=CLIPS)
        clip = min(_check.number("clip", self.clip, at_least=_LEAST_CLIP), 2**0.5)
        if self.kind == "envelope" and not (clip <= 1.0 or clip == 2**0.5):
            must_be = "a number in (0, 1], or at least sqrt(2), where nothing is clipped"
            raise InvalidParameter("clip", self.clip, must_be=must_be)
        object.__setattr__(self, "clip", clip)

    @property
    def outputs(self) -> int:
        return self.classes

    @property
    def residual_error(self) -> float:
        # An exponential, a sum of all classes and a division; the margin's factor adds as much
        # twice over.  Where the envelope is solved for, logarithms of all classes are off by the
        # error of an exponential and by that of their sum, times the root of their number.
        rounded = 4.0 * (ELEMENTARY + 2.0 * (self.classes + 16) * UNIT_ROUNDOFF)
        if self.kind == "margin" or self.clip == 2**0.5:
            return rounded
        root = math.sqrt(self.classes)
        return _round_up(
            envelope.TOLERANCE + root * (ELEMENTARY + 4.0 * self.classes * UNIT_ROUNDOFF)
        )

    def loss_at_start(self, offset: float) -> float:
        return _round_up(math.log(self.classes) + self.clip * offset)

    @property
    def curvature(self) -> float:
        share = (self.classes - 1) / self.classes if self.kind == "envelope" else 0.5
        return 2.0 * _largest_variance(self.clip * share**0.5)

    def admits(self, y: NDArray[Any]) -> bool:
        return are_labels(y, self.classes)

    @property
    def exposing_targets(self) -> NDArray[Any]:
        return np.array([0, 1])

    def residual(self, u: Array, y: NDArray[Any]) -> Array:
        if self.clip == 2**0.5:
            return softmax_residual(u, y)
        if self.kind == "margin":
            return margin_clipped_residual(u, y, self.clip)
        return envelope_clipped_residual(u, y, self.clip)


@dataclass(frozen=True, kw_only=True)
class Huber(Objective):
    """Half the squared error up to `clip`, and linear beyond: the squared error, clipped.

    The residual u - y cut to [-c, c] does not decrease in u, and has slope at most h = 1.
    """

    clip: float

    output_unit = 0.1
    step_share = 0.5  # a quadratic would swing for ever
    # Noise of the last steps shows in a target, and in the sign of a logit does not
    # (benchmarks/validation.py).
    few_rows = 400

    def __post_init__(self) -> None:
        object.__setattr__(self, "clip", _check.number("clip", self.clip, at_least=_LEAST_CLIP))

    @property
    def curvature(self) -> float:
        return 1.0

    @property
    def residual_error(self) -> float:
        return 2.0 * UNIT_ROUNDOFF * self.clip  # what is clipped has no error

    def loss_at_start(self, offset: float) -> float:
        del offset
        return math.inf  # any finite target is admitted

    def admits(self, y: NDArray[Any]) -> bool:
        return y.dtype.kind in "fiub" and bool(np.isfinite(y).all())

    @property
    def exposing_targets(self) -> NDArray[Any]:
        return self.clip * _FAR_TARGET * np.array([-1.0, 1.0])

    def residual(self, u: Array, y: NDArray[Any]) -> Array:
        residual: Array = u - y
        return residual.clip(-self.clip, self.clip, out=residual)

    def slopes(self, u: Array, y: NDArray[Any]) -> Array:
        return np.asarray(np.abs(u - y) < self.clip, dtype=np.float64)


@dataclass(frozen=True, kw_only=True)
class SmoothedHinge(Objective):
    r"""Hinge loss, y in {0, 1} standing for -1 and 1, rounded off over `width`.

    With margin :math:`z = \pm u` the residual is :math:`\mp\mathrm{cut}((1 - z)/w, 0, c)`:
    non-increasing in z, so convex, with slope at most h = 1/w.
    """

    clip: float = 0.5
    width: float = 1.0

    output_unit = 1.0
    step_share = 1.0

    def __post_init__(self) -> None:
        clip = _check.number("clip", self.clip, at_least=_LEAST_CLIP)
        object.__setattr__(self, "clip", min(clip, 1.0))
        object.__setattr__(self, "width", _check.number("width", self.width, above=0.0))

    @property
    def curvature(self) -> float:
        return at_least(1.0 / self.width, ulps=1)

    @property
    def residual_error(self) -> float:
        return 4.0 * UNIT_ROUNDOFF * self.clip  # what is clipped has no error

    def loss_at_start(self, offset: float) -> float:
        return _round_up(self.clip * (1.0 + offset))

    def admits(self, y: NDArray[Any]) -> bool:
        return are_labels(y, 2)

    @property
    def exposing_targets(self) -> NDArray[Any]:
        return np.array([0, 1])

    def residual(self, u: Array, y: NDArray[Any]) -> Array:
        sign = 2.0 * y - 1.0
        return -sign * np.clip((1.0 - sign * u) / self.width, 0.0, self.clip)


def _round_up(value: float) -> float:
    return at_least(value, ulps=_ULPS)


def _largest_variance(mass: float) -> float:
    """The largest p(1 - p) with p at most `mass`, rounded up: the variance of a class."""
    share = min(at_least(mass, ulps=_ULPS), 0.5)
    return at_least(share * (1.0 - share), ulps=_ULPS)


def are_labels(y: NDArray[Any], classes: int) -> bool:
    """Whether these are whole numbers in 0, .., classes - 1."""
    return y.dtype.kind in "fiub" and bool(np.isin(y, np.arange(classes)).all())


# Clipped residuals.


def softmax_residual(u: Array, y: Labels) -> Array:
    """p - e_y."""
    residual: Array = u - u.max(axis=0)
    np.exp(residual, out=residual)
    residual /= residual.sum(axis=0)
    residual[y, np.arange(y.size)] -= 1.0
    return residual


def margin_clipped_residual(u: Array, y: Labels, c: float) -> Array:
    r"""(p - e_y) scaled by min(1, tau/(1 - p_y)) with :math:`\tau = c/\sqrt2`.

    The loss is h(s(u)), where :math:`s = \log\sum_{i \ne y} e^{u_i} - u_y` is convex and
    :math:`h' = \min(\mathrm{sigmoid}, \tau)` does not decrease: convex.  A residual of wrong mass
    m has norm at most :math:`\sqrt2 m`, so clipped ones have norm at most c.
    """
    residual = softmax_residual(u, y)
    wrong = -residual[y, np.arange(y.size)]
    tau = c * np.sqrt(0.5)
    residual *= np.minimum(1.0, tau / np.maximum(wrong, tau))
    return residual


def envelope_clipped_residual(u: Array, y: Labels, c: float) -> Array:
    r"""The gradient of :math:`\inf_v \ell(v) + c|u - v|`, for the softmax loss, to within 1e-11.

    An infimal convolution of convex functions: convex, c-Lipschitz, as smooth as the loss, and
    equal to it where |p - e_y| <= c.
    """
    fast = compiled("envelope", u.size)
    if fast is None:
        return _envelope_residual(u, y, c)
    residual, left = fast.clipped(u, y, c, CERTIFIED)
    if left.size:
        residual[:, left] = _envelope_residual(u[:, left], y[left], c)
    return np.asarray(residual)


def _envelope_residual(u: Array, y: Labels, c: float) -> Array:
    # The label's row changes places with the first, so that the others are the wrong classes.
    own = y * y.size + np.arange(y.size)
    logits: Array = np.subtract(u, u.ravel()[own], order="C")
    flat = logits.reshape(-1)
    flat[own] = logits[0]
    logits[1:] = clipped_wrong_part(logits[1:], c)
    wrong = logits[1:].sum(axis=0)
    logits[0] = flat[own]
    flat[own] = -wrong
    return logits


# Checks of a run's claims about its losses: the only list, for trainers and verifiers.
#
# A Lipschitz constant needs no entry: no run may state one below what its sensitivity implies.


def broken_promises(
    run: TrainingRun, objective: Objective, radius: float, *, slack: float = 0.0
) -> Iterator[InvalidParameter]:
    """Every claim of `run` that is not true of `objective` on rows of norm at most `radius`.

    Constants may fall short by a relative `slack`.
    """
    if not run.has_plain_steps:
        name = "momentum" if run.average is None else "average"
        must_be = "left out: the trainers take plain gradient steps and publish the last iterate"
        yield InvalidParameter(f"run.{name}", getattr(run, name), must_be=must_be)
    loss, l2 = run.loss, run.loss.regulariser
    needed = objective.loss(radius=radius, l2=l2).smoothness
    assert needed is not None
    if not (loss.smoothness or 0.0) >= needed * (1.0 - slack):
        must_be = f"at least {needed!r}, as in training"
        yield InvalidParameter("run.loss.smoothness", loss.smoothness, must_be=must_be)
    if not loss.convex:
        must_be = "True: the losses that are trained are convex"
        yield InvalidParameter("run.loss.convex", loss.convex, must_be=must_be)
    if loss.strong_convexity > l2:
        must_be = f"at most loss.regulariser = {l2!r}: only a penalty gives it"
        yield InvalidParameter("run.loss.strong_convexity", loss.strong_convexity, must_be=must_be)
    if loss.holder is not None:
        must_be = "None: no trainer of this library can guarantee Hoelder constants"
        yield InvalidParameter("run.loss.holder", loss.holder, must_be=must_be)
    if loss.outputs is not None and loss.outputs < objective.outputs:
        must_be = f"at least {objective.outputs}, the outputs of the model, or None"
        yield InvalidParameter("run.loss.outputs", loss.outputs, must_be=must_be)
    if run.clip_norm is not None:
        must_be = "None: these objectives clip without norm clipping"
        yield InvalidParameter("run.clip_norm", run.clip_norm, must_be=must_be)
    least = objective.sensitivity(radius=radius, adjacency=run.adjacency)
    if not run.sensitivity >= least * (1.0 - slack):
        must_be = f"at least {least!r}, as in training"
        yield InvalidParameter("run.sensitivity", run.sensitivity, must_be=must_be)
