"""unlearn: a model without the influence of some rows of its training table."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from lastiterate import _check
from lastiterate._display import up
from lastiterate.cli.ledger import existing_ledger
from lastiterate.cli.options import (
    CLASSIFICATION,
    REGRESSION,
    Data,
    Delimiter,
    Force,
    declared_target,
)
from lastiterate.cli.terminal import WITH_FORCE
from lastiterate.errors import InvalidParameter, PrivacyWarning
from lastiterate.run.training_run import if_one_example_is
from lastiterate.saved_model.file_writing import (
    CERTIFICATE,
    MODEL,
    refuse_replacing_in,
    write_together,
    written,
)
from lastiterate.saved_model.model_file import SavedModel, learned_record, read_model
from lastiterate.tables.encoder import encode_file
from lastiterate.tables.files import open_table


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("unlearn")(unlearn)


def unlearn(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="the folder that train or unlearn wrote")
    ],
    data: Data,
    rows: Annotated[
        str, typer.Option(help="rows to remove, as in 17,203; row 1 is the first below the header")
    ],
    epsilon: Annotated[float, typer.Option(help="of the guarantee for the removed rows")],
    key: Annotated[
        Path | None, typer.Option(help="the key file that the model was trained with")
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="of that guarantee [default: the training's]")
    ] = None,
    noisier: Annotated[
        float,
        typer.Option(
            help="noise on release, in multiples of the training's; more noise needs fewer steps"
        ),
    ] = 1.0,
    plan: Annotated[
        bool, typer.Option("--plan", help="print the needed steps, and do nothing")
    ] = False,
    at_any_cost: Annotated[
        bool,
        typer.Option(
            "--at-any-cost", help="unlearn even if it takes more steps than training again"
        ),
    ] = False,
    delimiter: Delimiter = None,
    sign: Annotated[
        Path | None, typer.Option(help="a private key (Ed25519) to sign the certificate with")
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="charge the extra steps to this ledger, or refuse")
    ] = None,
    out: Annotated[Path, typer.Option(help="folder of the new model")] = Path("forgotten"),
    force: Force = False,
) -> None:
    """Unlearn some rows of a model, and certify the result.

    Takes the fewest extra steps without them that reach the guarantee, from the published
    parameters, and writes a new model.json and certificate.json. The table must be the training's,
    whole and in the same order: its keyed digest is checked.

    The new model is (epsilon, delta)-indistinguishable from one that never saw those rows. Against
    someone who also holds the earlier model, the training's guarantee applies.

    If that takes as many steps as training again, it is refused unless you add --at-any-cost.
    Models trained with --l2 0.01 unlearn in far fewer steps.

    Example: lastiterate unlearn model people.csv --rows 17,203 --epsilon 0.5 --key secret --plan
    """
    from lastiterate.certificate.signature import Signer
    from lastiterate.ledger.ledger import charges_about

    numbers = _row_numbers(rows)
    saved = read_model(model / MODEL)
    if not saved.made_by_command:
        must_be = (
            "one that `lastiterate train` wrote; for a model saved by Python, call unlearn on "
            "lastiterate.load(folder)"
        )
        raise InvalidParameter("model", str(model), must_be=must_be)
    fitted = _verified_model(saved, model / CERTIFICATE)
    if plan:
        print(fitted.plan_unlearning(numbers, epsilon=epsilon, delta=delta, noisier=noisier))
        return
    if key is None:
        must_be = (
            "the key file of `train --key`; a model trained without one cannot unlearn: train "
            "again with --key"
        )
        raise InvalidParameter("key", must_be=must_be, found="none")
    signer = None if sign is None else Signer(sign)
    open_ledger = _ledger(ledger, saved.record.get("ledger"))
    refuse_replacing_in("out", out, (MODEL, CERTIFICATE), allowed=force, remedy=WITH_FORCE)
    table = open_table(data, delimiter=delimiter)
    truth = _declared_target(saved)
    other_columns = {
        saved.target: (truth.kind, lambda cells, before: truth.encode(cells, before=before))
    }
    read = encode_file(table, saved.encoder, other_columns, dtype=np.float32)
    targets = read.other_columns[saved.target]
    most = len(targets)
    places = [_check.count("rows", one, at_least=1, at_most=most) - 1 for one in numbers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)  # the text below says it
        with charges_about(f" of {saved.target!r}, in {out}"):
            new = fitted.unlearn(
                saved.features(read.rows),
                targets,
                rows=places,
                epsilon=epsilon,
                delta=delta,
                key=key,
                noisier=noisier,
                ledger=open_ledger,
                at_any_cost=at_any_cost,
            )
    certificate = new.certificate_ if signer is None else signer.signed(new.certificate_)
    text = SavedModel(saved.record | learned_record(new)).text()
    files = {MODEL: text, CERTIFICATE: certificate}

    def write(where: Path, allowed: bool) -> None:
        write_together("out", where, files, allowed=allowed, remedy=WITH_FORCE)

    out, taken = written("out", out, write, allowed=force)
    print(new.unlearning_)
    stated = json.loads(certificate)["guarantee"]
    condition = if_one_example_is(stated["adjacency"])
    print(
        f"For the remaining rows, epsilon = {up(stated['epsilon'])} at delta = "
        f"{stated['delta']:g} {condition}, for all published models together."
    )
    print(f"\nwritten: {out / MODEL}, {out / CERTIFICATE}")
    if taken:
        raise taken[0]


def _ledger(file: Path | None, charged: str | None) -> Any:
    """The ledger of the option, which must be the one that the training was charged to, if any."""
    must_be = "the ledger that the training was charged to, since unlearning is one more release"
    if file is None:
        if charged is not None:
            raise InvalidParameter("ledger", must_be=must_be, found="none")
        return None
    found = existing_ledger(file, name="ledger")
    if charged not in (None, found.entries()[0]["hash"]):
        raise InvalidParameter("ledger", must_be=must_be, found=f"{file}, which is another")
    return found


def _row_numbers(rows: str) -> list[int]:
    parts = [part.strip() for part in rows.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        must_be = "row numbers with commas between them, as in 17,203"
        raise InvalidParameter("rows", rows, must_be=must_be)
    numbers = [int(part) for part in parts]
    if len(set(numbers)) < len(numbers):
        raise InvalidParameter("rows", rows, must_be="distinct row numbers")
    return numbers


def _declared_target(saved: SavedModel) -> Any:
    if saved.classes is not None:
        described: dict[str, Any] = {"values": list(saved.classes)}
        task = CLASSIFICATION
    else:
        described, task = {"range": list(saved.record["target_range"])}, REGRESSION
    return declared_target(saved.target, task, described, classes=None, target_range=None)


def _verified_model(saved: SavedModel, certificate: Path) -> Any:
    """The fitted model that the files hold, all of its certificates derived again.

    Its labels are their positions, as those of the table are.
    """
    from lastiterate.cli.trained_model import relabel
    from lastiterate.saved_model.load import loaded

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)  # about a training that is done
        model = loaded(saved, certificate.read_text(encoding="utf-8"), None)[-1]
    if saved.classes is not None:
        relabel(model, np.arange(len(saved.classes)))
    return model
