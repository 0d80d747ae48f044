"""The interface of batch rules, which is all that accounting, training and audits use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Protocol, Self

from lastiterate import _check
from lastiterate._numerics.arrays import IntArray
from lastiterate.errors import InvalidParameter

Selection = slice | IntArray


class Resampling(Enum):
    """When chance decides which examples a batch has."""

    NEVER = "never"
    ONCE = "once, before the first step"
    EACH_EPOCH = "before each epoch"
    EACH_STEP = "before each step"


class RandomSource(Protocol):
    """The random draws that batches need: uniform, independent of the data, and secret."""

    def permutation(self, count: int, /) -> IntArray: ...

    def subset(self, count: int, size: int, /) -> IntArray: ...

    def each_with_probability(
        self, count: int, numerator: int, denominator: int, /
    ) -> IntArray: ...

    def each_to_a_position(
        self, count: int, position_count: int, numerator: int, denominator: int, /
    ) -> IntArray: ...


RULES: dict[str, type[BatchRule]] = {}


def rules(*resampling: Resampling, exact_size: bool | None = None) -> tuple[type[BatchRule], ...]:
    """The rules drawn at one of these times, and of this kind."""
    return tuple(
        rule
        for rule in RULES.values()
        if rule.resampling in resampling and exact_size in (None, rule.exact_size)
    )


@dataclass(frozen=True)
class BatchRule(ABC):
    """Which examples each step sees.

    A rule is a frozen dataclass that states, as class attributes,

    ==============  ======================================================================
    name            as files of settings and the command call it
    resampling      when chance decides
    in_words        the order of the batches, after "batches of 10 of 100 examples .."
    openly          how batches come about, if their order may be known
    in_secret       the same, if the guarantee rests on its being secret
    exact_size      whether every batch has exactly `batch_size` examples
    ordered         whether there is an order that could be published
    any_length      whether the rule says nothing of the number of steps
    from_sizes      whether `examples` and `batch_size` say all of it
    in_blocks       the rule to keep where only whole blocks of rows can be read; None if none
    exchangeable    whether, given the positions of all others, any two may have been exchanged;
                    then several examples of one person do not stay together
    ==============  ======================================================================

    and implements the abstract methods of `PositionedRule` or `SampledRule`.  One that lacks
    any of this cannot be defined or made.
    """

    examples: int
    batch_size: int

    name: ClassVar[str]
    resampling: ClassVar[Resampling]
    in_words: ClassVar[str]
    openly: ClassVar[str] = "chosen without regard to what they hold"
    in_secret: ClassVar[str] = ""
    exact_size: ClassVar[bool] = True
    ordered: ClassVar[bool] = True
    any_length: ClassVar[bool] = True
    from_sizes: ClassVar[bool] = True
    in_blocks: ClassVar[str | None] = None
    exchangeable: ClassVar[bool] = False

    def __init_subclass__(cls, *, abstract: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if abstract:
            return
        wanted = ["name", "resampling", "in_words"]
        missing = [one for one in wanted if not hasattr(cls, one)]
        if not missing and cls.resampling is not Resampling.NEVER and not cls.in_secret:
            missing = ["in_secret"]
        if missing:
            raise TypeError(f"batch rule {cls.__name__} does not state {', '.join(missing)}")
        if not isinstance(cls.resampling, Resampling):
            raise TypeError(
                f"batch rule {cls.__name__}: resampling must be one of {list(Resampling)}"
            )
        if cls.name in RULES and RULES[cls.name].__qualname__ != cls.__qualname__:
            raise TypeError(f"there is a batch rule called {cls.name!r} already")
        RULES[cls.name] = cls

    def __post_init__(self) -> None:
        examples = _check.count("examples", self.examples, at_least=1)
        size = _check.count("batch_size", self.batch_size, at_least=1, at_most=examples)
        object.__setattr__(self, "examples", examples)
        object.__setattr__(self, "batch_size", size)

    @classmethod
    def of_sizes(cls, examples: int, batch_size: int | None) -> Self:
        """The rule for so many examples; a batch size of None is as good as not stated."""
        if batch_size is None:
            raise InvalidParameter("batch_size", None, must_be="given for these batches")
        return cls(examples, batch_size)

    @property
    def batches_per_epoch(self) -> int:
        """How many full batches one pass over the examples makes."""
        return self.examples // self.batch_size

    @property
    def share(self) -> float:
        """The share of the examples that a batch has, batch_size / examples."""
        return self.batch_size / self.examples

    @property
    def largest_size(self) -> int:
        """How many examples a batch may have."""
        return self.batch_size

    def size_exceeded_with(self, probability: float) -> int:
        """How many examples a batch has or fewer, but for this probability."""
        del probability
        return self.largest_size

    @property
    @abstractmethod
    def steps_per_pass(self) -> int:
        """How many steps users call an epoch."""

    @property
    @abstractmethod
    def period(self) -> int | None:
        """Steps from one participation to the next, where these are always as many.

        Batches drawn anew every step may have the same example every time.
        """

    @abstractmethod
    def position_count(self, steps: int) -> int:
        """How many places are told apart, of which an example has one."""

    @abstractmethod
    def participations(self, position: int, steps: int) -> IntArray:
        """The steps, counted from 0, that may see the example at this place."""

    @abstractmethod
    def longest_wait(self, steps: int) -> int:
        """The most steps from a participation up to the next, or up to the end."""

    @abstractmethod
    def selections(self, source: RandomSource) -> Iterator[Selection]:
        """The endless sequence of batches, as indices into `arrangement`."""

    def arrangement(self, source: RandomSource) -> IntArray | None:
        """The order in which examples are laid out before training; None is as they are."""
        del source
        return None

    def most_participations(self, steps: int) -> int:
        """In how many of so many steps an example may take part."""
        if self.period is not None:
            return -(-steps // self.period)
        return max(
            self.participations(position, steps).size
            for position in range(self.position_count(steps))
        )

    def check_length(self, steps: int) -> None:
        """Refuses a number of steps that the rule cannot have."""
        del steps

    def stopped(self, steps: int) -> BatchRule:
        """The rule of the same run after so many steps."""
        del steps
        return self

    def described(self) -> str:
        """The batches of each step in words, after "100 steps of noisy gradient descent, ..."."""
        return f"batches of {self.batch_size:,} of {self.examples:,} examples {self.in_words}"

    def stated(self, *, secret: bool) -> str:
        """The claims that the person who describes a run vouches for, after "you state that"."""
        how = self.in_secret if secret else self.openly
        return (
            f"every batch has exactly {self.batch_size:,} of {self.examples:,} examples, "
            f"{how}{self._left_over()}"
        )

    def _left_over(self) -> str:
        return ""
