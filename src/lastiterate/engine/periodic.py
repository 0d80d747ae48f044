r"""The same optimum in closed form, where every step is alike: a trillion steps cost nothing.

The differing example takes part N times, every `period` steps; `tail` steps follow its last
participation, then perhaps noise on release.  In final units participation i, counted back
from the last, has mass :math:`s c^{t + i l}`, and the steps from it up to the next one have
variance :math:`n^2 c^{2(t + (i-1) l + 1)} G_l`, where :math:`G_k = 1 + c^2 + .. + c^{2(k-1)}`.

For :math:`c \le 1` their slopes fall (or stay) with time, so all participations but the last
share one chord, the last has its own or joins them, and a start at the diameter has its own
or joins them.  For :math:`c > 1` the slopes rise, so every participation pays for itself,
except that noise on release or a long tail may draw the last few into one chord.

Everything is written in 1 - c and log c: c itself rounds to 1 once 1 - c < 1e-16.
"""

import math
from dataclasses import dataclass

from lastiterate._numerics.directed import at_least
from lastiterate.engine.minorant import LEAST_MU

_Block = tuple[float, float]  # mass, variance


@dataclass(frozen=True, kw_only=True)
class PeriodicRun:
    """A run of equal steps, in parameter space; see the module for the symbols."""

    gap: float  # 1 - c, at most 1; negative where a step expands
    sensitivity: float
    noise: float
    period: int
    participations: int
    tail: int
    release_noise: float = 0.0

    @property
    def log_c(self) -> float:
        return math.log1p(-self.gap) if self.gap < 1.0 else -math.inf


def periodic_mu(run: PeriodicRun, *, diameter: float = math.inf) -> float:
    """The least mu, rounded up; equal to `optimal_shifts` on the same steps written out.

    With a diameter, `gap` must be at least 0, and the best start is searched for: any start
    gives a valid bound, and the cost is unimodal in it wherever it was looked at.
    """
    if run.participations == 0:
        return 0.0
    if run.gap < 0.0:
        energy = _expanding(run)
    else:
        energy = _energy([_earlier(run, run.participations), _last(run)])
        if diameter < math.inf:
            energy = min(energy, _best_capped(run, diameter))
    far = diameter < math.inf or run.release_noise > 0.0
    return max(at_least(math.sqrt(energy), ulps=_ulps(run, far=far)), LEAST_MU)


def _ulps(run: PeriodicRun, *, far: bool) -> float:
    """Ulps to widen by: c^k = exp(k log c) is off by k |log c| of them, and vanishes beyond 745.

    In sums of powers what is far off is also small; `far` says that it is multiplied by a
    diameter or a release noise, which may make up for that.
    """
    near = min((run.tail + run.period) * abs(run.log_c), 750.0) if run.log_c else 0.0
    return 64.0 + 24.0 * near + (6000.0 if far and run.log_c else 0.0)


def _earlier(run: PeriodicRun, participations: int) -> _Block:
    """All but the last of the latest `participations`, as one chord (c <= 1)."""
    more, length = participations - 1, run.period
    mass = run.sensitivity * _power(run, run.tail + length) * _sum(run, more, length)
    return mass, _variance(run, run.tail + 1, length * more)


def _last(run: PeriodicRun) -> _Block:
    mass = run.sensitivity * _power(run, run.tail)
    return mass, _variance(run, 0, run.tail + 1) + run.release_noise**2


def _best_capped(run: PeriodicRun, diameter: float) -> float:
    """Start at the diameter just after a participation, `later` of which are still to come."""

    def energy(later: int) -> float:
        start = diameter * _power(run, run.tail + later * run.period)
        if later == 0:
            return _energy([(start, _variance(run, 0, run.tail) + run.release_noise**2)])
        waiting = _variance(run, run.tail + (later - 1) * run.period + 1, run.period - 1)
        return _energy([(start, waiting), _earlier(run, later), _last(run)])

    most = run.participations - 1
    scale = [0] + [int(1.25**k) for k in range(4, 190) if 1.25**k < most] + [1, 2, most]
    tried = {later: energy(later) for later in scale if later <= most}
    ordered = sorted(tried)
    best = ordered.index(min(tried, key=tried.__getitem__))
    low, high = ordered[max(best - 1, 0)], ordered[min(best + 1, len(ordered) - 1)]
    return min(min(tried.values()), _unimodal_minimum(energy, low, high))


