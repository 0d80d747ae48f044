"""The bound for shuffled runs of short steps: hidden positions, and noise before participations.

In steps shorter than 1/smoothness the noise before a participation hides it, too.  Transport and
joint transport then hold with the smaller mus, but for a small probability.  If the order is drawn
before every epoch, the positions in earlier epochs are averaged over, too.
`docs/tightness.md#short-steps` has the theorem.
"""

from dataclasses import replace
from functools import lru_cache, partial

from lastiterate._numerics.rounding import ulps, up
from lastiterate.bounds.bound import Bound, Certainty, Citation
from lastiterate.bounds.fixed_order.short_steps import SHORT_STEP_NEEDS, equal_short_steps
from lastiterate.bounds.shuffling.earlier_epochs import EarlierFactor, earlier_factors
from lastiterate.bounds.shuffling.position_transport import (
    JOINT_TRANSPORT,
    LARGEST_MU,
    LawsFactory,
    has_many_positions,
    late_counts,
    positions_of,
    sensitivity_factors,
    shuffled_transport,
)
from lastiterate.bounds.shuffling.positions import Positions
from lastiterate.bounds.shuffling.proof_search import TransportSearch
from lastiterate.bounds.shuffling.shuffled_profile import ShuffledProfile
from lastiterate.bounds.shuffling.transport import PositionLaw, TransportProfile
from lastiterate.profile.best import FallbackProfile
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.run.batch_rules.base import Resampling
from lastiterate.run.training_run import TrainingRun
from lastiterate.shifts.early_shifts import ShortSteps

_USUAL_DELTA = 1e-12  # below it failures begin to count, and the bound without them is computed


@lru_cache(maxsize=4)
def early_transport(run: TrainingRun) -> PrivacyProfile:
    r"""The profile of a secret position whose participations earlier noise hides, too.

    **Bound.** As `random-order/shuffled/joint-transport`, with the mus of `early_mus` and with
    windows that may contain the participation they hide; 1e-14 is added to delta.  If the order is
    drawn before every epoch, it is the average over what earlier epochs add (`earlier_epochs`).

    **Holds when.** that bound does, every step is shorter than 1/smoothness, nothing is projected,
    and the gradients of one example stay in a space of `Loss.outputs` dimensions.

    **Tight.** To 10 to 40 per cent of an exactly solved instance.

    **Source.** This library (`docs/tightness.md#short-steps`); Kahane 1985; Bok, Su and Altschuler
    2024, Theorem C.3.

    **Computed as** for `random-order/shuffled/joint-transport`; windows and shares are searched
    for, and any choice is valid.
    """
    run = _with_shared_curvature(run)
    short_steps = _exchanged(run)
    parts = _parts(run, short_steps)
    # Probabilities of positions and of earlier epochs are rounded.
    failure = up(short_steps.failure, ulps(1)) + ulps(16)
    transports = max(float(positions.mus().max()) for _, positions in parts) < LARGEST_MU
    quick = _quick(run, parts, failure, transports=transports)
    searched: PrivacyProfile = quick
    if transports and has_many_positions(parts[0][1]):
        # The participation at the receiving position and the late one are both hidden early.
        unit = 1.0 / short_steps.curvature
        directions = [
            TransportSearch(
                [(share, LawsFactory(one, receiving, late, unit)) for share, one in parts],
                failure=2.0 * failure,
                early=True,
            )
            for receiving, late in sensitivity_factors(run)
        ]
        searched = ShuffledProfile(quick, directions)
    return FallbackProfile(searched, below=_USUAL_DELTA, fallback=partial(shuffled_transport, run))


def _with_shared_curvature(run: TrainingRun) -> TrainingRun:
    """The run, for an example that is left out with the curvature of the penalty alone.

    Without the example a step has a part of its batch's curvature, but all of the penalty's.
    """
    if run.adjacency == "replace":
        return run
    return run.replace(loss=replace(run.loss, strong_convexity=run.loss.regulariser))


def _exchanged(run: TrainingRun) -> ShortSteps:
    """Short steps in which one example takes the place of another: both change a step."""
    short_steps = equal_short_steps(run)
    assert short_steps is not None
    assert run.loss.outputs is not None
    return replace(short_steps, dimension=2 * run.loss.outputs)


def _parts(run: TrainingRun, short_steps: ShortSteps) -> list[tuple[float, Positions]]:
    """The laws of the position, by what earlier epochs add, and their probabilities."""
    factors = earlier_epoch_factors(run, short_steps.gap)
    return [(share, positions_of(run, short_steps, factor)) for share, factor in factors]


def earlier_epoch_factors(run: TrainingRun, gap: float) -> tuple[EarlierFactor, ...]:
    """Probabilities of factors of what earlier epochs add, where positions are drawn anew."""
    if run.batches.resampling is not Resampling.EACH_EPOCH:
        return ((1.0, 1.0),)
    length = run.batches.batches_per_epoch
    epochs, _rest = divmod(run.steps, length)
    whole = epochs - 1  # before the last epoch, or before the two that count if it is truncated
    return earlier_factors(gap, length, whole, run.batches.share)


def _quick(
    run: TrainingRun,
    parts: list[tuple[float, Positions]],
    failure: float,
    *,
    transports: bool = True,
) -> TransportProfile:
    laws = []
    for share, positions in parts:
        weights, mus = positions.weights(), positions.mus()
        counts = late_counts(weights) if transports else []
        directions = [
            [positions.transport_mus(count, receiving, late) for count in counts]
            for receiving, late in sensitivity_factors(run)
        ]
        laws.append((share, PositionLaw(weights, mus, directions)))
    return TransportProfile.average(laws, failure=failure)


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
