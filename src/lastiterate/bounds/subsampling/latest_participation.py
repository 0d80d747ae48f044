"""The bound for the last iterate where every example takes part equally often, on its own."""

from functools import partial
from itertools import pairwise, product
from math import comb

import numpy as np

from lastiterate._numerics.rounding import Array, IntArray
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Bound, Certainty, Citation
from lastiterate.bounds.fixed_order.convex import (
    CONVEX_FIXED_ORDER,
    MOST_WRITTEN_OUT,
    blocks_of,
    rolled_up_mu,
)
from lastiterate.bounds.line_style import DASHES, GREEN, LineStyle
from lastiterate.bounds.subsampling.random_batch_sizes import Majorant, fixed_size_majorant
from lastiterate.profile.best import BestProfile
from lastiterate.profile.gaussian import GaussianMixtureProfile
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.run.batch_rules.base import BatchRule
from lastiterate.run.batch_rules.drawn import BalancedSampled
from lastiterate.run.batch_rules.ordered import FixedOrder
from lastiterate.run.training_run import TrainingRun

_FAILURES = (1e-9, 1e-14, 0.0)  # probabilities of a larger batch; the best of three is taken
_ONE_BY_ONE = 8  # steps after the latest participation that have a term of their own
_MORE = 24  # further terms, each for more and more steps
_FEW_BEFORE = 8  # terms for the one before the latest, and as many for the draw before
_MOST_SEPARATE = 2_000  # participations, where there are these terms


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


def _average(rule: BatchRule, limit: Majorant) -> GaussianMixtureProfile:
    run = limit.run
    weights, mus = [], []
    for (waits, chance), (before, share) in product(
        _last_two(rule, run.steps), _before(rule, run.steps)
    ):
        seen, times = _positions(rule, run.steps, waits, before)
        weights.append(chance * share)
        mus.append(_mu(run, seen, times) if seen.size and chance > 0.0 else 0.0)
    return GaussianMixtureProfile(weights, mus, lost=limit.exceeded)


def _last_two(rule: BatchRule, steps: int) -> list[tuple[tuple[int, ...], float]]:
    """Numbers of steps after the last two participations of the last draw, and probabilities.

    Each stands for all up to the next one.  There may be one participation in it, or none.
    """
    most = (steps - 1) % rule.steps_per_draw + 1
    waits, every = _waits(most), _draws_that_wait(rule, 0)
    few = _FEW_BEFORE if _is_short(rule, steps) else 1
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


def _before(rule: BatchRule, steps: int) -> list[tuple[int, float]]:
    """A few numbers of steps after the latest participation in the last draw but one.

    With the probabilities that it is these, or up to the next number.
    """
    length = rule.steps_per_draw
    often, draws = rule.most_participations(length), (steps - 1) // length
    most = length - often + 1
    if not draws or most < 2 or not _is_short(rule, steps):
        return [(0, 1.0)]
    edges = np.unique(np.rint(np.geomspace(1, most, _FEW_BEFORE)).astype(np.intp)).tolist()
    every = _draws_that_wait(rule, 0)
    return [
        (low, (_draws_that_wait(rule, low) - _draws_that_wait(rule, high)) / every)
        for low, high in pairwise([0, *edges])
    ]


def _mu(run: TrainingRun, seen: IntArray, times: Array) -> float:
    """The value of `fixed-order/convex` for so many participations in each of these steps."""
    caps = {np.inf, quantities.diameter(run)}
    return quantities.widened(min(rolled_up_mu(run, seen, cap, times=times) for cap in caps))


def _waits(most: int) -> list[int]:
    """Numbers of steps after the latest participation, from 0 to `most`."""
    first = min(_ONE_BY_ONE, most)
    more = np.geomspace(max(first, 1), most, _MORE).astype(np.intp)
    return sorted({*range(first + 1), *more.tolist(), most})


def _draws_that_wait(rule: BatchRule, wait: int) -> int:
    """The number of draws, all equally likely, without a participation in the last `wait` steps."""
    length = rule.steps_per_draw
    return comb(length - wait, rule.most_participations(length))


def _others_that_wait(rule: BatchRule, wait: int) -> int:
    """The number of draws with a participation in one of the last `wait` steps, and no other."""
    length = rule.steps_per_draw
    return comb(length - wait, rule.most_participations(length) - 1)


def _is_short(rule: BatchRule, steps: int) -> bool:
    """Whether there is the time to tell more participations apart."""
    return rule.most_participations(steps) <= _MOST_SEPARATE


def _positions(
    rule: BatchRule, steps: int, waits: tuple[int, ...], before: int
) -> tuple[IntArray, Array]:
    """The latest steps, from 1, that may see an example, and how often.

    So many steps after the last two participations of the last draw, if it has them, and `before`
    steps after the last one of the draw before, it is not seen.  Draws before very many others
    count at the ends of blocks of them.
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
