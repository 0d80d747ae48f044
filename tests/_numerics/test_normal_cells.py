"""Normal probabilities of cells: to many digits, in both tails."""

import mpmath
import numpy as np
import pytest

from lastiterate._numerics.rounding import ulps
from lastiterate.profile.gaussian import normal_cells


@pytest.mark.parametrize("start", [-30.0, -9.0, -0.5, 0.0, 2.0, 8.0, 30.0])
@pytest.mark.parametrize("width", [1e-3, 0.25, 3.0])
def test_error_is_a_few_ulps_of_the_tail(start, width):
    edges = np.array([start, start + width])
    ((mass,), (tail,)) = normal_cells(edges, edges[:-1] + edges[1:] > 0.0)
    with mpmath.workdps(300):  # differences of numbers that agree in 200 digits
        first, last = (mpmath.erfc(edge / mpmath.sqrt(2)) / 2 for edge in edges.tolist())
        exact, smaller = float(first - last), float(min(first, 1 - last))
    assert tail == pytest.approx(smaller, rel=1e-13)
    # The exponential of x^2/2 makes tails lose ulps with x^2.
    assert abs(mass - exact) <= ulps(16.0 + 4.0 * float(edges[1]) ** 2) * tail
