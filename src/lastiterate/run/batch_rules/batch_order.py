"""The order of batches: when it is drawn, which steps may see an example, what a step sees."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from enum import Enum
from typing import Protocol

from lastiterate._numerics.rounding import IntArray

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


class BatchOrder(ABC):
    """The interface by which bounds, trainers and audits ask a batch rule for its order."""

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
