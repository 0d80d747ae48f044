"""Exact privacy of one-dimensional instances: what a guarantee has to survive.

>>> from lastiterate.audit import exact
>>> from lastiterate.lower_bounds.line_maps import linear
>>> one = exact.Step(linear(1.0), (linear(1.0), linear(1.0, offset=1.0)), noise_std=1.0)
>>> curve = exact.curve(exact.Pair(0.0, [one]))
>>> round(curve.epsilon(1e-5).lower, 4), curve.delta(1.0).error < 1e-12
(4.3772, True)
"""

from lastiterate import _check
from lastiterate.audit.worst_instance import Witness, worst
from lastiterate.errors import InvalidType
from lastiterate.lower_bounds.exact_curve import Bracket, ExactCurve
from lastiterate.lower_bounds.families import FAMILIES
from lastiterate.lower_bounds.line_grid import last_laws
from lastiterate.lower_bounds.line_pair import Pair, Step

__all__ = ["FAMILIES", "Bracket", "ExactCurve", "Pair", "Step", "Witness", "curve", "worst"]


def curve(pair: Pair, *, width: float = 2.0) -> ExactCurve:
    """The privacy of the last iterate of a pair, with an error bound of its own.

    Parameters
    ----------
    pair : Pair
        One iteration on two adjacent data sets.
    width : float
        Panels of the grid, in standard deviations of a step's noise.  Half of it has a much
        smaller error and costs four times as much.
    """
    if not isinstance(pair, Pair):
        raise InvalidType("pair", pair, must_be="a Pair")
    return ExactCurve(last_laws(pair, _check.number("width", width, above=0.0, at_most=20.0)))
