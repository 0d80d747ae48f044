"""What may be spent, what is, and what would still fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lastiterate._digits import down, up
from lastiterate._numerics.rounding import MILLIONS_OF_ROUNDINGS
from lastiterate._numerics.rounding import down as less
from lastiterate._numerics.search import least_true
from lastiterate.errors import BudgetExceeded, InvalidParameter
from lastiterate.ledger.costs import Cost, composed
from lastiterate.profile.beside_gaussian import beside_gaussian
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.profile.profile import PrivacyProfile


@dataclass(frozen=True)
class Budget:
    """Of the ledger at this place."""

    where: str
    epsilon: float
    delta: float
    adaptive: bool

    def spent(self, costs: Sequence[Cost]) -> PrivacyProfile:
        """The guarantee of all of these together."""
        return composed(costs, adaptive=self.adaptive) if costs else GaussianProfile(0.0)

    def alone(self, costs: Sequence[Cost]) -> float | None:
        """The epsilon of one charge; None if it has none at this delta."""
        epsilon = self.spent(costs).epsilon(self.delta)
        return epsilon if math.isfinite(epsilon) else None

    def check(
        self, before: Sequence[Cost], more: Sequence[Cost], about: str, *, force: bool = False
    ) -> None:
        """Refuse what there is no room for, unless it was published already."""
        if self.adaptive and any(cost["mu"] is None for cost in more):
            must_be = "one with a Gaussian guarantee (mu), as an adaptive ledger counts no other"
            raise InvalidParameter("release", about, must_be=must_be)
        together = self.spent([*before, *more]).epsilon(self.delta)
        if together <= self.epsilon or force:
            return
        spent = self.spent(before).epsilon(self.delta)
        raise BudgetExceeded(
            f"{self.where} has epsilon {self.epsilon:g} at delta {self.delta:g}, of which "
            f"{up(spent)} is spent; {about or 'this'} would make it {up(together)}. Nothing was "
            f"charged. A release of epsilon {down(self.largest_epsilon(before))} would fit."
        )

    def largest_epsilon(self, costs: Sequence[Cost]) -> float:
        """Of the most costly Gaussian release that fits beside these."""
        spent = self.spent(costs)

        def too_much(mu: float) -> bool:
            return not beside_gaussian(spent, mu).epsilon(self.delta) <= self.epsilon

        if too_much(0.0):
            return 0.0
        mu = least_true(too_much, 0.0, 2.0 * self.epsilon + 10.0)
        return GaussianProfile(less(mu, MILLIONS_OF_ROUNDINGS)).epsilon(self.delta)
