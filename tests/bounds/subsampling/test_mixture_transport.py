"""A mixture that stays hidden promises no more than its weights allow."""

import pytest

from lastiterate.bounds.subsampling.amplified_tail import MixtureTransportProfile


def test_every_deficit_of_the_weights_is_charged():
    """Also what they lack beyond `lost`, as rounding may leave them."""
    profile = MixtureTransportProfile([1.0 - 1.9e-9], [0.0], lost=1e-9)
    assert profile.delta(5.0) >= 1.9e-9 * (1 - 1e-6)
    assert profile.epsilon(1.5e-9) == pytest.approx(float("inf"))
