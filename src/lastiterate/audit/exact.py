"""Exact privacy of one-dimensional instances that a run admits: what a guarantee has to survive.

>>> from lastiterate.audit import exact
>>> from lastiterate.lower_bounds.line import linear
>>> one = exact.Step(linear(1.0), (linear(1.0), linear(1.0, offset=1.0)), noise_std=1.0)
>>> curve = exact.curve(exact.Pair(0.0, [one]))
>>> round(curve.epsilon(1e-5).lower, 4), curve.delta(1.0).error < 1e-12
(4.3772, True)
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import minimize

from lastiterate import _check
from lastiterate._display import down, up
from lastiterate._numerics.rounding import Array
from lastiterate.accounting import account
from lastiterate.errors import InvalidType, NoInstanceApplies, NumericalFailure
from lastiterate.lower_bounds import drifting
from lastiterate.lower_bounds.exact_curve import Bracket, ExactCurve
from lastiterate.lower_bounds.line import IDENTITY, Pair, Step, bent, last_laws, linear
from lastiterate.lower_bounds.participation import participation
from lastiterate.lower_bounds.quadratics import Admitted, admitted, autoregression_lower_profile
from lastiterate.profile.lower import LowerProfile
from lastiterate.run.optimizer import Schedule, require_plain_steps
from lastiterate.run.training_run import TrainingRun

if TYPE_CHECKING:
    from lastiterate.unlearn.unlearning import Unlearning

Parameters = Mapping[str, float]
Spans = Mapping[str, tuple[float, float]]
_MAX_GRID_STEPS = 600
_NO_LINEAR = "losses that may be linear, but for the regulariser"


__all__ = ["FAMILIES", "Bracket", "ExactCurve", "Pair", "Step", "WorstInstance", "curve", "worst"]


def curve(pair: Pair, *, width: float = 2.0) -> ExactCurve:
    """The privacy of the last iterate of a pair, with an error bound of its own.

    Parameters
    ----------
    pair : Pair
        One iteration on two adjacent data sets.
    width : float
        Panels of the grid, in standard deviations of a step's noise.  Half of it has a much
        smaller error and costs four times as much.
    """
    if not isinstance(pair, Pair):
        raise InvalidType("pair", pair, must_be="a Pair")
    return ExactCurve(last_laws(pair, _check.number("width", width, above=0.0, at_most=20.0)))


@dataclass(frozen=True)
class WorstInstance:
    """An instance that obeys a run's description, and how private it is at most.

    `epsilon` at `delta` is what no guarantee of the run can deny; `certified` is what
    `account` promises, and `ratio` the one over the other, at least 1 if both are right.
    """

    run: TrainingRun
    family: str
    parameters: Parameters
    delta: float
    epsilon: float
    certified: float
    lower: LowerProfile

    @property
    def ratio(self) -> float:
        """The ratio of the certified epsilon to the instance's; inf if the latter is 0."""
        if self.certified == 0.0:
            return 1.0
        return self.certified / self.epsilon if self.epsilon > 0.0 else math.inf

    @property
    def pair(self) -> Pair:
        """The instance."""
        return FAMILIES[self.family].pair(self.run, self.parameters)

    def __str__(self) -> str:
        shown = ", ".join(f"{name}={value:.4g}" for name, value in self.parameters.items())
        return (
            f"{self.family}({shown}): epsilon >= {down(self.epsilon)} at delta = {self.delta:g}; "
            f"certified {up(self.certified)}, ratio {self.ratio:.4f}"
        )


