r"""The optimal shifts in closed form where all steps are alike: fast even for a trillion steps.

The differing example takes part N times, every `period` steps; `tail` steps follow its last
participation, then perhaps noise on release.  In final units participation i, counted back
from the last, has mass :math:`s c^{t + i l}`, and the steps from it up to the next one have
variance :math:`n^2 c^{2(t + (i-1) l + 1)} G_l`, where :math:`G_k = 1 + c^2 + .. + c^{2(k-1)}`.

For :math:`c \le 1` their slopes fall (or stay) with time, so all participations but the last
share one chord, the last has its own or joins them, and a start at the diameter has its own
or joins them.  For :math:`c > 1` the slopes rise, so every participation is covered by its own
steps, except that noise on release or a long tail may draw the last few into one chord.

Powers and their sums are taken from 1 - c, since c itself rounds to 1 once 1 - c < 1e-16.
Distances are measured in sensitivities and noise in the noise of a step, so that only their
ratios can be extreme; those are cut off, on the safe side, where squares would overflow.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from lastiterate._numerics.isotonic import pooled
from lastiterate._numerics.powers import log_of, power, sum_of_powers
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, at_least, up
from lastiterate._numerics.search import last_count_true
from lastiterate.shifts.minorant import LEAST_MU

_LARGEST_RATIO = 1e150
_Block = tuple[float, float]  # mass, variance


@dataclass(frozen=True, kw_only=True)
class PeriodicRun:
    """A run of equal steps; sensitivity, noise and release noise in the same units."""

    gap: float  # 1 - c, at most 1; negative where a step expands
    sensitivity: float
    noise: float
    period: int
    participations: int
    tail: int
    release_noise: float = 0.0


def periodic_mu(run: PeriodicRun, *, diameter: float = math.inf) -> float:
    """The least mu, rounded up; equal to `optimal_shifts` on the same steps written out.

    With a diameter, `gap` must be at least 0, and the best start is searched for: any start
    gives a valid bound, and the cost is unimodal in it wherever it was looked at.
    """
    if run.participations == 0:
        return 0.0
    unit = run.noise if run.noise > 0.0 else run.release_noise
    if unit == 0.0:
        return math.inf
    scaled = _Scaled(
        log_c=log_of(run.gap),
        noise=1.0 if run.noise > 0.0 else 0.0,
        release=min(run.release_noise / unit, _LARGEST_RATIO),
        diameter=_diameter_ratio(diameter, run.sensitivity),
        period=run.period,
        participations=run.participations,
        tail=run.tail,
    )
    energy = _expanding_energy(scaled) if run.gap < 0.0 else _contracting_energy(scaled)
    mu = max(at_least(math.sqrt(energy), ulps=_slack_ulps(scaled)), LEAST_MU)
    return at_least(mu * (run.sensitivity / unit), ulps=4)


@dataclass(frozen=True)
class _Scaled:
    """A `PeriodicRun` with sensitivity 1 and with noise 1 (or 0, then release noise 1)."""

    log_c: float
    noise: float
    release: float
    diameter: float
    period: int
    participations: int
    tail: int


def _diameter_ratio(diameter: float, sensitivity: float) -> float:
    ratio = diameter / sensitivity if sensitivity > 0.0 else math.inf
    return max(ratio, 1.0 / _LARGEST_RATIO) if ratio < _LARGEST_RATIO else math.inf


def _slack_ulps(run: _Scaled) -> float:
    """Ulps to widen by: c^k = exp(k log c) is off by k |log c| of them, and vanishes beyond 745.

    In sums of powers what is far off is also small, unless it is multiplied by a diameter
    or a release noise, which may make up for that.
    """
    if run.log_c == 0.0:
        return 64.0
    near = min((run.tail + run.period) * abs(run.log_c), 750.0)
    far = run.diameter < math.inf or run.release > 0.0
    return 64.0 + 24.0 * near + (6000.0 if far else 0.0)


def _contracting_energy(run: _Scaled) -> float:
    energy = _energy([_earlier_block(run, run.participations), _last_block(run)])
    return min(energy, _best_capped(run)) if run.diameter < math.inf else energy


def _earlier_block(run: _Scaled, participations: int) -> _Block:
    """All but the last of the latest `participations`, as one chord (c <= 1)."""
    more, length = participations - 1, run.period
    mass = power(run.log_c, run.tail + length) * sum_of_powers(length * run.log_c, more)
    return mass, _variance(run, run.tail + 1, length * more)


def _last_block(run: _Scaled) -> _Block:
    return power(run.log_c, run.tail), _variance(run, 0, run.tail + 1) + run.release * run.release


def _best_capped(run: _Scaled) -> float:
    """Start at the diameter just after a participation, `later` of which are still to come."""

    def energy(later: int) -> float:
        start = run.diameter * power(run.log_c, run.tail + later * run.period)
        if later == 0:
            return _energy([(start, _variance(run, 0, run.tail) + run.release * run.release)])
        waiting = _variance(run, run.tail + (later - 1) * run.period + 1, run.period - 1)
        return _energy([(start, waiting), _earlier_block(run, later), _last_block(run)])

    most = run.participations - 1
    scale = [0] + [int(1.25**k) for k in range(4, 190) if 1.25**k < most] + [1, 2, most]
    tried = {later: energy(later) for later in scale if later <= most}
    ordered = sorted(tried)
    best = ordered.index(min(tried, key=tried.__getitem__))
    low, high = ordered[max(best - 1, 0)], ordered[min(best + 1, len(ordered) - 1)]
    return min(min(tried.values()), _unimodal_minimum(energy, low, high))


def _unimodal_minimum(cost: Callable[[int], float], low: int, high: int) -> float:
    """The least cost between two numbers, by thirds."""
    while high - low > 8:
        third = (high - low) // 3
        if cost(low + third) <= cost(high - third):
            high -= third
        else:
            low += third
    return min(cost(k) for k in range(low, high + 1))


def _energy(blocks: list[_Block]) -> float:
    """The convex minorant of a few blocks that cannot be split further."""
    pools = pooled(blocks)
    return math.fsum(_quotient(mass * mass, variance) for mass, variance, _ in pools if mass > 0.0)


def _expanding_energy(run: _Scaled) -> float:
    """c > 1, measured at a participation; `joined` earlier ones share the last one's chord."""
    length, more, shrink = run.period, run.participations - 1, -run.log_c
    if run.noise == 0.0:
        shift = power(run.log_c, run.tail) * sum_of_powers(length * run.log_c, run.participations)
        return _quotient(shift * shift, run.release * run.release)
    own = sum_of_powers(2 * shrink, length)
    left = run.release * power(shrink, run.tail)
    hidden = sum_of_powers(2 * shrink, run.tail + 1) + left * left

    def chord(joined: int) -> _Block:
        """Measured at the earliest of the participations joined, so that nothing overflows."""
        mass = sum_of_powers(length * shrink, joined + 1)
        variance = sum_of_powers(2 * shrink, joined * length)
        return mass, variance + hidden * power(shrink, 2 * joined * length)

    def joins(joined: int) -> bool:
        """Whether this one is steeper than the chord of those after it, compared at itself.

        Then the chord of all of them is feasible, since those between are steeper still.
        To stay apart is always feasible, so ties within rounding do.
        """
        mass, variance = chord(joined - 1)
        return variance * power(shrink, length) >= up(mass * own, MILLIONS_OF_ROUNDINGS)

    joined = last_count_true(joins, more)
    mass, variance = chord(joined)
    return (more - joined) / own + _quotient(mass * mass, variance)


def _variance(run: _Scaled, ahead: int, steps: int) -> float:
    """The variance, in final units, of `steps` steps that are followed by `ahead` more."""
    if steps == 0:
        return 0.0
    return run.noise * power(run.log_c, 2 * ahead) * sum_of_powers(2 * run.log_c, steps)


def _quotient(top: float, bottom: float) -> float:
    return top / bottom if bottom > 0.0 else math.inf
