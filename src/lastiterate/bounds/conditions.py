"""Conditions that several bounds share."""

import numpy as np

from lastiterate._numerics.rounding import FEW_ROUNDINGS, down
from lastiterate.bounds.bound import Bound, Hypothesis
from lastiterate.bounds.quantities import gaps, ratio, step_sizes, unit
from lastiterate.run.batch_rules.base import Resampling
from lastiterate.run.loss import quadratic_curvatures
from lastiterate.run.training_run import Ball, TrainingRun

NOTHING_TO_DO = "nothing to do"  # what the remedy begins with where a better bound applies


def contracts_by_step_size(run: TrainingRun) -> bool:
    """Whether no step is longer than 2/smoothness, decided without rounding."""
    return bool(np.all(gaps(run) >= 0.0))


def at_most_steps(
    most: int,
    remedy: str = "shorten the run",
    *,
    because: str = "",
    resampling: tuple[Resampling, ...] = tuple(Resampling),
) -> Hypothesis:
    """A limit on the length of runs, or only of those whose batches are drawn at these times."""

    def too_long(run: TrainingRun) -> str | None:
        return (
            f"steps={run.steps}"
            if run.batches.resampling in resampling and run.steps > most
            else None
        )

    limit = f"at most {most} steps"
    return Hypothesis(f"{limit}, {because}" if because else limit, too_long, remedy)


def enough_noise(largest_ratio: float, *, remedy: str) -> Hypothesis:
    """The hypothesis that sensitivity/(batch_size noise_std) is at most `largest_ratio`."""

    def too_little(run: TrainingRun) -> str | None:
        if not np.min(run.noise_std) > 0.0:
            return _step_without_noise(run)
        found = ratio(run)
        if found <= largest_ratio:
            return None
        return f"sensitivity/(batch_size noise_std) = {found:.4g}"

    limit = f"sensitivity/(batch_size noise_std) <= {largest_ratio:g}"
    return Hypothesis(f"noise in every step, and {limit}", too_little, remedy)


def one_of(bounds: tuple[Bound, ...], *, needs: str, remedy: str) -> Hypothesis:
    """The hypothesis that at least one of these bounds covers the run."""

    def none_covers(run: TrainingRun) -> str | None:
        covered = any(not bound.unmet(run) for bound in bounds)
        return None if covered else "a run that none of them covers"

    return Hypothesis(needs, none_covers, remedy)


def of_all(*bounds: Bound) -> tuple[Hypothesis, ...]:
    """The hypotheses of all these bounds, each once."""
    return tuple(dict.fromkeys(one for bound in bounds for one in bound.needs))


def _releases_every_iterate(run: TrainingRun) -> str | None:
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


def _schedule(run: TrainingRun) -> str | None:
    return None if run.is_constant else "a schedule"


def _step_without_noise(run: TrainingRun) -> str | None:
    least = float(np.min(run.noise_std))
    return None if least > 0.0 else f"noise_std {least!r}"


def _unbounded(run: TrainingRun) -> str | None:
    return None if isinstance(run.domain, Ball) else "Unbounded()"


def _bounded_domain(run: TrainingRun) -> str | None:
    return f"{run.domain!r}" if isinstance(run.domain, Ball) else None


def _partial_epoch(run: TrainingRun) -> str | None:
    length = run.batches.batches_per_epoch
    return None if run.steps % length == 0 else f"{run.steps} steps of {length} an epoch"


def _one_batch(run: TrainingRun) -> str | None:
    return None if run.batches.batches_per_epoch >= 2 else "one batch"


def _no_contraction(run: TrainingRun) -> str | None:
    if run.loss.smoothness is None or np.all(gaps(run) > 0.0):
        return None
    return f"strong_convexity={run.loss.strong_convexity!r}, step_size={unit(run)!r}"


