"""One run of noisy gradient descent, as it happened, and the adjacency that protects its data."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType
from typing import Any, get_args

from lastiterate import _check
from lastiterate._display import card
from lastiterate._numerics.rounding import THOUSANDS_OF_ROUNDINGS, up
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.run.batch_rules import same_batches
from lastiterate.run.batch_rules.base import RULES, BatchRule, Resampling
from lastiterate.run.loss import Loss
from lastiterate.run.optimizer import (
    Average,
    Schedule,
    averages_one_iterate,
    checked_average,
    checked_dampening,
    checked_nesterov,
    checked_resets,
    has_empty_buffers,
    momentum_schedule,
    schedule,
    shortened,
)

RELEASES = ("last-iterate", "last-iterate-and-order", "every-iterate")
ADJACENCIES = ("replace", "zero-out")
ADD_REMOVE = "add-remove"
IN_WORDS = {"replace": "replaced by another", "zero-out": "left out (zeroed)"}
_ADJACENCY_CHOICES = (
    "one of 'replace' (one example becomes another), 'zero-out' (its gradient becomes 0), or "
    "'add-remove', which is 'zero-out' for batches of independent examples such as Poisson's"
)

# Fields of less usual runs, which records and texts leave out where they say nothing.
LEFT_OUT_AT_DEFAULTS = (
    "examples_per_person",
    "momentum",
    "dampening",
    "nesterov",
    "buffer_resets",
    "average",
)


@dataclass(frozen=True)
class Unbounded:
    """No projection: iterates may be anywhere.

    Examples
    --------
    >>> from lastiterate import Unbounded
    >>> Unbounded()
    Unbounded()
    """


@dataclass(frozen=True)
class Ball:
    """Projection, after every step, onto a closed convex set of this diameter.

    The name says the usual case; the guarantee needs convexity and the diameter only.

    Parameters
    ----------
    diameter : float
        The largest distance of two points of the set.

    Examples
    --------
    >>> from lastiterate import Ball
    >>> Ball(diameter=2.0)
    Ball(diameter=2.0)
    """

    diameter: float

    def __post_init__(self) -> None:
        value = _check.number("diameter", self.diameter, above=0.0)
        object.__setattr__(self, "diameter", value)


Domain = Unbounded | Ball


@dataclass(frozen=True, kw_only=True)
class TrainingRun:
    r"""A run of noisy gradient descent on private data, and what of it is published.

    .. math:: x_k = \Pi_K\Big(x_{k-1} - \eta_k\big(\tfrac1b \sum_{i \in B_k}
              \nabla f_i(x_{k-1}) + N(0, \sigma_k^2 I)\big)\Big), \qquad k = 1, \dots, T.

    The start x_0 must not depend on the data.  With `momentum` the noisy gradient goes through a
    buffer first, as in `torch.optim.SGD`.  There is no preconditioning: runs of Adam are not of
    this form.

    Parameters
    ----------
    loss : Loss
        What is known of the loss of every example.
    sensitivity : float
        L: the largest |grad f(x) - grad g(x)| over two admissible examples and all x.
        Losses with gradients of norm at most C have L = 2C.
    batches : BatchRule
        Which examples each step sees: FullBatch, Cyclic, ShuffledOnce, ...
    steps : int
        T, the number of steps (not epochs).
    step_size : float or sequence of length `steps`
        eta_k.  Here and below, a sequence of equal numbers is the number.
    noise_std : float or sequence of length `steps`
        sigma_k: per coordinate, on the averaged gradient, before the step size.  May be 0 where
        `release_noise_std` is positive.
    release_noise_std : float
        Noise added once, per coordinate, to the published parameters.
    domain : Unbounded or Ball
        The set onto which every iterate (and the published model) is projected.
    clip_norm : float, optional
        The norm to which every example's gradient, regulariser excluded, is clipped.
        Leave it out for a clip that is itself the gradient of a convex loss: then `loss`
        describes that loss.
    adjacency : {"replace", "zero-out"}
        What one person's data may become: another example, or none at all (its
        gradient is then 0).  `sensitivity` must be meant for it.  "add-remove" is taken for
        "zero-out" where it is the same (Poisson batches), and refused elsewhere.
    examples_per_person : int
        k: the most examples that belong to one person, all of whose data is protected at once.
        Nothing enforces it: it is a statement of yours.
    releases : {"last-iterate", "last-iterate-and-order", "every-iterate"}
        What is published: the last iterate, that and the order of the batches (or its seed),
        or more of the iterates (checkpoints) but not the order.  A loss or score on the data is
        none of these: it is computed from the examples without noise, and no run covers it.
    momentum : float or sequence of length `steps`
        beta, in [0, 1).  The buffer starts empty and is never published.
    dampening : float
        tau: the buffer becomes beta buffer + (1 - tau) gradient, but for its first step, which
        stores the gradient.
    nesterov : bool
        Whether a step goes along gradient + beta buffer instead of the buffer.
    buffer_resets : sequence of int
        The steps, counted from 1, that begin with an empty buffer; the first need not be named.
    average : ExponentialAverage or TailAverage, optional
        The average of iterates that is published instead of the last one.  An average of the
        last one alone is None.

    Examples
    --------
    >>> from lastiterate import Cyclic, Loss, TrainingRun
    >>> run = TrainingRun(
    ...     loss=Loss(smoothness=32.502, strong_convexity=0.002), sensitivity=10.0,
    ...     batches=Cyclic(examples=60_000, batch_size=1_500), steps=2_000,
    ...     step_size=0.05, noise_std=0.01)
    >>> run.replace(steps=4_000).steps
    4000
    """

    loss: Loss
    sensitivity: float
    batches: BatchRule
    steps: int
    step_size: Schedule
    noise_std: Schedule
    release_noise_std: float = 0.0
    domain: Domain = field(default_factory=Unbounded)
    clip_norm: float | None = None
    adjacency: str = "replace"
    releases: str = "last-iterate"
    examples_per_person: int = 1
    momentum: Schedule = 0.0
    dampening: float = 0.0
    nesterov: bool = False
    buffer_resets: tuple[int, ...] = ()
    average: Average | None = None

    def __post_init__(self) -> None:
        _require_instance("loss", self.loss, (Loss,))
        _require_instance("batches", self.batches, tuple(RULES.values()))
        _require_instance("domain", self.domain, get_args(Domain))
        self._set("sensitivity", _check.number("sensitivity", self.sensitivity, above=0.0))
        self._set("steps", _check.count("steps", self.steps, at_least=1))
        release = _check.number("release_noise_std", self.release_noise_std, at_least=0.0)
        self._set("release_noise_std", release)
        self._set("step_size", schedule("step_size", self.step_size, self.steps))
        silent = "a number in (0, inf), or 0 where release_noise_std is positive"
        allowed = None if release > 0.0 else silent
        self._set("noise_std", schedule("noise_std", self.noise_std, self.steps, positive=allowed))
        if self.clip_norm is not None:
            self._set("clip_norm", _check.number("clip_norm", self.clip_norm, above=0.0))
        self._set("adjacency", known_adjacency(self.adjacency, self.batches))
        _check.choice("releases", self.releases, among=RELEASES)
        persons = _check.count(
            "examples_per_person",
            self.examples_per_person,
            at_least=1,
            at_most=self.batches.examples,
        )
        self._set("examples_per_person", persons)
        self._set_optimizer()
        self.batches.check_length(self.steps)
        self._check_sensitivity()

    def _set_optimizer(self) -> None:
        momentum = momentum_schedule(self.momentum, self.steps)
        nesterov = checked_nesterov(self.nesterov, momentum=momentum)
        dampening = checked_dampening(self.dampening, momentum=momentum, nesterov=nesterov)
        resets = checked_resets(self.buffer_resets, self.steps, momentum=momentum)
        self._set("momentum", momentum)
        self._set("nesterov", nesterov)
        self._set("dampening", dampening)
        self._set("buffer_resets", resets)
        self._set("average", checked_average(self.average, self.steps))

    def _check_sensitivity(self) -> None:
        bound = self.gradient_bound
        if bound is None:
            return
        most = factor(self.adjacency) * bound
        if not self.sensitivity <= up(most, THOUSANDS_OF_ROUNDINGS):
            times = "2 * " if self.adjacency == "replace" else ""
            raise InvalidParameter(
                "sensitivity",
                self.sensitivity,
                must_be=f"at most {times}(the least of clip_norm and loss.lipschitz) = {most!r} "
                f"with adjacency={self.adjacency!r}",
            )

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

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
        from lastiterate.run.description import Description, refuse_other_words

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
        from lastiterate.run.description import run_of

        return run_of(event, clip_norm=clip_norm, examples=examples, **settings)

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

    def replace(self, **changes: Any) -> TrainingRun:
        """This run with some fields changed; all others, noise included, stay as they are.

        Parameters
        ----------
        **changes
            Fields of the run and their new values.

        Returns
        -------
        TrainingRun
            The changed run; this one stays as it is.

        Raises
        ------
        InvalidParameter, InvalidType
            If a run has no such field, or a value is out of range.

        Examples
        --------
        >>> run = TrainingRun.from_dp_sgd(
        ...     examples=1_000, batch_size=100, epochs=5, clip_norm=2.0, noise_multiplier=5.0)
        >>> run.replace(steps=10).steps
        10
        """
        unknown = changes.keys() - {f.name for f in dataclasses.fields(self)}
        if unknown:
            names = ", ".join(f.name for f in dataclasses.fields(self))
            raise InvalidType("replace argument", min(unknown), must_be=f"one of {names}")
        return dataclasses.replace(self, **changes)

    def under(self, adjacency: str) -> TrainingRun | None:
        """This run under another adjacency; None where the effect of an example is not known.

        Two gradients differ by at most twice the largest; what one adds is known by a clip or by
        `loss.lipschitz`.

        Parameters
        ----------
        adjacency : {"replace", "zero-out"}
            The other adjacency.

        Returns
        -------
        TrainingRun or None
            The same training, with the sensitivity of that adjacency.

        Examples
        --------
        >>> run = TrainingRun.from_dp_sgd(
        ...     examples=1_000, batch_size=100, epochs=5, clip_norm=2.0, noise_multiplier=5.0)
        >>> run.under("replace").sensitivity
        4.0
        """
        wanted, bound = known_adjacency(adjacency, self.batches), self.gradient_bound
        if wanted == self.adjacency:
            return self
        if self.adjacency == "zero-out":
            return self.replace(adjacency=wanted, sensitivity=2.0 * self.sensitivity)
        if bound is None:
            return None
        return self.replace(adjacency=wanted, sensitivity=bound)

    @cached_property
    def descriptions(self) -> tuple[TrainingRun, ...]:
        """This run under every batch rule that is known to draw its batches with the same law.

        They have plain steps if its momentum, or its average, changes nothing.
        """
        rules = same_batches(self.batches, self.steps)
        each = Resampling.EACH_EPOCH
        if not self.is_constant and self.batches.resampling is Resampling.ONCE:
            # Bounds of orders drawn every epoch take a schedule position by position.
            rules = tuple(rule for rule in rules if rule.resampling is not each)
        same = self
        if has_empty_buffers(self):
            same = same.replace(momentum=0.0, dampening=0.0, buffer_resets=())
        if averages_one_iterate(self):
            same = same.replace(average=None)
        return tuple(same if rule == self.batches else same.replace(batches=rule) for rule in rules)

    @property
    def is_constant(self) -> bool:
        """Whether step size and noise are the same in every step."""
        return not isinstance(self.step_size, tuple) and not isinstance(self.noise_std, tuple)

    @property
    def has_plain_steps(self) -> bool:
        """Whether there is no momentum and the last iterate itself is published."""
        return self.momentum == 0.0 and self.average is None

    @property
    def noise_multiplier(self) -> Schedule | None:
        """The noise in units of the clip, as DP-SGD libraries have it; None without a clip."""
        if self.clip_norm is None:
            return None
        scale = self.batches.batch_size / self.clip_norm
        if isinstance(self.noise_std, tuple):
            return tuple(noise * scale for noise in self.noise_std)
        return self.noise_std * scale

    @property
    def gradient_bound(self) -> float | None:
        """The least known bound on the norm of an example's gradient, or None."""
        known = [b for b in (self.loss.lipschitz, self.clip_norm) if b is not None]
        return min(known) if known else None

    @property
    def clip_may_be_active(self) -> bool:
        """Whether norm clipping may change a gradient, so that `loss` is not what was descended."""
        if self.clip_norm is None:
            return False
        return self.loss.lipschitz is None or self.loss.lipschitz > self.clip_norm

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{f.name}={shortened(getattr(self, f.name))}"
            for f in dataclasses.fields(self)
            if f.name not in LEFT_OUT_AT_DEFAULTS or getattr(self, f.name) != f.default
        )
        return f"TrainingRun({shown})"

    def _repr_html_(self) -> str:
        fields = dataclasses.fields(self)
        rows = [(one.name, shortened(getattr(self, one.name))) for one in fields]
        return card("TrainingRun", rows)


