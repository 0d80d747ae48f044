"""Warnings that point at the caller's own line, not into the library."""

import sys
import warnings
from types import FrameType

# The packages between a user's line and the library; their lines say nothing to a user.
_BETWEEN = frozenset({"lastiterate", "sklearn", "joblib", "opacus", "numpy", "contextlib"})


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the first line on the stack that is outside of this library and scikit-learn."""
    warnings.warn(message, category, stacklevel=_levels_to_caller())


def _levels_to_caller() -> int:
    """How many levels above `warn` the caller is, counted as `warnings.warn` counts."""
    levels = 1
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_between(frame):
        frame, levels = frame.f_back, levels + 1
    return levels


def _is_between(frame: FrameType) -> bool:
    name = str(frame.f_globals.get("__name__", ""))
    return name.partition(".")[0] in _BETWEEN
