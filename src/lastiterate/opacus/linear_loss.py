r"""What is known of the loss of a single linear layer on rows of bounded norm.

The loss of a row x (with a 1 at its end where there is a bias) is :math:`\ell_y(Wx)`.  Its gradient
is the residual times x, its Hessian that of :math:`\ell_y` times :math:`xx^T`.  Cross-entropy has
residuals :math:`p - e_y` of norm below :math:`\sqrt2`, and a Hessian diag(p) - pp^T of norm at
most 1/2; one logit has residuals below 1 and a slope of at most 1/4.  (Smoothed labels are
averages of these, with the same constants.)

**The clip.**  Opacus multiplies a gradient g by min(1, C/(\|g\| + 1e-6)).  Of one logit, or of two
classes, all gradients of an example are multiples r v of one vector v, where r falls with the
margin.  The clipped multiple r min(1, C/(r\|v\| + 1e-6)) still increases in r, and no faster than r
where C is at least 1e-6: so that what is descended is again a convex loss, no less smooth, with
gradients of norm at most C.  For three classes or more that is not so, and the clip must never act.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from lastiterate import _check
from lastiterate._numerics.rounding import at_least
from lastiterate.run.loss import Loss

_ULPS = 8


@dataclass(frozen=True)
class LinearLoss:
    """The loss of one `torch.nn.Linear` with so many outputs; made by `softmax` or `logistic`."""

    outputs: int
    bias: bool
    smoothness: float
    lipschitz: float
    one_direction: bool  # whether all gradients of an example are multiples of one vector

    @property
    def plain(self) -> Loss:
        """Without a clip, and without a penalty."""
        return Loss(smoothness=self.smoothness, lipschitz=self.lipschitz)

    def unlike(self, shapes: list[tuple[int, ...]]) -> str | None:
        """What is trained instead of such a layer, None if it is one."""
        weights = [shape for shape in shapes if len(shape) == 2 and shape[0] == self.outputs]
        biases = [shape for shape in shapes if shape == (self.outputs,)]
        if len(weights) == 1 and len(biases) == self.bias and len(shapes) == 1 + self.bias:
            return None
        wanted = (
            f"one linear layer with {self.outputs} outputs, {'with' if self.bias else 'no'} bias"
        )
        return f"the loss is that of {wanted}, but tensors of shapes {shapes} are trained"


def softmax(*, feature_bound: float, classes: int, bias: bool = True) -> LinearLoss:
    """Cross-entropy of `torch.nn.Linear(.., classes)` on rows of norm at most `feature_bound`.

    >>> loss = softmax(feature_bound=1.0, classes=2)
    >>> round(loss.smoothness, 9), round(loss.lipschitz, 9)
    (1.0, 2.0)
    """
    count = _check.count("classes", classes, at_least=2)
    square = _square(feature_bound, bias)
    return LinearLoss(
        outputs=count,
        bias=bias,
        smoothness=at_least(square / 2.0, ulps=_ULPS),
        lipschitz=at_least(math.sqrt(2.0 * square), ulps=_ULPS),
        one_direction=count == 2,
    )


def logistic(*, feature_bound: float, bias: bool = True) -> LinearLoss:
    """Binary cross-entropy with logits of `torch.nn.Linear(.., 1)` on such rows.

    >>> loss = logistic(feature_bound=1.0, bias=False)
    >>> round(loss.smoothness, 9), round(loss.lipschitz, 9)
    (0.25, 1.0)
    """
    square = _square(feature_bound, bias)
    return LinearLoss(
        outputs=1,
        bias=bias,
        smoothness=at_least(square / 4.0, ulps=_ULPS),
        lipschitz=at_least(math.sqrt(square), ulps=_ULPS),
        one_direction=True,
    )


def _square(feature_bound: float, bias: bool) -> float:
    """Of the longest row, the 1 of a bias included."""
    return _check.number("feature_bound", feature_bound, above=0.0) ** 2 + float(bias)
