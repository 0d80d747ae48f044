r"""Private draws from a density: a Langevin chain and the guarantee of its last point."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from lastiterate import _check
from lastiterate._numerics.arrays import Array
from lastiterate.accounting import PrivacyReport, account
from lastiterate.bounds import langevin as bounds
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.run.batches import FullBatch
from lastiterate.run.domain import Ball, Domain, Unbounded
from lastiterate.run.loss import Loss
from lastiterate.run.training_run import TrainingRun


@dataclass(frozen=True)
class LangevinChain:
    """A chain, the guarantee of its last point, and the means to run it."""

    run: TrainingRun

    @cached_property
    def privacy(self) -> PrivacyReport:
        """The report of one draw; several draws compose."""
        return account(self.run)

    @property
    def stationary(self) -> PrivacyProfile:
        """The guarantee however long the chain runs."""
        return bounds.stationary(self.run)

    @property
    def exponential_mechanism(self) -> PrivacyProfile:
        """The guarantee of an exact draw, to which short steps tend."""
        return bounds.exponential_mechanism(
            sensitivity=self.run.sensitivity,
            strong_convexity=self.run.loss.strong_convexity,
            domain=self.run.domain,
        )

    def sample(
        self,
        gradient: Callable[[Array], ArrayLike],
        start: ArrayLike,
        *,
        random_state: int | None = None,
    ) -> Array:
        """The last point of one chain.

        Parameters
        ----------
        gradient : function
            x -> grad F(x), minus the gradient of the log-density.
        start : array
            Where the chain begins; it must not depend on the data.  The domain is the ball of the
            stated diameter around it.
        random_state : int, optional
            For tests: anyone who knows it can undo the noise.  Without it noise comes from the
            operating system.
        """
        if not callable(gradient):
            raise InvalidType("gradient", gradient, must_be="a function of the point")
        centre = np.atleast_1d(np.asarray(start, dtype=np.float64))
        if not np.all(np.isfinite(centre)):
            raise InvalidParameter("start", start, must_be="an array of finite numbers")
        normal = _secure_normal if random_state is None else _seeded_normal(random_state)
        eta = float(np.max(self.run.step_size))
        point = centre.copy()
        for _ in range(self.run.steps):
            slope = np.asarray(gradient(point), dtype=np.float64)
            if slope.shape != centre.shape or not np.all(np.isfinite(slope)):
                must_be = f"finite and of shape {centre.shape}, as start is"
                raise InvalidParameter("gradient(x)", slope, must_be=must_be)
            moved = point - eta * slope + math.sqrt(2.0 * eta) * normal(centre.shape)
            point = _projected(moved, centre, self.run.domain)
        return point


def langevin(
    *,
    smoothness: float,
    sensitivity: float,
    step_size: float,
    steps: int,
    strong_convexity: float = 0.0,
    domain: Domain | None = None,
) -> LangevinChain:
    """A chain x' = x - step_size grad F(x) + N(0, 2 step_size), projected onto the domain.

    It draws, nearly, from the density proportional to e^-F.

    Parameters
    ----------
    smoothness, strong_convexity : float
        Of F, whatever the data are.
    sensitivity : float
        The largest |grad F(x) - grad F'(x)| over adjacent data sets: for a sum of losses with
        gradients of norm at most C it is 2 C.
    step_size, steps : float, int
        Of the chain.
    domain : Unbounded or Ball
        With `Ball` the density is restricted to a ball of that diameter around the start.

    Examples
    --------
    >>> chain = langevin(smoothness=1.0, strong_convexity=1.0, sensitivity=0.5, step_size=0.1,
    ...                  steps=200)
    >>> round(chain.privacy.gdp(), 4), round(chain.exponential_mechanism.gdp(), 4)
    (0.4873, 0.5)
    >>> chain.sample(lambda x: x, start=[0.0, 0.0], random_state=0).shape
    (2,)
    """
    eta = _check.number("step_size", step_size, above=0.0)
    loss = Loss(smoothness=smoothness, strong_convexity=strong_convexity)
    assert loss.smoothness is not None
    if not eta * loss.smoothness <= 2.0:
        must_be = f"at most 2/smoothness = {2.0 / loss.smoothness!r}"
        raise InvalidParameter("step_size", step_size, must_be=must_be)
    run = TrainingRun(
        loss=loss,
        sensitivity=sensitivity,
        batches=FullBatch(1),
        steps=steps,
        step_size=eta,
        noise_std=math.sqrt(2.0 / eta),
        domain=Unbounded() if domain is None else domain,
    )
    return LangevinChain(run)


def _projected(point: Array, centre: Array, domain: Domain) -> Array:
    if not isinstance(domain, Ball):
        return point
    away = point - centre
    distance = float(np.linalg.norm(away))
    radius = domain.diameter / 2.0
    return point if distance <= radius else centre + away * (radius / distance)


def _seeded_normal(random_state: int) -> Callable[[tuple[int, ...]], Array]:
    seed = _check.count("random_state", random_state, at_least=0)
    return np.random.default_rng(seed).standard_normal


def _secure_normal(shape: tuple[int, ...]) -> Array:
    """Normal variates from the operating system's generator, by Box and Muller."""
    count = math.prod(shape)
    words = np.frombuffer(os.urandom(16 * count), dtype=np.uint64).reshape(2, count)
    uniform = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
    radius = np.sqrt(-2.0 * np.log(uniform[0]))
    return np.asarray(radius * np.cos(2.0 * math.pi * uniform[1])).reshape(shape)
