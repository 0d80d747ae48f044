"""The envelope's equations for one example, by halving intervals in many digits.

It takes seconds, and is needed where floats end: for logits of 1e299, or residuals that are longer
than a tiny clip by no more than rounding.  For a given multiplier s the mass m falls with the
common constant B, and the norm of the residual falls with s.  Two intervals that are halved hold
the solution, whatever the logits: nothing can fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, localcontext

from scipy.special import wrightomega

_DIGITS = 45
_HALVINGS = 130
_NEWTON = 3
_LEAST_LOG = Decimal(-90)
_TINY = Decimal(-40)  # below it, a solution of y + log y = x is e^x to many digits


def exact_wrong_part(v: Sequence[float], c: float) -> list[float]:
    """Wrong-class probabilities for finite wrong logits less the label's."""
    with localcontext(prec=_DIGITS):
        logits, clip = [Decimal(one) for one in v], Decimal(c)
        top = max(Decimal(0), *logits)
        p = [(one - top).exp() for one in logits]
        total = sum(p) + (-top).exp()
        p = [one / total for one in p]
        if _squared_norm(p) > clip * clip:
            p = _clipped(logits, clip, top)
        return [float(one) for one in p]


def _clipped(v: list[Decimal], c: Decimal, top: Decimal) -> list[Decimal]:
    spread = Decimal(len(v)).ln() + 2
    low, high = _LEAST_LOG, (4 * (top + spread) / (c * c)).ln()
    p: list[Decimal] = []
    for _ in range(_HALVINGS):
        log_s = (low + high) / 2
        p = _for_multiplier(v, log_s, top, spread)
        low, high = (log_s, high) if _squared_norm(p) > c * c else (low, log_s)
    factor = c / _squared_norm(p).sqrt()
    return [one * factor for one in p]


def _for_multiplier(
    v: list[Decimal], log_s: Decimal, top: Decimal, spread: Decimal
) -> list[Decimal]:
    """p for this s, by halving an interval of B less the top logit."""
    s = log_s.exp()
    # As B is at least 0, and as no p exceeds 1.
    least, most = max(-top, -s), s + spread
    p: list[Decimal] = []
    for _ in range(_HALVINGS):
        beyond = (least + most) / 2
        p = [_omega(one - top - beyond + log_s) / s for one in v]
        m = sum(p, Decimal(0))
        small = m >= 1 or s * m - (1 - m).ln() - top > beyond
        least, most = (beyond, most) if small else (least, beyond)
    return p


def _omega(x: Decimal) -> Decimal:
    """The solution of y + log y = x."""
    if x < _TINY:
        return x.exp()
    y = Decimal(float(wrightomega(float(x)))) if x < 10**15 else x
    for _ in range(_NEWTON):
        y *= (1 + x - y.ln()) / (1 + y)
    return y


def _squared_norm(p: list[Decimal]) -> Decimal:
    m = sum(p, Decimal(0))
    return m * m + sum((one * one for one in p), Decimal(0))
