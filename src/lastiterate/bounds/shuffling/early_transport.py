"""The bound for shuffled runs of short steps: hidden positions, and noise before participations.

In steps shorter than 1/smoothness the noise before a participation hides it, too.  Transport and
joint transport then hold with the smaller mus, but for a small probability.  If the order is drawn
before every epoch, the positions in earlier epochs are averaged over, too.
`docs/tightness.md#short-steps` has the theorem.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np

from lastiterate._numerics.powers import log_of, logs_of_powers, sums_of_powers
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, Array, IntArray, down, ulps, up
from lastiterate.bounds.bound import Bound, Certainty, Citation
from lastiterate.bounds.fixed_order.short_steps import SHORT_STEP_NEEDS, equal_short_steps
from lastiterate.bounds.shuffling.joint_transport import TransportSearch
from lastiterate.bounds.shuffling.positions import Positions
from lastiterate.bounds.shuffling.proof_search import ShuffledProfile
from lastiterate.bounds.shuffling.transport import (
    JOINT_TRANSPORT,
    LARGEST_MU,
    TransportProfile,
    has_many_positions,
    position_law,
    positions_of,
    sensitivity_factors,
    shuffled_transport,
)
from lastiterate.profile.best import FallbackProfile
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.run.batch_rules.base import Resampling
from lastiterate.run.training_run import TrainingRun
from lastiterate.shifts.early_shifts import ShortSteps

_USUAL_DELTA = 1e-12  # below it failures begin to count, and the bound without them is computed
_MOST_EPOCHS = 24  # that are averaged over
_NEGLIGIBLE_SHARE = 2e-3  # share of the sum that counts at the ends of epochs
_GROUPS = 64  # groups in each epoch, charged at the latest position of the group
_SUM_CELLS = 3000
_FACTORS = 40  # for which the probability is computed
_QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.85, 0.94, 0.98, 0.995)  # about which factors are used
_LEAST_GAIN = 0.02  # an average factor nearer to 1 is not worth the effort


@lru_cache(maxsize=4)
def early_transport(run: TrainingRun) -> PrivacyProfile:
    r"""The profile of a secret position whose participations earlier noise hides, too.

    **Bound.** As `random-order/shuffled/joint-transport`, with the mus of `early_mus` and with
    windows that may contain the participation they hide; 1e-14 is added to delta.  If the order is
    drawn before every epoch, it is the average over what earlier epochs add (`earlier_factors`).

    **Holds when.** that bound does, every step is shorter than 1/smoothness, nothing is projected,
    and the gradients of one example stay in a space of `Loss.outputs` dimensions.

    **Tight.** To 10 to 40 per cent of an exactly solved instance.

    **Source.** This library (`docs/tightness.md#short-steps`); Kahane 1985; Bok, Su and Altschuler
    2024, Theorem C.3.

    **Computed as** for `random-order/shuffled/joint-transport`; windows and shares are searched
    for, and any choice is valid.
    """
    run = _with_shared_curvature(run)
    short_steps = _exchange_steps(run)
    parts = _parts(run, short_steps)
    # Probabilities of positions and of earlier epochs are rounded.
    failure = up(short_steps.failure, ulps(1)) + ulps(16)
    transports = max(float(positions.mus().max()) for _, positions in parts) < LARGEST_MU
    quick = _quick_profile(run, parts, failure, transports=transports)
    searched: PrivacyProfile = quick
    if transports and has_many_positions(parts[0][1]):
        # The participation at the receiving position and the late one are both hidden early.
        unit = 1.0 / short_steps.curvature
        directions = [
            TransportSearch(parts, receiving, late, failure=2.0 * failure, window_unit=unit)
            for receiving, late in sensitivity_factors(run)
        ]
        searched = ShuffledProfile(quick, directions)
    return FallbackProfile(searched, below=_USUAL_DELTA, fallback=partial(shuffled_transport, run))


EARLY_TRANSPORT = Bound(
    id="random-order/shuffled/early-transport",
    gives="the same for short steps, in which noise before a participation hides it, too",
    covers=JOINT_TRANSPORT.covers,
    needs=tuple(dict.fromkeys((*JOINT_TRANSPORT.needs, *SHORT_STEP_NEEDS))),
    certainty=Certainty.UPPER,
    source=Citation(
        "lastiterate",
        2026,
        "Hidden positions in short steps",
        "docs, tightness; after Kahane 1985 and Bok, Su and Altschuler 2024, Theorem C.3",
    ),
    evaluate=early_transport,
    rests_on=JOINT_TRANSPORT.rests_on,
    charges="averages over the example's secret position, which noise before and after it hides",
)


def _with_shared_curvature(run: TrainingRun) -> TrainingRun:
    """The run; if an example is left out, its steps have the curvature of the penalty alone.

    Without the example a step has a part of its batch's curvature, but all of the penalty's.
    """
    if run.adjacency == "replace":
        return run
    return run.replace(loss=replace(run.loss, strong_convexity=run.loss.regulariser))


def _exchange_steps(run: TrainingRun) -> ShortSteps:
    """Short steps in which one example takes the place of another: both change a step."""
    short_steps = equal_short_steps(run)
    assert short_steps is not None
    assert run.loss.outputs is not None
    return replace(short_steps, dimension=2 * run.loss.outputs)


def _parts(run: TrainingRun, short_steps: ShortSteps) -> list[tuple[float, Positions]]:
    """The laws of the position, by what earlier epochs add, and their probabilities."""
    factors = earlier_epoch_factors(run, short_steps.gap)
    return [(share, positions_of(run, short_steps, factor)) for share, factor in factors]


def _quick_profile(
    run: TrainingRun,
    parts: list[tuple[float, Positions]],
    failure: float,
    *,
    transports: bool = True,
) -> TransportProfile:
    laws = [(share, position_law(run, one, transports=transports)) for share, one in parts]
    return TransportProfile.average(laws, failure=failure)


def earlier_epoch_factors(run: TrainingRun, gap: float) -> tuple[EarlierFactor, ...]:
    """`earlier_factors` of the run; one certain factor if the order is drawn once."""
    if run.batches.resampling is not Resampling.EACH_EPOCH:
        return ((1.0, 1.0),)
    length = run.batches.batches_per_epoch
    # Before the last epoch, or before the two that count if it is truncated.
    whole = run.steps // length - 1
    return earlier_factors(gap, length, whole, run.batches.share)


EarlierFactor = tuple[float, float]
"""A probability, and the factor of what earlier epochs add."""


@lru_cache(maxsize=64)
def earlier_factors(
    gap: float, length: int, epochs: int, share: float
) -> tuple[EarlierFactor, ...]:
    r"""Probabilities, which sum to 1, of factors up to 1 of what `epochs` whole epochs add.

    `share` is the probability of one position in an epoch of `length` steps, c = 1 - `gap` the
    contraction of a step.

    In final units, relative to the end of the last whole epoch before the one that counts, an
    example whose position in the j-th epoch before that is v steps before its end adds
    :math:`q^j c^v`, with :math:`q = c^l` for l steps an epoch.  It is charged as if v were 0, which
    adds :math:`X = \sum_j q^j` in total.  Usually it is less, and then less has to be hidden.

    **Lemma.** Let :math:`W_u = \sum_{i=1}^u c^{2i}` be the variance of the u steps before the end
    of the last of these epochs, and W that of all of them after the end of the first.  If for every
    u the participations that are at most u steps before the end add at most

    .. math:: \lambda \, \big( 1 + (X - 1) \, W_u / W \big) ,

    then shifts that hide participations at the ends of these epochs, each :math:`\lambda` times as
    large, and others after them, hide the true participations and the others.

    *Proof.* These shifts are in proportion to the variance of the steps up to the end of the last
    epoch but one, whose participations are one block of `shifts.patterns`.  Hence they also hide
    participations spread over these steps in proportion to the variance, followed by one at the end
    of the last epoch.  Those have at least the true sums from every step on, and mu does not
    decrease in these sums (`docs/tightness.md#averages`).

    All epochs are independent, so the probability of the condition is computed epoch by epoch, with
    sums rounded up.  Epochs before the last `_MOST_EPOCHS` count at their ends.
    """
    certain = ((1.0, 1.0),)
    log_q = length * log_of(gap)
    average = -math.expm1(log_q) / (length * gap) if gap > 0.0 and length * gap < 700.0 else 1.0
    if epochs < 1 or length < 2 or not average < 1.0 - _LEAST_GAIN:
        return certain
    law = _Sums(gap, length, epochs, share)
    factors = np.linspace(max(2.0 * average - 1.0, 0.5 * average), 1.0, _FACTORS + 1)[:-1]
    below = np.maximum.accumulate([law.probability(float(factor)) for factor in factors])
    at = np.unique(np.searchsorted(below, _QUANTILES).clip(max=factors.size - 1))
    known = [*zip(below[at].tolist(), factors[at].tolist(), strict=True), (1.0, 1.0)]
    return _masses(known)


def _masses(known: Sequence[tuple[float, float]]) -> tuple[EarlierFactor, ...]:
    """The probabilities of factors from those of not exceeding each of them."""
    levels, used = [], 0.0
    for probability, factor in known:
        if probability > used:
            levels.append((probability - used, factor))
            used = probability
    return tuple(levels)


class _Sums:
    """Sums over the latest epochs, in cells of the sum X of all, rounded up."""

    def __init__(self, gap: float, length: int, epochs: int, share: float) -> None:
        log_c, log_q = log_of(gap), length * log_of(gap)
        counts = sums_of_powers(log_q, np.arange(1.0, epochs + 1.0))
        total = float(counts[-1])
        few = int(np.searchsorted(counts, (1.0 - _NEGLIGIBLE_SHARE) * total)) + 1
        few = min(few, _MOST_EPOCHS, epochs)
        self._cell = total / _SUM_CELLS
        edges = np.unique(np.linspace(0, length, min(length, _GROUPS) + 1).astype(np.int64))
        self._weights = np.diff(edges) * share
        self._absent = max(0.0, down(1.0 - length * share, MILLIONS_OF_ROUNDINGS))
        before_end = length * np.arange(few)[:, None] + edges[:-1]
        self._added = self._cells_of(np.exp(logs_of_powers(log_c, before_end)))
        whole = (epochs - 1) * length

        def allowed(steps: IntArray) -> Array:
            """1 + (X - 1) W_u / W, rounded down."""
            if not whole:
                return np.ones(steps.shape)
            part = sums_of_powers(2 * log_c, np.minimum(steps, whole))
            part = part / sums_of_powers(2 * log_c, np.array([float(whole)]))
            return np.asarray(down(1.0 + (total - 1.0) * part, MILLIONS_OF_ROUNDINGS))

        self._allowed = allowed(before_end)
        # All older participations count at the ends of their epochs, the latest of which is next.
        self._rest = max(total - float(counts[few - 1]), 0.0) if few < epochs else 0.0
        self._allowed_with_rest = float(allowed(np.array([length * few]))[0])

    def probability(self, factor: float) -> float:
        """The probability of the lemma's condition, rounded down."""
        law = np.zeros(_SUM_CELLS + 2)
        law[0] = 1.0
        for added, limits in zip(self._added, self._limits(factor * self._allowed), strict=True):
            after = self._absent * law
            for weight, cells, limit in zip(self._weights, added, limits, strict=True):
                if limit >= cells:
                    after[cells : limit + 1] += weight * law[: limit + 1 - cells]
            law = after
        left = factor * self._allowed_with_rest - up(self._rest, MILLIONS_OF_ROUNDINGS)
        last = int(self._limits(np.array([left]))[0]) if self._rest > 0.0 else law.size - 1
        return max(down(float(law[: last + 1].sum()), MILLIONS_OF_ROUNDINGS), 0.0)

    def _cells_of(self, sums: Array) -> IntArray:
        return np.ceil(up(sums / self._cell, MILLIONS_OF_ROUNDINGS)).astype(np.int64)

    def _limits(self, sums: Array) -> IntArray:
        """The last cell that is at most each of `sums`; -1 if there is none."""
        cells = np.floor(down(sums / self._cell, MILLIONS_OF_ROUNDINGS))
        return np.clip(cells, -1, _SUM_CELLS + 1).astype(np.int64)
