"""Settings of a private model: each is declared once, with its check and its documentation.

Estimators *are* settings: keyword dataclasses whose `__init__` stores what it is given, as
scikit-learn wants it.  What was given is checked when a model is fitted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import KW_ONLY, Field, dataclass, field, fields, replace
from functools import partial
from inspect import cleandoc
from textwrap import fill, indent
from types import MappingProxyType
from typing import Any, Self, TypeVar

import numpy as np

from lastiterate import _check
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.run.batch_rules.base import RULES, Resampling
from lastiterate.run.batch_rules.ordered import SHUFFLED
from lastiterate.tables.column_rules import WIDE, is_wide

# The noise is searched for, which takes too long for batches of random size drawn every step.
TRAINED = tuple(
    name
    for name, rule in RULES.items()
    if rule.from_sizes and (rule.exact_size or rule.resampling is not Resampling.EACH_STEP)
)

_ADD_REMOVE = (
    "the number of examples is public here, so none is added or removed; 'zero-out' keeps an "
    "example's place and takes its gradient away"
)

_OTHER_ADJACENCIES = dict.fromkeys(("add-remove", "add_remove"), _ADD_REMOVE)

_OTHER_BATCHES = {
    "shuffled": SHUFFLED,
    "poisson": "batches of random size are accounted for, but their noise takes too long to "
    "search for; 'sampled' draws a batch of one size in every step",
}

_Class = TypeVar("_Class", bound=type)
PRIVATE, PUBLIC = "private", "public"  # whose rows a step of preprocessing was fitted on


@dataclass(frozen=True)
class SettingKind:
    """A kind of setting: the name of its values, and the check they must pass."""

    name: str
    check: Callable[[str, Any], Any] = lambda _, value: value
    may_be_none: bool = False

    def checked(self, name: str, value: Any) -> Any:
        """The value as it is used."""
        return None if value is None and self.may_be_none else self.check(name, value)


def one_of(
    words: tuple[str, ...], *, default: str, hints: Mapping[str, str] = MappingProxyType({})
) -> SettingKind:
    """One of a few words, of which readers expect the default to be the first."""
    words = tuple(dict.fromkeys((default, *words)))
    listed = ", ".join(f'"{word}"' for word in words)
    return SettingKind(f"{{{listed}}}", partial(_check.choice, among=words, hints=hints))


def or_none(kind: SettingKind) -> SettingKind:
    """A kind that allows the same values and None."""
    return replace(kind, may_be_none=True)


_TARGET = SettingKind("float", _check.target_epsilon)

POSITIVE = SettingKind("float", partial(_check.number, above=0.0))

NOT_NEGATIVE = SettingKind("float", partial(_check.number, at_least=0.0))


def setting(default: Any, kind: SettingKind, words: str) -> Any:
    """A field of settings."""
    return field(default=default, metadata={"kind": kind, "words": words})


# Checks of settings that are neither numbers nor one of a few words.


def checked_truth(name: str, value: Any) -> bool:
    """True or False, checked."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidType(name, value, must_be="True or False")
    return bool(value)


def checked_text_columns(name: str, value: Any) -> tuple[tuple[str, int, int], ...]:
    """Names and features of columns, in order, checked."""
    must_be = "a mapping of column names to (first feature, first feature after them)"
    if value is None:
        return ()
    if isinstance(value, tuple):  # checked before
        value = {column: (first, after) for column, first, after in value}
    if not isinstance(value, Mapping) or not all(isinstance(one, str) for one in value):
        raise InvalidType(name, must_be=must_be, found=type(value).__name__)
    found = []
    for column, features in value.items():
        if not isinstance(features, Sequence) or len(features) != 2:
            raise InvalidParameter(f"{name}[{column!r}]", features, must_be="a pair of numbers")
        first = _check.count(f"{name}[{column!r}]", features[0], at_least=0)
        after = _check.count(f"{name}[{column!r}]", features[1], at_least=first + 1)
        found.append((column, first, after))
    return tuple(found)


