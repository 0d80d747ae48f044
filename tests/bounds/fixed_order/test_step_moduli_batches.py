"""A batch of random size has no share of curvature that is known."""

import numpy as np
import pytest

import lastiterate as li
from lastiterate.bounds.fixed_order import nonconvex as step_moduli


def test_a_smaller_share_of_curvature_is_refused_where_batches_vary_in_size():
    run = li.TrainingRun(
        loss=li.Loss(smoothness=3.0, lipschitz=0.5), sensitivity=1.0, steps=4, step_size=1.0,
        noise_std=1.0, batches=li.PoissonSampled(20, 4),
    )  # fmt: skip
    step_moduli.moduli(run, np.empty(0, dtype=int), 4)
    with pytest.raises(AssertionError, match="PoissonSampled"):
        step_moduli.moduli(run, np.arange(4), 4)
