"""Linear models that are trained privately, in scikit-learn's manner."""

try:
    import sklearn  # noqa: F401 - only whether it is there
except ImportError as error:
    from lastiterate.errors import MissingExtra

    raise MissingExtra("lastiterate.linear_model", "scikit-learn", extra="sklearn") from error

from lastiterate.train.classifiers import PrivateLinearSVC, PrivateLogisticRegression
from lastiterate.train.estimator import PrivacyWarning
from lastiterate.train.regressors import PrivateHuberRegressor, PrivateRidge
from lastiterate.train.scaler import PrivateScaler

__all__ = [
    "PrivacyWarning",
    "PrivateHuberRegressor",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateRidge",
    "PrivateScaler",
]
