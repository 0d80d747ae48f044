r"""A strictly feasible start for the programme, step by step from the last one to the first.

A X A' is at most Q, for Q > 0, just where :math:`X^{-1} \ge A' Q^{-1} A`.  So for given kappa, each
X_{k-1} is chosen as large as the next one allows at both ends of the curvature.  From there Newton
steps need not enlarge the matrices little by little.
"""

from __future__ import annotations

import numpy as np

from lastiterate._numerics.rounding import Array
from lastiterate.shifts.momentum.programme import Programme
from lastiterate.shifts.momentum.symmetric import Symmetric, determinant, join

_SHARE = 0.5  # of the noise, left for kappa where the example takes part
_STRICT = 0.02


def backward_start(programme: Programme, ends: list[Array]) -> Array | None:
    """X_1 .. X_{T-1}, as large as can be from the last backwards; None where floats fail.

    `ends` are the steps A_k(l) at both ends of the curvature, in the programme's coordinates.
    """
    steps = programme.steps
    strict = 1.0 + max(_STRICT / 10, min(_STRICT, 5.0 / steps))
    both = [one.reshape(steps, 4).tolist() for one in ends]
    noise, caps = programme.noise.tolist(), programme.caps.tolist()
    there = programme.takes_part.tolist()
    # What has another direction than the noise needs room in all of them.
    delayed = (programme.takes_part & (determinant(programme.directions) > 0.0)).tolist()
    found = np.empty((steps - 1, 3))
    try:
        inverse = _last_inverse(programme)
        for k in range(steps - 1, 0, -1):
            state = _inverse(inverse)
            found[k - 1] = state
            if k == 1:
                break
            room = _plus(state, noise[k - 1], 1.0 - _SHARE if there[k - 1] else 1.0)
            if delayed[k - 1]:
                room = (_SHARE * room[0], _SHARE * room[1], _SHARE * room[2])
            pulled = [_pulled_back(_inverse(room), one[k - 1]) for one in both]
            small = 1.0 / caps[k - 2]
            joined = join(*(_plus(one, (1.0, 0.0, 1.0), small) for one in pulled))
            inverse = (strict * joined[0], strict * joined[1], strict * joined[2])
    except (ZeroDivisionError, ValueError, OverflowError):
        return None
    return found if np.all(np.isfinite(found)) else None


def _last_inverse(programme: Programme) -> Symmetric:
    """The inverse of an X_{T-1} that leaves room for half of what the last step hides."""
    room = programme.release + float(programme.final @ programme.noise[-1])
    room *= (1.0 - _SHARE if programme.takes_part[-1] else 1.0) * (1.0 - _STRICT)
    total = np.sum(programme.last_maps, axis=0) / room
    small = 1.0 / float(programme.caps[-1])
    return float(total[0]) + small, float(total[1]) / 2.0, float(total[2]) + small


def _inverse(matrix: Symmetric) -> Symmetric:
    x, y, z = matrix
    whole = x * z - y * y
    if not whole > 0.0:
        raise ZeroDivisionError
    return z / whole, -y / whole, x / whole


def _plus(matrix: Symmetric, other: Symmetric, times: float) -> Symmetric:
    return (
        matrix[0] + times * other[0],
        matrix[1] + times * other[1],
        matrix[2] + times * other[2],
    )


def _pulled_back(matrix: Symmetric, step: list[float]) -> Symmetric:
    """A' Q A."""
    a00, a01, a10, a11 = step
    x, y, z = matrix
    left0, left1 = x * a00 + y * a10, y * a00 + z * a10
    right0, right1 = x * a01 + y * a11, y * a01 + z * a11
    return a00 * left0 + a10 * left1, a00 * right0 + a10 * right1, a01 * right0 + a11 * right1
