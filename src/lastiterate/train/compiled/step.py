"""A step of noisy descent on the grid in one pass, rounded as numpy does in several."""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from lastiterate._numerics.rounding import Array
from lastiterate.train.compiled.elementary import STEP_BY_STEP


@njit(**STEP_BY_STEP)
def step(
    whole: NDArray[np.int64],
    parameters: Array,
    gradient_sum: Array,
    noise: NDArray[np.int64],
    batch_size: int,
    regulariser: float,
    per_unit: float,
    unit: float,
) -> None:
    """Change the whole numbers and the parameters in place; `per_unit` is step size over unit."""
    for i in range(whole.shape[0]):
        for k in range(whole.shape[1]):
            direction = gradient_sum[i, k] / batch_size + regulariser * parameters[i, k]
            whole[i, k] += noise[i, k] - np.int64(np.rint(direction * per_unit))
            parameters[i, k] = unit * whole[i, k]
