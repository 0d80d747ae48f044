"""Batches of random size, compared with batches of the largest size that ever counts."""

import math
from dataclasses import dataclass
from fractions import Fraction

import scipy

from lastiterate._numerics.rounding import (
    down,
    ulps,
    up,
)
from lastiterate.bounds import conditions, quantities
from lastiterate.run.batch_rules.rules import (
    BatchRule,
    SampledWithoutReplacement,
)
from lastiterate.run.loss import Loss
from lastiterate.run.training_run import TrainingRun

_LEAST_GAP = 1e-15  # less contraction than this is not used
_NEVER = 1e-9  # a probability that may be charged without anyone noticing


@dataclass(frozen=True)
class Majorant:
    """A `run` that costs at least as much, except with probability `exceeded`."""

    run: TrainingRun
    exceeded: float


def fixed_size_majorant(
    run: TrainingRun,
    counterpart: type[BatchRule] = SampledWithoutReplacement,
    draws: int | None = None,
    never: float = _NEVER,
) -> Majorant:
    """On batches of a fixed size, whose steps contract no more than those on random ones.

    Those have a size of law Bin(n, p), p their share of the examples, are `draws` in number (one in
    each step, by default), and see an example as those of the counterpart do.  The majorant is
    exceeded where one has more examples than are counted on, which may have the probability
    `never`.
    """
    batches, loss, draws = run.batches, run.loss, run.steps if draws is None else draws
    if loss.smoothness is None:
        raise ValueError("a run with a known smoothness is needed")
    size, cut = batches.batch_size, batches.largest_size
    own = Fraction(loss.smoothness) - Fraction(loss.regulariser)
    largest = _largest_that_counts(run, own, draws, never)
    smoothness = up(float(own * largest / size), ulps(4)) + loss.regulariser
    fixed = run.replace(
        clip_norm=None,  # it never acts
        loss=Loss(
            smoothness=up(smoothness, ulps(2)),
            strong_convexity=loss.regulariser,
            regulariser=loss.regulariser,
        ),
        batches=counterpart(batches.examples, size),
    )
    if not conditions.contracts_by_step_size(fixed):
        # Only by rounding up: the largest batch that counts does not make a step expand.
        longest = down(2.0 / quantities.unit(run), ulps(4))
        fixed = fixed.replace(loss=Loss(smoothness=longest))
    exceeded = 0.0
    if largest < cut:
        probability = float(scipy.stats.binom.sf(largest, batches.examples, batches.share))
        exceeded = min(up(draws * probability, 1e-6), 1.0)
    return Majorant(fixed, exceeded)


def _largest_that_counts(run: TrainingRun, own: Fraction, draws: int, never: float) -> int:
    """A size of batch that hardly any exceeds, if possible without loss of contraction."""
    cut = run.batches.largest_size
    eta, shared = Fraction(quantities.unit(run)), Fraction(run.loss.regulariser)
    if own == 0 or own * cut * eta <= (2 - 2 * eta * shared) * run.batches.batch_size:
        return cut

    def largest(gap: Fraction) -> int:
        return math.floor((2 - eta * shared - gap) * run.batches.batch_size / (eta * own))

    hardly_any = run.batches.size_exceeded_with(never / draws)
    return min(cut, largest(Fraction(0)), max(largest(eta * shared), hardly_any))
