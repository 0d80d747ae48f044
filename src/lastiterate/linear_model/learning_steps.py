"""Transformers of scikit-learn that learn nothing from rows, and substitutes for those that do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def alternatives(named: Sequence[str]) -> list[str]:
    """Substitutes that learn nothing, for steps written as "name (Class)"; those for any step last.

    Examples
    --------
    >>> alternatives(["bins (KBinsDiscretizer)"])[0]
    'lastiterate.features.PublicBins for KBinsDiscretizer'
    """
    kinds = [one.rpartition("(")[2].rstrip(")") for one in named]
    own = [f"{_SUBSTITUTES[kind]} for {kind}" for kind in kinds if kind in _SUBSTITUTES]
    return [*dict.fromkeys(own), "PrivateSchema", *([] if own else [_RANGES, _CATEGORIES])]


_RANGES = "PrivateScaler(low=.., high=..)"
_CATEGORIES = "OneHotEncoder(categories=..)"
_SCALERS = (
    "MaxAbsScaler",
    "MinMaxScaler",
    "PowerTransformer",
    "QuantileTransformer",
    "RobustScaler",
    "StandardScaler",
)
_SUBSTITUTES = {
    **dict.fromkeys(_SCALERS, _RANGES),
    "CountVectorizer": "HashingVectorizer",
    "KBinsDiscretizer": "lastiterate.features.PublicBins",
    "Nystroem": "lastiterate.features.RandomFourierFeatures",
    "OneHotEncoder": _CATEGORIES,
    "OrdinalEncoder": "OrdinalEncoder(categories=..)",
    "PCA": "GaussianRandomProjection",
    "RBFSampler": "lastiterate.features.RandomFourierFeatures, or gamma=number,",
    "SimpleImputer": 'strategy="constant", keep_empty_features=True',
    "SplineTransformer": "knots=[[..]]",
    "TargetEncoder": _CATEGORIES,
    "TfidfVectorizer": "HashingVectorizer",
    "TruncatedSVD": "SparseRandomProjection",
}


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
FIXED: dict[str, Callable[[Any], bool]] = {
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
