"""Theorems as records: batch rules covered, hypotheses, source, and how to evaluate them.

A `Bound` is an upper bound, a `StagedBound` the least of several that are proved for the same
batches, a `LowerBound` a lower one, and an `Approximation` a limit theorem or a heuristic, which
suggests a number and proves none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial, wraps
from typing import TypeVar

from lastiterate import _check
from lastiterate._display import card
from lastiterate._numerics.search import least_true
from lastiterate.errors import NoBoundApplies, Unmet
from lastiterate.profile.best import BestProfile, LazyProfiles, StagedProfile
from lastiterate.profile.gaussian import GaussianProfile
from lastiterate.profile.group import for_group
from lastiterate.profile.lower import LowerProfile
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.run.batch_rules.base import BatchRule
from lastiterate.run.loss import Gradients
from lastiterate.run.training_run import TrainingRun

Dash = str | tuple[float, tuple[float, ...]]
GREY = "#7a7f87"  # the others are of Okabe and Ito 2008, without black and yellow
BLUE, VERMILLION, GREEN = "#0072b2", "#d55e00", "#009e73"
PURPLE, ORANGE, SKY = "#cc79a7", "#e69f00", "#56b4e9"
DASHES: tuple[Dash, ...] = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
_LARGEST_ESTIMATED_EPSILON = 700.0
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class LineStyle:
    """The colour and dash of a bound, the same in every picture."""

    colour: str
    dash: Dash = "-"


class Certainty(Enum):
    """The direction in which a number may err, and whether that is proved."""

    UPPER = "a proved upper bound, which `account` may use"
    AS_PUBLISHED = "stated by a paper whose proof has a gap; only by name"
    LOWER = "a proved lower bound"


@dataclass(frozen=True)
class Citation:
    """A reference to the work in which a statement is proved."""

    authors: str
    year: int
    title: str
    where: str
    also: Citation | None = None

    @property
    def parts(self) -> tuple[Citation, ...]:
        """The works that are cited, one by one."""
        alone = replace(self, also=None)
        return (alone,) if self.also is None else (alone, *self.also.parts)

    def __str__(self) -> str:
        this = f"{self.authors} ({self.year}), {self.title}, {self.where}"
        return this if self.also is None else f"{this}; {self.also}"


@dataclass(frozen=True)
class Hypothesis:
    """A condition of a theorem; `violation` returns what a run has instead, None if it is met."""

    needs: str
    violation: Callable[[TrainingRun], str | None]
    remedy: str

    def check(self, run: TrainingRun) -> Unmet | None:
        violation = self.violation(run)
        return None if violation is None else Unmet(self.needs, violation, self.remedy)


def _momentum_or_average(run: TrainingRun) -> str | None:
    if run.has_plain_steps:
        return None
    return f"momentum={run.momentum!r}" if run.average is None else f"average={run.average!r}"


PLAIN_STEPS = Hypothesis(
    "plain gradient steps, and their last iterate published: no momentum, no average of iterates",
    _momentum_or_average,
    "see fixed-order/momentum, or train without momentum",
)


def with_single_examples(run: TrainingRun) -> TrainingRun:
    """The run with one example per person: one step of the chain that proves group privacy.

    An example that was left out has no gradient, and its loss is the penalty alone.
    """
    if run.examples_per_person == 1:
        return run
    loss = run.loss
    if run.adjacency == "zero-out" and loss.convex:
        loss = replace(loss, strong_convexity=loss.regulariser)
    return run.replace(examples_per_person=1, loss=loss)


def _of_single_examples(
    evaluate: Callable[[TrainingRun], _Result],
) -> Callable[[TrainingRun], _Result]:
    """`evaluate` for runs with one example per person; others raise ValueError."""

    @wraps(evaluate)
    def guarded(run: TrainingRun) -> _Result:
        if run.examples_per_person != 1:
            raise ValueError("this is for one example per person: call `Bound.profile`")
        return evaluate(run)

    return guarded


@dataclass(frozen=True, kw_only=True, repr=False)
class Statement:
    """A theorem about runs; `covers` are the batch rules that it applies to.

    It is about plain gradient steps whose last iterate is published.  With `beyond_plain_steps` it
    also covers momentum and averages of iterates.
    """

    id: str
    gives: str
    covers: tuple[type[BatchRule], ...]
    needs: tuple[Hypothesis, ...]
    source: Citation
    beyond_plain_steps: bool = False

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id!r}, gives={self.gives!r})"

    def _repr_html_(self) -> str:
        rows = [("gives", self.gives), ("source", str(self.source))]
        rows += [("needs", hypothesis.needs) for hypothesis in self.needs]
        return card(self.id, rows)

    def unmet(self, run: TrainingRun) -> list[Unmet]:
        """The hypotheses that `run` does not satisfy; only the batch rule if it is not covered."""
        run = self.described(run)
        if not self.is_about(run):
            rules = " or ".join(rule.__name__ for rule in self.covers)
            rule = type(run.batches).__name__
            return [Unmet(f"batches of {rules}", rule, f"use {self.covers[-1].__name__}")]
        return self._unmet_needs(run)

    def is_about(self, run: TrainingRun) -> bool:
        """Whether the statement is about this batch rule at all, or one of the same batches."""
        return type(self.described(run).batches) in self.covers

    def described(self, run: TrainingRun) -> TrainingRun:
        """The first description of this run that the statement covers, the run itself if none."""
        return next((one for one in run.descriptions if type(one.batches) in self.covers), run)

    def _unmet_needs(self, run: TrainingRun) -> list[Unmet]:
        needs = self.needs if self.beyond_plain_steps else (PLAIN_STEPS, *self.needs)
        checked = (hypothesis.check(run) for hypothesis in needs)
        return [unmet for unmet in checked if unmet is not None]

    def _require(self, run: TrainingRun) -> None:
        unmet = self.unmet(run)
        if unmet:
            raise NoBoundApplies(run, {self.id: unmet})


def _no_bounds(run: TrainingRun) -> tuple[Bound, ...]:
    return ()


def _zero_delta(run: TrainingRun, epsilon: float) -> float:
    return 0.0


def _always(run: TrainingRun) -> bool:
    return True


def _bound_with_id(id_: str) -> Bound:
    from lastiterate.bounds.catalogue import RECORDS

    return RECORDS[id_]


def _lower_bound_with_id(id_: str) -> LowerBound:
    from lastiterate.lower_bounds.catalogue import LOWER_BOUNDS

    return LOWER_BOUNDS[id_]


@dataclass(frozen=True, kw_only=True, repr=False)
class Bound(Statement):
    """An upper bound, proved or as published.

    - `evaluate` returns the guarantee of a run with one example per person; it refuses other runs.
    - `for_persons` returns one for several examples per person.  Group privacy (`profile.group`)
      gives another, and the smaller one counts.
    - `by_position` returns the guarantee of each position in an epoch, in order.
    - `rests_on` are the bounds that the proof applies, given all random draws.
    - `charges` continues "it ..": how the bound comes to its number.  Reports fill in `{counts}`
      and `{fading}`.
    - `supersedes` returns bounds that its own profile includes, for a run: they need not be
      evaluated as well.
    - `delta_lower_bound` returns a lower bound on the bound's delta at an epsilon.  It is quick and
      can show that another bound is better without evaluating this one.
    - `quick` says that the whole curve takes little time.
    - `given_order` says that the bound holds for every order of the batches and averages over them.
    """

    certainty: Certainty
    evaluate: Callable[[TrainingRun], PrivacyProfile]
    for_persons: Callable[[TrainingRun], PrivacyProfile] | None = None
    by_position: Callable[[TrainingRun], Sequence[PrivacyProfile]] | None = None
    rests_on: tuple[Bound, ...] = ()
    charges: str = ""
    line_style: LineStyle | None = None
    supersedes: Callable[[TrainingRun], tuple[Bound, ...]] = _no_bounds
    delta_lower_bound: Callable[[TrainingRun, float], float] = _zero_delta
    quick: bool = True
    given_order: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "evaluate", _of_single_examples(self.evaluate))
        if self.by_position is not None:
            object.__setattr__(self, "by_position", _of_single_examples(self.by_position))

    def __reduce__(self) -> tuple[Callable[[str], Bound], tuple[str]]:
        return _bound_with_id, (self.id,)

    def basis(self, run: TrainingRun) -> tuple[Bound, ...]:
        """The bounds in `rests_on` whose hypotheses this run satisfies, given the batches."""
        run = self.described(run)
        return tuple(bound for bound in self.rests_on if not bound._unmet_needs(run))

    def all_needs(self, run: TrainingRun) -> tuple[Hypothesis, ...]:
        """Its hypotheses, then those of the bounds that it rests on for this run, each once."""
        deeper = (need for bound in self.basis(run) for need in bound.all_needs(run))
        return tuple(dict.fromkeys((*self.needs, *deeper)))

    def applying(self, run: TrainingRun) -> list[Bound]:
        """The stages of its proof that hold for this run; the bound itself if it has no stages."""
        return [self]

    def unmet_stages(self, run: TrainingRun) -> dict[str, list[Unmet]]:
        """The unmet hypotheses of each stage of the proof that does not apply, by stage id."""
        return {}

    def profile(self, run: TrainingRun) -> PrivacyProfile:
        """The guarantee, or `NoBoundApplies` with the reasons."""
        self._require(run)
        return self.guarantee(run)

    def guarantee(self, run: TrainingRun) -> PrivacyProfile:
        """The guarantee for a run that meets all hypotheses, however many examples a person has."""
        run, size = self.described(run), run.examples_per_person
        if size == 1:
            return self.evaluate(run)
        by_group = for_group(self.evaluate(with_single_examples(run)), size)
        if self.for_persons is None:
            return by_group
        return BestProfile([self.for_persons(run), by_group])

    def is_above(self, run: TrainingRun, epsilon: float, delta: float) -> bool:
        """Whether its epsilon at this delta is known to exceed `epsilon`; quick to compute."""
        if run.examples_per_person > 1:
            return False
        return self.delta_lower_bound(self.described(run), epsilon) > delta

    @property
    def has_delta_lower_bound(self) -> bool:
        """Whether a lower bound on its delta is known without evaluating it."""
        return self.delta_lower_bound is not _zero_delta

    def is_quick(self, run: TrainingRun) -> bool:
        """Whether its whole curve takes little time for this run."""
        without_groups = run.examples_per_person == 1 or self.for_persons is not None
        return self.quick and without_groups

    def positions(self, run: TrainingRun) -> Sequence[PrivacyProfile] | None:
        """The guarantee of each position, for a person all of whose examples are there."""
        if self.by_position is None:
            return None
        profiles = self.by_position(with_single_examples(self.described(run)))
        return [for_group(profile, run.examples_per_person) for profile in profiles]

    def _unmet_needs(self, run: TrainingRun) -> list[Unmet]:
        return super()._unmet_needs(with_single_examples(run))


@dataclass(frozen=True, kw_only=True, repr=False)
class LowerBound(Statement):
    """A lower bound on every guarantee that holds for all runs with the same description.

    `evaluate` exhibits one of these runs and tests that tell its two data sets apart.  `gradients`
    states how large the gradients of those that it may exhibit are.  The bound applies only where
    the description admits all of them.  `quick` says whether it takes little time for a run.
    Reports do not evaluate those that are `listed_only`: another lower bound includes them.
    """

    evaluate: Callable[[TrainingRun], LowerProfile]
    gradients: Callable[[TrainingRun], Iterable[Gradients]]
    quick: Callable[[TrainingRun], bool] = _always
    listed_only: bool = False

    @property
    def certainty(self) -> Certainty:
        return Certainty.LOWER

    def __reduce__(self) -> tuple[Callable[[str], LowerBound], tuple[str]]:
        return _lower_bound_with_id, (self.id,)

    def described(self, run: TrainingRun) -> TrainingRun:
        """The first description that it covers and applies to, the first that it covers if none."""
        covered = [one for one in run.descriptions if type(one.batches) in self.covers]
        if len(covered) < 2:
            return super().described(run)
        return next((one for one in covered if not self._unmet_needs(one)), covered[0])

    def profile(self, run: TrainingRun) -> LowerProfile:
        """A lower bound on every valid guarantee, or `NoBoundApplies` with the reasons."""
        self._require(run)
        return self.evaluate(self.described(run))

    def _unmet_needs(self, run: TrainingRun) -> list[Unmet]:
        unmet = super()._unmet_needs(run)
        if unmet:
            return unmet
        found = (gradients.not_admitted(run) for gradients in self.gradients(run))
        return [
            Unmet("gradients that the description admits", reason, "see the other lower bounds")
            for reason in found
            if reason is not None
        ]


@dataclass(frozen=True, kw_only=True, repr=False)
class StagedBound(Bound):
    """A bound that is the least of its stages, and holds if one of them does.

    A stage is a bound, too.  Its id begins with the id of the whole and can be given to `account`.
    """

    stages: tuple[Bound, ...]

    def applying(self, run: TrainingRun) -> list[Bound]:
        """The stages whose hypotheses hold, without those that another one supersedes."""
        stages = [stage for stage in self.stages if not stage.unmet(run)]
        superseded = {
            worse.id for stage in stages for worse in stage.supersedes(stage.described(run))
        }
        return [stage for stage in stages if stage.id not in superseded]

    def unmet(self, run: TrainingRun) -> list[Unmet]:
        """The unmet hypotheses of the stage that has the fewest; none where a stage applies."""
        concerned = [stage for stage in self.stages if stage.is_about(run)]
        if not concerned:
            return super().unmet(run)
        return min((stage.unmet(run) for stage in concerned), key=len)

    def unmet_stages(self, run: TrainingRun) -> dict[str, list[Unmet]]:
        """The unmet hypotheses, by id, of each stage for this batch rule that does not hold."""
        concerned = {stage.id: stage.unmet(run) for stage in self.stages if stage.is_about(run)}
        return {id_: reasons for id_, reasons in concerned.items() if reasons}

    def guarantee(self, run: TrainingRun) -> PrivacyProfile:
        """The least of the stages that hold, each evaluated when it is first needed."""
        # Stages with a quick lower bound on delta come last: they can often be left out.
        stages = sorted(self.applying(run), key=lambda stage: stage.has_delta_lower_bound)
        if len(stages) == 1:
            return stages[0].guarantee(run)
        by_id = {stage.id: stage for stage in stages}
        return StagedProfile(
            LazyProfiles(by_id, partial(_guarantee, run)),
            is_above={id_: partial(stage.is_above, run) for id_, stage in by_id.items()},
            quick=[id_ for id_, stage in by_id.items() if stage.is_quick(run)],
        )

    def is_above(self, run: TrainingRun, epsilon: float, delta: float) -> bool:
        """Whether the epsilon of every stage is surely larger at this delta."""
        return all(stage.is_above(run, epsilon, delta) for stage in self.applying(run))

    def is_quick(self, run: TrainingRun) -> bool:
        """Whether the whole curve of a stage takes little time."""
        return any(stage.is_quick(run) for stage in self.applying(run))

    @property
    def has_delta_lower_bound(self) -> bool:
        """Whether a lower bound is known of every stage without evaluating it."""
        return all(stage.has_delta_lower_bound for stage in self.stages)

    def basis(self, run: TrainingRun) -> tuple[Bound, ...]:
        """The bounds that the stages for this run rest on."""
        return _each_once(bound for stage in self.applying(run) for bound in stage.basis(run))

    def all_needs(self, run: TrainingRun) -> tuple[Hypothesis, ...]:
        """The hypotheses of all stages that hold for this run, each once."""
        needs = (need for stage in self.applying(run) for need in stage.all_needs(run))
        return tuple(dict.fromkeys(needs))

    def _unmet_needs(self, run: TrainingRun) -> list[Unmet]:
        return min((stage._unmet_needs(run) for stage in self.stages), key=len)


def least_of(
    *stages: Bound,
    id: str,
    gives: str,
    source: Citation,
    evaluate: Callable[[TrainingRun], PrivacyProfile],
    charges: str,
    line_style: LineStyle,
) -> StagedBound:
    """The bound that is, for every run, the least of these stages."""
    rules: dict[type[BatchRule], None] = dict.fromkeys(
        rule for stage in stages for rule in stage.covers
    )
    shared = [need for need in stages[0].needs if all(need in stage.needs for stage in stages)]
    return StagedBound(
        id=id,
        gives=gives,
        covers=tuple(rules),
        needs=tuple(shared),
        certainty=Certainty.UPPER,
        source=source,
        evaluate=evaluate,
        charges=charges,
        line_style=line_style,
        stages=stages,
    )


def _guarantee(run: TrainingRun, bound: Bound) -> PrivacyProfile:
    return bound.guarantee(run)


def _each_once(bounds: Iterable[Bound]) -> tuple[Bound, ...]:
    return tuple({bound.id: bound for bound in bounds}.values())


@dataclass(frozen=True, kw_only=True, repr=False)
class Approximation(Statement):
    """A limit theorem or a heuristic that gives an estimate, which is no bound.

    Its `Estimate` has no epsilon.
    """

    evaluate: Callable[[TrainingRun], Estimate]

    def estimate(self, run: TrainingRun) -> Estimate:
        """The estimate, or `NoBoundApplies` with the reasons."""
        self._require(run)
        return self.evaluate(run)


@dataclass(frozen=True)
class Estimate:
    """mu of the Gaussian curve that a central limit theorem, or a heuristic, suggests.

    It is neither an upper nor a lower bound, so it has no `epsilon`.  `deltas` is the curve itself,
    where it is not Gaussian.
    """

    mu: float
    deltas: Callable[[float], float] | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu", _check.number("mu", self.mu, at_least=0.0, infinite=True))

    def epsilon_estimate(self, delta: float) -> float:
        """The epsilon that is suggested at this delta; nobody may rely on it.

        Parameters
        ----------
        delta : float
            Of (epsilon, delta)-DP.

        Returns
        -------
        float
            The estimate, which may be too small.

        Examples
        --------
        >>> round(Estimate(1.0).epsilon_estimate(1e-5), 4)
        4.3772
        """
        _check.number("delta", delta, above=0.0, below=1.0)
        if self.deltas is None or self.mu == math.inf:
            return GaussianProfile(self.mu).epsilon(delta)
        curve, high = self.deltas, 1.0
        while curve(high) > delta:
            high *= 2.0
            if high > _LARGEST_ESTIMATED_EPSILON:
                return math.inf
        return least_true(lambda epsilon: curve(epsilon) <= delta, 0.0, high)
