"""Errors that hold no rows and no targets: neither in what they say, nor in their tracebacks.

Messages of numpy and scikit-learn quote values.  Only sentences that are known to quote none are
passed on.  A traceback keeps the variables of every function that it passed, and tools that report
errors send them on: rows, iterates and the state of the noise are removed from it.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from lastiterate.errors import InvalidParameter, InvalidType, LastIterateError

_Result = TypeVar("_Result")
_SIZES = r"[\d, ()]*"

_HARMLESS_MESSAGES = [
    r"Complex data not supported",
    r"argument must be a string or a( real)? number",
    r"Input (X |y )?contains (NaN|infinity or a value too large for dtype\('float(32|64)'\))",
    rf"Found array with \d+ (sample|feature)\(s\) \(shape={_SIZES}\) while a minimum of \d+ is "
    r"required( by \w+)?",
    r"Found array with dim \d+(, while dim <= 2 is required by \w+|\. \w+ expected <= 2)",
    r"Expected 2D array, got (1D|scalar) array instead",
    r"Reshape your data either using array\.reshape\(-1, 1\) if your data has a single feature or "
    r"array\.reshape\(1, -1\) if it contains a single sample",
    r"X has \d+ features, but \w+ is expecting \d+ features as input",
    r"Found input variables with inconsistent numbers of samples: \[[\d, ]*\]",
    r"Unknown label type: \(?'?(continuous|continuous-multioutput|multiclass-multioutput|"
    r"multilabel-indicator|unknown)'?\)?",
    rf"y should be a 1d array, got an array of shape {_SIZES} instead",
    r"requires y to be passed, but the target y is None",
    r"Feature names are only supported if all input features have string names",
    r"The feature names should match those that were passed during fit",
]

_REMEDIES = {
    "y contains NaN": "leave out the rows that have no target",
    "contains NaN": "fill empty cells with a public constant, not with a statistic of the data: "
    '"missing" in a PrivateSchema, or '
    'SimpleImputer(strategy="constant", fill_value=0, keep_empty_features=True)',
    "contains infinity": "clip columns to publicly known ranges, PrivateScaler(low=.., high=..) "
    "or PrivateSchema",
    "not a number": "PrivateSchema encodes text by publicly known values",
}

_Method = TypeVar("_Method", bound=Callable[..., Any])


def discreetly(action: Callable[[], _Result]) -> _Result:
    """The result of the action; errors hold no value of the data."""
    try:
        return action()
    except LastIterateError:
        raise
    except Exception as error:
        clear_locals(error)
        found = harmless_part(str(error))
        kind = InvalidType if isinstance(error, TypeError) else InvalidParameter
    # Raised outside the handler, so the original error is not kept as its context.
    must_be = "numbers throughout, in rows of equal length"
    found = found or "a value that is not a number"
    remedy = next((do for what, do in _REMEDIES.items() if what in found), None)
    raise kind("X and y", must_be=must_be, found=f"{found} -> {remedy}" if remedy else found)


def harmless_part(message: str) -> str:
    """The sentences that name no value; empty if there are none."""
    joined = " ".join(message.split())
    found = [re.search(sentence, joined) for sentence in _HARMLESS_MESSAGES]
    return ". ".join(one[0] for one in found if one is not None)


def is_dask(given: Any) -> bool:
    """Whether it is a Dask collection; does not import Dask."""
    return any(kind.__module__.partition(".")[0] == "dask" for kind in type(given).__mro__)


def clear_locals(error: BaseException) -> None:
    """Empty the variables of every finished function that the error, or one behind it, passed."""
    seen: list[BaseException] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is None or any(one is other for other in seen):
            continue
        seen.append(one)
        traceback.clear_frames(one.__traceback__)
        waiting += [one.__cause__, one.__context__]


def discreet(method: _Method) -> _Method:
    """The method, of whose arguments no traceback keeps any."""

    @wraps(method)
    def called(self: Any, *given: Any, **named: Any) -> Any:
        held: list[Any] = [given, named]
        del given, named
        try:
            return method(self, *held[0], **held[1])
        except BaseException as error:
            held.clear()
            clear_locals(error)
            raise

    return cast(_Method, called)


class DiscreetTransformer:
    """A base of transformers, to stand before those of scikit-learn.

    These wrap `transform` of every class into a function that keeps the rows, and their
    `fit_transform` does, too.  So methods are made discreet around all that.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in ("fit", "transform", "fit_transform", "inverse_transform"):
            method = getattr(cls, name, None)
            if method is not None:
                setattr(cls, name, discreet(method))
