"""An accountant for Opacus that certifies the last iterate; needs the extra `opacus`.

    import lastiterate.opacus as lo
    from opacus import PrivacyEngine

    loss = lo.softmax(feature_bound=1.0, classes=10)
    lo.register(loss=loss)
    engine = PrivacyEngine(accountant="last-iterate")
    model, optimizer, loader = engine.make_private(..., max_grad_norm=loss.max_grad_norm)
    engine.get_epsilon(1e-5)

It reads step sizes, momentum, decay, clip and noise from the optimizer in every step, and the batch
rule from the loader, which it watches.  What it cannot see or prove is refused, or accounted for
by composition, with the reason.
"""

from lastiterate.errors import MissingExtra

try:
    import opacus  # noqa: F401 - imported here, so the error names the extra
except ImportError:
    raise MissingExtra("lastiterate.opacus", "opacus", extra="opacus") from None

from lastiterate.errors import RefusedTraining
from lastiterate.opacus.accountant import OpacusAccountant, TrainingPlan, register
from lastiterate.opacus.canaries import (
    CanarySession,
    GradientCanary,
    InputCanary,
    TrainingAudit,
    audit_training,
)
from lastiterate.opacus.linear_loss import LinearLoss, logistic, softmax
from lastiterate.torch.layers import BoundedLinear

__all__ = [
    "BoundedLinear",
    "CanarySession",
    "GradientCanary",
    "InputCanary",
    "LinearLoss",
    "OpacusAccountant",
    "RefusedTraining",
    "TrainingAudit",
    "TrainingPlan",
    "audit_training",
    "logistic",
    "register",
    "softmax",
]
