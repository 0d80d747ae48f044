"""Columns of numbers as bins between publicly known ends."""

from __future__ import annotations

from typing import Any

import numpy as np

from lastiterate.errors import InvalidParameter
from lastiterate.features.fixed_features import FixedFeatures
from lastiterate.features.table_maps import BinsMap


class PublicBins(FixedFeatures):
    r"""One feature for each bin of each column: a linear model on them learns any step function.

    Bins divide a publicly known range into parts of equal width; numbers outside count as the ends.
    For cut points of your own, and for columns with names, use `PrivateSchema`, whose entries may
    be `{"range": [0, 90], "bins": 9}` or `{"cuts": [30, 45]}`.

    The norm of every row of features is `norm_bound`, which is 1, less :math:`2^{-20}` of it for
    rounding: each of c columns has :math:`1/\sqrt c` in one of its bins.

    Parameters
    ----------
    low, high : float or sequence, default=-1.0 and 1.0
        The ends of the ranges, of all columns or of each.  They must not come from the examples.
    bins : int, default=10
        The number of bins of a column.

    Attributes
    ----------
    n_features_in_ : int
        The number of columns.

    Examples
    --------
    >>> from lastiterate.features import PublicBins
    >>> PublicBins(low=0.0, high=90.0, bins=3).fit_transform([[12.0], [30.0], [95.0]]).round(3)
    array([[1., 0., 0.],
           [0., 1., 0.],
           [0., 0., 1.]], dtype=float32)
    """

    def __init__(self, low: Any = -1.0, high: Any = 1.0, *, bins: int = 10) -> None:
        self.low = low
        self.high = high
        self.bins = bins

    def feature_map(self, columns: int) -> BinsMap:
        """The map of rows that have this many columns.

        Parameters
        ----------
        columns : int
            The number of columns.

        Returns
        -------
        BinsMap
            The map, with all parameters.
        """
        low, high = _ends("low", self.low, columns), _ends("high", self.high, columns)
        return BinsMap(low, high, self.bins)


def _ends(name: str, given: Any, columns: int) -> tuple[float, ...]:
    must_be = f"a number, or one for each of the {columns} columns"
    try:
        ends = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidParameter(name, given, must_be=must_be) from None
    if ends.ndim > 1 or ends.size not in (1, columns):
        raise InvalidParameter(name, given, must_be=must_be)
    return tuple(np.broadcast_to(ends, (columns,)).tolist())
