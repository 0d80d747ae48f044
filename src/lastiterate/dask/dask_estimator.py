"""The base of the linear models that are fitted on a Dask cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from distributed import Client
from numpy.typing import NDArray

from lastiterate import _check
from lastiterate._progress import throughout
from lastiterate.accounting import PrivacyReport
from lastiterate.certificate.fields import CLUSTER
from lastiterate.dask.blocks import Blocks, blocks_of, is_collection, lazy_predictions, target_array
from lastiterate.dask.cluster_security import checked_client, workers_of
from lastiterate.dask.cluster_shards import ClusterShards, shard_blocks
from lastiterate.dask.cost import STEP_SECONDS, StepCost, affordable_batches
from lastiterate.dask.feedback import log_run_length, log_single_machine, progress_lines
from lastiterate.dask.shard import EncodedTargets
from lastiterate.dask.shard_actors import ClusterFailure
from lastiterate.errors import InvalidParameter
from lastiterate.linear_model.estimator import PrivateLinearModel
from lastiterate.linear_model.fit_inputs import FitInputs, FitResult
from lastiterate.linear_model.inputs import refuse_raw_frame
from lastiterate.train.settings import POSITIVE, SettingKind, or_none, setting
from lastiterate.train.traceback_scrubbing import discreet

_HELD_SHARE = 0.3  # of a worker's memory: arranging rows needs two copies
_PATIENCE = 60.0  # seconds for a first worker
_NOT_SENT = ("client", "ledger", "ledger_", "random_state", "privacy_", "certificate_")


@dataclass(eq=False, repr=False, kw_only=True)
class DaskEstimator(PrivateLinearModel):
    """Base class of linear models that are fitted on a cluster."""

    _in_process = False

    epochs: Any = setting(
        None,
        or_none(SettingKind("int", partial(_check.count, at_least=1))),
        "The largest number of passes over the data; by default 20, or as many as take a minute if "
        "`batch_size` is set or `batches` is 'full'.",
    )
    client: Any = setting(
        None, SettingKind("Client"), "A dask.distributed.Client; by default the current one."
    )
    allow_insecure: bool = setting(
        False,
        SettingKind("bool"),
        "Whether rows and iterates may cross a network without TLS.",
    )
    in_memory: bool | None = setting(
        None,
        or_none(SettingKind("bool")),
        "Whether workers hold their rows.  If not, every step reads its batch again, and batches "
        "are blocks of consecutive rows.  By default they do if memory suffices for two copies.",
    )
    step_seconds: float = setting(
        STEP_SECONDS,
        POSITIVE,
        "The seconds that the messages of a step take on this cluster.  By default `batch_size` is "
        "so large that the messages of all steps take at most a minute (3,000 steps at the "
        "default), or no longer than the computation.",
    )
    verbose: bool = setting(
        False, SettingKind("bool"), "Whether to print the progress of the fit on stderr."
    )

    def _fit(self, held: list[Any], ledger: Any = None, key: Any = None, other: Any = None) -> Self:
        if key is not None:
            held.clear()
            must_be = "left out: rows on a cluster have no digest, so none can be unlearned"
            raise InvalidParameter("key", must_be=must_be, found="one")
        with progress_lines(verbose=self.verbose):
            return super()._fit(held, ledger, key, other)

    def unlearn(self, *_: Any, **__: Any) -> Self:
        """Raise `InvalidParameter`: on a cluster, train again without the rows to remove."""
        must_be = (
            "fitted by lastiterate.linear_model: the rows of a cluster have no digest by which to "
            "recognise them; train again without the rows to remove"
        )
        raise InvalidParameter("model", must_be=must_be, found="one fitted on a cluster")

    def _gather_inputs(self, X: Any, y: Any, settings: Any) -> FitInputs:
        if settings.text_columns:
            must_be = "left out: undeclared values are not counted on a cluster"
            raise InvalidParameter("text_columns", must_be=must_be, found="some")
        client = checked_client(settings.client, allow_insecure=settings.allow_insecure)
        refuse_raw_frame(X, settings.feature_bound)
        with throughout("counting the rows of each chunk"):
            blocks = blocks_of(X, y, client)
        bound = 1.0 if settings.feature_bound is None else settings.feature_bound
        intercept = self._constant * bound if self.fit_intercept else 0.0
        radius = float(np.hypot(bound, intercept))
        self._refuse_undeclared(blocks)
        # The public part of the task needs no target.
        task = settings._task(np.zeros(0, dtype=blocks.target_dtype), radius)
        workers = _workers(client)
        log_single_machine(workers, blocks)
        held = self._fits_in_memory(blocks, workers)
        with throughout("bringing rows to the workers"):
            examples = shard_blocks(
                client,
                blocks,
                partial(_encoded, _stripped(settings), radius),
                bound=bound,
                intercept=intercept,
                offset=task.offset,
                held=held,
                allow_insecure=settings.allow_insecure,
                arithmetic=settings.arithmetic,
            )
        shards = examples.layout.shards
        outputs = task.objective.outputs
        cost = StepCost(blocks.features, outputs, shards, settings.step_seconds)
        settings.batch_size, settings.epochs = affordable_batches(
            settings,
            task.objective,
            cost,
            examples=len(examples),
            radius=radius,
            block=1 if held else min(blocks.lengths[0] * shards, len(examples)),
        )
        task = replace(task, outside=examples.survey.outside)
        return FitInputs(task, examples, settings, CLUSTER)

    def _train(self, inputs: FitInputs, report: PrivacyReport, *, refuse: bool) -> FitResult:
        assert isinstance(inputs.examples, ClusterShards)
        log_run_length(report.run, inputs.examples.layout.shards)
        return super()._train(inputs, report, refuse=refuse)

    def _refuse_undeclared(self, blocks: Blocks) -> None:
        """Refuse a missing label set: it is published, and the driver does not see labels."""
        if hasattr(self, "classes") and self.classes is None and blocks.target_dtype.kind != "b":
            must_be = "declared for rows on a cluster: all possible labels"
            raise InvalidParameter("classes", must_be=must_be, found="none")

    def _fits_in_memory(self, blocks: Blocks, workers: Mapping[str, Any]) -> bool:
        """Whether workers hold their rows."""
        each = blocks.bytes / min(len(workers), len(blocks.lengths))
        limits = [int(one.get("memory_limit") or 0) for one in workers.values()]
        fits = not blocks.dense or all(
            limit == 0 or each <= _HELD_SHARE * limit for limit in limits
        )
        if self.in_memory is None:
            return fits or blocks.persisted
        if not self.in_memory and blocks.persisted:
            must_be = "True or left out for rows that are persisted on the cluster"
            raise InvalidParameter("in_memory", self.in_memory, must_be=must_be)
        return bool(self.in_memory)

    def _lazily(self, method: str, X: Any) -> Any:
        """The result of a method: a Dask array if X is a collection, else computed at once."""
        alone = _stripped(self)
        alone.__class__ = _local_class(type(self))
        if not is_collection(X):
            return getattr(alone, method)(X)
        like = getattr(alone, method)(np.zeros((1, self.n_features_in_)))
        return lazy_predictions(method, alone, X, like)

    @discreet
    def predict(self, X: Any) -> Any:
        """Labels or targets; lazily, as a dask array, for dask collections."""
        return self._lazily("predict", X)

    @discreet
    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The score as in scikit-learn; publishing one on private data costs privacy."""
        if not is_collection(X):
            return float(super().score(X, y, sample_weight=sample_weight))
        if sample_weight is not None:
            raise InvalidParameter(
                "sample_weight", must_be="None for dask collections", found="one"
            )
        return float(self._lazy_score(self.predict(X), target_array(y)))

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


