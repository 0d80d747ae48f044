"""One bound from several that are proved for the same batches: the least of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from lastiterate.bounds.bound import Bound, Certainty, Citation, Hypothesis
from lastiterate.bounds.line_style import LineStyle
from lastiterate.errors import Unmet
from lastiterate.profile.best import LazyProfiles, StagedProfile
from lastiterate.profile.profile import PrivacyProfile
from lastiterate.run.batch_rules.base import BatchRule
from lastiterate.run.training_run import TrainingRun


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
        return _once(bound for stage in self.applying(run) for bound in stage.basis(run))

    def all_needs(self, run: TrainingRun) -> tuple[Hypothesis, ...]:
        """The hypotheses of all stages that hold for this run, each once."""
        needs = (need for stage in self.applying(run) for need in stage.all_needs(run))
        return tuple(dict.fromkeys(needs))

    def _violated(self, run: TrainingRun) -> list[Unmet]:
        return min((stage._violated(run) for stage in self.stages), key=len)


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


def _once(bounds: Iterable[Bound]) -> tuple[Bound, ...]:
    return tuple({bound.id: bound for bound in bounds}.values())
