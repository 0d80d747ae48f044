"""Exact privacy of one-dimensional instances: what a guarantee has to survive.

>>> from lastiterate.audit import exact
>>> from lastiterate.lower_bounds.line_maps import linear
>>> one = exact.Step(linear(1.0), (linear(1.0), linear(1.0, offset=1.0)), noise_std=1.0)
>>> curve = exact.curve(exact.Pair(0.0, [one]))
>>> round(curve.epsilon(1e-5).lower, 4), curve.delta(1.0).error < 1e-12
(4.3772, True)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from lastiterate import _check
from lastiterate._display import down, up
from lastiterate._numerics.rounding import Array
from lastiterate.accounting import account
from lastiterate.errors import InvalidType, NoInstanceApplies, NumericalFailure
from lastiterate.lower_bounds.exact_curve import Bracket, ExactCurve
from lastiterate.lower_bounds.families import FAMILIES, Family, Parameters
from lastiterate.lower_bounds.line_grid import last_laws
from lastiterate.lower_bounds.line_pair import Pair, Step
from lastiterate.profile.lower import LowerProfile
from lastiterate.run.optimizer import require_plain_steps
from lastiterate.run.training_run import TrainingRun

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
        """How far the certificate is above the instance; inf if that tells nothing."""
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
        starts = _scattered(len(spans), max(tries // 2, 1))
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


def _scattered(dimension: int, count: int) -> list[Array]:
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
