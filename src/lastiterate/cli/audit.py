"""audit: a statistical test of a certificate by many runs of its trainer."""

import hashlib
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Annotated, Any

import typer

from lastiterate._display import down, up
from lastiterate.errors import InvalidParameter, MissingExtra
from lastiterate.saved_model.model_file import read_model

_RUNS_TRIED = (10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000)
_LIKELY_POWER = 0.9
_PATIENCE_SECONDS = 20.0  # seconds for a scheduler to answer
Runs = Annotated[int, typer.Option(help="runs on each of two adjacent data sets")]
Confidence = Annotated[float, typer.Option(help="of a refutation")]
Jobs = Annotated[int, typer.Option(help="processes (more than 1: extra audit)")]
Cluster = Annotated[
    str | None, typer.Option(help="or the address of a Dask scheduler (extra dask)")
]
Record = Annotated[
    Path | None,
    typer.Option(help="file of results, from which an interrupted or longer audit continues"),
]


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("audit")(audit)


def audit(
    model: Annotated[
        Path | None, typer.Option(help="a model.json, its certificate.json beside it")
    ] = None,
    certificate: Annotated[Path | None, typer.Option(help="or a certificate.json")] = None,
    runs: Runs = 2_000,
    confidence: Confidence = 0.99,
    seed: Annotated[int, typer.Option(help="of the audit's own runs")] = 0,
    jobs: Jobs = 1,
    cluster: Cluster = None,
    record: Record = None,
    delta: Annotated[float, typer.Option(help="of the epsilon that is printed")] = 1e-5,
) -> int:
    """Try to refute a certificate by running its trainer on two adjacent data sets.

    For a model after unlearning, it compares training and unlearning with never having seen.

    The private data is not used.  Exit code 0: not refuted; 1: refuted; 2: bad input.

    Example: lastiterate audit --model model/model.json --runs 2000 --record audit.jsonl
    """
    from lastiterate.accounting import PrivacyReport
    from lastiterate.audit import empirical
    from lastiterate.audit.certified_trainers import OwnUnlearner, trainer_of_certificate
    from lastiterate.audit.empirical import looks
    from lastiterate.profile.rounded import gdp_but_for_failure

    path = _certificate_file(model, certificate)
    parameters = None if model is None else read_model(model).parameters
    trainer, report = trainer_of_certificate(path, parameters=parameters)
    try:
        with _workers(cluster, jobs) as many:
            verdict = empirical.audit(
                trainer,
                report,
                runs=runs,
                confidence=confidence,
                seed=seed,
                block=10,
                jobs=many,
                file=record,
                name=hashlib.sha256(path.read_bytes()).hexdigest(),
            )
    except KeyboardInterrupt:
        if record is None:
            raise
        print(f"interrupted: the same command goes on from {record}", file=sys.stderr)
        return 130
    print(verdict)
    if isinstance(trainer, OwnUnlearner):
        print("audited: training and unlearning, against never having seen the rows")
    certified = f"epsilon at delta = {delta:g}: certified {up(report.epsilon(delta))}"
    denied = verdict.epsilon(delta)
    if denied > 0.0:
        print(f"{certified}; lower bound from these runs {down(denied)}")
    else:
        print(f"{certified}; no lower bound above 0 from these runs")
    if not verdict.refuted:
        parts = report.used.values() if isinstance(report, PrivacyReport) else (report,)
        print(_enough_runs(min(map(gdp_but_for_failure, parts)), confidence))
    if record is not None and len(seen := looks(record, runs)) > 1:
        print(
            f"{len(seen)} looks at this record, after {', '.join(map(str, seen))} runs: all of "
            f"them together have a confidence of {1.0 - len(seen) * (1.0 - confidence):.3%}"
        )
    return 1 if verdict.refuted else 0


@contextmanager
def _workers(cluster: str | None, jobs: int) -> Iterator[int]:
    """The number of runs at a time, here or on the cluster, to which nothing private is sent."""
    if cluster is None:
        yield jobs
        return
    if jobs != 1:
        raise InvalidParameter("--jobs", jobs, must_be="left out with --cluster")
    try:
        from distributed import Client
        from joblib import parallel_config
    except ImportError:
        raise MissingExtra("an audit on a cluster", "distributed", extra="dask") from None
    with _connect(Client, cluster) as client, parallel_config(backend="dask"):
        yield max(2, sum(client.nthreads().values()))


def _connect(client: Any, address: str) -> Any:
    """A client of the scheduler there; whatever else answers, or does not, is refused in words."""
    made: list[Any] = []

    def connect() -> None:
        try:
            made.append(client(address, timeout=_PATIENCE_SECONDS))
        except Exception as error:  # whatever else listens there may answer anything
            made.append(error)

    # What accepts a connection and then says nothing is waited for without end.
    waiting = Thread(target=connect, daemon=True)
    waiting.start()
    waiting.join(1.5 * _PATIENCE_SECONDS)
    answer = made[0] if made else TimeoutError("no answer")
    if not isinstance(answer, Exception):
        return answer
    must_be = "the address of a Dask scheduler that is running, such as tcp://localhost:8786"
    found = f"none at {address!r} ({type(answer).__name__}: {answer})"
    raise InvalidParameter("cluster", must_be=must_be, found=found)


def _enough_runs(mu: float, confidence: float) -> str:
    """A sentence on how many runs would refute a trainer with half of its noise.

    A test that refutes mu-GDP refutes every guarantee that implies it.
    """
    from scipy.special import ndtr

    from lastiterate.audit.empirical import power
    from lastiterate.profile.gaussian import GaussianProfile

    if not mu < math.inf:
        return "How many runs would refute a gross error is not known for this guarantee."
    claimed = GaussianProfile(mu)
    rate = float(ndtr(-mu))  # of both errors, were the trainer 2 mu-GDP
    for judged in _RUNS_TRIED:
        chance = power(rate, rate, claimed, runs=judged, confidence=confidence)
        if chance >= _LIKELY_POWER:
            return (
                f"A trainer with half the noise that it claims would be refuted by {2 * judged:,} "
                f"runs with probability {_LIKELY_POWER:.0%} or more."
            )
    most = 2 * _RUNS_TRIED[-1]
    return (
        f"A trainer with half the noise that it claims may not be refuted by {most:,} runs either."
    )


def _certificate_file(model: Path | None, certificate: Path | None) -> Path:
    if (model is None) == (certificate is None):
        found = "neither" if model is None else "both"
        name = "exactly one of --model and --certificate"
        raise InvalidParameter(name, must_be="given", found=found)
    path = certificate if model is None else model.with_name("certificate.json")
    assert path is not None
    return path
