"""The estimators, as `lastiterate.linear_model` exports them."""

import inspect

from lastiterate import linear_model

_TABLE, _REFERENCE = "<!-- table of estimators -->", "<!-- reference of estimators -->"
_SHOWN = "fit, transform, predict, predict_proba, decision_function, score, conf_int, unlearn"


def filled_in(page: str) -> str:
    """The page, with the table and the reference where it asks for them."""
    return page.replace(_TABLE, table()).replace(_REFERENCE, reference())


def table() -> str:
    """Each name and the first sentence of its docstring."""
    return "\n".join(["| estimator | |", "|---|---|", *map(_row, _estimators())])


def reference() -> str:
    """Directives for mkdocstrings, one for each exported name: models first, warnings last."""
    order = sorted(linear_model.__all__, key=_place)
    return "\n\n".join(map(_directive, order))


def _place(name: str) -> tuple[int, str]:
    exported = getattr(linear_model, name)
    if isinstance(exported, type) and issubclass(exported, Warning):
        return 2, name
    return (0 if hasattr(exported, "predict") else 1), name


def _estimators() -> list[str]:
    return [name for name in linear_model.__all__ if hasattr(getattr(linear_model, name), "fit")]


def _row(name: str) -> str:
    sentence = (inspect.getdoc(getattr(linear_model, name)) or "").split("\n\n")[0]
    return f"| `{name}` | {' '.join(sentence.split())} |"


def _directive(name: str) -> str:
    directive = f"::: lastiterate.linear_model.{name}"
    if name in _estimators():
        directive += f"\n    options: {{inherited_members: [{_SHOWN}]}}"
    return directive
