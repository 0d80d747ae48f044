"""The accountant that Opacus is given, and how it is made known to Opacus."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, ClassVar

from opacus.accountants import register_accountant
from opacus.accountants.accountant import IAccountant

from lastiterate import _check
from lastiterate._warning import warn
from lastiterate.accounting import PrivacyReport, account
from lastiterate.errors import InvalidParameter, InvalidType, RefusedTraining
from lastiterate.opacus import optimizer_step
from lastiterate.opacus.epoch_counter import Turns
from lastiterate.opacus.linear_loss import LinearLoss
from lastiterate.opacus.missed_bounds import missed_bounds
from lastiterate.opacus.optimizer_step import Parameters, Step
from lastiterate.opacus.training_record import Plan, Stated, Watched, run_of, why_composition
from lastiterate.opacus.watched_gradients import WatchedGradients
from lastiterate.opacus.watched_loader import Batches, WatchedLoader, made_by_caller
from lastiterate.run.loss import Loss
from lastiterate.run.training_run import RELEASES, TrainingRun

NAME = "last-iterate"


class LastIterateAccountant(IAccountant):
    """Certifies the last iterate of a training by Opacus; made by `register`.

    `report()` is `lastiterate.account` of `run()`, the training as it took place.  `reasons` says
    why every iterate is charged for, or why the best bound for these batches does not apply.
    """

    stated: ClassVar[Stated] = Stated(None, "zero-out", "last-iterate", 1)
    plan: ClassVar[Plan] = Plan()
    name: ClassVar[str] = NAME
    history: list[tuple[float, float, int]]

    def __init__(self) -> None:
        super().__init__()
        self._seen = Watched()
        self._loader: WatchedLoader | None = None
        self._gradients: WatchedGradients | None = None
        self._parameters = Parameters()
        self._optimizer: Any = None
        self._turns = Turns()
        self._resumed = False
        self._warned: tuple[str, ...] = ()

    def get_optimizer_hook_fn(self, sample_rate: float) -> Callable[[Any], None]:
        """The hook that Opacus calls in every step; watches loader and optimizer from here on."""
        frame = sys._getframe(1)
        self.watch(made_by_caller(frame, "data_loader"))
        optimizer = made_by_caller(frame, "optimizer")
        if optimizer is not None:
            self._gradients = WatchedGradients(optimizer, self.stated.loss)

        def hook(optimizer: Any) -> None:
            self._observe(optimizer)
            self.step(noise_multiplier=optimizer.noise_multiplier, sample_rate=sample_rate)

        return hook

    def watch(self, loader: Any) -> None:
        """Take batches to be drawn by this loader, and count them.

        Only to be called where Opacus is not left to make the loader itself.
        """
        if loader is None:
            self._loader = None
            return
        self._loader = WatchedLoader.of(loader)
        before, now = self._seen.batches, self._loader.batches
        if self._seen.steps and before is not None and before != now:
            raise RefusedTraining(
                "the steps so far saw other batches", instead="continue with the same loader"
            )
        self._seen.batches = now

    def step(self, *, noise_multiplier: float, sample_rate: float) -> None:
        """Keep Opacus' own history; what is certified rests on what was watched."""
        if self.history and self.history[-1][:2] == (noise_multiplier, sample_rate):
            *_, times = self.history.pop()
        else:
            times = 0
        self.history.append((noise_multiplier, sample_rate, times + 1))

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why every iterate is charged for, or else what keeps the best bound from applying.

        Empty where the best bound for these batches is used.
        """
        return self._reasons(*self._described())

    def run(self) -> TrainingRun:
        """The training so far, as it took place."""
        return run_of(*self._described())

    def report(self) -> PrivacyReport:
        """The report on the training; warns, with reasons, where the best bounds do not apply."""
        seen, stated = self._described()
        reasons = self._reasons(seen, stated)
        if reasons and reasons != self._warned:
            self._warned = reasons
            charged = "every iterate is charged for: " if why_composition(seen, stated) else ""
            warn(f"{charged}{'; '.join(reasons)}", UserWarning)
        return account(run_of(seen, stated))

    def get_epsilon(self, delta: float, *_: Any, **__: Any) -> float:
        """Epsilon of the training so far or, before any step, of the plan Opacus asks about."""
        if not self.history:
            return 0.0
        return self.report().epsilon(delta)

    def __len__(self) -> int:
        return sum(times for *_, times in self.history)

    @classmethod
    def mechanism(cls) -> str:
        """The name that it is registered by."""
        return cls.name

    def state_dict(self, destination: Any = None) -> Any:
        """With all that `report` rests on."""
        state = super().state_dict(destination)
        seen = self._seen
        state["watched"] = {
            "steps": [asdict(step) for step in seen.steps],
            "passes": list(seen.passes),
            "batches": None if seen.batches is None else asdict(seen.batches),
            "regular": seen.regular,
            "reasons": list(seen.reasons),
            "steps of the last pass": self._turns.steps,
            "parameters": self._parameters.expected,
        }
        return state

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on where the training that was saved had come to."""
        super().load_state_dict(state_dict)
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
        self._seen = Watched(
            [Step(**step) for step in saved["steps"]],
            list(saved["passes"]),
            batches if now is None else now,
            bool(saved["regular"]),
            list(saved["reasons"]),
        )
        self.history = [(noise, rate, times) for noise, rate, times in self.history]
        self._parameters = Parameters(saved["parameters"])
        self._turns = Turns(int(saved["steps of the last pass"]))
        self._resumed = bool(self._seen.steps)

    def _described(self) -> tuple[Watched, Stated]:
        """The training as watched or, before any step, as planned; and what the user states."""
        if self._seen.steps:
            return self._seen, self.stated
        if not self.history:
            raise InvalidParameter("steps", 0, must_be="at least 1: nothing was trained yet")
        return self.plan.watched(self.history), self.stated

    def _reasons(self, seen: Watched, stated: Stated) -> tuple[str, ...]:
        charged = why_composition(seen, stated)
        return charged if charged else missed_bounds(run_of(seen, stated), stated.loss)

    def _watched(self, optimizer: Any) -> WatchedGradients:
        if self._gradients is None or self._gradients.optimizer is not optimizer:
            # The hook was attached by hand, and this is its first step.
            self._gradients = WatchedGradients(optimizer, self.stated.loss)
            if not optimizer_step.is_ghost(optimizer):
                self._gradients.look()
        return self._gradients

    def _observe(self, optimizer: Any) -> None:
        seen = self._seen
        if seen.steps and not self._resumed and optimizer is not self._optimizer:
            raise RefusedTraining(
                "one accountant is used for two trainings",
                instead="make a PrivacyEngine for each, and compose their reports",
            )
        step = optimizer_step.read(optimizer)
        gradients = self._watched(optimizer)
        self._turns.take(optimizer, seen, self._loader, gradients.rows())
        batches = seen.batches
        if batches is not None:
            for reason in optimizer_step.not_plain(optimizer, even=batches.even):
                seen.because(reason)
        for reason in gradients.found:
            seen.because(reason)
        stated = self.stated.loss
        if isinstance(stated, LinearLoss):
            shapes = [tuple(one.shape) for one in optimizer.params]
            if (other := stated.unlike(shapes)) is not None:
                seen.because(other)
        if self._parameters.changed_since(optimizer):
            seen.because("parameters were changed between steps, by something else")
        if seen.reasons or stated is None:
            self._parameters = Parameters()
        else:
            self._parameters.after(optimizer, step)
        seen.steps.append(step)
        self._optimizer, self._resumed = optimizer, False


