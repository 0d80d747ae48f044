"""The steps before a model: those that learned from the private examples, and fixed features.

The pipelines that call `fit` are found on the stack, in the same process.  Steps that were fitted
before and separately are not.  Users declare those, and correct the others, by
`preprocessing={"step": "private"}` or `"public"`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from lastiterate import _check
from lastiterate.errors import InvalidParameter, PrivacyWarning, warn
from lastiterate.linear_model.inputs import rows_alone
from lastiterate.tables.encoder import Encoder
from lastiterate.train.discreet import DiscreetTransformer
from lastiterate.train.rows import rows_within, without_duplicates
from lastiterate.train.settings import PRIVATE, PUBLIC

_PIPELINE_CLASS, _TARGETS_MODULE = "sklearn.pipeline.Pipeline", "sklearn.compose._target."
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
        if _PIPELINE_CLASS in _kinds(owner) and any(owner.steps[-1][1] is one for one in within):
            before = [*_flatten_steps(owner.steps[:-1]), *before]
    return before


def _flatten_steps(steps: Any) -> Iterator[Any]:
    """The steps, with pipelines among them replaced by their own."""
    for _, step in steps:
        if _PIPELINE_CLASS in _kinds(step):
            yield from _flatten_steps(step.steps)
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
        if _PIPELINE_CLASS in kinds:
            yield from _learning_steps(owner.steps[:-1])
        elif any(kind.startswith(_TARGETS_MODULE) for kind in kinds):
            yield from _learning_steps([("targets", owner.transformer)])


def _learning_steps(steps: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Names and types of steps that learn more than the number and width of the examples."""
    for name, step, *_ in steps:
        inner = _inner_steps(step)
        if inner is not None:
            yield from _learning_steps(inner, f"{prefix}{name}__")
        elif _is_learning(step):
            yield f"{prefix}{name}", type(step).__name__


def _inner_steps(step: Any) -> list[Any] | None:
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


# Transformers of scikit-learn that learn nothing from rows, and substitutes for those that do.


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


class PrivateScaler(DiscreetTransformer, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Scales every row to a norm within a bound, without statistics of the data.

    Fitting learns the number of features and nothing else, so it costs no privacy.  A scaler
    that learns means or variances from private data does.

    Parameters
    ----------
    bound : float, default=1.0
        Rows with a larger norm are scaled down to it.
    low, high : float or sequence, optional
        Publicly known ranges of the features, which are first mapped to [-1, 1]; values
        outside count as the ends.  Both or none.

    Attributes
    ----------
    n_features_in_ : int
        The number of features.

    Examples
    --------
    >>> PrivateScaler(bound=5.0).fit([[3.0, 4.0]]).transform([[3.0, 4.0], [30.0, 40.0]])
    array([[3., 4.],
           [3., 4.]])
    >>> PrivateScaler(bound=2.0, low=[0, 0], high=[100, 1]).fit_transform([[75, 1], [120, 0]])
    array([[ 0.5,  1. ],
           [ 1. , -1. ]])
    """

    def __init__(self, bound: float = 1.0, *, low: Any = None, high: Any = None) -> None:
        self.bound = bound
        self.low = low
        self.high = high

    @property
    def norm_bound(self) -> float:
        """The largest norm of a scaled row; estimators in a pipeline take it over."""
        return self.bound

    def fit(self, X: Any, y: None = None) -> Self:
        """Store the number of features.

        Parameters
        ----------
        X : array or sparse matrix
            Rows; only their width is used.
        y : None
            Ignored.

        Returns
        -------
        self
            The fitted scaler.

        Raises
        ------
        InvalidParameter
            If the bound or the ranges cannot be used.
        """
        rows = rows_alone(self, X, reset=True)
        _check.number("bound", self.bound, above=0.0)
        if self._range(rows.shape[1]) is not None and sparse.issparse(rows):
            raise InvalidParameter("low", self.low, must_be="None for sparse rows")
        return self

    def transform(self, X: Any) -> Any:
        """The rows, each scaled to a norm within the bound.

        Parameters
        ----------
        X : array or sparse matrix
            Rows.

        Returns
        -------
        array or sparse matrix
            The scaled rows.
        """
        check_is_fitted(self, "n_features_in_")
        rows: Any = without_duplicates(rows_alone(self, X))
        return rows_within(rows, self.bound, self._range(rows.shape[1]))

    def _range(self, width: int) -> tuple[NDArray[Any], NDArray[Any]] | None:
        if (self.low is None) != (self.high is None):
            raise InvalidParameter("high", self.high, must_be="given exactly if low is")
        if self.low is None:
            return None
        low, high = (
            np.broadcast_to(np.asarray(end, dtype=np.float64), (width,))
            for end in (self.low, self.high)
        )
        if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
            raise InvalidParameter("low", self.low, must_be="finite and below high everywhere")
        return low, high

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.low is None
        tags.requires_fit = True
        return tags
