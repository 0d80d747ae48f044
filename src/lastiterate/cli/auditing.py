"""audit: many runs of the trainer that a certificate describes, held against it."""

import hashlib
import sys
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from lastiterate._digits import down, up
from lastiterate.cli.training import read_model
from lastiterate.errors import InvalidParameter

Runs = Annotated[int, typer.Option(help="of each of two adjacent data sets")]
Confidence = Annotated[float, typer.Option(help="of a refutation")]
Jobs = Annotated[int, typer.Option(help="processes (more than 1: extra audit)")]
Record = Annotated[
    Path | None, typer.Option(help="where results are kept, so that a killed audit goes on")
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
    record: Record = None,
    delta: Annotated[float, typer.Option(help="of the epsilon that is printed")] = 1e-5,
) -> int:
    """Try to refute a certificate by rerunning its trainer on a pair of data sets made for it.

    The private data is not used.  Exit code 0: not refuted; 1: refuted; 2: bad input.

    Example: lastiterate audit --model model/model.json --runs 2000 --record audit.jsonl
    """
    from lastiterate.audit import empirical
    from lastiterate.audit.own_trainer import certified_trainer

    path = _certificate_file(model, certificate)
    parameters = None if model is None else np.array(read_model(model)["parameters"])
    trainer, report = certified_trainer(path, parameters=parameters)
    try:
        verdict = empirical.audit(
            trainer,
            report,
            runs=runs,
            confidence=confidence,
            seed=seed,
            block=50,
            jobs=jobs,
            file=record,
            name=hashlib.sha256(path.read_bytes()).hexdigest(),
        )
    except KeyboardInterrupt:
        if record is None:
            raise
        print(f"interrupted: the same command goes on from {record}", file=sys.stderr)
        return 130
    print(verdict)
    print(
        f"epsilon at delta = {delta:g}: certified {up(report.epsilon(delta))}; these runs deny "
        f"less than {down(verdict.epsilon(delta))}"
    )
    return 1 if verdict.refuted else 0


def _certificate_file(model: Path | None, certificate: Path | None) -> Path:
    if (model is None) == (certificate is None):
        found = "neither" if model is None else "both"
        name = "exactly one of --model and --certificate"
        raise InvalidParameter(name, must_be="given", found=found)
    path = certificate if model is None else model.with_name("certificate.json")
    assert path is not None
    return path
