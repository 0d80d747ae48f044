"""The interface of objectives: all that runs, trainers, audits and certificates ask of one."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from lastiterate._numerics.rounding import Array, at_least
from lastiterate.run.loss import Loss

ULPS = 8

OBJECTIVES: dict[str, type[Objective]] = {}


@dataclass(frozen=True, kw_only=True)
class Objective(ABC):
    """A convex loss of the outputs of a linear model.

    `residual_bound` is c, `curvature` is h, `residual_error` is how far a computed residual may be
    from the exact one of the same outputs, and `loss_at_start` bounds the loss at outputs of 0.

    An objective is a frozen dataclass of keywords that states, as class attributes,

    ==============  ==========================================================================
    output_unit     the noise of an output that a run aims for: 1 in a logit, and a tenth of
                    the largest target otherwise
    step_share      the step that a run takes, as a share of the longest, 2/smoothness
    few_rows        rows a batch below which steps fall; 32 unless stated
    least_unclipped the least clip at which no residual is clipped; inf unless stated
    ==============  ==========================================================================

    and implements the abstract methods.  One that lacks any of this cannot be defined or made.
    By its name, that of the class, certificates find it in `OBJECTIVES`.
    """

    clip: float

    output_unit: ClassVar[float]
    step_share: ClassVar[float]
    few_rows: ClassVar[int] = 32
    least_unclipped: ClassVar[float] = math.inf

    def __init_subclass__(cls, *, abstract: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if abstract:
            return
        missing = [one for one in ("output_unit", "step_share") if not hasattr(cls, one)]
        if missing:
            raise TypeError(f"objective {cls.__name__} does not state {', '.join(missing)}")
        known = OBJECTIVES.get(cls.__name__, cls)
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"there is an objective called {cls.__name__} already")
        OBJECTIVES[cls.__name__] = cls

    @property
    def outputs(self) -> int:
        """How many outputs the model has."""
        return 1

    @property
    def residual_bound(self) -> float:
        """The largest norm of a residual."""
        return self.clip

    @property
    @abstractmethod
    def residual_error(self) -> float:
        """How far a computed residual may be from the exact one of the same outputs."""

    @property
    @abstractmethod
    def curvature(self) -> float:
        """The Lipschitz constant of the residual."""

    @abstractmethod
    def loss_at_start(self, offset: float) -> float:
        """A bound on the loss, whose infimum is 0, at outputs of norm `offset`; inf if none is."""

    @abstractmethod
    def residual(self, u: Array, y: NDArray[Any]) -> Array:
        """The gradient of the loss in the outputs `u`."""

    def slopes(self, u: Array, y: NDArray[Any]) -> Array:
        """The slope of the residual in a single output, in [0, h]; for intervals only."""
        raise NotImplementedError

    @abstractmethod
    def admits(self, y: NDArray[Any]) -> bool:
        """Whether these are targets that the constants hold for."""

    @property
    @abstractmethod
    def exposing_targets(self) -> NDArray[Any]:
        """Two targets whose residuals are as far apart as the clip allows, near the start."""

    def as_record(self) -> dict[str, Any]:
        """The certificate's record of the objective: its loss and parameters."""
        return {"loss": type(self).__name__} | asdict(self)

    def loss(self, *, radius: float, l2: float) -> Loss:
        """Loss constants for bounds, for rows (intercept's constant included) within `radius`."""
        smoothness = at_least(self.curvature * radius * radius + l2, ulps=ULPS)
        return Loss(smoothness=smoothness, strong_convexity=l2, regulariser=l2)

    def gradient_bound(self, *, radius: float) -> float:
        """The largest norm of an example's gradient, the penalty's left out."""
        return at_least(self.residual_bound * radius, ulps=ULPS)

    def sensitivity(self, *, radius: float, adjacency: str) -> float:
        """How far two examples' gradients (or one and 0, if left out) may be apart."""
        return self.gradient_bound(radius=radius) * (2.0 if adjacency == "replace" else 1.0)


def are_labels(y: NDArray[Any], classes: int) -> bool:
    """Whether these are whole numbers in 0, .., classes - 1."""
    return y.dtype.kind in "fiub" and bool(np.isin(y, np.arange(classes)).all())
