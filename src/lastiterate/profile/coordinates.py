"""A search along one coordinate after the other, among a few values of each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

Choice = TypeVar("Choice")


def best_by_coordinates(
    start: Choice, values: Mapping[str, Sequence[float]], cost: Callable[[Choice], float]
) -> tuple[Choice, float]:
    """From each value of a field of a dataclass to the next while that is cheaper, field by field.

    Twice, since what is best of one field depends on the others; and what the best costs.  No
    choice is looked at twice.
    """
    tried: dict[Choice, float] = {}

    def known(choice: Choice) -> float:
        if choice not in tried:
            tried[choice] = cost(choice)
        return tried[choice]

    best = start
    for _ in range(2):
        for name, some in values.items():
            for stride in (1, -1):
                at = some.index(getattr(best, name))
                while 0 <= (at := at + stride) < len(some):
                    other = replace(best, **{name: some[at]})  # type: ignore[type-var]
                    if not known(other) < known(best):
                        break
                    best = other
    return best, known(best)
