"""A search along one coordinate after the other, among a few values of each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

Choice = TypeVar("Choice")


def best_by_coordinates(
    start: Choice, values: Mapping[str, Sequence[float]], cost: Callable[[Choice], float]
) -> tuple[Choice, float]:
    """All values of each field of a dataclass, then those next to the best; and what that costs.

    No choice is looked at twice.
    """
    tried: dict[Choice, float] = {}

    def known(choice: Choice) -> float:
        if choice not in tried:
            tried[choice] = cost(choice)
        return tried[choice]

    best = start
    for name, some in values.items():
        best = min([best, *_with(best, name, some)], key=known)
    for name, some in values.items():
        at = some.index(getattr(best, name))
        best = min([best, *_with(best, name, some[max(at - 1, 0) : at + 2])], key=known)
    return best, known(best)


def _with(choice: Choice, name: str, values: Sequence[float]) -> list[Choice]:
    return [replace(choice, **{name: one}) for one in values]  # type: ignore[type-var]
