"""train, predict."""

import csv
import hashlib
import json
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from lastiterate import _check
from lastiterate.cli.json_file import read_object
from lastiterate.cli.table_file import (
    Coding,
    checked_schema,
    declared_labels,
    read_schema,
    read_table,
)
from lastiterate.errors import InvalidParameter, LastIterateError, MissingExtra
from lastiterate.train.centring import Centre
from lastiterate.train.outputs import linear_outputs

_FORMAT = "lastiterate model 2"  # since then it has a centre
_WRITTEN = "a model.json as `lastiterate train` wrote it"
Data = Annotated[Path, typer.Argument(help="a .csv, .npz or .parquet file")]
Folder = Annotated[Path, typer.Option(help="where model.json and certificate.json go")]


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("train")(train)
    app.command("predict")(predict)


def train(
    data: Data,
    target: Annotated[str, typer.Option(help="the column to predict")],
    epsilon: Annotated[float, typer.Option(help="the guarantee")] = 1.0,
    delta: Annotated[float, typer.Option(help="well below 1 over the examples")] = 1e-5,
    schema: Annotated[
        Path | None, typer.Option(help="JSON: public vocabularies and ranges of the columns")
    ] = None,
    classes: Annotated[
        str | None, typer.Option(help="the labels, as in yes,no, unless the schema has them")
    ] = None,
    feature_bound: Annotated[
        float | None, typer.Option(help="public; longer rows are scaled down to it")
    ] = None,
    adjacency: Annotated[str, typer.Option(help="replace or zero-out")] = "replace",
    epochs: Annotated[int, typer.Option(help="passes over the data")] = 20,
    sign: Annotated[
        Path | None, typer.Option(help="a private key (Ed25519) to sign the certificate with")
    ] = None,
    out: Folder = Path("model"),
) -> None:
    """Train a classifier with privacy, and certify what ran.

    The column names and the number of rows are treated as public. --schema is a JSON file with
    what is public of the columns, {"age": {"range": [18, 90]}, "job": {"values": ["a", "b"]}}:
    numbers are mapped from their range to [-1, 1], text is coded one-hot. The values of the target
    are the labels, which are published. A row with another label counts, but teaches nothing.

    Example: lastiterate train people.csv --target income --epsilon 1 --schema people.json
    """
    from lastiterate.report.text import as_text

    model_class = _logistic_regression()
    signer = None if sign is None else _signer(sign)
    table = read_table(data)
    if target not in table:
        # Without a header, the names are a row.
        must_be = f"one of the {len(table)} names in the first line of the file"
        raise InvalidParameter("target", target, must_be=must_be)
    columns, described = tuple(name for name in table if name != target), read_schema(schema)
    unknown = sorted(set(described) - set(table))
    if unknown:
        raise InvalidParameter("schema", unknown, must_be=f"about {', '.join(table)}")
    labels_declared = declared_labels(target, described.pop(target, None), classes)
    coding = Coding(columns, described)
    rows, labels = coding.features(table), np.array([str(cell) for cell in table[target]])
    bound = float(np.sqrt(len(coding.columns))) if feature_bound is None else feature_bound
    model = model_class(
        epsilon=epsilon,
        delta=delta,
        adjacency=adjacency,
        epochs=epochs,
        feature_bound=bound,
        classes=labels_declared,
    )
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model.fit(rows, labels)
    record = {
        "format": _FORMAT,
        "target": target,
        "columns": list(coding.columns),
        "schema": coding.schema,
        "feature_bound": bound,
        "classes": model.classes_.tolist(),
        "parameters": model.parameters_.tolist(),
        "coef": model.coef_.tolist(),
        "intercept": model.intercept_.tolist(),
        "center": None if model.center_ is None else model.center_.tolist(),
        "center_bound": model.center_bound_,
    }
    text = json.dumps(record | {"digest": _digest(record)}, indent=1) + "\n"
    certificate = model.certificate_ if signer is None else signer.signed(model.certificate_)
    _write(out, {"model.json": text, "certificate.json": certificate})
    print(as_text(model.privacy_, delta=delta))
    print(f"\nwritten: {out / 'model.json'}, {out / 'certificate.json'}")
    for one in told:
        print(f"warning: {one.message}", file=sys.stderr)
    unscaled = [name for name in columns if name not in described]
    if unscaled:
        print(
            f"taken as they are: {', '.join(unscaled)}. Rows longer than {bound:.4g} were scaled "
            "down to that; public ranges in --schema help.",
            file=sys.stderr,
        )


