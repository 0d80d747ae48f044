"""Reasons why the best bounds for the batches of a run do not apply to it."""

from __future__ import annotations

import numpy as np

from lastiterate._numerics.rounding import FEW_ROUNDINGS, up
from lastiterate.accounting import account
from lastiterate.bounds.catalogue import RECORDS
from lastiterate.bounds.conditions import NO_ACTIVE_CLIP
from lastiterate.bounds.fixed_order.momentum import MOMENTUM
from lastiterate.errors import Unmet
from lastiterate.opacus.linear_loss import NORM_SLACK_OF_OPACUS, LinearLoss
from lastiterate.opacus.training_record import TrainingRecord, UserStatement
from lastiterate.opacus.watched_loader import SEQUENTIAL
from lastiterate.run.adjacency import factor
from lastiterate.run.loss import Loss
from lastiterate.run.training_run import TrainingRun

_MOMENTUM_NEEDS_EVEN_BATCHES = (
    "every iterate is charged for: momentum has a bound of the last iterate for batches of a fixed "
    "size only (poisson_sampling=False and drop_last=True), whose epsilon may be less or more"
)
_SHORT = 1e-3  # a small step size for a smoothness of about 1


def order_reasons(record: TrainingRecord, stated: UserStatement) -> tuple[str, ...]:
    """The reason why bounds for a secret order do not apply; empty if they do or would not help."""
    batches = record.batches
    if batches is None or batches.kind != SEQUENTIAL or batches.per_pass == 1:
        return ()
    if stated.releases != "last-iterate":
        return ()
    return (
        "batches are in the same order in every pass, which is no secret: shuffle=True or Poisson "
        "sampling gives a smaller epsilon",
    )


def missed_bounds(run: TrainingRun, loss: Loss | LinearLoss | None) -> tuple[str, ...]:
    """Reasons why the best bounds for these batches do not apply, and what would change that.

    The best bounds are those that apply to the same run with short and constant steps on a convex,
    smooth loss that no clip changes.
    """
    if not run.has_plain_steps and not MOMENTUM.is_about(run):
        return (_MOMENTUM_NEEDS_EVEN_BATCHES,)
    unmet, best = account(run).unmet, _idealised(run)
    ids = [*account(best).all]
    ids += [stage.id for id_ in ids for stage in RECORDS[id_].applying(best)]
    missed = [one for id_ in ids for one in unmet.get(id_, ())]
    return tuple(f"a better bound {_reason_text(one, loss)}" for one in dict.fromkeys(missed))


def _reason_text(one: Unmet, loss: Loss | LinearLoss | None) -> str:
    if one.needs != NO_ACTIVE_CLIP.needs:
        return str(one)
    found = (
        f"a max_grad_norm that changes them (Opacus adds {NORM_SLACK_OF_OPACUS:g} to every norm)"
    )
    remedy = f"state loss.lipschitz, and take a max_grad_norm {2 * NORM_SLACK_OF_OPACUS:g} above it"
    if isinstance(loss, LinearLoss):
        remedy = f"take max_grad_norm={loss.clip_norm!r}, the clip_norm of this loss"
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
