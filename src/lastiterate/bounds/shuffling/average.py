"""The bounds that average fixed-order guarantees over a secret order of the batches.

Given the order, which does not depend on the data, a fixed-order bound holds.  Hockey-stick
divergence is jointly convex, so the average of the delta curves over all orders holds too
(`docs/tightness.md#averages`).  Where steps may expand, the positions in the last epochs are
averaged over.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise

import numpy as np

from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, down, up
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Bound, Certainty, Citation, with_single_examples
from lastiterate.bounds.composition import worst_order_composition
from lastiterate.bounds.fixed_order.convex import (
    CONVEX_FIXED_ORDER,
    convex,
    epochs_of,
    group_edges,
    grouped_positions,
    latest_order_mu,
)
from lastiterate.bounds.fixed_order.nonconvex import NON_CONVEX, windows
from lastiterate.bounds.shuffling.positions import FEW_GROUPS, few_edges
from lastiterate.profile.best import BestProfile
from lastiterate.profile.gaussian import GaussianMixtureProfile, several_draws
from lastiterate.profile.group import for_group
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.run.batch_rules.base import Resampling, rules
from lastiterate.run.training_run import TrainingRun

_MOST_PAIRS = 600  # of groups in the last epoch and in the one before, if the last is truncated
GIVEN_THE_ORDER = (CONVEX_FIXED_ORDER, NON_CONVEX)
MIXTURE = Citation(
    "Bok, Su and Altschuler",
    2024,
    "Shifted interpolation",
    "Theorem C.3 given the order",
    also=Citation(
        "Ye and Shokri",
        2022,
        "Differentially private learning needs hidden state (or much faster convergence)",
        "joint convexity as in Lemma 4.1",
    ),
)


def average_once(run: TrainingRun) -> GaussianMixtureProfile:
    r"""The average of Gaussian curves over the position of the differing example.

    **Bound.** :math:`\delta(\varepsilon) = \frac1l \sum_j \delta_{\mu_j}(\varepsilon)`, where
    :math:`\mu_j` is the fixed-order guarantee of position j, the best of those that apply.
    Examples left over by the last full batch take no part at all.

    **Holds when.** the examples are shuffled once, uniformly and in secret, and a fixed-order
    bound covers the run.

    **Tight.** The exact average of guarantees that are tight given the position.

    **Source.** Bok, Su and Altschuler 2024, Theorem C.3; Ye and Shokri 2022, Lemma 4.1.

    **Computed as** an average of Gaussian curves, each rounded up.
    """
    share, period = run.batches.share, run.batches.period
    if run.is_constant and period is not None and not CONVEX_FIXED_ORDER.unmet(run):
        mus, sizes = grouped_positions(run, quantities.diameter(run), period)
    else:
        tables = [bound.by_position for bound in GIVEN_THE_ORDER if not bound.unmet(run)]
        listed = [[p.gdp() for p in by_position(run)] for by_position in tables if by_position]
        mus = np.min(listed, axis=0).tolist()
        sizes = [1] * len(mus)
    weights = [share * size for size in sizes]
    unseen = max(0.0, 1.0 - share * sum(sizes))
    return GaussianMixtureProfile([*weights, unseen], [*mus, 0.0])


def average_each_epoch(run: TrainingRun) -> GaussianMixtureProfile:
    r"""The average of Gaussian curves over the position in the last epoch.

    **Bound.** :math:`\delta(\varepsilon) = \frac1l \sum_j \delta_{\mu_j}(\varepsilon)`, where
    :math:`\mu_j` is that of participations at the ends of all epochs but the last, and at
    position j in the last.  A truncated last epoch may not contain the example: then the position
    in the epoch before counts.  If it does, positions in both count, those in the epoch before in
    a few groups, each as the latest of them.

    **Holds when.** the examples are shuffled uniformly, independently and in secret before every
    epoch, losses are convex and smooth, no step exceeds 2/smoothness, and gradients are not
    changed by norm clipping.  (Moving a participation later, or making it larger, never lowers
    mu.)

    **Tight** to a fraction of a per cent of shuffling once where epochs are many.

    **Source.** Bok, Su and Altschuler 2024, Theorem C.3; Ye and Shokri 2022, Lemma 4.1.

    **Computed as** isotonic regression for each position; rounded up.
    """
    cap, epochs = quantities.diameter(run), epochs_of(run)
    final, length = epochs[-1], run.batches.batches_per_epoch
    mus, weights = [], []
    absent, groups = 1.0 - len(final) / length, _step_groups(run, final)
    truncated = absent > 0.0 and len(epochs) > 1
    before = [(1.0, epochs[-2:-1])]  # the epoch before, or parts of it with their probabilities
    if truncated:
        few = max(1, min(FEW_GROUPS, _MOST_PAIRS // len(groups)))
        parts = _parts_from_end(epochs[-2], few_edges(length, few).tolist())
        before = [(len(part) / length, [part]) for part in parts]
    for group in groups:
        for probability, seen in before:
            mus.append(latest_order_mu(run, cap, [*epochs[:-2], *seen], last=group[-1]))
            weights.append(len(group) / length * probability)
    if truncated:
        for group in _step_groups(run, epochs[-2]):
            mus.append(latest_order_mu(run, cap, epochs[:-2], last=group[-1]))
            weights.append(absent * len(group) / length)
    elif absent > 0.0:
        mus.append(0.0)  # the example takes no part at all
        weights.append(absent)
    return GaussianMixtureProfile(weights, [quantities.widened(mu) for mu in mus])


def last_epochs_average(run: TrainingRun) -> PrivacyProfile:
    r"""A mixture over the positions in the last epochs, for steps that may expand.

    **Bound.** :math:`\delta(\varepsilon) = E\,\delta_{\mu(j_1, .., j_k)}(\varepsilon)` over the
    independent positions in the last k epochs, with :math:`\mu` that of `fixed-order/non-convex`
    from the distance D, or from the farthest that earlier epochs can have driven two runs apart;
    or from 0, with composition for these.  Positions may be grouped: a group is charged at its last
    step, with what a participation in any of its steps has grown to by then.

    **Holds when.** the examples are shuffled uniformly, independently and in secret before every
    epoch, and one of smoothness, Hoelder constants or a gradient bound is known.  No convexity:
    where steps expand an earlier participation may be worse than a later one, so none is moved
    later without its growth.

    **Tight.** As `fixed-order/non-convex` given the positions; equal to the average over all orders
    where every position in the last epochs is told apart and shifts need no earlier noise.

    **Source.** Bok, Su and Altschuler 2024, Theorem C.3; Ye and Shokri 2022, Lemma 4.1; Chien and
    Li 2024, Corollary A.3, which this is in f-DP.

    **Computed as** the convex minorants of all choices of positions, for tangents of the moduli;
    the better of few and of many epochs; rounded up.
    """
    parts = windows(run)
    found = [GaussianMixtureProfile(one.weights, one.mus) for one in parts]
    if np.min(run.noise_std) > 0.0 and all(np.isinf(one.mus).any() for one in parts):
        return worst_order_composition(run)  # where no plan ends
    return found[0] if len(found) == 1 else BestProfile(found)


def average_once_for_persons(run: TrainingRun) -> PrivacyProfile:
    """The average over the positions of all examples of a person; given these their mus add up."""
    return _at_several_positions(run, average_once(with_single_examples(run)), epochs=1)


def average_each_epoch_for_persons(run: TrainingRun) -> PrivacyProfile:
    """The average over positions in the last epoch, and in that before a truncated one."""
    truncated = run.steps % run.batches.batches_per_epoch > 0
    return _at_several_positions(
        run, average_each_epoch(with_single_examples(run)), epochs=2 if truncated else 1
    )


def last_position_delta_lower_bound(run: TrainingRun, epsilon: float) -> float:
    """A lower bound on this bound's delta, from the very last batch alone; 0 if none is known."""
    regular = run.batches.period is not None or run.batches.resampling is Resampling.EACH_EPOCH
    if not (regular and run.is_constant) or CONVEX_FIXED_ORDER.unmet(run):
        return 0.0
    last, epochs = convex(run), epochs_of(run)
    if run.batches.period is None and len(epochs) > 1 and len(epochs[-1]) < len(epochs[-2]):
        # In the epoch before a truncated one the example counts as where it is, at the earliest.
        seen = [*epochs[:-2], epochs[-2][:1]]
        mu = latest_order_mu(run, quantities.diameter(run), seen, last=run.steps)
        last = quantities.gaussian(mu)
    return float(down(run.batches.share * last.delta(epsilon), MILLIONS_OF_ROUNDINGS))


