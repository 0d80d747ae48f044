"""A layer of fixed features, whose outputs have a public bound."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from lastiterate.errors import InvalidType


class FeatureLayer(nn.Module):
    """A torch layer that applies a transformer of `lastiterate.features`.

    Rows of several axes are flattened first, so torch's images come colour by colour, as
    `Scattering2D` expects them by default.  The layer has no weights.  `fit_head` takes the bound
    of a head right behind it from the transformer, and the certificate names the transformer.

    Parameters
    ----------
    transformer : FixedFeatures
        Such as `Scattering2D((28, 28), pixel_max=255)` for bytes; needs the extra `sklearn`.

    Raises
    ------
    InvalidType
        If it is another transformer, which may learn from the examples.

    Examples
    --------
    >>> import torch
    >>> import lastiterate.torch as lt
    >>> from lastiterate.features import Scattering2D
    >>> layer = lt.FeatureLayer(Scattering2D((8, 8), scales=1))
    >>> model = torch.nn.Sequential(layer, torch.nn.Linear(144, 10))
    >>> model(torch.rand(5, 1, 8, 8)).shape
    torch.Size([5, 10])
    """

    def __init__(self, transformer: Any) -> None:
        from lastiterate.features.transformers import FixedFeatures

        super().__init__()
        if not isinstance(transformer, FixedFeatures):
            must_be = "a transformer of lastiterate.features"
            raise InvalidType("transformer", transformer, must_be=must_be)
        self.transformer = transformer

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """The features of rows, as float32 on the same device."""
        flat = rows.detach().flatten(1).cpu()
        given = (flat if flat.is_complex() else flat.double()).numpy()
        return torch.from_numpy(self.transformer.fit(given).transform(given)).to(rows.device)

    def extra_repr(self) -> str:
        """The transformer."""
        return repr(self.transformer)

    @property
    def norm_bound(self) -> float:
        """The largest norm of a row of features."""
        return float(self.transformer.norm_bound)

    def map_record(self) -> dict[str, Any]:
        """The kind and parameters of the map that the last rows were given to.

        Returns
        -------
        dict
            As certificates have it.

        Examples
        --------
        >>> from lastiterate.features import QuadraticSketch
        >>> layer = FeatureLayer(QuadraticSketch(8))
        >>> _ = layer(torch.rand(2, 3))
        >>> layer.map_record()["columns"]
        3
        """
        record: dict[str, Any] = self.transformer.feature_map(
            self.transformer.n_features_in_
        ).as_record()
        return record
