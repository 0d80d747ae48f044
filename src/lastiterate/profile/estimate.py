"""An approximation that may err either way."""

from dataclasses import dataclass

from lastiterate import _check


@dataclass(frozen=True)
class Estimate:
    """mu of the Gaussian curve that a central limit theorem suggests.

    Neither an upper nor a lower bound: there is no `epsilon` to take for a guarantee.
    """

    mu: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "mu", _check.number("mu", self.mu, at_least=0.0, infinite=True))
