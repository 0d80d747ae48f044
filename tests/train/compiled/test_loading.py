"""Numba is used where it pays, and not missed where it is not."""

import sys

import numpy as np
import pytest
from scipy.special import expit

from lastiterate.train import compiled
from lastiterate.train.compiled import loops as logistic
from lastiterate.train.objectives import Logistic


@pytest.fixture
def forgotten():
    """Nothing loaded before, nor remembered after."""
    compiled._loaded.cache_clear()
    yield
    compiled._loaded.cache_clear()


def test_little_work_loads_nothing():
    assert compiled.compiled("envelope", 1_023) is None
    assert compiled.compiled("envelope", 1_024) is not None


def test_without_numba_there_is_none(forgotten, monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    for name in ("envelope", "elementary", "normal", "logistic", "outputs", "step"):
        monkeypatch.delitem(sys.modules, f"lastiterate.train.compiled.{name}", raising=False)
    assert compiled.compiled("envelope", 1_000_000) is None


class TestLogistic:
    U = np.concatenate([np.linspace(-5, 5, 2_000), [0.0, -1e4, 1e4, -np.inf, np.inf, -745.0]])

    @pytest.mark.parametrize("kind", [np.intp, np.float64])
    @pytest.mark.parametrize("label", [0, 1])
    @pytest.mark.parametrize("clip", [0.25, 1.0])
    def test_residuals(self, clip, label, kind):
        y = np.full(self.U.size, label, kind)
        found = Logistic(clip=clip).residual(self.U[np.newaxis], y)
        np.testing.assert_allclose(
            found[0], np.clip(expit(self.U) - label, -clip, clip), atol=4e-16
        )

    def test_nan_stays(self):
        found = logistic.residuals(np.array([[np.nan, 1.0]]), np.zeros(2), 0.25)
        assert np.isnan(found[0, 0])
        assert found[0, 1] == 0.25