def worst(
    run: TrainingRun,
    *,
    delta: float = 1e-5,
    family: str | Sequence[str] | None = None,
    tries: int = 40,
) -> WorstInstance:
    """The most exposed instance that `tries` evaluations of each family find.

    Parameters
    ----------
    run : TrainingRun
        What is to be attacked.
    delta : float
        Where epsilon is compared.
    family : str or sequence of str, optional
        Ids of `FAMILIES`; by default all that apply.
    tries : int
        How many members of a family with parameters are looked at.

    Examples
    --------
    >>> import lastiterate as li
    >>> from lastiterate.audit import exact
    >>> run = li.TrainingRun(
    ...     loss=li.Loss(smoothness=32.502, strong_convexity=0.002), sensitivity=10.0,
    ...     batches=li.Cyclic(examples=60_000, batch_size=1_500), steps=2_000,
    ...     step_size=0.05, noise_std=0.01)
    >>> print(exact.worst(run))
    drifting-quadratics(): epsilon >= 4.3391 at delta = 1e-05; certified 4.3392, ratio 1.0000
    """
    if not isinstance(run, TrainingRun):
        raise InvalidType("run", run, must_be="a TrainingRun")
    require_plain_steps(run, "an exact audit")
    target = _check.number("delta", delta, above=0.0, below=1.0)
    budget = _check.count("tries", tries, at_least=1)
    asked = list(FAMILIES) if family is None else [family] if isinstance(family, str) else family
    chosen = [FAMILIES[_check.choice("family", id_, among=tuple(FAMILIES))] for id_ in asked]
    unmet = {one.id: one.unmet(run) for one in chosen}
    applying = [one for one in chosen if unmet[one.id] is None]
    if not applying:
        raise NoInstanceApplies(run, {id_: str(reason) for id_, reason in unmet.items()})
    certified = account(run).epsilon(target)
    found = [_worst_of(run, one, target, budget) for one in applying]
    epsilon, best, parameters, lower = max(found, key=lambda one: one[0])
    return WorstInstance(run, best.id, parameters, target, epsilon, certified, lower)


