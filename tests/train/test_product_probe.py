"""Products that no bound on rounding holds for are refused, others are not."""

import ctypes
import ctypes.util
import platform
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from types import ModuleType

import numpy as np
import pytest
from scipy import sparse

from lastiterate.errors import NumericalFailure
from lastiterate.train import product_probe
from lastiterate.train.arithmetic import gamma
from lastiterate.train.product_probe import (
    check_products,
    check_sparse_products,
    check_thin_products,
    check_thread,
    padded,
    unrolled,
)

SHAPES = [(1, 1, 1), (8, 5, 1), (64, 200, 10), (256, 33, 3)]


@pytest.fixture(autouse=True)
def anew():
    for check in (check_products, check_sparse_products):
        check.cache_clear()
    yield
    for check in (check_products, check_sparse_products):
        check.cache_clear()


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

    full = np.full
    monkeypatch.setattr(product_probe.np, "full", lambda *args: full(*args).view(Array))
    ints = np.random.default_rng

    class Drawn:
        def __init__(self, seed):
            self.rng = ints(seed)

        def integers(self, *args, **kwargs):
            return self.rng.integers(*args, **kwargs).view(Array)

    monkeypatch.setattr(product_probe.np.random, "default_rng", Drawn)
    with pytest.raises(NumericalFailure, match="arithmetic='fast'"):
        check_products(64, 200, 10)


KINDS = [sparse.csr_array, sparse.csr_matrix, sparse.csc_array]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("outputs", [1, 2, 10])
def test_sparse_products_of_this_machine_are_sound(kind, outputs):
    check_sparse_products(kind, outputs)


@pytest.mark.parametrize("method", [strassen, in_float32])
@pytest.mark.parametrize("transposed", [False, True])
def test_other_sparse_products_are_refused(method, transposed):
    class Other:
        """Sparse rows whose products, or those of their transpose, are computed otherwise."""

        def __init__(self, rows, *, wrong=not transposed):
            self.rows, self.wrong = rows, wrong

        @property
        def T(self):
            return Other(self.rows.T, wrong=not self.wrong)

        def __matmul__(self, other):
            return method(self.rows, other) if self.wrong else self.rows @ other

    with pytest.raises(NumericalFailure, match="another sparse library"):
        check_sparse_products(Other, 10)


@pytest.mark.parametrize("kind", KINDS)
def test_sums_of_sparse_products_are_within_the_bound_of_any_order(kind):
    """Against exact sums of fractions, where nearly everything cancels."""
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(40, 60)) * 10.0 ** rng.integers(-9, 9, size=(40, 60))
    dense[rng.random(dense.shape) < 0.5] = 0.0
    dense[:, 30:] = -dense[:, :30] * (1 + 1e-14)
    other = np.repeat(rng.normal(size=(30, 3)), 2, axis=0).reshape(30, 2, 3)
    other = np.concatenate([other[:, 0], other[:, 1]])
    left = rng.normal(size=(3, 40))
    for found, a, b in (
        (kind(dense) @ other, dense, other),
        ((kind(dense).T @ left.T).T, left, dense),
    ):
        for i in range(a.shape[0]):
            for j in range(b.shape[1]):
                terms = [Fraction(x) * Fraction(y) for x, y in zip(a[i], b[:, j], strict=True)]
                error = abs(Fraction(float(found[i, j])) - sum(terms))
                assert error <= Fraction(gamma(len(terms))) * sum(map(abs, terms))


def test_few_shapes_are_probed():
    assert [padded(n) for n in (0, 1, 2, 3, 236, 256, 257)] == [1, 1, 2, 4, 256, 256, 512]
    assert [unrolled(n) for n in (1, 2, 4, 5, 10)] == [1, 4, 4, 8, 12]


class TestThreads:
    @pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="numbers of modes")
    @pytest.mark.parametrize("mode", [0x400, 0x800, 0xC00])
    def test_one_that_rounds_otherwise_is_refused_though_another_was_sound(self, mode):
        check_thread()
        c = ctypes.CDLL(ctypes.util.find_library("m"))

        def otherwise():
            assert c.fesetround(mode) == 0
            with pytest.raises(NumericalFailure):
                check_thread()
            c.fesetround(0)
            check_thread()
            return True

        with ThreadPoolExecutor(1) as threads:
            assert threads.submit(otherwise).result()

    def test_one_without_subnormal_numbers_is_refused(self, monkeypatch):
        monkeypatch.setattr(product_probe, "_halves_subnormals", lambda: False)
        with ThreadPoolExecutor(1) as threads, pytest.raises(NumericalFailure):
            threads.submit(check_thread).result()


class TestThinProducts:
    def module(self, product):
        def outputs(rows, factors, shifts, mean, weights, constants):
            return product(rows.astype(np.float64), weights.T).T + constants[:, np.newaxis]

        def sums(rows, factors, shifts, mean, residual, out):
            out[:, : rows.shape[1]] = product(residual, rows.astype(np.float64))

        module = ModuleType("products")
        module.thin_outputs, module.sums = outputs, sums
        return module

    @pytest.fixture(autouse=True)
    def anew(self):
        check_thin_products.cache_clear()

    @pytest.mark.parametrize("more", [False, True])
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("outputs", [1, 3, 10])
    def test_of_the_library_are_sound(self, outputs, dtype, more):
        thin = pytest.importorskip("lastiterate.train.compiled.loops")
        for module in (thin, self.module(np.matmul)):
            check_thin_products(module, np.dtype(dtype), outputs, more=more)

    @pytest.mark.parametrize("method", [strassen, in_float32])
    def test_others_are_refused(self, method):
        with pytest.raises(NumericalFailure, match="another Numba"):
            check_thin_products(self.module(method), np.dtype(np.float32), 10, more=True)
