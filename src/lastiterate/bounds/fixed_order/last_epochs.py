"""Positions in the last epochs of a run that is shuffled every epoch, and what each choice costs.

Positions in the last epochs are told apart; what came before is replaced by the diameter of the
domain, by the farthest that two runs can have come, or by composition.  Positions may be grouped:
a group is charged at its last step, with what a participation in any of its steps has grown to by
then (`late_charge`): where steps expand, an earlier participation may be worse than a later one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS, TINY, Array, IntArray, ulps, up
from lastiterate.bounds import quantities
from lastiterate.bounds.fixed_order.position_groups import PositionGroup, Window, last_epochs
from lastiterate.bounds.fixed_order.step_moduli import late, moduli
from lastiterate.run.training_run import TrainingRun
from lastiterate.shifts.late_charge import StepValues, late_charges
from lastiterate.shifts.minorant import LEAST_MU
from lastiterate.shifts.optimal_shifts import Moduli, concave_shifts
from lastiterate.shifts.patterns import least_energies

_SIZES = ((4_096, 64), (256, 1_024))  # choices, and steps of a window
_EVERY_STEP = 128  # steps that are all columns
_LARGEST_UNIT = 1e100
_LEAST_DISTANCES = (1e-6, 1e-13)  # at which tangents are taken, in sensitivities
_FIRST_CHOICES, _MORE_CHOICES = 5, 6  # whose plans tangents are taken at
_WALKED = 20_000  # earlier steps of which the distance is followed


def windows(run: TrainingRun) -> list[LastEpochs]:
    """Few epochs with many choices; then, where these are too few, many with few choices."""
    found = []
    for choices, steps in _SIZES:
        found.append(LastEpochs(run, last_epochs(run, choices, steps)))
        if found[-1].is_long_enough:
            break
    return found


@dataclass(frozen=True)
class LastEpochs:
    """The shift problems of all choices of positions in a window."""

    run: TrainingRun
    window: Window

    @cached_property
    def weights(self) -> Array:
        """The probability of each choice."""
        return self.window.weights(self._choices)

    @cached_property
    def mus(self) -> Array:
        """mu of each choice, by the best of some tangents, rounded up."""
        energies = np.minimum(self._from_before, self._from_cap)
        return np.asarray(up(np.maximum(np.sqrt(energies), LEAST_MU), ulps(quantities.WIDENING)))

    @property
    def is_long_enough(self) -> bool:
        """Whether no choice is best hidden from the window's beginning on."""
        return not self.window.epochs_before or bool(np.all(self._from_cap < self._from_before))

    @cached_property
    def _choices(self) -> IntArray:
        return self.window.choices()

    @property
    def _from_before(self) -> Array:
        return self._energies[0]

    @property
    def _from_cap(self) -> Array:
        return self._energies[1]

    @cached_property
    def _energies(self) -> tuple[Array, Array]:
        """The least energies of shifts from the window's beginning on, and from a later cap.

        Tangents are taken at the plans of some choices, then of those that still cost most.
        """
        before = capped = np.full(len(self._choices), np.inf)
        slopes: list[Array] = []
        rows = np.unique(np.linspace(0, len(self._choices) - 1, _FIRST_CHOICES).astype(int))
        waiting: list[int] = rows.tolist()
        solved: set[int] = set()
        while waiting and len(solved) < _FIRST_CHOICES + _MORE_CHOICES:
            row = waiting.pop(0)
            solved.add(row)
            path = self._path(row)
            for least in _LEAST_DISTANCES:
                distances = np.maximum(path, least * max(*self._sensitivities, TINY))
                slope, offset = self._idle.tangent(distances)
                if any(np.array_equal(slope, other) for other in slopes):
                    continue
                slopes.append(slope)
                found = self._energies_for(distances, slope, offset)
                before, capped = np.minimum(before, found[0]), np.minimum(capped, found[1])
            if not waiting and len(slopes) > 1:
                worst = int(np.argmax(np.minimum(before, capped)))
                waiting = [worst] if worst not in solved else []
        return before, capped

    @cached_property
    def _idle(self) -> Moduli:
        return moduli(self.run, np.empty(0, dtype=np.intp), self.window.steps)

    @cached_property
    def _taking_part(self) -> Moduli:
        return moduli(self.run, np.arange(self.window.steps), self.window.steps)

    @cached_property
    def _noise(self) -> Array:
        noise = late(quantities.noises(self.run), self.window.steps)
        return np.append(noise, quantities.release_noise(self.run))

    @cached_property
    def _sensitivities(self) -> list[float]:
        every: list[float] = late(quantities.sensitivities(self.run), self.window.steps).tolist()
        return every

    @cached_property
    def _cap(self) -> float:
        return quantities.diameter(self.run)

    @cached_property
    def _start(self) -> float:
        """The farthest that two runs can be apart when the window begins."""
        before = self.run.steps - self.window.steps
        if not before:
            return 0.0
        return min(self._cap, _farthest(self.run, before, self._cap))

    @cached_property
    def _composed(self) -> float:
        """The energy of composition for all epochs before the window."""
        before, length = self.window.epochs_before, self.run.batches.batches_per_epoch
        if not before:
            return 0.0
        steps = before * length
        with np.errstate(divide="ignore"):
            ratios = quantities.sensitivities(self.run) / quantities.noises(self.run)
        if ratios.size == 1:
            return up(before * float(ratios[0]) ** 2, ulps(8))
        worst = ratios[:steps].reshape(before, length).max(axis=1)
        return up(float(np.square(worst).sum()), MILLIONS_OF_ROUNDINGS)

    def _path(self, row: int) -> Array:
        """Distances at which to take tangents, step by step: those of the plan for a choice."""
        chosen = zip(self.window.epochs, self._choices[row], strict=True)
        groups = [epoch[number] for epoch, number in chosen]
        seen = [group.steps[-1] for group in groups if group.steps is not None]
        plan = concave_shifts(
            moduli(self.run, np.array(seen, dtype=np.intp), self.window.steps),
            self._noise,
            start=self._start if math.isfinite(self._start) else 0.0,
            diameter=self._cap,
        )
        return np.nan_to_num(plan.z[:-1], nan=0.0, posinf=1e9)

    def _energies_for(self, distances: Array, slope: Array, offset: Array) -> tuple[Array, Array]:
        """The least energies of all choices, for these tangents."""
        count, choices = self.window.steps + 1, self._choices
        slopes = np.repeat(slope[None, :], len(choices), axis=0)
        sensitivities = np.repeat(offset[None, :], len(choices), axis=0)
        own_slope, own_offset = self._taking_part.tangent(distances)
        columns, composed = {0, count - 1}, np.full(slopes.shape, self._composed)
        for k, groups in enumerate(self.window.epochs):
            for number, group in enumerate(groups):
                if group.steps is None:
                    continue
                at, rows = group.steps[-1], np.flatnonzero(choices[:, k] == number)
                columns |= {at, at + 1}
                # Where a group has begun, the participation may be over.
                composed[rows, group.steps[0] + 1 :] += self._at_once(group.steps)
                if group.alone:
                    slopes[rows, at], sensitivities[rows, at] = own_slope[at], own_offset[at]
                else:
                    sensitivities[rows, at] += self._charge(group)
        starts = np.arange(count) if count <= _EVERY_STEP else np.array(sorted(columns))
        return self._solved(slopes, sensitivities, composed, starts)

    def _charge(self, group: PositionGroup) -> float:
        assert group.steps is not None
        return late_charges(self._idle, self._sensitivities, group.steps)[-1]

    def _at_once(self, steps: range) -> float:
        """The most energy of a participation in one of these steps that this step hides."""
        with np.errstate(divide="ignore"):
            ratios = self._sensitivities[steps.start : steps.stop] / self._noise[steps]
        return float(up(np.max(np.square(ratios)), ulps(8)))

    def _solved(
        self, slopes: Array, sensitivities: Array, composed: Array, columns: IntArray
    ) -> tuple[Array, Array]:
        """Columns begin at some steps: sensitivities between two are removed from the later on."""
        units = np.ones_like(slopes)
        with np.errstate(over="ignore"):  # what is out of range is refused below
            units[:, :-1] = np.cumprod(slopes[:, :0:-1], axis=1)[:, ::-1]
        top = units.max(axis=1, keepdims=True)
        if not (top.max() < _LARGEST_UNIT and units.min() > 1.0 / _LARGEST_UNIT):
            return (np.full(len(slopes), np.inf),) * 2
        masses, variances = units * sensitivities, np.square(units * self._noise)
        masses = np.add.reduceat(masses, np.append(0, columns[:-1] + 1), axis=1)
        variances = np.add.reduceat(variances, columns, axis=1)
        here = slopes[:, columns] * units[:, columns]
        finite = math.isfinite(self._cap)
        start = self._start if math.isfinite(self._start) else 0.0
        found = least_energies(
            masses,
            variances,
            start * here[:, 0],
            entries=self._cap * here if finite else None,
            composed=composed[:, columns],
        )
        begun = found.from_start if math.isfinite(self._start) else np.full(len(slopes), np.inf)
        before = np.minimum(begun, found.composed)
        slack = ulps(32 * slopes.shape[1] + 256)
        return up(before, slack), up(found.from_cap, slack)


def _farthest(run: TrainingRun, steps: int, cap: float) -> float:
    """How far apart two runs can be after so many steps, which are whole epochs.

    An epoch adds at most what a participation in any of its steps has grown to at its end.
    """
    if steps > _WALKED:
        return math.inf
    length = run.batches.batches_per_epoch
    idle = moduli(run, np.empty(0, dtype=np.intp), run.steps)
    values, sensitivities = (
        StepValues(idle),
        late(quantities.sensitivities(run), run.steps).tolist(),
    )
    distance, charge = 0.0, 0.0
    for begin in range(0, steps, length):
        epoch = range(begin, begin + length)
        if not begin or not run.is_constant:
            charge = late_charges(idle, sensitivities, epoch)[-1]
        for step in epoch:
            distance = values(step, distance)
        distance = up(distance + charge, ulps(4))
        if not distance < cap:
            return math.inf
    return distance
