"""Assumptions that a guarantee rests on, with the run's numbers, and sentences that qualify it.

Only the assumptions of the bound in question are listed.  Conditions on the numbers, such as step
sizes of at most 2/smoothness, are checked and not repeated here."""

from __future__ import annotations

from collections.abc import Iterator

from lastiterate._display import short
from lastiterate.bounds.bound import Bound
from lastiterate.bounds.conditions import CONVEX
from lastiterate.other_releases import KINDS, Release
from lastiterate.privacy_report import PrivacyReport
from lastiterate.report.run_text import (
    momentum_text,
    needs_last_iterate_only,
    needs_secret_order,
    scheduled,
)
from lastiterate.run.training_run import Ball, TrainingRun


def assumptions(bound: Bound, run: TrainingRun) -> list[str]:
    """Each as a clause that follows "You state that"."""
    hides = needs_last_iterate_only(bound, run)
    stated = list(_loss(bound, run)) if hides else []
    stated += _gradients(run)
    if run.loss.regulariser and run.adjacency == "zero-out" and run.batches.exact_size:
        stated.append("the penalty is shared: it stays as it is when an example is left out")
    stated.append(run.batches.stated(secret=needs_secret_order(bound, run)))
    stated += _noise(run, released=hides)
    if hides:
        stated.append(_steps(run))
        stated += _domain(bound, run)
    if run.examples_per_person > 1:
        stated.append(
            f"no person has more than {run.examples_per_person:,} of the examples: nothing here "
            "checks that, and of a person with more only so many are protected together"
        )
    stated.append("the start does not depend on the examples, whose number is public")
    return stated


def _steps(run: TrainingRun) -> str:
    fixed = "and the number of steps was fixed beforehand"
    if run.momentum == 0.0:
        return "every step is a plain gradient step, without momentum or preconditioning, " + fixed
    return (
        f"every step is one of SGD with {momentum_text(run)}, without preconditioning; the buffer "
        "is empty at the start, and it, the optimizer's state and all checkpoints stay secret; "
        + fixed
    )


def noise_of_release(release: Release) -> str:
    """The noise on a statistic that is published beside the model, as a clause."""
    return (
        f"independent Gaussian noise of standard deviation {short(release.noise_std)} is added to "
        f"{KINDS[release.kind].summed}"
    )


def _loss(bound: Bound, run: TrainingRun) -> Iterator[str]:
    loss = run.loss
    contracting = CONVEX in bound.all_needs(run)
    penalty = loss.regulariser
    included = f" (a penalty of curvature {short(penalty)} included)" if penalty else ""
    known = []
    if loss.smoothness is not None:
        known.append(f"{short(loss.smoothness)}-smooth")
    if contracting or (loss.convex and loss.smoothness is not None):
        # A batch that may be empty, or a clipped one, keeps of the curvature only the penalty's.
        curved = loss.strong_convexity if run.batches.exact_size else 0.0
        curved = 0.0 if run.clip_may_be_active else curved
        known.append(f"{short(curved)}-strongly convex" if curved > 0.0 else "convex")
    if known:
        yield f"the loss of every possible example is {' and '.join(known)}{included}"
    if penalty and not run.batches.exact_size:
        yield "that penalty is added in every step, whatever the batch"
    if loss.holder is not None and not contracting:
        constant, order = loss.holder
        yield (
            f"the gradient of every possible example moves by at most {short(constant)} "
            f"d^{short(order)} between points at distance d{_aside(run)}"
        )
    if contracting and run.clip_norm is None:
        yield "steps use the gradients of these losses as they are: none is clipped to a norm"


def _gradients(run: TrainingRun) -> Iterator[str]:
    bound, lipschitz = run.gradient_bound, run.loss.lipschitz
    aside = _aside(run)
    if lipschitz is not None:
        idle = run.clip_norm is not None and not run.clip_may_be_active
        so = ", so that the clip never acts" if idle else ""
        yield f"no possible example has a gradient of norm above {short(lipschitz)}{aside}{so}"
    if run.clip_norm is not None:
        yield f"every example's gradient is clipped to norm {short(run.clip_norm)}{aside}"
    replaced = run.adjacency == "replace"
    follows = bound is not None and run.sensitivity >= bound * (2.0 if replaced else 1.0)
    if follows:
        return
    most = f"{short(run.sensitivity)} in norm"
    if replaced:
        yield f"any two possible examples' gradients, at the same point, differ by at most {most}"
    else:
        yield f"the gradient of every possible example is at most {most}{aside}"


def _aside(run: TrainingRun) -> str:
    return ", the penalty aside" if run.loss.regulariser else ""


def _noise(run: TrainingRun, *, released: bool) -> Iterator[str]:
    most = max(run.noise_std) if isinstance(run.noise_std, tuple) else run.noise_std
    if most > 0.0:
        yield (
            f"independent Gaussian noise of standard deviation {scheduled(run.noise_std)} per "
            "coordinate is added to the averaged gradient in every step"
        )
    if released and run.release_noise_std > 0.0:
        yield (
            f"independent Gaussian noise of standard deviation {short(run.release_noise_std)} per "
            "coordinate is added once, to the published parameters"
        )


def _domain(bound: Bound, run: TrainingRun) -> Iterator[str]:
    if not isinstance(run.domain, Ball):
        return
    yield (
        f"every iterate and the published model are projected onto one closed convex set of "
        f"diameter {short(run.domain.diameter)}, "
        "chosen without regard to the examples"
    )


SELECTED = (
    "The model is the best of a secret number of tries, and the run described here is one of them: "
    "the guarantee is of the choice among all."
)
SEEDED = "The noise came from a seed: this is not private against anyone who knows the seed."
TRIES_KNOWN = "how many tries there were, how long they took, or another of the models tried"


def qualifications(report: PrivacyReport) -> tuple[str, ...]:
    """Sentences that qualify the number by facts that the run does not hold."""
    said = [SELECTED] if report.selected else []
    if report.followed is not None:
        said.append(_followed(*report.followed))
    if report.seeded:
        said.append(SEEDED)
    return (*said, *report.caveats)


def training_alone_text(report: PrivacyReport) -> str:
    """A sentence on what a number derived from the run alone leaves out; empty if nothing."""
    left_out = []
    if report.other_releases:
        left_out.append("what is published beside the model")
    if report.selected:
        left_out.append("the choice among several tries")
    if report.followed is not None:
        left_out.append("the steps of unlearning requests")
    if not left_out:
        return ""
    return f"This is of the training alone: it does not include {' or '.join(left_out)}."


def _followed(steps: int, requests: int) -> str:
    often = "1 unlearning request" if requests == 1 else f"{requests:,} unlearning requests"
    return (
        f"{often} followed, with {steps:,} extra steps that saw those who stay once more: the "
        "guarantee is theirs, of all models that were published, together."
    )
