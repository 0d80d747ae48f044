"""verify: derive a certificate's guarantee again, and list what was not checked."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lastiterate._display import printable, up
from lastiterate.cli.terminal import line_width
from lastiterate.errors import InvalidCertificate, InvalidParameter, OtherVersion
from lastiterate.saved_model.file_writing import CERTIFICATE
from lastiterate.saved_model.model_file import AlteredModel, SavedModel
from lastiterate.tables.files import read_object

if TYPE_CHECKING:
    from lastiterate.certificate.unlearning import UnlearningHistory
    from lastiterate.certificate.verify import VerifiedCertificate

UNCHECKED_WEIGHTS = 4  # an exit code
_MAX_NAMED_FILES = 5  # of the files that were not checked
_HOLDS = {False: "holds", True: "holds for the training alone"}
_SEEDED = "not private against someone who knows the seed: the training was reproducible"


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("verify")(verify)


def verify(
    certificate: Annotated[
        Path,
        typer.Argument(
            metavar="CERTIFICATE", help="certificate.json, or the folder of it and its model"
        ),
    ],
    model: Annotated[
        Path | None,
        typer.Option(
            help="also check that the certificate is of this model.json, model.safetensors or "
            "head.safetensors [default: those beside it]"
        ),
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
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> int:
    """Derive a certificate's guarantee again.

    With a model, also check that the certificate is of this model, columns and classes included.
    Exit code 0: the guarantee holds. 1: it does not, or the model was altered, or the training had
    a seed, or preprocessing learned from the same examples. 2: bad input. 3: another version of
    lastiterate issued it, and is named. 4: it holds, but files beside it
    were not checked and may hold weights: all but a few that are known by name or content.

    Example: lastiterate verify model
    """
    from lastiterate.certificate.verify import verified_certificate
    from lastiterate.report.sentences import fitted_steps_text
    from lastiterate.saved_model.weight_files import read_weights, weights_beside

    weights: list[Path] = [] if model is None else [model]
    unchecked: list[Path] = []
    if certificate.is_dir():
        certificate = certificate / CERTIFICATE
    described = _read_certificate(certificate)
    beside, unchecked = weights_beside(certificate)
    if model is None:
        weights = beside
    else:
        unchecked = [one for one in (*beside, *unchecked) if not _same_file(one, model)]
    try:
        read = [(path, read_weights(path)) for path in weights]
        models: list[SavedModel | None] = [one for _, one in read if isinstance(one, SavedModel)]
        for released in models or [None]:
            found = verified_certificate(
                certificate,
                parameters=None if released is None else released.parameters,
                encoding=None if released is None else released.encoding,
                signed_by=signed_by,
            )
            if released is not None and not released.matches_certificate(described):
                raise InvalidCertificate(["the model predicts by other numbers than it describes"])
        wrong = [
            f"{why}, {path}"
            for path, one in read
            if not isinstance(one, SavedModel)
            for why in one.reasons(described)
        ]
        if wrong:
            raise InvalidCertificate(wrong)
    except OtherVersion:
        raise
    except (InvalidCertificate, AlteredModel) as error:
        if as_json:
            reasons = getattr(error, "reasons", [str(error)])
            print(json.dumps({"holds": False, "reasons": reasons}, indent=1))
        else:
            print(printable(str(error)), file=sys.stderr)
        return 1
    stated = described["guarantee"]
    voided = [_SEEDED] if found.seeded else []
    voided += [fitted_steps_text(found.fitted_steps)] if found.fitted_steps else []
    notes = [*_notes(described, found, [path for path, _ in read], signed_by)]
    few, rest = unchecked[:_MAX_NAMED_FILES], len(unchecked) - _MAX_NAMED_FILES
    notes += [f"not checked: {path}, which was altered or may hold other weights" for path in few]
    notes += (
        [f"not checked: {rest:,} more, which were altered or may hold other weights"]
        if rest > 0
        else []
    )
    failed = (found.seeded and not allow_seeded) or (found.fitted_steps and not allow_fitted)
    code = 1 if failed else (UNCHECKED_WEIGHTS if unchecked else 0)
    if as_json:
        said = {"holds": code == 0, "exit code": code, "guarantee": stated, "voided by": voided}
        more = {"software": described["software"], "checked": [str(path) for path, _ in read]}
        print(json.dumps({**said, **more, "notes": notes}, indent=1))
        return code
    for line in (*voided, _verdict(described, found), *notes):
        print(printable(line))
    if report:
        from lastiterate.report.text import WIDEST, as_text

        print(f"\n{as_text(found.report, delta=stated['delta'], width=line_width(WIDEST))}")
    return code


def _same_file(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


def _verdict(described: Mapping[str, Any], found: "VerifiedCertificate") -> str:
    stated, run = described["guarantee"], found.report.run
    whose = "one example"
    if run.examples_per_person > 1:
        whose = f"one person's examples, at most {run.examples_per_person:,},"
    return (
        f"{_HOLDS[bool(found.fitted_steps)]}: epsilon = {up(stated['epsilon'])} "
        f"at delta = {stated['delta']:g}, {whose} "
        f"{'replaced' if run.adjacency == 'replace' else 'left out'}, by {stated['bound']}"
    )


def _notes(
    described: Mapping[str, Any],
    found: "VerifiedCertificate",
    weights: Sequence[Path],
    signed_by: Path | None,
) -> Iterator[str]:
    """Lines on what is on trust, and on all other checks."""
    from lastiterate.certificate.fields import on_trust

    trust, *more = on_trust(described)
    yield trust
    yield from _unlearning_requests(described, found.requests)
    yield from more
    yield from _other_checks(described, weights, signed_by)


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
    described: Mapping[str, Any], weights: Sequence[Path], signed_by: Path | None
) -> Iterator[str]:
    """Lines on other checks: rounding, the model, the signature, the preprocessing, the labels."""
    from lastiterate.certificate.fields import is_charged, noisy_counts

    if not is_charged(described):
        yield "not included: rounding errors; the guarantee is of exact arithmetic"
    if not weights:
        yield "not checked: which model it belongs to (--model)"
    for path in weights:
        yield f"of the model in {path}"
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


def _read_certificate(path: Path) -> dict[str, Any]:
    from lastiterate.certificate.verify import refuse_other_version

    must_be = "a certificate.json that `lastiterate train` wrote"
    record = read_object(path, name="certificate", must_be=must_be)
    refuse_other_version(record)
    if not {"run", "guarantee", "features"} <= set(record):
        raise InvalidParameter("certificate", str(path), must_be=must_be)
    return record
