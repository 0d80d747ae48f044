"""A step of noisy descent in one pass, rounded as numpy does in several."""

from numba import njit

from lastiterate._numerics.arrays import Array
from lastiterate.train.compiled.elementary import STEP_BY_STEP


@njit(**STEP_BY_STEP)
def step(
    parameters: Array,
    gradient_sum: Array,
    normal: Array,
    batch_size: int,
    regulariser: float,
    noise: float,
    step_size: float,
) -> None:
    """Change the parameters in place."""
    for i in range(parameters.shape[0]):
        for k in range(parameters.shape[1]):
            old = parameters[i, k]
            direction = (gradient_sum[i, k] / batch_size + regulariser * old) + noise * normal[i, k]
            parameters[i, k] = old - direction * step_size
