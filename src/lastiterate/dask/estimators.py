r"""The private linear models of `lastiterate.linear_model`, fitted on a Dask cluster.

**The cost of a step.**  A step sends the parameters to W workers and a gradient back from each, 8
dK bytes either way for d parameters of K outputs, and takes

.. math:: s + \frac{2 \cdot 8 d K W}{B} + \frac{2 b d K}{W F}

seconds: `step_seconds` s for messages, however short; B bytes a second on the driver's network;
and two products with the b rows of a batch at F multiplications and additions a second.  On rows
that one machine could hold, messages are nearly all of it.

Unset settings are chosen as for rows in memory, 20 passes over the data in the number of steps of
`train.defaults`, unless the messages of these steps would take longer than a minute and longer
than the computation.  Then there are fewer steps, on larger batches.  Larger batches alone
would gain nothing: with as many steps, batches of all rows change accuracy by .1 points or less
(benchmarks/dask_measured.md).
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Any, Self

import numpy as np
from distributed import Client
from distributed.system import MEMORY_LIMIT
from numpy.typing import NDArray

from lastiterate import _check
from lastiterate._numerics.rounding import Array
from lastiterate._progress import listen, throughout
from lastiterate.accounting import PrivacyReport
from lastiterate.certificate.fields import CLUSTER
from lastiterate.dask.cluster import (
    ClusterFailure,
    ClusterShards,
    checked_client,
    is_on_this_machine,
    shard_blocks,
    workers_of,
)
from lastiterate.dask.shards import (
    Blocks,
    EncodedTargets,
    blocks_of,
    is_collection,
    lazy_predictions,
    target_array,
)
from lastiterate.errors import InvalidParameter
from lastiterate.linear_model import classifiers, regressors
from lastiterate.linear_model.estimator import FitInputs, FitResult, PrivateLinearModel
from lastiterate.linear_model.inputs import refuse_raw_frame
from lastiterate.run.batch_rules.base import RULES
from lastiterate.run.training_run import TrainingRun
from lastiterate.train.defaults import steps_asked_for
from lastiterate.train.discreet import discreet
from lastiterate.train.objectives import Objective
from lastiterate.train.settings import POSITIVE, SettingKind, documented, or_none, setting

STEP_SECONDS = 0.02
RATE = 1e9  # multiplications and additions a second, of one worker
_PASSES = 20
_LEAST_BATCH = 16
_MESSAGE_SECONDS = 60.0  # seconds that messages may take, however short computing is
_HELD_SHARE = 0.3  # of a worker's memory: arranging rows needs two copies
_WAIT_FOR_A_WORKER = 60.0  # seconds for a first worker
_NOT_SENT = ("client", "ledger", "ledger_", "random_state", "privacy_", "certificate_")
_LOCAL = ("lastiterate.linear_model.classifiers", "lastiterate.linear_model.regressors")
LOG = logging.getLogger("lastiterate.dask")
_FIRST_INTERVAL, _LAST_INTERVAL = 5.0, 60.0  # seconds between lines, at first and in the end
_SHORTEST_TASK = 1.0  # seconds; shorter tasks have no second line
_COPIES = 3  # of the rows, which a training in memory may take for a while


@dataclass(frozen=True)
class StepCost:
    """Seconds and bytes of one step."""

    features: int
    outputs: int
    workers: int
    step_seconds: float = STEP_SECONDS
    rate: float = RATE
    network: float = math.inf  # bytes a second, of the driver

    @property
    def bytes(self) -> float:
        """The bytes that the driver sends and receives."""
        return 2.0 * 8.0 * self.features * self.outputs * self.workers

    @property
    def hidden_rows(self) -> int:
        """The number of rows that are computed while messages are under way."""
        return math.ceil(
            self.step_seconds * self.rate * self.workers / (2.0 * self.features * self.outputs)
        )

    def computing(self, rows: int) -> float:
        """The seconds that products with this many rows take."""
        return 2.0 * rows * self.features * self.outputs / (self.workers * self.rate)

    def seconds(self, batch_size: int) -> float:
        """Seconds that one step takes."""
        return self.step_seconds + self.bytes / self.network + self.computing(batch_size)

    def most_steps(self, rows: int) -> int:
        """The steps whose messages take a minute or, if longer, as long as computing `rows`."""
        return max(int(max(_MESSAGE_SECONDS, self.computing(rows)) / self.step_seconds), 1)


def affordable_batches(
    settings: Any, objective: Objective, cost: StepCost, *, examples: int, radius: float, block: int
) -> tuple[int | None, int]:
    """Batch size and most passes for settings that leave them open, from public quantities.

    Batches of more than a `block` of rows are whole numbers of these.
    """
    steps_needed = steps_asked_for(objective, settings, examples=examples, radius=radius)
    size, passes = settings.batch_size, settings.epochs
    known = size if RULES[settings.batches].ordered else examples
    if known is not None:
        if passes is None:
            steps = min(steps_needed, int(_MESSAGE_SECONDS / cost.seconds(known)))
            passes = max(_PASSES, steps // max(examples // max(known, 1), 1))
        return size, passes
    passes = _PASSES if passes is None else passes
    most = cost.most_steps(passes * examples)
    a_pass = math.ceil(min(steps_needed, most) / passes)
    # Rounded up where steps are to be few, else as for rows in memory.
    size = max(-(-examples // a_pass) if steps_needed > most else examples // a_pass, _LEAST_BATCH)
    return min(-(-size // block) * block, examples), passes


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
                partial(_encode_targets_with, _copy_to_send(settings), radius),
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

    def _call_lazily(self, method: str, X: Any) -> Any:
        """The result of a method: a Dask array if X is a collection, else computed at once."""
        alone = _copy_to_send(self)
        alone.__class__ = _local_class(type(self))
        if not is_collection(X):
            return getattr(alone, method)(X)
        like = getattr(alone, method)(np.zeros((1, self.n_features_in_)))
        return lazy_predictions(method, alone, X, like)

    @discreet
    def predict(self, X: Any) -> Any:
        """Labels or targets; lazily, as a dask array, for dask collections."""
        return self._call_lazily("predict", X)

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
        return self._call_lazily("predict", X)

    @discreet
    def decision_function(self, X: Any) -> Any:
        """Scores; lazily, as a dask array, for dask collections."""
        return self._call_lazily("decision_function", X)

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
            client.wait_for_workers(1, timeout=_WAIT_FOR_A_WORKER)
        return workers_of(client)
    except TimeoutError:
        must_be = "of a cluster with workers"
        raise InvalidParameter("client", must_be=must_be, found="none") from None
    except OSError:
        raise ClusterFailure("the scheduler does not answer") from None


def _encode_targets_with(settings: Any, radius: float, targets: NDArray[Any]) -> EncodedTargets:
    task = settings._task(targets, radius)
    return EncodedTargets(
        task.targets, task.silent, int(np.sum(settings._targets_outside(targets, task)))
    )


def _copy_to_send(model: Any) -> Any:
    """A copy without attributes that workers must not see."""
    sent = object.__new__(type(model))
    sent.__dict__ = dict(model.__dict__) | dict.fromkeys(_NOT_SENT)
    return sent


def _local_class(kind: type) -> type:
    return next(one for one in kind.__mro__ if one.__module__.startswith(_LOCAL))


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class PrivateLogisticRegression(DaskClassifier, classifiers.PrivateLogisticRegression):
    """Logistic regression on a cluster that publishes only the last iterate.

    As `lastiterate.linear_model.PrivateLogisticRegression`, for rows in dask collections.

    {parameters}

    Attributes
    ----------
    privacy_, certificate_, coef_, intercept_, classes_, parameters_, n_iter_, n_features_in_
        As in `lastiterate.linear_model.PrivateLogisticRegression`.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask.distributed import Client
    >>> from lastiterate.dask import PrivateLogisticRegression
    >>> X = da.random.default_rng(0).uniform(-0.5, 0.5, size=(4_000, 3), chunks=(1_000, 3))
    >>> with Client(processes=False, dashboard_address=None):
    ...     model = PrivateLogisticRegression(epsilon=1.0).fit(X, X[:, 0] > 0.0)
    ...     model.privacy_.epsilon(1e-5) <= 1.0
    ...     model.predict(X).shape, model.decision_function(X).shape
    ...     model.predict_proba(X).shape, model.predict_log_proba(X).shape
    True
    ((4000,), (4000,))
    ((4000, 2), (4000, 2))
    """

    @discreet
    def predict_proba(self, X: Any) -> Array:
        """Probabilities, one column for each class; lazily for dask collections."""
        return self._call_lazily("predict_proba", X)  # type: ignore[no-any-return]

    @discreet
    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms of the probabilities."""
        return self._call_lazily("predict_log_proba", X)  # type: ignore[no-any-return]


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class PrivateLinearSVC(DaskClassifier, classifiers.PrivateLinearSVC):
    """Linear support vector machine on a cluster.

    As `lastiterate.linear_model.PrivateLinearSVC`, for rows in dask collections.

    {parameters}

    Attributes
    ----------
    privacy_, certificate_, coef_, intercept_, classes_, parameters_, n_iter_, n_features_in_
        As in `lastiterate.linear_model.PrivateLinearSVC`.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask.distributed import Client
    >>> from lastiterate.dask import PrivateLinearSVC
    >>> X = da.random.default_rng(0).uniform(-0.5, 0.5, size=(4_000, 3), chunks=(1_000, 3))
    >>> with Client(processes=False, dashboard_address=None):
    ...     model = PrivateLinearSVC(epsilon=1.0).fit(X, X[:, 0] > 0.0)
    ...     model.privacy_.epsilon(1e-5) <= 1.0
    ...     model.predict(X).shape, model.decision_function(X).shape
    True
    ((4000,), (4000,))
    """


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class PrivateRidge(DaskRegressor, regressors.PrivateRidge):
    """Least squares with a penalty on a cluster.

    As `lastiterate.linear_model.PrivateRidge`, for rows in dask collections.

    {parameters}

    Attributes
    ----------
    privacy_, certificate_, coef_, intercept_, target_bound_, parameters_, n_iter_, n_features_in_
        As in `lastiterate.linear_model.PrivateRidge`.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask.distributed import Client
    >>> from lastiterate.dask import PrivateRidge
    >>> X = da.random.default_rng(0).uniform(-0.5, 0.5, size=(4_000, 3), chunks=(1_000, 3))
    >>> with Client(processes=False, dashboard_address=None):
    ...     model = PrivateRidge(epsilon=1.0, target_range=(-1, 1)).fit(X, X[:, 0])
    ...     model.privacy_.epsilon(1e-5) <= 1.0
    ...     model.predict(X).shape
    True
    (4000,)
    """


