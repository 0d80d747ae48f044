"""Steps that were watched, as one `TrainingRun`.

Opacus adds noise of standard deviation z C to the sum of clipped gradients, and divides by the
batch size b; the weight decay is added by the optimizer, neither clipped nor noised, as a penalty
that all examples share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lastiterate._numerics.rounding import FEW_ROUNDINGS, down
from lastiterate.opacus.linear_loss import LinearLoss
from lastiterate.opacus.optimizer_step import Step
from lastiterate.opacus.watched_loader import POISSON, SHUFFLED, Batches
from lastiterate.run.adjacency import factor
from lastiterate.run.batch_rule import BatchRule
from lastiterate.run.batches import (
    Cyclic,
    FixedOrder,
    FullBatch,
    PoissonSampled,
    ShuffledEachEpoch,
)
from lastiterate.run.loss import Loss
from lastiterate.run.schedule import Schedule
from lastiterate.run.training_run import TrainingRun

_BESIDE_THE_NORM = 1e-6  # which Opacus adds to the norm that it divides the clip by


@dataclass
class Watched:
    """All that was seen of a training, and why not all of it is as the theorems need it."""

    steps: list[Step] = field(default_factory=list)
    passes: list[int] = field(default_factory=list)  # through the loader, that each step was in
    batches: Batches | None = None
    regular: bool = True  # every pass through the loader was finished before the next began
    reasons: list[str] = field(default_factory=list)

    def because(self, reason: str) -> None:
        """One more reason for composition."""
        if reason not in self.reasons:
            self.reasons.append(reason)


@dataclass(frozen=True)
class Stated:
    """What the user says of the training, and Opacus does not know."""

    loss: Loss | LinearLoss | None
    adjacency: str
    releases: str
    examples_per_person: int


def run_of(seen: Watched, stated: Stated) -> TrainingRun:
    """The run that took place; with reasons against it, the same with every iterate charged for."""
    rule = rule_of(seen)
    times = factor(stated.adjacency)
    clips = [step.clip for step in seen.steps]
    if stated.loss is None or why_composition(seen, stated):
        # Of each step only the noise in units of the clip counts.
        clip = max(clips)
        noise = _schedule([step.noise_multiplier * clip / rule.batch_size for step in seen.steps])
        return TrainingRun(
            loss=Loss(convex=False),
            sensitivity=times * clip,
            batches=rule,
            steps=len(seen.steps),
            step_size=1.0,
            noise_std=noise,
            clip_norm=clip,
            adjacency=stated.adjacency,
            releases="every-iterate",
            examples_per_person=stated.examples_per_person,
        )
    described, clip_norm = _loss(seen.steps, stated.loss)
    largest = min(b for b in (max(clips), described.lipschitz) if b is not None)
    return TrainingRun(
        loss=described,
        sensitivity=times * largest,
        batches=rule,
        steps=len(seen.steps),
        step_size=_schedule([step.step_size for step in seen.steps]),
        noise_std=_schedule(
            [step.noise_multiplier * step.clip / rule.batch_size for step in seen.steps]
        ),
        clip_norm=clip_norm,
        adjacency=stated.adjacency,
        releases=stated.releases,
        examples_per_person=stated.examples_per_person,
    )


def rule_of(seen: Watched) -> BatchRule:
    """The batches; where it is not known which steps see an example, as many as may."""
    batches = seen.batches
    if batches is None:
        steps = len(seen.steps)
        return FixedOrder(steps, 1, positions=range(1, steps + 1))  # type: ignore[arg-type]  # made a tuple
    if batches.kind == POISSON:
        if batches.per_pass == 1:
            return FullBatch(batches.examples)
        return PoissonSampled(batches.examples, batches.size)
    if seen.regular and batches.per_pass == 1 and batches.even:
        return FullBatch(batches.examples)
    if seen.regular and batches.even:
        rule = ShuffledEachEpoch if batches.kind == SHUFFLED else Cyclic
        return rule(batches.examples, batches.size)
    # Once in every pass, in the step that has the least noise.
    noisiness = [step.noise_multiplier for step in seen.steps]
    exposed: dict[int, int] = {}
    for place, number in enumerate(seen.passes):
        if number not in exposed or noisiness[place] < noisiness[exposed[number]]:
            exposed[number] = place
    positions = tuple(sorted(place + 1 for place in exposed.values()))
    return FixedOrder(batches.examples, batches.size, positions)


def why_composition(seen: Watched, stated: Stated) -> tuple[str, ...]:
    """Each reason for which nothing but composition is claimed; empty where more is."""
    reasons = list(seen.reasons)
    if stated.loss is None:
        reasons.append("nothing is said of the loss: register(loss=..)")
    if len({step.weight_decay for step in seen.steps}) > 1:
        reasons.append("the weight decay changes from step to step")
    if any(step.clip < _BESIDE_THE_NORM for step in seen.steps):
        reasons.append(f"a clip is below {_BESIDE_THE_NORM:g}, which Opacus adds to every norm")
    return tuple(reasons)


def _loss(steps: Sequence[Step], stated: Loss | LinearLoss) -> tuple[Loss, float | None]:
    """What is descended, the penalty included, and the clip, unless that is part of it."""
    decay = steps[0].weight_decay
    clips = [step.clip for step in steps]
    if isinstance(stated, LinearLoss):
        plain = stated.plain
        if stated.one_direction:
            # Convex whether or not the clip acts.
            bound = min(stated.lipschitz, max(clips))
            return _with_penalty(Loss(smoothness=plain.smoothness, lipschitz=bound), decay), None
    else:
        plain = stated
    lipschitz = plain.lipschitz
    never_acts = down(max(min(clips) - _BESIDE_THE_NORM, 0.0), FEW_ROUNDINGS)
    if lipschitz is not None and not lipschitz <= never_acts:
        lipschitz = None  # so that the clip may act
    known = Loss(
        smoothness=plain.smoothness,
        strong_convexity=plain.strong_convexity,
        convex=plain.convex,
        holder=plain.holder,
        lipschitz=lipschitz,
    )
    return _with_penalty(known, decay), max(clips)


def _with_penalty(loss: Loss, decay: float) -> Loss:
    return Loss(
        smoothness=None if loss.smoothness is None else loss.smoothness + decay,
        strong_convexity=loss.strong_convexity + decay if loss.convex else 0.0,
        convex=loss.convex,
        holder=loss.holder,
        lipschitz=loss.lipschitz,
        regulariser=decay,
    )


def _schedule(values: list[float]) -> Schedule:
    return values[0] if len(set(values)) == 1 else tuple(values)
