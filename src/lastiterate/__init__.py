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
    from lastiterate.accounting import PrivacyReport as PrivacyReport
    from lastiterate.accounting import account as account
    from lastiterate.bounds.catalogue import CATALOGUE as CATALOGUE
    from lastiterate.calibration import calibrate as calibrate
    from lastiterate.certificate.verify import verify as verify
    from lastiterate.errors import InvalidParameter as InvalidParameter
    from lastiterate.errors import LastIterateError as LastIterateError
    from lastiterate.errors import NoBoundApplies as NoBoundApplies
    from lastiterate.errors import UnreachableTarget as UnreachableTarget
    from lastiterate.langevin_sampling import langevin as langevin
    from lastiterate.ledger.ledger import Ledger as Ledger
    from lastiterate.planning import plan as plan
    from lastiterate.profile.compose import compose as compose
    from lastiterate.profile.gaussian import GaussianProfile as GaussianProfile
    from lastiterate.profile.pld import from_pld as from_pld
    from lastiterate.profile.profile import PrivacyProfile as PrivacyProfile
    from lastiterate.run.batch_rules.drawn import BalancedSampled as BalancedSampled
    from lastiterate.run.batch_rules.drawn import BallsAndBins as BallsAndBins
    from lastiterate.run.batch_rules.drawn import BallsAndBinsEachEpoch as BallsAndBinsEachEpoch
    from lastiterate.run.batch_rules.drawn import PoissonSampled as PoissonSampled
    from lastiterate.run.batch_rules.drawn import (
        SampledWithoutReplacement as SampledWithoutReplacement,
    )
    from lastiterate.run.batch_rules.ordered import Cyclic as Cyclic
    from lastiterate.run.batch_rules.ordered import FixedOrder as FixedOrder
    from lastiterate.run.batch_rules.ordered import FullBatch as FullBatch
    from lastiterate.run.batch_rules.ordered import (
        ShuffledBlocksEachEpoch as ShuffledBlocksEachEpoch,
    )
    from lastiterate.run.batch_rules.ordered import ShuffledBlocksOnce as ShuffledBlocksOnce
    from lastiterate.run.batch_rules.ordered import ShuffledEachEpoch as ShuffledEachEpoch
    from lastiterate.run.batch_rules.ordered import ShuffledOnce as ShuffledOnce
    from lastiterate.run.loss import Loss as Loss
    from lastiterate.run.optimizer import ExponentialAverage as ExponentialAverage
    from lastiterate.run.optimizer import TailAverage as TailAverage
    from lastiterate.run.training_run import Ball as Ball
    from lastiterate.run.training_run import TrainingRun as TrainingRun
    from lastiterate.run.training_run import Unbounded as Unbounded
    from lastiterate.saved_model.load import load as load
    from lastiterate.saved_model.save import save as save
    from lastiterate.shifts.optimal_shifts import optimal_shifts as optimal_shifts
    from lastiterate.unlearn.unlearning import Unlearning as Unlearning
    from lastiterate.unlearn.unlearning import unlearning as unlearning

__version__ = "0.2.0.dev1"

_HOME = {
    "accounting": ("PrivacyReport", "account"),
    "bounds.catalogue": ("CATALOGUE",),
    "calibration": ("calibrate",),
    "certificate.verify": ("verify",),
    "shifts.optimal_shifts": ("optimal_shifts",),
    "errors": ("InvalidParameter", "LastIterateError", "NoBoundApplies", "UnreachableTarget"),
    "ledger.ledger": ("Ledger",),
    "planning": ("plan",),
    "profile.compose": ("compose",),
    "profile.gaussian": ("GaussianProfile",),
    "profile.pld": ("from_pld",),
    "profile.profile": ("PrivacyProfile",),
    "run.batch_rules.drawn": (
        "BalancedSampled",
        "BallsAndBins",
        "BallsAndBinsEachEpoch",
        "PoissonSampled",
        "SampledWithoutReplacement",
    ),
    "run.batch_rules.ordered": (
        "Cyclic",
        "FixedOrder",
        "FullBatch",
        "ShuffledBlocksEachEpoch",
        "ShuffledBlocksOnce",
        "ShuffledEachEpoch",
        "ShuffledOnce",
    ),
    "run.training_run": ("Ball", "TrainingRun", "Unbounded"),
    "run.optimizer": ("ExponentialAverage", "TailAverage"),
    "run.loss": ("Loss",),
    "saved_model.load": ("load",),
    "saved_model.save": ("save",),
    "langevin_sampling": ("langevin",),
    "unlearn.unlearning": ("Unlearning", "unlearning"),
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
