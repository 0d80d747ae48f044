"""The guarantee of extra steps for the examples to unlearn, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lastiterate._digits import up
from lastiterate.accounting import USUAL_DELTA
from lastiterate.run.adjacency import if_one_example_is

if TYPE_CHECKING:
    from lastiterate.unlearn.unlearning_result import Unlearning

_TOO_MUCH = ": train again instead. A penalty (l2 = 0.01) at training makes unlearning cheaper."


def as_text(found: Unlearning, *, delta: float = USUAL_DELTA) -> str:
    """The promise, what it does not say, what others pay, and the cost."""
    steps, many = found.extra_steps, found.examples
    who = "1 example" if many == 1 else f"{many:,} examples at once"
    whom = "it" if many == 1 else "them"
    without = (
        "never been part of any sum"
        if found.run.adjacency == "zero-out"
        else "been others from the start"
    )
    at = f"at delta = {delta:g}"
    one = if_one_example_is(found.run.adjacency)
    taken = "1 extra step" if steps == 1 else f"{steps:,} extra steps"
    forget = "forgets" if steps == 1 else "forget"
    lines = [
        f"{taken} without {whom} {forget} {who}: epsilon = "
        f"{up(found.epsilon(delta))} {at}, certified by {found.forgotten.bound_at(delta)}.",
        "",
        f"Promised: what is published now is that close, in both directions, to what would have "
        f"been published had the removed {without}.",
        f"Not promised: anything against someone who holds the model from before, too. Against "
        f"that person each of the removed has what the training gave: epsilon = "
        f"{up(found.before.epsilon(delta))} {one}.",
        "Nor is it promised if the wish to be removed depends on a published model.",
        f"Those who stay have epsilon = {up(found.remaining.epsilon(delta))} of the new model "
        f"alone ({found.run.steps + steps:,} steps), and "
        f"{up(found.both_published.epsilon(delta))} of both models, {one}. A certificate says what "
        "they have under its own adjacency.",
        f"Cost: {100.0 * found.share_of_training:.3g} % of training again"
        + (_TOO_MUCH if found.share_of_training >= 1.0 else "."),
    ]
    return "\n".join(lines)
