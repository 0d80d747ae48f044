"""Reasons why the best bounds do not apply to a run, and whether other batches have less."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lastiterate._numerics.rounding import FEW_ROUNDINGS, up
from lastiterate.accounting import account
from lastiterate.bounds.catalogue import RECORDS
from lastiterate.bounds.conditions import NO_ACTIVE_CLIP
from lastiterate.bounds.fixed_order.momentum import MOMENTUM
from lastiterate.errors import Unmet
from lastiterate.opacus.linear_loss import NORM_SLACK_OF_OPACUS, LinearLoss
from lastiterate.run.adjacency import factor
from lastiterate.run.batch_rules.base import Resampling
from lastiterate.run.batch_rules.rules import Cyclic, PoissonSampled, ShuffledEachEpoch
from lastiterate.run.loss import Loss
from lastiterate.run.training_run import TrainingRun

_DELTA = 1e-5  # at which batches are compared
_LESS = 0.99  # a smaller epsilon by less than this is not worth a reason
_QUICK = (PoissonSampled,)  # to be computed for runs with momentum
_SHORT = 1e-3  # a small step size for a smoothness of about 1
_OTHERS = {
    "Poisson batches (poisson_sampling=True)": PoissonSampled,
    "shuffled batches (poisson_sampling=False, shuffle=True, drop_last=True)": ShuffledEachEpoch,
    "batches in a fixed order (poisson_sampling=False, shuffle=False, drop_last=True)": Cyclic,
}


def better_batches(run: TrainingRun, *, thorough: bool) -> tuple[str, ...]:
    """The reason to draw batches otherwise, with the epsilon that this has; empty if there is none.

    Batches in a public order are compared with others, and so are all batches of runs with
    momentum, of which the last iterate has a bound only if the batches have a fixed size.  That
    bound takes long to compute, and is computed for other batches only if `thorough`.
    """
    rule = run.batches
    public = rule.resampling is Resampling.NEVER and rule.batch_size < rule.examples
    if run.releases != "last-iterate" or (run.has_plain_steps and not public):
        return ()
    here = account(run).epsilon(_DELTA)
    others = {
        what: account(run.replace(batches=kind(rule.examples, rule.batch_size))).epsilon(_DELTA)
        for what, kind in _OTHERS.items()
        if not isinstance(rule, kind) and (thorough or run.has_plain_steps or kind in _QUICK)
    }
    less = [f"{what} have {one:.4g}" for what, one in others.items() if one < _LESS * here]
    ordered = "batches are in the same order in every pass, which is no secret: " if public else ""
    said = f"{ordered}at delta={_DELTA:g} these batches have epsilon {here:.4g}"
    if run.has_plain_steps or MOMENTUM.is_about(run):
        return (f"{said}, {', '.join(less)}",) if less else ()
    charged = "every iterate is charged for: with momentum, only batches of a fixed size have a "
    charged += "bound of the last iterate"
    if not thorough:
        return (f"{charged}, which may be less or more (accountant.reasons compares them)",)
    return (f"{charged}; {said}, {', '.join(less) or 'and no others have less'}",)


def missed_bounds(run: TrainingRun, loss: Loss | LinearLoss | None) -> tuple[str, ...]:
    """Reasons why the best bounds for these batches do not apply, and what would change that.

    The best bounds are those that apply to the same run with short and constant steps on a convex,
    smooth loss that no clip changes.
    """
    if not run.has_plain_steps and not MOMENTUM.is_about(run):
        return ()
    best = _idealised(run)
    ids = [*account(best).all]
    ids += [stage.id for id_ in ids for stage in RECORDS[id_].applying(best)]
    # Each alone, since a bound that needs neither asks for something else, as a bounded domain.
    convex = run.replace(loss=replace(run.loss, lipschitz=best.loss.lipschitz), clip_norm=None)
    ways = (run.replace(step_size=best.step_size), convex)
    missed = [one for way in ways for one in _missed(way, ids)] or _missed(run, ids)
    return tuple(f"a better bound {_reason_text(one, loss)}" for one in dict.fromkeys(missed))


def _missed(run: TrainingRun, ids: list[str]) -> list[Unmet]:
    unmet = account(run).unmet
    return [one for id_ in ids for one in unmet.get(id_, ())]


def _reason_text(one: Unmet, loss: Loss | LinearLoss | None) -> str:
    if one.needs != NO_ACTIVE_CLIP.needs:
        return str(one)
    found = (
        f"a max_grad_norm that changes them (Opacus adds {NORM_SLACK_OF_OPACUS:g} to every norm)"
    )
    remedy = f"state loss.lipschitz, and take a max_grad_norm {2 * NORM_SLACK_OF_OPACUS:g} above it"
    if isinstance(loss, LinearLoss):
        remedy = f"take max_grad_norm=loss.max_grad_norm, {loss.max_grad_norm!r} for this loss"
    return str(Unmet(one.needs, found, remedy))


def _idealised(run: TrainingRun) -> TrainingRun:
    penalty = run.loss.regulariser
    longest = up(run.sensitivity / factor(run.adjacency), FEW_ROUNDINGS)
    return run.replace(
        loss=Loss(smoothness=1.0 + penalty, regulariser=penalty, lipschitz=longest),
        clip_norm=None,
        step_size=_SHORT / (1.0 + penalty),
        noise_std=float(np.min(run.noise_std)),
        momentum=float(np.max(run.momentum)),
        buffer_resets=(),
    )