def _require_instance(name: str, value: object, kinds: tuple[type, ...]) -> None:
    if not isinstance(value, kinds):
        must_be = "one of " + ", ".join(kind.__name__ for kind in kinds)
        raise InvalidType(name, value, must_be=must_be)


def _serialise() -> ModuleType:
    from lastiterate.run import serialise

    return serialise


def factor(adjacency: str) -> float:
    """The largest change of a sum of gradients of norm at most 1."""
    return 2.0 if adjacency == "replace" else 1.0


def known_adjacency(adjacency: object, batches: BatchRule) -> str:
    """One of the two; "add-remove" is "zero-out" wherever it means the same.

    That is where examples take part independently of each other and batches are not cut: then
    others' batches, and what sums are divided by, are the same with the example and without it.
    """
    if adjacency != ADD_REMOVE:
        if isinstance(adjacency, str) and adjacency not in ADJACENCIES:
            raise InvalidParameter("adjacency", adjacency, must_be=_ADJACENCY_CHOICES)
        return _check.choice("adjacency", adjacency, among=ADJACENCIES)
    if batches.exact_size or batches.largest_size < batches.examples:
        must_be = (
            "'zero-out' or 'replace' here: adding or removing an example would change the batches "
            "of the others, as they have a fixed or a largest size; 'zero-out' keeps its place "
            "and takes its gradient away"
        )
        raise InvalidParameter("adjacency", adjacency, must_be=must_be)
    return "zero-out"


def usual_adjacency(*, sensitivity_stated: bool) -> str:
    """The adjacency of a description that names none: the one that its numbers are meant for.

    A sensitivity is the difference of two examples' gradients.  Noise that is stated in units of a
    clip is, as DP-SGD libraries have it, compared with what one example adds.
    """
    return "replace" if sensitivity_stated else "zero-out"


def if_one_example_is(adjacency: str, per_person: int = 1) -> str:
    """Words for the change that an epsilon is about: of one example, or of all of one person."""
    if per_person == 1:
        return f"if one example is {IN_WORDS[adjacency]}"
    changed = "replaced by others" if adjacency == "replace" else IN_WORDS[adjacency]
    return f"if all examples of one person, at most {per_person:,}, are {changed}"
