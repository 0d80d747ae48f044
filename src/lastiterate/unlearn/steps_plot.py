"""Epsilon of those who are forgotten, against the extra steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from lastiterate import _check
from lastiterate.plot.named_lines import lines
from lastiterate.run.training_run import TrainingRun
from lastiterate.unlearn.unlearning_plan import unlearning

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_POINTS = 12


def epsilon_by_extra_steps(
    run: TrainingRun,
    *,
    delta: float = 1e-5,
    examples: Sequence[int] = (1, 10, 100),
    steps: Sequence[int] | None = None,
) -> Figure:
    """A plot of epsilon after unlearning against extra steps, for several numbers of examples.

    Parameters
    ----------
    run : TrainingRun
        The training.
    delta : float
        Of (epsilon, delta).
    examples : sequence of int
        A curve for each.
    steps : sequence of int, optional
        From one extra step to as many as the training has.
    """
    _check.number("delta", delta, above=0.0, below=1.0)
    if steps is None:
        steps = np.unique(np.geomspace(1, run.steps, _POINTS).round().astype(int)).tolist()
    told = {
        f"{many:,} {'example' if many == 1 else 'examples'}": [
            unlearning(run, extra_steps=one, examples=many).epsilon(delta) for one in steps
        ]
        for many in examples
    }
    return lines(
        steps, told, across="extra steps", up=f"epsilon of the forgotten at delta = {delta:g}"
    )
