"""Publicly known shares of the classes, as outputs that a model begins with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate import _check
from lastiterate._numerics.rounding import Array
from lastiterate.errors import InvalidParameter, InvalidType

_ROUNDED = 1e-3  # how far shares as people write them may be from adding up to 1


def log_odds(prior: Any, classes: NDArray[Any]) -> Array:
    """Outputs of a model that knows these shares of the classes and nothing else."""
    labels = classes.tolist()
    must_be = "a positive share for each of the classes, adding up to 1, as in {0: .98, 1: .02}"
    if not isinstance(prior, Mapping):
        raise InvalidType("class_prior", prior, must_be=must_be)
    shares = [prior.get(label) for label in labels]
    if len(prior) != len(labels) or any(share is None for share in shares):
        raise InvalidParameter("class_prior", prior, must_be=must_be)
    logs = np.log([_check.number("class_prior", share, above=0.0) for share in shares])
    if not abs(np.exp(logs).sum() - 1.0) <= _ROUNDED:
        raise InvalidParameter("class_prior", prior, must_be=must_be)
    return np.array([logs[1] - logs[0]]) if len(labels) == 2 else logs - logs.mean()
