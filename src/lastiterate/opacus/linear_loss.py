r"""Constants of the loss of a single linear layer on rows of bounded norm.

The loss of a row x (with a 1 at its end where there is a bias) is :math:`\ell_y(Wx)`.  Its gradient
is the residual times x, its Hessian that of :math:`\ell_y` times :math:`xx^T`.  Cross-entropy has
residuals :math:`p - e_y` of norm below :math:`\sqrt2`, and a Hessian diag(p) - pp^T of norm at
most 1/2; one logit has residuals below 1 and a slope of at most 1/4.  (Smoothed labels are
averages of these, with the same constants.)  Constants are rounded up from exact fractions, so
that rows of norm at most 1 with a bias have gradients of norm at most 2.0, not 2.000000000000004.

**The clip.**  Opacus multiplies a gradient g by min(1, C/(\|g\| + 1e-6)).  Of one logit, or of two
classes, all gradients of an example are multiples r v of one vector v, where r falls with the
margin.  The clipped multiple r min(1, C/(r\|v\| + 1e-6)) still increases in r, and no faster than r
where C is at least 1e-6: so that what is descended is again a convex loss, no less smooth, with
gradients of norm at most C.

**Three classes or more.**  That is not so, and the clip should never act: `max_grad_norm` is such
a clip.  One that acts only on the longest of gradients is charged for.  Let the largest gradient be
:math:`L = \sqrt2 X`, and let the clip act on gradients longer than L - s only.  Where it acts,
:math:`|p - e_y| > \sqrt2 (1 - s/L)` (with smoothed labels, for one of the labels), so that another
class has :math:`p_j > 1 - 4s/L`, and diag(p) - pp^T, the covariance of a draw from p, has norm at
most :math:`2 (1 - p_j) < 8s/L`.  The Hessian H is then of norm at most :math:`4sL`.  The clipped
gradient :math:`\varphi g` has the Jacobian :math:`\varphi (I - \kappa \hat g \hat g^T) H` with
:math:`\varphi, \kappa \in [0, 1]`, which differs from the symmetric :math:`\varphi H` by at most
:math:`4sL`.  So a step on k examples whose sum is divided by b contracts as without the clip, less
:math:`\eta (k/b) 4sL`: as if the penalty were smaller, and the smoothness larger, by (k/b) 4sL.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from lastiterate import _check
from lastiterate._numerics.rounding import FEW_ROUNDINGS, up
from lastiterate.run.loss import Loss

NORM_SLACK_OF_OPACUS = 1e-6  # Opacus divides the clip by the norm plus this
_OF_FLOAT32 = 1e-6  # what norms in float32 may be off by
_LARGEST_FEATURE_BOUND = 1e100


@dataclass(frozen=True)
class LinearLoss:
    """Constants of the loss of one `torch.nn.Linear`; made by `softmax` or `logistic`.

    Parameters
    ----------
    outputs : int
        The number of outputs of the layer.
    bias : bool
        Whether the layer has a bias.
    smoothness, lipschitz : float
        Bounds on the Hessian and on the gradient of every example's loss.
    one_direction : bool
        Whether all gradients of an example are multiples of one vector.
    feature_bound : float
        The bound on the norm of rows.
    residual_bound : float
        The bound on the gradient of the loss by the outputs.

    Examples
    --------
    >>> softmax(feature_bound=1.0, classes=10).lipschitz
    2.0
    """

    outputs: int
    bias: bool
    smoothness: float
    lipschitz: float
    one_direction: bool  # whether all gradients of an example are multiples of one vector
    feature_bound: float
    residual_bound: float

    @property
    def plain(self) -> Loss:
        """The loss without a clip and without a penalty."""
        return Loss(
            smoothness=self.smoothness, lipschitz=self.lipschitz, outputs=self.gradient_dimension
        )

    @property
    def gradient_dimension(self) -> int:
        """The dimension of the space that an example's gradients stay in."""
        return 1 if self.one_direction else self.outputs

    @property
    def max_grad_norm(self) -> float:
        """The least clip that changes no gradient: pass it to `make_private` as `max_grad_norm`.

        Examples
        --------
        >>> softmax(feature_bound=1.0, classes=2).max_grad_norm
        2.0
        >>> round(softmax(feature_bound=1.0, classes=10).max_grad_norm, 9)
        2.000003
        """
        if self.one_direction:
            return self.lipschitz
        return up(self.lipschitz + NORM_SLACK_OF_OPACUS, _OF_FLOAT32)

    def asymmetry(self, clip: float) -> float:
        """The distance of the clipped Jacobian from a symmetric one, as derived above.

        Parameters
        ----------
        clip : float
            The `max_grad_norm`.

        Returns
        -------
        float
            The distance; 0 if the clip never acts, or for one or two classes.

        Examples
        --------
        >>> softmax(feature_bound=1.0, classes=10).asymmetry(2.1)
        0.0
        """
        if self.one_direction:
            return 0.0
        beyond = self.lipschitz + NORM_SLACK_OF_OPACUS - clip
        return up(4.0 * beyond * self.lipschitz, FEW_ROUNDINGS) if beyond > 0.0 else 0.0

    def mismatch(self, shapes: list[tuple[int, ...]]) -> str | None:
        """The reason why trained tensors are not one such layer.

        Parameters
        ----------
        shapes : list of tuple
            The shapes of the trained tensors.

        Returns
        -------
        str or None
            The reason; None if they are.

        Examples
        --------
        >>> softmax(feature_bound=1.0, classes=10).mismatch([(10, 4), (10,)]) is None
        True
        """
        weights = [shape for shape in shapes if len(shape) == 2 and shape[0] == self.outputs]
        biases = [shape for shape in shapes if shape == (self.outputs,)]
        if len(weights) == 1 and len(biases) == self.bias and len(shapes) == 1 + self.bias:
            return None
        wanted = (
            f"one linear layer with {self.outputs} outputs, {'with' if self.bias else 'no'} bias"
        )
        found = f"the loss is that of {wanted}, but tensors of shapes {shapes} are trained"
        matrices = [shape for shape in shapes if len(shape) == 2]
        if len(matrices) != 1 or len(shapes) > 2:
            return found
        outputs, bias = matrices[0][0], len(shapes) == 2
        kind = "logistic(feature_bound=.., " if outputs == 1 else f"softmax(.., classes={outputs}, "
        return f"{found}: state lo.{kind}bias={bias}), if its loss is that"


