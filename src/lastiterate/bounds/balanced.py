"""The bounds for runs in which every example takes part equally often, in steps drawn in secret.

One composes all steps; the other averages the guarantees of fixed orders for the last iterate.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import pairwise, product
from math import comb

import numpy as np

from lastiterate._numerics.rounding import Array, IntArray
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.balls_and_bins.composition import (
    ENOUGH_NOISE_FOR_GRADIENTS,
    LARGEST_RATIO,
    MORE_NOISE,
    MOST_EPOCHS,
    epoch_losses,
    few_levels,
    rounded_up,
)
from lastiterate.bounds.bound import DASHES, GREEN, ORANGE, Bound, Certainty, Citation, LineStyle
from lastiterate.bounds.fixed_order.convex import (
    CONVEX_FIXED_ORDER,
    MOST_WRITTEN_OUT,
    blocks_of,
    rolled_up_mu,
)
from lastiterate.bounds.subsampling.average import Majorant, fixed_size_majorant
from lastiterate.profile.best import BestProfile
from lastiterate.profile.gaussian import GaussianMixtureProfile
from lastiterate.profile.group import for_group
from lastiterate.profile.losses import Repeated, SummedLossesProfile
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.run.batch_rules.base import BatchRule
from lastiterate.run.batch_rules.drawn import BalancedSampled
from lastiterate.run.batch_rules.ordered import FixedOrder
from lastiterate.run.training_run import TrainingRun

_FAILURES = (1e-9, 1e-14, 0.0)  # probabilities of a larger batch; the best of three is taken
_SINGLE_WAITS = 8  # steps after the latest participation that have a term of their own
_FARTHER_WAITS = 24  # further terms, each for more and more steps
_EARLIER_WAITS = 8  # terms for the one before the latest, and as many for the draw before
_MOST_SEPARATE_PARTICIPATIONS = 2_000  # participations, where there are these terms


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


def balanced(run: TrainingRun) -> PrivacyProfile:
    r"""The average over the latest participation of the differing example.

    **Bound.** :math:`\sum_{s, s'} P(s) P(s')\,\delta_{\mu_{s,s'}}(\varepsilon)`: s and s' are the
    numbers of steps after the latest participation in the last two draws, and :math:`\mu_{s,s'}`
    the value of `fixed-order/convex` if the other k - 1 participations of these draws are just
    before it, and those of each earlier draw are its last k steps.  Of T steps,
    :math:`P(s \ge u) = \binom{T-u}{k} / \binom Tk`.  Batches that are too large are charged as by
    `random-order/balls-and-bins/average`.

    **Holds when.** every example draws its k of T steps uniformly, independently and in secret;
    sums are divided by b, and no batch is cut; losses are convex and smooth, no step exceeds
    2/smoothness, gradients are not changed by norm clipping; step size and noise are constant.

    *Proof.* Given all draws, the order is fixed and the same for both data sets, so divergences are
    at most the average over draws of those of a fixed order.  There a participation that is
    moved to a later step, or added, is never less exposed.

    **Tight** in the limit of few participations.

    **Source.** Bok, Su and Altschuler 2024, Theorem C.3, given the draws; Ye and Shokri 2022,
    Lemma 4.1.

    **Computed as** sums in which several s and s' have the largest of their mus.
    """
    fixed = partial(FixedOrder, positions=())
    limits = (fixed_size_majorant(run, fixed, run.steps, failure) for failure in _FAILURES)
    return BestProfile([_average(run.batches, limit) for limit in dict.fromkeys(limits)])


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


BALANCED = Bound(
    id="random-order/balanced",
    gives="an average over the latest of the steps that an example has drawn in secret",
    covers=(BalancedSampled,),
    needs=(
        conditions.SECRET_ORDER,
        conditions.CONSTANT,
        conditions.NOISY,
        *conditions.CONTRACTING,
    ),
    certainty=Certainty.UPPER,
    source=Citation(
        "Ye and Shokri",
        2022,
        "Differentially private learning needs hidden state (or much faster convergence)",
        "Lemma 4.1",
    ),
    evaluate=balanced,
    rests_on=(CONVEX_FIXED_ORDER,),
    charges="averages over the latest step that the example has drawn in secret",
    line_style=LineStyle(GREEN, DASHES[2]),
    given_order=True,
)


def _ratios(run: TrainingRun) -> Counter[float]:
    """The largest ratio of sensitivity and noise of a draw, rounded up, and of how many draws."""
    change, length = quantities.gradient_change(run), run.batches.steps_per_draw
    if run.is_constant:
        return Counter({rounded_up(change / float(np.max(run.noise_std))): -(-run.steps // length)})
    starts = np.arange(0, run.steps, length)
    noise = quantities.every_step(np.array(run.noise_std), run.steps)
    return Counter(few_levels(np.maximum.reduceat(change / noise, starts), MOST_EPOCHS))


def _average(rule: BatchRule, limit: Majorant) -> GaussianMixtureProfile:
    run = limit.run
    weights, mus = [], []
    for (waits, chance), (before, share) in product(
        _last_two_waits(rule, run.steps), _waits_of_draw_before(rule, run.steps)
    ):
        seen, times = _latest_participations(rule, run.steps, waits, before)
        weights.append(chance * share)
        mus.append(_mu(run, seen, times) if seen.size and chance > 0.0 else 0.0)
    return GaussianMixtureProfile(weights, mus, lost=limit.exceeded)


def _last_two_waits(rule: BatchRule, steps: int) -> list[tuple[tuple[int, ...], float]]:
    """Numbers of steps after the last two participations of the last draw, and probabilities.

    Each entry stands for all numbers up to the next entry.  The last draw may have one
    participation, or none; then an entry has one number, or none.
    """
    most = (steps - 1) % rule.steps_per_draw + 1
    waits, every = _waits(most), _draws_that_wait(rule, 0)
    few = _EARLIER_WAITS if _has_few_participations(rule, steps) else 1
    found: list[tuple[tuple[int, ...], float]] = [((), _draws_that_wait(rule, most) / every)]
    for low, high in pairwise(waits):
        # Differences of whole numbers are exact: small weights are as precise as large ones.
        several = _draws_that_wait(rule, low) - _draws_that_wait(rule, high)
        others = np.rint(high - 1 + np.geomspace(1, most - high + 1, few)).astype(np.intp)
        edges = [high, *np.unique(others[others > high]).tolist()] if few > 1 else [high]
        alone = [(high - low) * _others_that_wait(rule, edge) for edge in edges]
        found.append(((low, low + 1), (several - alone[0]) / every))
        found += [
            ((low, edge), (longer - still) / every)
            for edge, longer, still in zip(edges, alone, alone[1:], strict=False)
        ]
        found.append(((low,) if edges[-1] == most else (low, edges[-1]), alone[-1] / every))
    return [(one, chance) for one, chance in found if chance > 0.0]


def _waits_of_draw_before(rule: BatchRule, steps: int) -> list[tuple[int, float]]:
    """A few numbers of steps after the latest participation in the last draw but one.

    With the probabilities that it is these, or up to the next number.
    """
    length = rule.steps_per_draw
    often, draws = rule.most_participations(length), (steps - 1) // length
    most = length - often + 1
    if not draws or most < 2 or not _has_few_participations(rule, steps):
        return [(0, 1.0)]
    edges = np.unique(np.rint(np.geomspace(1, most, _EARLIER_WAITS)).astype(np.intp)).tolist()
    every = _draws_that_wait(rule, 0)
    return [
        (low, (_draws_that_wait(rule, low) - _draws_that_wait(rule, high)) / every)
        for low, high in pairwise([0, *edges])
    ]


def _has_few_participations(rule: BatchRule, steps: int) -> bool:
    """Whether there is the time to tell more participations apart."""
    return rule.most_participations(steps) <= _MOST_SEPARATE_PARTICIPATIONS


def _waits(most: int) -> list[int]:
    """Numbers of steps after the latest participation, from 0 to `most`."""
    first = min(_SINGLE_WAITS, most)
    more = np.geomspace(max(first, 1), most, _FARTHER_WAITS).astype(np.intp)
    return sorted({*range(first + 1), *more.tolist(), most})


def _draws_that_wait(rule: BatchRule, wait: int) -> int:
    """The number of draws, all equally likely, without a participation in the last `wait` steps."""
    length = rule.steps_per_draw
    return comb(length - wait, rule.most_participations(length))


def _others_that_wait(rule: BatchRule, wait: int) -> int:
    """The number of draws with a participation in one of the last `wait` steps, and no other."""
    length = rule.steps_per_draw
    return comb(length - wait, rule.most_participations(length) - 1)


def _latest_participations(
    rule: BatchRule, steps: int, waits: tuple[int, ...], before: int
) -> tuple[IntArray, Array]:
    """The latest steps, from 1 on, in which an example may take part, and how often.

    The example is not seen in the `waits` steps after the last two participations of the last draw,
    if it has them, nor in the `before` steps after the last one of the draw before.  Very old draws
    count at the ends of blocks of draws.
    """
    length = rule.steps_per_draw
    often, draws = rule.most_participations(length), (steps - 1) // length
    old = max(0, draws - MOST_WRITTEN_OUT)
    blocks, counts = blocks_of(old, length)
    ends = length * np.arange(old + 1, draws + 1)
    ends[-1:] -= before
    late = np.array([steps - wait for wait in waits[:1]], dtype=np.intp)
    if waits[1:]:
        end = steps - waits[1]
        late = np.append(np.arange(max(end - often + 1, draws * length), end) + 1, late)
    each = (ends[:, None] - np.arange(often)[::-1]).ravel()
    seen = np.concatenate([blocks, each, late]).astype(np.intp)
    times = np.append(often * counts, np.ones(each.size + late.size))
    return seen, times


def _mu(run: TrainingRun, seen: IntArray, times: Array) -> float:
    """The mu of `fixed-order/convex` for given numbers of participations in each of these steps."""
    caps = {np.inf, quantities.diameter(run)}
    return quantities.widened(min(rolled_up_mu(run, seen, cap, times=times) for cap in caps))
