r"""Losses that Altschuler and Talwar's assumptions leave out, as losses that they admit.

Their section 1.2 says in words how smoothness and Lipschitz constants may be had; these functions
are the constants.
"""

import math

from lastiterate import _check
from lastiterate._numerics.rounding import FEW_ROUNDINGS, up
from lastiterate.run.loss import Loss


def gaussian_smoothed(*, lipschitz: float, width: float) -> Loss:
    r"""The loss :math:`E f(x + \text{width}\, Z)`, Z a standard Gaussian, for a convex f.

    Its gradient is :math:`E\,\nabla f(x + \text{width}\, Z)`, which is
    :math:`\sqrt{2/\pi}\,L/\text{width}`-Lipschitz: two Gaussians at distance d have total variation
    at most :math:`d/(\text{width}\sqrt{2\pi})`.  The loss rises by at most
    :math:`L\,\text{width}\sqrt{\text{dimension}}`.

    Parameters
    ----------
    lipschitz : float
        A bound on the gradients of f.
    width : float
        The standard deviation of the smoothing.

    Returns
    -------
    Loss
        Convex, smooth and with the same Lipschitz constant.

    Examples
    --------
    >>> round(gaussian_smoothed(lipschitz=1.0, width=0.5).smoothness, 4)
    1.5958
    """
    L = _check.number("lipschitz", lipschitz, above=0.0)
    s = _check.number("width", width, above=0.0)
    return Loss(smoothness=up(math.sqrt(2.0 / math.pi) * L / s, FEW_ROUNDINGS), lipschitz=L)


def moreau_smoothed(*, lipschitz: float, width: float) -> Loss:
    r"""The Moreau envelope :math:`\min_y f(y) + |x - y|^2/(2\,\text{width})` of a convex f.

    Its gradient is (x - y)/width at the minimising y, so a step is a proximal one.  It is
    1/width-smooth, and lies below f by at most :math:`L^2\,\text{width}/2`.

    Parameters
    ----------
    lipschitz : float
        A bound on the gradients of f.
    width : float
        The weight of f against the squared distance.

    Returns
    -------
    Loss
        Convex, smooth and with the same Lipschitz constant.

    Examples
    --------
    >>> round(moreau_smoothed(lipschitz=1.0, width=0.5).smoothness, 9)
    2.0
    """
    L = _check.number("lipschitz", lipschitz, above=0.0)
    s = _check.number("width", width, above=0.0)
    return Loss(smoothness=up(1.0 / s, FEW_ROUNDINGS), lipschitz=L)


def lipschitz_on_ball(*, smoothness: float, diameter: float) -> float:
    """The bound M D on gradients on the domain, if each of them vanishes somewhere in it.

    Two of them then differ by at most 2 L, which is the `sensitivity`.

    Parameters
    ----------
    smoothness : float
        A Lipschitz constant of every gradient.
    diameter : float
        The diameter of the domain.

    Returns
    -------
    float
        The bound.

    Examples
    --------
    >>> lipschitz_on_ball(smoothness=4.0, diameter=0.5)
    2.0
    """
    M = _check.number("smoothness", smoothness, above=0.0)
    return M * _check.number("diameter", diameter, above=0.0)
