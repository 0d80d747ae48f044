"""verify: derive a certificate's guarantee again, and list what was not checked."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lastiterate._digits import up
from lastiterate.cli.terminal import line_width
from lastiterate.errors import InvalidCertificate, InvalidParameter
from lastiterate.saved_model.model_file import AlteredModel, read_model
from lastiterate.tables.json_file import read_object

if TYPE_CHECKING:
    from lastiterate.certificate.unlearning_history import UnlearningHistory

_HOLDS = {False: "holds", True: "holds for the training alone"}
_SEEDED = "not private against someone who knows the seed: the training was reproducible"


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("verify")(verify)


def verify(
    certificate: Annotated[
        Path,
        typer.Argument(
            metavar="CERTIFICATE", help="certificate.json, or the folder of it and model.json"
        ),
    ],
    model: Annotated[
        Path | None, typer.Option(help="also check that the certificate is of this model.json")
    ] = None,
    signed_by: Annotated[
        Path | None, typer.Option(help="also check the signature with this public key")
    ] = None,
    allow_seeded: Annotated[
        bool, typer.Option("--allow-seeded", help="exit with 0 even if the training had a seed")
    ] = False,
    report: Annotated[bool, typer.Option("--report", help="also print the full report")] = False,
    allow_fitted: Annotated[
        bool,
        typer.Option(
            "--allow-fitted", help="exit with 0 even if preprocessing learned from the examples"
        ),
    ] = False,
) -> int:
    """Derive a certificate's guarantee again.

    With a model, also check that the certificate is of this model, columns and classes included.
    Exit code 0: the guarantee holds. 1: it does not, or the model was altered, or the training had
    a seed, or preprocessing learned from the same examples.

    Example: lastiterate verify model
    """
    from lastiterate.certificate.fields import on_trust
    from lastiterate.certificate.verify import verified_certificate
    from lastiterate.report.run_text import fitted_steps_text

    if certificate.is_dir():
        beside = certificate / "model.json"
        model = beside if model is None and beside.exists() else model
        certificate = certificate / "certificate.json"
    described = _certificate(certificate)
    try:
        released = None if model is None else read_model(model)
        found = verified_certificate(
            certificate,
            parameters=None if released is None else released.parameters,
            encoding=None if released is None else released.encoding,
            signed_by=signed_by,
        )
        if released is not None and not released.matches_certificate(described):
            raise InvalidCertificate(["the model predicts by other numbers than it describes"])
    except (InvalidCertificate, AlteredModel) as error:
        print(error, file=sys.stderr)
        return 1
    if found.seeded:
        print(_SEEDED)
    if found.fitted_steps:
        print(fitted_steps_text(found.fitted_steps))
    stated = described["guarantee"]
    run = found.report.run
    whose = "one example"
    if run.examples_per_person > 1:
        whose = f"one person's examples, at most {run.examples_per_person:,},"
    print(
        f"{_HOLDS[bool(found.fitted_steps)]}: epsilon = {up(stated['epsilon'])} "
        f"at delta = {stated['delta']:g}, {whose} "
        f"{'replaced' if run.adjacency == 'replace' else 'left out'}, by {stated['bound']}"
    )
    trust, *more = on_trust(described)
    print(trust)
    unlearned = _unlearning_requests(described, found.requests)
    for line in (*unlearned, *more, *_other_checks(described, model, signed_by)):
        print(line)
    if report:
        from lastiterate.report.plain_text import WIDEST, as_text

        print(f"\n{as_text(found.report, delta=stated['delta'], width=line_width(WIDEST))}")
    failed = (found.seeded and not allow_seeded) or (found.fitted_steps and not allow_fitted)
    return 1 if failed else 0


def _unlearning_requests(
    described: Mapping[str, Any], requests: "UnlearningHistory"
) -> Iterator[str]:
    """A line for each unlearning request, and one for all of them together."""
    if not requests.done:
        return
    yield "for the remaining rows, and for all models of the chain together"
    chain = [*described["earlier"], described]
    for number, one in enumerate(chain[1:]):
        promised = one["unlearning"]["guarantee"]
        delta = promised["delta"]
        many = promised["examples"]
        yield (
            f"request {number + 1}: {many:,} {'row' if many == 1 else 'rows'} unlearned in "
            f"{requests.done[number].steps:,} steps, epsilon = {up(promised['epsilon'])} at delta "
            f"= {delta:g}; by now {up(requests.current_request_guarantee(number).epsilon(delta))}"
        )
    if len(requests.done) > 1:
        whole = requests.joint_request_guarantee.epsilon(delta)
        yield f"all removed rows together: epsilon = {up(whole)} at delta = {delta:g}"


def _other_checks(
    described: Mapping[str, Any], model: Path | None, signed_by: Path | None
) -> Iterator[str]:
    """Lines on other checks: the model, the signature, the preprocessing and the labels."""
    from lastiterate.certificate.fields import noisy_counts

    if model is None:
        yield "not checked: which model it belongs to (--model)"
    else:
        yield f"of the model in {model}"
    if signed_by is not None:
        yield f"signed by the owner of {signed_by}"
    elif "signature" in described:
        yield "not checked: who signed it (--signed-by)"
    else:
        yield "not signed: anyone can have written it"
    if "selection" in described:
        many = len(described["selection"]["candidates"])
        yield f"selected: the best of a secret number of tries over {many} settings"
    if "preprocessing" in described:
        public = described["preprocessing"]["declared public"]
        if public:
            yield f"on trust: {', '.join(public)} learned nothing from the same examples"
    if "feature maps" in described:
        from lastiterate.features.known_maps import map_in_words

        maps = "; ".join(map_in_words(one) for one in described["feature maps"])
        yield f"features of rows, fixed and public: {maps}"
    if "trusted" in described:
        yield f"trusted: {described['trusted']}"
    if described["labels"].startswith("inferred"):
        yield f"labels {described['labels']}"
    yield from noisy_counts(described)


def _certificate(path: Path) -> dict[str, Any]:
    must_be = "a certificate.json that `lastiterate train` wrote"
    record = read_object(path, name="certificate", must_be=must_be)
    if not {"run", "guarantee", "features"} <= set(record):
        raise InvalidParameter("certificate", str(path), must_be=must_be)
    return record
