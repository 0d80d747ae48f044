"""The budget of a ledger, the guarantee of what is spent, and what would still fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from lastiterate._display import down, up
from lastiterate._numerics.rounding import FEW_ROUNDINGS, MILLIONS_OF_ROUNDINGS
from lastiterate._numerics.rounding import down as less
from lastiterate._numerics.rounding import up as more
from lastiterate._numerics.search import least_true
from lastiterate.errors import BudgetExceeded, InvalidParameter
from lastiterate.ledger.costs import Cost, composed, with_failures
from lastiterate.ledger.entries import LedgerState
from lastiterate.profile.compose_with_gaussian import compose_with_gaussian
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.profile.privacy_profile import PrivacyProfile
from lastiterate.profile.rounded import gdp_but_for_failure

_NEARLY_ALL = 1e-3


@dataclass(frozen=True)
class Budget:
    """The budget of the ledger at `where`."""

    where: str
    epsilon: float
    delta: float
    adaptive: bool

    def spent(self, costs: Sequence[Cost]) -> PrivacyProfile:
        """The guarantee of all of these together."""
        return composed(costs, adaptive=self.adaptive) if costs else GaussianProfile(0.0)

    def guarantee(self, state: LedgerState) -> PrivacyProfile:
        """The proved guarantee of all charges together.

        Where costs depend on results, what is spent is itself a result.  What holds is the most
        that could have been spent, whatever the results: the budget, and with it all that was added
        without asking it when others had been charged (docs/ledger.md).
        """
        if not self.adaptive:
            return self.spent(state.costs())
        before, late, chosen = state.by_time()
        if not (before or late or chosen):
            return GaussianProfile(0.0)
        most = self._most_mu()
        if not gdp_but_for_failure(self.spent(chosen)) <= most:
            return GaussianProfile(math.inf)
        first = max(most, gdp_but_for_failure(self.spent(before)))
        together = math.hypot(first, gdp_but_for_failure(self.spent(late)))
        whole = GaussianProfile(more(together, FEW_ROUNDINGS) if late else first)
        every = [*before, *late, *chosen]
        return with_failures(whole, [one["times"] * one.get("failure", 0.0) for one in every])

    def guaranteed_epsilon(self, state: LedgerState) -> float:
        """Epsilon of the guarantee at the budget's delta."""
        epsilon = self.guarantee(state).epsilon(self.delta)
        before, late, _ = state.by_time()
        if not self.adaptive or late or self.spent(before).epsilon(self.delta) > self.epsilon:
            return epsilon
        # What the budget let through has no more than its epsilon, by that very test.
        return min(epsilon, self.epsilon) if math.isfinite(epsilon) else epsilon

    def _most_mu(self) -> float:
        """No charge that was let through made it more."""

        def too_much(mu: float) -> bool:
            return not GaussianProfile(mu).epsilon(self.delta) <= self.epsilon

        mu = least_true(too_much, 0.0, 2.0 * self.epsilon + 10.0)
        return more(mu, MILLIONS_OF_ROUNDINGS)

    def alone(self, costs: Sequence[Cost]) -> float | None:
        """The epsilon of one charge; None if it has none at this delta."""
        epsilon = self.spent(costs).epsilon(self.delta)
        return epsilon if math.isfinite(epsilon) else None

    def check(
        self, state: LedgerState, more: Sequence[Cost], about: str, *, force: bool = False
    ) -> None:
        """Refuse what there is no room for, unless it was published already.

        The composition so far tells in most cases; all costs are composed again where it says that
        nearly nothing would be left, so that what is refused does not depend on how it was kept.
        """
        if self.adaptive and any(cost["mu"] is None for cost in more):
            must_be = "one with a Gaussian guarantee (mu), as an adaptive ledger counts no other"
            raise InvalidParameter("release", about, must_be=must_be)
        if force:
            return
        quickly = state.running.composed(more, adaptive=self.adaptive).epsilon(self.delta)
        if quickly <= self.epsilon * (1.0 - _NEARLY_ALL):
            return
        before = state.costs()
        together = self.spent([*before, *more]).epsilon(self.delta)
        if together <= self.epsilon:
            return
        spent = self.spent(before).epsilon(self.delta)
        if self._for_want_of_delta(before, more):
            raise BudgetExceeded(
                f"{self.where} has delta {self.delta:g} for all releases together, which that of "
                f"{about or 'this'} uses up. Nothing was charged. State a smaller --delta for it, "
                f"such as {self.delta / 100.0:.0e}, or open the ledger with a larger one."
            )
        raise BudgetExceeded(
            f"{self.where} has epsilon {self.epsilon:g} at delta {self.delta:g}, of which "
            f"{up(spent)} is spent; {about or 'this'} would make it {up(together)}. Nothing was "
            f"charged. A release of epsilon {down(self.largest_epsilon(before))} would fit."
        )

    def _for_want_of_delta(self, before: Sequence[Cost], more: Sequence[Cost]) -> bool:
        """Whether the same costs without their own delta would fit."""
        if not any(cost.get("delta", 0.0) > 0.0 for cost in more):
            return False
        freed: list[Cost] = [{**cost, "delta": 0.0} for cost in more]
        return self.spent([*before, *freed]).epsilon(self.delta) <= self.epsilon

    def largest_epsilon(self, costs: Sequence[Cost]) -> float:
        """Epsilon of the most costly Gaussian release that fits beside these; 0 if none does."""
        spent = self.spent(costs)

        def too_much(mu: float) -> bool:
            return not compose_with_gaussian(spent, mu).epsilon(self.delta) <= self.epsilon

        if too_much(0.0):
            return 0.0
        mu = least_true(too_much, 0.0, 2.0 * self.epsilon + 10.0)
        return GaussianProfile(less(mu, MILLIONS_OF_ROUNDINGS)).epsilon(self.delta)
