"""Guarantees of a training and later unlearning requests, for removed and remaining examples.

Every request removes some examples and takes extra steps from what was published last, with the
step size, the noise and the batches of the training, in a new order, and noise on release that may
be larger.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from lastiterate import _check
from lastiterate._numerics.rounding import at_least
from lastiterate.accounting import PrivacyReport
from lastiterate.errors import InvalidParameter
from lastiterate.other_releases import KINDS, Release
from lastiterate.profile.best import BestProfile
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.profile.privacy_profile import PrivacyProfile
from lastiterate.run.training_run import TrainingRun
from lastiterate.train.objectives import Objective
from lastiterate.train.rounding_sensitivity import charged_sensitivity
from lastiterate.unlearn.retained_examples import Taken, seen_in_all
from lastiterate.unlearn.sequential_releases import in_turn, quick_report
from lastiterate.unlearn.unlearning_plan import unlearning
from lastiterate.unlearn.unlearning_result import Unlearning

_MOST_TIMES = 1e6


@dataclass(frozen=True)
class Request:
    """How many examples went, and the steps that followed."""

    examples: int
    taken: Taken

    @property
    def steps(self) -> int:
        return self.taken.steps


@dataclass(frozen=True)
class Requests:
    """A training, what was published besides, and the requests, first to last."""

    run: TrainingRun
    besides: tuple[Release, ...]
    objective: Objective
    radius: float
    done: tuple[Request, ...] = ()

    def followed_by(self, examples: int, steps: int, release_noise_std: float) -> Requests:
        """One more request."""
        taken = Taken(steps, release_noise_std)
        return replace(self, done=(*self.done, Request(examples, taken)))

    def noise(self, noisier: float) -> float:
        """On release, in multiples of the training's."""
        times = _check.number("noisier", noisier, at_least=1.0, at_most=_MOST_TIMES)
        return times * self.run.release_noise_std

    def planned(self, examples: int, *, epsilon: float, delta: float, noise: float) -> Unlearning:
        """The next request, with the least steps for a target, but at least one."""
        steps = 0
        while True:
            # Errors of residuals are charged by the number of steps, which they hardly raise.
            found = self._unlearning(
                len(self.done), Taken(steps, noise), examples, epsilon=epsilon, delta=delta
            )
            enough = found.extra_steps <= steps or self.objective.residual_error == 0.0
            steps = max(found.extra_steps, steps, 1)
            if enough:
                return self.followed_by(examples, steps, noise).forgotten(len(self.done))

    def forgotten(self, number: int) -> Unlearning:
        """Guarantee of request `number`, counted from 0, for the model that it published."""
        return _forgotten(replace(self, done=self.done[: number + 1]))

    def by_now(self, number: int) -> Unlearning:
        """Guarantee of request `number` for the last model, after all later steps."""
        later = self.done[number:]
        taken = Taken(sum(one.steps for one in later), later[-1].taken.release_noise_std)
        return self._unlearning(number, taken, later[0].examples, extra_steps=taken.steps)

    @cached_property
    def all_forgotten(self) -> PrivacyProfile:
        """Joint guarantee of the last model for all removed examples: the sum of mu, rounded up."""
        mus = [self.by_now(number).gdp() for number in range(len(self.done))]
        return GaussianProfile(at_least(sum(mus), ulps=2.0 * len(mus)))

    def extra(self, taken: Taken) -> TrainingRun:
        """Extra steps, as a run that begins with what was published."""
        steps = _check.count("extra_steps", taken.steps, at_least=1)
        run = self.run.replace(steps=steps, release_noise_std=taken.release_noise_std)
        charged = charged_sensitivity(run, self.objective, radius=self.radius)
        return run.replace(sensitivity=max(run.sensitivity, charged))

    @property
    def staying(self) -> PrivacyReport:
        """Guarantee of all published models together, for the remaining examples."""
        return _staying(self)

    @property
    def newest(self) -> PrivacyProfile:
        """Guarantee for the remaining examples against someone who holds the last model alone."""
        return _newest(self)

    def _unlearning(
        self,
        number: int,
        taken: Taken,
        examples: int,
        *,
        extra_steps: int | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
    ) -> Unlearning:
        before = [one.taken for one in self.done[:number]]
        exact = self.objective.sensitivity(radius=self.radius, adjacency="zero-out")
        run = self.run.replace(adjacency="zero-out", sensitivity=exact, examples_per_person=1)
        return unlearning(
            self._in_all(run, before, [*before, taken]),
            examples=examples,
            extra_steps=extra_steps,
            epsilon=epsilon,
            delta=delta,
            release_noise_std=taken.release_noise_std,
            batches=self.run.batches,
            besides=[_left_out(one) for one in self.besides],
        )

    def _in_all(
        self, run: TrainingRun, before: Sequence[Taken], until: Sequence[Taken]
    ) -> TrainingRun:
        """Training and these steps as one run of somebody who is in all, charged until the end."""
        charged = charged_sensitivity(
            run,
            self.objective,
            radius=self.radius,
            extra_steps=sum(one.steps for one in until),
            released=math.hypot(run.release_noise_std, *(one.release_noise_std for one in until)),
        )
        run = run.replace(sensitivity=max(run.sensitivity, charged))
        whole = seen_in_all(run, before) if self.run.batches.exact_size else None
        if whole is None:
            raise not_offered(self.run)
        return whole


@lru_cache(maxsize=8)
def _forgotten(requests: Requests) -> Unlearning:
    asked, last = requests.done[-1], len(requests.done) - 1
    return requests._unlearning(last, asked.taken, asked.examples, extra_steps=asked.steps)


@lru_cache(maxsize=8)
def _trained(run: TrainingRun, besides: tuple[Release, ...]) -> PrivacyReport:
    return replace(quick_report(run, besides), enforced=True)


@lru_cache(maxsize=8)
def _staying(requests: Requests) -> PrivacyReport:
    first = _trained(requests.run, requests.besides)
    return in_turn(first, [requests.extra(one.taken) for one in requests.done])


@lru_cache(maxsize=8)
def _newest(requests: Requests) -> PrivacyProfile:
    if not requests.done:
        return requests.staying
    taken = [one.taken for one in requests.done]
    run = requests._in_all(requests.run, taken, taken)
    alone = quick_report(run, requests.besides)
    return BestProfile([requests.staying, alone])


def not_offered(run: TrainingRun) -> InvalidParameter:
    """The error for batch rules without a last-model guarantee for the remaining examples."""
    must_be = "a rule with batches of one size, to unlearn; otherwise train again"
    return InvalidParameter("batches", run.batches.name, must_be=must_be)


def _left_out(release: Release) -> Release:
    """A release with the same noise and the sensitivity to leaving one example out, rounded up."""
    least = at_least(KINDS[release.kind].sensitivity("zero-out"), ulps=1.0)
    return Release(release.kind, least, release.noise_std)
