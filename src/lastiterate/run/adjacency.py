"""The adjacency relations, and the names that other accountants have for them."""

from lastiterate import _check
from lastiterate.errors import InvalidParameter
from lastiterate.run.batch_rules.base import BatchRule

ADJACENCIES = ("replace", "zero-out")
ADD_REMOVE = "add-remove"
IN_WORDS = {"replace": "replaced by another", "zero-out": "left out (zeroed)"}


def if_one_example_is(adjacency: str, per_person: int = 1) -> str:
    """The condition under which an epsilon is what it is; for persons, if all of theirs are."""
    if per_person == 1:
        return f"if one example is {IN_WORDS[adjacency]}"
    changed = "replaced by others" if adjacency == "replace" else IN_WORDS[adjacency]
    return f"if all examples of one person, at most {per_person:,}, are {changed}"


def factor(adjacency: str) -> float:
    """How far a sum of gradients of norm at most 1 can move."""
    return 2.0 if adjacency == "replace" else 1.0


def usual_adjacency(*, sensitivity_stated: bool) -> str:
    """The adjacency of a description that names none: the one that its numbers are meant for.

    A sensitivity is the difference of two examples' gradients.  Noise that is stated in units of a
    clip is, as DP-SGD libraries have it, compared with what one example adds.
    """
    return "replace" if sensitivity_stated else "zero-out"


def known_adjacency(adjacency: object, batches: BatchRule) -> str:
    """One of the two; "add-remove" is "zero-out" wherever it means the same.

    That is where examples take part independently of each other and batches are not cut: then
    others' batches, and what sums are divided by, are the same with the example and without it.
    """
    if adjacency != ADD_REMOVE:
        if isinstance(adjacency, str) and adjacency not in ADJACENCIES:
            raise InvalidParameter("adjacency", adjacency, must_be=_CHOICES)
        return _check.choice("adjacency", adjacency, among=ADJACENCIES)
    if batches.exact_size or batches.largest_size < batches.examples:
        must_be = (
            "'zero-out' or 'replace' here: adding or removing an example would change the batches "
            "of the others, as they have a fixed or a largest size; 'zero-out' keeps its place "
            "and takes its gradient away"
        )
        raise InvalidParameter("adjacency", adjacency, must_be=must_be)
    return "zero-out"


_CHOICES = (
    "one of 'replace' (one example becomes another), 'zero-out' (its gradient becomes 0), or "
    "'add-remove', which is 'zero-out' for batches of independent examples such as Poisson's"
)
