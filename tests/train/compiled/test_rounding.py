"""Loops that round as numpy does: not one bit depends on whether Numba is there."""

import numpy as np
import pytest

from lastiterate.train.compiled import outputs, step

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


@pytest.mark.parametrize("regulariser", [0.0, 0.3])
def test_step(rng, regulariser):
    parameters, gradient, normal = rng.normal(size=(3, CLASSES, FEATURES))
    found = parameters.copy()
    step.step(found, gradient, normal, 7, regulariser, 0.1, 0.7)
    direction = gradient / 7
    direction += regulariser * parameters
    direction += 0.1 * normal
    np.testing.assert_array_equal(found, parameters - direction * 0.7)


def test_what_is_not_finite_stays_so(rng):
    parameters, gradient, normal = rng.normal(size=(3, 1, FEATURES))
    gradient[0, 0] = np.nan
    step.step(parameters, gradient, normal, 7, 0.0, 0.1, 0.7)
    assert np.isnan(parameters[0, 0])
    assert np.isfinite(parameters[0, 1:]).all()