def predict(
    model: Annotated[Path, typer.Argument(help="the model.json that train wrote")],
    data: Data,
    out: Annotated[Path | None, typer.Option(help="a CSV file; else printed")] = None,
) -> None:
    """Labels for new rows, one a line.

    Example: lastiterate predict model/model.json people.csv
    """
    record = read_model(model)
    coding = Coding(tuple(record["columns"]), record["schema"])
    rows = coding.features(read_table(data))
    scores = linear_outputs(
        rows,
        np.atleast_2d(np.array(record["coef"])),
        np.array(record["intercept"]),
        bound=record["feature_bound"],
        centre=centre_of_model(record),
    )
    chosen = (scores[:, 0] > 0.0).astype(int) if scores.shape[1] == 1 else scores.argmax(axis=1)
    labels = [[record["classes"][k]] for k in chosen]
    if out is None:
        csv.writer(sys.stdout, lineterminator="\n").writerows([[record["target"]], *labels])
        return
    with out.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([[record["target"]], *labels])


def _write(folder: Path, texts: dict[str, str]) -> None:
    """All of the files or, if interrupted, none."""
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    drafts = {folder / name: folder / f".{name}.draft" for name in texts}
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for final, draft in drafts.items():
            draft.write_text(texts[final.name], encoding="utf-8")
        for final, draft in drafts.items():
            if not final.exists():
                written.append(final)
            draft.replace(final)
    except BaseException:
        for path in (*drafts.values(), *written):
            path.unlink(missing_ok=True)
        for each in made:
            if each.is_dir():
                each.rmdir()
        raise


def _logistic_regression() -> Any:
    try:
        from lastiterate.linear_model import PrivateLogisticRegression
    except ImportError:
        raise MissingExtra("training", "scikit-learn", extra="sklearn") from None
    return PrivateLogisticRegression


def _signer(key: Path) -> Any:
    from lastiterate.certificate.signature import Signer

    return Signer(key)


def read_model(path: Path) -> dict[str, Any]:
    """What `train` wrote."""
    record = read_object(path, name="model", must_be=_WRITTEN)
    digest = record.pop("digest", None)
    if record.get("format") != _FORMAT or digest != _digest(record) or not _is_whole(record):
        raise InvalidParameter("model", str(path), must_be=_WRITTEN)
    return record


def _is_whole(record: dict[str, Any]) -> bool:
    """Whether it can predict; a digest can be computed of anything."""
    try:
        columns, classes = tuple(record["columns"]), tuple(record["classes"])
        coding = Coding(columns, checked_schema(dict(record["schema"])))
        width = coding.features({name: [0.0] for name in columns}).shape[1]
        _check.number("feature_bound", record["feature_bound"], above=0.0)
        coef, intercept, parameters = (
            np.array(record[name], dtype=np.float64) for name in ("coef", "intercept", "parameters")
        )
        centre = centre_of_model(record)
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, LastIterateError):
        return False
    names = (record.get("target"), *columns, *classes)
    outputs = 1 if len(classes) == 2 else len(classes)
    return (
        all(isinstance(name, str) for name in names)
        and len(classes) >= 2
        and coef.shape == (outputs, width)
        and intercept.shape == (outputs,)
        and parameters.shape in ((outputs, width), (outputs, width + 1))
        and all(np.isfinite(part).all() for part in (coef, intercept, parameters))
        and (centre is None or _is_centre(centre, width))
    )


def _is_centre(centre: Centre, width: int) -> bool:
    return bool(centre.mean.shape == (width,) and np.isfinite(centre.mean).all())


def centre_of_model(record: dict[str, Any]) -> Centre | None:
    """The mean that its rows were centred around."""
    mean, bound = record["center"], record["center_bound"]
    if mean is None and bound is None:
        return None
    return Centre(np.array(mean, dtype=np.float64), _check.number("center_bound", bound, above=0.0))


def _digest(record: dict[str, Any]) -> str:
    """Tells a damaged model from a whole one; no proof of where it came from."""
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
