"""Sentences about a run and its bounds: its steps, its releases, why a bound is least, and advice.

Advice, on how a run would be more private or its epsilon level off, is no condition: the guarantee
that it stands beside holds as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lastiterate._display import down, printable, short, times, up
from lastiterate.accounting import PrivacyReport, account
from lastiterate.bounds.bound import Bound, Certainty
from lastiterate.bounds.catalogue import CATALOGUE
from lastiterate.bounds.conditions import CONVEX, NOTHING_TO_DO
from lastiterate.bounds.momentum import MOMENTUM, curvature
from lastiterate.bounds.quantities import gaps
from lastiterate.errors import Unmet
from lastiterate.other_releases import KINDS, Release
from lastiterate.run.batch_rules.base import Resampling
from lastiterate.run.optimizer import Schedule, TailAverage
from lastiterate.run.training_run import IN_WORDS, TrainingRun, if_one_example_is
from lastiterate.shifts.momentum.mu import converges, longest_converging_step

_RELEASED = {
    "last-iterate": "the last iterate",
    "last-iterate-and-order": "the last iterate and the order of the batches",
    "every-iterate": "every iterate",
}
FAR = 10.0  # times the best; such bounds are named apart
MAY_BE_PUBLISHED = "You may publish the following, and nothing else:"
VOIDED_BY = "Any of these voids the guarantee:"
VOUCHED_FOR = {False: "You state that", True: "The trainer enforced that"}
COLUMNS_EXPLAINED = (
    "mu: at least as private as a Gaussian mechanism with this mu; - if no mu describes the "
    "guarantee. advantage: the most by which an attacker's true-positive rate exceeds its "
    "false-positive rate. ratio: epsilon over the smallest epsilon."
)
LISTED_ONLY = "* as published: the proof has a gap, so it is listed and not used."
_SHARE_WORTH_SAYING = 0.95  # of epsilon
# Positions times steps up to which another account of a run with momentum takes seconds.
_MAX_QUICK_WORK = 10_000
_MAX_SOLVED_POSITIONS = 32  # positions: others are solved in few groups


@dataclass(frozen=True)
class ReleaseRule:
    """The outputs that may be published, and those that would void the guarantee."""

    allowed: tuple[str, ...]
    voided_by: tuple[str, ...]

    def __str__(self) -> str:
        return f"You may publish {'; '.join(self.allowed)}; nothing else."


def release_rule(
    bound: Bound, run: TrainingRun, other_releases: Sequence[Release] = ()
) -> ReleaseRule:
    """The outputs that the bound's hypotheses allow, whatever the run itself releases."""
    secret, only_last = needs_secret_order(bound, run), needs_last_iterate_only(bound, run)
    if only_last:
        noise = ", with the noise on release" if run.release_noise_std > 0.0 else ""
        what = "the parameters" if run.average is None else average_text(run)
        allowed = [f"{what} after step {run.steps:,}{noise}"]
    else:
        allowed = ["the parameters after every step"]
    if not secret and run.batches.ordered:
        allowed.append("the order of the batches")
    allowed += [KINDS[one.kind].published for one in other_releases]
    voided = []
    if only_last:
        other = "another average" if run.average else "an average of iterates"
        voided.append(f"any other iterate, such as a checkpoint or {other}")
        if run.momentum != 0.0:
            voided.append(
                "the optimizer's state, which holds the momentum buffer, or training on with it"
            )
    voided.append("a loss or score on these examples, or stopping, tuning or choosing by one")
    if secret:
        voided.append("the order of the batches, or the seed it came from")
    voided.append("the noise, or the seed it came from")
    return ReleaseRule(tuple(allowed), tuple(voided))


def needs_secret_order(bound: Bound, run: TrainingRun) -> bool:
    """Whether the bound would refuse this run if the order were published."""
    return bool(bound.unmet(run.replace(releases="last-iterate-and-order")))


def needs_last_iterate_only(bound: Bound, run: TrainingRun) -> bool:
    """Whether the bound would refuse this run if every iterate were published."""
    return bool(bound.unmet(run.replace(releases="every-iterate")))


def run_sentence(run: TrainingRun) -> str:
    """A sentence on the steps and batches of a run."""
    counted = "1 step" if run.steps == 1 else f"{run.steps:,} steps"
    optimizer = "" if run.momentum == 0.0 else f" with {momentum_text(run)}"
    return f"{counted} of noisy gradient descent{optimizer}, {run.batches.described()}."


def momentum_text(run: TrainingRun) -> str:
    """A noun phrase for the momentum of a run that has some."""
    said = [f"{'Nesterov ' if run.nesterov else ''}momentum {scheduled(run.momentum)}".rstrip(",")]
    if run.dampening > 0.0:
        said.append(f"dampening {short(run.dampening)}")
    if run.buffer_resets:
        often = len(run.buffer_resets)
        said.append(f"a buffer emptied {'once' if often == 1 else f'{often:,} times'}")
    return " and ".join(said)


