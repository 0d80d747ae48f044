r"""The record of a training by Opacus, and the `TrainingRun` that it describes.

Opacus adds noise of standard deviation z C to the sum of clipped gradients, and divides by a number
d, which is the (expected) size b of a batch only where that divides the number of examples.  The
weight decay w is added by the optimizer, neither clipped nor noised, as a penalty that all examples
share.  So a step is

.. math:: x - \eta\big(\tfrac1d(\textstyle\sum g_i + N(0, z^2 C^2 I)) + w x\big)
          = x - \eta'\big(\tfrac1b\sum g_i + N(0, (zC/b)^2 I) + w' x\big), \qquad
          \eta' = \eta\,b/d, \quad w' = w\,d/b,

a step of a run with batches of size b, step size eta' and penalty w': eta' w' = eta w.  A momentum
buffer is a linear combination of these gradients, so it is scaled by b/d as they are.

**Groups of parameters** may differ in w: the penalty is then a quadratic form with eigenvalues
between the least and the largest w, which is added to every Hessian.  If they differ in lr or
momentum, steps multiply the Hessian by a matrix that does not commute with it, and nothing but
composition is claimed.

**The clip and momentum.**  The bound for momentum asks that gradient differences are
:math:`G (x - y)` with a symmetric G between m and M.  Clipped gradients of one logit, or of two
classes, are those of a convex, smooth loss (`linear_loss`), and averages over a batch keep both.
For more classes a clip that acts on the longest gradients only adds a matrix of known norm to such
a G, which moves m and M by that norm.  Any other clip is a map that expands no distance, so that G
is between w - M and w + M, M the smoothness without the penalty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from lastiterate._numerics.rounding import FEW_ROUNDINGS, down, up
from lastiterate.errors import InvalidParameter
from lastiterate.opacus.linear_loss import NORM_SLACK_OF_OPACUS, LinearLoss, rounded_up
from lastiterate.opacus.optimizer_step import OptimizerStep
from lastiterate.opacus.watched_loader import POISSON, SHUFFLED, Batches
from lastiterate.run.adjacency import factor
from lastiterate.run.batch_rules.base import BatchRule
from lastiterate.run.batch_rules.rules import (
    RULES,
    Cyclic,
    FixedOrder,
    FullBatch,
    PoissonSampled,
    ShuffledEachEpoch,
)
from lastiterate.run.loss import Loss
from lastiterate.run.schedule import Schedule
from lastiterate.run.training_run import TrainingRun


@dataclass
class TrainingRecord:
    """The watched steps of a training, and reasons why only composition covers them."""

    steps: list[OptimizerStep] = field(default_factory=list)
    passes: list[int] = field(
        default_factory=list
    )  # the number of the pass through the loader, for each step
    batches: Batches | None = None
    regular: bool = True  # every pass through the loader was finished before the next began
    reasons: list[str] = field(default_factory=list)

    def continue_with(self, batches: Batches | None) -> None:
        """Record that a sampler, of which nothing was drawn yet, makes the batches from here on."""
        self.batches = batches
        together = 1 if batches is None else passes_together(batches)
        if batches is not None and together > 1 and len(self.steps) % (batches.per_pass * together):
            self.regular = False
            self.add_reason("a new sampler took over before the draws of an earlier one had ended")

    def add_reason(self, reason: str) -> None:
        """Add a reason for composition."""
        if reason not in self.reasons:
            self.reasons.append(reason)


@dataclass(frozen=True)
class UserStatement:
    """Facts on the training that the user states; Opacus does not know them."""

    loss: Loss | LinearLoss | None
    adjacency: str
    releases: str
    examples_per_person: int


def run_of(record: TrainingRecord, stated: UserStatement) -> TrainingRun:
    """The run that took place; with every iterate released if only composition covers it."""
    if stated.loss is None or composition_reasons(record, stated):
        rule, clips = rule_of(record), [step.clip for step in record.steps]
        # Composition depends on the noise in units of the clip alone.
        clip = max(clips)
        noise = _schedule([step.noise_multiplier * clip / rule.batch_size for step in record.steps])
        return TrainingRun(
            loss=Loss(convex=False),
            sensitivity=factor(stated.adjacency) * clip,
            batches=rule,
            steps=len(record.steps),
            step_size=1.0,
            noise_std=noise,
            clip_norm=clip,
            adjacency=stated.adjacency,
            releases="every-iterate",
            examples_per_person=stated.examples_per_person,
        )
    return _run_of_last_iterate(record, stated, stated.loss)


def run_if_mended(record: TrainingRecord, stated: UserStatement) -> TrainingRun | None:
    """The run that would be charged if no reason for composition was left; None if not known."""
    if stated.loss is None or record.batches is None:
        return None
    batches = replace(record.batches, even=True)
    try:
        return _run_of_last_iterate(
            replace(record, batches=batches, regular=True), stated, stated.loss
        )
    except InvalidParameter:
        return None


def _run_of_last_iterate(
    record: TrainingRecord, stated: UserStatement, loss: Loss | LinearLoss
) -> TrainingRun:
    rule, clips = rule_of(record), [step.clip for step in record.steps]
    described, clip_norm = _loss(record.steps, loss, rule)
    largest = min(b for b in (max(clips), described.lipschitz) if b is not None)
    return TrainingRun(
        loss=described,
        sensitivity=factor(stated.adjacency) * largest,
        batches=rule,
        steps=len(record.steps),
        step_size=_schedule(
            [_scaled(step.step_size, rule.batch_size, step.divisor) for step in record.steps]
        ),
        noise_std=_schedule(
            [step.noise_multiplier * step.clip / rule.batch_size for step in record.steps]
        ),
        clip_norm=clip_norm,
        adjacency=stated.adjacency,
        releases=stated.releases,
        examples_per_person=stated.examples_per_person,
        momentum=_schedule([step.momentum for step in record.steps]),
        dampening=record.steps[0].dampening,
        nesterov=record.steps[0].nesterov,
        buffer_resets=_buffer_resets(record.steps),
    )


def _buffer_resets(steps: Sequence[OptimizerStep]) -> tuple[int, ...]:
    """The steps after the first, counted from 1, that began with an empty buffer."""
    return tuple(k for k, step in enumerate(steps, start=1) if k > 1 and _refills(step))


def _refills(step: OptimizerStep) -> bool:
    return step.momentum > 0.0 and step.empty_buffer


def rule_of(record: TrainingRecord) -> BatchRule:
    """The batch rule; where an example's steps are unknown, it participates wherever it may."""
    batches = record.batches
    if batches is None:
        steps = len(record.steps)
        return FixedOrder(steps, 1, positions=range(1, steps + 1))  # type: ignore[arg-type]  # made a tuple
    if batches.kind == POISSON:
        if batches.sample_rate == 1.0:
            return FullBatch(batches.examples)
        return PoissonSampled(batches.examples, batches.size, sample_rate=batches.sample_rate)
    if record.regular and batches.even:
        if batches.size == batches.examples:
            return FullBatch(batches.examples)
        # Examples that do not fill a batch are left out: of this pass or, never shuffled, of all.
        if batches.settings is not None:
            return RULES[batches.kind](**batches.settings)
        rule = ShuffledEachEpoch if batches.kind == SHUFFLED else Cyclic
        return rule(batches.examples, batches.size)
    if passes_together(batches) > 1:
        everywhere = range(1, len(record.steps) + 1)
        return FixedOrder(batches.examples, batches.size, positions=everywhere)  # type: ignore[arg-type]
    # Once in every pass, in the step that has the least noise.
    noisiness = [step.noise_multiplier for step in record.steps]
    exposed: dict[int, int] = {}
    for index, number in enumerate(record.passes):
        if number not in exposed or noisiness[index] < noisiness[exposed[number]]:
            exposed[number] = index
    positions = tuple(sorted(index + 1 for index in exposed.values()))
    return FixedOrder(batches.examples, batches.size, positions)


