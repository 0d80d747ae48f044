"""Conditions that the published theorems share, and arithmetic that they share."""

import math

import numpy as np

from lastiterate._numerics.geometric import log_of, power, sum_of_powers
from lastiterate._numerics.rounding import (
    FEW_ROUNDINGS,
    THOUSANDS_OF_ROUNDINGS,
    TINY,
    at_least,
    down,
    up,
)
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import Hypothesis
from lastiterate.run.training_run import TrainingRun


def ratio(run: TrainingRun) -> float:
    """r = L/(b sigma) of a run with constant noise, rounded up."""
    noise = float(np.max(run.noise_std))
    return at_least(max(run.sensitivity / run.batches.batch_size / noise, TINY), ulps=4)


def gap(run: TrainingRun) -> float:
    """1 - c, rounded down."""
    return float(quantities.gaps(run)[0])


def diameter_in_arrivals(run: TrainingRun) -> float:
    """D/(eta L/b), rounded up."""
    return at_least(quantities.diameter(run) / float(quantities.arrivals(run)[0]), ulps=8)


def unrolled(run: TrainingRun) -> tuple[float, int]:
    """k = D/(eta L/b), rounded up, and the steps or epochs ceil(k) to unroll.

    The proof needs k^2/R <= k, which an R that is short of k by a relative 1e-12 violates by as
    much, and the first number makes up for; so parameters that divide evenly in decimals
    are not charged one more step.
    """
    k = diameter_in_arrivals(run)
    return up(k, 4e-12), math.ceil(down(k, THOUSANDS_OF_ROUNDINGS))


def forgotten(gap: float, steps: int) -> float:
    """(1 - c^steps)/(1 - c), to a few ulps; `steps` where nothing is forgotten."""
    return sum_of_powers(log_of(gap), steps, gap=gap)


def remembered(gap: float, steps: int) -> float:
    """c^steps."""
    return power(log_of(gap), steps)


def epochs(run: TrainingRun) -> int:
    return run.steps // run.batches.batches_per_epoch


def _cut_short(run: TrainingRun) -> str | None:
    length = run.batches.batches_per_epoch
    return None if run.steps % length == 0 else f"{run.steps} steps of {length} an epoch"


def _one_batch(run: TrainingRun) -> str | None:
    length = run.batches.batches_per_epoch
    return None if length >= 2 else "one batch"


def _no_contraction(run: TrainingRun) -> str | None:
    if run.loss.smoothness is None or np.all(quantities.gaps(run) > 0.0):
        return None
    return f"strong_convexity={run.loss.strong_convexity!r}, step_size={quantities.unit(run)!r}"


def _past_the_best_step(run: TrainingRun) -> str | None:
    """eta (lambda + beta) < 2, so that c = 1 - eta lambda."""
    if run.loss.smoothness is None:
        return None
    largest, both = quantities.unit(run), run.loss.strong_convexity + run.loss.smoothness
    met = down(largest * both, FEW_ROUNDINGS) <= 2.0
    return None if met else f"step_size {largest!r} > {2 / both!r}"


WHOLE_EPOCHS = Hypothesis(
    "whole epochs", _cut_short, "make steps a multiple of examples // batch_size"
)
SEVERAL_BATCHES = Hypothesis(
    "at least two batches an epoch", _one_batch, "see published/chourasia-ye-shokri for one batch"
)
STRONGLY_CONVEX = Hypothesis(
    "strongly convex losses, and steps shorter than 2/smoothness",
    _no_contraction,
    "add a regulariser: Loss(strong_convexity=..)",
)
BEST_STEP_AT_MOST = Hypothesis(
    "step_size <= 2/(smoothness + strong_convexity)", _past_the_best_step, "shorten the steps"
)

GRADIENT_STEPS = (
    conditions.ONLY_LAST_ITERATE,
    conditions.CONSTANT,
    conditions.NOISY,
    *conditions.CONTRACTING,
)