def _past_the_best_step(run: TrainingRun) -> str | None:
    """eta (lambda + beta) < 2, so that c = 1 - eta lambda."""
    if run.loss.smoothness is None:
        return None
    largest, both = unit(run), run.loss.strong_convexity + run.loss.smoothness
    return (
        None
        if down(largest * both, FEW_ROUNDINGS) <= 2.0
        else f"step_size {largest!r} > {2 / both!r}"
    )


def _not_linear(run: TrainingRun) -> str | None:
    span = quadratic_curvatures(run)
    if span is not None and span[0] <= 0.0 <= span[1]:
        return None
    return f"strong_convexity={run.loss.strong_convexity!r}"


def _no_square(run: TrainingRun) -> str | None:
    span = quadratic_curvatures(run)
    if span is not None and 0.0 < run.loss.strong_convexity <= span[1] and run.loss.convex:
        return None
    return f"strong_convexity={run.loss.strong_convexity!r}"


def _noisy_release(run: TrainingRun) -> str | None:
    rho = run.release_noise_std
    return None if rho == 0.0 else f"release_noise_std={rho!r}"


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


def _gradients_of_any_size(run: TrainingRun) -> str | None:
    if run.adjacency == "zero-out" or run.gradient_bound is not None:
        return None
    return f"adjacency={run.adjacency!r} and gradients of any size"


ONLY_LAST_ITERATE = Hypothesis(
    "a run that publishes nothing but its last iterate (and perhaps the batch order)",
    _releases_every_iterate,
    "publish the final model only: no checkpoints, loss curves or early stopping on the data",
)
CONVEX = Hypothesis(
    "a convex loss for every example", _not_convex, "see fixed-order/non-convex, or a convex model"
)
SMOOTH = Hypothesis(
    "a known smoothness",
    _not_smooth,
    "state Loss(smoothness=..), if the gradient is Lipschitz; else smooth the loss, as the squared "
    "hinge does the hinge",
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
    "a constant step size and noise", _schedule, "keep step_size and noise_std fixed"
)
NOISY = Hypothesis(
    "noise in every step", _step_without_noise, "make noise_std positive in every step"
)
BOUNDED = Hypothesis(
    "a bounded domain", _unbounded, "project every iterate onto a ball: domain=Ball(diameter=..)"
)
UNBOUNDED = Hypothesis(
    "an unbounded domain", _bounded_domain, "see published/bok-su-altschuler/bounded-lower"
)
# Under these no step drives two points apart.
CONTRACTING = (CONVEX, SMOOTH, SHORT_STEPS, NO_ACTIVE_CLIP)
WHOLE_EPOCHS = Hypothesis(
    "whole epochs", _partial_epoch, "make steps a multiple of examples // batch_size"
)
SEVERAL_BATCHES = Hypothesis(
    "at least two batches an epoch", _one_batch, "see published/chourasia-ye-shokri for one batch"
)
STRONGLY_CONVEX = Hypothesis(
    "strongly convex losses, and steps shorter than 2/smoothness",
    _no_contraction,
    "add a regulariser: Loss(strong_convexity=..)",
)
BEST_STEP_AT_MOST = Hypothesis(
    "step_size <= 2/(smoothness + strong_convexity)", _past_the_best_step, "shorten the steps"
)
MAY_BE_LINEAR = Hypothesis(
    "losses that may be linear: no strong convexity", _not_linear, "see lower/quadratic"
)
# Constant gradient steps that do not drive two points apart, of which the last is published.
GRADIENT_STEPS = (ONLY_LAST_ITERATE, CONSTANT, NOISY, *CONTRACTING)

# What quadratics of the least curvature show is then a closed form.
SQUARES = (
    CONSTANT,
    NOISY,
    Hypothesis(
        "quadratics of curvature strong_convexity > 0 that the description admits",
        _no_square,
        "see lower/quadratic",
    ),
    UNBOUNDED,
    Hypothesis("no noise on release", _noisy_release, "see lower/quadratic"),
)

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
BOUNDED_GRADIENTS = Hypothesis(
    "adjacency='zero-out', or a bound on gradients",
    _gradients_of_any_size,
    "state that adjacency and its sensitivity, or loss.lipschitz",
)
