"""Linear models that are trained privately, in scikit-learn's manner."""

try:
    import sklearn  # noqa: F401 - only whether it is there
except ImportError as error:
    from lastiterate.errors import MissingExtra

    raise MissingExtra("lastiterate.linear_model", "scikit-learn", extra="sklearn") from error

from lastiterate.errors import PrivacyWarning
from lastiterate.linear_model.classifiers import PrivateLinearSVC, PrivateLogisticRegression
from lastiterate.linear_model.feasibility import TooFewExamplesWarning
from lastiterate.linear_model.outliers import OutlierWarning
from lastiterate.linear_model.private_selection import PrivateSelection
from lastiterate.linear_model.regressors import PrivateHuberRegressor, PrivateRidge
from lastiterate.linear_model.scaler import PrivateScaler
from lastiterate.linear_model.schema import PrivateSchema
from lastiterate.linear_model.score import PrivateScore

__all__ = [
    "OutlierWarning",
    "PrivacyWarning",
    "PrivateHuberRegressor",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateRidge",
    "PrivateScaler",
    "PrivateSchema",
    "PrivateScore",
    "PrivateSelection",
    "TooFewExamplesWarning",
]
