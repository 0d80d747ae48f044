"""The set onto which every iterate is projected."""

from dataclasses import dataclass

from lastiterate import _check


@dataclass(frozen=True)
class Unbounded:
    """No projection: iterates may be anywhere.

    Examples
    --------
    >>> from lastiterate import Unbounded
    >>> Unbounded()
    Unbounded()
    """


@dataclass(frozen=True)
class Ball:
    """Projection, after every step, onto a closed convex set of this diameter.

    The name says the usual case; the guarantee needs convexity and the diameter only.

    Parameters
    ----------
    diameter : float
        The largest distance of two points of the set.

    Examples
    --------
    >>> from lastiterate import Ball
    >>> Ball(diameter=2.0)
    Ball(diameter=2.0)
    """

    diameter: float

    def __post_init__(self) -> None:
        value = _check.number("diameter", self.diameter, above=0.0)
        object.__setattr__(self, "diameter", value)


Domain = Unbounded | Ball