AVERAGE_ONCE = Bound(
    id="random-order/shuffled/average-once",
    gives="the average over the example's position in a secret order, drawn once",
    covers=rules(Resampling.ONCE, exact_size=True),
    needs=(
        conditions.SECRET_ORDER,
        conditions.one_of(
            GIVEN_THE_ORDER,
            needs="a fixed-order bound that covers the run",
            remedy="see what fixed-order/convex and fixed-order/non-convex need",
        ),
    ),
    certainty=Certainty.UPPER,
    source=MIXTURE,
    evaluate=average_once,
    for_persons=average_once_for_persons,
    rests_on=GIVEN_THE_ORDER,
    delta_lower_bound=last_position_delta_lower_bound,
    charges="averages over the example's secret position in the order",
    given_order=True,
)


AVERAGE_EACH_EPOCH = Bound(
    id="random-order/shuffled/average-each-epoch",
    gives="the average over the example's position in the last of many secret orders",
    covers=rules(Resampling.EACH_EPOCH, exact_size=True),
    needs=(
        conditions.SECRET_ORDER,
        *conditions.CONTRACTING,
    ),
    certainty=Certainty.UPPER,
    source=MIXTURE,
    evaluate=average_each_epoch,
    for_persons=average_each_epoch_for_persons,
    rests_on=(CONVEX_FIXED_ORDER,),
    delta_lower_bound=last_position_delta_lower_bound,
    charges="averages over the example's secret position in the last epoch",
)