def _worst_of(
    run: TrainingRun, family: Family, delta: float, tries: int
) -> tuple[float, Family, Parameters, LowerProfile]:
    """The member of a family with the largest epsilon, by scattered starts, then Nelder-Mead."""
    spans = family.spans(run)
    lows, highs = (np.array([span[end] for span in spans.values()]) for end in (0, 1))
    best: list[tuple[float, Family, Parameters, LowerProfile]] = []

    def loss(point: Array) -> float:
        values = lows + np.clip(point, 0.0, 1.0) * (highs - lows)
        parameters = dict(zip(spans, values.tolist(), strict=True))
        try:
            lower = family.lower(run, parameters)
        except NumericalFailure:
            return 0.0
        epsilon = lower.epsilon(delta)
        if not best or epsilon > best[0][0]:
            best[:] = [(epsilon, family, parameters, lower)]
        return -epsilon

    if not spans:
        loss(np.zeros(0))
    else:
        starts = _starting_points(len(spans), max(tries // 2, 1))
        losses = [loss(point) for point in starts]
        first = starts[int(np.argmin(losses))]
        simplex = np.vstack([first, first + np.diag(np.where(first < 0.5, 0.2, -0.2))])
        if tries > len(starts):
            minimize(
                loss,
                first,
                method="Nelder-Mead",
                options={"maxfev": tries - len(starts), "initial_simplex": simplex},
            )
    if not best:
        raise NumericalFailure(f"no member of {family.id} could be computed for this run.")
    return best[0]


def _starting_points(dimension: int, count: int) -> list[Array]:
    """The corners first, as far as they go, then evenly spread points (Kronecker's sequence)."""
    corners = [
        np.array([(number >> axis) & 1 for axis in range(dimension)], dtype=float)
        for number in range(min(2**dimension, (count + 1) // 2))
    ]
    ratio = 2.0
    for _ in range(50):  # the root of x^(d+1) = x + 1
        ratio = (1.0 + ratio) ** (1.0 / (dimension + 1))
    steps = ratio ** -np.arange(1.0, dimension + 1)
    inside = [(0.5 + number * steps) % 1.0 for number in range(count - len(corners))]
    return corners + inside


class Family(ABC):
    """Instances of a run, indexed by parameters in a box."""

    id: str
    says: str

    @abstractmethod
    def unmet(self, run: TrainingRun) -> str | None:
        """Why no member is known to obey the run's description; None if some do."""

    @abstractmethod
    def spans(self, run: TrainingRun) -> Spans:
        """The range of each parameter."""

    @abstractmethod
    def pair(self, run: TrainingRun, parameters: Parameters) -> Pair:
        """One member."""

    @abstractmethod
    def lower(self, run: TrainingRun, parameters: Parameters) -> LowerProfile:
        """The lower bounds from the member with these parameters."""


class Quadratics(Family):
    """Losses of the same curvature everywhere: Gaussian autoregressions, of any length.

    Seen from the iterate that has no noise in the first world, where all are alike.
    """

    id = "quadratics"
    says = "all losses have the same curvature; linear losses where gradients are bounded"

    def unmet(self, run: TrainingRun) -> str | None:
        may = admitted(run)
        if not may.has_instances:
            return _NO_LINEAR
        return None if may.domain is None else f"no projection; found {run.domain}"

    def spans(self, run: TrainingRun) -> Spans:
        may = admitted(run)
        if not may.is_free or may.has_one_curvature:
            return {}
        return {"bend": (0.0, 1.0)}

    def slopes(self, run: TrainingRun, parameters: Parameters) -> Array:
        may = admitted(run)
        if not may.is_free:
            return may.plain
        bend = parameters.get("bend", 0.0)
        slopes = np.asarray((1.0 - bend) * may.steepest + bend * may.gentlest)
        # A loss of several curvatures may bend on the way, so that no participations cancel.
        return slopes if may.has_one_curvature else np.abs(slopes)

    def pair(self, run: TrainingRun, parameters: Parameters) -> Pair:
        may, slopes = admitted(run), self.slopes(run, parameters)
        steps = drifting.drifting_steps(slopes, may)
        return Pair(0.0, steps, participation(run), run.release_noise_std)

    def lower(self, run: TrainingRun, parameters: Parameters) -> LowerProfile:
        may, slopes = admitted(run), self.slopes(run, parameters)
        return autoregression_lower_profile(
            slopes,
            may.shifts,
            may.noise_stds,
            run.release_noise_std,
            participation(run),
            may.moves_alone()[::-1],
        )


class DriftingQuadratics(Quadratics):
    """Each step at a point of its own, with the curvature that exposes most."""

    id = "drifting-quadratics"
    says = "iterates travel past curvatures that vary; exact for a fixed order if eta M >= 1"

    def unmet(self, run: TrainingRun) -> str | None:
        may = admitted(run)
        if not may.is_free:
            return "no projection and no bound on gradients"
        return "curvatures that vary" if may.has_one_curvature else None

    def spans(self, run: TrainingRun) -> Spans:
        if not participation(run).by_chance:
            return {}
        return {"late": (0.0, 1.0), "fade": (0.0, 1.0)}

    def slopes(self, run: TrainingRun, parameters: Parameters) -> Array:
        seen = participation(run).expected(run.steps)
        if "late" in parameters:
            # Telling the last steps apart is worth more than their share in the sum.
            period = 1.0 / max(float(seen.mean()), 1.0 / run.steps)
            age = np.arange(run.steps - 1.0, -1.0, -1.0)
            fading = np.exp(-age / (0.02 + parameters["fade"] * period))
            seen = seen + parameters["late"] ** 3 * (1.0 - seen) * fading
        return drifting.exposing_slopes(admitted(run), seen, run.release_noise_std)


class PiecewiseLinearMaps(Family):
    """Two slopes: one near a centre, another beyond, on a line or an interval; by the grid."""

    id = "piecewise-linear"
    says = "one slope near the centre, another beyond; the way of all may be pushed to one side"

    def unmet(self, run: TrainingRun) -> str | None:
        may = admitted(run)
        if may.is_free:
            return "a bounded domain or bounded gradients; elsewhere quadratics tell more"
        if not may.has_instances:
            return _NO_LINEAR
        if not may.noise_stds.min() > 0.0:
            return "noise in every step"
        most = _MAX_GRID_STEPS * (1 if may.domain is None else 20)
        return None if run.steps <= most else f"at most {most} steps"

    def spans(self, run: TrainingRun) -> Spans:
        may = admitted(run)
        spans: dict[str, tuple[float, float]] = {}
        if not may.has_one_curvature:
            spans |= {"inner": (0.0, 1.0), "outer": (0.0, 1.0), "width": (0.0, 1.0)}
        if may.drift > 0.0:
            spans |= {"push": (-1.0, 1.0)}
        if may.domain is not None:
            spans |= {"start": (-1.0, 1.0)}
        return spans

    def pair(self, run: TrainingRun, parameters: Parameters) -> Pair:
        may = admitted(run)
        made: dict[tuple[float, ...], Step] = {}
        steps = []
        for k in range(run.steps):
            key = (may.step_sizes[k], may.noise_stds[k])
            if key not in made:
                made[key] = _bent_step(may, k, parameters)
            steps.append(made[key])
        low, high = may.domain or (0.0, 0.0)
        start = (low + high) / 2.0 + parameters.get("start", 0.0) * (high - low) / 2.0
        return Pair(start, steps, participation(run), run.release_noise_std)

    def lower(self, run: TrainingRun, parameters: Parameters) -> LowerProfile:
        return ExactCurve(last_laws(self.pair(run, parameters), width=2.5)).lower


class LinearLosses(PiecewiseLinearMaps):
    """Linear losses (and the regulariser), on an interval: Altschuler and Talwar, section 4."""

    id = "linear-losses"
    says = "linear losses on an interval"

    def unmet(self, run: TrainingRun) -> str | None:
        may = admitted(run)
        if may.domain is None:
            return "a bounded domain; elsewhere linear losses are among the quadratics"
        if not np.all(may.plain <= may.steepest):
            return _NO_LINEAR
        return super().unmet(run)

    def spans(self, run: TrainingRun) -> Spans:
        spans = super().spans(run)
        return {name: spans[name] for name in ("push", "start") if name in spans}


def _bent_step(may: Admitted, k: int, parameters: Parameters) -> Step:
    eta, noise, plain = may.step_sizes[k], float(may.noise_stds[k]), float(may.plain[k])

    def slope(name: str) -> float:
        share = parameters.get(name)
        if share is None:
            return plain if may.gentlest[k] <= plain <= may.steepest[k] else float(may.steepest[k])
        return float(share * may.gentlest[k] + (1.0 - share) * may.steepest[k])

    reach = 40.0 * noise if may.domain is None else may.domain[1] - may.domain[0]
    inner, outer = slope("inner"), slope("outer")
    half = max(parameters.get("width", 1.0), 1e-6) * reach
    most = min(may.drift * eta, 4.0 * float(may.shifts[k]) + noise)
    if np.isfinite(may.bound):
        # Beyond its reach a bounded gradient is constant, and then only the regulariser bends.
        outer, curvature = plain, abs(plain - inner) / eta
        if curvature > 0.0:
            half, most = min(half, may.bound / curvature), 0.0
    push = parameters.get("push", 0.0) * most
    still = bent(inner, outer, half).shifted(push)
    inside, outside = (plain + may.share * (one - plain) for one in (inner, outer))
    taken = bent(inside, outside, half).shifted(push + may.own_move(k, push))
    return Step(still, (taken, taken.shifted(float(may.shifts[k]))), noise, may.domain)


FAMILIES: Mapping[str, Family] = {
    family.id: family
    for family in (Quadratics(), DriftingQuadratics(), LinearLosses(), PiecewiseLinearMaps())
}


def quadratics(found: Unlearning) -> Pair:
    """The exact instance of an unlearning: trained and then unlearned, against never seen.

    Only what was done is looked at, not what is certified of it.  Losses have no curvature but the
    penalty's, so that the laws are known exactly.  The removed examples all pull one way, and
    are together in the last batch of every epoch.
    """
    run, extra = found.run, found.extra
    wait = run.batches.batches_per_epoch if run.batches.exact_size else 1
    seen = set(range(run.steps - 1, -1, -wait))
    steps = []
    for k in range(run.steps):
        size = _value_at(run.step_size, k)
        apart = found.examples * size * run.sensitivity / run.batches.batch_size
        one = linear(1.0 - size * run.loss.regulariser)
        moved = linear(1.0 - size * run.loss.regulariser, offset=apart if k in seen else 0.0)
        steps.append(Step(one, (one, moved), size * _value_at(run.noise_std, k)))
    if found.extra_steps == 0:
        return Pair(0.0, steps, release_noise_std=run.release_noise_std)
    if run.release_noise_std > 0.0:
        steps.append(Step(IDENTITY, (IDENTITY, IDENTITY), run.release_noise_std))
    size = _value_at(extra.step_size, 0)
    one = linear(1.0 - size * extra.loss.regulariser)
    steps += [Step(one, (one, one), size * _value_at(extra.noise_std, 0))] * found.extra_steps
    return Pair(0.0, steps, release_noise_std=extra.release_noise_std)


def _value_at(schedule: Schedule, step: int) -> float:
    return schedule[step] if isinstance(schedule, tuple) else schedule
