"""Compiled loops: as exact arithmetic has it, or bit by bit as numpy, or not used."""

import sys
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import mpmath
import numpy as np
import pytest
from scipy.special import expit

import lastiterate as li
from lastiterate.run.training_run import Unbounded
from lastiterate.train import compiled, noisy_descent
from lastiterate.train import noisy_descent as gradient_sum
from lastiterate.train.centring import Centre
from lastiterate.train.compiled import loops as elementary
from lastiterate.train.compiled import loops as logistic
from lastiterate.train.compiled import loops as outputs
from lastiterate.train.compiled import loops as step
from lastiterate.train.compiled import loops as thin_products
from lastiterate.train.data import bounded
from lastiterate.train.noise import Randomness, SeededBits
from lastiterate.train.objectives import Logistic, Softmax
from lastiterate.train.product_probe import check_thin_products
from tests.train.problems import run_of
from tests.train.test_step_error import worst


@pytest.fixture
def forgotten():
    """Nothing loaded before, nor remembered after."""
    compiled._load.cache_clear()
    yield
    compiled._load.cache_clear()


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


RNG = np.random.default_rng(0)


def relative_errors(function, exact, xs):
    return [abs(function(x) / exact(mpmath.mpf(x)) - 1) for x in xs]


@pytest.mark.parametrize("scale", [1e-20, 1e-8, 1e-3, 0.35, 1.0, 30.0, 700.0])
def test_exponentials(scale):
    xs = [float(x) for x in scale * RNG.uniform(-1, 1, 300)] + [scale, -scale, 0.0]
    assert max(relative_errors(elementary.exp, mpmath.exp, xs)) <= 4e-16


@pytest.mark.parametrize("x", [-700.1, -1e4, -1e300, -np.inf])
def test_of_very_small_numbers_nothing_is_left(x):
    assert elementary.exp(x) == 0.0


@pytest.mark.parametrize("scale", [1e-14, 1e-6, 0.2, 0.5, 3.0, 100.0, 700.0])
def test_logarithms(scale):
    xs = [float(np.exp(x)) for x in scale * RNG.uniform(-1, 1, 300)]
    xs = [x for x in xs if x != 1.0]
    assert max(relative_errors(elementary.log, mpmath.log, xs)) <= 4e-16
    rough = [abs(elementary.rough_log(x) - mpmath.log(x)) for x in xs]
    assert max(rough) <= 2e-6


@pytest.mark.parametrize("x", [2.0**-1022, 2.0**1023, 0.5**0.5, 2**0.5, np.nextafter(1, 0)])
def test_logarithms_at_powers_and_roots(x):
    assert relative_errors(elementary.log, mpmath.log, [x])[0] <= 4e-16


def test_one_has_logarithm_zero():
    assert elementary.log(1.0) == 0.0


@pytest.mark.parametrize("x", [0.0, -0.0, -1.0, 1e-310, np.inf, -np.inf, np.nan])
def test_what_has_no_logarithm_is_nan(x):
    assert np.isnan(elementary.log(x))
    assert np.isnan(elementary.rough_log(x))


def test_nan_stays():
    assert np.isnan(elementary.exp(np.nan))


CLASSES, EXAMPLES, FEATURES = 3, 1_001, 17


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
class TestOutputs:
    def test_scaled_and_moved(self, rng, kind):
        products = rng.normal(size=(EXAMPLES, CLASSES)).astype(kind)
        factors, constants = rng.random(EXAMPLES), rng.normal(size=CLASSES)
        found = np.empty((CLASSES, EXAMPLES))
        outputs.outputs(products, factors, constants, found)
        expected = products.T.astype(np.float64) * factors
        expected += constants[:, np.newaxis]
        np.testing.assert_array_equal(found, expected)

    def test_around_a_centre(self, rng, kind):
        products = rng.normal(size=(EXAMPLES, CLASSES)).astype(kind)
        factors, shifts = rng.random((2, EXAMPLES))
        at_centre, constants = rng.normal(size=(2, CLASSES))
        found = np.empty((CLASSES, EXAMPLES))
        outputs.centred(products, factors, at_centre, shifts, constants, found)
        expected = products.T.astype(np.float64) * factors
        expected -= np.outer(at_centre, shifts)
        expected += constants[:, np.newaxis]
        np.testing.assert_array_equal(found, expected)

    def test_back_and_the_padding_left_alone(self, rng, kind):
        residual, factors = rng.normal(size=(CLASSES, EXAMPLES)), rng.random(EXAMPLES)
        found = np.zeros((CLASSES + 1, EXAMPLES), kind)
        outputs.weighed(residual, factors, found)
        np.testing.assert_array_equal(found[:CLASSES], (residual * factors).astype(kind))
        assert not found[CLASSES].any()


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_rows_as_they_count(rng, kind):
    rows = (rng.normal(size=(EXAMPLES, FEATURES)) * 10.0 ** rng.integers(-9, 9)).astype(kind)
    factors, shifts = rng.random((2, EXAMPLES))
    mean, found = rng.normal(size=FEATURES), np.empty(rows.shape)
    outputs.scaled_rows(rows, factors, found)
    np.testing.assert_array_equal(found, rows * factors[:, np.newaxis])
    outputs.centred_rows(rows, factors, shifts, mean, found)
    expected = rows * factors[:, np.newaxis] - np.outer(shifts, mean)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("regulariser", [0.0, 0.3])
def test_step(rng, regulariser):
    """Halves, too, are rounded alike."""
    unit, shape = 2.0**-20, (CLASSES, 1_000)
    run = SimpleNamespace(
        batches=SimpleNamespace(batch_size=7), loss=SimpleNamespace(regulariser=regulariser)
    )
    start, total = rng.normal(size=shape), 7 * unit * rng.integers(-99, 99, size=shape) / 2.0
    noise, ends = rng.integers(-(2**40), 2**40, size=shape), []
    for path in (step, None):
        state = noisy_descent.State(start.copy(), Unbounded(), path)
        state.move_to(unit)
        state.step(run, total.copy(), noise, 0.5)
        ends.append((state.parameters, state._whole))
    for found, expected in zip(*ends, strict=True):
        np.testing.assert_array_equal(found, expected)


UNIT_ROUNDOFF = 2.0**-53
# Fewer and more rows, columns and outputs than a tile has, and none.
SHAPES = [(1, 1, 1), (3, 7, 4), (4, 200, 5), (9, 201, 11), (0, 3, 2), (6, 0, 2)]


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
    rows, factors, shifts, mean, weights = drawn((9, 207, 11), np.float64)
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
            return module if name == "loops" else compiled.compiled(name, size)

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
            ends.append(
                noisy_descent.noisy_descent(run, objective, data, Randomness(SeededBits(1)))
            )
        np.testing.assert_allclose(ends[0], ends[1], rtol=0.0, atol=1e-10)
