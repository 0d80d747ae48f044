"""Trade-offs of error rates that a delta curve allows."""

from collections.abc import Callable
from typing import Any

import numpy as np

from lastiterate._numerics.rounding import Array, at_most, ulps
from lastiterate.errors import InvalidParameter, InvalidType


def curve_tradeoff(deltas: Callable[[Array], Array], alpha: float) -> float:
    """The least false-negative rate at the false-positive rate `alpha`, rounded down.

    It is the sup over epsilon of 1 - delta - e^epsilon alpha and e^-epsilon (1 - delta - alpha);
    every epsilon gives a valid value, so a search suffices.
    """
    epsilons = np.concatenate([[0.0], np.geomspace(1e-6, 700.0, 400)])
    best = 0.0
    for _ in range(3):
        off = ulps(4) * (1.0 + np.exp(epsilons) * alpha)
        values = least_misses(alpha, epsilons, deltas(epsilons), off=off)
        top = int(np.argmax(values))
        best = max(best, float(values[top]))
        near = epsilons[max(top - 1, 0)], epsilons[min(top + 1, epsilons.size - 1)]
        epsilons = np.linspace(*near, 100)
    return at_most(best, ulps=16)


def false_positive_rates(fpr: Any) -> Array | None:
    """Rates in [0, 1] as an array; None if a single number was given, or nothing of the kind."""
    if isinstance(fpr, (str, bytes)) or np.ndim(fpr) == 0:
        return None
    rates = np.asarray(fpr)
    must_be = "a number in [0, 1], or an array of such numbers"
    if rates.dtype.kind not in "iuf" and rates.size:
        raise InvalidType("fpr", fpr, must_be=must_be)
    rates = rates.astype(np.float64)
    if not ((rates >= 0.0) & (rates <= 1.0)).all():  # nan fails both
        raise InvalidParameter("fpr", fpr, must_be=must_be)
    return rates


def least_misses(
    fpr: float | Array, epsilons: Array, deltas: Array, *, off: float | Array = 0.0
) -> Array:
    """The least false-negative rates that (epsilon, delta)-DP, each by itself, leaves possible.

    1 - delta - e^epsilon fpr and e^-epsilon (1 - delta - fpr), whichever is more; negative where
    nothing is said.  `off` is what the numerators may be off by.
    """
    kept, growth = 1.0 - deltas, np.exp(epsilons)
    with np.errstate(over="ignore"):
        steep = kept - growth * fpr - off
    return np.asarray(np.maximum(steep, (kept - fpr - off) / growth))
