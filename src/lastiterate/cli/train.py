"""train: a private model of a table, and the certificate of exactly what ran."""

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from lastiterate import _check
from lastiterate._display import printable
from lastiterate.cli.ledger import existing_ledger
from lastiterate.cli.options import (
    CLASSIFICATION,
    REGRESSION,
    TASKS,
    ClassPrior,
    Data,
    Delimiter,
    Force,
    RateMatching,
    RowClipNorm,
    check_scratch,
    declared_target,
    rarity_text,
    read_schema,
    row_settings,
    scratch_files,
    shares_of,
    with_features,
)
from lastiterate.cli.terminal import WITH_FORCE, line_width
from lastiterate.errors import InvalidParameter, MissingExtra
from lastiterate.features.known_maps import map_from_text
from lastiterate.saved_model.file_writing import (
    CERTIFICATE,
    MODEL,
    refuse_replacing_in,
    write_together,
    written,
)
from lastiterate.saved_model.model_file import MODELS
from lastiterate.tables.encoder import (
    EncodedTable,
    Encoder,
    LabelTarget,
    Target,
    check_is_column,
    encode_file,
    schema_in,
)
from lastiterate.tables.files import open_table

if TYPE_CHECKING:
    from lastiterate.cli.model_score import TestOptions

_TASK_OF = dict(zip(MODELS, (CLASSIFICATION,) * 2 + (REGRESSION,) * 2, strict=True))
_DEFAULT_MODEL = {CLASSIFICATION: "logistic", REGRESSION: "huber"}


def register(app: typer.Typer) -> None:
    """Add this command."""
    app.command("train")(train)


