"""Pictures, one call each; every function gives a matplotlib figure (extra `plot`)."""

from lastiterate.plot.curves import (
    accuracy_by_epsilon,
    delta_by_epsilon,
    epsilon_by_steps,
    shift_schedule,
    tradeoff,
)
from lastiterate.plot.style import lines, save

__all__ = [
    "accuracy_by_epsilon",
    "delta_by_epsilon",
    "epsilon_by_steps",
    "lines",
    "save",
    "shift_schedule",
    "tradeoff",
]