def _unimodal_minimum(cost, low: int, high: int) -> float:  # type: ignore[no-untyped-def]
    while high - low > 8:
        third = (high - low) // 3
        if cost(low + third) <= cost(high - third):
            high -= third
        else:
            low += third
    return float(min(cost(k) for k in range(low, high + 1)))


def _energy(blocks: list[_Block]) -> float:
    """The convex minorant of a few blocks that cannot be split further."""
    merged: list[_Block] = []
    for mass, variance in blocks:
        while merged and merged[-1][0] * variance >= mass * merged[-1][1]:
            mass, variance = mass + merged[-1][0], variance + merged[-1][1]
            merged.pop()
        merged.append((mass, variance))
    return math.fsum(_quotient(mass * mass, variance) for mass, variance in merged if mass > 0.0)


def _expanding(run: PeriodicRun) -> float:
    """c > 1, in units of the last participation; `joined` earlier ones share its chord."""
    s, n, length, more = run.sensitivity, run.noise, run.period, run.participations - 1
    if n == 0.0:
        paid = s * _power(run, run.tail) * _sum(run, run.participations, length)
        return _quotient(paid * paid, run.release_noise**2)
    inverse = PeriodicRun(
        gap=-run.gap / (1.0 - run.gap),
        sensitivity=s,
        noise=n,
        period=length,
        participations=run.participations,
        tail=run.tail,
    )
    # Sums of c^-2k are those of a contraction by 1/c, whose gap is 1 - 1/c.
    alone = _quotient(s * s, n * n * _sum(inverse, length, 2))
    hidden = n * n * _sum(inverse, run.tail + 1, 2)
    hidden += (run.release_noise * _power(inverse, run.tail)) ** 2

    def chord(joined: int) -> _Block:
        # Measured at the earliest of the participations joined, so that nothing overflows.
        mass = s * _sum(inverse, joined + 1, length)
        variance = n * n * _sum(inverse, joined * length, 2)
        return mass, variance + hidden * _power(inverse, 2 * joined * length)

    def joins(joined: int) -> bool:
        """Whether the earliest of them is steeper than the chord, so that the chord is feasible."""
        mass, variance = chord(joined)
        return s * variance >= mass * n * n * _sum(inverse, length, 2)

    joined = _last_true(joins, more)
    mass, variance = chord(joined)
    return (more - joined) * alone + _quotient(mass * mass, variance)


def _last_true(holds, most: int) -> int:  # type: ignore[no-untyped-def]
    """The largest k <= most up to which `holds`, 0 if it fails at 1."""
    low, high = 0, 1
    while high <= most and holds(high):
        low, high = high, 2 * high
    high = min(high, most + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _variance(run: PeriodicRun, ahead: int, steps: int) -> float:
    """Of `steps` steps that are followed by `ahead` more."""
    return (run.noise * _power(run, ahead)) ** 2 * _sum(run, steps, 2) if steps else 0.0


def _power(run: PeriodicRun, exponent: int) -> float:
    """c^exponent."""
    if exponent == 0 or run.log_c == 0.0:
        return 1.0
    return math.exp(min(exponent * run.log_c, 709.0))


def _sum(run: PeriodicRun, terms: int, stride: int) -> float:
    """1 + c^stride + .. + c^(stride (terms - 1))."""
    if terms <= 1 or math.isinf(run.log_c):
        return float(min(terms, 1))
    rate = stride * run.log_c
    if rate == 0.0:
        return float(terms)
    return math.expm1(min(terms * rate, 709.0)) / math.expm1(rate)


def _quotient(top: float, bottom: float) -> float:
    return top / bottom if bottom > 0.0 else math.inf