@dataclass(eq=False, repr=False)
class RunSettings:
    """Settings that determine the run; None leaves a choice to the rule of `defaults`."""

    epsilon: float | None = setting(
        1.0,
        or_none(_TARGET),
        "The target, at most 100; None where `noise_std` is given instead.",
    )
    delta: float = setting(
        1e-5,
        SettingKind("float", partial(_check.number, above=0.0, below=1.0)),
        "Should be well below 1/n.",
    )
    _: KW_ONLY
    noise_std: float | None = setting(
        None,
        or_none(POSITIVE),
        "Noise per coordinate of the averaged gradient, instead of a target.",
    )
    adjacency: str = setting(
        "replace",
        one_of(("replace", "zero-out"), default="replace", hints=_OTHER_ADJACENCIES),
        "What is hidden: an example's being another one, or its not taking part.  The number "
        "of examples is public either way.",
    )
    examples_per_person: int = setting(
        1,
        SettingKind("int", partial(_check.count, at_least=1)),
        "The most rows that belong to one person, all of which are protected together.  Nothing "
        "checks it: rows carry no names here.",
    )
    l2: float = setting(
        0.0,
        NOT_NEGATIVE,
        "The penalty is l2/2 times the squared norm of all parameters, the intercept's included.",
    )
    release_noise_std: float | None = setting(
        None,
        or_none(NOT_NEGATIVE),
        "Noise on the published parameters; chosen for you, worth half an epoch.",
    )
    epochs: int = setting(
        20, SettingKind("int", partial(_check.count, at_least=1)), "The most passes over the data."
    )
    batch_size: int | None = setting(
        None,
        SettingKind("int"),  # checked where the number of examples is known
        "Chosen so that `epochs` passes make the number of steps that the rule asks for.",
    )
    batches: str = setting(
        "shuffled-once",
        one_of(TRAINED, default="shuffled-once", hints=_OTHER_BATCHES),
        "Which examples each step sees.",
    )

    center: bool = setting(
        True,
        SettingKind("bool", checked_truth),
        "Whether to subtract from all rows their mean (`center_`), published with noise that takes "
        ".15 of mu, or up to .3 with few examples.  Not done without an intercept, or where the "
        "noise would be longer than half of `feature_bound`: with too few examples for so many "
        "features.",
    )
    counting: float = setting(
        0.1,
        SettingKind("float", partial(_check.number, at_least=0.0, at_most=0.9)),
        "The part of mu that is spent on counting, with noise, rows and targets far from their "
        "bounds, so that you are told (`outliers_`); at the default the training has half a "
        "hundredth more noise for it.  0 counts nothing.",
    )
    rate_matching: float = setting(
        0.0,
        SettingKind("float", partial(_check.number, at_least=0.0, at_most=0.9)),
        "For `PrivateLogisticRegression`: the part of mu that is spent on shifting intercepts "
        "after training until mean probabilities match the shares of the classes, counted with "
        "noise, or `class_prior`.  Clipping makes those of a rare class too small.",
    )
    intervals: bool = setting(
        False,
        SettingKind("bool", checked_truth),
        "Whether to spend half of mu, after training, on what `conf_int` needs: two noisy "
        "gradients, a Hessian and a gradient covariance.  Rows are not centred then.  For two "
        "classes with `PrivateLogisticRegression`, and for regression.",
    )
    text_columns: Any = setting(
        None,
        SettingKind("mapping", checked_text_columns),
        "For each column of text that was coded one-hot by declared values, by its name, the first "
        "of its features and the first after them, as `PrivateSchema.text_columns_` has it.  Rows "
        "that have none of these values are counted with noise, column by column "
        "(`undeclared_`), for half of what `counting` spends, so that you are told of values that "
        "are spelt otherwise.",
    )

    def checked(self) -> Self:
        """A copy of the settings in which every value is checked.

        Returns
        -------
        Self
            The copy.

        Raises
        ------
        InvalidParameter, InvalidType
            If a value is out of range.
        """
        if (self.epsilon is None) == (self.noise_std is None):
            name = "exactly one of epsilon and noise_std"
            found = "neither" if self.epsilon is None else "both"
            raise InvalidParameter(name, must_be="given", found=found)
        passed = copy(self)
        for each in fields(self):
            kind: SettingKind = each.metadata["kind"]
            setattr(passed, each.name, kind.checked(each.name, getattr(self, each.name)))
        return passed

    def deciding(self) -> tuple[tuple[str, Any], ...]:
        """Names and values of the settings that decide the run, and of no others.

        Returns
        -------
        tuple of (str, value)
            In the order in which they are declared.
        """
        return tuple((each.name, getattr(self, each.name)) for each in fields(RunSettings))