class DaskClassifier(DaskEstimator):
    """Base class of classifiers that are fitted on a cluster."""

    @discreet
    def predict(self, X: Any, *, threshold: float = 0.0) -> Any:
        """Labels; lazily, as a dask array, for dask collections."""
        if threshold != 0.0:
            must_be = "left out here: compare decision_function with it"
            raise InvalidParameter("threshold", threshold, must_be=must_be)
        return self._lazily("predict", X)

    @discreet
    def decision_function(self, X: Any) -> Any:
        """Scores; lazily, as a dask array, for dask collections."""
        return self._lazily("decision_function", X)

    def _lazy_score(self, predicted: Any, targets: Any) -> float:
        return float((predicted == targets).mean().compute())


class DaskRegressor(DaskEstimator):
    """Base class of regressors that are fitted on a cluster."""

    def _lazy_score(self, predicted: Any, targets: Any) -> float:
        errors = ((targets - predicted) ** 2).mean()
        spread = ((targets - targets.mean()) ** 2).mean()
        return float((1.0 - errors / spread).compute())


def _workers(client: Client) -> dict[str, Any]:
    """The workers, after waiting for the first if there are none."""
    try:
        if not workers_of(client):
            client.wait_for_workers(1, timeout=_PATIENCE)
        return workers_of(client)
    except TimeoutError:
        must_be = "of a cluster with workers"
        raise InvalidParameter("client", must_be=must_be, found="none") from None
    except OSError:
        raise ClusterFailure("the scheduler does not answer") from None


def _encoded(settings: Any, radius: float, targets: NDArray[Any]) -> EncodedTargets:
    task = settings._task(targets, radius)
    return EncodedTargets(task.targets, task.silent, int(np.sum(settings._outside(targets, task))))


def _stripped(model: Any) -> Any:
    """A copy without attributes that workers must not see."""
    sent = object.__new__(type(model))
    sent.__dict__ = dict(model.__dict__) | dict.fromkeys(_NOT_SENT)
    return sent


def _local_class(kind: type) -> type:
    return next(one for one in kind.__mro__ if one.__module__.startswith(_LOCAL))


_LOCAL = ("lastiterate.linear_model.classifiers", "lastiterate.linear_model.regressors")
