"""Tensors with Gaussian noise for other torch code, exactly rounded on a grid."""

from __future__ import annotations

import numpy as np
import torch

from lastiterate import _check
from lastiterate.errors import InvalidType
from lastiterate.train.noise import Randomness
from lastiterate.train.release_noise import noisy

_STDS = 1e-250, 1e250  # so that no unit is subnormal, and no value overflows
_FARTHEST = 2.0**50  # standard deviations


def add_secure_noise(values: torch.Tensor, std: float, *, bound: float) -> torch.Tensor:
    """The values with independent Gaussian noise, from AES-256 keyed by the operating system.

    Noise alone cannot be handed out safely: added to floats, it leaves bits that tell what it was
    added to.  So values are rounded to a grid 2^-40 as fine as the noise, and the floor of a
    Gaussian number on that grid is added, exactly.  (The grid is coarser where `bound` is more than
    2^21 times `std`.)  Rounding moves each value by at most 2^-40 of `std` and 2^-52 of `bound`,
    which your account of the noise should include.  The result is rounded to the type of the
    values, which is post-processing.

    Parameters
    ----------
    values : torch.Tensor
        Floating-point numbers.  They must be computed before the call; what rounds them is not
        accounted for.
    std : float
        The standard deviation.
    bound : float
        A publicly known bound on the absolute values; larger ones count as it.

    Returns
    -------
    torch.Tensor
        Of the same shape, type and device.

    Raises
    ------
    InvalidParameter
        If `std` is not in [1e-250, 1e250], or `bound` not in (0, 2^50 std].

    Examples
    --------
    >>> noisy_sum = add_secure_noise(torch.zeros(200, 100), std=3.0, bound=1.0)
    >>> noisy_sum.shape, 2.9 < float(noisy_sum.std()) < 3.1
    (torch.Size([200, 100]), True)
    """
    if not isinstance(values, torch.Tensor) or not values.is_floating_point():
        raise InvalidType("values", must_be="a tensor of floats", found=type(values).__name__)
    scale = _check.number("std", std, at_least=_STDS[0], at_most=_STDS[1])
    largest = _check.number("bound", bound, above=0.0, at_most=_FARTHEST * scale)
    known = values.detach().to(device="cpu", dtype=torch.float64).numpy()
    clipped = np.nan_to_num(np.clip(known, -largest, largest), nan=0.0)
    found = noisy(clipped, scale, Randomness(), largest=largest)
    return torch.from_numpy(found).to(device=values.device, dtype=values.dtype)
