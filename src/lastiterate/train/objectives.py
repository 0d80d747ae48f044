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
Residuals have one row for each output and one column for each example.
"""

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from lastiterate import _check
from lastiterate._numerics.rounding import Array, at_least
from lastiterate.errors import InvalidParameter
from lastiterate.train import clipping, envelope
from lastiterate.train.compiled import compiled
from lastiterate.train.objective import OBJECTIVES, ULPS, Objective, are_labels

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
_ROUNDING = 2.0**-53
_LEAST_CLIP = 1e-100  # whose squares are numbers
_FAR = 1e6  # targets of residuals that are clipped whatever the iterate, in units of the clip


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
        return _spread(self.clip)

    @property
    def residual_error(self) -> float:
        return 2.0 * ELEMENTARY  # the sigmoid is an exponential and two roundings, at most 1

    def loss_at_start(self, offset: float) -> float:
        return _up(math.log(2.0) + self.clip * offset)

    def admits(self, y: NDArray[Any]) -> bool:
        return are_labels(y, 2)

    @property
    def exposing_targets(self) -> NDArray[Any]:
        return np.array([0, 1])

    def residual(self, u: Array, y: NDArray[Any]) -> Array:
        if (fast := compiled("logistic", u.size)) is not None:
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
    loss (`clipping.envelope_clipped_residual`).  The Hessian of the loss is
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
        rounded = 4.0 * (ELEMENTARY + 2.0 * (self.classes + 16) * _ROUNDING)
        if self.kind == "margin" or self.clip == 2**0.5:
            return rounded
        root = math.sqrt(self.classes)
        return _up(envelope.TOLERANCE + root * (ELEMENTARY + 4.0 * self.classes * _ROUNDING))

    def loss_at_start(self, offset: float) -> float:
        return _up(math.log(self.classes) + self.clip * offset)

    @property
    def curvature(self) -> float:
        share = (self.classes - 1) / self.classes if self.kind == "envelope" else 0.5
        return 2.0 * _spread(self.clip * share**0.5)

    def admits(self, y: NDArray[Any]) -> bool:
        return are_labels(y, self.classes)

    @property
    def exposing_targets(self) -> NDArray[Any]:
        return np.array([0, 1])

    def residual(self, u: Array, y: NDArray[Any]) -> Array:
        if self.clip == 2**0.5:
            return clipping.softmax_residual(u, y)
        if self.kind == "margin":
            return clipping.margin_clipped_residual(u, y, self.clip)
        return clipping.envelope_clipped_residual(u, y, self.clip)


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
        return 2.0 * _ROUNDING * self.clip  # what is clipped has no error

    def loss_at_start(self, offset: float) -> float:
        del offset
        return math.inf  # any finite target is admitted

    def admits(self, y: NDArray[Any]) -> bool:
        return y.dtype.kind in "fiub" and bool(np.isfinite(y).all())

    @property
    def exposing_targets(self) -> NDArray[Any]:
        return self.clip * _FAR * np.array([-1.0, 1.0])

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
        return 4.0 * _ROUNDING * self.clip  # what is clipped has no error

    def loss_at_start(self, offset: float) -> float:
        return _up(self.clip * (1.0 + offset))

    def admits(self, y: NDArray[Any]) -> bool:
        return are_labels(y, 2)

    @property
    def exposing_targets(self) -> NDArray[Any]:
        return np.array([0, 1])

    def residual(self, u: Array, y: NDArray[Any]) -> Array:
        sign = 2.0 * y - 1.0
        return -sign * np.clip((1.0 - sign * u) / self.width, 0.0, self.clip)


def _up(value: float) -> float:
    return at_least(value, ulps=ULPS)


def _spread(mass: float) -> float:
    """The largest p(1 - p) with p at most `mass`, rounded up."""
    share = min(at_least(mass, ulps=ULPS), 0.5)
    return at_least(share * (1.0 - share), ulps=ULPS)
