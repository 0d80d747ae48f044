"""Products with rows as they are stored: the sums that exact arithmetic has, of rows that count."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import lastiterate as li
from lastiterate.train import noisy_descent as gradient_sum
from lastiterate.train.centring import Centre
from lastiterate.train.compiled import compiled
from lastiterate.train.compiled import loops as thin_products
from lastiterate.train.data import bounded
from lastiterate.train.noise import Randomness, SeededBits
from lastiterate.train.noisy_descent import noisy_descent
from lastiterate.train.objectives import Logistic, Softmax
from lastiterate.train.product_probe import check_thin_products

from ..problems import run_of
from ..test_step_error import worst

UNIT_ROUNDOFF = 2.0**-53
# Fewer and more rows, columns and outputs than a tile has, and none.
SHAPES = [(1, 1, 1), (3, 7, 4), (4, 200, 5), (5, 201, 6), (9, 407, 11), (0, 3, 2), (6, 0, 2)]


def drawn(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    count, width, outputs = shape
    rows = (rng.normal(size=(count, width)) * 10.0 ** rng.integers(-9, 9)).astype(dtype)
    factors, shifts = rng.random((2, count))
    return rows, factors, shifts, rng.normal(size=width), rng.normal(size=(outputs, width))


def as_counted(rows, factors, shifts, mean):
    found = rows.astype(np.float64) * factors[:, np.newaxis]
    return found if mean is None else found - np.outer(shifts, mean)


def exact(left, right):
    """Products of rows of both, and sums of absolute products."""
    ends = []
    for size in (lambda x: x, abs):
        ends.append(
            [
                [sum((size(Fraction(a) * Fraction(b)) for a, b in zip(x, y, strict=True)),
                     Fraction(0)) for y in right.tolist()]
                for x in left.tolist()
            ]
        )  # fmt: skip
    return ends


def assert_within(found, left, right, additions):
    products, sizes = exact(left, right)
    share = Fraction(1.01 * additions * UNIT_ROUNDOFF)
    for i, row in enumerate(found.tolist()):
        for k, one in enumerate(row):
            assert abs(Fraction(one) - products[i][k]) <= share * sizes[i][k]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("centred", [False, True])
class TestAgainstFractions:
    def test_outputs(self, shape, dtype, centred):
        rows, factors, shifts, mean, weights = drawn(shape, dtype)
        shifts, mean = (shifts, mean) if centred else (None, None)
        constants = np.zeros(shape[2])
        found = thin_products.thin_outputs(rows, factors, shifts, mean, weights, constants)
        counted = as_counted(rows, factors, shifts, mean)
        assert_within(found, weights, counted, additions=shape[1])

    def test_sums(self, shape, dtype, centred):
        rows, factors, shifts, mean, _ = drawn(shape, dtype)
        shifts, mean = (shifts, mean) if centred else (None, None)
        residual = np.random.default_rng(1).normal(size=(shape[2], shape[0]))
        found = np.full((shape[2], shape[1] + 1), 7.0)
        thin_products.sums(rows, factors, shifts, mean, residual, found)
        counted = as_counted(rows, factors, shifts, mean)
        assert (found[:, -1] == 7.0).all()
        assert_within(found[:, :-1], residual, counted.T, additions=shape[0])


def test_constants_are_added():
    rows, factors, _, _, weights = drawn((5, 3, 2), np.float64)
    constants = np.array([1.0, -2.0])
    found = thin_products.thin_outputs(rows, factors, None, None, np.zeros_like(weights), constants)
    np.testing.assert_array_equal(found, np.repeat(constants[:, np.newaxis], 5, axis=1))


def test_a_huge_row_changes_no_other():
    rows, factors, shifts, mean, weights = drawn((9, 407, 11), np.float64)
    constants = np.zeros(11)
    before = thin_products.thin_outputs(rows, factors, shifts, mean, weights, constants)
    rows[4] *= 2.0**60
    after = thin_products.thin_outputs(rows, factors, shifts, mean, weights, constants)
    others = np.arange(9) != 4
    np.testing.assert_array_equal(before[:, others], after[:, others])


@pytest.mark.parametrize("objective", [Logistic(), Softmax(classes=3), Softmax(classes=6)])
@pytest.mark.parametrize("centred", [False, True])
class TestInTraining:
    def data(self, objective, centred):
        rng = np.random.default_rng(3)
        rows = rng.normal(size=(12, 30)).astype(np.float32)
        labels = np.arange(12) % max(objective.outputs, 2)
        silent = np.arange(12) == 5
        found = replace(bounded(rows, labels, bound=1.0, intercept=0.25), silent=silent)
        return found.around(Centre(rng.normal(size=30) * 0.1, 0.5)) if centred else found

    def with_thin(self, monkeypatch, module):
        def chosen(name, size):
            return module if name == "loops" else compiled(name, size)

        monkeypatch.setattr(gradient_sum, "compiled", chosen)

    def test_no_error_is_above_its_charge(self, monkeypatch, objective, centred):
        calls = []
        check_thin_products(thin_products, np.dtype(np.float32), objective.outputs, more=True)
        usual = thin_products.sums
        monkeypatch.setattr(thin_products, "sums", lambda *a: calls.append(usual(*a)))
        self.with_thin(monkeypatch, thin_products)
        data = self.data(objective, centred)
        run = run_of(data, li.Cyclic(12, 6), objective=objective, steps=2)
        assert worst(monkeypatch, objective, data, run) <= 1.0
        assert len(calls) == 2

    def test_is_that_with_blas_but_for_rounding(self, monkeypatch, objective, centred):
        data = self.data(objective, centred)
        run = run_of(data, li.Cyclic(12, 6), objective=objective, steps=4)
        ends = []
        for module in (thin_products, None):
            self.with_thin(monkeypatch, module)
            ends.append(noisy_descent(run, objective, data, Randomness(SeededBits(1))))
        np.testing.assert_allclose(ends[0], ends[1], rtol=0.0, atol=1e-10)
