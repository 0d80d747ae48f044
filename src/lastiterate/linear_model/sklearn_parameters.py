"""Errors for parameters of scikit-learn that private models lack; each names the substitute."""

from __future__ import annotations

from inspect import Parameter, signature
from typing import Any

from lastiterate import _check
from lastiterate.errors import InvalidType

_SUBSTITUTES = {
    "C": "l2 is the penalty; the noise regularises, so none is needed by default",
    "alpha": "l2 is the penalty; the noise regularises, so none is needed by default",
    "penalty": "l2=.. is the only one",
    "class_weight": "regressors have no classes; fit takes sample_weight, one weight in (0, 1] for "
    "each example",
    "sample_weight": "fit takes it, one weight in (0, 1] for each example",
    "max_iter": "epochs is the number of passes over the data",
    "tol": "the time at which a run stops by itself reveals the data; set epochs",
    "solver": "there is one, noisy gradient descent",
    "multi_class": "three or more classes are multinomial",
    "learning_rate": "the step size follows from the bounds",
    "n_jobs": "products run on the threads of numpy's BLAS",
}


class ScikitLearnParameters:
    """Mixin that refuses parameters of scikit-learn's estimators and names the substitute."""

    def __new__(cls, *_: Any, **settings: Any) -> Any:
        known = signature(cls.__init__).parameters
        for name in settings.keys() & _SUBSTITUTES.keys() - known.keys():
            raise InvalidType(name, settings[name], must_be=f"left out: {_SUBSTITUTES[name]}")
        if not any(one.kind is Parameter.VAR_KEYWORD for one in known.values()):
            _check.known_names(known, settings, cls.__name__)
        return super().__new__(cls)

    def set_params(self, **settings: Any) -> Any:
        """Set parameters, as searches over grids do.

        Parameters
        ----------
        **settings
            The parameters.

        Returns
        -------
        self
            The model.

        Raises
        ------
        InvalidType
            If it is a parameter that private models lack.
        """
        for name in settings.keys() & _SUBSTITUTES.keys() - signature(type(self)).parameters.keys():
            raise InvalidType(name, settings[name], must_be=f"left out: {_SUBSTITUTES[name]}")
        return super().set_params(**settings)  # type: ignore[misc]  # of scikit-learn's base

    def __getattr__(self, name: str) -> Any:
        if name == "partial_fit":
            raise AttributeError(
                "partial_fit is not offered: every call would release another model, each with its "
                "own cost; fit separate models and compose their privacy_ reports"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def refuse_unknown_arguments(given: dict[str, Any]) -> None:
    """Raise `InvalidType` for arguments of scikit-learn's `fit`, such as weights."""
    names = sorted(given)
    given.clear()
    for name in names:
        reason = _SUBSTITUTES.get(name, "fit takes X, y, sample_weight, ledger and key alone")
        raise InvalidType(name, must_be=f"left out of fit: {reason}", found="one")
