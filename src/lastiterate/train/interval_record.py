"""How confidence intervals are recorded in a model and in its certificate."""

from __future__ import annotations

from hashlib import sha256

import numpy as np

from lastiterate._numerics.rounding import Array

MEASURED = ("interval_estimate_", "interval_covariance_")


def interval_digest(estimate: Array, covariance: Array) -> str:
    """The digest of an estimate and the covariance of its error, as certificates state it."""
    both = np.append(estimate.ravel(), covariance.ravel())
    return sha256(np.ascontiguousarray(both, dtype="<f8").tobytes()).hexdigest()
