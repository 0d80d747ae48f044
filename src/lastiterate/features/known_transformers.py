"""The transformer of each kind of fixed map, for pipelines that are loaded from files."""

from __future__ import annotations

from dataclasses import fields

from lastiterate.features.feature_map import FeatureMap
from lastiterate.features.fixed_features import FixedFeatures
from lastiterate.features.public_bins import PublicBins
from lastiterate.features.quadratic_sketch import QuadraticSketch
from lastiterate.features.random_fourier import RandomFourierFeatures
from lastiterate.features.scattering import Scattering2D
from lastiterate.features.scattering_map import ScatteringMap
from lastiterate.features.table_maps import BinsMap, FourierMap, QuadraticMap

TRANSFORMERS: dict[type[FeatureMap], type[FixedFeatures]] = {
    ScatteringMap: Scattering2D,
    FourierMap: RandomFourierFeatures,
    QuadraticMap: QuadraticSketch,
    BinsMap: PublicBins,
}
_RENAMED = {"components": "n_components"}


def transformer_of(mapped: FeatureMap) -> FixedFeatures:
    """The fitted transformer that applies this map.

    Examples
    --------
    >>> transformer_of(FourierMap(3, 8, 0.5, seed=1))
    RandomFourierFeatures(gamma=0.5, n_components=8, seed=1)
    """
    given = {
        _RENAMED.get(each.name, each.name): getattr(mapped, each.name)
        for each in fields(mapped)
        if each.name != "columns"
    }
    found = TRANSFORMERS[type(mapped)](**given)
    found.n_features_in_ = mapped.input_width
    found._n_features_out = mapped.width
    return found
