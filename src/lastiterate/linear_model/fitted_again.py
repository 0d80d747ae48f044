"""Ways to spend more than one model's privacy that can be seen from where a model is fitted."""

import sys
import warnings
from typing import Any

from lastiterate.errors import PrivacyWarning

# Routines that fit the model several times, or fit something else on the same examples.
_SEVERAL = (
    "sklearn.calibration",
    "sklearn.ensemble",
    "sklearn.feature_selection",
    "sklearn.inspection",
    "sklearn.model_selection",
    "sklearn.multiclass",
    "sklearn.multioutput",
    "sklearn.semi_supervised",
)


_UNCHARGED = (
    "every fit, and every choice made by scores on private data, costs privacy that privacy_ of a "
    "single model does not include; a Ledger charges every fit (ledger=..), and PrivateSelection "
    "chooses among settings at far less than their sum"
)
_UNCHARGED_SCORES = (
    "the ledger charges every fit, but not a choice made by scores on private data: score on "
    "public data, or with PrivateScore, or use PrivateSelection"
)


def warn_of_several_fits(*, charged: bool) -> None:
    """If such a routine asked for this; `charged` if a ledger counts every fit."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        found = next((one for one in _SEVERAL if name == one or name.startswith(f"{one}.")), None)
        if found is not None:
            warnings.warn(
                f"this model is being fitted by a routine of {found}: "
                + (_UNCHARGED_SCORES if charged else _UNCHARGED),
                PrivacyWarning,
                stacklevel=3,
            )
            return
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop


def warn_of_what_pipelines_learn() -> None:
    """If a step before the model learns from the same examples, as scalers of scikit-learn do."""
    frame = sys._getframe(1)
    while frame is not None:
        pipeline: Any = frame.f_locals.get("self")
        if frame.f_globals.get("__name__") == "sklearn.pipeline" and hasattr(pipeline, "steps"):
            learnt = [name for name, step in pipeline.steps[:-1] if _learns(step)]
            if learnt:
                warnings.warn(
                    f"the steps {', '.join(learnt)} before this model learn from the examples, "
                    "which privacy_ does not include: declare what is public "
                    "(PrivateScaler(low=.., high=..), OneHotEncoder(categories=..)), "
                    "or fit them on public data",
                    PrivacyWarning,
                    stacklevel=3,
                )
            return
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop


def _learns(step: Any) -> bool:
    """Whether fitting it takes more from the examples than their width."""
    if step is None or isinstance(step, str) or type(step).__module__.startswith("lastiterate"):
        return False
    within: Any = getattr(step, "steps", getattr(step, "transformers", ()))
    parts = [one[1] for one in within]
    if parts:
        return any(_learns(one) for one in parts)
    if not isinstance(getattr(step, "categories", "auto"), str):
        return False  # declared
    tags = getattr(step, "__sklearn_tags__", None)
    return tags is None or bool(tags().requires_fit)


def warn_of_delta(delta: float, examples: int) -> None:
    """If it would allow publishing a whole example."""
    if delta * examples >= 1.0:
        warnings.warn(
            f"delta = {delta:g} is not below 1 over the {examples:,} examples: such a promise "
            "would be kept by publishing one of them whole; take far less",
            PrivacyWarning,
            stacklevel=6,
        )
