"""The estimators that model files are of, by the word for them."""

from typing import Any

from lastiterate.linear_model import (
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
)

ESTIMATORS: dict[str, Any] = {
    "logistic": PrivateLogisticRegression,
    "svc": PrivateLinearSVC,
    "ridge": PrivateRidge,
    "huber": PrivateHuberRegressor,
}
