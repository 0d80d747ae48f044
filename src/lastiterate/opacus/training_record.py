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

**Batches.**  Every step must have a batch of its own, no row may be repeated, and passes must be
complete.

**Poisson batches without a step are refused**, empty ones too.  Let a loop make steps only on
batches whose size is in a set S.  Sizes have the same law for two neighbours, because the example
in which they differ is drawn in both.  In a step that is made it is in the batch with probability
p = P(i in B | |B| in S), which is q/(1 - (1 - q)^n) where only empty batches are skipped.  To
account for batches of this rate would be wrong.  Let G_1 be the sum of the others' gradients if
the example is in the batch, and G_0 if it is not.  A step compares

.. math:: (1-p) N(G_0, \sigma^2 I) + p N(G_1 + g, \sigma^2 I) \quad\text{and}\quad
          (1-p) N(G_0, \sigma^2 I) + p N(G_1, \sigma^2 I).

Poisson accounting rests on G_0 and G_1 having one law, so that what hides g are all batches
without the example.  Under the condition they have not: of a few rare examples with gradients
that point away from g, a batch that is not empty has one of these where it has not got g, so that
G_1 is mostly 0 and G_0 is not.  Nothing then hides g but the draws of the noise.

To account for all draws, those without a step included, would be wrong too: a skipped batch adds
no noise.  With one example, steps are (1-p) times no step plus p N(g), against (1-p) times no
step plus p N(0), whose delta at epsilon is p times that of the Gaussian mechanism at epsilon:
more than that of (1-p) N(0) + p N(g) against N(0), which is p times that of the Gaussian
mechanism at log(1 + (e^epsilon - 1)/p).

A pass of which all batches were drawn and none was used was one to look at, as for an evaluation.
So is a single batch before the first step.  A pass may end early after a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from lastiterate._numerics.rounding import FEW_ROUNDINGS, down, up
from lastiterate.errors import InvalidParameter, RefusedTraining
from lastiterate.opacus.linear_loss import NORM_SLACK_OF_OPACUS, LinearLoss, rounded_up
from lastiterate.opacus.watched_loader import (
    POISSON,
    SHUFFLED,
    Batches,
    DrawnBatches,
    WatchedLoader,
)
from lastiterate.opacus.watched_steps import OptimizerStep, is_ghost
from lastiterate.run.batch_rules.base import RULES, BatchRule
from lastiterate.run.batch_rules.drawn import PoissonSampled
from lastiterate.run.batch_rules.ordered import Cyclic, FixedOrder, FullBatch, ShuffledEachEpoch
from lastiterate.run.loss import Loss
from lastiterate.run.optimizer import Schedule
from lastiterate.run.training_run import TrainingRun, factor


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


