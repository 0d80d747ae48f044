"""Shuffled runs with momentum, or with an average of iterates: the secret position stays hidden."""

from functools import lru_cache

import numpy as np

from lastiterate.bounds import conditions
from lastiterate.bounds.bound import Bound, Certainty, Citation, Hypothesis
from lastiterate.bounds.fixed_order.momentum import MOMENTUM, NEEDS, NOT_PLAIN
from lastiterate.bounds.fixed_order.momentum_positions import (
    epoch_settings,
    group_energies,
    has_regular_epochs,
    last_epoch_mus,
    mu_of,
    ratio_of,
    tail_groups,
)
from lastiterate.bounds.shuffling.position_transport import (
    JOINT_TRANSPORT,
    LARGEST_MU,
    sensitivity_factors,
)
from lastiterate.bounds.shuffling.positions import with_no_position
from lastiterate.bounds.shuffling.transport import TransportProfile
from lastiterate.run.batch_rules.base import Resampling
from lastiterate.run.training_run import TrainingRun
from lastiterate.shifts.momentum.mu import EpochTails

_LATE_TAILS = (16, 40)  # positions with shorter tails are late, all tried


@lru_cache(maxsize=8)
def momentum_transport(run: TrainingRun) -> TransportProfile:
    r"""The profile of a secret position in a shuffled run with momentum.

    **Bound.** At every epsilon the least of :math:`\sum_j p_j \delta_{\mu_j}(\varepsilon)` and of
    the best transport between positions (`shuffling.transport`).  mu_j is that of a position in
    the last epoch, whatever the positions in earlier ones.  The mu of the example at a late
    position against it at a receiving one has participations at both, the receiving one being
    any: with momentum a later position need not be the more exposed one.

    **Holds when.** `fixed-order/momentum` does, steps are equal, and single examples are shuffled
    uniformly and in secret, once or before every epoch.

    **Tight.** Not measured against a lower bound of its own.

    **Source.** This library (docs/momentum.md, docs/tightness.md#transport).

    **Computed as** sums of Gaussian curves, rounded up.
    """
    settings, ratio = epoch_settings(run), ratio_of(run)
    groups = tail_groups(settings)
    by_tail, absent = last_epoch_mus(run)
    sizes = np.array([group.most - group.least + 1 for group in groups], dtype=np.float64)
    length = len(by_tail)
    none = (run.batches.examples - length * run.batches.batch_size) / run.batches.examples
    weights = with_no_position(sizes * np.float64(run.batches.share), none, none)
    mus = with_no_position(np.array([by_tail[group.least] for group in groups]), absent, none)
    directions: list[list[np.ndarray]] = []
    counts = [
        count
        for count in sorted({sum(g.least < tails for g in groups) for tails in _LATE_TAILS})
        if 0 < count < len(groups)
    ]
    for receiving, late in sensitivity_factors(run):
        anew = run.batches.resampling is Resampling.EACH_EPOCH
        earlier = 1.0 if anew else (receiving + late) ** 2
        found = []
        for count in counts if mus.max() < LARGEST_MU else []:
            others = EpochTails(groups[count].least, length - 1)
            parts = [group_energies(settings, group, others) for group in groups[:count]]
            composed = earlier * settings.epochs().earlier_epochs + late**2 + receiving**2
            energies = [
                min(
                    earlier * one.earlier + late**2 * one.group + receiving**2 * one.other,
                    composed,
                )
                for one in parts
            ]
            found.append(np.array([mu_of(ratio, energy) for energy in energies]))
        directions.append([one for one in found if np.all(np.isfinite(one))])
    return TransportProfile(weights, mus, directions)


def _irregular(run: TrainingRun) -> str | None:
    return None if has_regular_epochs(run) else "unequal steps, or positions of several epochs"


EQUAL_STEPS = Hypothesis(
    "equal steps, and every position visited once in each epoch",
    _irregular,
    "keep step_size, noise_std and momentum fixed, and the buffer filled",
)

MOMENTUM_TRANSPORT = Bound(
    id="random-order/shuffled/momentum",
    gives="the average over the example's position in a secret order, for SGD with momentum or an "
    "average of iterates",
    covers=JOINT_TRANSPORT.covers,
    needs=(NOT_PLAIN, conditions.SECRET_ORDER, *NEEDS, EQUAL_STEPS),
    certainty=Certainty.UPPER,
    beyond_plain_steps=True,
    source=Citation(
        "lastiterate", 2026, "Certificates for momentum", "docs, momentum and tightness"
    ),
    evaluate=momentum_transport,
    rests_on=(MOMENTUM,),
    charges="averages over the example's secret position, and keeps that position hidden",
    quick=False,
)