def scheduled(value: Schedule) -> str:
    """A number, or the range of a schedule."""
    if not isinstance(value, tuple):
        return short(value)
    low, high = min(value), max(value)
    return short(low) if low == high else f"between {short(low)} and {short(high)}, as scheduled,"


def average_text(run: TrainingRun) -> str:
    """A noun phrase for the average of iterates that is published instead of the last one."""
    if isinstance(run.average, TailAverage):
        return f"the mean of the last {run.average.last:,} iterates"
    assert run.average is not None
    begins = "" if run.average.copies_first else " from the start on"
    return f"the exponential average of the iterates{begins} with decay {short(run.average.decay)}"


def protection_sentence(run: TrainingRun) -> str:
    """A sentence on what is released, and on the change to the data that is protected."""
    noise = " with noise added" if run.release_noise_std > 0.0 else ""
    released = _RELEASED[run.releases]
    if run.average is not None:
        released = released.replace("the last iterate", average_text(run))
    return f"Released: {released}{noise}. Protected: {unit_of_privacy(run)}."


def unit_of_privacy(run: TrainingRun) -> str:
    """The protected change: who, and how their examples differ between neighbouring data sets."""
    who, changed = _who_and_change(run)
    return f"{who} being {changed}"


def protected_change(run: TrainingRun) -> str:
    """A noun phrase for the change of the data that the guarantee covers."""
    return " ".join(_who_and_change(run))


def _who_and_change(run: TrainingRun) -> tuple[str, str]:
    most = run.examples_per_person
    if most == 1:
        return "one example", IN_WORDS[run.adjacency]
    changed = "replaced by others" if run.adjacency == "replace" else "left out (zeroed)"
    return f"all examples of one person, at most {most:,},", changed


def other_adjacency_text(adjacency: str, epsilon: float, per_person: int = 1) -> str:
    """A sentence with the epsilon of the same training under this other adjacency."""
    condition = if_one_example_is(adjacency, per_person)
    return f"{condition.capitalize()} instead: epsilon = {up(epsilon)}."


def far_bounds_text(rows: Iterable[tuple[str, float]]) -> str:
    """A sentence that lists bounds far above the least one."""
    named = ", ".join(f"{id_} ({up(epsilon)})" for id_, epsilon in rows)
    return f"Also valid, but at least {FAR:g} times as large: {named}."


def certainty_text(certainty: Certainty) -> str:
    """The words for the certainty of an epsilon: certified, or only as published."""
    return "certified" if certainty is Certainty.UPPER else "as published, not certified"


def fitted_steps_text(steps: Sequence[str]) -> str:
    """A clause on preprocessing steps that learnt from the same examples and are not included."""
    many, named = len(steps) > 1, ", ".join(map(printable, steps))
    return (
        f"not included: the preprocessing {'steps' if many else 'step'} {named} "
        "learnt from the same examples, and what was learnt is published with the model. The "
        "guarantee covers the training alone; nothing is certified of the whole pipeline"
    )


def lower_bound_text(bound: str | None, epsilon: float, ratio: float) -> str:
    """A sentence that compares epsilon with the lower bound."""
    if bound is None or not ratio < math.inf:
        return "No lower bound is known."
    return (
        f"At most {times(ratio)} times the lower bound, {down(epsilon)} ({bound}), below which no "
        "guarantee for such a run is valid."
    )


def later_bounds_text(bounds: Sequence[str], delta: float) -> str:
    """A sentence on lower bounds that a report leaves out; empty where there are none."""
    if not bounds:
        return ""
    those = "lower bound" if len(bounds) == 1 else "lower bounds"
    return (
        f"Not computed, since it may take longer than the guarantee: the {those} "
        f"{', '.join(bounds)}. In Python report.lower.epsilon({delta:g}) is the largest."
    )


def why_least(run: TrainingRun, best: Bound, second: Bound | None, *, equal: bool) -> str:
    """A sentence on what the bound with the least epsilon charges for, and the next one."""
    because = charges(best, run)
    if second is None:
        return f"{best.id} is the only bound that applies: it {because}."
    if equal:
        return f"{best.id} {because}; {second.id} gives the same here."
    return f"{best.id} is the least: it {because}. Next, {second.id} {charges(second, run)}."


def charges(bound: Bound, run: TrainingRun) -> str:
    """A verb phrase on what a bound charges for."""
    if not bound.charges:
        return f"gives {bound.gives}"
    contracts = CONVEX in bound.needs and run.loss.smoothness is not None
    curved = contracts and bool((gaps(run) > 0.0).all())
    return bound.charges.format(
        fading="every step contracting the influence of earlier ones"
        if curved
        else "later noise hiding the influence of earlier steps",
        counts="charges the most exposed position in the order, counting on"
        if run.batches.ordered
        else "counts on",
    )


@dataclass(frozen=True)
class Refusal:
    """An unmet hypothesis, and the bounds that need it."""

    bounds: tuple[str, ...]
    reason: Unmet