def register(
    *,
    loss: Loss | LinearLoss | None = None,
    adjacency: str = "zero-out",
    releases: str = "last-iterate",
    examples_per_person: int = 1,
    plan: Plan | None = None,
    name: str = NAME,
) -> type[LastIterateAccountant]:
    """Make the accountant known to Opacus: `PrivacyEngine(accountant="last-iterate")`.

    Parameters
    ----------
    loss : LinearLoss or Loss, optional
        What is known of every example's loss, the optimizer's weight decay left out: `softmax` or
        `logistic` for a single linear layer, else `lastiterate.Loss`.  Left out, every iterate is
        charged for.
    adjacency : {"zero-out", "replace"}
        What one example may become.
    releases : {"last-iterate", "last-iterate-and-order", "every-iterate"}
        What you will publish.
    examples_per_person : int
        The most examples of one person.
    plan : Plan, optional
        Needed by `make_private_with_epsilon` alone, which asks before there is an optimizer.
    name : str
        By which Opacus is to find it; one of that name is replaced.

    Returns
    -------
    type
        The class, a `LastIterateAccountant` with these settings.
    """
    if loss is not None and not isinstance(loss, Loss | LinearLoss):
        raise InvalidType("loss", loss, must_be="a Loss, or made by softmax or logistic")
    if isinstance(loss, Loss) and loss.regulariser:
        must_be = "0: the weight decay is read from the optimizer"
        raise InvalidParameter("loss.regulariser", loss.regulariser, must_be=must_be)
    stated = Stated(
        loss,
        _check.choice("adjacency", adjacency, among=("zero-out", "replace")),
        _check.choice("releases", releases, among=RELEASES),
        _check.count("examples_per_person", examples_per_person, at_least=1),
    )
    settings = {"stated": stated, "plan": Plan() if plan is None else plan, "name": name}
    made = type("RegisteredAccountant", (LastIterateAccountant,), settings)
    register_accountant(name, made, force=True)
    return made
