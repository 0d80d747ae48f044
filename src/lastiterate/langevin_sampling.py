r"""Private draws from a density: a Langevin chain, its guarantee, and those of its limits.

A chain x' = x - eta grad F(x) + N(0, 2 eta) is full-batch descent on one loss with noise
sigma = sqrt(2/eta).  F and F', of adjacent data sets, are convex and smooth, and F - F' is
L-Lipschitz: L is the sensitivity of this library.  (Where the source asks that F and F' be
L_BSA-Lipschitz each, L = 2 L_BSA.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from lastiterate import _check
from lastiterate._numerics.rounding import Array, at_least
from lastiterate._progress import track
from lastiterate.accounting import PrivacyReport, account
from lastiterate.bounds import quantities
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.profile.best import BestProfile
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.profile.renyi import PureProfile
from lastiterate.run.batch_rules.ordered import FullBatch
from lastiterate.run.loss import Loss
from lastiterate.run.optimizer import require_plain_steps
from lastiterate.run.training_run import Ball, Domain, TrainingRun, Unbounded
from lastiterate.train.noise import BITS, project, randomness

_NO_LAW = "above 0 on an unbounded domain: there is no law to draw from otherwise"


@dataclass(frozen=True)
class LangevinChain:
    """A Langevin chain, the guarantee of its last point, and the means to run it.

    Parameters
    ----------
    run : TrainingRun
        The chain as full-batch descent.

    Examples
    --------
    >>> from lastiterate import langevin
    >>> chain = langevin(smoothness=1.0, strong_convexity=1.0, sensitivity=0.5, step_size=0.1,
    ...                  steps=200)
    >>> chain.privacy.epsilon(1e-5) < chain.exponential_mechanism.epsilon(1e-5)
    True
    """

    run: TrainingRun

    @cached_property
    def privacy(self) -> PrivacyReport:
        """The report of one draw; several draws compose."""
        return account(self.run)

    @property
    def stationary(self) -> PrivacyProfile:
        """The guarantee however long the chain runs."""
        return stationary_profile(self.run)

    @property
    def exponential_mechanism(self) -> PrivacyProfile:
        """The guarantee of an exact draw, to which short steps tend."""
        return exponential_mechanism_profile(
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
            For tests: anyone who knows it can undo the noise.  Without it noise is drawn as in
            training, from a secure generator, which needs the extra `sklearn`.

        Returns
        -------
        array
            Its distance from the start is on a grid far below the noise, as trained models are.
            What rounds inside `gradient` is not accounted for.

        Raises
        ------
        InvalidParameter, InvalidType
            If `gradient` is no function or returns another shape or values that are not finite.

        Examples
        --------
        >>> from lastiterate import langevin
        >>> chain = langevin(smoothness=1.0, sensitivity=0.5, step_size=0.1, steps=20)
        >>> chain.sample(lambda x: x, start=[0.0, 0.0], random_state=0).shape
        (2,)
        """
        if not callable(gradient):
            raise InvalidType("gradient", gradient, must_be="a function of the point")
        centre = np.atleast_1d(np.asarray(start, dtype=np.float64))
        if not np.all(np.isfinite(centre)):
            raise InvalidParameter("start", start, must_be="an array of finite numbers")
        source = randomness(random_state)
        eta = float(np.max(self.run.step_size))
        noise = math.sqrt(2.0 * eta)
        away = np.zeros_like(centre)
        unit = noise * 2.0**-BITS
        for _ in track("sampling", range(self.run.steps)):
            slope = _finite_gradient(gradient(centre + away), centre.shape)
            # On the grid of the noise, of which the floor is added, as in training.
            drawn = source.rounded_normals(centre.shape, BITS)
            whole = np.rint((away - eta * slope) / unit) + drawn
            away = np.asarray(unit * whole, dtype=np.float64)
            project(away, self.run.domain)
        return np.asarray(centre + away)


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
    smoothness : float
        Of F, whatever the data are.
    strong_convexity : float
        The same.
    sensitivity : float
        The largest |grad F(x) - grad F'(x)| over adjacent data sets: for a sum of losses with
        gradients of norm at most C it is 2 C.
    step_size : float
        Of the chain.
    steps : int
        How many the chain takes.
    domain : Unbounded or Ball
        With `Ball` the density is restricted to a ball of that diameter around the start.

    Returns
    -------
    LangevinChain
        The chain, with its guarantee and the means to run it.

    Raises
    ------
    InvalidParameter, InvalidType
        If an argument is out of range; a step size must be at most 2/smoothness.

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


