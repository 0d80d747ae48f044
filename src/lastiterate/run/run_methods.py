"""Methods of `TrainingRun` that make a run from other formats, or display it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from lastiterate._html import card
from lastiterate.run.schedule import shortened

if TYPE_CHECKING:
    from lastiterate.run.training_run import TrainingRun


class RunSurface:
    """The methods of `TrainingRun` that make a run from other formats, or display it."""

    @staticmethod
    def from_dp_event(
        event: Any, *, clip_norm: float, examples: int | None = None, **said: Any
    ) -> TrainingRun:
        """The run of a `dp_accounting` event, as Opacus, jax_privacy and others make them.

        Gaussian events, alone or sampled (Poisson, without replacement, truncated), composed;
        everything else is refused.  `said` is what else `from_dp_sgd` takes: `loss`, `step_size`,
        `adjacency` ("zero-out" is REPLACE_SPECIAL there, "replace" REPLACE_ONE).

        An event does not tell what was trained.  Some mechanisms that are not plain noisy gradient
        descent, such as banded matrix factorisation, have the event of one that is: describing
        these by `loss` and `step_size` would promise too much.
        """
        from lastiterate.run.dp_events import run_of  # it builds runs

        return run_of(event, clip_norm=clip_norm, examples=examples, **said)

    def _repr_html_(self) -> str:
        fields = dataclasses.fields(self)  # type: ignore[arg-type]  # what derives from it is one
        rows = [(one.name, shortened(getattr(self, one.name))) for one in fields]
        return card("TrainingRun", rows)
