"""How private something is: one type for each notion, loaded when first used."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lastiterate.profile.best import BestProfile as BestProfile
    from lastiterate.profile.gaussian import GaussianMixtureProfile as GaussianMixtureProfile
    from lastiterate.profile.gaussian import GaussianProfile as GaussianProfile
    from lastiterate.profile.pld import LossDistributionProfile as LossDistributionProfile
    from lastiterate.profile.profile import PrivacyProfile as PrivacyProfile
    from lastiterate.profile.renyi import PureProfile as PureProfile
    from lastiterate.profile.renyi import RenyiProfile as RenyiProfile
    from lastiterate.profile.renyi import ZCDPProfile as ZCDPProfile

_MODULE_OF = {
    "BestProfile": "best",
    "GaussianMixtureProfile": "gaussian",
    "GaussianProfile": "gaussian",
    "LossDistributionProfile": "pld",
    "PrivacyProfile": "profile",
    "PureProfile": "renyi",
    "RenyiProfile": "renyi",
    "ZCDPProfile": "renyi",
}

__all__ = sorted(_MODULE_OF)


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'lastiterate.profile' has no attribute {name!r}")
    return getattr(import_module(f"lastiterate.profile.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
