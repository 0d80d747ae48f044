"""Momentum and averages of iterates, which make a step more than a plain gradient step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lastiterate import _check
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.run.batch_rules.ordered import FixedOrder

if TYPE_CHECKING:
    from lastiterate.run.training_run import TrainingRun

Schedule = float | tuple[float, ...]  # one number for all steps, or one for each


def schedule(
    name: str, value: object, steps: int, *, positive: str | None = "a number in (0, inf)"
) -> Schedule:
    """A float, or a tuple of `steps` floats that are not all equal.

    `positive` is what to say of 0, None if it may be.
    """
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)) and _dimension(value):
        array = _check.numbers(name, value, length=steps)
        where = int(array.argmin())
        name, least = f"{name}[{where}]", float(array[where])
        # One run has one description: a schedule of equal numbers is a number.
        listed: Schedule = least if least == float(array.max()) else tuple(array.tolist())
    else:
        above = None if positive is None or value == 0 else 0.0
        listed = least = _check.number(name, value, at_least=0.0, above=above)
    if positive is not None and not least > 0.0:
        raise InvalidParameter(name, least, must_be=positive)
    return listed


def _dimension(value: object) -> bool:
    return getattr(value, "ndim", 1) > 0


def shortened(value: object) -> str:
    """A schedule by its ends and length."""
    if isinstance(value, tuple) and len(value) > 4:
        return f"({value[0]!r}, {value[1]!r}, .., {value[-1]!r}: {len(value)} values)"
    if isinstance(value, FixedOrder) and len(value.positions) > 4:
        return f"FixedOrder({value.examples}, {value.batch_size}, {shortened(value.positions)})"
    return repr(value)


@dataclass(frozen=True)
class ExponentialAverage:
    r"""The released average :math:`\bar x_k = a \bar x_{k-1} + (1 - a) x_k` of all iterates.

    Parameters
    ----------
    decay : float
        a, in [0, 1).
    copies_first : bool
        Whether the first update copies the iterate, as `torch.optim.swa_utils.AveragedModel`
        does; otherwise the average begins at the start of the run.

    Examples
    --------
    >>> ExponentialAverage(0.9).decays(3)
    (0.0, 0.9, 0.9)
    """

    decay: float
    copies_first: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "decay", _check.number("decay", self.decay, at_least=0.0, below=1.0)
        )
        if not isinstance(self.copies_first, bool):
            raise InvalidType("copies_first", self.copies_first, must_be="True or False")

    def decays(self, steps: int) -> tuple[float, ...]:
        """The share of the former average that each step keeps.

        Parameters
        ----------
        steps : int
            The length of the run.

        Returns
        -------
        tuple of float
            One share for each step.

        Examples
        --------
        >>> from lastiterate import ExponentialAverage
        >>> ExponentialAverage(decay=0.9).decays(3)
        (0.0, 0.9, 0.9)
        """
        first = 0.0 if self.copies_first else self.decay
        return (first, *(self.decay for _ in range(steps - 1)))


@dataclass(frozen=True)
class TailAverage:
    """The released mean of the last iterates.

    Parameters
    ----------
    last : int
        How many of the last iterates are averaged; at most the number of steps.

    Examples
    --------
    >>> TailAverage(2).decays(4)
    (0.0, 0.0, 0.0, 0.5)
    """

    last: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "last", _check.count("last", self.last, at_least=1))

    def decays(self, steps: int) -> tuple[float, ...]:
        """The share of the former average that each step keeps.

        Parameters
        ----------
        steps : int
            The length of the run.

        Returns
        -------
        tuple of float
            One share for each step.

        Examples
        --------
        >>> from lastiterate import TailAverage
        >>> TailAverage(last=2).decays(3)
        (0.0, 0.0, 0.5)
        """
        before = steps - self.last
        return tuple(0.0 if k <= before else 1.0 - 1.0 / (k - before) for k in range(1, steps + 1))


Average = ExponentialAverage | TailAverage


def momentum_schedule(value: object, steps: int) -> Schedule:
    """Momentum in [0, 1), one number or one for each step, then none of them 0."""
    found = schedule("momentum", value, steps, positive=None)
    each = found if isinstance(found, tuple) else (found,)
    for step, one in enumerate(each):
        name = "momentum" if len(each) == 1 else f"momentum[{step}]"
        if not one < 1.0:
            raise InvalidParameter(name, one, must_be="in [0, 1)")
        if len(each) > 1 and not one > 0.0:
            raise InvalidParameter(
                name, one, must_be="above 0 where any is: a step without momentum keeps the buffer"
            )
    return found


def checked_dampening(value: object, *, momentum: Schedule, nesterov: bool) -> float:
    """Dampening in [0, 1), and 0 without momentum or in Nesterov's form."""
    found = _check.number("dampening", value, at_least=0.0, below=1.0)
    if found > 0.0 and (nesterov or momentum == 0.0):
        raise InvalidParameter("dampening", found, must_be="0 without momentum or with nesterov")
    return found


def checked_nesterov(value: object, *, momentum: Schedule) -> bool:
    """Whether momentum has Nesterov's form, for which there must be some."""
    if not isinstance(value, bool):
        raise InvalidType("nesterov", value, must_be="True or False")
    if value and momentum == 0.0:
        raise InvalidParameter("nesterov", value, must_be="False without momentum")
    return value


def checked_resets(value: object, steps: int, *, momentum: Schedule) -> tuple[int, ...]:
    """The steps, from 2, that begin with an empty buffer, in order."""
    if not isinstance(value, Iterable) or isinstance(value, (str, bytes)):
        raise InvalidType("buffer_resets", value, must_be="a sequence of steps")
    found = tuple(_check.count("buffer_resets", step, at_least=2, at_most=steps) for step in value)
    if found and momentum == 0.0:
        raise InvalidParameter("buffer_resets", found, must_be="empty without momentum")
    if list(found) != sorted(set(found)):
        raise InvalidParameter("buffer_resets", found, must_be="increasing")
    return found


def checked_average(value: object, steps: int) -> Average | None:
    """The average that is released, or None for the last iterate, which is an average, too."""
    if value is None:
        return None
    if not isinstance(value, (ExponentialAverage, TailAverage)):
        must_be = "ExponentialAverage, TailAverage or None"
        raise InvalidType("average", value, must_be=must_be)
    if isinstance(value, TailAverage):
        if not value.last <= steps:
            raise InvalidParameter("average.last", value.last, must_be=f"at most steps = {steps}")
        return value if value.last > 1 else None
    return value if value.decay > 0.0 else None


def has_empty_buffers(run: TrainingRun) -> bool:
    """Whether momentum changes nothing: the buffer is empty before every step.

    Such a step stores its gradient, undamped, and goes along it; Nesterov's form makes it longer.
    """
    emptied = 1 + len(run.buffer_resets)
    return run.momentum != 0.0 and not run.nesterov and emptied == run.steps


def averages_one_iterate(run: TrainingRun) -> bool:
    """Whether the average that is released is a copy of the only iterate.

    The run still has it, since the same run of more steps averages them.
    """
    one = run.average
    return isinstance(one, ExponentialAverage) and one.copies_first and run.steps == 1


def require_plain_steps(run: TrainingRun, for_: str) -> None:
    """None for plain steps whose last iterate is published; otherwise `InvalidParameter`."""
    if not run.has_plain_steps:
        name = "momentum" if run.average is None else "average"
        must_be = f"left out: {for_} is for plain gradient steps and their last iterate"
        raise InvalidParameter(name, getattr(run, name), must_be=must_be)