def passes_together(batches: Batches) -> int:
    """The number of passes whose batches are drawn together."""
    if batches.settings is None:
        return 1
    rule = RULES[batches.kind](**batches.settings)
    return rule.steps_per_draw // rule.batches_per_epoch


def composition_reasons(record: TrainingRecord, stated: UserStatement) -> tuple[str, ...]:
    """The reasons for which only composition is claimed; empty if there are none."""
    reasons = list(record.reasons)
    if stated.loss is None:
        reasons.append("the loss is not stated: register(loss=..)")
    steps = record.steps
    for name, values in (
        ("the weight decay", {(step.weight_decay, step.largest_decay) for step in steps}),
        ("the divisor of gradient sums", {step.divisor for step in steps}),
        ("the dampening", {step.dampening for step in steps}),
        ("nesterov", {step.nesterov for step in steps}),
    ):
        if len(values) > 1:
            reasons.append(f"{name} changes from step to step")
    if len({step.momentum > 0.0 for step in steps}) > 1:
        reasons.append("momentum is 0 in some steps, which keep the buffer, and not in others")
    if any(step.clip < NORM_SLACK_OF_OPACUS for step in steps):
        reasons.append(f"a clip is below {NORM_SLACK_OF_OPACUS:g}, which Opacus adds to every norm")
    return tuple(reasons)