def train(
    data: Data,
    target: Annotated[str, typer.Option(help="the column to predict")],
    schema: Annotated[
        Path | None, typer.Option(help="JSON: what is publicly known about each column")
    ] = None,
    epsilon: Annotated[float, typer.Option(help="of the guarantee")] = 1.0,
    delta: Annotated[float, typer.Option(help="of the guarantee; well below 1/rows")] = 1e-5,
    task: Annotated[str, typer.Option(help="classification or regression")] = CLASSIFICATION,
    model: Annotated[
        str | None, typer.Option(help="logistic or svc; for regression huber or ridge")
    ] = None,
    classes: Annotated[
        str | None, typer.Option(help="the labels, as in yes,no, unless the schema has them")
    ] = None,
    target_range: Annotated[
        tuple[float, float] | None,
        typer.Option(help="the range of the target, unless the schema has it"),
    ] = None,
    feature_bound: Annotated[
        float | None,
        typer.Option(help="public bound on the norm of a row; longer rows are scaled down"),
    ] = None,
    features: Annotated[
        str | None,
        typer.Option(help="fixed features of encoded rows, as in scattering:28x28 or fourier:2048"),
    ] = None,
    clip_norm: RowClipNorm = None,
    class_prior: ClassPrior = None,
    rate_matching: RateMatching = 0.0,
    adjacency: Annotated[str, typer.Option(help="replace or zero-out")] = "replace",
    examples_per_person: Annotated[
        int, typer.Option(help="the most rows of one person, who is protected as a whole")
    ] = 1,
    epochs: Annotated[int, typer.Option(help="passes over the data")] = 20,
    l2: Annotated[float, typer.Option(help="L2 penalty (makes later unlearning cheaper)")] = 0.0,
    test: Annotated[Path | None, typer.Option(help="a table to score the model on")] = None,
    test_is_public: Annotated[
        bool, typer.Option("--test-is-public", help="its rows need no protection")
    ] = False,
    test_epsilon: Annotated[
        float | None, typer.Option(help="or the part of --epsilon to spend on the score")
    ] = None,
    delimiter: Delimiter = None,
    mapped: Annotated[
        Path | None,
        typer.Option(
            help="a folder, or a new name, for scratch files of the encoded rows, which it makes "
            "and removes: for more rows than memory"
        ),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(help="key file; needed for later unlearning"),
    ] = None,
    sign: Annotated[
        Path | None, typer.Option(help="a private key (Ed25519) to sign the certificate with")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="also write the report as a page with pictures")
    ] = None,
    title: Annotated[
        str | None, typer.Option(help="the heading of --html: model, data, date, author")
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(help="charge this run to a ledger; refuse to train if its budget is exceeded"),
    ] = None,
    out: Annotated[Path, typer.Option(help="where model.json and certificate.json go")] = Path(
        "model"
    ),
    force: Force = False,
    report: Annotated[bool, typer.Option("--report", help="also print the full report")] = False,
) -> None:
    """Train a private linear model on a table, and certify what ran.

    Reads the table as its schema says, trains with as little noise as the guarantee allows, and
    writes model.json and certificate.json, from which `lastiterate verify` derives the guarantee
    again without the data. Nothing is tuned on the data.

    --schema lists what is publicly known about each column: {"age": {"range": [18, 90]},
    "job": {"values": ["a", "b"]}, "name": "drop", "income": {"values": ["low", "high"]}}.
    `lastiterate schema` writes one to fill in. Numbers are mapped from their range to [-1, 1],
    text is one-hot encoded; a column without an entry is refused. The names of the columns and the
    number of rows are treated as public, and the labels are published. Rows with undeclared labels
    are counted but ignored in training.

    Example: lastiterate train people.csv --target income --epsilon 1 --schema people.json
    """
    kind = _model_kind(task, model)
    check_sklearn("training")
    from lastiterate.certificate.signature import Signer
    from lastiterate.cli.model_score import TestOptions
    from lastiterate.cli.trained_model import (
        TrainingSummary,
        as_pipeline,
        fit_table,
        schema_step,
        with_target,
    )
    from lastiterate.ledger.ledger import charges_about
    from lastiterate.report.text import WIDEST, as_text
    from lastiterate.saved_model.save import ESTIMATORS, saved_model_of

    signer = None if sign is None else Signer(sign)
    if html is not None:
        _check_pictures()
    elif title is not None:
        raise InvalidParameter("title", title, must_be="left out without --html")
    open_ledger = None if ledger is None else existing_ledger(ledger, name="ledger")
    if test is not None and test_is_public and test.resolve() == data.resolve():
        must_be = "left out where --test is the file to train on, whose rows are private"
        raise InvalidParameter("--test-is-public", must_be=must_be, found="the same file")
    test_options = TestOptions.of(test, public=test_is_public, epsilon=test_epsilon, whole=epsilon)
    table = open_table(data, delimiter=delimiter)
    check_is_column(target, table.names, public=() if schema is None else schema_in(schema))
    described = read_schema(schema, data, target)
    truth = declared_target(
        target, task, described.pop(target, None), classes=classes, target_range=target_range
    )
    prior = None if class_prior is None else shares_of(class_prior, kind, truth)
    _check_rate_matching(rate_matching, kind, key)
    if (advice := rarity_text(prior, truth, rate_matching)) is not None:
        print(f"warning: {advice}", file=sys.stderr)
    made_rows = schema_step(described, target, table.names)
    encoder: Encoder = made_rows.encoder_
    feature_map = None if features is None else map_from_text(features, encoder.width)
    if feature_bound is None and feature_map is None and encoder.unbounded:
        must_be = f"given where columns are taken as they are: {', '.join(encoder.unbounded)}"
        raise InvalidParameter("feature_bound", must_be=must_be, found="none")
    other_columns = {target: (truth.kind, lambda cells, before: truth.encode(cells, before=before))}
    settings: dict[str, Any] = {
        "epsilon": epsilon,
        "delta": delta,
        "adjacency": adjacency,
        "examples_per_person": examples_per_person,
        "epochs": epochs,
        "l2": l2,
        "clip_norm": clip_norm,
        **({"rate_matching": rate_matching} if rate_matching else {}),
        **({} if prior is None else {"class_prior": dict(enumerate(prior))}),
        **row_settings(encoder, feature_map, feature_bound),
        "ledger": open_ledger,
    }
    settings = with_target(settings, truth)
    ESTIMATORS[kind](**settings).checked()
    _check_files(out, html, mapped, force=force)
    test_table = None
    if test_options is not None:
        test_file = open_table(test_options.path, delimiter=delimiter)
        test_table = encode_file(test_file, encoder, other_columns, dtype=np.float32)
        if test_options.epsilon is None:
            _refuse_other_spellings(test_table, encoder, truth, test_options.path)
        test_table = with_features(test_table, feature_map)
    with warnings.catch_warnings(record=True) as caught, scratch_files(mapped) as (rows, wide):
        warnings.simplefilter("always")
        encoded = encode_file(table, encoder, other_columns, dtype=np.float32, mapped=rows)
        encoded = with_features(encoded, feature_map, wide)
        with charges_about(f" of {target!r}, in {out}"):
            fitted, score = fit_table(kind, settings, truth, encoded, test_options, test_table, key)
    charged = None if open_ledger is None else open_ledger.entries()[0]["hash"]
    pipeline = as_pipeline(made_rows, feature_map, fitted)
    saved, certificate = saved_model_of(pipeline, ledger=charged)
    if signer is not None:
        certificate = signer.signed(certificate)
    texts = {MODEL: saved.text(), CERTIFICATE: certificate}

    def write_model(where: Path, allowed: bool) -> None:
        write_together("out", where, texts, allowed=allowed, remedy=WITH_FORCE)

    out, taken = written("out", out, write_model, allowed=force)
    files = {
        out / MODEL: "the model and its schema",
        out / CERTIFICATE: "what ran, for `lastiterate verify`",
    }
    if html is not None:
        from lastiterate.report.html import write_html

        heading: Any = {"delta": delta, "title": title or "Privacy report"}

        def write_page(where: Path, allowed: bool) -> None:
            replacing: Any = {"name": "html", "allowed": allowed, "remedy": WITH_FORCE}
            write_html(fitted.privacy_, where, **heading, **replacing)

        html, page_taken = written("html", html, write_page, allowed=force)
        taken += page_taken
        files[html] = "the full report, with pictures"
    public = _list_unprotected(test_options)
    report_of_all = fitted.privacy_
    summary = TrainingSummary(report_of_all, delta, files, score, public, key, charged is not None)
    width = line_width(WIDEST)
    for one in caught:
        print(printable(f"warning: {one.message}"), file=sys.stderr)
    if report:
        print(f"{as_text(report_of_all, delta=delta, width=width)}\n")
    print(summary.as_text(width))
    if taken:
        raise taken[0]


