"""verify: a certificate's guarantee, derived again, and what was not checked."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from lastiterate._digits import up
from lastiterate.cli.json_file import read_object
from lastiterate.cli.training import centre_of_model, read_model
from lastiterate.errors import InvalidCertificate, InvalidParameter
from lastiterate.releases import MEAN
from lastiterate.train.centring import Centre, as_published

_SEEDED = "not private against someone who knows the seed: the training was reproducible"


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("verify")(verify)


def verify(
    certificate: Annotated[Path, typer.Argument(help="the certificate.json that train wrote")],
    model: Annotated[
        Path | None, typer.Option(help="also check that it belongs to this model.json")
    ] = None,
    signed_by: Annotated[
        Path | None, typer.Option(help="a public key: also check that its owner signed it")
    ] = None,
    allow_seeded: Annotated[
        bool, typer.Option("--allow-seeded", help="exit with 0 for a training with a seed, too")
    ] = False,
) -> int:
    """Derive a certificate's guarantee again.

    Exit code 0: it holds. 1: it does not, or the training had a seed.

    Example: lastiterate verify model/certificate.json --model model/model.json
    """
    from lastiterate.certificate.verify import verified

    described = _certificate(certificate)
    released = None if model is None else read_model(model)
    parameters = None if released is None else np.array(released["parameters"])
    try:
        found = verified(certificate, parameters=parameters, signed_by=signed_by)
        if released is not None and not _predicts_as_described(released, described):
            raise InvalidCertificate(["the model predicts by other numbers than it describes"])
    except InvalidCertificate as error:
        print(error, file=sys.stderr)
        return 1
    if found.seeded:
        print(_SEEDED)
    stated = described["guarantee"]
    replaced = found.report.run.adjacency == "replace"
    print(
        f"holds: epsilon = {up(stated['epsilon'])} at delta = {stated['delta']:g}, one example "
        f"{'replaced' if replaced else 'left out'}, by {stated['bound']}"
    )
    for line in _besides(described, model, signed_by):
        print(line)
    return 1 if found.seeded and not allow_seeded else 0


def _besides(
    described: Mapping[str, Any], model: Path | None, signed_by: Path | None
) -> Iterator[str]:
    """What else was checked, and what was not."""
    if model is None:
        yield "not checked: to which model it belongs (--model)"
    else:
        yield f"of the model in {model}"
    if signed_by is not None:
        yield f"signed by the owner of {signed_by}"
    elif "signature" in described:
        yield "not checked: who signed it (--signed-by)"
    else:
        yield "not signed: anyone can have written it"
    if described["labels"].startswith("inferred"):
        yield f"labels {described['labels']}"


def _certificate(path: Path) -> dict[str, Any]:
    must_be = "a certificate.json that `lastiterate train` wrote"
    record = read_object(path, name="certificate", must_be=must_be)
    if not {"run", "guarantee", "features"} <= set(record):
        raise InvalidParameter("certificate", str(path), must_be=must_be)
    return record


def _predicts_as_described(record: dict[str, Any], described: Mapping[str, Any]) -> bool:
    """Whether what predicts is what the certificate is about."""
    features, centre = described["features"], centre_of_model(record)
    constant, bound = features["intercept"], features["bound"]
    if record["feature_bound"] != bound or not _is_published(centre, described):
        return False
    parameters = np.array(record["parameters"])
    coef, intercept = np.atleast_2d(np.array(record["coef"])), np.array(record["intercept"])
    width = coef.shape[1]
    expected = constant * parameters[:, width] if constant else np.zeros(len(parameters))
    if centre is not None:
        parameters = parameters * (bound / centre.bound)
        expected = expected - centre.outputs(coef)
    return np.array_equal(coef, parameters[:, :width]) and np.array_equal(intercept, expected)


def _is_published(centre: Centre | None, described: Mapping[str, Any]) -> bool:
    """Whether the centre is the one that was charged for."""
    stated = [one for one in described["besides"] if one["kind"] == MEAN]
    if centre is None or not stated:
        return centre is None and not stated
    return bool(stated[0]["published"] == as_published(centre))
