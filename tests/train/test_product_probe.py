"""Products that no bound on rounding holds for are refused, others are not."""

import numpy as np
import pytest

from lastiterate.errors import NumericalFailure
from lastiterate.train import product_probe
from lastiterate.train.product_probe import check_products, padded

SHAPES = [(1, 1, 1), (8, 5, 1), (64, 200, 10), (256, 33, 3)]


@pytest.fixture(autouse=True)
def anew():
    check_products.cache_clear()
    yield
    check_products.cache_clear()


@pytest.mark.parametrize("shape", SHAPES)
def test_this_machine_is_sound(shape):
    check_products(*shape)


def strassen(a, b):
    """One level, on matrices padded to even shapes."""
    if min(*a.shape, *b.shape) < 2:
        return np.asarray(a) @ np.asarray(b)
    rows, inner, columns = a.shape[0], a.shape[1], b.shape[1]
    half = [-(-n // 2) for n in (rows, inner, columns)]
    x, y = np.zeros((2 * half[0], 2 * half[1])), np.zeros((2 * half[1], 2 * half[2]))
    x[:rows, :inner], y[:inner, :columns] = a, b
    (p, q, r), m = half, np.matmul
    a11, a12, a21, a22 = x[:p, :q], x[:p, q:], x[p:, :q], x[p:, q:]
    b11, b12, b21, b22 = y[:q, :r], y[:q, r:], y[q:, :r], y[q:, r:]
    m1, m2 = m(a11 + a22, b11 + b22), m(a21 + a22, b11)
    m3, m4 = m(a11, b12 - b22), m(a22, b21 - b11)
    m5, m6 = m(a11 + a12, b22), m(a21 - a11, b11 + b12)
    m7 = m(a12 - a22, b21 + b22)
    top, bottom = [m1 + m4 - m5 + m7, m3 + m5], [m2 + m4, m1 - m2 + m3 + m6]
    return np.block([top, bottom])[:rows, :columns]


def in_float32(a, b):
    return (np.float32(a) @ np.float32(b)).astype(np.float64)


def flushed(a, b):
    found = np.asarray(a) @ np.asarray(b)
    return np.where(np.abs(found) < 2.0**-1022, 0.0, found)


@pytest.mark.parametrize("method", [strassen, in_float32, flushed])
def test_other_products_are_refused(monkeypatch, method):
    class Array(np.ndarray):
        def __matmul__(self, other):
            return method(np.asarray(self), np.asarray(other))

    usual, full = np.ndarray.astype, np.full
    monkeypatch.setattr(
        product_probe.np, "full", lambda *args: full(*args).view(Array), raising=True
    )
    ints = np.random.default_rng

    class Drawn:
        def __init__(self, seed):
            self.rng = ints(seed)

        def integers(self, *args, **kwargs):
            return self.rng.integers(*args, **kwargs).view(Array)

    monkeypatch.setattr(product_probe.np.random, "default_rng", Drawn)
    with pytest.raises(NumericalFailure, match="arithmetic='fast'"):
        check_products(64, 200, 10)
    assert usual is np.ndarray.astype


def test_few_shapes_are_probed():
    assert [padded(n) for n in (0, 1, 2, 3, 236, 256, 257)] == [1, 1, 2, 4, 256, 256, 512]
