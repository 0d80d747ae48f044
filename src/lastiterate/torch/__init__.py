"""A private linear head on a frozen torch model; needs the extra `torch`.

    import lastiterate.torch as lt

    fitted = lt.fit_head(model, "classifier", loader, epsilon=1.0, delta=1e-5,
                         classes=range(10), feature_bound=1.0)
    model(x)                                   # the head was replaced by a BoundedLinear
    fitted.privacy_.epsilon(1e-5)
    lt.save(fitted, "out")                     # weights and certificate
    lt.verify(model, "classifier", "out/certificate.json")

The backbone must not have been trained on the same private data.

For other training loops there are batch samplers that draw in secret, for any `DataLoader`:
`BallsAndBinsSampler`, `BalancedSampler` and `PoissonSampler`, with `EmptyBatches`.
"""

from lastiterate.errors import MissingExtra

try:
    import safetensors.torch  # noqa: F401 - imported here, so the error names the extra
    import torch  # noqa: F401
except ImportError as error:
    raise MissingExtra.of(error, "lastiterate.torch", extra="torch") from None

from lastiterate.torch.batch_samplers import (
    BalancedSampler,
    BallsAndBinsSampler,
    PoissonSampler,
    SecretBatchSampler,
)
from lastiterate.torch.features import EmptyBatches, features
from lastiterate.torch.head import FittedHead, fit_head, load, save, verify
from lastiterate.torch.layers import BoundedLinear, FeatureLayer, add_secure_noise

__all__ = [
    "BalancedSampler",
    "BallsAndBinsSampler",
    "BoundedLinear",
    "EmptyBatches",
    "FeatureLayer",
    "FittedHead",
    "PoissonSampler",
    "SecretBatchSampler",
    "add_secure_noise",
    "features",
    "fit_head",
    "load",
    "save",
    "verify",
]