def _finite_gradient(slope: ArrayLike, shape: tuple[int, ...]) -> Array:
    """A gradient of the private density, whose values no message may show."""
    array = np.asarray(slope, dtype=np.float64)
    if array.shape == shape and np.all(np.isfinite(array)):
        return array
    shaped = array.shape == shape
    found = "a number that is not finite" if shaped else f"one of shape {array.shape}"
    must_be = f"finite and of shape {shape}, as start is"
    raise InvalidParameter("gradient(x)", must_be=must_be, found=found)


def stationary_profile(run: TrainingRun) -> GaussianProfile:
    r"""The guarantee of the law to which the chain tends as it runs for ever.

    **Bound.** :math:`\mu^2 = \frac{1+c}{1-c}\frac{\eta L^2}{2}`, which is
    :math:`\frac{2-\eta m}{2}\frac{L^2}{m}` for :math:`\eta \le 2/(M+m)`; on a domain of diameter D
    also :math:`2LD + \eta L^2/2`.

    **Holds when.** F is m-strongly convex or the domain bounded, and no step exceeds 2/M.

    **Tight.** The first exactly, for quadratics.

    **Source.** Bok, Su and Altschuler 2024, Proposition 5.1, Corollaries 5.2 and 5.4.

    **Computed as** printed; rounded up.
    """
    require_plain_steps(run, "Langevin sampling")
    eta, L, gap = quantities.unit(run), run.sensitivity, quantities.constant_gap(run)
    squares = [] if not gap > 0.0 else [(2.0 - gap) / gap * eta * L * L / 2.0]
    if isinstance(run.domain, Ball):
        squares.append(2.0 * L * run.domain.diameter + eta * L * L / 2.0)
    if not squares:
        raise InvalidParameter("strong_convexity", run.loss.strong_convexity, must_be=_NO_LAW)
    return GaussianProfile(at_least(math.sqrt(min(squares)), ulps=16))


def exponential_mechanism_profile(
    *, sensitivity: float, strong_convexity: float, domain: Domain
) -> PrivacyProfile:
    r"""The guarantee of one exact draw from the density proportional to e^-F, on the domain.

    **Bound.** :math:`\mu = L/\sqrt m`; on a domain of diameter D also :math:`\sqrt{2LD}`, and
    (LD, 0)-DP, which is the better while LD < 1.353.

    **Holds when.** F is m-strongly convex, or convex on a bounded domain; L-Lipschitz differences.

    **Tight.** The first exactly, for quadratics.

    **Source.** Bok, Su and Altschuler 2024, Corollaries 5.2 and 5.4, section D.4; McSherry and
    Talwar 2007.

    **Computed as** printed; rounded up.
    """
    profiles: list[PrivacyProfile] = []
    if strong_convexity > 0.0:
        mu = sensitivity / math.sqrt(strong_convexity)
        profiles.append(GaussianProfile(at_least(mu, ulps=8)))
    if isinstance(domain, Ball):
        reach = at_least(sensitivity * domain.diameter, ulps=4)
        profiles += [GaussianProfile(at_least(math.sqrt(2.0 * reach), ulps=8)), PureProfile(reach)]
    if not profiles:
        raise InvalidParameter("strong_convexity", strong_convexity, must_be=_NO_LAW)
    return profiles[0] if len(profiles) == 1 else BestProfile(profiles)
