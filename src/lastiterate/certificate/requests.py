"""What a training and the requests that followed it promise: to those who went, and who stay.

Every request removes some examples and takes extra steps from what was published last, with the
step size, the noise, the batches and the noise on release of the training, in a new order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from lastiterate import _check
from lastiterate._numerics.rounding import at_least
from lastiterate.accounting import PrivacyReport, account
from lastiterate.bounds.catalogue import CATALOGUE, QUICKLY_COMPOSED
from lastiterate.errors import InvalidParameter
from lastiterate.forgetting.staying import as_one_run
from lastiterate.forgetting.unlearning import Unlearning, unlearning
from lastiterate.profile.beside_mixture import beside_mixture, together
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.releases import KINDS, Release
from lastiterate.run.batches import Drawn
from lastiterate.run.training_run import TrainingRun
from lastiterate.train.charge import charged_sensitivity
from lastiterate.train.objectives import Objective


@dataclass(frozen=True)
class Request:
    """How many examples went, and how many steps followed."""

    examples: int
    steps: int


@dataclass(frozen=True)
class Requests:
    """A training, what was published besides, and the requests, first to last."""

    run: TrainingRun
    besides: tuple[Release, ...]
    objective: Objective
    radius: float
    done: tuple[Request, ...] = ()

    def followed_by(self, examples: int, steps: int) -> Requests:
        """One more request."""
        return replace(self, done=(*self.done, Request(examples, steps)))

    def planned(self, examples: int, *, epsilon: float, delta: float) -> Unlearning:
        """The next request, with the least steps for a target, but at least one."""
        steps = 0
        while True:
            # Errors of residuals are charged by the number of steps, which they hardly raise.
            found = self._unlearning(
                len(self.done), charged=steps, examples=examples, epsilon=epsilon, delta=delta
            )
            enough = found.extra_steps <= steps or self.objective.residual_error == 0.0
            steps = max(found.extra_steps, steps, 1)
            if enough:
                return self.followed_by(examples, steps).forgotten(len(self.done))

    def forgotten(self, number: int) -> Unlearning:
        """What the request of this number, counted from 0, promised when its model was new."""
        return _forgotten(replace(self, done=self.done[: number + 1]))

    def by_now(self, number: int) -> Unlearning:
        """What it promises of the last model, all later steps having followed."""
        steps = sum(one.steps for one in self.done[number:])
        asked = self.done[number].examples
        return self._unlearning(number, charged=steps, examples=asked, extra_steps=steps)

    @cached_property
    def all_forgotten(self) -> PrivacyProfile:
        """Of the last model, for all who went, together: from one world to the next, mu adds up."""
        mus = [self.by_now(number).gdp() for number in range(len(self.done))]
        return GaussianProfile(at_least(sum(mus), ulps=2.0 * len(mus)))

    def extra(self, steps: int) -> TrainingRun:
        """So many extra steps, as a run that begins with what was published."""
        run = self.run.replace(steps=_check.count("extra_steps", steps, at_least=1))
        charged = charged_sensitivity(run, self.objective, radius=self.radius)
        return run.replace(sensitivity=max(run.sensitivity, charged))

    @property
    def staying(self) -> PrivacyReport:
        """Of those who stay: of all models that were published, together."""
        return _staying(self)

    def _unlearning(
        self,
        number: int,
        *,
        charged: int,
        examples: int,
        extra_steps: int | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
    ) -> Unlearning:
        before = self.done[:number]
        return unlearning(
            self._together(self._leaving(charged + sum(one.steps for one in before)), before),
            examples=examples,
            extra_steps=extra_steps,
            epsilon=epsilon,
            delta=delta,
            batches=self.run.batches,
            besides=[_left_out(one) for one in self.besides],
        )

    def _leaving(self, extra_steps: int) -> TrainingRun:
        """The training, for those whose gradients are 0 instead."""
        exact = self.objective.sensitivity(radius=self.radius, adjacency="zero-out")
        run = self.run.replace(adjacency="zero-out", sensitivity=exact, examples_per_person=1)
        charged = charged_sensitivity(
            run, self.objective, radius=self.radius, extra_steps=extra_steps
        )
        return run.replace(sensitivity=charged)

    def _together(self, run: TrainingRun, requests: Sequence[Request]) -> TrainingRun:
        """The training and the extra steps of these, as one run of somebody who is in all."""
        if not self.run.batches.exact_size:
            raise not_offered(self.run)
        for one in requests:
            extra = run.replace(batches=self.run.batches, steps=one.steps)
            found = as_one_run(run, extra, order_kept=False)
            if not found:
                raise not_offered(self.run)
            (run,) = found
        return run


@lru_cache(maxsize=8)
def _forgotten(requests: Requests) -> Unlearning:
    asked, last = requests.done[-1], len(requests.done) - 1
    return requests._unlearning(
        last, charged=asked.steps, examples=asked.examples, extra_steps=asked.steps
    )


@lru_cache(maxsize=8)
def _trained(run: TrainingRun, besides: tuple[Release, ...]) -> PrivacyReport:
    return replace(account(run, bounds=_quick(run), besides=besides), enforced=True)


@lru_cache(maxsize=8)
def _staying(requests: Requests) -> PrivacyReport:
    """Orders are drawn anew, so that the models compose; of each chance decides who is seen."""
    first = _trained(requests.run, requests.besides)
    if not requests.done:
        return first
    more = together(_given_the_order(requests.extra(one.steps)) for one in requests.done)
    steps = sum(one.steps for one in requests.done)
    every = {id_: beside_mixture(profile, more) for id_, profile in first.used.items()}
    return replace(first, all=every, followed=(steps, len(requests.done)))


@lru_cache(maxsize=64)  # many requests take as many steps
def _given_the_order(extra: TrainingRun) -> PrivacyProfile:
    """As a law of mu, where chance decides in which batch an example is, and that is revealed."""
    for id_ in ("random-order/shuffled-once", "random-order/shuffled-each-epoch"):
        bound = CATALOGUE[id_]
        if not bound.unmet(extra):
            return bound.guarantee(extra)
    return account(extra)


def _quick(run: TrainingRun) -> list[str] | None:
    """Bounds that are quick beside others; the rest is hardly better there."""
    return QUICKLY_COMPOSED if run.batches.drawn in (Drawn.ONCE, Drawn.EACH_EPOCH) else None


def not_offered(run: TrainingRun) -> InvalidParameter:
    """Where those who stay would have no guarantee of the last model alone."""
    must_be = "a rule with batches of one size, to unlearn; otherwise train again"
    return InvalidParameter("batches", run.batches.name, must_be=must_be)


def _left_out(release: Release) -> Release:
    """The same noise, for an example that is left out."""
    least = at_least(KINDS[release.kind].sensitivity("zero-out"), ulps=1.0)
    return Release(release.kind, least, release.noise_std)
