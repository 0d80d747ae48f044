"""Which examples each step sees: the batch rules, carried out.

The examples are copied, so that nobody else can change them; shuffling once makes that copy a
shuffled one, whose batches are contiguous.  A mapped file is read batch by batch, which rules whose
batches are blocks of consecutive rows allow.
"""

from collections.abc import Iterator

from lastiterate.errors import InvalidParameter
from lastiterate.run.batch_rules.base import RULES, BatchRule
from lastiterate.train.data import Examples
from lastiterate.train.noise import Order, Randomness
from lastiterate.train.rows import Selection


def batch_sequence(
    rule: BatchRule, examples: Examples, randomness: Randomness
) -> tuple[Examples, Iterator[Selection]]:
    """The examples as they will be read, and the endless sequence of batches."""
    order, selections = drawn(rule, len(examples), randomness, in_blocks=examples.is_mapped)
    return examples.own(order), selections


def drawn(
    rule: BatchRule, examples: int, randomness: Randomness, *, in_blocks: bool
) -> tuple[Order | None, Iterator[Selection]]:
    """The order in which so many examples are laid out, and the batches as indices into it."""
    if in_blocks:
        return None, _of_blocks(rule, randomness)
    _check_count(rule, examples)
    return rule.arrangement(randomness), rule.selections(randomness)


def _of_blocks(rule: BatchRule, randomness: Randomness) -> Iterator[Selection]:
    if rule.in_blocks != rule.name:
        names = [kind.__name__ for kind in RULES.values() if kind.in_blocks == kind.name]
        must_be = f"one of {', '.join(names)} for a mapped file, or so many rows"
        raise InvalidParameter("batches", rule, must_be=must_be)
    # Rows after the last full batch of a file are always left out, so they must not count as
    # examples that might have been left out by chance.
    _check_count(rule, rule.batch_size * rule.batches_per_epoch)
    return rule.selections(randomness)


def _check_count(rule: BatchRule, expected: int) -> None:
    if rule.examples != expected:
        must_be = f"{expected}, the number of examples that the batches are drawn from"
        raise InvalidParameter("batches.examples", rule.examples, must_be=must_be)
