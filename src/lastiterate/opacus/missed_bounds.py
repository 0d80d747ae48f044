"""Reasons why the best bounds do not apply to a run, and whether other batches have less."""

from __future__ import annotations

import numpy as np

from lastiterate._numerics.rounding import FEW_ROUNDINGS, up
from lastiterate.accounting import account
from lastiterate.bounds.catalogue import RECORDS
from lastiterate.bounds.conditions import NO_ACTIVE_CLIP
from lastiterate.bounds.fixed_order.momentum import MOMENTUM
from lastiterate.errors import Unmet
from lastiterate.opacus.linear_loss import NORM_SLACK_OF_OPACUS, LinearLoss
from lastiterate.run.adjacency import factor
from lastiterate.run.batch_rules.rules import Cyclic, PoissonSampled, ShuffledEachEpoch
from lastiterate.run.loss import Loss
from lastiterate.run.training_run import TrainingRun

_DELTA = 1e-5  # at which batches are compared
_LESS = 0.99  # a smaller epsilon by less than this is not worth a reason
_SHORT = 1e-3  # a small step size for a smoothness of about 1
SHUFFLING = "shuffled batches of a fixed size (poisson_sampling=False and drop_last=True)"
POISSON_SAMPLING = "Poisson batches (poisson_sampling=True)"


def better_batches(run: TrainingRun) -> tuple[str, ...]:
    """The reason to draw batches otherwise, with the epsilon that this has; empty if there is none.

    Batches in a public order are compared, and all batches of runs with momentum, of which the last
    iterate has a bound only if the batches have a fixed size.
    """
    rule = run.batches
    public = isinstance(rule, Cyclic) and rule.batch_size < rule.examples
    if run.releases != "last-iterate" or (run.has_plain_steps and not public):
        return ()
    here = account(run).epsilon(_DELTA)
    others = {
        what: account(run.replace(batches=kind(rule.examples, rule.batch_size))).epsilon(_DELTA)
        for what, kind in ((SHUFFLING, ShuffledEachEpoch), (POISSON_SAMPLING, PoissonSampled))
        if not isinstance(rule, kind)
    }
    less = [f"{what} have {one:.4g}" for what, one in others.items() if one < _LESS * here]
    compared = f"at delta={_DELTA:g} these batches have epsilon {here:.4g}"
    if public:
        said = "batches are in the same order in every pass, which is no secret"
    elif not MOMENTUM.is_about(run):
        said = "every iterate is charged for, because batches of random sizes have no other bound "
        said += "with momentum"
        less = less or [f"{what} do not have less" for what in others]
    else:
        said = "the bound for momentum does not profit from a secret order"
    return (f"{said}: {compared}, and {' and '.join(less)}",) if less else ()


def missed_bounds(run: TrainingRun, loss: Loss | LinearLoss | None) -> tuple[str, ...]:
    """Reasons why the best bounds for these batches do not apply, and what would change that.

    The best bounds are those that apply to the same run with short and constant steps on a convex,
    smooth loss that no clip changes.
    """
    if not run.has_plain_steps and not MOMENTUM.is_about(run):
        return ()
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
