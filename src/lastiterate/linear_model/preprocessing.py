"""Preprocessing steps that learned from the private examples.

The pipelines that call `fit` are found on the stack, in the same process.  Steps that were fitted
before and separately are not.  Users declare those, and correct the others, by
`preprocessing={"step": "private"}` or `"public"`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lastiterate._warning import warn
from lastiterate.errors import PrivacyWarning
from lastiterate.train.settings import PRIVATE, PUBLIC

_PIPELINE, _TARGETS = "sklearn.pipeline.Pipeline", "sklearn.compose._target."


@dataclass(frozen=True)
class Preprocessing:
    """Steps that learned from the examples, and steps that are declared not to have."""

    fitted: tuple[str, ...] = ()
    declared_public: tuple[str, ...] = ()

    def warn(self) -> None:
        """Warn if a step learned from the examples."""
        if self.fitted:
            warn(
                f"the steps {', '.join(self.fitted)} before this model learn from the examples, "
                "which privacy_ does not include: declare public facts instead "
                "(PrivateSchema, PrivateScaler(low=.., high=..), OneHotEncoder(categories=..)), "
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
    return Preprocessing(tuple(fitted), tuple(public))


def _is_part(name: str, stem: str) -> bool:
    """Whether a step is the named one, or is inside it."""
    return name == stem or name.startswith(f"{stem}__")


def _steps_on_the_stack() -> Iterator[tuple[str, str]]:
    """The name and the class of every learning step of every calling pipeline."""
    frame = sys._getframe(1)
    seen: list[Any] = []
    while frame is not None:
        owner: Any = frame.f_locals.get("self")
        if not any(owner is one for one in seen):
            kinds = [f"{kind.__module__}.{kind.__qualname__}" for kind in type(owner).__mro__]
            if _PIPELINE in kinds:
                yield from _learning_steps(owner.steps[:-1])
            elif any(kind.startswith(_TARGETS) for kind in kinds):
                yield from _learning_steps([("targets", owner.transformer)])
            seen.append(owner)
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop


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
        fixed = _FIXED.get(type(step).__name__)
        if fixed is not None:
            return not fixed(step)
    # A step without fitting may still mix rows.
    return True


def _has_declared_categories(step: Any) -> bool:
    """Whether no category comes from the data, and none is merged for being rare."""
    declared = not isinstance(step.categories, str)
    return declared and step.min_frequency is None and step.max_categories is None


def _fills_in_a_constant(step: Any) -> bool:
    """Whether empty cells become a constant, and empty columns are kept."""
    return bool(step.strategy == "constant" and step.keep_empty_features and not step.add_indicator)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


# Transformers of scikit-learn, each with the condition under which it learns only the number and
# width of the examples, and maps every row by itself.
_FIXED: dict[str, Callable[[Any], bool]] = {
    "AdditiveChi2Sampler": lambda _: True,
    "Binarizer": lambda _: True,
    "FeatureHasher": lambda _: True,
    "FrozenEstimator": lambda _: True,  # `fit` does nothing
    "FunctionTransformer": lambda step: step.func is None or isinstance(step.func, np.ufunc),
    "GaussianRandomProjection": lambda _: True,
    "HashingVectorizer": lambda _: True,
    "Normalizer": lambda _: True,
    "OneHotEncoder": _has_declared_categories,
    "OrdinalEncoder": _has_declared_categories,
    "PolynomialCountSketch": lambda _: True,
    "PolynomialFeatures": lambda _: True,
    "RBFSampler": lambda step: _is_number(step.gamma),
    "SimpleImputer": _fills_in_a_constant,
    "SkewedChi2Sampler": lambda _: True,
    "SparseRandomProjection": lambda _: True,
    "SplineTransformer": lambda step: not isinstance(step.knots, str),
}
