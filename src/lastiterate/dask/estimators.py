"""The private linear models of `lastiterate.linear_model`, fitted where the rows are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from distributed import Client
from numpy.typing import NDArray

from lastiterate import _check
from lastiterate._numerics.arrays import Array
from lastiterate._progress import throughout
from lastiterate.accounting import PrivacyReport
from lastiterate.certificate.statements import CLUSTER
from lastiterate.dask.blocks import Blocks, applied, blocks_of, column_of, is_lazy
from lastiterate.dask.cluster_security import the_client, workers_of
from lastiterate.dask.cluster_shards import ClusterShards, sharded
from lastiterate.dask.cost import STEP_SECONDS, StepCost, affordable
from lastiterate.dask.feedback import progress_lines, tell_of_length, tell_of_one_machine
from lastiterate.dask.shard import Encoded
from lastiterate.dask.shard_actors import ClusterFailure
from lastiterate.errors import InvalidParameter
from lastiterate.linear_model import classifiers, regressors
from lastiterate.linear_model.estimator import Prepared, PrivateLinearModel, Trained
from lastiterate.linear_model.inputs import refuse_raw_frame
from lastiterate.train.settings import POSITIVE, Kind, documented, or_none, setting
from lastiterate.train.traceback_scrubbing import discreet

_HELD = 0.3  # of a worker's memory: while rows are laid out there are two copies
_PATIENCE = 60.0  # seconds for a first worker
_NOT_SENT = ("client", "ledger", "random_state", "privacy_", "certificate_")


@dataclass(eq=False, repr=False, kw_only=True)
class OnDask(PrivateLinearModel):
    """Base class of linear models that are fitted on a cluster."""

    _here = False

    epochs: Any = setting(
        None,
        or_none(Kind("int", partial(_check.count, at_least=1))),
        "The most passes over the data; left out, 20, or where `batch_size` is set or `batches` is "
        "'full', as many as take a minute.",
    )
    client: Any = setting(None, Kind("Client"), "Of dask.distributed; the current one if left out.")
    allow_insecure: bool = setting(
        False,
        Kind("bool"),
        "Whether rows and iterates may cross a network without TLS.",
    )
    in_memory: bool | None = setting(
        None,
        or_none(Kind("bool")),
        "Whether workers hold their rows; if not, every step reads its batch anew, and batches are "
        "blocks of consecutive rows.  Left out, they do if there is room for them twice.",
    )
    step_seconds: float = setting(
        STEP_SECONDS,
        POSITIVE,
        "What the messages of a step cost on this cluster.  A `batch_size` left out is so large "
        "that those of all steps take a minute at most, 3,000 steps at the default, or no longer "
        "than computing does.",
    )
    verbose: bool = setting(
        False, Kind("bool"), "Whether to print on stderr, now and then, how far the fit is."
    )

    def _fit(self, held: list[Any], ledger: Any = None, key: Any = None, other: Any = None) -> Self:
        if key is not None:
            held.clear()
            must_be = "left out: rows on a cluster have no digest, so that none can be unlearned"
            raise InvalidParameter("key", must_be=must_be, found="one")
        with progress_lines(verbose=self.verbose):
            return super()._fit(held, ledger, key, other)

    def unlearn(self, *_: Any, **__: Any) -> Self:
        """Not on a cluster: train again without those who go."""
        must_be = (
            "fitted by lastiterate.linear_model: which rows a cluster's model was trained on "
            "cannot be known again; train again without those who go"
        )
        raise InvalidParameter("model", must_be=must_be, found="one fitted on a cluster")

    def _gathered(self, X: Any, y: Any, settings: Any) -> Prepared:
        if settings.text_columns:
            must_be = "left out: values of rows on a cluster are not counted"
            raise InvalidParameter("text_columns", must_be=must_be, found="some")
        client = the_client(settings.client, allow_insecure=settings.allow_insecure)
        refuse_raw_frame(X, settings.feature_bound)
        with throughout("counting the rows of each chunk"):
            blocks = blocks_of(X, y, client)
        bound = 1.0 if settings.feature_bound is None else settings.feature_bound
        intercept = self._constant * bound if self.fit_intercept else 0.0
        radius = float(np.hypot(bound, intercept))
        self._refuse_undeclared(blocks)
        # All that is public of the task follows from no target at all.
        task = settings._task(np.zeros(0, dtype=blocks.target_dtype), radius)
        workers = _workers(client)
        tell_of_one_machine(workers, blocks)
        held = self._held(blocks, workers)
        with throughout("bringing rows to the workers"):
            examples = sharded(
                client,
                blocks,
                partial(_encoded, _stripped(settings), radius),
                bound=bound,
                intercept=intercept,
                offset=task.offset,
                held=held,
                allow_insecure=settings.allow_insecure,
            )
        shards = examples.layout.shards
        outputs = task.objective.outputs
        cost = StepCost(blocks.features, outputs, shards, settings.step_seconds)
        settings.batch_size, settings.epochs = affordable(
            settings,
            task.objective,
            cost,
            examples=len(examples),
            radius=radius,
            block=1 if held else min(blocks.lengths[0] * shards, len(examples)),
        )
        task = replace(task, outside=examples.survey.outside)
        return Prepared(task, examples, settings, CLUSTER)

    def _train(self, prepared: Prepared, report: PrivacyReport, *, refuse: bool) -> Trained:
        assert isinstance(prepared.examples, ClusterShards)
        tell_of_length(report.run, prepared.examples.layout.shards)
        return super()._train(prepared, report, refuse=refuse)

    def _refuse_undeclared(self, blocks: Blocks) -> None:
        """The label set is published with the model, and nobody here sees the labels."""
        if hasattr(self, "classes") and self.classes is None and blocks.target_dtype.kind != "b":
            must_be = "declared for rows on a cluster: the labels that there may be"
            raise InvalidParameter("classes", must_be=must_be, found="none")

    def _held(self, blocks: Blocks, workers: Mapping[str, Any]) -> bool:
        """Whether workers hold their rows."""
        each = blocks.bytes / min(len(workers), len(blocks.lengths))
        limits = [int(one.get("memory_limit") or 0) for one in workers.values()]
        fits = not blocks.dense or all(limit == 0 or each <= _HELD * limit for limit in limits)
        if self.in_memory is None:
            return fits or blocks.persisted
        if not self.in_memory and blocks.persisted:
            must_be = "True or left out for rows that the cluster holds already"
            raise InvalidParameter("in_memory", self.in_memory, must_be=must_be)
        return bool(self.in_memory)

    def _lazily(self, method: str, X: Any) -> Any:
        """As a dask array where X is one, else at once."""
        alone = _stripped(self)
        alone.__class__ = _local_class(type(self))
        if not is_lazy(X):
            return getattr(alone, method)(X)
        like = getattr(alone, method)(np.zeros((1, self.n_features_in_)))
        return applied(method, alone, X, like)

    @discreet
    def predict(self, X: Any) -> Any:
        """Labels or targets; lazily, as a dask array, for dask collections."""
        return self._lazily("predict", X)

    @discreet
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """As in scikit-learn; published, a score on private data costs privacy."""
        if not is_lazy(X):
            return float(super().score(X, y, sample_weight=sample_weight))
        if sample_weight is not None:
            raise InvalidParameter(
                "sample_weight", must_be="None for dask collections", found="one"
            )
        return float(self._lazy_score(self.predict(X), column_of(y)))

    def _lazy_score(self, predicted: Any, targets: Any) -> float:
        raise NotImplementedError

    def __sklearn_clone__(self) -> Any:
        # A connection cannot be copied, and is the same one.
        client, self.client = self.client, None
        try:
            cloned = super().__sklearn_clone__()
        finally:
            self.client = client
        return cloned.set_params(client=client)

    def __getstate__(self) -> Any:
        # A connection cannot be pickled; whoever loads the model has another.
        return {**super().__getstate__(), "client": None}


class _Classifies(OnDask):
    @discreet
    def decision_function(self, X: Any) -> Any:
        """Scores; lazily, as a dask array, for dask collections."""
        return self._lazily("decision_function", X)

    def _lazy_score(self, predicted: Any, targets: Any) -> float:
        return float((predicted == targets).mean().compute())


class _Regresses(OnDask):
    def _lazy_score(self, predicted: Any, targets: Any) -> float:
        errors = ((targets - predicted) ** 2).mean()
        spread = ((targets - targets.mean()) ** 2).mean()
        return float((1.0 - errors / spread).compute())


def _workers(client: Client) -> dict[str, Any]:
    """The workers that there are or, if there are none yet or again, as soon as there is one."""
    try:
        if not workers_of(client):
            client.wait_for_workers(1, timeout=_PATIENCE)
        return workers_of(client)
    except TimeoutError:
        must_be = "of a cluster with workers"
        raise InvalidParameter("client", must_be=must_be, found="none") from None
    except OSError:
        raise ClusterFailure("the scheduler does not answer") from None


def _encoded(settings: Any, radius: float, targets: NDArray[Any]) -> Encoded:
    task = settings._task(targets, radius)
    return Encoded(task.targets, task.silent, int(np.sum(settings._outside(targets, task))))


def _stripped(model: Any) -> Any:
    """A copy without what no worker needs to know."""
    sent = object.__new__(type(model))
    sent.__dict__ = dict(model.__dict__) | dict.fromkeys(_NOT_SENT)
    return sent


def _local_class(kind: type) -> type:
    return next(one for one in kind.__mro__ if one.__module__.startswith(_LOCAL))


_LOCAL = ("lastiterate.linear_model.classifiers", "lastiterate.linear_model.regressors")


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class PrivateLogisticRegression(_Classifies, classifiers.PrivateLogisticRegression):
    """Logistic regression on a cluster, of which only the last iterate is published.

    As `lastiterate.linear_model.PrivateLogisticRegression`, for rows in dask collections.

    {parameters}
    """

    @discreet
    def predict_proba(self, X: Any) -> Array:
        """Probabilities, one column for each class; lazily for dask collections."""
        return self._lazily("predict_proba", X)  # type: ignore[no-any-return]

    @discreet
    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms of the probabilities."""
        return self._lazily("predict_log_proba", X)  # type: ignore[no-any-return]


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class PrivateLinearSVC(_Classifies, classifiers.PrivateLinearSVC):
    """Linear support vector machine on a cluster.

    As `lastiterate.linear_model.PrivateLinearSVC`, for rows in dask collections.

    {parameters}
    """


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class PrivateRidge(_Regresses, regressors.PrivateRidge):
    """Least squares with a penalty on a cluster.

    As `lastiterate.linear_model.PrivateRidge`, for rows in dask collections.

    {parameters}
    """


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class PrivateHuberRegressor(_Regresses, regressors.PrivateHuberRegressor):
    """Regression that is linear in large errors on a cluster.

    As `lastiterate.linear_model.PrivateHuberRegressor`, for rows in dask collections.

    {parameters}
    """
