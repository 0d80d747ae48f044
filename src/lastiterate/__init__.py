"""Certified differential privacy of the last iterate of noisy gradient descent.

    >>> import lastiterate as li
    >>> run = li.TrainingRun(
    ...     loss=li.Loss(smoothness=32.502, strong_convexity=0.002), sensitivity=10.0,
    ...     batches=li.Cyclic(examples=60_000, batch_size=1_500), steps=2_000,
    ...     step_size=0.05, noise_std=0.01)
    >>> round(li.account(run).epsilon(delta=1e-5), 4)
    4.3392

Names are loaded when first used, so that importing the package costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lastiterate.accounting import PrivacyReport, account
    from lastiterate.bounds.catalogue import CATALOGUE
    from lastiterate.calibration import calibrate
    from lastiterate.engine.shifts import Shifts, optimal_shifts
    from lastiterate.errors import (
        InvalidParameter,
        LastIterateError,
        NoBoundApplies,
        UnreachableTarget,
    )
    from lastiterate.planning import plan
    from lastiterate.profile.compose import compose
    from lastiterate.profile.gaussian import GaussianProfile
    from lastiterate.profile.gaussian_mixture import GaussianMixtureProfile
    from lastiterate.profile.loss_distribution import LossDistributionProfile, from_pld
    from lastiterate.profile.mixture import BestProfile, MixtureProfile
    from lastiterate.profile.profile import PrivacyProfile
    from lastiterate.profile.pure import PureProfile
    from lastiterate.profile.renyi import LinearRenyiProfile, RenyiProfile
    from lastiterate.run.batches import (
        Cyclic,
        FixedOrder,
        FullBatch,
        PoissonSampled,
        SampledWithoutReplacement,
        ShuffledEachEpoch,
        ShuffledOnce,
    )
    from lastiterate.run.domain import Ball, Unbounded
    from lastiterate.run.loss import Loss
    from lastiterate.run.training_run import TrainingRun
    from lastiterate.sampling import langevin

__version__ = "0.1.0"

_HOME = {
    "accounting": ("PrivacyReport", "account"),
    "bounds.catalogue": ("CATALOGUE",),
    "calibration": ("calibrate",),
    "engine.shifts": ("Shifts", "optimal_shifts"),
    "errors": ("InvalidParameter", "LastIterateError", "NoBoundApplies", "UnreachableTarget"),
    "planning": ("plan",),
    "profile.compose": ("compose",),
    "profile.gaussian": ("GaussianProfile",),
    "profile.gaussian_mixture": ("GaussianMixtureProfile",),
    "profile.loss_distribution": ("LossDistributionProfile", "from_pld"),
    "profile.mixture": ("BestProfile", "MixtureProfile"),
    "profile.profile": ("PrivacyProfile",),
    "profile.pure": ("PureProfile",),
    "profile.renyi": ("LinearRenyiProfile", "RenyiProfile"),
    "run.batches": (
        "Cyclic",
        "FixedOrder",
        "FullBatch",
        "PoissonSampled",
        "SampledWithoutReplacement",
        "ShuffledEachEpoch",
        "ShuffledOnce",
    ),
    "run.domain": ("Ball", "Unbounded"),
    "run.loss": ("Loss",),
    "run.training_run": ("TrainingRun",),
    "sampling": ("langevin",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = sorted([*_MODULE_OF, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'lastiterate' has no attribute {name!r}")
    value = getattr(import_module(f"lastiterate.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
