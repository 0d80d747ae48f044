"""Fixed features with public bounds: they learn nothing from the examples, so they cost nothing."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lastiterate.features.transformers import PublicBins as PublicBins
    from lastiterate.features.transformers import QuadraticSketch as QuadraticSketch
    from lastiterate.features.transformers import RandomFourierFeatures as RandomFourierFeatures
    from lastiterate.features.transformers import Scattering2D as Scattering2D

__all__ = ["PublicBins", "QuadraticSketch", "RandomFourierFeatures", "Scattering2D"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'lastiterate.features' has no attribute {name!r}")
    return getattr(import_module("lastiterate.features.transformers"), name)


def __dir__() -> list[str]:
    return __all__
