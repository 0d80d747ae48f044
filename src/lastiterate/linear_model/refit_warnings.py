"""Ways to spend more than one model's privacy that can be seen from where a model is fitted."""

import sys

from lastiterate._warning import warn
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
            warn(
                f"this model is being fitted by a routine of {found}: "
                + (_UNCHARGED_SCORES if charged else _UNCHARGED),
                PrivacyWarning,
            )
            return
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop


def warn_of_delta(delta: float, examples: int) -> None:
    """If it would allow publishing a whole example."""
    if delta * examples >= 1.0:
        warn(
            f"delta = {delta:g} is not below 1 over the {examples:,} examples: such a promise "
            "would be kept by publishing one of them whole; take far less",
            PrivacyWarning,
        )
