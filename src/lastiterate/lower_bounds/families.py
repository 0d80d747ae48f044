"""Families of instances that a run's description admits, each with a few free parameters."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np

from lastiterate._numerics.rounding import Array
from lastiterate.lower_bounds import drifting
from lastiterate.lower_bounds.admitted_maps import Admitted, admitted
from lastiterate.lower_bounds.exact_curve import ExactCurve
from lastiterate.lower_bounds.line_grid import last_laws
from lastiterate.lower_bounds.line_maps import bent
from lastiterate.lower_bounds.line_pair import Pair, Step
from lastiterate.lower_bounds.participation import participation
from lastiterate.lower_bounds.quadratics import autoregression_lower_profile
from lastiterate.profile.lower import LowerProfile
from lastiterate.run.training_run import TrainingRun

Parameters = Mapping[str, float]
Spans = Mapping[str, tuple[float, float]]

_MOST_GRID_STEPS = 600
_NO_LINEAR = "losses that may be linear, but for the regulariser"


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
        most = _MOST_GRID_STEPS * (1 if may.domain is None else 20)
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
