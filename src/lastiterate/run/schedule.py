"""One number for all steps, or one for each."""

from collections.abc import Iterable

from lastiterate import _check
from lastiterate.errors import InvalidParameter
from lastiterate.run.batch_rules.rules import FixedOrder

Schedule = float | tuple[float, ...]


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
