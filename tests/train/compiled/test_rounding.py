"""Loops that round as numpy does: not one bit depends on whether Numba is there."""

from types import SimpleNamespace

import numpy as np
import pytest

from lastiterate.run.training_run import Unbounded
from lastiterate.train import noisy_descent
from lastiterate.train.compiled import loops as outputs
from lastiterate.train.compiled import loops as step

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
