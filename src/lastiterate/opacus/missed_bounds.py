"""Why a bound that is made for a run's batches does not apply to it."""

from __future__ import annotations

import numpy as np

from lastiterate._numerics.rounding import FEW_ROUNDINGS, up
from lastiterate.accounting import account
from lastiterate.bounds.catalogue import RECORDS
from lastiterate.bounds.conditions import NO_ACTIVE_CLIP
from lastiterate.errors import Unmet
from lastiterate.opacus.linear_loss import BESIDE_THE_NORM, LinearLoss
from lastiterate.run.adjacency import factor
from lastiterate.run.loss import Loss
from lastiterate.run.training_run import TrainingRun

_SHORT = 1e-3  # a step size that is short enough for a smoothness of about 1


def missed_bounds(run: TrainingRun, loss: Loss | LinearLoss | None) -> tuple[str, ...]:
    """Reasons why the best bounds for these batches do not apply, and what would change that.

    The best bounds are those that apply to the same run with short and constant steps on a convex,
    smooth loss that no clip changes.
    """
    unmet, best = account(run).unmet, _at_best(run)
    ids = [*account(best).all]
    ids += [stage.id for id_ in ids for stage in RECORDS[id_].applying(best)]
    missed = [one for id_ in ids for one in unmet.get(id_, ())]
    return tuple(f"a better bound {_in_words(one, loss)}" for one in dict.fromkeys(missed))


def _in_words(one: Unmet, loss: Loss | LinearLoss | None) -> str:
    if one.needs != NO_ACTIVE_CLIP.needs:
        return str(one)
    found = f"a max_grad_norm that changes them (Opacus adds {BESIDE_THE_NORM:g} to every norm)"
    remedy = f"state loss.lipschitz, and take a max_grad_norm {2 * BESIDE_THE_NORM:g} above it"
    if isinstance(loss, LinearLoss):
        remedy = f"take max_grad_norm={loss.clip_norm!r}, the clip_norm of this loss"
    return str(Unmet(one.needs, found, remedy))


def _at_best(run: TrainingRun) -> TrainingRun:
    penalty = run.loss.regulariser
    longest = up(run.sensitivity / factor(run.adjacency), FEW_ROUNDINGS)
    return run.replace(
        loss=Loss(smoothness=1.0 + penalty, regulariser=penalty, lipschitz=longest),
        clip_norm=None,
        step_size=_SHORT / (1.0 + penalty),
        noise_std=float(np.min(run.noise_std)),
    )
