"""The shifts behind a fixed-order bound, step by step, for the most exposed position."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lastiterate._numerics.rounding import Array, IntArray
from lastiterate.bounds import quantities
from lastiterate.bounds.bound import with_single_examples
from lastiterate.bounds.fixed_order.convex import CONVEX_FIXED_ORDER, epochs_of, written_out
from lastiterate.bounds.fixed_order.nonconvex import NON_CONVEX
from lastiterate.bounds.fixed_order.step_moduli import moduli
from lastiterate.errors import InvalidParameter, NoBoundApplies
from lastiterate.run.batch_rules.base import Resampling
from lastiterate.run.training_run import TrainingRun
from lastiterate.shifts.optimal_shifts import Shifts, concave_shifts, optimal_shifts

_MOST_STEPS = 500_000
_MOST_CONCAVE = 20_000


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
    most = _MOST_STEPS if bound is CONVEX_FIXED_ORDER else _MOST_CONCAVE
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
