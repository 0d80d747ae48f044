"""Gaussian noise for other torch code, from a cryptographically secure generator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from lastiterate import _check
from lastiterate.train.noise import Randomness


def secure_normal(
    shape: int | Sequence[int], std: float = 1.0, device: Any = None, dtype: Any = None
) -> torch.Tensor:
    """Independent normal numbers, from AES-256 in counter mode keyed by the operating system.

    They are drawn in float64 and rounded to `dtype`.  `lastiterate.train.noise` states the limits
    of floating-point noise.

    Parameters
    ----------
    shape : int or sequence of int
        The shape of the tensor.
    std : float
        The standard deviation.
    device, dtype : optional
        The device and the type of the tensor; torch's defaults if left out.

    Returns
    -------
    torch.Tensor
        The noise.

    Raises
    ------
    InvalidParameter
        If `std` or a size is negative.

    Examples
    --------
    >>> noise = secure_normal((200, 100), std=3.0)
    >>> noise.shape, 2.9 < float(noise.std()) < 3.1
    (torch.Size([200, 100]), True)
    """
    scale = _check.number("std", std, at_least=0.0)
    sizes = [shape] if isinstance(shape, int) else list(shape)
    counts = tuple(_check.count("shape", size, at_least=0) for size in sizes)
    drawn = torch.from_numpy(scale * 2.0**-40 * Randomness().rounded_normals(counts, 40))
    return drawn.to(device=device, dtype=torch.get_default_dtype() if dtype is None else dtype)
