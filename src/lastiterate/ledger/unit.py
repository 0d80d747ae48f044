"""The unit of privacy of a ledger: what changes between two data sets that it keeps apart.

A ledger has one unit, and every charge is counted in it.  A promise for j examples of a person is
turned into one for k > j by the group property; charges of events and statistics are of sums, which
k examples move k times as far.  A charge for more examples than the ledger counts is refused: its
release was made to protect persons, and a total of single examples would not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lastiterate import _check
from lastiterate.errors import InvalidParameter

ADJACENCIES = ("replace", "zero-out")
PER_PERSON = "examples_per_person"


@dataclass(frozen=True)
class Unit:
    """A kind of change, and of how many examples at once."""

    adjacency: str = "replace"
    examples_per_person: int = 1

    def __post_init__(self) -> None:
        _check.choice("adjacency", self.adjacency, among=ADJACENCIES)
        _check.count(PER_PERSON, self.examples_per_person, at_least=1)

    def __str__(self) -> str:
        replaced = self.adjacency == "replace"
        if self.examples_per_person == 1:
            return f"one example {'replaced' if replaced else 'left out'}"
        changed = "replaced" if replaced else "left out"
        return f"all examples of one person, at most {self.examples_per_person:,}, {changed}"

    def groups_of(self, covered: int) -> int:
        """The number of groups of this many examples that the examples of a person fall into."""
        self.check(covered)
        return -(-self.examples_per_person // covered)

    def check(self, covered: int) -> None:
        """Refuse a promise for more examples of a person than the ledger counts."""
        if covered > self.examples_per_person:
            must_be = (
                f"at most {self.examples_per_person:,}, as the ledger's: its total would be of "
                f"fewer examples than a person has; open a ledger with {PER_PERSON}={covered}, and "
                "add there what was charged here"
            )
            raise InvalidParameter(PER_PERSON, covered, must_be=must_be)


def covered_by(charge: Mapping[str, Any]) -> int:
    """How many examples of one person a charge is for."""
    if charge["kind"] == "training":
        return _of_run(charge["run"])
    if charge["kind"] == "selection":
        return max(_of_run(one["run"]) for one in charge["candidates"])
    return _check.count(PER_PERSON, charge[PER_PERSON], at_least=1)


def _of_run(run: Mapping[str, Any]) -> int:
    return _check.count(PER_PERSON, run.get(PER_PERSON, 1), at_least=1)
