"""The bound by composition of steps in which every example takes part equally often."""

from collections import Counter

import numpy as np

from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Bound, Certainty, Citation
from lastiterate.bounds.composition.balls_and_bins_composition import (
    ENOUGH_NOISE_FOR_GRADIENTS,
    LARGEST_RATIO,
    MORE_NOISE,
    MOST_EPOCHS,
    epoch_losses,
    few_levels,
    rounded_up,
)
from lastiterate.bounds.line_style import ORANGE, LineStyle
from lastiterate.profile.group import for_group
from lastiterate.profile.losses import Repeated, SummedLossesProfile
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.run.batch_rules.drawn import BalancedSampled
from lastiterate.run.training_run import TrainingRun


def balanced_composition(run: TrainingRun) -> PrivacyProfile:
    r"""The profile of all iterates together, with amplification by hidden participations.

    **Bound.** The kl steps of k epochs in which every example takes part in k, with ratios of at
    most :math:`r = C/(b\sigma)`, are dominated, in both directions, by k independent pairs with the
    likelihood ratio :math:`X = \frac1l \sum_{t\le l} \exp(r z_t - r^2/2)`, :math:`z_t` independent
    standard normal variables.

    **Holds when.** every example draws its k steps uniformly, independently and in secret; every
    step has noise; an example adds at most C to the sum of gradients, and is left out, or replaced.
    All iterates may be released, but not the batches.  Nothing else is known of the losses.

    *Proof.* Divide the kl steps at random into k blocks of l, uniformly, and let the example draw
    one step of each block.  That is a uniform set of k steps, since no step differs from another.
    Reveal the blocks, which do not depend on the data: divergences are jointly convex, so they do
    not become smaller.  Given the blocks and the batches of all others, the likelihood ratio of
    iterates with and without the example is
    :math:`\prod_B \frac1l\sum_{t \in B} \exp(a_t g_t - |a_t|^2/2)`, with the noise :math:`g_t` of
    step t, and :math:`a_t` known before it, of length at most r.  Blocks interleave in time, but
    no step is in two.  With :math:`r z_t = a_t g_t + (r^2 - |a_t|^2)^{1/2} h_t` for further
    independent standard normal :math:`h_t`, all :math:`z_t` are independent standard normal
    variables.  Given all :math:`g_t`, the :math:`h_t` are still independent, so the average of
    :math:`\prod_B \frac1l\sum_{t\in B} \exp(r z_t - r^2/2)` is that ratio.  Divergences are
    averages of convex functions of it (Jensen).  The same holds given all earlier draws.

    Steps that a run does not make any more are not seen: a last draw that is cut costs at most as
    much as a whole one.  If an example is replaced, the run without either stands between the two:
    group privacy.

    **Tight** for k = 1, if all iterates are released and nothing else is known of the losses.

    **Source.** Feldman and Shenfeld 2025, on allocations of several steps; Dong, Chen and Ozgur
    2025 on balanced iteration subsampling.

    **Computed as** for `composition/balls-and-bins`; noise that varies counts as the least of its
    draw, in a few levels.
    """
    if run.adjacency == "replace":
        assert run.gradient_bound is not None
        left_out = run.replace(adjacency="zero-out", sensitivity=run.gradient_bound)
        return for_group(balanced_composition(left_out), 2)
    rule = run.batches
    length, share = rule.batches_per_epoch, rule.share
    often = rule.most_participations(rule.steps_per_draw)
    return SummedLossesProfile(
        [
            Repeated(epoch_losses((ratio,) * length, share), often * draws)
            for ratio, draws in _ratios(run).items()
        ]
    )


def _ratios(run: TrainingRun) -> Counter[float]:
    """The largest ratio of sensitivity and noise of a draw, rounded up, and of how many draws."""
    change, length = quantities.gradient_change(run), run.batches.steps_per_draw
    if run.is_constant:
        return Counter({rounded_up(change / float(np.max(run.noise_std))): -(-run.steps // length)})
    starts = np.arange(0, run.steps, length)
    noise = quantities.every_step(np.array(run.noise_std), run.steps)
    return Counter(few_levels(np.maximum.reduceat(change / noise, starts), MOST_EPOCHS))


BALANCED_COMPOSITION = Bound(
    id="composition/balanced",
    gives="all iterates together, with amplification by equally many hidden participations",
    covers=(BalancedSampled,),
    needs=(
        conditions.BOUNDED_GRADIENTS,
        conditions.SECRET_BATCHES,
        conditions.enough_noise(LARGEST_RATIO, remedy=MORE_NOISE),
        ENOUGH_NOISE_FOR_GRADIENTS,
    ),
    certainty=Certainty.UPPER,
    beyond_plain_steps=True,  # later steps only post-process the noisy gradients
    source=Citation(
        "Feldman and Shenfeld",
        2025,
        "Privacy amplification by random allocation",
        "allocations of several steps",
        also=Citation(
            "Dong, Chen and Ozgur",
            2025,
            "Leveraging randomness in model and data partitioning for privacy amplification",
            "the batches",
        ),
    ),
    evaluate=balanced_composition,
    charges="charges every iterate, less for the steps that the example has drawn in secret",
    line_style=LineStyle(ORANGE),
)
