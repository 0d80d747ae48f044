r"""One noisy iteration on the line, on two adjacent data sets.

.. math:: x_k = \mathrm{clip}(\phi_k(x_{k-1}) + N(0, n_k^2))

where :math:`\phi_k` is `still` when the example in question is not in the batch, and otherwise one
of the two maps of `takes`, according to the world.  Everything is in parameter space: slopes are
1 - eta f'', shifts are eta L/b, noise is eta sigma.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from lastiterate import _check
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.lower_bounds.line_maps import IDENTITY, PiecewiseLinear
from lastiterate.lower_bounds.participation import Always, Participation

Interval = tuple[float, float]


@dataclass(frozen=True)
class Step:
    """One step: the maps, the noise and the interval projected on, if any."""

    still: PiecewiseLinear
    takes: tuple[PiecewiseLinear, PiecewiseLinear]
    noise_std: float
    domain: Interval | None = None

    def __post_init__(self) -> None:
        _check.number("noise_std", self.noise_std, above=0.0)
        if self.domain is not None:
            low, high = self.domain
            _check.number("domain[0]", low)
            _check.number("domain[1]", high, above=low)

    @property
    def maps(self) -> tuple[PiecewiseLinear, ...]:
        return (self.still, *self.takes)


@dataclass(frozen=True)
class Pair:
    """A start, steps, when the example takes part, and the noise on release.

    After the release noise the domain of the last step is projected on once more.

    Examples
    --------
    >>> from lastiterate.audit import exact
    >>> from lastiterate.lower_bounds.line_maps import linear
    >>> step = Step(linear(0.9), (linear(0.9), linear(0.9, offset=0.5)), noise_std=1.0)
    >>> exact.curve(Pair(0.0, [step] * 20)).epsilon(1e-5).lower
    9.5614...
    """

    start: float
    steps: tuple[Step, ...]
    participation: Participation = field(default_factory=Always)
    release_noise_std: float = 0.0

    def __init__(
        self,
        start: float,
        steps: Iterable[Step],
        participation: Participation | None = None,
        release_noise_std: float = 0.0,
    ) -> None:
        listed = tuple(steps)
        if not listed or not all(isinstance(step, Step) for step in listed):
            raise InvalidType("steps", listed, must_be="one or more Steps")
        chosen = Always() if participation is None else participation
        if not isinstance(chosen, Participation):
            raise InvalidType("participation", chosen, must_be="a Participation")
        noise = _check.number("release_noise_std", release_noise_std, at_least=0.0)
        object.__setattr__(self, "start", _check.number("start", start))
        object.__setattr__(self, "steps", listed)
        object.__setattr__(self, "participation", chosen)
        object.__setattr__(self, "release_noise_std", noise)
        domain = listed[-1].domain
        if domain is not None and not domain[0] <= self.start <= domain[1]:
            raise InvalidParameter("start", start, must_be=f"in the domain {domain}")

    @property
    def noisy_steps(self) -> tuple[Step, ...]:
        """The steps, the release among them as one that sees nobody."""
        if self.release_noise_std == 0.0:
            return self.steps
        domain = self.steps[-1].domain
        release = Step(IDENTITY, (IDENTITY, IDENTITY), self.release_noise_std, domain)
        return (*self.steps, release)