def checked_preprocessing(name: str, value: Any) -> dict[str, str]:
    """Names of steps, each with "private" or "public" for the rows it was fitted on, checked."""
    must_be = 'a mapping of names of steps to "private" or "public"'
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(one, str) and one for one in value):
        raise InvalidType(name, value, must_be=must_be)
    return {
        step: _check.choice(f"{name}[{step!r}]", said, among=(PRIVATE, PUBLIC))
        for step, said in value.items()
    }


@dataclass(eq=False, repr=False, kw_only=True)
class Settings(RunSettings):
    """Settings that all private linear models share."""

    feature_bound: float | None = setting(
        None,
        or_none(POSITIVE),
        "Rows with a larger norm, however large, are scaled down to it.  It must not depend on "
        "the data; rows that are much shorter lose accuracy.  Unset it is the `norm_bound` of the "
        "step before the model in a pipeline, else 1, for rows of which only the direction "
        "matters; then data frames are refused, and rows that are mostly far longer.  Rows that "
        "are not finite are refused before training, which tells that there are some.",
    )
    clip_norm: float | None = setting(
        None, or_none(POSITIVE), "The largest norm of an example's gradient; chosen for you."
    )
    fit_intercept: bool = setting(
        True,
        SettingKind("bool"),
        "Whether to add a constant feature: `feature_bound`/8, for regression /4.",
    )
    preprocessing: Any = setting(
        None,
        SettingKind("mapping", checked_preprocessing),
        'For steps of preprocessing, by name, "private" if they were fitted on these examples, or '
        '"public" if they were not.  Steps of a pipeline that learn are found without it; declare '
        "those that were fitted apart, and those that only seem to learn.  Reports and "
        "certificates name both.",
    )
    arithmetic: str = setting(
        "proved",
        one_of(("proved", "fast"), default="proved"),
        'With "proved" products are float64 and the guarantee includes all rounding.  With "fast" '
        "products are in the precision of the rows; the rounding of float32 is not included.",
    )
    random_state: Any = setting(
        None,
        SettingKind("int"),
        "For tests: whoever knows it can remove the noise, and a pickled model holds it.  Left at "
        "None, noise and order are drawn from a secure generator.",
    )
    ledger: Any = setting(
        None,
        SettingKind("Ledger or path"),
        "Where every fit is charged before it begins; a fit that its budget has no room for is "
        "refused.  Copies of the model, as grid searches make them, charge the same ledger.",
    )


def documented(cls: _Class) -> _Class:
    """The class, with its settings' documentation in place of `{parameters}` in its docstring."""
    if cls.__doc__ is not None:  # as with python -OO
        entries = "\n".join(_entry(each) for each in fields(cls))
        section = f"Parameters\n----------\n{entries}"
        # From Python 3.13 on the compiler removes the indentation of docstrings.
        cls.__doc__ = cleandoc(cls.__doc__).replace("{parameters}", section)
    return cls


def _entry(each: Field[Any]) -> str:
    kind: SettingKind = each.metadata["kind"]
    said = kind.name + (" or None" if kind.may_be_none and each.default is not None else "")
    default = "optional" if each.default is None else f"default={each.default!r}"
    words = indent(fill(each.metadata["words"], 88), "    ")
    return f"{each.name} : {said}, {default}\n{words}"


def checked_range(name: str, value: Any) -> tuple[float, float]:
    """The low and the high end of a range, checked."""
    must_be = "(low, high), two finite numbers with low < high"
    try:
        low, high = (_check.number(name, end) for end in value)
    except (TypeError, ValueError):
        raise InvalidType(name, value, must_be=must_be) from None
    if not low < high:
        raise InvalidParameter(name, value, must_be=must_be)
    if not is_wide(low, high):
        raise InvalidParameter(name, value, must_be=WIDE)
    return low, high
