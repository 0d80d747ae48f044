"""Runs in the words of other libraries: events of `dp_accounting`, and options of DP-SGD.

An event, as Opacus, jax_privacy and others make them, says how noise compares with the clip and how
batches are drawn.  It says nothing of the neighbouring relation, the loss or the step sizes, which
are given beside it.  Noise multipliers are in units of the clip, so that replacing an example moves
a sum by two of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lastiterate import _check
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.run.batch_rules.rules import PoissonSampled, SampledWithoutReplacement
from lastiterate.run.training_run import TrainingRun

_KNOWN = (
    "made of Gaussian events, alone or under PoissonSampled, SampledWithoutReplacement or "
    "TruncatedSubsampledGaussian, composed of themselves or one after the other"
)
# Options that make steps other than those of SGD, and the value with which they do not.
_OTHER_STEPS = {
    "betas": None,
    "optimizer": "sgd",
    "optimiser": "sgd",
}
_OWN_WORDS = {
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
    steps = list(_steps(event, 1))
    if not steps:
        raise InvalidParameter("event", event, must_be=f"{_KNOWN}, of at least one step")
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
        described |= {"batches": PoissonSampled(count, _size(numbers[1], count), numbers[2])}
    run = TrainingRun.from_dp_sgd(**described, **settings)
    if all(noise == first for _, noise, _ in steps):
        return run
    unit = clip_norm / run.batches.batch_size
    return run.replace(noise_std=[noise * unit for _, noise, times in steps for _ in range(times)])


def _size(probability: float, examples: int) -> int:
    """The average size of a batch, which must be a whole number."""
    size = round(probability * examples)
    if size < 1 or size / examples != probability:
        must_be = f"a whole number of examples over {examples:,}"
        raise InvalidParameter("sampling_probability", probability, must_be=must_be)
    return size


def _steps(event: Any, times: int) -> Iterator[tuple[tuple[Any, ...], float, int]]:
    """How batches are drawn, the noise multiplier, and how often in a row."""
    name = type(event).__name__.removesuffix("DpEvent")
    if not type(event).__module__.startswith("dp_accounting"):
        raise InvalidParameter("event", event, must_be=_KNOWN)
    if name == "NoOp" or times == 0:
        return
    if name == "SelfComposed":
        inside = list(_steps(event.event, 1))
        for _ in range(times * event.count if len(inside) > 1 else 1):
            for rule, noise, each in inside:
                yield rule, noise, each if len(inside) > 1 else each * times * event.count
    elif name == "Composed":
        for _ in range(times):
            for each in event.events:
                yield from _steps(each, 1)
    elif name == "Gaussian":
        yield ("full",), _noise(event), times
    elif name == "PoissonSampled":
        yield ("poisson", event.sampling_probability), _noise(_gaussian(event.event)), times
    elif name == "SampledWithoutReplacement":
        rule = ("fixed", event.source_dataset_size, event.sample_size)
        yield rule, _noise(_gaussian(event.event)), times
    elif name == "TruncatedSubsampledGaussian":
        truncated = (event.dataset_size, event.sampling_probability, event.truncated_batch_size)
        yield ("truncated", *truncated), _noise(event), times
    else:
        raise InvalidParameter("event", event, must_be=_KNOWN)


def _gaussian(event: Any) -> Any:
    if type(event).__name__ != "GaussianDpEvent":
        raise InvalidParameter("event", event, must_be=_KNOWN)
    return event


def _noise(event: Any) -> float:
    return _check.number("noise_multiplier", event.noise_multiplier, above=0.0)


def refuse_other_words(given: Mapping[str, Any]) -> None:
    """Raises an error that names the word used here; options that change nothing pass."""
    for name, value in given.items():
        if name in _OTHER_STEPS:
            plain = _OTHER_STEPS[name]
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
        if name in _OWN_WORDS:
            must_be = f"said as {_OWN_WORDS[name]}"
        raise InvalidType(name, value, must_be=must_be)
