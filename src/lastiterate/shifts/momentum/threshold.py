r"""The longest steps with which a run with momentum forgets how far two of its iterates are apart.

Distances shrink in some quadratic norm, at every curvature in [m, M], m > 0, if and only if the
circle criterion holds (docs/momentum.md).  With the response :math:`L(z) = \eta N(z)/D(z)` of x to
minus the gradient, :math:`D = (z - 1)(z - \beta)`, N = z for heavy ball and
:math:`N = (1 + \beta) z - \beta` for Nesterov's form, and on all of |z| = 1,

.. math:: |D|^2 + \eta (m + M) \operatorname{Re}(N \bar D) + \eta^2 m M |N|^2 > 0 ,

which is a quadratic in :math:`y = 1 - \operatorname{Re} z \in [0, 2]`.  A longer step leaves every
certificate as valid as it is.  It only lets mu grow with the number of steps.
"""

from __future__ import annotations

_HALVINGS = 60


def converges(
    step: float, curvature: tuple[float, float], momentum: float, *, nesterov: bool
) -> bool:
    """Whether steps of this size shrink distances, as far as floats tell.

    Dampening shortens a step: its size is to be multiplied by 1 - dampening before.
    """
    low, high = curvature
    if not (0.0 < low <= high and step > 0.0 and _is_stable(step, high, momentum, nesterov)):
        return False
    beta, both, product = momentum, step * (low + high), step * step * low * high
    square, linear, constant = 4.0 * beta, 2.0 * (1.0 - beta) ** 2, product
    if nesterov:
        square -= 2.0 * both * beta
        linear += both * (beta * (3.0 - beta) - (1.0 + beta) ** 2)
        linear += 2.0 * product * beta * (1.0 + beta)
    else:
        linear -= both * (1.0 + beta)
    return _least_on_circle(square, linear, constant) > 0.0


def _least_on_circle(square: float, linear: float, constant: float) -> float:
    """The least value of a quadratic between 0 and 2."""
    points = [0.0, 2.0]
    if square > 0.0:
        points.append(min(max(-linear / (2.0 * square), 0.0), 2.0))
    return min(constant + y * (linear + y * square) for y in points)


def _is_stable(step: float, curvature: float, momentum: float, nesterov: bool) -> bool:
    """Whether steps at this one curvature shrink distances, by the criterion of Jury."""
    # z^2 - trace z + determinant has both roots inside the circle.
    pull = step * curvature
    trace = 1.0 + momentum - pull * (1.0 + momentum if nesterov else 1.0)
    determinant = momentum * (1.0 - pull) if nesterov else momentum
    return abs(trace) < 1.0 + determinant and determinant < 1.0


def longest_converging_step(
    curvature: tuple[float, float], momentum: float, *, nesterov: bool = False
) -> float:
    """A step that converges and is as long as a search finds; 0 without strong convexity."""
    low, high = curvature
    if not 0.0 < low <= high:
        return 0.0
    good, bad = 0.0, 4.0 / high  # no step of 2 (1 + momentum)/curvature is stable
    for _ in range(_HALVINGS):
        middle = 0.5 * (good + bad)
        if converges(middle, curvature, momentum, nesterov=nesterov):
            good = middle
        else:
            bad = middle
    return good
