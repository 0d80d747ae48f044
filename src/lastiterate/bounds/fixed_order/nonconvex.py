r"""The last iterate of runs whose batch order is fixed, and whose steps may expand.

**Orders of every epoch.** Positions in the last epochs of a run that is shuffled every epoch are
told apart; what came before is replaced by the diameter of the domain, by the farthest that two
runs can have come, or by composition.  Positions may be grouped: a group is charged at its last
step, with what a participation in any of its steps has grown to by then.

**Late charges.** Let :math:`w_k` be the moduli of steps in which an example does not take part,
concave and non-decreasing, and let it take part once, in step i, which adds s_i.  With

.. math:: d_i = s_i, \qquad d_k = w_k(d_{k-1}) - w_k(0)

every plan of shifts for :math:`w_j + d_j` in a later step j is one for the participation in step i:
by concavity :math:`w_k(z + d) \le w_k(z) + w_k(d) - w_k(0)`, so that the distance exceeds the
plan's by at most :math:`d_k` until step j, which charges it.  Where steps expand an early
participation has grown by then; charging it late as it was would be too little.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from lastiterate._numerics.rounding import (
    MILLIONS_OF_ROUNDINGS,
    TINY,
    Array,
    IntArray,
    distance_of_product_to_one,
    down,
    ulps,
    up,
)
from lastiterate.bounds import conditions, quantities
from lastiterate.bounds.bound import PURPLE, Bound, Certainty, Citation, Hypothesis, LineStyle
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.run.batch_rules.base import Resampling, rules
from lastiterate.run.training_run import TrainingRun
from lastiterate.shifts.minorant import LEAST_MU
from lastiterate.shifts.optimal_shifts import Branch, Moduli, concave_shifts, pattern_mus
from lastiterate.shifts.patterns import least_energies
from lastiterate.shifts.periodic import PeriodicRun, periodic_mu

ROUNDINGS = ulps(32)
_MAX_WRITTEN_STEPS = 200_000  # written out one by one
_FIRST_WINDOW, _MAX_WORK = 2_048, 500_000  # positions times steps solved with all moduli
_LEAST_GAIN = 1e-9  # for which a longer window is not worth its time
_WINDOW_SIZES = ((4_096, 64), (256, 1_024))  # choices, and steps of a window
_MAX_COLUMN_STEPS = 128  # steps that are all columns
_LARGEST_UNIT = 1e100
_LEAST_DISTANCES = (1e-6, 1e-13)  # at which tangents are taken, in sensitivities
_FIRST_CHOICES, _MORE_CHOICES = 5, 6  # whose plans tangents are taken at
_MAX_FOLLOWED_STEPS = 20_000  # earlier steps of which the distance is followed


def non_convex(run: TrainingRun) -> GaussianProfile:
    r"""mu-GDP of the last iterate, from the best shifts under concave moduli.

    **Bound.** The least :math:`\mu` found for moduli that need no convexity.  With step size
    :math:`\eta`, regulariser :math:`\lambda`, other smoothness :math:`M`, gradients of norm at
    most C, and r = |1 - eta lambda|, a step drives two points at distance z at most this far
    apart (whichever of it is known, and the least):

    =====================================  ==================================================
    smooth                                 :math:`r z + \eta M z`
    Hoelder gradient (H, order)            :math:`r z + \eta H z^{order}`
    bounded gradients                      :math:`r z + 2 \eta C`
    convex, not clipped                    :math:`\max(|1 - \eta m|, |1 - \eta M|)\, z`
    convex, norm-clipped, eta M <= 3 r     :math:`r z / \sqrt{1 - \eta M / (4 r)}`
    convex, norm-clipped, longer steps     :math:`(\eta M - r) z`
    =====================================  ==================================================

    plus :math:`\eta L/b` where the differing example takes part; or, in such a step, the
    other b - 1 examples as above and :math:`r z + 2\eta C` for this one, in proportion.

    **Holds when.** only the last iterate (and the order) is published, and one of smoothness,
    Hoelder constants or a gradient bound is known.  Batches drawn anew every step are charged as
    if the example were always in, those shuffled every epoch at the worst of all positions.
    With `Ball` the distance is capped by the diameter.

    **Tight.** A local optimum of the shift problem; never above composition by more than
    rounding where the linear optimum is exact.

    **Source.** The moduli are those of Chien and Li 2024, Lemmas 3.4, 3.5, 3.8-3.10 and A.2;
    that of clipped convex steps follows from co-coercivity.  The bound is Bok, Su and
    Altschuler 2024, Theorem C.3, whose proof uses no other property of a step.

    **Computed as** tangents and isotonic regression; rounded up.
    """
    if run.batches.resampling is Resampling.EACH_EPOCH:
        return GaussianProfile(_worst_order_mu(run))
    constant_noise = run.is_constant and np.max(run.noise_std) > 0.0
    if constant_noise and _work_for_positions(run, quantities.position_count(run)) > _MAX_WORK:
        # Noise on release may be left unused, and then only the last position is to be solved.
        run = run.replace(release_noise_std=0.0)
    mus = _position_mus(run, _most_exposed_positions(run))
    return quantities.gaussian(max(mus))


def non_convex_by_position(run: TrainingRun) -> Sequence[GaussianProfile]:
    """The guarantee of each position in the order of the batches."""
    if run.batches.resampling is Resampling.EACH_EPOCH:
        return [non_convex(run)]
    return [
        quantities.gaussian(mu) for mu in _position_mus(run, range(quantities.position_count(run)))
    ]


def _worst_order_mu(run: TrainingRun) -> float:
    """The largest mu of any positions, where every epoch has an order of its own."""
    return min(float(window.mus.max()) for window in windows(run))


def _most_exposed_positions(run: TrainingRun) -> Sequence[int]:
    """Positions among which the most exposed is."""
    count = quantities.position_count(run)
    if not run.is_constant or run.batches.period is None or run.release_noise_std > 0.0:
        return range(count)
    # Without release noise, what follows the last participation is post-processing, so
    # the position of the very last step is the most exposed.
    return [(run.steps - 1) % count]


def _work_for_positions(run: TrainingRun, positions: int) -> int:
    return positions * min(run.steps, _MAX_WRITTEN_STEPS)


def _position_mus(run: TrainingRun, chosen: Sequence[int]) -> list[float]:
    """The least mu of each of these positions, by all methods that are quick enough."""
    ways = []
    if run.is_constant:
        ways.append([_closed_form_mu(run, position) for position in chosen])
    if _work_for_positions(run, len(chosen)) <= _MAX_WORK:
        ways.append(_written_out_mus(run, chosen))
    elif not run.is_constant or run.batches.period is None:
        ways.append(_linear_mus(run, chosen))
    return [min(mus) for mus in zip(*ways, strict=True)]


def _written_out_mus(run: TrainingRun, chosen: Sequence[int]) -> list[float]:
    """The mus from the last steps, as many as still help; inf if there are too many."""
    too_long = run.steps > _MAX_WRITTEN_STEPS
    if too_long and not (run.is_constant and np.isfinite(quantities.diameter(run))):
        return [np.inf] * len(chosen)
    if not np.isfinite(quantities.diameter(run)):
        return _window_mus(run, chosen, run.steps)
    window = min(run.steps, _FIRST_WINDOW)
    mus = _window_mus(run, chosen, window)
    while window < min(run.steps, _MAX_WRITTEN_STEPS):
        window = min(4 * window, run.steps, _MAX_WRITTEN_STEPS)
        before, mus = mus, list(map(min, mus, _window_mus(run, chosen, window)))
        if all(now >= down(then, _LEAST_GAIN) for now, then in zip(mus, before, strict=True)):
            break
    return mus


def _window_mus(run: TrainingRun, chosen: Sequence[int], window: int) -> list[float]:
    """The mus from the last `window` steps, which start at the diameter unless they are all."""
    cap = quantities.diameter(run)
    wanted = set(chosen)
    seen = [pattern for i, pattern in enumerate(_late_patterns(run, window)) if i in wanted]
    noise = np.append(late(quantities.noises(run), window), quantities.release_noise(run))
    start = cap if window < run.steps else 0.0
    return [
        concave_shifts(moduli(run, pattern, window), noise, start=start, diameter=cap).mu
        for pattern in seen
    ]


def _late_patterns(run: TrainingRun, window: int) -> list[IntArray]:
    """Participations among the last `window` steps, counted from the first of these."""
    first, period = run.steps - window, run.batches.period
    if period is None or first == 0:
        return [pattern[pattern >= first] - first for pattern in quantities.patterns(run)]
    return [
        np.arange((i - first) % period, window, period)
        for i in range(quantities.position_count(run))
    ]


def _linear_mus(run: TrainingRun, chosen: Sequence[int]) -> list[float]:
    """mu of all chosen positions of a schedule, by the linear modulus alone; inf without one."""
    rise = linear_rise(run)
    if rise is None:
        return [np.inf] * len(chosen)
    patterns = list(quantities.patterns(run))
    noise = quantities.every_step(quantities.noises(run), run.steps)
    contraction = up(kept(run) + rise, ROUNDINGS)
    return pattern_mus(
        contraction=np.append(quantities.every_step(contraction, run.steps), 1.0),
        sensitivity=np.append(quantities.every_step(quantities.sensitivities(run), run.steps), 0.0),
        noise=np.append(noise, quantities.release_noise(run)),
        patterns=[patterns[i] for i in chosen],
        diameter=quantities.diameter(run),
    )


def _closed_form_mu(run: TrainingRun, position: int) -> float:
    """The mu of a constant schedule with a known Lipschitz constant, without a cap."""
    rise = linear_rise(run)
    period = run.batches.period
    if rise is None or period is None:
        return np.inf
    tail = (run.steps - 1 - position) % period
    # 1 - |1 - eta lambda|, without cancelling where eta lambda is small.
    pull = float(quantities.step_sizes(run)[0]) * run.loss.regulariser
    shrinkage = down(pull, ulps(4)) if pull <= 0.5 else 1.0 - float(kept(run)[0])
    gap = shrinkage - up(float(rise[0]), ROUNDINGS) - (ulps(1) if pull > 0.5 else 0.0)
    periodic = PeriodicRun(
        gap=min(gap, 1.0),
        sensitivity=float(quantities.sensitivities(run)[0]),
        noise=float(quantities.noises(run)[0]),
        period=period,
        participations=-(-(run.steps - tail) // period),
        tail=tail,
        release_noise=quantities.release_noise(run),
    )
    return periodic_mu(periodic)


def late(values: Array, window: int) -> Array:
    """The last `window` of values that are constant or written out."""
    return quantities.every_step(values if values.size == 1 else values[-window:], window)


def moduli(run: TrainingRun, pattern: IntArray, window: int) -> Moduli:
    """The last `window` steps, then the release, which keeps distances."""
    relative = late(quantities.relative_step_sizes(run), window)
    taking_part = np.zeros(window, dtype=bool)
    taking_part[pattern] = True
    sensitivity = np.where(taking_part, late(quantities.sensitivities(run), window), 0.0)
    keep = late(kept(run), window)
    known = [(late(rise, window), order) for rise, order in _known_rises(run)]
    branches = [(keep, rise, sensitivity, order) for rise, order in known]
    bound = run.gradient_bound
    if bound is not None:
        size = run.batches.batch_size
        # Below, a batch with the example has (b - 1)/b of the curvature of one without it.  That is
        # not so where batches vary in size and `rise` is that of a larger one.
        assert run.batches.exact_size or pattern.size == 0, run.batches
        own = relative * bound * (2.0 if run.adjacency == "replace" else 1.0) / size
        others = np.where(taking_part, (size - 1) / size, 1.0)
        branches += [
            (keep, rise * others, np.where(taking_part, own, 0.0), order) for rise, order in known
        ]
        branches.append((keep, np.zeros(window), 2.0 * relative * bound, 1.0))
    return Moduli(tuple(_branch(*branch) for branch in branches))


def _branch(keep: Array, rise: Array, offset: Array, order: float) -> Branch:
    """The branch of all steps, rounded up, and of the release, which keeps distances."""
    return Branch(
        slope=np.append(keep, 1.0),
        rise=np.append(up(rise, ROUNDINGS), 0.0),
        offset=np.append(up(offset, ROUNDINGS), 0.0),
        order=order,
    )


def kept(run: TrainingRun) -> Array:
    """|1 - eta lambda| for each step size."""
    eta = quantities.step_sizes(run)
    return distance_of_product_to_one(eta, np.full(eta.size, run.loss.regulariser))


def _known_rises(run: TrainingRun) -> list[tuple[Array, float]]:
    """(rise, order): what a step adds to |1 - eta lambda| z is at most rise z^order."""
    known = []
    linear = linear_rise(run)
    if linear is not None:
        known.append((linear, 1.0))
    if run.loss.holder is not None:
        constant, order = run.loss.holder
        known.append(
            (quantities.relative_step_sizes(run) * constant * quantities.unit(run) ** order, order)
        )
    return known


def linear_rise(run: TrainingRun) -> Array | None:
    """The least known Lipschitz constant of a step, less |1 - eta lambda|; None if unknown."""
    if run.loss.smoothness is None:
        return None
    eta, keep = quantities.step_sizes(run), kept(run)
    rise = eta * up(run.loss.smoothness - run.loss.regulariser, ROUNDINGS)
    if not run.loss.convex:
        return np.asarray(rise)
    if not run.clip_may_be_active:
        contraction = quantities.contractions(quantities.gaps(run))
        return np.asarray(np.minimum(rise, up(np.maximum(contraction - keep, 0.0), ROUNDINGS)))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        reduced = rise / keep
        bent = 1.0 / np.sqrt(1.0 - np.minimum(reduced, 3.0) / 4.0)
        clipped = keep * (np.where(reduced <= 3.0, bent, reduced - 1.0) - 1.0)
    # 1/sqrt(1 - x) - 1 cancels for small x: widened absolutely.
    shrinks = (keep > 0.0) & (eta * run.loss.regulariser < 1.0)
    return np.where(shrinks, np.minimum(rise, up(clipped, ROUNDINGS) + ulps(8)), rise)


def _nothing_known(run: TrainingRun) -> str | None:
    loss = run.loss
    known = loss.smoothness is not None or loss.holder is not None
    return None if known or run.gradient_bound is not None else "none of them"


def _contracts(run: TrainingRun) -> str | None:
    expands = any(hypothesis.check(run) for hypothesis in conditions.CONTRACTING)
    return None if expands else "steps that contract"


NON_CONVEX = Bound(
    id="fixed-order/non-convex",
    gives="a Gaussian guarantee for the last iterate without convexity, or with clipped gradients",
    covers=rules(*Resampling, exact_size=True),
    needs=(
        conditions.ONLY_LAST_ITERATE,
        Hypothesis(
            "a smoothness, Hoelder constants, or a bound on the gradients",
            _nothing_known,
            "state Loss(smoothness=..), Loss(holder=..), Loss(lipschitz=..) or clip_norm",
        ),
        Hypothesis(
            "steps that may expand",
            _contracts,
            f"{conditions.NOTHING_TO_DO}: fixed-order/convex covers this run, and is never worse",
        ),
    ),
    certainty=Certainty.UPPER,
    source=Citation(
        "Bok, Su and Altschuler",
        2024,
        "Shifted interpolation",
        "Theorem C.3",
        also=Citation(
            "Chien and Li",
            2024,
            "Convergent privacy loss of noisy-SGD without convexity and smoothness",
            "Lemmas 3.4, 3.5, 3.8-3.10, A.2",
        ),
    ),
    evaluate=non_convex,
    by_position=non_convex_by_position,
    charges=(
        "{counts} how little a step can drive two runs apart, and later noise hiding the rest"
    ),
    line_style=LineStyle(PURPLE),
    given_order=True,
)


def windows(run: TrainingRun) -> list[LastEpochs]:
    """Windows of few epochs with many choices and, if too short, of many epochs with few."""
    found = []
    for choices, steps in _WINDOW_SIZES:
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
        energies = np.minimum(self._energies_from_before, self._energies_from_cap)
        return np.asarray(up(np.maximum(np.sqrt(energies), LEAST_MU), ulps(quantities.WIDENING)))

    @property
    def is_long_enough(self) -> bool:
        """Whether no choice is best hidden from the window's beginning on."""
        return not self.window.epochs_before or bool(
            np.all(self._energies_from_cap < self._energies_from_before)
        )

    @cached_property
    def _choices(self) -> IntArray:
        return self.window.choices()

    @property
    def _energies_from_before(self) -> Array:
        return self._energies[0]

    @property
    def _energies_from_cap(self) -> Array:
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
                slope, offset = self._idle_moduli.tangent(distances)
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
    def _idle_moduli(self) -> Moduli:
        return moduli(self.run, np.empty(0, dtype=np.intp), self.window.steps)

    @cached_property
    def _participating_moduli(self) -> Moduli:
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
        return min(self._cap, _largest_distance(self.run, before, self._cap))

    @cached_property
    def _composed_energy(self) -> float:
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
        own_slope, own_offset = self._participating_moduli.tangent(distances)
        columns, composed = {0, count - 1}, np.full(slopes.shape, self._composed_energy)
        for k, groups in enumerate(self.window.epochs):
            for number, group in enumerate(groups):
                if group.steps is None:
                    continue
                at, rows = group.steps[-1], np.flatnonzero(choices[:, k] == number)
                columns |= {at, at + 1}
                # Where a group has begun, the participation may be over.
                composed[rows, group.steps[0] + 1 :] += self._most_hidden_energy(group.steps)
                if group.alone:
                    slopes[rows, at], sensitivities[rows, at] = own_slope[at], own_offset[at]
                else:
                    sensitivities[rows, at] += self._charge(group)
        starts = np.arange(count) if count <= _MAX_COLUMN_STEPS else np.array(sorted(columns))
        return self._least_energies(slopes, sensitivities, composed, starts)

    def _charge(self, group: PositionGroup) -> float:
        assert group.steps is not None
        return late_charges(self._idle_moduli, self._sensitivities, group.steps)[-1]

    def _most_hidden_energy(self, steps: range) -> float:
        """The most energy of a participation in one of these steps that this step hides."""
        with np.errstate(divide="ignore"):
            ratios = self._sensitivities[steps.start : steps.stop] / self._noise[steps]
        return float(up(np.max(np.square(ratios)), ulps(8)))

    def _least_energies(
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


def _largest_distance(run: TrainingRun, steps: int, cap: float) -> float:
    """The largest distance of two runs after this many steps, which are whole epochs.

    An epoch adds at most what a participation in any of its steps has grown to at its end.
    """
    if steps > _MAX_FOLLOWED_STEPS:
        return math.inf
    length = run.batches.batches_per_epoch
    idle = moduli(run, np.empty(0, dtype=np.intp), run.steps)
    values = StepValues(idle)
    sensitivities = late(quantities.sensitivities(run), run.steps).tolist()
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


@dataclass(frozen=True)
class PositionGroup:
    """Consecutive steps, counted from the window's first, in one of which an example takes part.

    None are the steps of an example that sits out the epoch.
    """

    steps: range | None
    weight: float
    alone: bool = False  # whether the example takes part in the single step for certain


@dataclass(frozen=True)
class Window:
    """The last epochs of a run: for each the groups of positions, and all choices among them."""

    steps: int
    epochs_before: int
    epochs: tuple[tuple[PositionGroup, ...], ...]

    def choices(self) -> IntArray:
        """One row for each choice of a group in every epoch."""
        sizes = [len(groups) for groups in self.epochs]
        rest, columns = np.arange(math.prod(sizes)), []
        for size in sizes[::-1]:  # the last epoch's choice changes first
            columns.append(rest % size)
            rest = rest // size
        return np.stack(columns[::-1], axis=1)

    def weights(self, choices: IntArray) -> Array:
        """The probability of each choice."""
        columns = [
            np.array([group.weight for group in groups])[choices[:, k]]
            for k, groups in enumerate(self.epochs)
        ]
        return np.asarray(np.prod(columns, axis=0))


def last_epochs(run: TrainingRun, most_choices: int, most_steps: int) -> Window:
    """The window of last epochs with at most this many choices and about this many steps.

    The later an epoch, the more groups it has; the oldest have one, charged as its worst.
    """
    length = run.batches.batches_per_epoch
    total = -(-run.steps // length)
    epochs: list[tuple[PositionGroup, ...]] = []
    first, left = run.steps, float(most_choices)
    while len(epochs) < total:
        begin = (total - len(epochs) - 1) * length
        size = first - begin
        if epochs and run.steps - begin > most_steps:
            break
        count = max(1, min(size, math.isqrt(int(left)) if size > 3 else int(left)))
        groups = _position_groups(run, range(begin, first), count)
        left /= len(groups)
        epochs.append(groups)
        first = begin
    moved = tuple(tuple(_moved_to(first, group) for group in groups) for groups in reversed(epochs))
    return Window(run.steps - first, first // length, moved)


def _moved_to(first: int, group: PositionGroup) -> PositionGroup:
    """The group with its steps counted from `first`."""
    if group.steps is None:
        return group
    steps = range(group.steps.start - first, group.steps.stop - first)
    return PositionGroup(steps, group.weight, group.alone)


def _position_groups(run: TrainingRun, steps: range, count: int) -> tuple[PositionGroup, ...]:
    """A number of groups of the positions in these steps; the latest are the smallest."""
    rule = run.batches
    edges = _group_edges(len(steps), count, since_end=run.steps - steps.stop)
    stretches = [steps[a:b] for a, b in pairwise(edges)]
    weights = [len(one) * rule.share for one in stretches]
    whole = len(steps) == rule.batches_per_epoch
    absent = 0.0 if whole and rule.examples % rule.batch_size == 0 else 1.0 - math.fsum(weights)
    alone = [len(one) == 1 for one in stretches]
    missing: list[PositionGroup] = []
    if whole and absent > 0.0:  # few are left over: as if they were in the oldest group
        weights[0] += absent
        alone[0] = False
    elif absent > 0.0:
        missing = [PositionGroup(None, absent)]
    found = [
        PositionGroup(one, weight, single)
        for one, weight, single in zip(stretches, weights, alone, strict=True)
    ]
    return (*missing, *found)


def _group_edges(size: int, count: int, since_end: int) -> list[int]:
    """Edges of groups, the shorter the nearer to the end of the run."""
    if count >= size:
        return list(range(size + 1))
    ages = since_end + size / (4.0 * count) + np.array([0.0, size])
    spread = np.geomspace(ages[0], ages[1], count + 1) - ages[0]
    edges = size - np.unique(np.rint(spread).astype(int))[::-1]
    edges[0], edges[-1] = 0, size
    return [int(edge) for edge in np.unique(edges)]


@dataclass(frozen=True)
class StepValues:
    """Moduli of single steps, for recursions from step to step."""

    moduli: Moduli

    def __call__(self, step: int, distance: float) -> float:
        """The modulus of this step at a distance, rounded up."""
        found: float = min(
            float(one.slope[step]) * distance
            + float(one.rise[step]) * distance**one.order
            + float(one.offset[step])
            for one in self.moduli.branches
        )
        return up(found, ulps(16))

    def increase(self, step: int, more: float) -> float:
        """The most by which a distance that is larger by `more` is larger after this step."""
        nothing = min(float(one.offset[step]) for one in self.moduli.branches)
        after = self(step, more)
        return max(after - nothing, 0.0) + ulps(4) * after


def late_charges(idle: Moduli, sensitivities: list[float], steps: range) -> list[float]:
    """The charges at `steps`, each for a participation in that step or in an earlier one."""
    values, charges, charge = StepValues(idle), [], 0.0
    for step in steps:
        charge = max(sensitivities[step], values.increase(step, charge))
        charges.append(charge)
    return charges
