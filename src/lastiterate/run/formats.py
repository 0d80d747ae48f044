"""The methods of `TrainingRun` that read a run from other formats, write it, or display it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from lastiterate._html import card
from lastiterate.errors import InvalidType
from lastiterate.run.batch_rules.base import BatchRule
from lastiterate.run.domain import Domain
from lastiterate.run.loss import Loss
from lastiterate.run.schedule import shortened

if TYPE_CHECKING:
    from lastiterate.run.training_run import TrainingRun


class RunFormats:
    """Runs from DP-SGD settings, `dp_accounting` events, JSON and TOML, and back."""

    @staticmethod
    def from_dp_sgd(
        *,
        clip_norm: float,
        noise_multiplier: float,
        batches: BatchRule | str | None = None,
        examples: int | None = None,
        batch_size: int | None = None,
        sample_rate: float | None = None,
        epochs: float | None = None,
        steps: int | None = None,
        step_size: float | Iterable[float] | None = None,
        loss: Loss | None = None,
        adjacency: str = "zero-out",
        release_noise_std: float = 0.0,
        domain: Domain | None = None,
        releases: str | None = None,
        examples_per_person: int = 1,
        momentum: float | Iterable[float] = 0.0,
        dampening: float = 0.0,
        nesterov: bool = False,
        **others: Any,
    ) -> TrainingRun:
        """The run of a DP-SGD library: gradients are clipped, noise is in units of the clip.

        Steps of SGD, with or without momentum: with Adam the released model is not the last
        iterate of such a recursion.

        Parameters
        ----------
        clip_norm : float
            The norm to which every example's gradient is clipped.
        noise_multiplier : float
            The noise on the sum of gradients, in units of the clip: on the averaged gradient it is
            noise_multiplier * clip_norm / batch_size.
        batches : BatchRule or str, optional
            A rule, or its name with `examples` and `batch_size`; Poisson's if left out.
        examples, batch_size : int, optional
            The sizes, if `batches` is no rule.
        sample_rate : float, optional
            batch_size / examples, instead of `batch_size`.
        epochs, steps : number, optional
            The length of the run; one of the two.
        step_size : float or sequence, optional
            If left out, every iterate is charged for, as other accountants do.
        loss : Loss, optional
            If left out, nothing is known of the loss.
        adjacency : {"zero-out", "replace"}
            Leaving an example out moves the sum of gradients by up to the clip, replacing it by up
            to twice the clip.
        release_noise_std, domain, releases, examples_per_person, momentum, dampening, nesterov
            As in `TrainingRun`.
        **others
            Words of other libraries; each is refused with the word that is used here.

        Returns
        -------
        TrainingRun
            It holds `noise_std` and `sensitivity`, not the multiplier: to change the clip or the
            batch size, call this again rather than `replace`.

        Raises
        ------
        InvalidParameter, InvalidType
            If a value is out of range, missing or contradicts another, or if an option makes the
            steps other than those of SGD.

        Examples
        --------
        >>> from lastiterate import TrainingRun
        >>> run = TrainingRun.from_dp_sgd(
        ...     examples=1_000, batch_size=100, epochs=5, clip_norm=2.0, noise_multiplier=5.0)
        >>> run.noise_std, run.sensitivity, run.adjacency, run.steps, run.releases
        (0.1, 2.0, 'zero-out', 50, 'every-iterate')
        """
        from lastiterate.run.description import Description
        from lastiterate.run.other_libraries import refuse_other_words

        refuse_other_words(others)
        known = Loss(convex=False) if loss is None else loss
        if not isinstance(known, Loss):
            raise InvalidType("loss", loss, must_be="one of Loss")
        return Description(
            examples=examples,
            batch_size=batch_size,
            sample_rate=sample_rate,
            batches=batches,
            epochs=epochs,
            steps=steps,
            step_size=step_size,
            noise_multiplier=noise_multiplier,
            clip_norm=clip_norm,
            domain=domain,
            release_noise_std=release_noise_std,
            adjacency=adjacency,
            releases=releases,
            examples_per_person=examples_per_person,
            momentum=momentum,  # type: ignore[arg-type]  # normalised by __post_init__
            dampening=dampening,
            nesterov=nesterov,
            **{one.name: getattr(known, one.name) for one in dataclasses.fields(known)},
        ).run()

    @staticmethod
    def from_dp_event(
        event: Any, *, clip_norm: float, examples: int | None = None, **settings: Any
    ) -> TrainingRun:
        """The run of a `dp_accounting` event, as Opacus, jax_privacy and others make them.

        An event does not say what was trained.  Some mechanisms that are not plain noisy gradient
        descent, such as banded matrix factorisation, have the event of one that is: describing
        these by `loss` and `step_size` would promise too much.

        Parameters
        ----------
        event : dp_accounting.DpEvent
            Gaussian events, alone or sampled (Poisson, without replacement, truncated), composed.
        clip_norm : float
            The norm to which every example's gradient was clipped.
        examples : int, optional
            Needed where the event does not say it.
        **settings
            What else `from_dp_sgd` takes, such as `loss`, `step_size` and `adjacency` ("zero-out"
            is REPLACE_SPECIAL there, "replace" REPLACE_ONE).

        Returns
        -------
        TrainingRun
            The run whose composition is this event.

        Raises
        ------
        InvalidParameter
            If the event is of another kind, or sets what `settings` sets.

        Examples
        --------
        >>> from dp_accounting import dp_event
        >>> from lastiterate import TrainingRun
        >>> step = dp_event.PoissonSampledDpEvent(0.05, dp_event.GaussianDpEvent(2.0))
        >>> run = TrainingRun.from_dp_event(
        ...     dp_event.SelfComposedDpEvent(step, 600), examples=4_000, clip_norm=2.0)
        >>> run.batches.batch_size, run.steps
        (200, 600)
        """
        from lastiterate.run.other_libraries import run_of

        return run_of(event, clip_norm=clip_norm, examples=examples, **settings)

    def to_json(self) -> str:
        """The run as JSON.

        Returns
        -------
        str
            `from_json` makes an equal run of it.

        Examples
        --------
        >>> from lastiterate import TrainingRun
        >>> run = TrainingRun.from_dp_sgd(
        ...     examples=1_000, batch_size=100, epochs=5, clip_norm=2.0, noise_multiplier=5.0)
        >>> TrainingRun.from_json(run.to_json()) == run
        True
        """
        return str(_serialise().to_json(self))

    def to_toml(self) -> str:
        """The run as TOML.

        Returns
        -------
        str
            `from_toml` makes an equal run of it.

        Examples
        --------
        >>> from lastiterate import TrainingRun
        >>> run = TrainingRun.from_dp_sgd(
        ...     examples=1_000, batch_size=100, epochs=5, clip_norm=2.0, noise_multiplier=5.0)
        >>> TrainingRun.from_toml(run.to_toml()) == run
        True
        """
        return str(_serialise().to_toml(self))

    @staticmethod
    def from_json(text: str) -> TrainingRun:
        """The run that `to_json` wrote.

        Parameters
        ----------
        text : str
            JSON.

        Returns
        -------
        TrainingRun
            The run.

        Raises
        ------
        InvalidParameter, InvalidType
            If the text describes no run.

        Examples
        --------
        >>> from lastiterate import TrainingRun
        >>> TrainingRun.from_json("{")
        Traceback (most recent call last):
        lastiterate.errors.InvalidParameter: ...
        """
        run: TrainingRun = _serialise().from_json(text)
        return run

    @staticmethod
    def from_toml(text: str) -> TrainingRun:
        """The run that `to_toml` wrote.

        Parameters
        ----------
        text : str
            TOML.

        Returns
        -------
        TrainingRun
            The run.

        Raises
        ------
        InvalidParameter, InvalidType
            If the text describes no run.

        Examples
        --------
        >>> from lastiterate import TrainingRun
        >>> TrainingRun.from_toml("steps =")
        Traceback (most recent call last):
        lastiterate.errors.InvalidParameter: ...
        """
        run: TrainingRun = _serialise().from_toml(text)
        return run

    def _repr_html_(self) -> str:
        fields = dataclasses.fields(self)  # type: ignore[arg-type]  # what derives from it is one
        rows = [(one.name, shortened(getattr(self, one.name))) for one in fields]
        return card("TrainingRun", rows)


def _serialise() -> ModuleType:
    from lastiterate.run import serialise

    return serialise
