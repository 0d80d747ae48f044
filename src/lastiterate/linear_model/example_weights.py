r"""Weights of examples, in (0, 1].

An example of weight w has the loss :math:`w\ell`, which is convex with :math:`\ell`, and a gradient
and a curvature of w times its own: no bound that holds for :math:`w = 1` is exceeded, so that the
run, its noise and its guarantee are those without weights.  A weight is part of its row: it may be
a function of that row and of public facts, not of other rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lastiterate import _check
from lastiterate._numerics.rounding import Array
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.linear_model.fit_inputs import FitInputs
from lastiterate.tables.cells import BadCells, any_numbers_of, single
from lastiterate.train.data import Examples

_CLASS_WEIGHT = "a positive public weight for each of the classes, as in {0: .1, 1: 1}"
_ON_CLUSTER = "left out for rows on a cluster"


def class_weights(declared: Any, classes: NDArray[Any]) -> Array | None:
    """The weight of each class, in units of the largest if that is above 1; None without any."""
    if declared is None:
        return None
    if declared == "balanced":
        must_be = f"{_CLASS_WEIGHT}; those of the data are private"
        raise InvalidParameter("class_weight", declared, must_be=must_be)
    if not isinstance(declared, Mapping):
        raise InvalidType("class_weight", declared, must_be=_CLASS_WEIGHT)
    labels = classes.tolist()
    if len(declared) != len(labels) or any(label not in declared for label in labels):
        raise InvalidParameter("class_weight", dict(declared), must_be=_CLASS_WEIGHT)
    found = np.array(
        [_check.number(f"class_weight[{label!r}]", declared[label], above=0.0) for label in labels]
    )
    # All of them are public, so that their ratios alone matter.
    return np.asarray(np.minimum(found / max(found.max(), 1.0), 1.0))


def weighted(inputs: FitInputs, sample_weight: Any) -> FitInputs:
    """The inputs with the weights of classes and of examples, if there are any."""
    by_class, examples = inputs.task.class_weights, inputs.examples
    if by_class is None and sample_weight is None:
        return inputs
    if not isinstance(examples, Examples):
        name = "class_weight" if sample_weight is None else "sample_weight"
        raise InvalidParameter(name, must_be=_ON_CLUSTER, found="one")
    weights = np.ones(len(examples))
    if by_class is not None:
        weights = by_class[examples.targets]
    if sample_weight is not None:
        weights = weights * _checked(sample_weight, len(examples))
    return replace(inputs, examples=replace(examples, weights=weights))


def _checked(given: Any, examples: int) -> Array:
    """The weights as an array; errors quote none of them."""
    must_be = f"{examples} numbers in (0, 1], one for each example"
    shape = getattr(given, "shape", None)
    try:
        shape = (len(given),) if shape is None else shape
        if shape != (examples,):
            raise InvalidParameter("sample_weight", must_be=must_be, found=f"shape {shape}")
        weights = any_numbers_of(given)
    except (TypeError, BadCells):
        raise InvalidType("sample_weight", must_be=must_be, found="others") from None
    if not ((weights > 0.0) & (weights <= 1.0)).all():
        raise InvalidParameter("sample_weight", must_be=must_be, found="a weight outside")
    # A weight that is 0 in single precision is one all the same.
    return np.maximum(single(weights), _LEAST)


_LEAST = float(np.finfo(np.float32).smallest_subnormal)
