"""Random Fourier features of rows."""

from __future__ import annotations

from lastiterate.features.fixed_features import FixedFeatures
from lastiterate.features.table_maps import FourierMap


class RandomFourierFeatures(FixedFeatures):
    r"""Random Fourier features: a linear model on them separates rows as a Gaussian kernel does.

    A row x becomes the cosines and sines of :math:`\langle w_k, x \rangle` for m/2 random
    directions, which are drawn with a public seed, times :math:`\sqrt{2/m}`.  Inner products of
    these are about :math:`\exp(-\gamma |x - x'|^2)`.  Nothing is learned from the examples, so this
    costs no privacy.

    No row of features is longer than `norm_bound`, which is 1: every pair of a cosine and a sine
    adds 2/m to the square, whatever the row.  All features are scaled down by :math:`2^{-20}`,
    which is more than all roundings together, so it holds for the computed numbers as well.

    Parameters
    ----------
    n_components : int, default=2048
        The number m of features.  More features cost time, but no privacy.
    gamma : float, default=1.0
        The inverse squared width of the kernel.  It must not be chosen by looking at the examples.
    seed : int, default=0
        The seed of the directions, which is public and part of the model.

    Attributes
    ----------
    n_features_in_ : int
        The number of columns.

    Examples
    --------
    >>> import numpy as np
    >>> from lastiterate.features import RandomFourierFeatures
    >>> X = np.random.default_rng(0).normal(size=(3, 5)) / 4
    >>> rows = RandomFourierFeatures(gamma=0.5).fit_transform(X)
    >>> rows.shape, np.linalg.norm(rows, axis=1).round(4).tolist()
    ((3, 2048), [1.0, 1.0, 1.0])
    >>> kernel = np.exp(-0.5 * np.sum((X[0] - X[1]) ** 2))
    >>> bool(abs(rows[0] @ rows[1] - kernel) < 0.05)
    True
    """

    def __init__(self, n_components: int = 2048, gamma: float = 1.0, seed: int = 0) -> None:
        self.n_components = n_components
        self.gamma = gamma
        self.seed = seed

    def feature_map(self, columns: int) -> FourierMap:
        """The map of rows that have this many columns.

        Parameters
        ----------
        columns : int
            The number of columns.

        Returns
        -------
        FourierMap
            The map, with all parameters.
        """
        return FourierMap(columns, self.n_components, self.gamma, self.seed)
