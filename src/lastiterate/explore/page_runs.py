"""Runs as the page's controls describe them, and as Python, a command line and TOML.

A kind of model has the constants of its loss, which follow from the norm of a row, the penalty and
the clip.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lastiterate import _check
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.run.batch_rules.base import RULES
from lastiterate.run.description import NAMES, Description
from lastiterate.run.optimizer import require_plain_steps
from lastiterate.run.serialise import words_to_toml
from lastiterate.run.training_run import Ball, TrainingRun
from lastiterate.train.objectives import Huber, Logistic, Objective, Softmax

_NOT_ON_THE_PAGE = ("holder", "sample_rate", "domain")
_OBJECTS = ("loss", "batches", "domain")
_ROOT_TWO_OR_MORE = 2.0  # Softmax takes the least clip that changes nothing, which is sqrt(2)
_MANY_CLASSES = 1000


@dataclass(frozen=True)
class Model:
    """A kind of model as the page offers it.

    `constants` are the words of a `Description` that follow from the norm of a row, the penalty
    and the clip.
    """

    name: str
    in_words: str
    says: str
    constants: Callable[[float, float, float | None], dict[str, Any]]
    by_feature_norm: bool = True


def constants(words: Mapping[str, Any]) -> dict[str, Any]:
    """The page's words with the model's kind replaced by what follows from it."""
    said = dict(words)
    name = said.pop("model", STATED.name)
    _check.choice("model", name, among=tuple(MODELS))
    model, norm = MODELS[name], said.pop("feature_norm", None)
    if not model.by_feature_norm:
        return said | model.constants(0.0, 0.0, None)
    norm = _check.number("feature_norm", norm, above=0.0)
    penalty = _check.number("regulariser", said.get("regulariser", 0.0), at_least=0.0)
    clip = said.get("clip_norm")
    clip = None if clip is None else _check.number("clip_norm", clip, above=0.0)
    for name in ("smoothness", "lipschitz", "strong_convexity"):
        said.pop(name, None)
    return said | model.constants(norm, penalty, clip)


def _logistic(norm: float, penalty: float, clip: float | None) -> dict[str, Any]:
    """Clipping a gradient r x to norm C cuts r at C/|x|, which does not decrease: still convex."""
    objective = Logistic(clip=1.0)
    largest = objective.gradient_bound(radius=norm)
    return _curvatures(objective, norm, penalty) | {
        "lipschitz": largest if clip is None else min(largest, clip)
    }


def _softmax(norm: float, penalty: float, clip: float | None) -> dict[str, Any]:
    """The constants of the softmax without a clip, which may leave no convex loss."""
    objective = Softmax(classes=_MANY_CLASSES, clip=_ROOT_TWO_OR_MORE, kind="margin")
    largest = objective.gradient_bound(radius=norm)
    return _curvatures(objective, norm, penalty) | {"lipschitz": largest}


def _linear(norm: float, penalty: float, clip: float | None) -> dict[str, Any]:
    """Squared errors clipped in norm are Huber losses, of slope at most 1."""
    curved = _curvatures(Huber(clip=1.0), norm, penalty)
    return curved if clip is None else curved | {"lipschitz": clip}


def _curvatures(objective: Objective, norm: float, penalty: float) -> dict[str, Any]:
    loss = objective.loss(radius=norm, l2=penalty)
    return {"smoothness": loss.smoothness, "strong_convexity": loss.strong_convexity}


LOGISTIC = Model(
    "logistic",
    "logistic regression",
    "two classes, a linear score; gradients clipped by their norm stay those of a convex loss",
    _logistic,
)

SOFTMAX = Model(
    "softmax",
    "softmax regression",
    "several classes, linear scores; a clip below 1.4143 times the norm of a row may bend the "
    "loss, which then is not taken for convex",
    _softmax,
)

LINEAR = Model(
    "linear",
    "linear regression",
    "squared errors; gradients clipped by their norm stay those of a convex loss",
    _linear,
)

STATED = Model(
    "stated",
    "I know the constants",
    "smoothness, strong convexity and the largest gradient of every example's loss",
    lambda norm, penalty, clip: {},
    by_feature_norm=False,
)

UNKNOWN = Model(
    "unknown",
    "I do not know, or a network",
    "nothing is assumed of the loss, so that every iterate is charged for",
    lambda norm, penalty, clip: {"convex": False},
    by_feature_norm=False,
)

MODELS = {model.name: model for model in (LOGISTIC, SOFTMAX, LINEAR, STATED, UNKNOWN)}


def description(words: object) -> Description:
    """The description of a run that the page's entries give."""
    if not isinstance(words, Mapping):
        raise InvalidType("run", words, must_be="a table of names and values")
    return Description.from_words(constants(words))


