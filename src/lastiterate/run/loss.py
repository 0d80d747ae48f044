"""The known properties of the loss of every single example."""

from dataclasses import dataclass

import numpy as np

from lastiterate import _check
from lastiterate.errors import InvalidParameter, InvalidType


@dataclass(frozen=True, kw_only=True)
class Loss:
    """Properties shared by the losses of all admissible examples.

    Parameters
    ----------
    smoothness : float, optional
        M: without the regulariser every gradient is (M - regulariser)-Lipschitz, so that with
        it it is M-Lipschitz.  None if unknown.
    strong_convexity : float
        m: every loss minus m|x|^2/2 is convex, regulariser included.
    convex : bool
        Whether every loss is convex.
    holder : (float, float), optional
        (H, order) with |grad f(x) - grad f(y)| <= H |x - y|^order, regulariser *not*
        included, order in (0, 1].
    lipschitz : float, optional
        Every gradient, regulariser *not* included, has norm at most this.
    regulariser : float
        Curvature of a quadratic penalty shared by all examples and added, unclipped,
        in every step.  It is part of `smoothness` and `strong_convexity`.

    Examples
    --------
    >>> Loss(smoothness=32.502, strong_convexity=0.002)
    Loss(smoothness=32.502, strong_convexity=0.002, convex=True)
    """

    smoothness: float | None = None
    strong_convexity: float = 0.0
    convex: bool = True
    holder: tuple[float, float] | None = None
    lipschitz: float | None = None
    regulariser: float = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.convex, (bool, np.bool_)):
            raise InvalidType("convex", self.convex, must_be="True or False")
        self._set("convex", bool(self.convex))
        regulariser = _check.number("regulariser", self.regulariser, at_least=0.0)
        strong = _check.number("strong_convexity", self.strong_convexity, at_least=0.0)
        if self.convex:
            strong = max(strong, regulariser)
        elif strong > 0.0:
            raise InvalidParameter(
                "strong_convexity",
                self.strong_convexity,
                must_be="0 when convex=False (a shared penalty goes into regulariser)",
            )
        self._set("regulariser", regulariser)
        self._set("strong_convexity", strong)
        if self.smoothness is not None:
            smooth = _check.number("smoothness", self.smoothness, at_least=0.0)
            least = max(strong, regulariser)
            if not smooth >= least:
                name = "strong_convexity" if strong >= regulariser else "regulariser"
                raise InvalidParameter(
                    "smoothness", smooth, must_be=f"at least {name} = {least!r}, or None"
                )
            self._set("smoothness", smooth)
        if self.lipschitz is not None:
            self._set("lipschitz", _check.number("lipschitz", self.lipschitz, above=0.0))
        if self.holder is not None:
            self._set("holder", _holder(self.holder))

    def __repr__(self) -> str:
        shown = [
            f"smoothness={self.smoothness!r}",
            f"strong_convexity={self.strong_convexity!r}",
            f"convex={self.convex!r}",
        ]
        shown += [f"holder={self.holder!r}"] if self.holder else []
        shown += [f"lipschitz={self.lipschitz!r}"] if self.lipschitz is not None else []
        shown += [f"regulariser={self.regulariser!r}"] if self.regulariser else []
        return f"Loss({', '.join(shown)})"

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)


def _holder(pair: object) -> tuple[float, float]:
    if not isinstance(pair, (tuple, list)) or len(pair) != 2:
        raise InvalidType("holder", pair, must_be="a pair (constant, order)")
    constant = _check.number("holder[0]", pair[0], at_least=0.0)
    order = _check.number("holder[1]", pair[1], above=0.0, at_most=1.0)
    return constant, order
