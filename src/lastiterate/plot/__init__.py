"""Pictures, one call each; every function gives a matplotlib figure (extra `plot`)."""

from lastiterate.plot.accuracy_by_epsilon import accuracy_by_epsilon
from lastiterate.plot.epsilon_curves import epsilon_by_steps
from lastiterate.plot.named_lines import lines
from lastiterate.plot.profile_curves import delta_by_epsilon, tradeoff
from lastiterate.plot.save import save
from lastiterate.plot.shift_schedule_plot import shift_schedule

__all__ = [
    "accuracy_by_epsilon",
    "delta_by_epsilon",
    "epsilon_by_steps",
    "lines",
    "save",
    "shift_schedule",
    "tradeoff",
]
