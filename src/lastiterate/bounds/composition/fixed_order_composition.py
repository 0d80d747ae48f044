"""The bound by composition of all steps, as if every iterate were published."""

import math
from typing import assert_never

import numpy as np

from lastiterate._numerics.rounding import TINY, Array, ulps, up
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Bound, Certainty, Citation
from lastiterate.bounds.line_style import GREY, LineStyle
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.run.batch_rules.base import RULES, BatchRule, Resampling
from lastiterate.run.training_run import TrainingRun


def worst_order_composition(run: TrainingRun) -> GaussianProfile:
    r"""mu-GDP with mu^2 the sum of (L/(b sigma_k))^2 over the most exposed participations.

    **Bound.** Each step in which the differing example takes part is a Gaussian mechanism;
    steps in which it does not are post-processing.

    **Holds when.** every step has noise, whatever the losses and whatever is released.  Batches
    sampled anew every step count as if the example were always in: there is no amplification.

    **Tight** if all iterates are released and nothing else is known about the losses.

    **Source.** Dong, Roth and Su 2022, Corollary 3.3; Bok, Su and Altschuler 2024,
    Theorems 4.1 and 4.4.

    **Computed as** a sum of squares, rounded up.
    """
    change = max(quantities.gradient_change(run), TINY)
    if run.is_constant:
        noise = float(np.max(run.noise_std))
        return quantities.gaussian(
            change / noise * math.sqrt(run.batches.most_participations(run.steps))
        )
    noise_std = quantities.every_step(np.array(run.noise_std), run.steps)
    largest = float((1.0 / noise_std).max())
    squares = (1.0 / noise_std / largest) ** 2
    mu = change * largest * math.sqrt(_worst_sum(run, squares))
    # numpy's pairwise sums of n terms are off by about log2 n ulps.
    return quantities.gaussian(up(mu, ulps(64)))


def _worst_sum(run: TrainingRun, squares: Array) -> float:
    """The largest sum of squares over the participations of one example."""
    resampling = run.batches.resampling
    match resampling:
        case Resampling.NEVER | Resampling.ONCE:
            return max(float(squares[steps].sum()) for steps in quantities.patterns(run))
        case Resampling.EACH_EPOCH:
            starts = np.arange(0, run.steps, run.batches.batches_per_epoch)
            return float(np.maximum.reduceat(squares, starts).sum())
        case Resampling.EACH_FEW_EPOCHS:
            return _worst_draws(run.batches, squares)
        case Resampling.EACH_STEP:
            return float(squares.sum())
        case _:
            assert_never(resampling)


def _worst_draws(rule: BatchRule, squares: Array) -> float:
    """The largest sum over sets of steps, as many of each draw as one example may take part in."""
    length = rule.steps_per_draw
    draws = (squares[start : start + length] for start in range(0, squares.size, length))
    return math.fsum(
        float(np.sort(draw)[::-1][: rule.most_participations(draw.size)].sum()) for draw in draws
    )


FIXED_ORDER_COMPOSITION = Bound(
    id="composition/fixed-order",
    gives="a Gaussian guarantee for all iterates together, growing with the square root of steps",
    covers=tuple(RULES.values()),
    needs=(conditions.NOISY,),
    certainty=Certainty.UPPER,
    beyond_plain_steps=True,  # later steps only post-process the noisy gradients
    source=Citation("Dong, Roth and Su", 2022, "Gaussian differential privacy", "Corollary 3.3"),
    evaluate=worst_order_composition,
    for_persons=worst_order_composition,  # most exposed with all examples in one batch
    charges="charges every step that sees the example, as if all iterates were published",
    line_style=LineStyle(GREY),
    given_order=True,
)
