"""Sketches of all products of two columns."""

from __future__ import annotations

from lastiterate.features.fixed_features import FixedFeatures
from lastiterate.features.table_maps import QuadraticMap


class QuadraticSketch(FixedFeatures):
    r"""Sketches of all products of two columns: a linear model on them learns interactions.

    A row x becomes :math:`a = (x/B, 1)/\sqrt2`, where B is the `input_bound`.  The products of all
    pairs of entries of a, among them the entries of x themselves, are added with random signs in
    `n_components` random cells.  Inner products of the results are about
    :math:`\langle a, a' \rangle^2`.  Nothing is learned from the examples, so this costs no
    privacy.

    No row of features is longer than `norm_bound`, which is 1: a row of sums that is longer is
    scaled down to 1.  Then all features are scaled down by :math:`2^{-20}`, which is more than all
    roundings together, so it holds for the computed numbers as well.

    Parameters
    ----------
    n_components : int, default=2048
        The number of features.  More features cost time, but no privacy.
    seed : int, default=0
        The seed of signs and cells, which is public and part of the model.
    input_bound : float, default=1.0
        The largest norm of rows; longer rows are scaled down to it.  It must not be chosen by
        looking at the examples.

    Attributes
    ----------
    n_features_in_ : int
        The number of columns.

    Examples
    --------
    >>> import numpy as np
    >>> from lastiterate.features import QuadraticSketch
    >>> X = np.array([[0.6, 0.8], [0.0, 0.5]])
    >>> rows = QuadraticSketch(n_components=4096).fit_transform(X)
    >>> rows.shape, round(float(rows[0] @ rows[1]), 1)  # ((0.8 * 0.5 + 1) / 2) ** 2 = 0.49
    ((2, 4096), 0.5)
    """

    def __init__(
        self, n_components: int = 2048, seed: int = 0, *, input_bound: float = 1.0
    ) -> None:
        self.n_components = n_components
        self.seed = seed
        self.input_bound = input_bound

    def feature_map(self, columns: int) -> QuadraticMap:
        """The map of rows that have this many columns.

        Parameters
        ----------
        columns : int
            The number of columns.

        Returns
        -------
        QuadraticMap
            The map, with all parameters.
        """
        return QuadraticMap(columns, self.n_components, self.seed, self.input_bound)
