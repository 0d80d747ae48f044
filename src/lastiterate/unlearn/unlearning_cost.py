"""The cost of unlearning: how many examples before retraining is cheaper, and epsilon by steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from lastiterate import _check
from lastiterate._numerics.search import last_count_true
from lastiterate.errors import InvalidType
from lastiterate.plot.named_lines import lines
from lastiterate.run.optimizer import require_plain_steps
from lastiterate.run.training_run import TrainingRun
from lastiterate.unlearn.unlearning_plan import unlearning

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def deletion_capacity(run: TrainingRun, *, epsilon: float, delta: float, share: float = 1.0) -> int:
    """The largest number of examples that can be unlearned at once within a share of the training.

    Parameters
    ----------
    run : TrainingRun
        The training.
    epsilon, delta : float
        The guarantee for the removed examples.
    share : float
        The largest acceptable number of extra steps, as a share of the steps of the training.

    Returns
    -------
    int
        The number of examples; 0 if not even one can be unlearned within the share.

    Raises
    ------
    InvalidParameter
        If a parameter is outside its range.

    Examples
    --------
    >>> import lastiterate as li
    >>> from lastiterate.unlearn.unlearning_cost import deletion_capacity
    >>> run = li.TrainingRun(
    ...     loss=li.Loss(smoothness=0.26, regulariser=0.01), sensitivity=1.0,
    ...     batches=li.Cyclic(examples=10_000, batch_size=500), steps=800,
    ...     step_size=2.0, noise_std=0.01, adjacency="zero-out")
    >>> deletion_capacity(run, epsilon=1.0, delta=1e-5, share=0.2)
    56
    """
    if not isinstance(run, TrainingRun):
        raise InvalidType("run", run, must_be="a TrainingRun")
    require_plain_steps(run, "unlearning")
    target = _check.target_epsilon("epsilon", epsilon)
    delta = _check.number("delta", delta, above=0.0, below=1.0)
    part = _check.number("share", share, above=0.0, at_most=1.0)
    most = max(int(part * run.steps) - (part == 1.0), 0)

    def is_within_target(examples: int) -> bool:
        return unlearning(run, extra_steps=most, examples=examples).epsilon(delta) <= target

    return last_count_true(is_within_target, max(run.batches.examples - 1, 1))


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
        The delta of the guarantee.
    examples : sequence of int
        The numbers of removed examples; each has a curve.
    steps : sequence of int, optional
        The numbers of extra steps; by default from 1 to the steps of the training.

    Returns
    -------
    matplotlib.figure.Figure
        The plot.
    """
    _check.number("delta", delta, above=0.0, below=1.0)
    if steps is None:
        steps = np.unique(np.geomspace(1, run.steps, _POINTS).round().astype(int)).tolist()
    curves = {
        f"{many:,} {'example' if many == 1 else 'examples'}": [
            unlearning(run, extra_steps=one, examples=many).epsilon(delta) for one in steps
        ]
        for many in examples
    }
    return lines(
        steps,
        curves,
        across="extra steps",
        up=f"epsilon for removed examples at delta = {delta:g}",
    )
