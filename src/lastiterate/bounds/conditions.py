"""Conditions that several bounds share."""

import numpy as np

from lastiterate.bounds.bound import Hypothesis
from lastiterate.bounds.quantities import gaps, step_sizes
from lastiterate.run.batch_rule import Drawn
from lastiterate.run.domain import Ball
from lastiterate.run.training_run import TrainingRun


def _more_released(run: TrainingRun) -> str | None:
    return f"releases={run.releases!r}" if run.releases == "every-iterate" else None


def _not_convex(run: TrainingRun) -> str | None:
    return None if run.loss.convex else "convex=False"


def _not_smooth(run: TrainingRun) -> str | None:
    return "smoothness=None" if run.loss.smoothness is None else None


def _long_steps(run: TrainingRun) -> str | None:
    if run.loss.smoothness is None or contracts_by_step_size(run):
        return None
    largest = float(step_sizes(run).max())
    return f"step_size {largest!r} > {2 / run.loss.smoothness!r}"


def _active_clip(run: TrainingRun) -> str | None:
    if not run.clip_may_be_active:
        return None
    return f"clip_norm={run.clip_norm!r} with loss.lipschitz={run.loss.lipschitz!r}"


def _unbounded(run: TrainingRun) -> str | None:
    return None if isinstance(run.domain, Ball) else "Unbounded()"


def _varying(run: TrainingRun) -> str | None:
    return None if run.is_constant else "a schedule"


def _silent(run: TrainingRun) -> str | None:
    least = float(np.min(run.noise_std))
    return None if least > 0.0 else f"noise_std {least!r}"


def contracts_by_step_size(run: TrainingRun) -> bool:
    """Whether no step is longer than 2/smoothness, decided without rounding."""
    return bool(np.all(gaps(run) >= 0.0))


ONLY_LAST_ITERATE = Hypothesis(
    "a run that publishes nothing but its last iterate (and perhaps the batch order)",
    _more_released,
    "publish the final model only: no checkpoints, loss curves or early stopping on the data",
)
CONVEX = Hypothesis(
    "a convex loss for every example", _not_convex, "see fixed-order/non-convex, or a convex model"
)
SMOOTH = Hypothesis(
    "a known smoothness", _not_smooth, "state Loss(smoothness=..), if the gradient is Lipschitz"
)
SHORT_STEPS = Hypothesis(
    "step_size <= 2/smoothness in every step", _long_steps, "shorten the steps"
)
NO_ACTIVE_CLIP = Hypothesis(
    "gradients that norm clipping never changes (a clipped step is not a contraction)",
    _active_clip,
    "clip so that convexity is kept and describe that loss, or state a loss.lipschitz at most "
    "clip_norm",
)
CONSTANT = Hypothesis(
    "a constant step size and noise", _varying, "keep step_size and noise_std fixed"
)
NOISY = Hypothesis("noise in every step", _silent, "make noise_std positive in every step")
BOUNDED = Hypothesis(
    "a bounded domain", _unbounded, "project every iterate onto a ball: domain=Ball(diameter=..)"
)

# Under these no step drives two points apart.
CONTRACTING = (CONVEX, SMOOTH, SHORT_STEPS, NO_ACTIVE_CLIP)


def _bounded(run: TrainingRun) -> str | None:
    return f"{run.domain!r}" if isinstance(run.domain, Ball) else None


UNBOUNDED = Hypothesis(
    "an unbounded domain", _bounded, "see published/bok-su-altschuler/bounded-lower"
)


def at_most_steps(
    most: int, remedy: str = "shorten the run", *, drawn: tuple[Drawn, ...] = tuple(Drawn)
) -> Hypothesis:
    """A limit on the length of runs, or only of those whose batches are drawn at these times."""

    def too_long(run: TrainingRun) -> str | None:
        return f"steps={run.steps}" if run.batches.drawn in drawn and run.steps > most else None

    return Hypothesis(f"at most {most} steps", too_long, remedy)
