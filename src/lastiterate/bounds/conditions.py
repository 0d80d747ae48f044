"""Conditions that several bounds share."""

import numpy as np

from lastiterate.bounds.bound import Bound, Hypothesis
from lastiterate.bounds.quantities import gaps, ratio, step_sizes
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


def _published_order(run: TrainingRun) -> str | None:
    return None if run.releases == "last-iterate" else f"releases={run.releases!r}"


def _published_batches(run: TrainingRun) -> str | None:
    return f"releases={run.releases!r}" if "order" in run.releases else None


def _other_adjacency(run: TrainingRun) -> str | None:
    """A batch of fixed size without the example has another in its place.

    So the theorem compares the example with any other too, which zero-out sensitivity does
    not bound.
    """
    if run.batches.exact_size:
        return None if run.adjacency == "replace" else f"adjacency={run.adjacency!r}"
    if run.adjacency == "replace" and run.gradient_bound is None:
        return "adjacency='replace' and gradients of any size"
    cut = run.batches.largest_size
    return None if cut == run.batches.examples else f"largest_batch={cut}"


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

# Everything but the last iterate stays secret, or, of batches drawn anew, just their draws.
SECRET_ORDER = Hypothesis(
    "a batch order that stays secret",
    _published_order,
    "publish neither the order of the batches nor its seed, and nothing but the final model",
)
SECRET_BATCHES = Hypothesis(
    "batches that stay secret", _published_batches, "publish neither the batches nor their seed"
)
THEIR_ADJACENCY = Hypothesis(
    "adjacency='replace' for batches of a fixed size; for Poisson's, which must not be cut, "
    "'zero-out', or a bound on gradients",
    _other_adjacency,
    "state that adjacency and its sensitivity, or clip_norm, and leave out largest_batch",
)


def at_most_steps(most: int, *, because: str, remedy: str) -> Hypothesis:
    """A limit on the number of steps, and what is beyond it."""

    def too_many(run: TrainingRun) -> str | None:
        return None if run.steps <= most else f"steps={run.steps}"

    return Hypothesis(f"at most {most} steps, {because}", too_many, remedy)


def enough_noise(largest_ratio: float, *, remedy: str) -> Hypothesis:
    """Noise in every step, and not too little for what an example may add."""

    def too_little(run: TrainingRun) -> str | None:
        if not np.min(run.noise_std) > 0.0:
            return _silent(run)
        found = ratio(run)
        if found <= largest_ratio:
            return None
        return f"sensitivity/(batch_size noise_std) = {found:.4g}"

    limit = f"sensitivity/(batch_size noise_std) <= {largest_ratio:g}"
    return Hypothesis(f"noise in every step, and {limit}", too_little, remedy)


def one_of(bounds: tuple[Bound, ...], *, needs: str, remedy: str) -> Hypothesis:
    """That one of these bounds, at least, covers the run."""

    def none_covers(run: TrainingRun) -> str | None:
        covered = any(not bound.unmet(run) for bound in bounds)
        return None if covered else "a run that none of them covers"

    return Hypothesis(needs, none_covers, remedy)


def of_all(*bounds: Bound) -> tuple[Hypothesis, ...]:
    """The hypotheses of all these bounds, each once."""
    return tuple(dict.fromkeys(one for bound in bounds for one in bound.needs))
