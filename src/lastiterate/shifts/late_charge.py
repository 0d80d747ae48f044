r"""The charge at a later step that covers a participation, for concave moduli.

Let :math:`w_k` be the moduli of steps in which an example does not take part, concave and
non-decreasing, and let it take part once, in step i, which adds s_i.  With

.. math:: d_i = s_i, \qquad d_k = w_k(d_{k-1}) - w_k(0)

every plan of shifts for :math:`w_j + d_j` in a later step j is one for the participation in step i:
by concavity :math:`w_k(z + d) \le w_k(z) + w_k(d) - w_k(0)`, so that the distance exceeds the
plan's by at most :math:`d_k` until step j, which charges it.  Where steps expand an early
participation has grown by then; charging it late as it was would be too little.
"""

from dataclasses import dataclass

from lastiterate._numerics.rounding import ulps, up
from lastiterate.shifts.optimal_shifts import Moduli


@dataclass(frozen=True)
class StepValues:
    """Moduli of single steps, for recursions from step to step."""

    moduli: Moduli

    def __call__(self, step: int, distance: float) -> float:
        """The modulus of this step at a distance, rounded up."""
        found: float = min(
            float(one.slope[step]) * distance
            + float(one.rise[step]) * distance**one.order
            + float(one.offset[step])
            for one in self.moduli.branches
        )
        return up(found, ulps(16))

    def increase(self, step: int, more: float) -> float:
        """The most by which a distance that is larger by `more` is larger after this step."""
        nothing = min(float(one.offset[step]) for one in self.moduli.branches)
        after = self(step, more)
        return max(after - nothing, 0.0) + ulps(4) * after


def late_charges(idle: Moduli, sensitivities: list[float], steps: range) -> list[float]:
    """The charges at `steps`, each for a participation in that step or in an earlier one."""
    values, charges, charge = StepValues(idle), [], 0.0
    for step in steps:
        charge = max(sensitivities[step], values.increase(step, charge))
        charges.append(charge)
    return charges
