r"""Bok, Su and Altschuler 2024, Theorem C.16: a walk that drifts in an interval, or does not.

Linear losses on [-D/2, D/2]: one data set gives a symmetric walk X, the other one a walk X' that
moves to the right by s = eta L/b whenever the example takes part.  Lengths are in units of the
step size, n is the noise of a step, l = n // b and k = D/s.
"""

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, Array, down, ulps, up
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Citation, Hypothesis, LowerBound
from lastiterate.errors import NumericalFailure
from lastiterate.lower_bounds.drawn_sums import ThresholdLowerProfile
from lastiterate.lower_bounds.line import IDENTITY, Laws, Pair, Step, last_laws, linear, nodes_of
from lastiterate.lower_bounds.quadratics import seen_together, with_those_seen_together
from lastiterate.profile.lower import BestLowerProfile, LowerProfile, OneTestLowerProfile
from lastiterate.run.batch_rules.ordered import Cyclic, FullBatch
from lastiterate.run.loss import Gradients
from lastiterate.run.training_run import TrainingRun

_PANEL_WIDTH = 1.0  # of a panel, in standard deviations
_MAX_WORK = 30_000.0  # steps times standard deviations across the interval
_MAX_WALKED_STEPS = 1_000
_NO_TEST = OneTestLowerProfile(fpr=1.0, power=1.0)


def bounded_lower_bound(run: TrainingRun) -> LowerProfile:
    r"""The profile of tests that tell a walk in [-D/2, D/2] with a drift from one without.

    **Bound.** The tests "x <= y" and "x > y" for all y on a grid, from the laws of the two walks.
    In long runs only the last steps are walked: X' from the lowest point and X from the highest,
    which lies beyond where they are, in distribution.  "x <= 0" has probability 1/2 without
    drift, by symmetry.

    **Holds when.** losses may be linear (not strongly convex, no regulariser), and iterates are
    projected onto a set of diameter D; full batches or a fixed order.  Where gradients are
    bounded by less than L, the others in a batch, who are as many at least, make up for the drift.

    **Tight** to a constant factor of :math:`\mu`.

    **Source.** Theorem C.16.  They bound the probability of "x <= 0" under drift by Doob's
    inequality, for the last .8 k participations, and so show
    :math:`\mu \ge c_1\sqrt{LD/(\eta n)}/\sigma` with :math:`c_1 < \sqrt{.01/5.6}`.  Here it is
    computed.  Where the grid is too large, Levy's inequality and the best number R of
    participations give :math:`\min_R\ 2\bar\Phi\big(\frac{k - R}{w}\big) +
    \bar\Phi\big(\frac{R - k/2}{w}\big)`, w the walk's spread over them, in units of s.

    **Computed as** quadrature with error bounds, and Levy's inequality; rounded down.
    """
    run = with_those_seen_together(run)
    found: list[LowerProfile] = [_levy_profile(run)]
    steps = _walked_steps(run)
    if steps:
        with suppress(NumericalFailure):  # Levy's inequality needs no grid
            found.append(_threshold_profile(run, steps))
    return BestLowerProfile(tuple(found))


def _walked_steps(run: TrainingRun) -> int:
    """The number of last steps that a grid of reasonable size can walk; 0 if they cannot cross."""
    across = quantities.diameter(run) / float(quantities.noises(run)[0])
    most = min(run.steps, _MAX_WALKED_STEPS, int(_MAX_WORK / max(across, 20.0)))
    length = run.batches.batches_per_epoch
    enough = most == run.steps or most // length > _diameter_in_drifts(run) / 2.0
    return most if enough else 0


def _diameter_in_drifts(run: TrainingRun) -> float:
    return quantities.diameter(run) / float(quantities.sensitivities(run)[0])


def _threshold_profile(run: TrainingRun, steps: int) -> ThresholdLowerProfile:
    """The tests by all edges of panels, from the laws of the last `steps`."""
    half = quantities.diameter(run) / 2.0
    if steps == run.steps:
        laws = _walks(run, steps, 0.0)
        still, drifting = _tails(laws, 0), _tails(laws, 1)
    else:
        still = _tails(_walks(run, steps, half), 0)
        drifting = _tails(_walks(run, steps, -half), 1)
    middle = int(np.searchsorted(drifting.edges, 0.0))
    at_zero = drifting.edges.size > middle and drifting.edges[middle] == 0.0
    false = [drifting.below_at_most, still.above_at_most]
    true = [still.below_at_least, drifting.above_at_least]
    if at_zero:
        false.append(drifting.below_at_most[[middle]])
        true.append(np.array([down(0.5, ulps(4))]))
    return ThresholdLowerProfile(
        np.minimum(np.concatenate(false), 1.0), np.maximum(np.concatenate(true), 0.0)
    )


