"""Batches of random size: limits on their size, the contraction that holds below a limit.

Sums are divided by b whatever the size of a batch, so a step on a batch of k examples has
smoothness (M - lambda) k/b + lambda, where lambda is the shared penalty.  The penalty is the only
certain convexity, since a batch may be empty.  The probability that some batch exceeds a limit is
added to delta.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import scipy

from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, down, ulps, up
from lastiterate.bounds import conditions, quantities
from lastiterate.run.batch_rules.base import BatchRule
from lastiterate.run.batch_rules.drawn import SampledWithoutReplacement
from lastiterate.run.loss import Loss
from lastiterate.run.training_run import TrainingRun

_LEAST_GAP = 1e-15  # less contraction than this is not used
_FAILURE = 1e-9  # usual probability of a larger batch
# Probabilities of a larger batch that are tried, the first where contraction allows it.
_FAILURES = tuple(10.0**-i for i in range(14, 7, -1))
_WORTHWHILE = Fraction(19, 20)  # share of the contraction that a larger limit must keep


@dataclass(frozen=True)
class Majorant:
    """A `run` that is no more private, except with probability `exceeded`."""

    run: TrainingRun
    exceeded: float


def fixed_size_majorant(
    run: TrainingRun,
    counterpart: Callable[[int, int], BatchRule] = SampledWithoutReplacement,
    draws: int | None = None,
    failure: float = _FAILURE,
) -> Majorant:
    """The run on batches of a fixed size whose steps contract no more than those on random ones.

    Random batches have a size of law Bin(n, p), where p is their share of the examples, and the
    participations of the `counterpart`.  There are `draws` of them, by default one in each step.
    The majorant is exceeded if a batch is larger than a limit, which has about the probability
    `failure`.
    """
    batches, loss, draws = run.batches, run.loss, run.steps if draws is None else draws
    if loss.smoothness is None:
        raise ValueError("a run with a known smoothness is needed")
    size, cut = batches.batch_size, batches.largest_size
    own = Fraction(loss.smoothness) - Fraction(loss.regulariser)
    largest = _largest_size(run, own, draws, failure)
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
        # Only by rounding up: a batch of the largest size does not make a step expand.
        longest = down(2.0 / quantities.unit(run), ulps(4))
        fixed = fixed.replace(loss=Loss(smoothness=longest))
    exceeded = 0.0
    if largest < cut:
        probability = float(scipy.stats.binom.sf(largest, batches.examples, batches.share))
        exceeded = min(up(draws * probability, 1e-6), 1.0)
    return Majorant(fixed, exceeded)


def _largest_size(run: TrainingRun, own: Fraction, draws: int, failure: float) -> int:
    """A size that hardly any batch exceeds, if possible without loss of contraction."""
    cut = run.batches.largest_size
    eta, shared = Fraction(quantities.unit(run)), Fraction(run.loss.regulariser)
    if own == 0 or own * cut * eta <= (2 - 2 * eta * shared) * run.batches.batch_size:
        return cut

    def largest(gap: Fraction) -> int:
        return math.floor((2 - eta * shared - gap) * run.batches.batch_size / (eta * own))

    hardly_any = run.batches.size_exceeded_with(failure / draws)
    return min(cut, largest(Fraction(0)), max(largest(eta * shared), hardly_any))


@dataclass(frozen=True)
class LimitedContraction:
    """1 - c of every step, except with probability `failure`."""

    gap: float
    failure: float


def contractions_without_example(run: TrainingRun) -> list[LimitedContraction]:
    """The contraction of the run without the differing example, for one or two limits.

    If a lower limit contracts more, the second limit is as low as is worthwhile, and the first has
    next to no probability of a larger batch.
    """
    batches, loss = run.batches, run.loss
    assert loss.smoothness is not None
    eta, shared = Fraction(float(quantities.step_sizes(run)[0])), Fraction(loss.regulariser)
    own = (Fraction(loss.smoothness) - shared) / batches.batch_size

    def gap(size: int) -> Fraction:
        return min(eta * shared, 2 - eta * (own * size + shared))

    # Below the largest batch: the differing examples displace no other example.
    most = max(batches.largest_size - run.examples_per_person, 0)
    sizes = [most]
    if own > 0 and gap(most) < eta * shared:  # a smaller batch contracts more
        not_expanding = math.floor((2 - eta * shared) / (eta * own))
        unhindered = math.floor((2 - 2 * eta * shared) / (eta * own))
        limits = [max(_hardly_exceeded(run, failure), unhindered) for failure in _FAILURES]
        worthwhile = [size for size in limits if gap(size) >= eta * shared * _WORTHWHILE]
        wanted = (limits[0], worthwhile[0] if worthwhile else limits[-1])
        sizes = [min(size, most, not_expanding) for size in dict.fromkeys(wanted)]
    contractions = []
    for size in dict.fromkeys(sizes):
        exact = float(gap(size))
        everyone = size >= batches.examples - run.examples_per_person
        failure = 0.0 if everyone else _exceeded(run, size)
        usable = float(np.nextafter(exact, 0.0)) if exact > _LEAST_GAP else 0.0
        contractions.append(LimitedContraction(usable, failure if exact >= 0.0 else 1.0))
    return contractions


def _hardly_exceeded(run: TrainingRun, failure: float) -> int:
    """The least number of other examples that a batch exceeds with at most this probability."""
    low, high = run.batches.batch_size, run.batches.examples - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if _exceeded(run, middle) <= failure else (middle + 1, high)
    return high


def _exceeded(run: TrainingRun, size: int) -> float:
    """The probability of more than `size` other examples in any step, by Chernoff's bound."""
    count, share = run.batches.examples - 1, run.batches.share
    number = size + 1
    if number > count:
        return 0.0
    if number <= count * share:
        return 1.0
    part = number / count
    if part >= 1.0:
        log = count * math.log(share)
    else:
        log = -count * (
            part * math.log(part / share)
            + (1.0 - part) * math.log1p((share - part) / (1.0 - share))
        )
    return min(up(math.exp(min(log + math.log(run.steps), 0.0)), MILLIONS_OF_ROUNDINGS), 1.0)