@documented
@dataclass(eq=False, repr=False, kw_only=True)
class PrivateHuberRegressor(DaskRegressor, regressors.PrivateHuberRegressor):
    """Regression that is linear in large errors on a cluster.

    As `lastiterate.linear_model.PrivateHuberRegressor`, for rows in dask collections.

    {parameters}

    Attributes
    ----------
    privacy_, certificate_, coef_, intercept_, target_bound_, parameters_, n_iter_, n_features_in_
        As in `lastiterate.linear_model.PrivateHuberRegressor`.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask.distributed import Client
    >>> from lastiterate.dask import PrivateHuberRegressor
    >>> X = da.random.default_rng(0).uniform(-0.5, 0.5, size=(4_000, 3), chunks=(1_000, 3))
    >>> with Client(processes=False, dashboard_address=None):
    ...     model = PrivateHuberRegressor(epsilon=1.0, target_range=(-1, 1)).fit(X, X[:, 0])
    ...     model.privacy_.epsilon(1e-5) <= 1.0
    ...     model.predict(X).shape
    True
    (4000,)
    """


@contextmanager
def progress_lines(*, verbose: bool) -> Iterator[None]:
    """Progress lines on stderr if `verbose`."""
    if not verbose:
        yield
        return
    with listen(_Lines().show):
        yield


