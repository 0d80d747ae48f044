"""Batch rules: when and how the batches of a run are drawn, and the register of all rules."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Protocol, Self

from lastiterate import _check
from lastiterate._numerics.rounding import IntArray
from lastiterate.errors import InvalidParameter

Selection = slice | IntArray


class Resampling(Enum):
    """The times at which the examples of batches are drawn."""

    NEVER = "never"
    ONCE = "once, before the first step"
    EACH_EPOCH = "before each epoch"
    EACH_FEW_EPOCHS = "before every few epochs"
    EACH_STEP = "before each step"


class RandomSource(Protocol):
    """The random draws that batches need: uniform, independent of the data, and secret."""

    def permutation(self, count: int, /) -> IntArray: ...

    def subset(self, count: int, size: int, /) -> IntArray: ...

    def each_with_probability(
        self, count: int, numerator: int, denominator: int, /
    ) -> IntArray: ...

    def each_to_a_position(
        self, count: int, positions: int, numerator: int, denominator: int, /
    ) -> IntArray: ...


RULES: dict[str, type[BatchRule]] = {}


@dataclass(frozen=True)
class BatchRule(ABC):
    """A rule that says which examples each step sees.

    Parameters
    ----------
    examples : int
        How many there are.
    batch_size : int
        How many of them a batch has, exactly or on average.

    Notes
    -----
    A rule is a frozen dataclass that states, as class attributes,

    ==============  ======================================================================
    name            as files of settings and the command call it
    resampling      when batches are drawn
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

    and implements the abstract methods of `PositionedRule`, `SampledRule` or this class.  A class
    that lacks any of this cannot be defined or instantiated.

    Examples
    --------
    >>> from lastiterate import Cyclic
    >>> rule = Cyclic(examples=100, batch_size=10)
    >>> rule.batches_per_epoch, rule.share, rule.resampling.name
    (10, 0.1, 'NEVER')
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
        """The rule for so many examples.

        Parameters
        ----------
        examples : int
            How many there are.
        batch_size : int or None
            The size of batches; None if it is not stated.

        Returns
        -------
        BatchRule
            A rule of this class.

        Raises
        ------
        InvalidParameter
            If the rule needs a batch size and has none.

        Examples
        --------
        >>> from lastiterate import Cyclic
        >>> Cyclic.of_sizes(100, 10)
        Cyclic(examples=100, batch_size=10)
        """
        if batch_size is None:
            raise InvalidParameter("batch_size", None, must_be="given for these batches")
        return cls(examples, batch_size)

    @property
    def batches_per_epoch(self) -> int:
        """How many full batches one pass over the examples makes."""
        return self.examples // self.batch_size

    @property
    @abstractmethod
    def steps_per_pass(self) -> int:
        """How many steps users call an epoch."""

    @property
    def steps_per_draw(self) -> int:
        """The steps of an epoch or, for some rules, of several epochs that are drawn together."""
        return self.batches_per_epoch

    @property
    def share(self) -> float:
        """The share of the examples that a batch has, batch_size / examples."""
        return self.batch_size / self.examples

    @property
    def largest_size(self) -> int:
        """How many examples a batch may have."""
        return self.batch_size

    def size_exceeded_with(self, probability: float) -> int:
        """A size that a batch exceeds with at most this probability.

        Parameters
        ----------
        probability : float
            0 gives the largest size.

        Returns
        -------
        int
            The size.

        Examples
        --------
        >>> from lastiterate import PoissonSampled
        >>> rule = PoissonSampled(examples=1_000, batch_size=100)
        >>> rule.size_exceeded_with(0.0), rule.size_exceeded_with(1e-9)
        (1000, 161)
        """
        del probability
        return self.largest_size

    @property
    @abstractmethod
    def period(self) -> int | None:
        """Steps from one participation to the next, where these are always as many.

        Batches drawn anew every step may have the same example every time.
        """

    @abstractmethod
    def position_count(self, steps: int) -> int:
        """The number of positions that an example may have in the order of the batches.

        Parameters
        ----------
        steps : int
            The length of the run.

        Returns
        -------
        int
            The number.

        Examples
        --------
        >>> from lastiterate import Cyclic
        >>> Cyclic(examples=100, batch_size=10).position_count(steps=25)
        10
        """

    @abstractmethod
    def participations(self, position: int, steps: int) -> IntArray:
        """The steps that may see the example at a position.

        Parameters
        ----------
        position : int
            Counted from 0.
        steps : int
            The length of the run.

        Returns
        -------
        array of int
            Steps, counted from 0.

        Raises
        ------
        ValueError
            If an example has another position in every epoch.

        Examples
        --------
        >>> from lastiterate import Cyclic
        >>> Cyclic(examples=100, batch_size=10).participations(3, steps=25)
        array([ 3, 13, 23])
        """

    def most_participations(self, steps: int) -> int:
        """The most steps in which one example may take part.

        Parameters
        ----------
        steps : int
            The length of the run.

        Returns
        -------
        int
            The number of steps.

        Examples
        --------
        >>> from lastiterate import Cyclic
        >>> Cyclic(examples=100, batch_size=10).most_participations(steps=25)
        3
        """
        if self.period is not None:
            return -(-steps // self.period)
        return max(
            self.participations(position, steps).size
            for position in range(self.position_count(steps))
        )

    @abstractmethod
    def longest_wait(self, steps: int) -> int:
        """The most steps from a participation up to the next one, or up to the end.

        Parameters
        ----------
        steps : int
            The length of the run.

        Returns
        -------
        int
            The number of steps.

        Examples
        --------
        >>> from lastiterate import Cyclic
        >>> Cyclic(examples=100, batch_size=10).longest_wait(steps=25)
        10
        """

    def check_length(self, steps: int) -> None:
        """A check that the rule can have this number of steps.

        Parameters
        ----------
        steps : int
            The length of the run.

        Raises
        ------
        InvalidParameter
            If it cannot.

        Examples
        --------
        >>> from lastiterate import FixedOrder
        >>> FixedOrder(examples=9, batch_size=3, positions=[2, 4]).check_length(steps=4)
        """
        del steps

    def stopped(self, steps: int) -> BatchRule:
        """The rule of the same run if it stops early.

        Parameters
        ----------
        steps : int
            The steps that are taken.

        Returns
        -------
        BatchRule
            The rule.

        Examples
        --------
        >>> from lastiterate import FixedOrder
        >>> FixedOrder(examples=9, batch_size=3, positions=[2, 4]).stopped(steps=3)
        FixedOrder(examples=9, batch_size=3, positions=(2,))
        """
        del steps
        return self

    def arrangement(self, source: RandomSource) -> IntArray | None:
        """The order in which examples are laid out before training.

        Parameters
        ----------
        source : RandomSource
            The random draws.

        Returns
        -------
        array of int or None
            None leaves them as they are.

        Examples
        --------
        >>> from lastiterate import Cyclic, ShuffledOnce
        >>> from lastiterate.train.noise import randomness
        >>> Cyclic(examples=100, batch_size=10).arrangement(randomness(0)) is None
        True
        >>> ShuffledOnce(examples=100, batch_size=10).arrangement(randomness(0)).shape
        (100,)
        """
        del source
        return None

    @abstractmethod
    def selections(self, source: RandomSource) -> Iterator[Selection]:
        """The endless sequence of batches.

        Parameters
        ----------
        source : RandomSource
            The random draws.

        Returns
        -------
        iterator of slices or arrays of int
            Indices of examples into `arrangement`.

        Raises
        ------
        InvalidParameter
            If the rule does not say which examples each step sees.

        Examples
        --------
        >>> from itertools import islice
        >>> from lastiterate import Cyclic
        >>> from lastiterate.train.noise import randomness
        >>> list(islice(Cyclic(examples=100, batch_size=10).selections(randomness(0)), 2))
        [slice(0, 10, None), slice(10, 20, None)]
        """

    def described(self) -> str:
        """The batches in words, after "100 steps of noisy gradient descent, ...".

        Returns
        -------
        str
            A clause.

        Examples
        --------
        >>> from lastiterate import Cyclic
        >>> Cyclic(examples=100, batch_size=10).described()
        'batches of 10 of 100 examples in the same order every epoch'
        """
        return f"batches of {self.batch_size:,} of {self.examples:,} examples {self.in_words}"

    def stated(self, *, secret: bool) -> str:
        """The claims for which the person who describes a run vouches, after "you state that".

        Parameters
        ----------
        secret : bool
            Whether the guarantee needs the order to be secret.

        Returns
        -------
        str
            A clause.

        Examples
        --------
        >>> from lastiterate import FullBatch
        >>> FullBatch(examples=100).stated(secret=False)
        'every step averages the gradients of all 100 examples'
        """
        how = self.in_secret if secret else self.openly
        return (
            f"every batch has exactly {self.batch_size:,} of {self.examples:,} examples, "
            f"{how}{self._remainder_clause()}"
        )

    def _remainder_clause(self) -> str:
        """A clause on the examples that fill no batch of an epoch, after a semicolon."""
        return ""


def rules(*resampling: Resampling, exact_size: bool | None = None) -> tuple[type[BatchRule], ...]:
    """The rules that draw at one of these times, with or without an exact batch size."""
    return tuple(
        rule
        for rule in RULES.values()
        if rule.resampling in resampling and exact_size in (None, rule.exact_size)
    )
