"""Kinds of models, and the constants of the loss that follow from each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lastiterate import _check
from lastiterate.train.objectives import Huber, Logistic, Objective, Softmax

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
    return _curved(objective, norm, penalty) | {
        "lipschitz": largest if clip is None else min(largest, clip)
    }


def _softmax(norm: float, penalty: float, clip: float | None) -> dict[str, Any]:
    """Clipping the norm may leave no convex loss, so the largest gradient is that without."""
    objective = Softmax(classes=_MANY_CLASSES, clip=_ROOT_TWO_OR_MORE, kind="margin")
    largest = objective.gradient_bound(radius=norm)
    return _curved(objective, norm, penalty) | {"lipschitz": largest}


def _linear(norm: float, penalty: float, clip: float | None) -> dict[str, Any]:
    """Squared errors clipped in norm are Huber losses, of slope at most 1."""
    curved = _curved(Huber(clip=1.0), norm, penalty)
    return curved if clip is None else curved | {"lipschitz": clip}


def _curved(objective: Objective, norm: float, penalty: float) -> dict[str, Any]:
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
