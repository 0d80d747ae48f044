"""The last iterate of runs whose batch order is fixed, and whose steps do not expand.

`worst_schedule` shows the shifts behind the bound, step by step, for the most exposed position.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from lastiterate._numerics.powers import log_of, logs_of_powers, sums_of_powers, ulps_off
from lastiterate._numerics.rounding import (
    Array,
    IntArray,
    at_least,
    down,
    suffix_products,
    ulps,
    up,
)
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import (
    BLUE,
    Bound,
    Certainty,
    Citation,
    LineStyle,
    with_single_examples,
)
from lastiterate.bounds.fixed_order.nonconvex import NON_CONVEX, moduli
from lastiterate.errors import InvalidParameter, NoBoundApplies
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.run.batch_rules.base import Resampling, rules
from lastiterate.run.training_run import Ball, TrainingRun
from lastiterate.shifts.optimal_shifts import Shifts, concave_shifts, optimal_shifts, pattern_mus
from lastiterate.shifts.periodic import PeriodicRun, periodic_mu

MOST_WRITTEN_OUT = 20_000  # epochs written out one by one
_BLOCKS_PER_FOLD = 500  # of earlier epochs, while their age grows by a factor of e
_MAX_SINGLE_POSITIONS = 500  # positions solved one by one; as many groups of the others
_MAX_SCHEDULE_STEPS = 500_000
_MAX_CONCAVE_STEPS = 20_000
SHIFTED_INTERPOLATION = Citation(
    "Bok, Su and Altschuler",
    2024,
    "Shifted interpolation for differential privacy",
    "Theorem C.3 with optimal shifts",
)


def convex(run: TrainingRun) -> GaussianProfile:
    r"""mu-GDP of the last iterate, from the best shifts of contracting steps.

    **Bound.** The least :math:`\mu` of `optimal_shifts` for
    :math:`c_k = \max(|1 - \eta_k m|, |1 - \eta_k M|)`, :math:`s_k = \eta_k L/b` where the
    differing example takes part, noise :math:`\eta_k\sigma_k`, and one more step without
    contraction for the noise on release.  On a bounded domain the distance is capped by its
    diameter, and shifts begin where the cap last binds.  Never above composition.

    **Holds when.** every loss is convex and M-smooth, no step exceeds 2/M, gradients are not
    changed by norm clipping, batches have a fixed size, and only the last iterate (and the
    order) is published.  On a bounded domain every iterate is projected onto a closed convex set of
    the stated diameter.  The most exposed position of the most exposing order is charged: batches
    drawn anew every step as if the example were always in.

    **Tight.** Equal to the exact privacy of a quadratic for full batches with
    :math:`\eta \le 2/(M+m)`; equal to the source's Theorems 4.2 and 4.5.  On a bounded domain
    tight to a constant factor (Theorem C.16); it contains Theorems 4.3, 4.6 and C.7, without their
    lower limits on the number of steps.

    **Persons.** Plans for several examples are superposed, so that mu is at most the sum of
    theirs: k examples cost most in one batch, k times one.

    **Source.** Bok, Su and Altschuler 2024, Theorem C.3.

    **Computed as** a closed form for constant schedules, else isotonic regression; on a bounded
    domain the least over start times; rounded up.
    """
    free = convex_without_domain(run)
    if not isinstance(run.domain, Ball):
        return free
    return min(free, _worst(run, quantities.diameter(run)), key=lambda profile: profile.mu)


def convex_without_domain(run: TrainingRun) -> GaussianProfile:
    """mu-GDP of the last iterate, whatever its domain."""
    return _worst(run, np.inf)


def convex_for_persons(run: TrainingRun) -> GaussianProfile:
    """mu-GDP for all examples of a person, as if all were in one batch.

    On a bounded domain that is the worst only where one position has the most sensitivity after any
    step, as seen from the end; elsewhere k examples cost k times one.
    """
    rule = run.batches
    one_position = (
        rule.resampling in (Resampling.EACH_EPOCH, Resampling.EACH_STEP)
        or quantities.position_count(run) == 1
    )
    regular = run.is_constant and rule.period is not None
    if one_position or regular or not isinstance(run.domain, Ball):
        return convex(run)
    alone = convex(with_single_examples(run))
    return GaussianProfile(at_least(run.examples_per_person * alone.mu, ulps=2))


def convex_by_position(run: TrainingRun) -> Sequence[GaussianProfile]:
    """The guarantee of each position in the order of the batches."""
    free = _by_position(run, np.inf)
    if not isinstance(run.domain, Ball):
        return free
    held = _by_position(run, quantities.diameter(run))
    return [min(pair, key=lambda profile: profile.mu) for pair in zip(free, held, strict=True)]


def _worst(run: TrainingRun, diameter: float) -> GaussianProfile:
    """The guarantee of the most exposed position of the most exposing order."""
    if run.batches.resampling is Resampling.EACH_EPOCH:
        return quantities.gaussian(latest_order_mu(run, diameter, epochs_of(run)))
    if run.is_constant and run.batches.period is not None:
        # Steps after the last participation only post-process (and contract what is left for
        # the release noise), and participations do not become fewer as it moves later:
        # the example seen in the very last step is the most exposed.
        return quantities.gaussian(_periodic_mu(run, diameter, run.batches.period, tail=0))
    return max(_by_position(run, diameter), key=lambda profile: profile.mu)


def _by_position(run: TrainingRun, diameter: float) -> Sequence[GaussianProfile]:
    """The guarantee of each position; of one that stands for all where orders change."""
    rule = run.batches
    if rule.resampling is Resampling.EACH_EPOCH:
        return [_worst(run, diameter)]
    if run.is_constant and rule.period is not None:
        tails = [
            (run.steps - 1 - position) % rule.period
            for position in range(quantities.position_count(run))
        ]
        mus = [_periodic_mu(run, diameter, rule.period, tail=tail) for tail in tails]
        return [quantities.gaussian(mu) for mu in mus]
    if run.is_constant:
        mus = [rolled_up_mu(run, seen + 1, diameter) for seen in quantities.patterns(run)]
        return [quantities.gaussian(mu) for mu in mus]
    contraction, added, noise = written_out(run)
    mus = pattern_mus(
        contraction=contraction,
        sensitivity=added,
        noise=noise,
        patterns=quantities.patterns(run),
        diameter=diameter,
        period=rule.period,
    )
    return [quantities.gaussian(mu) for mu in mus]


def _periodic_mu(run: TrainingRun, diameter: float, period: int, *, tail: int) -> float:
    """The mu of a constant schedule, `tail` steps after the last participation."""
    gap, added, noise = (float(x[0]) for x in _constants(run))
    periodic = PeriodicRun(
        gap=gap,
        sensitivity=added,
        noise=noise,
        period=period,
        participations=-(-(run.steps - tail) // period),
        tail=tail,
        release_noise=quantities.release_noise(run),
    )
    return periodic_mu(periodic, diameter=diameter)


def _constants(run: TrainingRun) -> tuple[Array, Array, Array]:
    """The gaps, sensitivities and noises: one number each, or one for every step."""
    return quantities.gaps(run), quantities.sensitivities(run), quantities.noises(run)


def rolled_up_mu(
    run: TrainingRun, seen: IntArray, diameter: float, *, times: float | Array = 1.0
) -> float:
    """The mu of a constant schedule with participations in the steps `seen`, from 1.

    The idle steps from each up to the next are rolled into a single step; `times` is how many
    participations there are in each.
    """
    if not seen.size:
        return 0.0
    gap, added, noise = (float(x[0]) for x in _constants(run))
    idle = np.diff(seen, append=run.steps + 1) - 1
    # Sums of c^2j over the idle steps, and c to their number, rounded towards a larger mu.
    log_kept = logs_of_powers(log_of(gap), idle)
    spread = sums_of_powers(2 * log_of(gap), idle)
    off = ulps(ulps_off(log_kept))
    contraction = np.ones(2 * seen.size + 1)
    contraction[0:-1:2] = quantities.contractions(np.array([gap]))
    contraction[1:-1:2] = np.minimum(up(np.exp(log_kept), off), 1.0)
    sensitivity = np.zeros(contraction.size)
    sensitivity[0:-1:2] = added * np.asarray(times)
    noises = np.full(contraction.size, noise)
    noises[1:-1:2] = down(noise * np.sqrt(spread), off)
    noises[-1] = quantities.release_noise(run)
    return optimal_shifts(
        contraction=contraction, sensitivity=sensitivity, noise=noises, diameter=diameter
    ).mu


def written_out(run: TrainingRun) -> tuple[Array, Array, Array]:
    """The contraction, sensitivity and noise of every step, and of the release as one more."""
    gap, added, noise = (quantities.every_step(x, run.steps) for x in _constants(run))
    return (
        np.append(quantities.contractions(gap), 1.0),
        np.append(added, 0.0),
        np.append(noise, quantities.release_noise(run)),
    )


def epochs_of(run: TrainingRun) -> list[range]:
    """The steps, counted from 1, of each of the last epochs; the very last may be cut short."""
    length = run.batches.batches_per_epoch
    last = (run.steps - 1) // length
    first = max(0, last + 1 - MOST_WRITTEN_OUT)
    starts = range(first * length, run.steps, length)
    return [range(start + 1, min(start + length, run.steps) + 1) for start in starts]


def latest_order_mu(
    run: TrainingRun, diameter: float, epochs: Sequence[range], *, last: int | None = None
) -> float:
    """The mu of the latest possible order, for an order that is drawn anew every epoch.

    A participation that is moved later within its epoch, or made larger, leaves a larger
    distance after every step, so it never lowers mu: `epochs` have their largest sensitivities, as
    seen from their ends, at their ends.  `last` is a step in which the example truly takes part
    after these.  Earlier epochs are charged at the ends of blocks of epochs; in a schedule, as a
    distance at the start that no step has shrunk.
    """
    ends = [epoch[-1] for epoch in epochs] + ([last] if last else [])
    before = (epochs[0][0] - 1 if epochs else (last or 1) - 1) // run.batches.batches_per_epoch
    if run.is_constant:
        earlier, counts = blocks_of(before, run.batches.batches_per_epoch)
        times = np.append(counts, np.ones(len(ends)))
        return rolled_up_mu(run, np.append(earlier, ends).astype(np.intp), diameter, times=times)
    contraction, added, noise = written_out(run)
    pattern = np.zeros(added.size)
    for epoch in epochs:
        steps = slice(epoch[0] - 1, epoch[-1])
        pattern[epoch[-1] - 1] = np.max(suffix_products(contraction[steps]) * added[steps])
    if last:
        pattern[last - 1] = added[last - 1]
    # Products over an epoch are off by a rounding for each step.
    pattern = up(pattern, ulps(4 * run.batches.batches_per_epoch))
    first = epochs[0][0] - 1 if epochs else 0
    return optimal_shifts(
        contraction=contraction[first:],
        sensitivity=pattern[first:],
        noise=noise[first:],
        start=before * float(added.max()),
        diameter=diameter,
    ).mu


def blocks_of(epochs: int, length: int) -> tuple[IntArray, Array]:
    """The last steps, from 1, of blocks of epochs, the older the longer, and their sizes."""
    if not epochs:
        return np.zeros(0, dtype=np.int64), np.zeros(0)
    spread = math.log1p(epochs / MOST_WRITTEN_OUT)
    count = math.ceil(spread * _BLOCKS_PER_FOLD)
    ages = np.expm1(np.linspace(0.0, spread, count + 1)) * MOST_WRITTEN_OUT
    edges = np.unique(epochs - np.minimum(np.rint(ages), epochs).astype(np.int64))
    edges[0] = 0
    return edges[1:] * length, np.diff(edges).astype(np.float64)


def grouped_positions(
    run: TrainingRun, diameter: float, period: int
) -> tuple[list[float], list[int]]:
    """mu and the number of positions of each of some groups, at the worst of the group.

    For constant schedules and participations at equal distances only: there a position that is seen
    later is never less exposed.
    """
    count = quantities.position_count(run)
    tails = sorted((run.steps - 1 - position) % period for position in range(count))
    firsts = group_edges(count)
    mus = [_periodic_mu(run, diameter, period, tail=tails[first]) for first in firsts[:-1]]
    return [quantities.widened(mu) for mu in mus], [b - a for a, b in pairwise(firsts)]


def group_edges(count: int) -> list[int]:
    """The edges of groups of `count` positions: the most exposed come first, one by one."""
    alone = min(count, _MAX_SINGLE_POSITIONS)
    ratio = count / max(alone, 1)
    rest = (
        alone * ratio ** np.linspace(0.0, 1.0, _MAX_SINGLE_POSITIONS)
        if ratio > 1.0
        else np.empty(0)
    )
    edges = np.concatenate([np.arange(alone + 1), rest.astype(np.intp), [count]])
    return [int(edge) for edge in np.unique(edges)]


CONVEX_FIXED_ORDER = Bound(
    id="fixed-order/convex",
    gives="a Gaussian guarantee for the last iterate, which converges where losses curve or the "
    "domain is bounded",
    covers=rules(*Resampling, exact_size=True),
    needs=(conditions.ONLY_LAST_ITERATE, *conditions.CONTRACTING),
    certainty=Certainty.UPPER,
    source=SHIFTED_INTERPOLATION,
    evaluate=convex,
    for_persons=convex_for_persons,
    by_position=convex_by_position,
    charges="{counts} {fading}",
    line_style=LineStyle(BLUE),
    given_order=True,
)


@dataclass(frozen=True)
class ShiftSchedule:
    """`shifts` in units of the largest step size; the release is one more step.

    `participations` are the steps (from 0) that see the example and `sensitivities` the distance
    that each of them adds; `noise` is that of every step, and `diameter` the cap, all in the same
    units.
    """

    bound: str
    shifts: Shifts
    participations: IntArray
    sensitivities: Array
    noise: Array
    diameter: float


def worst_schedule(run: TrainingRun) -> ShiftSchedule:
    """The optimal shifts for the most exposed position, all steps written out.

    For batches that are drawn in secret this is the worst order, not their average.  It is that of
    a single example, however many a person has.
    """
    run = with_single_examples(run)
    diameter = quantities.diameter(run)
    unmet = {bound.id: bound.unmet(run) for bound in (CONVEX_FIXED_ORDER, NON_CONVEX)}
    covering = [bound for bound in (CONVEX_FIXED_ORDER, NON_CONVEX) if not unmet[bound.id]]
    if not covering:
        raise NoBoundApplies(run, unmet)
    bound = covering[0]
    most = _MAX_SCHEDULE_STEPS if bound is CONVEX_FIXED_ORDER else _MAX_CONCAVE_STEPS
    if run.steps > most:
        raise InvalidParameter("steps", run.steps, must_be=f"at most {most} to be written out")
    participations = _most_exposed(run)
    if bound is CONVEX_FIXED_ORDER:
        contraction, sensitivity_at, noise = written_out(run)
        sensitivity = np.zeros(sensitivity_at.size)
        sensitivity[participations] = sensitivity_at[participations]
        shifts = optimal_shifts(
            contraction=contraction, sensitivity=sensitivity, noise=noise, diameter=diameter
        )
    else:
        noise = np.append(
            quantities.every_step(quantities.noises(run), run.steps), quantities.release_noise(run)
        )
        shifts = concave_shifts(moduli(run, participations, run.steps), noise, diameter=diameter)
    sensitivities = quantities.every_step(quantities.sensitivities(run), run.steps)[participations]
    return ShiftSchedule(bound.id, shifts, participations, sensitivities, noise, diameter)


def _most_exposed(run: TrainingRun) -> IntArray:
    """The steps, counted from 0, that see the example of the worst position."""
    rule = run.batches
    if rule.resampling is Resampling.EACH_EPOCH:
        if not run.is_constant:
            must_be = "constant, as noise_std, where every epoch has an order of its own"
            raise InvalidParameter("step_size", "a schedule", must_be=must_be)
        if CONVEX_FIXED_ORDER.unmet(run):
            must_be = "of one order for all epochs, where steps may expand"
            raise InvalidParameter("batches", rule, must_be=must_be)
        return np.array([epoch[-1] - 1 for epoch in epochs_of(run)], dtype=np.intp)
    count = quantities.position_count(run)
    if count == 1 or (run.is_constant and rule.period is not None):
        return rule.participations((run.steps - 1) % count, run.steps)
    by_position = (NON_CONVEX if CONVEX_FIXED_ORDER.unmet(run) else CONVEX_FIXED_ORDER).by_position
    assert by_position is not None
    worst = int(np.argmax([profile.gdp() for profile in by_position(run)]))
    return list(quantities.patterns(run))[worst]