class _Lines:
    """Progress lines: the task, the share of it that is done, and an estimate of the time left."""

    def __init__(self) -> None:
        self._what: str | None = None
        self._begun = self._due = 0.0
        self._between = _FIRST_INTERVAL

    def show(self, what: str, share: float | None) -> None:
        """Print a line if it is the first of its kind, the last, or one is due."""
        now = monotonic()
        if what != self._what:
            self._what, self._begun, self._due, self._between = what, now, now, _FIRST_INTERVAL
        over = share == 1.0
        if not over and now < self._due:
            return
        if not over or now - self._begun >= _SHORTEST_TASK:
            self._print_progress(what, share, now - self._begun)
        self._due = now + self._between
        self._between = min(2.0 * self._between, _LAST_INTERVAL)
        if over:
            self._what = None

    def _print_progress(self, what: str, share: float | None, waited: float) -> None:
        line = f"lastiterate: {what}"
        if share == 1.0:
            line += f", done after {waited:.0f} s"
        elif waited > 0.0:
            line += f", after {waited:.0f} s"
            if share:
                line += f" {share:.0%} done, about {waited / share - waited:.0f} s left"
        print(line, file=sys.stderr, flush=True)


def log_single_machine(workers: Iterable[str], blocks: Blocks) -> None:
    """Log a line if all workers are on this machine, where each step's messages gain nothing."""
    if not all(map(is_on_this_machine, workers)):
        return
    instead = "on a numpy.memmap of a file of rows"
    if blocks.dense and _COPIES * blocks.bytes <= MEMORY_LIMIT:
        instead = f"on X.compute(), since rows of {blocks.bytes / 1e6:,.0f} MB fit into memory"
    LOG.warning(
        "All workers are on this machine, where the messages of a step take longer than its "
        "computation: lastiterate.linear_model trains the same models faster, %s.  "
        "(verbose=True shows the progress.)",
        instead,
    )


def log_run_length(run: TrainingRun, workers: int) -> None:
    """Log how many steps are about to be made, and on how many rows each."""
    LOG.info(
        "%s steps, each on %s of %s rows, on %s workers",
        f"{run.steps:,}",
        f"{run.batches.batch_size:,}",
        f"{run.batches.examples:,}",
        workers,
    )