def refusals(report: PrivacyReport) -> list[Refusal]:
    """The unmet hypotheses of more bounds for such batches, each once; no stages of bounds."""
    concerned: dict[Unmet, list[str]] = {}
    for id_, reasons in report.unmet.items():
        about = id_ in CATALOGUE and CATALOGUE[id_].is_about(report.run)
        if about and not any(one.remedy.startswith(NOTHING_TO_DO) for one in reasons):
            for reason in reasons:
                concerned.setdefault(reason, []).append(id_)
    return [Refusal(tuple(ids), reason) for reason, ids in concerned.items()]


def advice(report: PrivacyReport, delta: float) -> tuple[str, ...]:
    """Sentences that name whole epochs and, with momentum, a shorter step or noise on release."""
    run = report.run
    if MOMENTUM.id not in report.used:
        return tuple(_advice_on_whole_epochs(report, delta))
    return (*_advice_on_the_step(run), *_advice_on_release_noise(report, delta))


def _advice_on_whole_epochs(report: PrivacyReport, delta: float) -> Iterator[str]:
    """The epsilon without the last epoch, if that is cut and batches are drawn in every epoch."""
    run = report.run
    if run.batches.resampling is not Resampling.EACH_EPOCH or report.of_more_than_the_run:
        return
    whole = run.steps - run.steps % run.batches.batches_per_epoch
    if not (run.is_constant and run.has_plain_steps and 0 < whole < run.steps):
        return
    shorter = run.replace(steps=whole)
    found = account(shorter, other_releases=report.other_releases).epsilon(delta)
    if found < _SHARE_WORTH_SAYING * report.epsilon(delta):
        yield (
            f"Whole epochs, {whole:,} steps instead of {run.steps:,}, would give epsilon = "
            f"{up(found)}: where the last epoch is cut, the bounds count the one before at its end."
        )


def _advice_on_the_step(run: TrainingRun) -> Iterator[str]:
    """A sentence on what would let epsilon level off, if it does not."""
    ends = curvature(run)
    if not ends[0] > 0.0:
        yield (
            "Epsilon grows with the number of steps: it would level off for a convex loss with a "
            "penalty (a regulariser above 0) and a clip that never acts, if steps are short."
        )
        return
    if isinstance(run.step_size, tuple) or isinstance(run.momentum, tuple):
        return
    kept = 1.0 - run.dampening
    if converges(run.step_size * kept, ends, run.momentum, nesterov=run.nesterov):
        return
    longest = longest_converging_step(ends, run.momentum, nesterov=run.nesterov)
    shorter = _two_digits(longest / kept)
    if converges(shorter * kept, ends, run.momentum, nesterov=run.nesterov):
        with_ = f"with momentum {short(run.momentum)}" if run.momentum else "as they are"
        yield (
            f"A step of {short(shorter)} instead of {short(run.step_size)} would let it converge: "
            f"longer steps, {with_}, may drive two runs apart, and epsilon grows with the number "
            "of steps. It is valid all the same."
        )


def _advice_on_release_noise(report: PrivacyReport, delta: float) -> Iterator[str]:
    """The epsilon with noise on release as large as what one gradient's noise adds in the end."""
    run = report.run
    if run.release_noise_std > 0.0 or report.of_more_than_the_run:
        return
    noise = _two_digits(_final_move(run) * _last_value(run.noise_std))
    if not noise > 0.0:
        return
    if _takes_long(run):
        yield (
            f"Noise of standard deviation about {short(noise)} on the published parameters "
            "(release_noise_std) may give a smaller epsilon. Not computed, since that takes as "
            "long as the guarantee."
        )
        return
    noisier = account(
        run.replace(release_noise_std=noise),
        bounds=list(report.used),
        other_releases=report.other_releases,
    )
    found = noisier.epsilon(delta)
    if found < _SHARE_WORTH_SAYING * report.epsilon(delta):
        why = (
            "the last noise enters them by 1 - momentum only"
            if run.average is None
            else "the last noise enters the average only in part"
        )
        yield (
            f"Noise of standard deviation {short(noise)} on the published parameters "
            f"(release_noise_std) would give epsilon = {up(found)}: {why}."
        )


def _takes_long(run: TrainingRun) -> bool:
    """Whether certificates for this many positions take more than a few seconds."""
    each = run.batches.resampling is Resampling.EACH_STEP
    positions = 1 if each else min(run.batches.batches_per_epoch, _MAX_SOLVED_POSITIONS)
    return positions * run.steps > _MAX_QUICK_WORK


def _final_move(run: TrainingRun) -> float:
    """The distance that a gradient of the last steps moves the parameters in the end."""
    return _last_value(run.step_size) * (1.0 - run.dampening) / (1.0 - _last_value(run.momentum))


def _last_value(value: float | tuple[float, ...]) -> float:
    return value[-1] if isinstance(value, tuple) else value


def _two_digits(value: float) -> float:
    """A number of two digits, at most this one."""
    if not 0.0 < value < math.inf:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return float(f"{math.floor(value / unit) * unit:.2g}")
