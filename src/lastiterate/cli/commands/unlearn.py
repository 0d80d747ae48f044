"""unlearn: a model that has forgotten some rows of the table that it was trained on."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from lastiterate import _check
from lastiterate._digits import up
from lastiterate.cli.options.table_options import (
    CLASSIFICATION,
    REGRESSION,
    Data,
    Delimiter,
    Force,
    declared_target,
)
from lastiterate.cli.terminal import refuse_overwriting
from lastiterate.errors import InvalidParameter, PrivacyWarning
from lastiterate.run.adjacency import if_one_example_is
from lastiterate.saved_model.file_writing import write_together
from lastiterate.saved_model.model_file import SavedModel, read_model
from lastiterate.tables.file_encoding import encode_file
from lastiterate.tables.table_files import open_table


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("unlearn")(unlearn)


def unlearn(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="the folder that train or unlearn wrote")
    ],
    data: Data,
    rows: Annotated[
        str, typer.Option(help="which must go, as in 17,203; 1 is the first below the header")
    ],
    epsilon: Annotated[float, typer.Option(help="what the removed are promised")],
    key: Annotated[
        Path | None, typer.Option(help="the file with the secret that the model was trained with")
    ] = None,
    delta: Annotated[
        float | None, typer.Option(help="of the promise; that of the training if left out")
    ] = None,
    noisier: Annotated[
        float,
        typer.Option(help="times as much noise on release as the training's: fewer steps"),
    ] = 1.0,
    plan: Annotated[
        bool, typer.Option("--plan", help="say what it would take, and do nothing")
    ] = False,
    at_any_cost: Annotated[
        bool,
        typer.Option("--at-any-cost", help="even if it takes more steps than training again"),
    ] = False,
    delimiter: Delimiter = None,
    sign: Annotated[
        Path | None, typer.Option(help="a private key (Ed25519) to sign the certificate with")
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option(help="charge the extra steps to it, or take none")
    ] = None,
    out: Annotated[Path, typer.Option(help="where the new model goes")] = Path("forgotten"),
    force: Force = False,
) -> None:
    """Make a model forget some rows, and certify it.

    Takes as few extra steps without them as the promise needs, from the published parameters, and
    writes a new model.json and certificate.json, which comes with all that it follows. The table
    must be the whole one of the training, in the same order: its keyed digest is checked.

    What is published then is (epsilon, delta)-close to what would have been published had those
    rows never been there. Someone who holds the earlier model, too, has what the training gave.

    Where that takes as many steps as training again, nothing is done unless you add --at-any-cost:
    train again without those rows. Models trained with --l2 0.01 unlearn in far fewer steps.

    Example: lastiterate unlearn model people.csv --rows 17,203 --epsilon 0.5 --key secret --plan
    """
    numbers = _numbers(rows)
    saved = read_model(model / "model.json")
    if saved.saved_by_python:
        must_be = (
            "one that `lastiterate train` wrote; a model that Python saved is made to forget "
            "there: lastiterate.load(folder), and then its unlearn"
        )
        raise InvalidParameter("model", str(model), must_be=must_be)
    known = _known(saved, model / "certificate.json")
    if plan:
        print(known.plan_unlearning(numbers, epsilon=epsilon, delta=delta, noisier=noisier))
        return
    if key is None:
        must_be = (
            "the file that `train --key` was given; a model trained without one cannot unlearn: "
            "train again with --key"
        )
        raise InvalidParameter("key", must_be=must_be, found="none")
    refuse_overwriting(out / "model.json", out / "certificate.json", force=force)
    signer = None
    if sign is not None:
        from lastiterate.certificate.signature import Signer

        signer = Signer(sign)
    table = open_table(data, delimiter=delimiter)
    truth = _truth(saved)
    other_columns = {
        saved.target: (truth.kind, lambda cells, before: truth.encode(cells, before=before))
    }
    read = encode_file(table, saved.encoder, other_columns, dtype=np.float32)
    targets = read.other_columns[saved.target]
    most = len(targets)
    places = [_check.count("rows", one, at_least=1, at_most=most) - 1 for one in numbers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)  # the words below say it
        new = known.unlearn(
            read.rows,
            targets,
            rows=places,
            epsilon=epsilon,
            delta=delta,
            key=key,
            noisier=noisier,
            ledger=ledger,
            at_any_cost=at_any_cost,
        )
    certificate = new.certificate_ if signer is None else signer.signed(new.certificate_)
    learnt = {
        "parameters": new.parameters_.tolist(),
        "coef": np.atleast_2d(new.coef_).tolist(),
        "intercept": np.atleast_1d(new.intercept_).tolist(),
    }
    text = SavedModel(saved.record | learnt).text()
    write_together(out, {"model.json": text, "certificate.json": certificate})
    print(new.unlearning_)
    stated = json.loads(certificate)["guarantee"]
    print(
        f"The certificate promises those who stay epsilon = {up(stated['epsilon'])} at delta = "
        f"{stated['delta']:g} {if_one_example_is(stated['adjacency'])}, of all models that were "
        "published, together."
    )
    print(f"\nwritten: {out / 'model.json'}, {out / 'certificate.json'}")


def _numbers(rows: str) -> list[int]:
    parts = [part.strip() for part in rows.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        must_be = "row numbers with commas between them, as in 17,203"
        raise InvalidParameter("rows", rows, must_be=must_be)
    numbers = [int(part) for part in parts]
    if len(set(numbers)) < len(numbers):
        raise InvalidParameter("rows", rows, must_be="row numbers, each of them once")
    return numbers


def _truth(saved: SavedModel) -> Any:
    if saved.classes is not None:
        described: dict[str, Any] = {"values": list(saved.classes)}
        task = CLASSIFICATION
    else:
        described, task = {"range": list(saved.record["target_range"])}, REGRESSION
    return declared_target(saved.target, task, described, classes=None, target_range=None)


def _known(saved: SavedModel, certificate: Path) -> Any:
    """The fitted model that the files hold, all of its certificates derived again."""
    from lastiterate.certificate.verify import verified_certificate
    from lastiterate.saved_model.save_model import ESTIMATORS

    text = certificate.read_text(encoding="utf-8")
    verified_certificate(text, parameters=saved.parameters, encoding=saved.encoding)
    settings: dict[str, Any] = {
        "feature_bound": saved.record["feature_bound"],
        "clip_norm": saved.record.get("clip_norm"),
    }
    if (shares := saved.record.get("class_prior")) is not None:
        settings["class_prior"] = dict(enumerate(shares))
    if saved.classes is not None:
        settings["classes"] = list(range(len(saved.classes)))
    else:
        settings["target_range"] = tuple(saved.record["target_range"])
    model = ESTIMATORS[saved.record["model"]](**settings)
    centre = saved.centre
    fitted = {
        "parameters_": saved.parameters,
        "certificate_": text,
        "center_": None if centre is None else centre.mean,
        "center_bound_": None if centre is None else centre.bound,
    }
    model.__dict__.update(fitted)
    return model