LAST_EPOCHS_AVERAGE = Bound(
    id="random-order/shuffled/average-non-convex",
    gives="the average over the example's positions in the last epochs, convex or not",
    covers=rules(Resampling.EACH_EPOCH, exact_size=True),
    needs=(conditions.SECRET_ORDER, *NON_CONVEX.needs[1:]),
    certainty=Certainty.UPPER,
    source=MIXTURE,
    evaluate=last_epochs_average,
    rests_on=(NON_CONVEX,),
    charges="averages over the example's secret positions in the last epochs",
)


def _step_groups(run: TrainingRun, epoch: range) -> list[range]:
    """Groups of steps; a position in a group counts as its last step, the most exposed.

    With a schedule every step is a group, since the last need not be the most exposed.
    """
    if not run.is_constant:
        return [range(step, step + 1) for step in epoch]
    return _parts_from_end(epoch, group_edges(len(epoch)))


def _parts_from_end(epoch: range, edges: Iterable[int]) -> list[range]:
    """The epoch in parts, from its end; `edges` are numbers of steps before the end."""
    end = len(epoch)
    return [epoch[end - last : end - first] for first, last in pairwise(edges)]


def _at_several_positions(
    run: TrainingRun, single: GaussianMixtureProfile, *, epochs: int
) -> PrivacyProfile:
    """The average over the joint positions of a person's examples, from that of a `single` one.

    Slots are drawn without replacement: of n slots i are taken when the next one is drawn.  So a
    joint position is at most prod n/(n - i) times as likely as if draws were independent.  Rows
    that are shuffled in blocks may always have the same position, and count as a group.
    """
    size, rule = run.examples_per_person, run.batches
    if not rule.exchangeable:
        return for_group(single, size)
    excess = math.prod(rule.examples / (rule.examples - i) for i in range(size))
    return several_draws(single, size, density=up(excess**epochs, MILLIONS_OF_ROUNDINGS))
