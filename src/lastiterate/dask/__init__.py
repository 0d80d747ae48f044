"""The private linear models on a Dask cluster; needs the extra `dask`.

    from dask.distributed import Client
    from lastiterate.dask import PrivateLogisticRegression

    client = Client("tls://scheduler:8786", security=..)
    model = PrivateLogisticRegression(epsilon=1.0, delta=1e-8, classes=[0, 1]).fit(X, y)
    model.predict(X)                           # lazily, as a dask array

`X` and `y` are Dask arrays, data frames or lists of delayed blocks; they are never gathered.
Parameters, report and certificate are those of `lastiterate.linear_model`.  The cluster is trusted:
its workers and its scheduler see rows and iterates.
"""

from lastiterate.errors import MissingExtra

try:
    import dask.array
    import dask.dataframe  # noqa: F401 - imported here, so the error names the extra
    import distributed  # noqa: F401
    import sklearn  # noqa: F401
except ImportError as error:
    raise MissingExtra.of(error, "lastiterate.dask", extra="dask") from None

from lastiterate.dask.cluster import ClusterFailure
from lastiterate.dask.estimators import (
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
)

__all__ = [
    "ClusterFailure",
    "PrivateHuberRegressor",
    "PrivateLinearSVC",
    "PrivateLogisticRegression",
    "PrivateRidge",
]
