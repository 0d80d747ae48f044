"""The accountant for Opacus, its registration, planned trainings, and why bounds do not apply."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np
from opacus.accountants import register_accountant
from opacus.accountants.accountant import IAccountant

from lastiterate import _check
from lastiterate._numerics.rounding import FEW_ROUNDINGS, up
from lastiterate.accounting import PrivacyReport, account
from lastiterate.bounds.catalogue import RECORDS
from lastiterate.bounds.conditions import NO_ACTIVE_CLIP
from lastiterate.bounds.momentum import MOMENTUM
from lastiterate.errors import InvalidParameter, InvalidType, RefusedTraining, Unmet, warn
from lastiterate.opacus.linear_loss import NORM_SLACK_OF_OPACUS, LinearLoss
from lastiterate.opacus.training_record import (
    EpochCounter,
    TrainingRecord,
    UserStatement,
    composition_reasons,
    run_if_mended,
    run_of,
)
from lastiterate.opacus.watched_loader import (
    SHUFFLED,
    Batches,
    WatchedLoader,
    local_of_make_private,
    read_batches,
)
from lastiterate.opacus.watched_steps import (
    OTHER_CLIPS,
    SMALLER_LAST_BATCH,
    ExpectedState,
    OptimizerStep,
    OtherSteps,
    SavedTensor,
    WatchedGradients,
    changed_parameters,
    group_settings,
    is_ghost,
    optimizer_deviations,
    read_step,
    refuse_label_weights,
    step_deviations,
)
from lastiterate.run.batch_rules.base import Resampling
from lastiterate.run.batch_rules.drawn import PoissonSampled
from lastiterate.run.batch_rules.ordered import Cyclic, ShuffledEachEpoch
from lastiterate.run.loss import Loss
from lastiterate.run.training_run import RELEASES, TrainingRun, factor

NAME = "last-iterate"
_ANEW = "begin the training anew, with a new PrivacyEngine"
_COMPARED_DELTA = 1e-5  # at which batches are compared
_SHARE_WORTH_SAYING = 0.99  # a smaller epsilon by less than this is not worth a reason
_QUICK_RULES = (PoissonSampled,)  # to be computed for runs with momentum
_SHORT_STEP = 1e-3  # a small step size for a smoothness of about 1
_OTHER_RULES = {
    "Poisson batches (poisson_sampling=True)": PoissonSampled,
    "shuffled batches (poisson_sampling=False, shuffle=True, drop_last=True)": ShuffledEachEpoch,
    "batches in a fixed order (poisson_sampling=False, shuffle=False, drop_last=True)": Cyclic,
}


@dataclass(frozen=True)
class TrainingPlan:
    """The optimizer, clip and loader that `make_private_with_epsilon` will be given.

    The certificate is about the training as it took place.  If that differs from the plan, only
    the target epsilon is missed.

    Parameters
    ----------
    optimizer : torch.optim.SGD, optional
        The optimizer, as it is given to Opacus.
    max_grad_norm : float, optional
        The clip.
    data_loader : DataLoader, optional
        The loader, as it is given to Opacus.
    poisson_sampling : bool
        Whether Opacus replaces its batches by Poisson batches.

    Examples
    --------
    >>> import torch
    >>> layer = torch.nn.Linear(3, 2)
    >>> rows = torch.utils.data.TensorDataset(torch.zeros(8, 3), torch.zeros(8).long())
    >>> TrainingPlan(
    ...     optimizer=torch.optim.SGD(layer.parameters(), lr=0.1),
    ...     max_grad_norm=2.0,
    ...     data_loader=torch.utils.data.DataLoader(rows, batch_size=4, shuffle=True),
    ... ).poisson_sampling
    True
    """

    optimizer: Any = None
    max_grad_norm: float | None = None
    data_loader: Any = None
    poisson_sampling: bool = True


def planned_record(plan: TrainingPlan, history: list[tuple[float, float, int]]) -> TrainingRecord:
    """The record of these steps by the plan; composition if the plan is incomplete."""
    reasons = []
    settings: dict[str, Any] = {"step_size": 1.0, "weight_decay": 0.0}
    if plan.optimizer is None or plan.max_grad_norm is None or plan.data_loader is None:
        reasons.append("the plan has no optimizer, max_grad_norm or data_loader")
    else:
        reasons += optimizer_deviations(plan.optimizer)
        settings = group_settings(plan.optimizer)
    clip = 1.0 if plan.max_grad_norm is None else plan.max_grad_norm
    clip = _check.number("max_grad_norm", clip, above=0.0)
    batches = _planned_batches(plan, history[0][1])
    divisor = max(int(batches.examples * (1 / batches.per_pass)), 1)  # as Opacus computes it
    steps = [
        OptimizerStep(
            noise_multiplier=_check.number("noise_multiplier", noise, above=0.0),
            clip=clip,
            divisor=divisor,
            **settings,
        )
        for noise, _, times in history
        for _ in range(times)
    ]
    steps[1:] = [replace(step, empty_buffer=False) for step in steps[1:]]
    passes = [1 + k // batches.per_pass for k in range(len(steps))]
    if not batches.even:
        reasons.append(SMALLER_LAST_BATCH)
    return TrainingRecord(steps, passes, batches, True, reasons)


def _planned_batches(plan: TrainingPlan, rate: float) -> Batches:
    if plan.data_loader is None:
        each = max(1, round(1.0 / rate))
        if plan.poisson_sampling:
            return Batches.poisson(each, rate, each)
        return Batches(SHUFFLED, each, each, 1)
    read = read_batches(plan.data_loader)
    if not plan.poisson_sampling:
        return read
    return Batches.poisson(read.examples, 1 / read.per_pass, read.per_pass)


class OpacusAccountant(IAccountant):
    """Accountant for Opacus that certifies the last iterate; `register` makes a subclass of it.

    Attributes
    ----------
    reasons : tuple of str
        Why every iterate is charged for, why the best bound for these batches does not apply, and
        whether other batches would have a smaller epsilon: all at once.

    Examples
    --------
    >>> import lastiterate.opacus as lo
    >>> made = lo.register(loss=lo.softmax(feature_bound=1.0, classes=2))
    >>> accountant = made()
    >>> accountant.watch(None)
    >>> accountant.get_epsilon(1e-5)
    0.0
    """

    stated: ClassVar[UserStatement] = UserStatement(None, "zero-out", "last-iterate", 1)
    plan: ClassVar[TrainingPlan] = TrainingPlan()
    name: ClassVar[str] = NAME
    history: list[tuple[float, float, int]]

    def __init__(self) -> None:
        super().__init__()
        self._record = TrainingRecord()
        self._loader: WatchedLoader | None = None
        self._gradients: WatchedGradients | None = None
        self._others: OtherSteps | None = None
        self._expected = ExpectedState()
        self._optimizer: Any = None
        self._epoch_counter = EpochCounter()
        self._resumed = False
        self._refusal: RefusedTraining | None = None
        self._digest: str | None = None  # of the parameters of a state that was loaded
        self._warned: tuple[str, ...] = ()

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[Any], None]:
        """The hook that Opacus calls in every step; watches loader and optimizer from here on."""
        frame = sys._getframe(1)
        self.watch(local_of_make_private(frame, "data_loader"))
        optimizer = local_of_make_private(frame, "optimizer")
        if optimizer is not None:
            model = local_of_make_private(frame, "module")
            if not is_ghost(optimizer):
                refuse_label_weights(local_of_make_private(frame, "criterion"))
            self._gradients = WatchedGradients(optimizer, self.stated.loss, model)
            self._others = OtherSteps(optimizer, model)

        def hook(optimizer: Any) -> None:
            self._refuse_again()
            try:
                self._observe(optimizer)
            except RefusedTraining as refusal:
                self._refusal = refusal
                raise
            except Exception as error:
                self._refusal = RefusedTraining(f"a step was refused: {error}", instead=_ANEW)
                raise
            self.step(noise_multiplier=optimizer.noise_multiplier, sample_rate=sample_rate)

        return hook

    def watch(self, loader: Any) -> None:
        """Count the batches of this loader.

        Call it only if Opacus does not make the loader itself.

        Parameters
        ----------
        loader : DataLoader or None
            The loader; None if it is not known.  `RefusedTraining` is raised if an example may be
            twice in one batch, or earlier steps saw other batches.
        """
        if loader is None:
            self._loader = None
            return
        watched = WatchedLoader.of(loader, repeats=self.stated.examples_per_person)
        before, now = self._record.batches, watched.batches
        if self._record.steps and before is not None and before != now:
            raise RefusedTraining(
                "the steps so far saw other batches", instead="continue with the same loader"
            )
        self._loader = watched
        self._record.continue_with(now)

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Add a step to Opacus' own history; the certificate rests on the watched steps instead."""
        if self.history and self.history[-1][:2] == (noise_multiplier, sample_rate):
            *_, times = self.history.pop()
        else:
            times = 0
        self.history.append((noise_multiplier, sample_rate, times + 1))

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why every iterate is charged for, or the best bound does not apply; empty if it does."""
        record, stated = self._record_and_statement()
        further = _further_reasons(record, stated, thorough=True)
        return (*composition_reasons(record, stated), *further)

    def run(self) -> TrainingRun:
        """The training so far, as it took place."""
        return run_of(*self._record_and_statement())

    def report(self) -> PrivacyReport:
        """The report on the training; warns, with reasons, where the best bounds do not apply."""
        record, stated = self._record_and_statement()
        charged = composition_reasons(record, stated)
        further = _further_reasons(record, stated, thorough=False)
        # Numbers change from step to step, and are no reason to warn again.
        reasons = tuple(re.sub(r"\d", "", one) for one in (*charged, *further))
        if reasons and reasons != self._warned:
            self._warned = reasons
            said = f"every iterate is charged for: {'; '.join(charged)}" if charged else ""
            then = ". Without that: " if charged and further else ""
            warn(f"{said}{then}{'; '.join(further)}", UserWarning)
        return account(run_of(record, stated))

    def get_epsilon(self, delta: float, *_: Any, **__: Any) -> float:
        """Epsilon of the training so far or, before any step, of the plan Opacus asks about."""
        if self.history or self._record.steps:
            return self.report().epsilon(delta)
        self._refuse_again()
        return 0.0

    def __len__(self) -> int:
        return sum(times for *_, times in self.history)

    @classmethod
    def mechanism(cls) -> str:
        """The name under which the accountant is registered."""
        return cls.name

    def state_dict(self, destination: Any = None) -> Any:
        """The state of the accountant, with the watched steps."""
        state = super().state_dict(destination)
        record, refusal = self._record, self._first_refusal()
        state["watched"] = {
            "steps": [asdict(step) for step in record.steps],
            "passes": list(record.passes),
            "batches": None if record.batches is None else asdict(record.batches),
            "regular": record.regular,
            "reasons": list(record.reasons),
            "steps of the last pass": self._epoch_counter.steps,
            "parameters": self._expected.parameters,
            "buffers": self._expected.buffers,
            "digest": self._digest if self._resumed else _digest_of(self._optimizer),
            "refused": None if refusal is None else [refusal.why, refusal.instead],
        }
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue the training whose state was saved, with an accountant that saw no step yet."""
        self._refuse_again()
        if self._record.steps:
            raise RefusedTraining(
                f"the accountant saw {len(self._record.steps):,} steps, which the state that is "
                "loaded would make it forget",
                instead="load the state of the accountant, the model and the optimizer together, "
                "after make_private and before the first step",
            )
        if "watched" not in state_dict:
            must_be = "the state of a lastiterate accountant, with its part 'watched'"
            raise InvalidParameter("state_dict", must_be=must_be, found="none")
        saved = state_dict["watched"]
        batches = None if saved["batches"] is None else Batches(**saved["batches"])
        now = None if self._loader is None else self._loader.batches
        if saved["steps"] and now is not None and now != batches:
            raise RefusedTraining(
                "the steps so far saw other batches", instead="continue with the same loader"
            )
        super().load_state_dict(state_dict)
        if (refused := saved.get("refused")) is not None:
            self._refusal = RefusedTraining(refused[0], instead=refused[1])
        self._record = TrainingRecord(
            [OptimizerStep(**step) for step in saved["steps"]],
            list(saved["passes"]),
            None,
            bool(saved["regular"]),
            list(saved["reasons"]),
        )
        self._record.continue_with(batches if now is None else now)
        self.history = [(noise, rate, times) for noise, rate, times in self.history]
        self._expected = ExpectedState(saved["parameters"], saved["buffers"])
        self._epoch_counter = EpochCounter(int(saved["steps of the last pass"]))
        self._resumed = bool(self._record.steps)
        self._digest = saved.get("digest")

    def _record_and_statement(self) -> tuple[TrainingRecord, UserStatement]:
        """The training as watched or, before any step, as planned; and what the user states."""
        self._refuse_again()
        if self._record.steps:
            self._epoch_counter.refuse_unused_batches_at_the_end(self._loader)
            if self._others is not None:
                self._others.refuse_bare_steps()
            if self._gradients is not None:
                self._gradients.refuse_changed_state(self._trained_elsewhere(), thorough=True)
            return self._record, self.stated
        if not self.history:
            raise InvalidParameter("steps", 0, must_be="at least 1: nothing was trained yet")
        return planned_record(self.plan, self.history), self.stated

    def _trained_elsewhere(self) -> dict[int, SavedTensor]:
        return {} if self._others is None else self._others.trained_elsewhere

    def _first_refusal(self) -> RefusedTraining | None:
        """The first refusal, which a loop may have caught before it made the step."""
        if self._refusal is None and self._gradients is not None:
            return self._gradients.refusal
        return self._refusal

    def _refuse_again(self) -> None:
        if (refusal := self._first_refusal()) is not None:
            raise RefusedTraining(refusal.why, instead=refusal.instead)
        if not self._record.steps and self._others is not None:
            self._others.refuse_unseen_steps()

    def _gradients_of(self, optimizer: Any) -> WatchedGradients:
        if self._gradients is None or self._gradients.optimizer is not optimizer:
            # The hook was attached by hand, and this is its first step.
            self._gradients = WatchedGradients(optimizer, self.stated.loss)
            if not is_ghost(optimizer):
                self._gradients.inspect()
        return self._gradients

    def _observe(self, optimizer: Any) -> None:
        record = self._record
        if record.steps and not self._resumed and optimizer is not self._optimizer:
            raise RefusedTraining(
                "one accountant is used for two trainings",
                instead="make a PrivacyEngine for each, and compose their reports",
            )
        gradients = self._gradients_of(optimizer)
        if self._others is None or self._others.optimizer is not optimizer:
            self._others = OtherSteps(optimizer)
        self._others.begin_step()
        clips = gradients.clips()
        step = read_step(optimizer, clips)
        self._epoch_counter.count_step(optimizer, record, self._loader, gradients.rows())
        gradients.refuse_changed_state(self._trained_elsewhere())
        batches = record.batches
        if batches is None or not batches.are_whole:
            gradients.refuse_kept_batches()
        if batches is not None:
            for reason in step_deviations(optimizer, even=batches.even):
                record.add_reason(reason)
        for reason in gradients.found:
            record.add_reason(reason)
        if any(one != optimizer.max_grad_norm for one in clips):
            record.add_reason(OTHER_CLIPS)
        stated = self.stated.loss
        if isinstance(stated, LinearLoss):
            shapes = [tuple(one.shape) for one in optimizer.params]
            if (other := stated.mismatch(shapes)) is not None:
                record.add_reason(other)
        foreseen = self._expected.parameters is not None or not self._resumed
        if not foreseen and self._digest not in (None, ExpectedState.digest(optimizer)):
            raise changed_parameters()
        for reason in self._expected.deviations(optimizer, first_step=not record.steps):
            record.add_reason(reason)
        unknown = record.reasons or stated is None
        self._expected = ExpectedState() if unknown else ExpectedState.after(optimizer, step)
        record.steps.append(step)
        self._optimizer, self._resumed = optimizer, False


