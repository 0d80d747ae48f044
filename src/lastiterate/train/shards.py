"""Examples that lie elsewhere: all that a training may ask of them, and all that leaves them.

Batches, noise, steps and projections are drawn and taken where the loop runs, once a step.
Wherever the rows are, only sums over examples are computed there, and the same question has the
same answer: one that is asked again, by whatever failure, changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lastiterate._numerics.rounding import Array
from lastiterate.run.batch_rules.base import BatchRule
from lastiterate.train.centring import Centre
from lastiterate.train.data import Examples
from lastiterate.train.noise import Randomness
from lastiterate.train.objective import Objective

GradientSum = Callable[[Array], Array]  # of one batch, at given parameters, without the penalty


class Shards(Protocol):
    """Examples with the same public facts as `Examples`, of which only sums are to be had."""

    def __len__(self) -> int: ...

    @property
    def features(self) -> int: ...

    @property
    def feature_bound(self) -> float: ...

    @property
    def intercept(self) -> float: ...

    @property
    def offset(self) -> Array | None: ...

    @property
    def centre(self) -> Centre | None: ...

    @property
    def parameters(self) -> int: ...

    @property
    def radius(self) -> float: ...

    @property
    def is_mapped(self) -> bool: ...

    @property
    def is_sparse(self) -> bool: ...

    @property
    def precision(self) -> str: ...

    def around(self, centre: Centre) -> Shards:
        """The examples, with rows counted around this centre."""
        ...

    def in_units(self) -> NDArray[np.int64]:
        """The result of `centring.sum_in_units` for the rows."""
        ...

    def far_rows(self) -> tuple[int, int]:
        """The result of `norms.far_rows` for the rows."""
        ...

    def batches(
        self, rule: BatchRule, objective: Objective, chance: Randomness
    ) -> Iterator[GradientSum]:
        """The endless sequence of batches that the rule makes of them, drawn as it is asked for."""
        ...


AnyExamples = Examples | Shards
