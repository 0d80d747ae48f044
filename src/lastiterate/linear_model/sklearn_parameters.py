"""Errors for parameters of scikit-learn that private models lack; each names the substitute."""

from __future__ import annotations

from typing import Any

from lastiterate.errors import InvalidType

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
