"""A run in the words of a command line or of a file: sizes, epochs, a noise multiplier.

The words of other libraries are here, too.  An event of `dp_accounting`, as Opacus, jax_privacy and
others make them, says how noise compares with the clip and how batches are drawn.  It says nothing
of the neighbouring relation, the loss or the step sizes, which are given beside it.  Noise
multipliers are in units of the clip, so that replacing an example moves a sum by two of them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lastiterate import _check
from lastiterate._numerics.rounding import FEW_ROUNDINGS, THOUSANDS_OF_ROUNDINGS, down, up
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.run.batch_rules.base import RULES, BatchRule
from lastiterate.run.batch_rules.drawn import PoissonSampled, SampledWithoutReplacement
from lastiterate.run.batch_rules.ordered import SHUFFLED
from lastiterate.run.loss import Loss
from lastiterate.run.optimizer import Average, Schedule
from lastiterate.run.training_run import (
    Ball,
    Domain,
    TrainingRun,
    Unbounded,
    factor,
    known_adjacency,
    usual_adjacency,
)

_OPTIMIZER_FIELDS = ("momentum", "dampening", "nesterov", "buffer_resets", "average")
NAMES = tuple(name for name, rule in RULES.items() if rule.from_sizes)
# Two words for the same quantity: a later one replaces the other.
ALTERNATIVES = (("epochs", "steps"), ("noise_multiplier", "noise_std"))
_CONTRADICTIONS = (
    *ALTERNATIVES,
    ("noise_multiplier", "sensitivity"),
    ("batch_size", "sample_rate"),
    ("diameter", "domain"),
)
_KNOWN_EVENTS = (
    "made of Gaussian events, alone or under PoissonSampled, SampledWithoutReplacement or "
    "TruncatedSubsampledGaussian, composed of themselves or one after the other"
)

# Options that make steps other than those of SGD, and the values with which they do not.
_PLAIN_VALUES = {
    "betas": None,
    "optimizer": "sgd",
    "optimiser": "sgd",
}
_WORDS_HERE = {
    "lr": "step_size",
    "learning_rate": "step_size",
    "max_grad_norm": "clip_norm",
    "l2_norm_clip": "clip_norm",
    "sigma": "noise_multiplier",
    "n": "examples",
    "weight_decay": "loss=li.Loss(.., regulariser=..)",
    "delta": "li.account(run).epsilon(delta)",
    "target_delta": "li.account(run).epsilon(delta)",
}


@dataclass(frozen=True, kw_only=True)
class Description:
    """A run as a user states it; None is a word that is not stated.

    A run is described either by `sensitivity` and `noise_std`, or as DP-SGD libraries have it, by
    `clip_norm` and `noise_multiplier`.
    """

    examples: int | None = None
    batch_size: int | None = None
    sample_rate: float | None = None
    batches: str | BatchRule | None = None
    epochs: float | None = None
    steps: int | None = None
    step_size: float | Iterable[float] | None = None
    noise_std: Schedule | None = None
    noise_multiplier: float | None = None
    clip_norm: float | None = None
    sensitivity: float | None = None
    smoothness: float | None = None
    strong_convexity: float = 0.0
    regulariser: float = 0.0
    lipschitz: float | None = None
    outputs: int | None = None
    convex: bool = True
    holder: tuple[float, float] | None = None
    diameter: float | None = None
    domain: Domain | None = None
    release_noise_std: float = 0.0
    adjacency: str | None = None
    releases: str | None = None
    examples_per_person: int = 1
    momentum: Schedule = 0.0
    dampening: float = 0.0
    nesterov: bool = False
    buffer_resets: tuple[int, ...] = ()
    average: Average | None = None

    @classmethod
    def of(cls, run: TrainingRun) -> Description:
        """A run in these words, which changes of it can start from.

        Sensitivity and noise of a run with a clip follow from that, as DP-SGD libraries have it,
        unless they are others.
        """
        loss, bound = run.loss, run.gradient_bound
        follows = bound is not None and run.sensitivity == factor(run.adjacency) * bound
        scaled = follows and run.clip_norm is not None and not isinstance(run.noise_std, tuple)
        return cls(
            batches=run.batches,
            steps=run.steps,
            step_size=run.step_size,
            noise_std=None if scaled else run.noise_std,
            noise_multiplier=run.noise_multiplier if scaled else None,  # type: ignore[arg-type]  # no schedule
            clip_norm=run.clip_norm,
            sensitivity=None if follows else run.sensitivity,
            smoothness=loss.smoothness,
            strong_convexity=loss.strong_convexity,
            regulariser=loss.regulariser,
            lipschitz=loss.lipschitz,
            outputs=loss.outputs,
            convex=loss.convex,
            holder=loss.holder,
            domain=run.domain,
            release_noise_std=run.release_noise_std,
            adjacency=run.adjacency,
            releases=run.releases,
            examples_per_person=run.examples_per_person,
            **{name: getattr(run, name) for name in _OPTIMIZER_FIELDS},
        )

    @classmethod
    def from_words(cls, words: Mapping[str, Any]) -> Description:
        """The description that a file gives; unknown keys are refused."""
        known = [f.name for f in dataclasses.fields(cls) if f.name not in ("domain", "average")]
        unknown = [key for key in words if key not in known]
        if unknown:
            raise InvalidParameter("run key", min(unknown), must_be=f"one of {', '.join(known)}")
        return cls(**words)

    def changed(self, words: Mapping[str, Any]) -> Description:
        """The description with these words instead of the former ones and their opposites."""
        dropped: dict[str, Any] = {}
        for pair in (*ALTERNATIVES, ("diameter", "domain"), ("batch_size", "sample_rate")):
            for said, other in (pair, pair[::-1]):
                if said in words and other not in words:
                    dropped[other] = None
        if "noise_multiplier" in words and "sensitivity" not in words:
            dropped["sensitivity"] = None
        if isinstance(self.batches, BatchRule) and isinstance(words.get("batches"), str):
            old = self.batches
            dropped |= {"examples": old.examples, "batch_size": old.batch_size}
            if words["batches"] in RULES and not RULES[words["batches"]].ordered:
                dropped["batch_size"] = None
        if "adjacency" in words and "sensitivity" not in dropped | dict(words):
            dropped["sensitivity"] = self._sensitivity_under(words["adjacency"])
        return dataclasses.replace(self, **dropped | dict(words))

    def _sensitivity_under(self, adjacency: str) -> float | None:
        """The stated sensitivity under another adjacency; an error where it does not follow."""
        stated = self.sensitivity
        if stated is None or adjacency in (self.adjacency or "replace", None):
            return stated
        if adjacency == "replace":
            return 2.0 * _check.number("sensitivity", stated, above=0.0)
        must_be = "stated anew with this adjacency: the largest gradient, not a difference of two"
        raise InvalidParameter("sensitivity", stated, must_be=must_be)

    @property
    def in_units_of_a_clip(self) -> bool:
        """Whether the noise is compared with a clip, as DP-SGD libraries do."""
        return self.sensitivity is None

    def missing(self) -> list[tuple[str, ...]]:
        """The values that must be stated and are not, each as all the words that would state it."""
        wanted: list[tuple[str, ...]] = []
        if self.batches is None or isinstance(self.batches, str):
            rule = None if self.batches is None else RULES.get(self.batches)
            wanted.append(("examples",))
            if rule is None or rule.ordered:
                wanted.append(("batch_size", "sample_rate"))
        wanted += [("epochs", "steps"), ("noise_multiplier", "noise_std")]
        clipped = self.noise_multiplier is not None
        wanted.append(("clip_norm",) if clipped else ("clip_norm", "sensitivity", "lipschitz"))
        if self.releases not in (None, "every-iterate"):
            wanted.append(("step_size",))
        return [words for words in wanted if all(getattr(self, word) is None for word in words)]

    def run(self) -> TrainingRun:
        """The run; `InvalidParameter` where it is not described in full, or twice."""
        self._refuse_contradictions()
        missing = [" or ".join(words) for words in self.missing()]
        if missing:
            must_be = "described in full"
            raise InvalidType("run", must_be=must_be, found=f"no {', no '.join(missing)}")
        rule, loss = self.rule(), self._loss()
        usual = usual_adjacency(sensitivity_stated=not self.in_units_of_a_clip)
        adjacency = known_adjacency(usual if self.adjacency is None else self.adjacency, rule)
        # Composition does not depend on the step size, and nothing else may be used.
        usually = "every-iterate" if self.step_size is None else "last-iterate"
        return TrainingRun(
            loss=loss,
            sensitivity=self._sensitivity(loss, adjacency),
            batches=rule,
            steps=self._steps(rule),
            step_size=1.0 if self.step_size is None else self.step_size,  # type: ignore[arg-type]  # normalised by __post_init__
            noise_std=self._noise(rule),
            release_noise_std=self.release_noise_std,
            domain=self._domain(),
            clip_norm=self.clip_norm,
            adjacency=adjacency,
            examples_per_person=self.examples_per_person,
            releases=usually if self.releases is None else self.releases,
            **{name: getattr(self, name) for name in _OPTIMIZER_FIELDS},
        )

    def rule(self) -> BatchRule:
        """The batch rule as stated, or as DP-SGD libraries draw batches by default."""
        if isinstance(self.batches, BatchRule):
            return self._resize(self.batches)
        if self.batches is not None and not isinstance(self.batches, str):
            must_be = "one of " + ", ".join(rule.__name__ for rule in RULES.values())
            raise InvalidType("batches", self.batches, must_be=must_be)
        usual = "poisson" if self.in_units_of_a_clip else "shuffled-once"
        name = usual if self.batches is None else self.batches
        if name not in NAMES:
            hint = f" ({SHUFFLED})" if name == "shuffled" else _check.similar(name, NAMES)
            raise InvalidParameter("batches", name, must_be=f"one of {', '.join(NAMES)}{hint}")
        kind = RULES[name]
        if self.examples is None:
            raise InvalidParameter("examples", None, must_be="given")
        return kind.of_sizes(self.examples, self._batch_size(self.examples))

    def _batch_size(self, examples: int) -> int | None:
        if self.sample_rate is None:
            return self.batch_size
        rate = _check.number("sample_rate", self.sample_rate, above=0.0, at_most=1.0)
        count = _check.count("examples", examples, at_least=1)
        size = round(rate * count)
        if size < 1 or not down(rate, FEW_ROUNDINGS) <= size / count <= up(rate, FEW_ROUNDINGS):
            more = min(count, math.floor(rate * count) + 1)
            must_be = (
                f"a whole number of examples over {count:,}; the next larger one is "
                f"batch_size={more}, {more / count:.6g}"
            )
            raise InvalidParameter("sample_rate", rate, must_be=must_be)
        return size

    def _resize(self, rule: BatchRule) -> BatchRule:
        """`rule` with the sizes that this description states."""
        if self.examples is None and self.batch_size is None and self.sample_rate is None:
            return rule
        examples = rule.examples if self.examples is None else self.examples
        said = self._batch_size(examples)
        size = rule.batch_size if said is None else said
        kind, whole = type(rule), not rule.ordered
        if kind.from_sizes and rule == kind.of_sizes(rule.examples, rule.batch_size):
            return kind.of_sizes(examples, said if whole else size)
        sizes: dict[str, Any] = {"examples": examples, "batch_size": size}
        if hasattr(rule, "sample_rate"):
            sizes["sample_rate"] = None  # which was of the former sizes
        return dataclasses.replace(rule, **sizes)

    def _loss(self) -> Loss:
        return Loss(
            smoothness=self.smoothness,
            strong_convexity=self.strong_convexity,
            convex=self.convex,
            holder=self.holder,
            lipschitz=self.lipschitz,
            regulariser=self.regulariser,
            outputs=self.outputs,
        )

    def _steps(self, rule: BatchRule) -> int:
        if self.epochs is None:
            assert self.steps is not None
            return self.steps
        passes = _check.number("epochs", self.epochs, above=0.0, below=1e12)
        return max(1, math.ceil(down(passes * rule.steps_per_pass, THOUSANDS_OF_ROUNDINGS)))

    def _noise(self, rule: BatchRule) -> Schedule:
        if self.noise_multiplier is None:
            assert self.noise_std is not None
            return self.noise_std
        multiplier = _check.number(
            "noise_multiplier",
            self.noise_multiplier,
            above=None if self.release_noise_std else 0.0,
            at_least=0.0,
            why=" (without noise in training, or on release, nothing is hidden)",
        )
        clip = _check.number("clip_norm", self.clip_norm, above=0.0)
        return multiplier * clip / rule.batch_size

    def _sensitivity(self, loss: Loss, adjacency: str) -> float:
        """The sensitivity as stated, or from the least bound on gradients."""
        if self.sensitivity is not None:
            return self.sensitivity
        known = [
            _check.number(name, value, above=0.0)
            for name, value in (("clip_norm", self.clip_norm), ("lipschitz", loss.lipschitz))
            if value is not None
        ]
        return factor(adjacency) * min(known)

    def _domain(self) -> Domain:
        if self.diameter is not None:
            return Ball(self.diameter)
        return Unbounded() if self.domain is None else self.domain

    def _refuse_contradictions(self) -> None:
        for one, other in _CONTRADICTIONS:
            if getattr(self, one) is not None and getattr(self, other) is not None:
                must_be = f"omitted: {one} already sets it"
                raise InvalidParameter(other, getattr(self, other), must_be=must_be)


def run_of(
    event: Any, *, clip_norm: float, examples: int | None = None, **settings: Any
) -> TrainingRun:
    """The run of an event; `settings` is what else `TrainingRun.from_dp_sgd` takes.

    >>> from dp_accounting import dp_event as events
    >>> step = events.PoissonSampledDpEvent(0.05, events.GaussianDpEvent(2.0))
    >>> run = run_of(events.SelfComposedDpEvent(step, 600), examples=4_000, clip_norm=2.0)
    >>> run.batches.batch_size, run.steps, run.noise_std, run.adjacency
    (200, 600, 0.02, 'zero-out')
    """
    set_by_event = {"batches", "batch_size", "sample_rate", "steps", "epochs", "noise_multiplier"}
    for word in sorted(set_by_event & settings.keys()):
        raise InvalidParameter(word, settings[word], must_be="omitted: the event already sets it")
    steps = list(_event_steps(event, 1))
    if not steps:
        raise InvalidParameter("event", event, must_be=f"{_KNOWN_EVENTS}, of at least one step")
    rules = {rule for rule, *_ in steps}
    if len(rules) > 1:
        raise InvalidParameter("event", event, must_be="one whose batches are all drawn alike")
    drawn, *numbers = rules.pop()
    count = numbers[0] if drawn in ("fixed", "truncated") else examples
    if count is None:
        raise InvalidParameter("examples", None, must_be="given: the event does not say it")
    if examples is not None and examples != count:
        raise InvalidParameter("examples", examples, must_be=f"{count}, as the event has it")
    total = sum(times for *_, times in steps)
    first = steps[0][1]
    described: dict[str, Any] = {"clip_norm": clip_norm, "noise_multiplier": first, "steps": total}
    if drawn == "full":
        described |= {"batches": "full", "examples": count}
    elif drawn == "poisson":
        described |= {"batches": "poisson", "examples": count, "sample_rate": numbers[0]}
    elif drawn == "fixed":
        described |= {"batches": SampledWithoutReplacement(count, numbers[1])}
    else:
        described |= {
            "batches": PoissonSampled(count, _whole_batch_size(numbers[1], count), numbers[2])
        }
    run = TrainingRun.from_dp_sgd(**described, **settings)
    if all(noise == first for _, noise, _ in steps):
        return run
    unit = clip_norm / run.batches.batch_size
    return run.replace(noise_std=[noise * unit for _, noise, times in steps for _ in range(times)])


def _event_steps(event: Any, times: int) -> Iterator[tuple[tuple[Any, ...], float, int]]:
    """The batch rule, the noise multiplier, and the number of steps in a row."""
    name = type(event).__name__.removesuffix("DpEvent")
    if not type(event).__module__.startswith("dp_accounting"):
        raise InvalidParameter("event", event, must_be=_KNOWN_EVENTS)
    if name == "NoOp" or times == 0:
        return
    if name == "SelfComposed":
        inside = list(_event_steps(event.event, 1))
        for _ in range(times * event.count if len(inside) > 1 else 1):
            for rule, noise, each in inside:
                yield rule, noise, each if len(inside) > 1 else each * times * event.count
    elif name == "Composed":
        for _ in range(times):
            for each in event.events:
                yield from _event_steps(each, 1)
    elif name == "Gaussian":
        yield ("full",), _event_noise(event), times
    elif name == "PoissonSampled":
        yield (
            ("poisson", event.sampling_probability),
            _event_noise(_gaussian_event(event.event)),
            times,
        )
    elif name == "SampledWithoutReplacement":
        rule = ("fixed", event.source_dataset_size, event.sample_size)
        yield rule, _event_noise(_gaussian_event(event.event)), times
    elif name == "TruncatedSubsampledGaussian":
        truncated = (event.dataset_size, event.sampling_probability, event.truncated_batch_size)
        yield ("truncated", *truncated), _event_noise(event), times
    else:
        raise InvalidParameter("event", event, must_be=_KNOWN_EVENTS)


def _gaussian_event(event: Any) -> Any:
    if type(event).__name__ != "GaussianDpEvent":
        raise InvalidParameter("event", event, must_be=_KNOWN_EVENTS)
    return event


def _event_noise(event: Any) -> float:
    return _check.number("noise_multiplier", event.noise_multiplier, above=0.0)


def _whole_batch_size(probability: float, examples: int) -> int:
    """The average size of a batch, which must be a whole number."""
    size = round(probability * examples)
    if size < 1 or size / examples != probability:
        must_be = f"a whole number of examples over {examples:,}"
        raise InvalidParameter("sampling_probability", probability, must_be=must_be)
    return size


def refuse_other_words(given: Mapping[str, Any]) -> None:
    """Raises an error that names the word used here; options that change nothing pass."""
    for name, value in given.items():
        if name in _PLAIN_VALUES:
            plain = _PLAIN_VALUES[name]
            if value == plain or (isinstance(value, str) and value.lower() == plain):
                continue
            raise InvalidParameter(
                name,
                value,
                must_be="left out: a run has steps of SGD, and with Adam the released model is not "
                "their last iterate; leave step_size and loss out, too, and every iterate is "
                "charged, which covers any optimizer",
            )
        must_be = "left out: no such argument"
        if name in _WORDS_HERE:
            must_be = f"said as {_WORDS_HERE[name]}"
        raise InvalidType(name, value, must_be=must_be)
