r"""A participation charged later than it happened.

Let :math:`E_0 \succeq B B'` and :math:`E_{j+1} \succeq A(l) E_j A(l)'` at both ends of the
curvature.  A participation in step t may then be charged in a later step v, in the direction
:math:`E_{v-t}` instead of B B': between the two :math:`\kappa E_{k-t}` is added to X_k, and every
inequality of the certificate holds.

Here E_j is a multiple of P^-1, of the common norm, from some age on.  It is then the same for all
older participations if that norm shrinks, and else grows with its rate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lastiterate._numerics.intervals import Interval
from lastiterate._numerics.rounding import THOUSANDS_OF_ROUNDINGS, Array, up
from lastiterate.shifts.momentum.backward_start import backward_start
from lastiterate.shifts.momentum.certificate import Step, has_no_negative_eigenvalue, image
from lastiterate.shifts.momentum.common_norm import CommonNorm, common_norm, is_surely
from lastiterate.shifts.momentum.programme import Programme, solve
from lastiterate.shifts.momentum.recursion import Recursion
from lastiterate.shifts.momentum.recursion_mu import last_transitions, turned_to_noise
from lastiterate.shifts.momentum.symmetric import as_entries, congruence, largest_multiple, outer

_MARGIN = 1e-6  # of every size, for roundings
_RATE_MARGIN = 1e-9
_LARGE = 1e6  # against the sizes of the matrices
_LARGEST_LOG = 600.0  # of a growth that floats hold


@dataclass(frozen=True)
class Delays:
    """Directions of delayed participations in a recursion of constant steps."""

    recursion: Recursion
    curvature: tuple[float, float]

    def direction(self, youngest: int, oldest: int) -> Array | None:
        """A matrix that charges a participation of any of these ages; None where none is proved.

        It is a multiple of P^-1.
        """
        size, growth = self._size(youngest), self._growth
        if size is None or growth is None:
            return None
        return self._grown(size, growth, oldest - youngest)

    def first_step_direction(self, age: int) -> Array | None:
        """A matrix that charges a participation in the first step at this age.

        There B may be another: without dampening, or where an average copies the iterate.
        """
        growth = self._growth
        *_, b0, b1 = (entry[:1] for entry in self.recursion.enclosed_entries())
        own = outer(0.5 * (b0.low[0] + b0.high[0]), 0.5 * (b1.low[0] + b1.high[0]))
        size = up(1.0 / float(largest_multiple(self._inverse, own)), _MARGIN)
        x, y, z = (Interval.exact([size]) * Interval.exact([v]) for v in self._inverse)
        left = (x - b0 * b0, y - b0 * b1, z - b1 * b1)
        if growth is None or not has_no_negative_eigenvalue(left):
            return None
        return self._grown(size, growth, age)

    def _grown(self, size: float, growth: float, age: int) -> Array | None:
        """`size` P^-1 after so many steps; None beyond floating point."""
        log = age * math.log(growth)
        if not log < _LARGEST_LOG:
            return None
        factor = up(math.exp(log), THOUSANDS_OF_ROUNDINGS)
        return np.asarray(up(size * factor, THOUSANDS_OF_ROUNDINGS) * self._inverse)

    @cached_property
    def _norm(self) -> CommonNorm:
        return common_norm(last_transitions(self.recursion, self.curvature))

    @property
    def _inverse(self) -> Array:
        return as_entries(self._norm.inverse)

    @cached_property
    def _steps(self) -> tuple[Step, Step]:
        """A(l) at both ends of the curvature, in intervals."""
        a00, a01, a10, a11, b0, b1 = (entry[-1:] for entry in self.recursion.enclosed_entries())
        low, high = (Interval.exact([end]) for end in self.curvature)
        return (
            (a00 + low * b0, a01, a10 + low * b1, a11),
            (a00 + high * b0, a01, a10 + high * b1, a11),
        )

    @cached_property
    def _growth(self) -> float | None:
        """A factor >= 1 by which P^-1 grows at most in a step."""
        rate = max(up(self._norm.rate, _RATE_MARGIN), 1.0)
        return up(rate * rate, _RATE_MARGIN) if is_surely(self._norm, self._steps, rate) else None

    @cached_property
    def _sizes(self) -> dict[int, float | None]:
        return {}

    def _size(self, age: int) -> float | None:
        """A factor of P^-1 that is above E_age."""
        if age not in self._sizes:
            self._sizes[age] = self._proved_size(age)
        return self._sizes[age]

    def _proved_size(self, age: int) -> float | None:
        *_, b0, b1 = (float(entry[-1]) for entry in self.recursion.entries())
        own = outer(np.array(b0), np.array(b1))
        if age == 0:
            chain = self._inverse[None] / float(largest_multiple(self._inverse, own))
            chain = up(chain, _MARGIN)
        else:
            found = _chain(self._norm, self.recursion, self.curvature, age)
            if found is None:
                return None
            # Each a little larger than the one before, so that all inequalities are strict.
            larger = (1.0 + _MARGIN) ** np.arange(1, age + 2)
            chain = found / float(largest_multiple(found[0], own)) * larger[:, None]
        size = up(1.0 / float(largest_multiple(self._inverse, chain[-1])), _MARGIN)
        return size if self._is_proved(chain, size) else None

    def _is_proved(self, chain: Array, size: float) -> bool:
        """Whether the matrices are E_0 .. E_age, and the last is at most `size` P^-1."""
        *_, b0, b1 = (entry[-1:] for entry in self.recursion.enclosed_entries())
        own = (b0 * b0, b0 * b1, b1 * b1)
        x, y, z = (Interval.exact(chain[:, i]) for i in range(3))
        inverse = [Interval.exact([size]) * Interval.exact([value]) for value in self._inverse]
        inequalities = [
            (x[:1] - own[0], y[:1] - own[1], z[:1] - own[2]),
            (inverse[0] - x[-1:], inverse[1] - y[-1:], inverse[2] - z[-1:]),
        ]
        for step in self._steps:
            moved = image(step, (x[:-1], y[:-1], z[:-1]))
            inequalities.append((x[1:] - moved[0], y[1:] - moved[1], z[1:] - moved[2]))
        return all(has_no_negative_eigenvalue(one) for one in inequalities)


def _chain(
    norm: CommonNorm, recursion: Recursion, curvature: tuple[float, float], age: int
) -> Array | None:
    """Matrices that each step maps below the next, the last one below P^-1, the first one large.

    It is the certificate's programme without noise, for one participation in the first step.
    """
    root = turned_to_noise(recursion, norm)
    back = np.linalg.inv(root)
    ends = [
        np.broadcast_to(root @ step @ back, (age + 2, 2, 2)).copy()
        for step in last_transitions(recursion, curvature)
    ]
    maps = np.stack(
        [congruence(one[:, 0, 0], one[:, 0, 1], one[:, 1, 0], one[:, 1, 1]) for one in ends]
    )
    *_, b0, b1 = (float(entry[-1]) for entry in recursion.entries())
    pushed = root @ np.array([b0, b1])
    directions = np.broadcast_to(outer(pushed[0], pushed[1]), (age + 2, 3))
    weights = np.zeros(age + 2)
    weights[0] = 1.0
    caps = np.full(age + 1, _LARGE)
    caps[-1] = 1.0
    final = np.array([1.0, 0.0, 1.0])  # and so much room that it never matters
    programme = Programme(maps, np.zeros((age + 2, 3)), directions, weights, final, _LARGE, caps)
    first = backward_start(programme, ends)
    if first is None or not programme.holds_strictly(0.5 * programme.largest_kappa(first), first):
        return None
    to_state = congruence(back[0, 0], back[0, 1], back[1, 0], back[1, 1])
    return np.asarray(solve(programme, first) @ to_state.T)
