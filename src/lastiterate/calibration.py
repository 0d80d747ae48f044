"""Calibration: the least noise, or the most steps, that meets a target (epsilon, delta)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lastiterate import _check
from lastiterate._numerics.search import about_met, least_met
from lastiterate._progress import throughout
from lastiterate.accounting import account
from lastiterate.bounds import quantities
from lastiterate.errors import InvalidParameter, InvalidType, NoBoundApplies, UnreachableTarget
from lastiterate.other_releases import Release
from lastiterate.run.batch_rules.base import Resampling
from lastiterate.run.training_run import TrainingRun

_TOLERANCE = 5e-7
_JUST_BELOW = 0.9 * _TOLERANCE
_FIRST_STRIDE = 0.02  # beyond where epsilon would be met if it were inverse to the noise
_FARTHEST_NOISE = 690.0  # in logarithms
_MOST_STEPS = 10**12
_LARGEST_LOG_RATIO = 50.0


def calibrate(
    run: TrainingRun,
    *,
    epsilon: float,
    delta: float,
    over: str = "noise_std",
    bounds: str | list[str] | tuple[str, ...] | None = None,
    other_releases: Sequence[Release] = (),
) -> TrainingRun:
    """The run changed so that it just meets (epsilon, delta)-DP.

    Parameters
    ----------
    run : TrainingRun
        The run to change.  Fields that `over` does not name are kept; a schedule of noise is scaled
        as a whole.
    epsilon : float
        The target, together with `delta`; at most 100.
    delta : float
        Of (epsilon, delta)-DP.
    over : {"noise_std", "release_noise_std", "noise", "steps"}
        What to find: the least noise in training (0 if the noise on release is enough), the least
        noise on release, the least of both in their present proportion, or the most steps (10**12
        if any number meets the target).
    bounds : optional
        As for `account`.
    other_releases : optional
        As for `account`; the target holds for the model and these together.

    Returns
    -------
    TrainingRun
        A run that is certified to meet the target.  Unless the result is at an end of its range, a
        relative change of 1e-6 would miss the target.

    Raises
    ------
    UnreachableTarget
        If no value in the range meets the target.
    NoBoundApplies
        If no bound applies to the run.
    InvalidParameter, InvalidType
        If an argument is out of range.

    Examples
    --------
    >>> import lastiterate as li
    >>> run = li.TrainingRun(
    ...     loss=li.Loss(smoothness=32.502, strong_convexity=0.002), sensitivity=10.0,
    ...     batches=li.Cyclic(examples=60_000, batch_size=1_500), steps=2_000,
    ...     step_size=0.05, noise_std=0.01)
    >>> private = li.calibrate(run, epsilon=1.0, delta=1e-5)
    >>> round(private.noise_std, 6), li.account(private).epsilon(delta=1e-5) <= 1.0
    (0.037026, True)
    """
    if not isinstance(run, TrainingRun):
        raise InvalidType("run", run, must_be="a TrainingRun")
    epsilon = _check.target_epsilon("epsilon", epsilon, or_zero=True)
    delta = _check.number("delta", delta, above=0.0, below=1.0)
    _check.choice("over", over, among=tuple(_SEARCHES))
    return _calibrate(run, _Excess(epsilon, delta, bounds, tuple(other_releases), {}), over)


def calibrate_quickly(
    run: TrainingRun, *, epsilon: float, delta: float, over: str = "noise_std"
) -> TrainingRun:
    """The run changed so that it meets (epsilon, delta)-DP by quick bounds alone.

    Bounds are quick if their whole curves take little time.
    """
    excess = _Excess(epsilon, delta, None, (), {})
    return _calibrate(run, excess.quickly(run) or excess, over)


def _calibrate(run: TrainingRun, excess: _Excess, over: str) -> TrainingRun:
    with throughout("calibrating"):
        return _SEARCHES[over](run, excess, f"({excess.epsilon:g}, {excess.delta:g})-DP")


@dataclass(frozen=True)
class _Excess:
    """The logarithm of a run's epsilon (or delta) over the target; at most 0 if it is met."""

    epsilon: float
    delta: float
    bounds: str | list[str] | tuple[str, ...] | None
    other_releases: tuple[Release, ...]
    excesses: dict[TrainingRun, float]
    cheaply: bool = False

    def __call__(self, run: TrainingRun) -> float:
        if run not in self.excesses:
            self.excesses[run] = self._compute(run)
        return self.excesses[run]

    def _compute(self, run: TrainingRun) -> float:
        try:
            report = account(run, bounds=self.bounds, other_releases=self.other_releases)
            report = report.cheap() if self.cheaply else report
        except NoBoundApplies:
            if np.min(run.noise_std) > 0.0:
                raise  # no noise will help
            return _LARGEST_LOG_RATIO
        if self.epsilon == 0.0:
            return _log_ratio(report.delta(0.0), self.delta)
        return _log_ratio(report.epsilon(self.delta), self.epsilon)

    def quickly(self, run: TrainingRun) -> _Excess | None:
        """The excess by quick bounds alone; None if that saves no time."""
        if (
            self.bounds is not None
            or self.cheaply
            or run.batches.resampling not in (Resampling.ONCE, Resampling.EACH_EPOCH)
        ):
            return None
        return replace(self, cheaply=True, excesses={})


