r"""mu of what a linear recursion releases, for participations in known steps and by epochs.

**Epochs.** `MomentumEpochs` has the cost of a participation by its position in the last epoch, at
worst over earlier ones.  Participations in earlier epochs are charged a little after the end of
their epoch, in a direction that serves all positions in it (`delay`): so one certificate holds for
a fixed and for a shuffled order.  Positions are told by their *tail*, the number of steps after
them.

**Delays.** Let :math:`E_0 \succeq B B'` and :math:`E_{j+1} \succeq A(l) E_j A(l)'` at both ends of
the curvature.  A participation in step t may then be charged in a later step v, in the direction
:math:`E_{v-t}` instead of B B': between the two :math:`\kappa E_{k-t}` is added to X_k, and every
inequality of the certificate holds.  Here E_j is a multiple of P^-1, of the common norm, from some
age on.  It is then the same for all older participations if that norm shrinks, and else grows with
its rate.

**The longest steps.** Distances shrink in some quadratic norm, at every curvature in [m, M], m > 0,
if and only if the circle criterion holds (docs/momentum.md).  With the response
:math:`L(z) = \eta N(z)/D(z)` of x to minus the gradient, :math:`D = (z - 1)(z - \beta)`, N = z for
heavy ball and :math:`N = (1 + \beta) z - \beta` for Nesterov's form, and on all of |z| = 1,

.. math:: |D|^2 + \eta (m + M) \operatorname{Re}(N \bar D) + \eta^2 m M |N|^2 > 0 ,

which is a quadratic in :math:`y = 1 - \operatorname{Re} z \in [0, 2]`.  A longer step leaves every
certificate as valid as it is.  It only lets mu grow with the number of steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from typing import ParamSpec, TypeVar

import numpy as np

from lastiterate._numerics.rounding import (
    FEW_ROUNDINGS,
    MILLIONS_OF_ROUNDINGS,
    THOUSANDS_OF_ROUNDINGS,
    TINY,
    Array,
    Interval,
    at_least,
    down,
    up,
)
from lastiterate.shifts.momentum.certificate import (
    CommonNorm,
    Entries,
    LinearRun,
    Programme,
    Start,
    Step,
    backward_start,
    certified_kappas,
    common_norm,
    has_no_negative_eigenvalue,
    image,
    is_surely,
    middle,
    solve,
)
from lastiterate.shifts.momentum.recursion import (
    Recursion,
    as_entries,
    congruence,
    largest_multiple,
    outer,
)

_MAX_SOLVED_STEPS = 30_000  # solved for; earlier participations are composed
_NEGLIGIBLE_DISTANCE = 1e-4  # what is left of a distance where the past may be cut
_LEAST_KEPT_STEPS = 500
_RATE_MARGIN = 1e-9
_CAP_FACTOR = 10.0
_LOG_SIZE_ROOM = 1e-4
_LEAST_LOG_SIZE, _LARGEST_LOG_SIZE = -300.0, 30.0  # of X_k against that of X_T
_SHARE_OF_TAIL = 6  # of a group's least tail: its delay
_SIZE_MARGIN = 1e-6  # of every size, for roundings
_LARGE_CAP = 1e6  # against the sizes of the matrices
_LARGEST_LOG_GROWTH = 600.0  # of a growth that floats hold
_STEP_HALVINGS = 60
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def none_beyond_floats(
    search: Callable[_Arguments, _Result | None],
) -> Callable[_Arguments, _Result | None]:
    """A search for a certificate that finds none where numbers leave the range of floats.

    A certificate is checked in intervals, and infinities and nan fail the check.
    """

    @wraps(search)
    def guarded(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result | None:
        try:
            with np.errstate(all="ignore"):
                return search(*args, **kwargs)
        except (OverflowError, ZeroDivisionError, np.linalg.LinAlgError):
            return None

    return guarded


def recursion_mu(run: LinearRun, enough: float = 0.0) -> float:
    """The mu for which what the run releases is surely mu-GDP, never above that of composition.

    The search stops where mu^2 is at most `enough`.

    **Bound.** The theorem of `certificate`, for the best matrices that a search found.

    **Tight.** Within the search's tolerance of the programme's least value, which is a little
    above what quadratic losses attain (docs/momentum.md).
    """
    if not np.any(run.sensitivity > 0.0):
        return 0.0
    energy = _certified_energy(run, enough)
    composed = _composed_energy(run)
    return at_least(math.sqrt(composed if energy is None else min(composed, energy)), ulps=4)


@none_beyond_floats
def _certified_energy(run: LinearRun, enough: float) -> float | None:
    """mu^2 by the certificate that the search finds."""
    found = certified(run, enough)
    if found is None:
        return None
    return up(math.fsum(found.energies(run.sensitivity)) + found.before, FEW_ROUNDINGS)


@dataclass(frozen=True)
class Certified:
    """The certified kappa of each of the last steps, which is inf in steps without the example.

    `before` is the energy (the part of mu^2) of participations before these steps.
    """

    kappa: Array
    before: float

    def energies(self, sensitivity: Array) -> Array:
        """s_k^2/kappa_k of the last steps for these sensitivities, rounded up."""
        squares = np.nextafter(sensitivity[-self.kappa.size :] ** 2, np.inf)
        costs = np.nextafter(squares / self.kappa, np.inf)
        return np.where(np.isinf(self.kappa), 0.0, costs)


@none_beyond_floats
def certified(run: LinearRun, enough: float = 0.0) -> Certified | None:
    """The certificate that the search finds for these sensitivities; None where it finds none.

    The search stops where the energy of all participations together is at most `enough`.
    """
    there = np.flatnonzero(run.sensitivity > 0.0)
    run = _last_steps(run, run.steps - int(there[0]))
    norm = common_norm(last_transitions(run.recursion, run.curvature))
    kept, composed = _compose_past(run, norm)
    if kept.steps == 1 and kept.start is None:
        kappa = certified_kappas(kept, np.zeros((0, 3)))
        return None if kappa is None else Certified(kappa, composed)
    unit = 2.0 ** math.floor(math.log2(max(float(run.noise.max()), run.release_noise)))
    programme, first = _programme(kept, norm, unit)
    if first is None:
        return None
    back = np.linalg.inv(turned_to_noise(kept.recursion, norm))
    to_state = congruence(back[0, 0], back[0, 1], back[1, 0], back[1, 1]) * unit**2
    largest = float(kept.sensitivity.max())
    for matrices in (solve(programme, first, enough * (unit / largest) ** 2), first):
        states, start, before = matrices @ to_state.T, 0.0, composed
        if kept.start is not None:
            start = down(float(largest_multiple(states[0], kept.start.matrix)), _RATE_MARGIN)
            states = states[1:]
            before += up(kept.start.weight / start, FEW_ROUNDINGS) if start > 0.0 else math.inf
        kappa = certified_kappas(kept, states, start)
        if kappa is not None:
            return Certified(kappa, before)
    return None


def _last_steps(run: LinearRun, count: int) -> LinearRun:
    """The run of the last `count` steps alone."""
    first = run.steps - count
    return replace(
        run,
        recursion=run.recursion.last(count),
        sensitivity=run.sensitivity[first:],
        noise=run.noise[first:],
        delayed=None if run.delayed is None else run.delayed[first:],
        directions=None if run.directions is None else run.directions[first:],
    )


def last_transitions(recursion: Recursion, curvature: tuple[float, float]) -> tuple[Array, Array]:
    """A_T(l) at both ends of the curvature."""
    a00, a01, a10, a11, b0, b1 = (entry[-1] for entry in recursion.entries())
    low, high = (np.array([[a00 + end * b0, a01], [a10 + end * b1, a11]]) for end in curvature)
    return low, high


def _compose_past(run: LinearRun, norm: CommonNorm) -> tuple[LinearRun, float]:
    """The steps that matter, and the energy of participations before them that are composed.

    Where distances shrink in the norm, older steps are a `Start` instead.
    """
    if norm.rate < 1.0 and run.recursion.is_constant:
        kept = max(
            math.ceil(math.log(_NEGLIGIBLE_DISTANCE) / math.log(max(norm.rate, TINY))),
            _LEAST_KEPT_STEPS,
        )
        if 2 * kept < run.steps:
            start = _start(run, norm, run.steps - kept)
            if start is not None:
                return replace(_last_steps(run, kept), start=start), 0.0
    first = run.steps - _MAX_SOLVED_STEPS
    if first <= 0 or (run.delayed is not None and np.any(run.delayed[:first])):
        return run, 0.0
    past = replace(run, sensitivity=run.sensitivity[:first], noise=run.noise[:first])
    return _last_steps(run, _MAX_SOLVED_STEPS), _composed_energy(replace(past, delayed=None))


def _composed_energy(run: LinearRun) -> float:
    """mu^2 of all participations where every iterate is released; inf for delayed ones."""
    if run.delayed is not None and np.any(run.delayed):
        return math.inf
    there = run.sensitivity > 0.0
    if not np.all(run.noise[there] > 0.0):
        return math.inf
    with np.errstate(over="ignore"):
        squares = (run.sensitivity[there] / run.noise[there]) ** 2
        return up(float(np.sum(squares)), MILLIONS_OF_ROUNDINGS)


def _start(run: LinearRun, norm: CommonNorm, cut: int) -> Start | None:
    """The cost of the first `cut` steps if distances shrink in the norm; None if unsure.

    X_k = x rate^(k - cut) P^-1 is feasible with kappa_k = x rate^(k - cut) c, as long as
    (1 - rate) P^-1 >= c B B'.
    """
    rate = max(up(norm.rate, _RATE_MARGIN), TINY)
    a00, a01, a10, a11, b0, b1 = (entry[[0, -1]] for entry in run.recursion.enclosed_entries())
    ends = [Interval.exact([end]) for end in run.curvature]
    steps = tuple(
        (a00[1:] + end * b0[1:], a01[1:], a10[1:] + end * b1[1:], a11[1:]) for end in ends
    )
    if not (rate < 1.0 and is_surely(norm, steps, rate)):
        return None
    inverse = as_entries(norm.inverse)
    directions = _past_directions(run, cut, b0, b1)
    room = (1.0 - rate) * inverse
    share = min(float(largest_multiple(room, middle(one)[0])) for one in directions)
    share = down(share, _RATE_MARGIN)
    left = Interval.exact([1.0]) - Interval.exact([rate])
    x, y, z = (left * Interval.exact([value]) for value in inverse)
    part = Interval.exact([share])
    for one in directions:
        if not has_no_negative_eigenvalue(
            (x - part * one[0], y - part * one[1], z - part * one[2])
        ):
            return None
    ages = cut - 1 - np.arange(cut)
    squares = run.sensitivity[:cut] ** 2 * np.exp(math.log(rate) * ages)
    return Start(inverse, up(float(np.sum(squares)) / share, MILLIONS_OF_ROUNDINGS))


def _past_directions(run: LinearRun, cut: int, b0: Interval, b1: Interval) -> list[Entries]:
    """The directions that an example may add in the first `cut` steps, each once."""
    found: list[Entries] = [
        (b0[i] * b0[i], b0[i] * b1[i], b1[i] * b1[i]) for i in (slice(0, 1), slice(1, 2))
    ]
    if run.delayed is not None and run.directions is not None:
        for row in np.unique(run.directions[:cut][run.delayed[:cut]], axis=0):
            x, y, z = (Interval.exact([value]) for value in row)
            found.append((x, y, z))
    return found


def _programme(run: LinearRun, norm: CommonNorm, unit: float) -> tuple[Programme, Array | None]:
    """The programme in coordinates in which the norm is Euclidean, and where to begin."""
    root = turned_to_noise(run.recursion, norm)
    back = np.linalg.inv(root)
    a00, a01, a10, a11, b0, b1 = run.recursion.entries()
    ends = []
    for end in run.curvature:
        steps = np.stack([[a00 + end * b0, a01], [a10 + end * b1, a11]]).transpose(2, 0, 1)
        ends.append(root @ steps @ back)
    maps = np.stack(
        [congruence(one[:, 0, 0], one[:, 0, 1], one[:, 1, 0], one[:, 1, 1]) for one in ends]
    )
    turned0, turned1 = root[0, 0] * b0 + root[0, 1] * b1, root[1, 0] * b0 + root[1, 1] * b1
    own = outer(turned0, turned1)
    noise = own * ((run.noise / unit) ** 2)[:, None]
    directions = own
    to_norm = congruence(root[0, 0], root[0, 1], root[1, 0], root[1, 1])
    if run.delayed is not None and run.directions is not None:
        directions = np.where(run.delayed[:, None], run.directions @ to_norm.T, own)
    largest = float(run.sensitivity.max())
    weights = (run.sensitivity / largest) ** 2
    released = np.array(run.recursion.released) @ back
    final = np.array([released[0] ** 2, 2 * released[0] * released[1], released[1] ** 2])
    growth = np.max([np.linalg.norm(one, 2, axis=(1, 2)) ** 2 for one in ends], axis=0)
    if run.start is not None:
        maps = np.concatenate([np.zeros((2, 1, 3, 3)), maps], axis=1)
        noise = np.concatenate([np.zeros((1, 3)), noise])
        directions = np.concatenate([(to_norm @ run.start.matrix)[None], directions])
        weights = np.concatenate([[run.start.weight / largest**2], weights])
        growth = np.concatenate([[1.0], growth])
        ends = [np.concatenate([np.zeros((1, 2, 2)), one]) for one in ends]
    logs = _log_sizes(growth)
    scale = float(np.max(noise[:, 0] + noise[:, 2]))
    caps = (
        _CAP_FACTOR * (1_000.0 + run.steps) * scale * np.exp(np.clip(logs, 0.0, _LARGEST_LOG_SIZE))
    )
    programme = Programme(
        maps, noise, directions, weights, final, (run.release_noise / unit) ** 2, caps
    )
    return programme, _feasible_matrices(programme, ends, logs)


def turned_to_noise(recursion: Recursion, norm: CommonNorm) -> Array:
    """S for which the norm of z is the length of S z, and the noise lies along the first axis.

    The noise can be far larger than X_k in every other direction; along an axis it does not hide
    the small entries.
    """
    *_, b0, b1 = recursion.entries()
    first = norm.root @ np.array([b0[-1], b1[-1]])
    first = first / np.linalg.norm(first)
    turn = np.array([[first[0], first[1]], [-first[1], first[0]]])
    return np.asarray(turn @ norm.root)


def _feasible_matrices(programme: Programme, ends: list[Array], logs: Array) -> Array | None:
    """Strictly feasible matrices, the largest ones or else multiples of the identity."""
    for matrices in (backward_start(programme, ends), _multiples_of_identity(programme, logs)):
        if matrices is not None:
            with np.errstate(all="ignore"):  # where floats fail it does not hold
                kappa = 0.5 * programme.largest_kappa(matrices)
                if programme.holds_strictly(kappa, matrices):
                    return matrices
    return None


def _multiples_of_identity(programme: Programme, logs: Array) -> Array | None:
    """Strictly feasible multiples of the identity; None where sizes would differ too much."""
    if logs.min() < _LEAST_LOG_SIZE:
        return None
    matrices = np.exp(logs)[:, None] * np.array([1.0, 0.0, 1.0])
    room = programme.release + float(programme.final @ programme.noise[-1])
    largest = float(np.max(programme.last_maps @ matrices[-1]))
    return np.asarray(matrices * (0.25 * room / largest))


def _log_sizes(growth: Array) -> Array:
    """Logarithms of sizes of X_1 .. X_{T-1}, against the last, that steps leave room for."""
    sizes = np.where(
        growth < 1.0, 0.5 * np.log(np.maximum(growth, TINY)), np.log(growth) + _LOG_SIZE_ROOM
    )
    logs = np.cumsum(sizes[:-1])
    return np.asarray(np.minimum(logs - logs[-1], _LARGEST_LOG_SIZE))


@dataclass(frozen=True)
class EpochTails:
    """The positions in the last epoch with tails from `least` to `most`.

    Several are charged together a little later, or, as `each` asks for, each in its own step.
    """

    least: int
    most: int
    each: bool = False


@dataclass(frozen=True)
class Energies:
    """Parts of mu^2 for a sensitivity of 1, each rounded up.

    `earlier` is that of all earlier epochs together, `group` that of any single position of the
    group, `other` that of any single one of the other positions.
    """

    earlier: float
    group: float
    other: float


@dataclass(frozen=True)
class MomentumEpochs:
    """Equal steps in epochs of `length` steps; the last epoch may be cut short.

    Where every position comes back after `length` steps, epochs may be counted from the end
    (`from_the_end`): each of them sees every position once, and the first one may be cut short.
    `noise` is that of the averaged gradient in every step.
    """

    recursion: Recursion
    curvature: tuple[float, float]
    noise: float
    release_noise: float
    length: int
    delay: int
    from_the_end: bool = False

    @property
    def earlier_epochs(self) -> int:
        """The number of epochs before the last one begins."""
        return (self.recursion.steps - 1) // self.length

    @property
    def last_length(self) -> int:
        """The number of steps of the last epoch."""
        if self.from_the_end:
            return min(self.recursion.steps, self.length)
        return self.recursion.steps - self.earlier_epochs * self.length

    @none_beyond_floats
    def energies(
        self, group: EpochTails | None, other: EpochTails | None = None, enough: float = 0.0
    ) -> Energies | None:
        """The energies of one certificate, or None where none was found.

        Every position of `group`, and of `other`, can be charged by it; None stands for no
        participation in the last epoch.  The search stops where all of them together have at most
        the energy `enough`.
        """
        parts = self._parts(group, other)
        if not parts:
            return Energies(0.0, 0.0, 0.0)
        steps = self.recursion.steps
        weights, directions = np.zeros(steps), np.zeros((steps, 3))
        for part in parts:
            direction = self._direction(part)
            if direction is None:
                return None
            weights[part.charged - 1] += 1.0
            directions[part.charged - 1] += direction
        alone = [p.charged - 1 for p in parts if p.is_exact and weights[p.charged - 1] == 1.0]
        delayed = weights > 0.0
        delayed[alone] = False
        found = certified(
            LinearRun(
                self.recursion,
                self.curvature,
                np.sqrt(weights),
                np.full(steps, self.noise),
                self.release_noise,
                delayed=delayed,
                directions=directions,
            ),
            enough,
        )
        if found is None:
            return None
        energies = np.zeros(steps)
        energies[-found.kappa.size :] = found.energies(np.ones(steps))
        earlier, of_group, of_other = (
            [float(energies[part.charged - 1]) for part in parts if part.name == name]
            for name in ("earlier", "group", "other")
        )
        total = up(math.fsum(earlier) + found.before, FEW_ROUNDINGS)
        if not (total >= 0.0 and np.all(energies >= 0.0)):  # nan, which a maximum may lose
            return None
        return Energies(total, max(of_group, default=0.0), max(of_other, default=0.0))

    def _parts(self, group: EpochTails | None, other: EpochTails | None) -> list[_Part]:
        """The parts of the run, with their charges."""
        steps = self.recursion.steps
        parts = []
        for epoch in range(1, self.earlier_epochs + 1):
            last = steps - self.last_length - (self.earlier_epochs - epoch) * self.length
            first = max(last - self.length + 1, 1)
            parts.append(_Part("earlier", first, last, last + min(self.delay, steps - last)))
        for name, tails in (("group", group), ("other", other)):
            if tails is not None:
                parts += self._parts_of(name, tails)
        return parts

    def _parts_of(self, name: str, tails: EpochTails) -> list[_Part]:
        steps = self.recursion.steps
        first, last = steps - tails.most, steps - tails.least
        if tails.each or first == last:
            return [_Part(name, step, step, step) for step in range(first, last + 1)]
        delay = min(self.delay, tails.least // _SHARE_OF_TAIL)
        return [_Part(name, first, last, last + delay)]

    def _direction(self, part: _Part) -> Array | None:
        """The direction that a participation in any step of the part adds where it is charged."""
        direction = self._delays.direction(part.charged - part.last, part.charged - part.first)
        if direction is None or part.first > 1:
            return direction
        first = self._delays.first_step_direction(part.charged - 1)
        # Both are multiples of one matrix, so the larger one is above both.
        return None if first is None else np.where(first[0] > direction[0], first, direction)

    @cached_property
    def _delays(self) -> Delays:
        return Delays(self.recursion, self.curvature)


@dataclass(frozen=True)
class _Part:
    """A participation in one of the steps `first` .. `last`, from 1, charged in step `charged`."""

    name: str
    first: int
    last: int
    charged: int

    @property
    def is_exact(self) -> bool:
        """Whether the step is known, and the participation is charged in it."""
        return self.first == self.last == self.charged > 1


@dataclass(frozen=True)
class Delays:
    """Directions of delayed participations in a recursion of constant steps."""

    recursion: Recursion
    curvature: tuple[float, float]

    def direction(self, youngest: int, oldest: int) -> Array | None:
        """A matrix that charges a participation of any of these ages; None where none is proved.

        It is a multiple of P^-1.
        """
        size, growth = self._size(youngest), self._growth
        if size is None or growth is None:
            return None
        return self._after_steps(size, growth, oldest - youngest)

    def first_step_direction(self, age: int) -> Array | None:
        """A matrix that charges a participation in the first step at this age.

        There B may be another: without dampening, or where an average copies the iterate.
        """
        growth = self._growth
        *_, b0, b1 = (entry[:1] for entry in self.recursion.enclosed_entries())
        own = outer(0.5 * (b0.low[0] + b0.high[0]), 0.5 * (b1.low[0] + b1.high[0]))
        size = up(1.0 / float(largest_multiple(self._inverse, own)), _SIZE_MARGIN)
        x, y, z = (Interval.exact([size]) * Interval.exact([v]) for v in self._inverse)
        left = (x - b0 * b0, y - b0 * b1, z - b1 * b1)
        if growth is None or not has_no_negative_eigenvalue(left):
            return None
        return self._after_steps(size, growth, age)

    def _after_steps(self, size: float, growth: float, age: int) -> Array | None:
        """`size` P^-1 after this many steps; None beyond floating point."""
        log = age * math.log(growth)
        if not log < _LARGEST_LOG_GROWTH:
            return None
        factor = up(math.exp(log), THOUSANDS_OF_ROUNDINGS)
        return np.asarray(up(size * factor, THOUSANDS_OF_ROUNDINGS) * self._inverse)

    @cached_property
    def _norm(self) -> CommonNorm:
        return common_norm(last_transitions(self.recursion, self.curvature))

    @property
    def _inverse(self) -> Array:
        return as_entries(self._norm.inverse)

    @cached_property
    def _steps(self) -> tuple[Step, Step]:
        """A(l) at both ends of the curvature, in intervals."""
        a00, a01, a10, a11, b0, b1 = (entry[-1:] for entry in self.recursion.enclosed_entries())
        low, high = (Interval.exact([end]) for end in self.curvature)
        return (
            (a00 + low * b0, a01, a10 + low * b1, a11),
            (a00 + high * b0, a01, a10 + high * b1, a11),
        )

    @cached_property
    def _growth(self) -> float | None:
        """A factor >= 1 by which P^-1 grows at most in a step."""
        rate = max(up(self._norm.rate, _RATE_MARGIN), 1.0)
        return up(rate * rate, _RATE_MARGIN) if is_surely(self._norm, self._steps, rate) else None

    @cached_property
    def _sizes(self) -> dict[int, float | None]:
        return {}

    def _size(self, age: int) -> float | None:
        """A factor of P^-1 that is above E_age."""
        if age not in self._sizes:
            self._sizes[age] = self._proved_size(age)
        return self._sizes[age]

    def _proved_size(self, age: int) -> float | None:
        *_, b0, b1 = (float(entry[-1]) for entry in self.recursion.entries())
        own = outer(np.array(b0), np.array(b1))
        if age == 0:
            chain = self._inverse[None] / float(largest_multiple(self._inverse, own))
            chain = up(chain, _SIZE_MARGIN)
        else:
            found = _chain(self._norm, self.recursion, self.curvature, age)
            if found is None:
                return None
            # Each a little larger than the one before, so that all inequalities are strict.
            larger = (1.0 + _SIZE_MARGIN) ** np.arange(1, age + 2)
            chain = found / float(largest_multiple(found[0], own)) * larger[:, None]
        size = up(1.0 / float(largest_multiple(self._inverse, chain[-1])), _SIZE_MARGIN)
        return size if self._is_proved(chain, size) else None

    def _is_proved(self, chain: Array, size: float) -> bool:
        """Whether the matrices are E_0 .. E_age, and the last is at most `size` P^-1."""
        *_, b0, b1 = (entry[-1:] for entry in self.recursion.enclosed_entries())
        own = (b0 * b0, b0 * b1, b1 * b1)
        x, y, z = (Interval.exact(chain[:, i]) for i in range(3))
        inverse = [Interval.exact([size]) * Interval.exact([value]) for value in self._inverse]
        inequalities = [
            (x[:1] - own[0], y[:1] - own[1], z[:1] - own[2]),
            (inverse[0] - x[-1:], inverse[1] - y[-1:], inverse[2] - z[-1:]),
        ]
        for step in self._steps:
            moved = image(step, (x[:-1], y[:-1], z[:-1]))
            inequalities.append((x[1:] - moved[0], y[1:] - moved[1], z[1:] - moved[2]))
        return all(has_no_negative_eigenvalue(one) for one in inequalities)


def _chain(
    norm: CommonNorm, recursion: Recursion, curvature: tuple[float, float], age: int
) -> Array | None:
    """Matrices that each step maps below the next, the last one below P^-1, the first one large.

    It is the certificate's programme without noise, for one participation in the first step.
    """
    root = turned_to_noise(recursion, norm)
    back = np.linalg.inv(root)
    ends = [
        np.broadcast_to(root @ step @ back, (age + 2, 2, 2)).copy()
        for step in last_transitions(recursion, curvature)
    ]
    maps = np.stack(
        [congruence(one[:, 0, 0], one[:, 0, 1], one[:, 1, 0], one[:, 1, 1]) for one in ends]
    )
    *_, b0, b1 = (float(entry[-1]) for entry in recursion.entries())
    pushed = root @ np.array([b0, b1])
    directions = np.broadcast_to(outer(pushed[0], pushed[1]), (age + 2, 3))
    weights = np.zeros(age + 2)
    weights[0] = 1.0
    caps = np.full(age + 1, _LARGE_CAP)
    caps[-1] = 1.0
    final = np.array([1.0, 0.0, 1.0])  # and so much room that it never matters
    programme = Programme(
        maps, np.zeros((age + 2, 3)), directions, weights, final, _LARGE_CAP, caps
    )
    first = backward_start(programme, ends)
    if first is None or not programme.holds_strictly(0.5 * programme.largest_kappa(first), first):
        return None
    to_state = congruence(back[0, 0], back[0, 1], back[1, 0], back[1, 1])
    return np.asarray(solve(programme, first) @ to_state.T)


def longest_converging_step(
    curvature: tuple[float, float], momentum: float, *, nesterov: bool = False
) -> float:
    """A step that converges and is as long as a search finds; 0 without strong convexity."""
    low, high = curvature
    if not 0.0 < low <= high:
        return 0.0
    good, bad = 0.0, 4.0 / high  # no step of 2 (1 + momentum)/curvature is stable
    for _ in range(_STEP_HALVINGS):
        middle = 0.5 * (good + bad)
        if converges(middle, curvature, momentum, nesterov=nesterov):
            good = middle
        else:
            bad = middle
    return good


def converges(
    step: float, curvature: tuple[float, float], momentum: float, *, nesterov: bool
) -> bool:
    """Whether steps of this size shrink distances, as far as floats tell.

    Dampening shortens a step: its size is to be multiplied by 1 - dampening before.
    """
    low, high = curvature
    if not (0.0 < low <= high and step > 0.0 and _is_stable(step, high, momentum, nesterov)):
        return False
    beta, both, product = momentum, step * (low + high), step * step * low * high
    square, linear, constant = 4.0 * beta, 2.0 * (1.0 - beta) ** 2, product
    if nesterov:
        square -= 2.0 * both * beta
        linear += both * (beta * (3.0 - beta) - (1.0 + beta) ** 2)
        linear += 2.0 * product * beta * (1.0 + beta)
    else:
        linear -= both * (1.0 + beta)
    return _least_on_circle(square, linear, constant) > 0.0


def _is_stable(step: float, curvature: float, momentum: float, nesterov: bool) -> bool:
    """Whether steps at this one curvature shrink distances, by the criterion of Jury."""
    # z^2 - trace z + determinant has both roots inside the circle.
    pull = step * curvature
    trace = 1.0 + momentum - pull * (1.0 + momentum if nesterov else 1.0)
    determinant = momentum * (1.0 - pull) if nesterov else momentum
    return abs(trace) < 1.0 + determinant and determinant < 1.0


def _least_on_circle(square: float, linear: float, constant: float) -> float:
    """The least value of a quadratic between 0 and 2."""
    points = [0.0, 2.0]
    if square > 0.0:
        points.append(min(max(-linear / (2.0 * square), 0.0), 2.0))
    return min(constant + y * (linear + y * square) for y in points)