def _check_files(out: Path, html: Path | None, mapped: Path | None, *, force: bool) -> None:
    """Raise unless all files can be written without the loss of one that is there."""
    refuse_replacing_in("out", out, (MODEL, CERTIFICATE), allowed=force, remedy=WITH_FORCE)
    check_scratch(mapped)
    if html is None:
        return
    from lastiterate.report.html import check_page

    check_page("html", html, allowed=force, remedy=WITH_FORCE)
    same = [one for one in (out, out / MODEL, out / CERTIFICATE, mapped) if one is not None]
    if html.resolve() in [one.resolve() for one in same]:
        raise InvalidParameter("html", str(html), must_be="another file than those of the model")


def _list_unprotected(test: "TestOptions | None") -> tuple[str, ...]:
    """Descriptions of what the guarantee does not protect."""
    rows = () if test is None or test.epsilon is not None else (f"the rows of {test.path.name}",)
    return ("the column names and the schema", "the number of rows", *rows)


def _refuse_other_spellings(
    read: EncodedTable, encoder: Encoder, truth: Target, path: Path
) -> None:
    """Raise an error if a column of a public test file has no declared value in any row.

    For a private file the error itself would leak: a single row may decide it.
    """
    unseen = encoder.unseen(read.rows)
    if isinstance(truth, LabelTarget) and not (read.other_columns[truth.name] >= 0).any():
        unseen.append(truth.name)
    if unseen:
        must_be = "one of the values that the schema has for it, in some row at least"
        found = "no such row (values may have endings or capitals of their own)"
        raise InvalidParameter(f"column {unseen[0]!r} of {path.name}", must_be=must_be, found=found)


def _model_kind(task: str, model: str | None) -> str:
    """The kind of model for a task; a model of the other task is refused."""
    _check.choice("task", task, among=TASKS)
    if model is None:
        return _DEFAULT_MODEL[task]
    among = tuple(kind for kind, of in _TASK_OF.items() if of == task)
    if model in MODELS and model not in among:
        must_be = f"one of {', '.join(among)} unless you add --task {_TASK_OF[model]}"
        raise InvalidParameter("model", model, must_be=must_be)
    return str(_check.choice("model", model, among=among))


def _check_rate_matching(rate_matching: float, kind: str, key: Path | None) -> None:
    _check.number("rate_matching", rate_matching, at_least=0.0, at_most=0.9)
    if rate_matching and kind != "logistic":
        must_be = "left out: only --model logistic has probabilities"
        raise InvalidParameter("rate_matching", must_be=must_be, found=f"--model {kind}")
    if rate_matching and key is not None:
        must_be = "left out with --key: a model with matched rates cannot unlearn rows"
        raise InvalidParameter("rate_matching", must_be=must_be, found="both")


def check_sklearn(what: str) -> None:
    """Raise `MissingExtra` unless scikit-learn, which `what` needs, is there."""
    try:
        import sklearn  # noqa: F401 - only whether it is there
    except ImportError:
        raise MissingExtra(what, "scikit-learn", extra="sklearn") from None


def _check_pictures() -> None:
    try:
        import matplotlib.figure  # noqa: F401 - only whether it is there
    except ImportError:
        raise MissingExtra("a page with pictures", "matplotlib", extra="plot") from None
