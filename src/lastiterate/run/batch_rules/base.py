"""Batch rules: what each declares, and the register of all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from lastiterate import _check
from lastiterate.errors import InvalidParameter
from lastiterate.run.batch_rules.batch_order import BatchOrder
from lastiterate.run.batch_rules.batch_order import RandomSource as RandomSource
from lastiterate.run.batch_rules.batch_order import Resampling as Resampling
from lastiterate.run.batch_rules.batch_order import Selection as Selection

RULES: dict[str, type[BatchRule]] = {}


def rules(*resampling: Resampling, exact_size: bool | None = None) -> tuple[type[BatchRule], ...]:
    """The rules that draw at one of these times, with or without an exact batch size."""
    return tuple(
        rule
        for rule in RULES.values()
        if rule.resampling in resampling and exact_size in (None, rule.exact_size)
    )


@dataclass(frozen=True)
class BatchRule(BatchOrder):
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
            f"{how}{self._left_over()}"
        )

    def _left_over(self) -> str:
        return ""