class EpochCounter:
    """Counts the steps of the pass through the loader that the last step was in."""

    def __init__(self, steps: int = 0) -> None:
        self.steps = steps
        self._pass: int | None = None  # None before the first, and for a loader that is gone
        self._next = 0  # the first batch of the pass that the next step may use
        self._draws: DrawnBatches | None = None  # those that passes are numbered in

    def count_step(
        self, optimizer: Any, record: TrainingRecord, loader: WatchedLoader | None, rows: int
    ) -> None:
        """Count a step that summed the gradients of `rows` rows."""
        if loader is None:
            record.batches = None
            record.add_reason(
                "the loader is not known, so an example may be twice in a batch: call "
                "accountant.watch(loader)"
            )
            record.passes.append(0)
            return
        if loader.draws is not self._draws:
            self._draws, self._pass = loader.draws, None
        number, per_pass = loader.draws.passes, loader.batches.per_pass
        if number == 0:
            raise RefusedTraining(
                "a step was made before the loader that make_private returned drew a batch",
                instead="iterate over that loader",
            )
        loader.refuse_other_batches(number)
        if number != self._pass:
            loader.refuse_repeated_rows()
            self._refuse_unused_batches(loader, number)
            if record.steps and self.steps != per_pass:
                # Batches without a step may be part of the gradients of this one.
                if (
                    self._pass is not None
                    and len(loader.draws.sizes_in_pass(self._pass)) == per_pass
                ):
                    _refuse_ghost_clipping(optimizer)
                _mark_irregular(record, loader)
            if self._straddles_draws(loader, number):
                _mark_irregular(record, loader)
            self._pass, self.steps, self._next = number, 0, 0
            record.passes.append(record.passes[-1] + 1 if record.passes else 1)
        else:
            record.passes.append(record.passes[-1])
        self.steps += 1
        sizes = loader.draws.sizes_in_pass(number)
        waiting = len(sizes) - self.steps
        if waiting < 0:
            raise RefusedTraining(
                "more steps were made than batches were drawn", instead="make one step per batch"
            )
        if waiting > loader.ahead:
            _refuse_ghost_clipping(optimizer)
            _mark_irregular(record, loader)
        self._check_rows(rows, sizes, record, loader)

    def refuse_unused_batches_at_the_end(self, loader: WatchedLoader | None) -> None:
        """Refuse Poisson batches after the last step, but for one on which the loop has ended."""
        if loader is None or loader.draws is not self._draws or self._pass is None:
            return
        sizes = loader.draws.sizes_in_pass(self._pass)
        spare = loader.ahead + (self._pass not in loader.draws.ended)
        if loader.batches.kind == POISSON and len(sizes) - self.steps > spare:
            raise _unused_batch_error(sizes[self.steps])

    def _refuse_unused_batches(self, loader: WatchedLoader, number: int) -> None:
        """Refuse Poisson batches of the passes before this one that no step used."""
        if loader.batches.kind != POISSON:
            return
        looked_at = 0
        for earlier in range(self._pass or loader.first, number):
            sizes = loader.draws.sizes_in_pass(earlier)
            steps = self.steps if earlier == self._pass else 0
            complete = len(sizes) == loader.batches.per_pass
            if len(sizes) - steps <= (0 if complete and steps else loader.ahead):
                continue
            if complete and not steps:
                continue
            looked_at += 1
            if self._pass is not None or looked_at > 1:
                raise _unused_batch_error(sizes[steps])

    def _straddles_draws(self, loader: WatchedLoader, number: int) -> bool:
        """Whether passes without a step were among those that are drawn together."""
        together = passes_together(loader.batches)
        if self._pass is None:
            return (loader.earlier + number - 1) % together != 0
        return together > 1 and number != self._pass + 1

    def _check_rows(
        self, rows: int, sizes: list[int], record: TrainingRecord, loader: WatchedLoader
    ) -> None:
        """Refuse a step whose number of rows is the size of no later batch of the pass.

        Batches may be drawn in advance, so later ones need no step yet.
        """
        if rows not in sizes[self._next :]:
            raise RefusedTraining(
                f"a step summed the gradients of {rows:,} rows, but the loader drew "
                f"{sizes[min(self._next, len(sizes) - 1)]:,} examples: if rows are repeated, in "
                "collate_fn or in the loop, one example counts several times",
                instead="give the model every example of the batch once",
            )
        found = sizes.index(rows, self._next)
        if found > self._next:
            if loader.batches.kind == POISSON:
                raise _unused_batch_error(sizes[self._next])
            _mark_irregular(record, loader)
        self._next = found + 1


def _unused_batch_error(size: int) -> RefusedTraining:
    return RefusedTraining(
        f"a Poisson batch of {size:,} rows was drawn and no step was made on it, so the batches of "
        "the other steps are no Poisson batches, and an example may be in them more often",
        instead="make one step per batch: an empty batch is a step of noise alone, which its loss "
        "of nan does not harm; end a pass after a step, or by itertools.islice(loader, steps)",
    )


def _refuse_ghost_clipping(optimizer: Any) -> None:
    if is_ghost(optimizer):
        raise RefusedTraining(
            "batches were drawn without a step: with ghost clipping it cannot be seen whether "
            "their gradients were accumulated",
            instead="make one step per batch",
        )


def _mark_irregular(record: TrainingRecord, loader: WatchedLoader) -> None:
    """Record that a pass was incomplete; the next one is shuffled anew."""
    if loader.batches.kind != POISSON:
        record.regular = False
        record.add_reason("a pass through the loader was not finished, or batches were skipped")