def softmax(*, feature_bound: float, classes: int, bias: bool = True) -> LinearLoss:
    """Cross-entropy of `torch.nn.Linear(.., classes)` on rows of norm at most `feature_bound`.

    Parameters
    ----------
    feature_bound : float
        The largest norm of a row, without the constant of the bias; it must be public.
    classes : int
        The number of classes.
    bias : bool
        Whether the layer has a bias.

    Returns
    -------
    LinearLoss
        The constants of the loss, for `register`.

    Raises
    ------
    InvalidParameter
        If `feature_bound` or `classes` is outside its range.

    Examples
    --------
    >>> loss = softmax(feature_bound=1.0, classes=10)
    >>> loss.smoothness, loss.lipschitz
    (1.0, 2.0)
    """
    count = _check.count("classes", classes, at_least=2)
    square = _square(feature_bound, bias)
    return LinearLoss(
        outputs=count,
        bias=bias,
        smoothness=rounded_up(square / 2),
        lipschitz=_root_at_least(2 * square),
        one_direction=count == 2,
        feature_bound=float(feature_bound),
        residual_bound=_root_at_least(Fraction(2)),
    )


def logistic(*, feature_bound: float, bias: bool = True) -> LinearLoss:
    """Binary cross-entropy with logits of `torch.nn.Linear(.., 1)` on rows of bounded norm.

    Parameters
    ----------
    feature_bound : float
        The largest norm of a row, without the constant of the bias; it must be public.
    bias : bool
        Whether the layer has a bias.

    Returns
    -------
    LinearLoss
        The constants of the loss, for `register`.

    Raises
    ------
    InvalidParameter
        If `feature_bound` is outside its range.

    Examples
    --------
    >>> loss = logistic(feature_bound=1.0, bias=False)
    >>> loss.smoothness, loss.lipschitz
    (0.25, 1.0)
    """
    square = _square(feature_bound, bias)
    return LinearLoss(
        outputs=1,
        bias=bias,
        smoothness=rounded_up(square / 4),
        lipschitz=_root_at_least(square),
        one_direction=True,
        feature_bound=float(feature_bound),
        residual_bound=1.0,
    )


def _square(feature_bound: float, bias: bool) -> Fraction:
    """The squared norm of the longest row, the 1 of a bias included."""
    bound = _check.number(
        "feature_bound",
        feature_bound,
        at_least=1.0 / _LARGEST_FEATURE_BOUND,
        at_most=_LARGEST_FEATURE_BOUND,
    )
    return Fraction(bound) ** 2 + bias


def rounded_up(value: Fraction) -> float:
    """The least float that is at least `value`."""
    near = float(value)
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)


def _root_at_least(square: Fraction) -> float:
    """The least float that is at least the square root of `square`."""
    root = math.nextafter(math.sqrt(float(square)), 0.0)
    while Fraction(root) ** 2 < square:
        root = math.nextafter(root, math.inf)
    return root
