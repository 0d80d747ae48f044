"""Private linear models with the interface of scikit-learn."""

from lastiterate.errors import MissingExtra, PrivacyWarning

try:
    import sklearn  # noqa: F401 - only whether it is there
except ImportError as error:
    raise MissingExtra("lastiterate.linear_model", "scikit-learn", extra="sklearn") from error

from lastiterate.linear_model.classifiers import PrivateLinearSVC, PrivateLogisticRegression
from lastiterate.linear_model.coefficient_table import CoefficientTable, summary
from lastiterate.linear_model.fit_warnings import TooFewExamplesWarning
from lastiterate.linear_model.intervals import InfiniteIntervalsWarning
from lastiterate.linear_model.preprocessing import PrivateScaler
from lastiterate.linear_model.private_schema import PrivateSchema
from lastiterate.linear_model.private_score import PrivateScore
from lastiterate.linear_model.private_selection import PrivateSelection
from lastiterate.linear_model.published_statistics import OutlierWarning
from lastiterate.linear_model.regressors import PrivateHuberRegressor, PrivateRidge

__all__ = [
    "CoefficientTable",
    "InfiniteIntervalsWarning",
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
    "summary",
]
