"""Sentences on how a run would be more private, or its epsilon level off.

Advice is no condition: the guarantee that it stands beside holds as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from lastiterate._display import short, up
from lastiterate.accounting import account
from lastiterate.bounds.momentum import MOMENTUM, curvature
from lastiterate.privacy_report import PrivacyReport
from lastiterate.run.batch_rules.base import Resampling
from lastiterate.run.training_run import TrainingRun
from lastiterate.shifts.momentum.mu import converges, longest_converging_step

_WORTH_SAYING = 0.95  # of epsilon
# Positions times steps up to which another account of a run with momentum takes seconds.
_QUICK_WORK = 10_000
_MOST_SOLVED = 32  # positions: others are solved in few groups


def advice(report: PrivacyReport, delta: float) -> tuple[str, ...]:
    """Sentences that name whole epochs and, with momentum, a shorter step or noise on release."""
    run = report.run
    if MOMENTUM.id not in report.used:
        return tuple(_on_whole_epochs(report, delta))
    return (*_on_the_step(run), *_on_release_noise(report, delta))


def _on_whole_epochs(report: PrivacyReport, delta: float) -> Iterator[str]:
    """The epsilon without the last epoch, if that is cut and batches are drawn in every epoch."""
    run = report.run
    if run.batches.resampling is not Resampling.EACH_EPOCH or report.of_more_than_the_run:
        return
    whole = run.steps - run.steps % run.batches.batches_per_epoch
    if not (run.is_constant and run.has_plain_steps and 0 < whole < run.steps):
        return
    shorter = run.replace(steps=whole)
    found = account(shorter, other_releases=report.other_releases).epsilon(delta)
    if found < _WORTH_SAYING * report.epsilon(delta):
        yield (
            f"Whole epochs, {whole:,} steps instead of {run.steps:,}, would give epsilon = "
            f"{up(found)}: where the last epoch is cut, the bounds count the one before at its end."
        )


def _on_the_step(run: TrainingRun) -> Iterator[str]:
    """How epsilon would level off as steps are added."""
    ends = curvature(run)
    if not ends[0] > 0.0:
        yield (
            "Epsilon grows with the number of steps: it would level off for a convex loss with a "
            "penalty (a regulariser above 0) and a clip that never acts, if steps are short."
        )
        return
    if isinstance(run.step_size, tuple) or isinstance(run.momentum, tuple):
        return
    kept = 1.0 - run.dampening
    if converges(run.step_size * kept, ends, run.momentum, nesterov=run.nesterov):
        return
    longest = longest_converging_step(ends, run.momentum, nesterov=run.nesterov)
    shorter = _two_digits(longest / kept)
    if converges(shorter * kept, ends, run.momentum, nesterov=run.nesterov):
        with_ = f"with momentum {short(run.momentum)}" if run.momentum else "as they are"
        yield (
            f"A step of {short(shorter)} instead of {short(run.step_size)} would let it converge: "
            f"longer steps, {with_}, may drive two runs apart, and epsilon grows with the number "
            "of steps. It is valid all the same."
        )


def _on_release_noise(report: PrivacyReport, delta: float) -> Iterator[str]:
    """The epsilon with noise on release as large as what one gradient's noise adds in the end."""
    run = report.run
    if run.release_noise_std > 0.0 or report.of_more_than_the_run:
        return
    noise = _two_digits(_moved(run) * _last(run.noise_std))
    if not noise > 0.0:
        return
    if _takes_long(run):
        yield (
            f"Noise of standard deviation about {short(noise)} on the published parameters "
            "(release_noise_std) may give a smaller epsilon. Not computed, since that takes as "
            "long as the guarantee."
        )
        return
    noisier = account(
        run.replace(release_noise_std=noise),
        bounds=list(report.used),
        other_releases=report.other_releases,
    )
    found = noisier.epsilon(delta)
    if found < _WORTH_SAYING * report.epsilon(delta):
        why = (
            "the last noise enters them by 1 - momentum only"
            if run.average is None
            else "the last noise enters the average only in part"
        )
        yield (
            f"Noise of standard deviation {short(noise)} on the published parameters "
            f"(release_noise_std) would give epsilon = {up(found)}: {why}."
        )


def _takes_long(run: TrainingRun) -> bool:
    """Whether certificates for so many positions take more than a few seconds."""
    each = run.batches.resampling is Resampling.EACH_STEP
    positions = 1 if each else min(run.batches.batches_per_epoch, _MOST_SOLVED)
    return positions * run.steps > _QUICK_WORK


def _moved(run: TrainingRun) -> float:
    """How far a gradient of the last steps moves the parameters in the end."""
    return _last(run.step_size) * (1.0 - run.dampening) / (1.0 - _last(run.momentum))


def _last(value: float | tuple[float, ...]) -> float:
    return value[-1] if isinstance(value, tuple) else value


def _two_digits(value: float) -> float:
    """A number of two digits, at most this one."""
    if not 0.0 < value < math.inf:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.floor(value / unit) * unit:.2g}")
