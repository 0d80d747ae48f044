"""The steps before a model: those that learned from the private examples, and fixed features.

The pipelines that call `fit` are found on the stack, in the same process.  Steps that were fitted
before and separately are not.  Users declare those, and correct the others, by
`preprocessing={"step": "private"}` or `"public"`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sklearn.base import OneToOneFeatureMixin

from lastiterate import _check
from lastiterate.errors import PrivacyWarning, warn
from lastiterate.linear_model.learning_steps import FIXED, alternatives
from lastiterate.tables.encoder import Encoder
from lastiterate.train.settings import PRIVATE, PUBLIC

_PIPELINE, _TARGETS = "sklearn.pipeline.Pipeline", "sklearn.compose._target."


@dataclass(frozen=True)
class Preprocessing:
    """Steps that learned from the examples, and steps that are declared not to have.

    `norm_bound` is what the last step before the model states of its rows; `feature_maps` are
    records of the fixed maps that come last.
    """

    fitted: tuple[str, ...] = ()
    declared_public: tuple[str, ...] = ()
    norm_bound: float | None = None
    feature_maps: tuple[dict[str, Any], ...] = ()
    encoder: Encoder | None = None  # of the table, if it is what gives the model its rows

    def warn(self) -> None:
        """Warn if a step learned from the examples."""
        if self.fitted:
            warn(
                f"the steps {', '.join(self.fitted)} before this model learn from the examples, "
                f"which privacy_ does not include: declare public facts instead "
                f"({', '.join(alternatives(self.fitted))}), "
                "or fit them on public data and freeze them (sklearn.frozen.FrozenEstimator).  "
                "The report and the certificate name them",
                PrivacyWarning,
            )


def preprocessing_of(declared: Mapping[str, str]) -> Preprocessing:
    """Steps fitted by pipelines on the stack, combined with the declared ones."""
    fitted: list[str] = []
    public: list[str] = []
    seen = dict(_steps_on_the_stack())
    for name, kind in seen.items():
        origin = next((word for stem, word in declared.items() if _is_part(name, stem)), None)
        (public if origin == PUBLIC else fitted).append(f"{name} ({kind})")
    fitted += [
        name
        for name, origin in declared.items()
        if origin == PRIVATE and not any(_is_part(one, name) for one in seen)
    ]
    before = _steps_before_the_model()
    bound = getattr(before[-1], "norm_bound", None) if before else None
    encoder = getattr(before[-1], "encoder_", None) if before else None
    return Preprocessing(
        tuple(fitted),
        tuple(public),
        None if bound is None else _check.number("norm_bound", bound, above=0.0),
        _last_maps(before),
        encoder if isinstance(encoder, Encoder) else None,
    )


def _last_maps(steps: list[Any]) -> tuple[dict[str, Any], ...]:
    """Records of the fixed maps behind which no other step changes the number of columns."""
    found: list[dict[str, Any]] = []
    for step in reversed(steps):
        if hasattr(step, "feature_map") and type(step).__module__.startswith("lastiterate."):
            found.insert(0, step.feature_map(step.n_features_in_).as_record())
        elif not (hasattr(step, "norm_bound") and isinstance(step, OneToOneFeatureMixin)):
            break
    return tuple(found)


def _is_part(name: str, stem: str) -> bool:
    """Whether a step is the named one, or is inside it."""
    return name == stem or name.startswith(f"{stem}__")


def _steps_before_the_model() -> list[Any]:
    """The steps of calling pipelines before the one that is being fitted, first to last."""
    before: list[Any] = []
    for owner, within in _owners_on_the_stack():
        if _PIPELINE in _kinds(owner) and any(owner.steps[-1][1] is one for one in within):
            before = [*_flat(owner.steps[:-1]), *before]
    return before


def _flat(steps: Any) -> Iterator[Any]:
    """The steps, with pipelines among them replaced by their own."""
    for _, step in steps:
        if _PIPELINE in _kinds(step):
            yield from _flat(step.steps)
        elif step is not None and not isinstance(step, str):
            yield step


def _owners_on_the_stack() -> Iterator[tuple[Any, list[Any]]]:
    """Every object that has a method running, the innermost first, and those inside its own."""
    frame = sys._getframe(1)
    seen: list[Any] = []
    while frame is not None:
        owner: Any = frame.f_locals.get("self")
        if not any(owner is one for one in seen):
            yield owner, seen
            seen.append(owner)
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop


def _kinds(owner: Any) -> list[str]:
    return [f"{kind.__module__}.{kind.__qualname__}" for kind in type(owner).__mro__]


def _steps_on_the_stack() -> Iterator[tuple[str, str]]:
    """The name and the class of every learning step of every calling pipeline."""
    for owner, _ in _owners_on_the_stack():
        kinds = _kinds(owner)
        if _PIPELINE in kinds:
            yield from _learning_steps(owner.steps[:-1])
        elif any(kind.startswith(_TARGETS) for kind in kinds):
            yield from _learning_steps([("targets", owner.transformer)])


def _learning_steps(steps: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Names and types of steps that learn more than the number and width of the examples."""
    for name, step, *_ in steps:
        inner = _parts(step)
        if inner is not None:
            yield from _learning_steps(inner, f"{prefix}{name}__")
        elif _is_learning(step):
            yield f"{prefix}{name}", type(step).__name__


def _parts(step: Any) -> list[Any] | None:
    """The steps that a pipeline, a union or a transformer of columns has; None for others."""
    for within in ("steps", "transformer_list", "transformers"):
        if isinstance(getattr(step, within, None), list):
            rest = getattr(step, "remainder", None)
            return [*getattr(step, within), *([] if rest is None else [("remainder", rest)])]
    return None


def _is_learning(step: Any) -> bool:
    if step is None or isinstance(step, str) or type(step).__module__.startswith("lastiterate"):
        return False
    if type(step).__module__.startswith("sklearn."):
        fixed = FIXED.get(type(step).__name__)
        if fixed is not None:
            return not fixed(step)
    # A step without fitting may still mix rows.
    return True
