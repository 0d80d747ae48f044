"""Refusal of fits without what must be declared, since looking it up would tell of the data.

A data frame is a table whose columns have units, and ranges that differ: scaled down to a common
length, the largest column is all that is left of a row.
"""

from __future__ import annotations

import math
from typing import Any

from lastiterate._warning import warn
from lastiterate.errors import InvalidParameter, InvalidType

SCALED = (
    "map columns to [-1, 1] by publicly known ranges, PrivateScaler(low=.., high=..), and set "
    "feature_bound to the longest row that can be, the square root of the number of columns; or, "
    "if only the direction of rows matters, as of embeddings, set feature_bound=1"
)
_ENCODED = (
    "a PrivateSchema as the first step of a pipeline makes features of text and numbers by what is "
    'publicly known of each column, as in PrivateSchema({"age": {"range": [18, 90]}, "job": '
    '{"values": ["clerk", "nurse"]}, "id": "drop"}), and its rows have feature_bound 1'
)
_TEXT = ("object", "str", "categor", "enum", "utf8", "large_str")  # types of pandas and polars
_ELSEWHERE = {
    "C": "l2 is the penalty; the noise regularises, so that none is needed by default",
    "alpha": "l2 is the penalty; the noise regularises, so that none is needed by default",
    "penalty": "l2=.. is the only one",
    "class_weight": "a weight scales what an example can reveal.  Rank by decision_function, or "
    "move the threshold; class_prior tells of publicly known shares, and a larger clip_norm lets "
    "rare classes count for more",
    "sample_weight": "a weight scales what an example can reveal",
    "max_iter": "epochs is the most passes over the data; all of them are made",
    "tol": "a run that stopped by itself would tell of the data; epochs says how long it is",
    "solver": "there is one, noisy gradient descent",
    "multi_class": "three or more classes are multinomial",
    "learning_rate": "the step size follows from the bounds",
    "n_jobs": "products run on the threads of numpy's BLAS",
}


class OfScikitLearn:
    """Says what became of parameters that scikit-learn's estimators have."""

    def __new__(cls, *_: Any, **settings: Any) -> Any:
        for name in settings.keys() & _ELSEWHERE.keys():
            if name not in cls.__init__.__annotations__:
                raise InvalidType(name, settings[name], must_be=f"left out: {_ELSEWHERE[name]}")
        return super().__new__(cls)

    def __getattr__(self, name: str) -> Any:
        if name == "partial_fit":
            raise AttributeError(
                "partial_fit is not offered: every call would release a model of its own, and "
                "each would have to be charged for; fit separate models and compose their "
                "privacy_ reports"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def refuse_other_words(given: dict[str, Any]) -> None:
    """Refuse what scikit-learn's `fit` may be given beside X and y; no value is kept."""
    names = sorted(given)
    given.clear()
    for name in names:
        reason = _ELSEWHERE.get(name, "fit takes X, y, ledger and key, and nothing else")
        raise InvalidType(name, must_be=f"left out of fit: {reason}", found="one")


def refuse_raw_frame(X: Any, feature_bound: float | None) -> None:
    """If it is visible from outside that nobody has said how long rows may be."""
    if not (hasattr(X, "columns") and hasattr(X, "shape")):
        return
    text = _text_columns(X)
    if feature_bound is None and text:
        found = f"text in the columns {', '.join(text)}"
        raise InvalidParameter("X", must_be=f"numbers: {_ENCODED}", found=found)
    if feature_bound is None:
        must_be = f"set for a data frame: {SCALED}"
        raise InvalidParameter("feature_bound", must_be=must_be, found="a data frame, and none set")
    if feature_bound > math.sqrt(X.shape[1]):
        warn(
            f"feature_bound = {feature_bound:g} lets columns of this data frame go beyond "
            f"[-1, 1], and the longest column drowns all others: {SCALED}",
            UserWarning,
        )


def _text_columns(frame: Any) -> list[str]:
    """The columns that hold text, or anything else that is no number, by their types alone."""
    types = getattr(frame, "dtypes", ())
    return [
        str(name)
        for name, kind in zip(frame.columns, types, strict=False)
        if str(kind).lower().startswith(_TEXT)
    ]