def run_from_page(words: object) -> TrainingRun:
    """The run that the page's entries describe."""
    return description(words).run()


def page_words(run: TrainingRun | Description) -> dict[str, Any]:
    """The page's entries for a run; `InvalidParameter` where its controls cannot express it."""
    said = Description.of(run) if isinstance(run, TrainingRun) else run
    whole = said.run()
    if whole.batches.name not in NAMES or not whole.is_constant or said.holder is not None:
        must_be = "one with one step size, one noise and batches that sizes describe"
        raise InvalidParameter("run", must_be=must_be, found="another, which the page cannot show")
    require_plain_steps(whole, "the page")
    words = {name: one for name, one in _set_entries(said).items() if name not in _NOT_ON_THE_PAGE}
    words |= {"batches": whole.batches.name, "examples": whole.batches.examples}
    if words.pop("steps", None) is not None:
        words["epochs"] = whole.steps / whole.batches.steps_per_pass
    if RULES[whole.batches.name].ordered or "batch_size" in words:
        words["batch_size"] = whole.batches.batch_size
    if isinstance(whole.domain, Ball):
        words["diameter"] = whole.domain.diameter
    words |= {"adjacency": whole.adjacency, "releases": whole.releases}
    if not said.convex:
        return words | {"model": UNKNOWN.name}
    return words | {"model": STATED.name}


def as_code(said: Description, *, delta: float) -> dict[str, str]:
    """Python, a command line and TOML, each of which gives the same run."""
    run, words = said.run(), _stated_words(said)
    return {
        "python": _python(run, delta),
        "command": _command(words, delta),
        "toml": words_to_toml(words),
    }


def _stated_words(said: Description) -> dict[str, Any]:
    """Arguments that differ from their defaults, and always the batches and the adjacency."""
    run = said.run()
    return _set_entries(said) | {"batches": run.batches.name, "adjacency": run.adjacency}


def _set_entries(said: Description) -> dict[str, Any]:
    """The entries that differ from their defaults."""
    named = {entry.name: getattr(said, entry.name) for entry in dataclasses.fields(said)}
    return {name: one for name, one in named.items() if one != getattr(Description, name)}


def _python(run: TrainingRun, delta: float) -> str:
    lines = ["import lastiterate as li", "", "run = li.TrainingRun("]
    for entry in dataclasses.fields(run):
        value = getattr(run, entry.name)
        if value != _default(entry):
            said = f"li.{_constructor_call(value)}" if entry.name in _OBJECTS else repr(value)
            lines.append(f"    {entry.name}={said},")
    lines += [")", f"print(li.account(run).epsilon({delta!r}))"]
    return "\n".join(lines) + "\n"


def _default(entry: dataclasses.Field[Any]) -> Any:
    if entry.default_factory is not dataclasses.MISSING:
        return entry.default_factory()
    return entry.default


def _constructor_call(value: Any) -> str:
    """A constructor call without the arguments that equal their defaults."""
    said = [
        f"{entry.name}={getattr(value, entry.name)!r}"
        for entry in dataclasses.fields(value)
        if entry.init and getattr(value, entry.name) != entry.default
    ]
    return f"{type(value).__name__}({', '.join(said)})"


def _command(words: dict[str, Any], delta: float) -> str:
    flags = ["lastiterate", "account"]
    for name, value in words.items():
        if name == "convex":
            flags.append("--non-convex")
        else:
            flags += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join([*flags, "--delta", repr(delta)])
