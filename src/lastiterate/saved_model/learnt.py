"""The learnt part of a fitted model, as a model file stores it."""

from __future__ import annotations

from typing import Any

import numpy as np


def learnt_by(model: Any) -> dict[str, Any]:
    """Its parameters, all that was released, and what predictions are computed from."""
    centre = model.center_
    return {
        "parameters": model.parameters_.tolist(),
        "coef": np.atleast_2d(model.coef_).tolist(),
        "intercept": np.atleast_1d(model.intercept_).tolist(),
        "center": None if centre is None else centre.tolist(),
        "center_bound": model.center_bound_,
    }