def _least_noise(run: TrainingRun, excess: _Excess, target: str) -> TrainingRun:
    if run.release_noise_std > 0.0:
        noiseless = run.replace(noise_std=0.0)
        if excess(noiseless) <= 0.0:
            return noiseless
    noise = np.array(run.noise_std)
    if not noise.any():
        noise = np.array(quantities.gradient_change(run))
    # Relative to its mean, so that a factor is a noise level.
    shape = noise / noise.mean()

    def with_noise(level: float) -> TrainingRun:
        scaled = shape * level
        return run.replace(noise_std=float(scaled) if scaled.ndim == 0 else scaled)

    level = _least_log(lambda log: with_noise(math.exp(log)), math.log(noise.mean()), excess)
    if level is None:
        noisier = "noise in every step (noise_std has zeros), or more release_noise_std"
        looser = "a larger epsilon or delta"
        raise UnreachableTarget(
            target,
            "more noise_std does not help",
            possible_with=looser if noise.all() else noisier,
        )
    return with_noise(math.exp(level))


def _least_log(
    changed: Callable[[float], TrainingRun], start: float, excess: _Excess
) -> float | None:
    """The least logarithm of noise that meets the target; None if no noise does.

    Epsilon falls about as fast as noise grows, so the excess tells the next step of the search.  If
    quick bounds are the best ones at the start, the search uses them first: all bounds together
    need no more noise.  Else their shape tells where to look.
    """

    def search(objective: _Excess, first: float, stride: float = _FIRST_STRIDE) -> float | None:
        return least_met(
            lambda log: objective(changed(log)),
            first,
            tolerance=_TOLERANCE,
            farthest=_FARTHEST_NOISE,
            stride=stride,
        )

    run = changed(start)
    quickly = excess.quickly(run)
    if quickly is None:
        return search(excess, start)
    if quickly(run) <= excess(run):
        near = search(quickly, start)
    else:
        near = about_met(
            lambda log: excess(changed(log)),
            lambda log: quickly(changed(log)),
            start,
            tolerance=_TOLERANCE,
            farthest=_FARTHEST_NOISE,
            stride=_FIRST_STRIDE,
        )
    return search(excess, start) if near is None else search(excess, near, _JUST_BELOW)


def _most_steps(run: TrainingRun, excess: _Excess, target: str) -> TrainingRun:
    if not run.is_constant or not run.batches.any_length:
        what = "step_size and noise_std" if run.batches.any_length else "batches"
        must_be = f"'noise_std' unless {what} do not depend on the number of steps"
        raise InvalidParameter("over", "steps", must_be=must_be)

    def above(steps: int) -> float:
        return excess(run.replace(steps=steps))

    low, low_value = 1, above(1)
    if low_value > 0.0:
        raise UnreachableTarget(
            target,
            "a single step exceeds it",
            possible_with=f"noise_std {_noise_for_one_step(run, excess, target)}",
        )
    high, high_value = _MOST_STEPS, above(_MOST_STEPS)
    if high_value <= 0.0:
        return run.replace(steps=_MOST_STEPS)
    rounds = 0
    while high - low > max(1, int(_TOLERANCE * low)):
        rounds += 1
        # Privacy loss grows at most like the root of the steps: interpolate in logarithms.
        share = -low_value / (high_value - low_value) if rounds % 3 else 0.5
        middle = math.exp(math.log(low) + share * math.log(high / low))
        steps = min(max(int(middle), low + 1), high - 1)
        value = above(steps)
        if value <= 0.0:
            low, low_value = steps, value
        else:
            high, high_value = steps, value
    return run.replace(steps=low)


def _noise_for_one_step(run: TrainingRun, excess: _Excess, target: str) -> str:
    enough = _least_noise(run.replace(steps=1), excess, target).noise_std
    return f"of at least {float(np.max(enough)):.6g}"


def _log_ratio(value: float, target: float) -> float:
    if value == 0.0:
        return -_LARGEST_LOG_RATIO
    return (
        min(max(math.log(value / target), -_LARGEST_LOG_RATIO), _LARGEST_LOG_RATIO)
        if math.isfinite(value)
        else _LARGEST_LOG_RATIO
    )


def _least_release_noise(run: TrainingRun, excess: _Excess, target: str) -> TrainingRun:
    if np.min(run.noise_std) > 0.0:
        bare = run.replace(release_noise_std=0.0)
        if excess(bare) <= 0.0:
            return bare
    unit = quantities.unit(run) * run.sensitivity / run.batches.batch_size
    first = math.log(run.release_noise_std or unit)
    level = _least_log(lambda log: run.replace(release_noise_std=math.exp(log)), first, excess)
    if level is None:
        raise UnreachableTarget(
            target,
            "noise on release hides nothing from the bounds that cover this run",
            possible_with="more noise_std, or a run that a last-iterate bound covers",
        )
    return run.replace(release_noise_std=math.exp(level))


def _least_of_both(run: TrainingRun, excess: _Excess, target: str) -> TrainingRun:
    def scaled(log: float) -> TrainingRun:
        factor = math.exp(log)
        noise = np.array(run.noise_std) * factor
        return run.replace(
            noise_std=float(noise) if noise.ndim == 0 else noise,
            release_noise_std=run.release_noise_std * factor,
        )

    level = _least_log(scaled, 0.0, excess)
    if level is None:
        why = "more noise does not help"
        raise UnreachableTarget(target, why, possible_with="a larger epsilon or delta")
    return scaled(level)


_SEARCHES = {
    "noise_std": _least_noise,
    "release_noise_std": _least_release_noise,
    "noise": _least_of_both,
    "steps": _most_steps,
}