def _loss(
    steps: Sequence[OptimizerStep], stated: Loss | LinearLoss, rule: BatchRule
) -> tuple[Loss, float | None]:
    """The loss with its penalty, and the clip, which is None if the loss includes it."""
    first, divisor = steps[0], steps[0].divisor
    largest = first.weight_decay if first.largest_decay is None else first.largest_decay
    least = _scaled(first.weight_decay, divisor, rule.batch_size)
    most = _scaled(largest, divisor, rule.batch_size)
    if divisor != rule.batch_size:
        least, most = down(least, FEW_ROUNDINGS), up(most, FEW_ROUNDINGS)
    clips = [step.clip for step in steps]
    if isinstance(stated, LinearLoss):
        twisted = stated.asymmetry(min(clips))
        # A batch may have more examples than sums are divided by.
        off = up(twisted * max(rule.largest_size / rule.batch_size, 1.0), FEW_ROUNDINGS)
        if stated.one_direction or 0.0 < off <= least:
            bound = min(stated.lipschitz, max(clips))
            # Where the clip twists gradients, a step is not the gradient of a loss.
            dimension = stated.gradient_dimension if stated.one_direction else None
            known = Loss(smoothness=stated.smoothness, lipschitz=bound, outputs=dimension)
            left = least if off == 0.0 else max(down(least - off, FEW_ROUNDINGS), 0.0)
            return _with_penalty(known, left, most + off), None
        plain = stated.plain
    else:
        plain = stated
    lipschitz = plain.lipschitz
    never_acts = down(max(min(clips) - NORM_SLACK_OF_OPACUS, 0.0), FEW_ROUNDINGS)
    if lipschitz is not None and not lipschitz <= never_acts:
        lipschitz = None  # the clip may act
    known = Loss(
        smoothness=plain.smoothness,
        strong_convexity=plain.strong_convexity,
        convex=plain.convex,
        holder=plain.holder,
        lipschitz=lipschitz,
        outputs=plain.outputs,
    )
    return _with_penalty(known, least, most), max(clips)


def _with_penalty(loss: Loss, least: float, most: float) -> Loss:
    """The loss with a penalty of curvature between `least` and `most`."""
    smoothness = loss.smoothness
    if smoothness is not None and most > 0.0:
        smoothness = rounded_up(Fraction(smoothness) + Fraction(most))
    return Loss(
        smoothness=smoothness,
        strong_convexity=loss.strong_convexity + least if loss.convex else 0.0,
        convex=loss.convex,
        holder=loss.holder,
        lipschitz=loss.lipschitz,
        regulariser=least,
        outputs=loss.outputs,
    )


def _scaled(value: float, times: float, over: float) -> float:
    """The value times `times` over `over`; exactly the value where these two are equal."""
    return value if times == over else value * times / over


def _schedule(values: list[float]) -> Schedule:
    return values[0] if len(set(values)) == 1 else tuple(values)