def _walks(run: TrainingRun, steps: int, start: float) -> Laws:
    """The laws of both walks after the last `steps`, from one start."""
    half = quantities.diameter(run) / 2.0
    noise, drift = float(quantities.noises(run)[0]), float(quantities.sensitivities(run)[0])
    length = run.batches.batches_per_epoch
    idle = Step(IDENTITY, (IDENTITY, IDENTITY), noise, (-half, half))
    seen = Step(IDENTITY, (IDENTITY, linear(1.0, offset=drift)), noise, (-half, half))
    # The example is in the last batch of an epoch; a cut epoch, at the end, does not see it.
    first = run.steps - steps
    listed = [seen if k % length == length - 1 else idle for k in range(first, run.steps)]
    return last_laws(Pair(start, listed, None, quantities.release_noise(run)), _PANEL_WIDTH)


@dataclass(frozen=True)
class _Tails:
    """Bounds on P(x <= y) and P(x > y) at the edges y of the panels."""

    edges: Array
    below_at_most: Array
    below_at_least: Array
    above_at_most: Array
    above_at_least: Array


def _tails(laws: Laws, world: int) -> _Tails:
    """Both tails of the law of one world, bounded from both sides."""
    _, weights = nodes_of(laws.edges)
    masses = (weights * laws.densities[..., world]).sum(axis=1)
    low, high = laws.atoms[:, world]
    below = low + np.concatenate([[0.0], np.cumsum(masses)])
    above = high + np.concatenate([np.cumsum(masses[::-1])[::-1], [0.0]])
    relative = laws.relative + ulps(masses.size + 64)
    return _Tails(
        laws.edges,
        up(below, relative) + laws.absolute,
        down(below, relative) - laws.absolute,
        up(above, relative) + laws.absolute,
        down(above, relative) - laws.absolute,
    )


def _levy_profile(run: TrainingRun) -> OneTestLowerProfile:
    """The test "x <= 0", its probability under drift bounded by Levy's inequality."""
    length = run.batches.batches_per_epoch
    most, k = run.steps // length, _diameter_in_drifts(run)
    if not (k >= 2.0 and k / 2.0 < most):
        return _NO_TEST
    R = np.unique(np.clip(np.linspace(k / 2.0, k, 400).astype(np.int64), 1, most)).astype(float)
    released = (quantities.release_noise(run) / float(quantities.noises(run)[0])) ** 2
    spread = np.sqrt(R * length + released) / quantities.sensitivity_over_noise(run)
    missed = 2.0 * ndtr(-(k - R) / spread) + ndtr(-(R - k / 2.0) / spread)
    least = min(1.0, float(missed.min()) / down(1.0, MILLIONS_OF_ROUNDINGS) + 1e-300)
    if not least < 0.5:
        return _NO_TEST
    return OneTestLowerProfile(fpr=least, power=down(0.5, MILLIONS_OF_ROUNDINGS))


def _no_room(run: TrainingRun) -> str | None:
    size, together = run.batches.batch_size, seen_together(run)
    if not _makes_up(run) or size >= 2 * together:
        return None
    of_one = f", {together} of them of one person" if together > 1 else ""
    return f"batch_size={size}{of_one}, gradients of at most {run.gradient_bound!r}"


def _makes_up(run: TrainingRun) -> bool:
    """Whether no gradient may be as large as L, so that nobody walks without others' help."""
    return run.gradient_bound is not None and run.gradient_bound < run.sensitivity


def _gradients(run: TrainingRun) -> list[Gradients]:
    if not _makes_up(run):
        return [Gradients(1.0, 0.0)]
    together = seen_together(run)
    others = 0.5 * together / (run.batches.batch_size - together)
    return [Gradients(0.5, -0.5, (0.0, others))]


LOWER_BOUNDS = (
    LowerBound(
        id="published/bok-su-altschuler/bounded-lower",
        gives="a drifting walk in an interval",
        covers=(FullBatch, Cyclic),
        needs=(
            conditions.CONSTANT,
            conditions.NOISY,
            conditions.BOUNDED,
            conditions.MAY_BE_LINEAR,
            Hypothesis("room for a drift in the batch", _no_room, "use larger batches"),
        ),
        source=Citation(
            "Bok, Su and Altschuler",
            2024,
            "Shifted interpolation for differential privacy",
            "Theorem C.16",
        ),
        evaluate=bounded_lower_bound,
        gradients=_gradients,
    ),
)