def _digest_of(optimizer: Any) -> str | None:
    return None if optimizer is None else ExpectedState.digest(optimizer)


def _further_reasons(
    record: TrainingRecord, stated: UserStatement, *, thorough: bool
) -> tuple[str, ...]:
    """The reasons that are left if there are none for composition."""
    run = run_if_mended(record, stated)
    if run is None:
        return ()
    return (*better_batches(run, thorough=thorough), *missed_bounds(run, stated.loss))


def register(
    *,
    loss: Loss | LinearLoss | None = None,
    adjacency: str = "zero-out",
    releases: str = "last-iterate",
    examples_per_person: int = 1,
    plan: TrainingPlan | None = None,
    name: str = NAME,
) -> type[OpacusAccountant]:
    """Register the accountant with Opacus, for `PrivacyEngine(accountant="last-iterate")`.

    Parameters
    ----------
    loss : LinearLoss or Loss, optional
        Constants of every example's loss, without the optimizer's weight decay: `softmax` or
        `logistic` for a single linear layer, else `lastiterate.Loss`.  By default every iterate
        is charged for.
    adjacency : {"zero-out", "replace"}
        What may change in one example: its gradient becomes 0, or it becomes another example.
    releases : {"last-iterate", "last-iterate-and-order", "every-iterate"}
        What will be published.
    examples_per_person : int
        The most examples of one person.
    plan : TrainingPlan, optional
        Needed for `make_private_with_epsilon`, which asks for epsilon before training.
    name : str
        The name under which Opacus finds it; an accountant of that name is replaced.

    Returns
    -------
    type
        A subclass of `OpacusAccountant` with these settings.

    Raises
    ------
    InvalidType, InvalidParameter
        If `loss` is no loss or includes a penalty, or a setting is outside its range.

    Examples
    --------
    >>> import lastiterate.opacus as lo
    >>> lo.register(loss=lo.logistic(feature_bound=1.0), adjacency="replace").mechanism()
    'last-iterate'
    """
    if loss is not None and not isinstance(loss, Loss | LinearLoss):
        raise InvalidType("loss", loss, must_be="a Loss, or made by softmax or logistic")
    if isinstance(loss, Loss) and loss.regulariser:
        must_be = "0: the weight decay is read from the optimizer"
        raise InvalidParameter("loss.regulariser", loss.regulariser, must_be=must_be)
    stated = UserStatement(
        loss,
        _check.choice("adjacency", adjacency, among=("zero-out", "replace")),
        _check.choice("releases", releases, among=RELEASES),
        _check.count("examples_per_person", examples_per_person, at_least=1),
    )
    settings = {"stated": stated, "plan": TrainingPlan() if plan is None else plan, "name": name}
    accountant = type("RegisteredAccountant", (OpacusAccountant,), settings)
    register_accountant(name, accountant, force=True)
    return accountant


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
    here = account(run).epsilon(_COMPARED_DELTA)
    others = {
        what: account(run.replace(batches=kind(rule.examples, rule.batch_size))).epsilon(
            _COMPARED_DELTA
        )
        for what, kind in _OTHER_RULES.items()
        if not isinstance(rule, kind) and (thorough or run.has_plain_steps or kind in _QUICK_RULES)
    }
    less = [
        f"{what} have {one:.4g}" for what, one in others.items() if one < _SHARE_WORTH_SAYING * here
    ]
    ordered = "batches are in the same order in every pass, which is no secret: " if public else ""
    said = f"{ordered}at delta={_COMPARED_DELTA:g} these batches have epsilon {here:.4g}"
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
    best = _ideal_run(run)
    ids = [*account(best).all]
    ids += [stage.id for id_ in ids for stage in RECORDS[id_].applying(best)]
    # Each alone, since a bound that needs neither asks for something else, as a bounded domain.
    convex = run.replace(loss=replace(run.loss, lipschitz=best.loss.lipschitz), clip_norm=None)
    ways = (run.replace(step_size=best.step_size), convex)
    missed = [one for way in ways for one in _unmet_of(way, ids)] or _unmet_of(run, ids)
    return tuple(f"a better bound {_reason_text(one, loss)}" for one in dict.fromkeys(missed))


def _unmet_of(run: TrainingRun, ids: list[str]) -> list[Unmet]:
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


def _ideal_run(run: TrainingRun) -> TrainingRun:
    penalty = run.loss.regulariser
    longest = up(run.sensitivity / factor(run.adjacency), FEW_ROUNDINGS)
    return run.replace(
        loss=Loss(smoothness=1.0 + penalty, regulariser=penalty, lipschitz=longest),
        clip_norm=None,
        step_size=_SHORT_STEP / (1.0 + penalty),
        noise_std=float(np.min(run.noise_std)),
        momentum=float(np.max(run.momentum)),
        buffer_resets=(),
    )
