"""Options that commands share: those that describe a run, those of tables, and their defaults.

A run is described by flags, by a TOML or JSON file, or by a file that flags change: `takes_run`
gives a command these options.  What flags leave out has the defaults of DP-SGD libraries, each of
which is stated to the user.
"""

import dataclasses
import functools
import inspect
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import typer

from lastiterate._files import refuse_replacing, write_whole
from lastiterate.errors import InvalidParameter, InvalidType
from lastiterate.features.maps import FeatureMap
from lastiterate.run.batch_rules.base import Resampling
from lastiterate.run.description import ALTERNATIVES, NAMES, Description
from lastiterate.run.serialise import from_dict, from_toml, is_written_out, parsed, words_to_toml
from lastiterate.run.training_run import (
    ADD_REMOVE,
    ADJACENCIES,
    RELEASES,
    TrainingRun,
    usual_adjacency,
)
from lastiterate.tables.column_rules import Categorical, Numeric, range_of, rule_of
from lastiterate.tables.encoder import (
    EncodedTable,
    Encoder,
    InMemory,
    LabelTarget,
    NumberTarget,
    Target,
    schema_in,
)

_GROUPED = re.compile(r"[+]?\d{1,3}(?:,\d{3})+")

_FINITE = re.compile(r"[+]?[\d_]*\.?[\d_]*(?:[eE][+]?\d{1,3})?")

_ASSUMED_POISSON = (
    "assumed: --batches poisson (each step draws every example with probability "
    "batch-size/examples), as Opacus does by default. For a loader that "
    "shuffles say --batches shuffled-each-epoch."
)

_ASSUMED_SHUFFLED = "assumed: --batches shuffled-once (a secret order, kept in every epoch)."

_ASSUMED_ADJACENCY = {
    "zero-out": "assumed: --adjacency zero-out (one example is left out), as DP-SGD accountants "
    "do, whatever the batches. For one example replaced by another say --adjacency replace.",
    "replace": "assumed: --adjacency replace (one example becomes another), as --sensitivity is "
    "of two examples. For one that is left out say --adjacency zero-out, and its --sensitivity.",
}

_MISSING_FLAGS = {  # as it is easiest to give
    ("batch_size", "sample_rate"): "--batch-size",
    ("epochs", "steps"): "--epochs (or --steps)",
    ("noise_multiplier", "noise_std"): "--noise-multiplier (or --noise-std)",
    ("clip_norm", "sensitivity", "lipschitz"): "--clip-norm (or --sensitivity)",
}

_SMOOTHNESS = (
    "--smoothness (logistic regression on rows of norm at most R: R^2/4 plus the penalty, softmax: "
    "R^2/2 plus it; state weight decay as --regulariser)"
)

_FILE_KINDS = {".toml": "TOML", ".json": "JSON"}

_ANSWER_KEYS = {"delta", "epsilon", "run"}  # what `account --json` and `calibrate --json` both have

CLASSIFICATION, REGRESSION = "classification", "regression"

TASKS = (CLASSIFICATION, REGRESSION)

_RARE_SHARE = 0.2  # a share below which clipping makes probabilities far too small


def whole_number(text: str) -> int:
    """The whole number that a text such as 50000, 50_000, 50,000 or 5e4 stands for.

    >>> [whole_number(text) for text in ("50000", "50_000", "50,000", "5e4")]
    [50000, 50000, 50000, 50000]
    """
    plain = text.strip().replace(",", "") if _GROUPED.fullmatch(text.strip()) else text.strip()
    try:
        return int(plain)
    except ValueError:
        pass
    try:
        number = float(plain) if _FINITE.fullmatch(plain) else None
    except ValueError:
        number = None
    if number is None or not number.is_integer():
        raise typer.BadParameter(f"{text!r} is not a whole number, such as 50000, 50,000 or 5e4")
    return int(number)


def among(words: Iterable[str]) -> Callable[[str], list[str]]:
    """The completion that offers those of the words that begin with what was typed."""
    offered = tuple(words)

    def complete(typed: str) -> list[str]:  # typer reads the annotation
        return [word for word in offered if word.startswith(typed)]

    return complete


def flag(name: str) -> str:
    """The flag of a parameter as it is typed."""
    return f"--{name.replace('_', '-')}"


RunFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="RUN",
        help="a run in a .toml or .json file, as --save and account --json write it; "
        "options override the file",
    ),
]

Examples = Annotated[
    int | None,
    typer.Option(parser=whole_number, metavar="<int>", help="number of training examples"),
]

BatchSize = Annotated[
    int | None, typer.Option(parser=whole_number, metavar="<int>", help="examples per batch")
]

SampleRate = Annotated[
    float | None, typer.Option(help="batch-size/examples (instead of --batch-size)")
]

Rule = Annotated[
    str | None,
    typer.Option(
        "--batches",
        autocompletion=among(NAMES),
        help=f"one of {', '.join(NAMES)} [default: shuffled-once with --sensitivity, else poisson]",
    ),
]

Epochs = Annotated[
    float | None,
    typer.Option(help="passes over the examples, each of examples/batch-size steps (or --steps)"),
]

Steps = Annotated[
    int | None,
    typer.Option(parser=whole_number, metavar="<int>", help="gradient steps (or --epochs)"),
]

StepSize = Annotated[
    float | None,
    typer.Option(
        "--step-size",
        "--lr",
        help="learning rate of SGD; without it, every iterate is charged",
    ),
]

NoiseStd = Annotated[
    float | None, typer.Option(help="standard deviation of the noise on the averaged gradient")
]

NoiseMultiplier = Annotated[
    float | None, typer.Option(help="noise on the summed gradient over --clip-norm, as in DP-SGD")
]

ClipNorm = Annotated[
    float | None, typer.Option(help="the norm to which each example's gradient is clipped")
]

Sensitivity = Annotated[
    float | None,
    typer.Option(
        help="largest distance between the gradients of two examples (with --adjacency zero-out, "
        "largest gradient norm) [default: from --clip-norm]"
    ),
]

Smoothness = Annotated[
    float | None, typer.Option(help="smoothness of every example's loss, regulariser included")
]

StrongConvexity = Annotated[float, typer.Option(help="strong convexity of every example's loss")]

Regulariser = Annotated[float, typer.Option(help="curvature of a penalty added in every step")]

Lipschitz = Annotated[
    float | None,
    typer.Option(help="bound on the norm of every gradient, so that clipping is never active"),
]

Outputs = Annotated[
    int | None,
    typer.Option(
        parser=whole_number,
        metavar="<int>",
        help="outputs of a linear model: 1 for two classes, K for a softmax of K (for other "
        "models the number of parameters); lowers epsilon where steps are short",
    ),
]

NonConvex = Annotated[bool, typer.Option("--non-convex", help="losses may be non-convex")]

Diameter = Annotated[
    float | None, typer.Option(help="diameter of the ball onto which iterates are projected")
]

ReleaseNoise = Annotated[
    float, typer.Option("--release-noise-std", help="noise added once, to the published model")
]

Adjacency = Annotated[
    str | None,
    typer.Option(
        autocompletion=among((*ADJACENCIES, ADD_REMOVE)),
        help="replace (one example becomes another) or zero-out (one is left out; for poisson "
        "this is add-remove) [default: replace with --sensitivity, else zero-out]",
    ),
]

ExamplesPerPerson = Annotated[
    int, typer.Option(help="most examples of one person; all of them are protected together")
]

Releases = Annotated[
    str | None,
    typer.Option(
        autocompletion=among(RELEASES),
        help="last-iterate, last-iterate-and-order or every-iterate [default: last-iterate; "
        "every-iterate without --step-size]",
    ),
]

Momentum = Annotated[float, typer.Option(help="momentum of the steps, as in torch.optim.SGD")]

Dampening = Annotated[float, typer.Option(help="dampening of the momentum, but in its first step")]

Nesterov = Annotated[bool, typer.Option("--nesterov", help="momentum in Nesterov's form")]

Save = Annotated[Path | None, typer.Option(help="also write the run to this .toml file")]


def run_from_flags(
    run: RunFile = None,
    examples: Examples = None,
    batch_size: BatchSize = None,
    sample_rate: SampleRate = None,
    batches: Rule = None,
    epochs: Epochs = None,
    steps: Steps = None,
    step_size: StepSize = None,
    noise_std: NoiseStd = None,
    noise_multiplier: NoiseMultiplier = None,
    clip_norm: ClipNorm = None,
    sensitivity: Sensitivity = None,
    smoothness: Smoothness = None,
    strong_convexity: StrongConvexity = 0.0,
    regulariser: Regulariser = 0.0,
    lipschitz: Lipschitz = None,
    outputs: Outputs = None,
    non_convex: NonConvex = False,
    diameter: Diameter = None,
    release_noise_std: ReleaseNoise = 0.0,
    adjacency: Adjacency = None,
    examples_per_person: ExamplesPerPerson = 1,
    releases: Releases = None,
    momentum: Momentum = 0.0,
    dampening: Dampening = 0.0,
    nesterov: Nesterov = False,
) -> Description | TrainingRun:
    """The run that the file and the flags describe; flags take precedence over the file."""
    words = {name: value for name, value in locals().items() if value != _FLAG_DEFAULTS[name]}
    _refuse_contradictions(words)
    file = words.pop("run", None)
    if words.pop("non_convex", False):
        words["convex"] = False
    return Description(**words) if file is None else read_run(file, words)


_FLAGS = inspect.signature(run_from_flags).parameters

_FLAG_DEFAULTS = {name: one.default for name, one in _FLAGS.items()}


def takes_run(
    command: Callable[..., None], *, seeks_noise: bool = False, saves: bool = False
) -> Callable[..., None]:
    """The command with the options that describe a run in place of its first argument.

    It prints the defaults that it assumed after its answer.
    """
    own = dict(list(inspect.signature(command).parameters.items())[1:])

    @functools.wraps(command)
    def with_flags(**values: Any) -> None:
        said = run_from_flags(**{name: values.pop(name) for name in _FLAGS})
        file = values.pop("save") if saves else None
        if file is not None:
            check_new(file)
        if isinstance(said, Description):
            filled = with_defaults(said, seeks_noise=seeks_noise)
            run, assumed = filled.run(), assumptions(said, filled)
        else:
            filled, run, assumed = None, said, []
        if file is not None:
            write_whole("save", file, as_toml(filled, run))
        command(run, **values)
        if file is not None:
            print(f"written: {file}", file=sys.stderr)
        for line in assumed:
            print(line, file=sys.stderr)

    merged = {**_FLAGS, **own}
    if saves:
        merged["save"] = inspect.Parameter(
            "save", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Save
        )
    with_flags.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # read by inspect
        [one.replace(kind=one.KEYWORD_ONLY) for one in merged.values()]
    )
    with_flags.__annotations__ = {name: one.annotation for name, one in merged.items()}
    del with_flags.__wrapped__
    return with_flags


def _refuse_contradictions(said: dict[str, Any]) -> None:
    """Raise an error for options that contradict each other."""
    pairs = (*ALTERNATIVES, ("noise_multiplier", "sensitivity"), ("batch_size", "sample_rate"))
    for one, other in pairs:
        if one in said and other in said:
            must_be = f"omitted: {flag(one)} already sets it"
            raise InvalidParameter(flag(other), said[other], must_be=must_be)


def with_defaults(said: Description, *, seeks_noise: bool) -> Description:
    """The description with its defaults; a command that seeks the noise needs none to begin with.

    All that is missing is named at once.
    """
    filled = said
    if seeks_noise and said.noise_multiplier is None and said.noise_std is None:
        if said.in_units_of_a_clip and said.clip_norm is not None:
            filled = dataclasses.replace(said, noise_multiplier=1.0)
        else:
            filled = dataclasses.replace(said, noise_std=1.0)
    missing = [_MISSING_FLAGS.get(words, flag(words[0])) for words in filled.missing()]
    if missing:
        must_be = f"described in full: add {_comma_list(missing)}, or name a run file"
        raise InvalidType("run", must_be=must_be, found="less")
    if said.batches is None:
        filled = dataclasses.replace(filled, batches=filled.rule().name)
    if said.adjacency is None:
        adjacency = usual_adjacency(sensitivity_stated=not filled.in_units_of_a_clip)
        filled = dataclasses.replace(filled, adjacency=adjacency)
    return filled


def assumptions(said: Description, filled: Description) -> list[str]:
    """The sentences on defaults that a reader must know."""
    stated = []
    if said.batches is None:
        stated += [_ASSUMED_POISSON if filled.in_units_of_a_clip else _ASSUMED_SHUFFLED]
    if said.adjacency is None and filled.adjacency is not None:
        stated += [_ASSUMED_ADJACENCY[filled.adjacency]]
    if said.releases is None and (filled.in_units_of_a_clip or said.step_size is None):
        stated += _last_iterate_advice(filled)
    return stated


def _last_iterate_advice(said: Description) -> list[str]:
    """A sentence on the flags that a bound for the last iterate alone would need, if any."""
    rate = ["--step-size"] if said.step_size is None else []
    clip, lipschitz = said.clip_norm, said.lipschitz
    ways = {}
    if said.convex:
        missing = ways["convex losses"] = list(rate)
        missing += [_SMOOTHNESS] if said.smoothness is None else []
        if clip is not None and not (lipschitz is not None and lipschitz <= clip):
            missing.append("--lipschitz (a bound on gradient norms, at most --clip-norm)")
    rule = said.rule()
    if rule.resampling in (Resampling.NEVER, Resampling.ONCE) and rule.exact_size:
        more = ["--diameter"] if said.diameter is None else []
        ways["iterates projected onto a ball"] = rate + more
    if not all(ways.values()):
        return []
    wanted = "; or ".join(f"{_comma_list(missing)} for {what}" for what, missing in ways.items())
    return [
        "charged: every iterate. A bound for the last iterate alone may be lower; it needs "
        f"{wanted or 'convex losses, or --batches cyclic or shuffled-once'}. "
        "It holds for SGD, with --momentum or without; with Adam, charge every iterate."
    ]


def _comma_list(flags: list[str]) -> str:
    return f"{', '.join(flags[:-1])} and {flags[-1]}" if len(flags) > 1 else "".join(flags)


def read_run(path: Path, changes: Mapping[str, Any]) -> Description | TrainingRun:
    """The run in a file, with `changes`; a `TrainingRun` if it is written out and unchanged."""
    if path.suffix not in _FILE_KINDS:
        raise InvalidParameter("run", str(path), must_be="a file that ends in .toml or .json")
    said = parsed(_FILE_KINDS[path.suffix], path.read_text(encoding="utf-8"))
    record = _run_in(said, path)
    if not isinstance(record, Mapping):
        raise InvalidType("run", record, must_be="a table of names and values")
    if not is_written_out(record):
        return Description.from_words(record).changed(changes)
    run = from_dict(record)
    return Description.of(run).changed(changes) if changes else run


def _run_in(record: Any, path: Path) -> Any:
    """The run of a file, which may be an answer of the command about it."""
    if not isinstance(record, Mapping) or "run" not in record:
        return record
    if "guarantee" in record:
        must_be = "a run; a certificate is for `lastiterate verify`"
        raise InvalidParameter("run", str(path), must_be=must_be)
    if record.get("other_releases"):
        must_be = "of a training alone; this answer includes statistics published beside it"
        raise InvalidParameter("run", str(path), must_be=must_be)
    return record["run"] if set(record) >= _ANSWER_KEYS else record


def check_new(path: Path) -> None:
    """Raise, before the work and not after it, unless a run can be saved here."""
    if path.suffix != ".toml":
        raise InvalidParameter("save", str(path), must_be="a file that ends in .toml")
    refuse_replacing("save", path)


def as_toml(described: Description | None, run: TrainingRun) -> str:
    """The run as TOML, in the words that described it if they say all of it."""
    if described is not None:
        words = {
            one.name: getattr(described, one.name)
            for one in dataclasses.fields(Description)
            if getattr(described, one.name) != one.default
        }
        words |= {"batches": run.batches.name, "adjacency": run.adjacency}
        if "domain" not in words and isinstance(described.batches, str | None):
            text = words_to_toml(words)
            return text if from_toml(text) == run else run.to_toml()
    return run.to_toml()


Data = Annotated[
    Path,
    typer.Argument(metavar="DATA", help="a .csv (perhaps .gz, .zst), .parquet or .npz file"),
]

Delimiter = Annotated[
    str | None, typer.Option(help="the separator of a CSV file, unless a comma (.tsv files: a tab)")
]

Force = Annotated[
    bool, typer.Option("--force", help="replace what lastiterate wrote there, and nothing else")
]

ClassPrior = Annotated[
    str | None,
    typer.Option(help="publicly known shares of the labels, as in yes=0.02; not from the data"),
]

RateMatching = Annotated[
    float,
    typer.Option(
        help="part of the budget (mu) for probabilities that are right on average; 0.1 for rare "
        "labels"
    ),
]

RowClipNorm = Annotated[
    float | None, typer.Option(help="the largest norm of one row's gradient; chosen for you")
]


def read_schema(path: Path | None, data: Path, target: str) -> dict[str, Any]:
    """The schema of public facts about the columns; each entry is checked where it is used."""
    if path is None:
        must_be = (
            "given, a JSON file about every column; to begin one, "
            f"`lastiterate schema {data} --target {target} --out schema.json`"
        )
        raise InvalidParameter("schema", must_be=must_be, found="none")
    return schema_in(path)


def declared_target(
    name: str,
    task: str,
    described: Any,
    *,
    classes: str | None,
    target_range: tuple[float, float] | None,
) -> Target:
    """The labels or the range of the column to predict, declared in one place of two."""
    if task == REGRESSION:
        if classes is not None:
            must_be = "left out for --task regression"
            raise InvalidParameter("classes", classes, must_be=must_be)
        return _number_target(name, described, target_range)
    if target_range is not None or (isinstance(described, dict) and "range" in described):
        must_be = (
            f"labels, {_schema_entry(name, values=['yes', 'no'])}: to predict numbers, add "
            "--task regression"
        )
        raise InvalidParameter(f"target {name!r}", must_be=must_be, found="a range")
    return _label_target(name, described, classes)


def _label_target(name: str, described: Any, classes: str | None) -> LabelTarget:
    if (described is None) == (classes is None):
        must_be = (
            "declared, since the labels are published: --classes yes,no, or in the schema, as in "
            f"{_schema_entry(name, values=['yes', 'no'])}"
        )
        found = "neither" if classes is None else "both"
        raise InvalidParameter("classes", must_be=must_be, found=found)
    if classes is not None:
        described = {"values": list(dict.fromkeys(one.strip() for one in classes.split(",")))}
    rule = rule_of(name, described)
    if not isinstance(rule, Categorical) or rule.left_out is not None:
        must_be = f"labels, such as {_schema_entry(name, values=['yes', 'no'])}"
        raise InvalidParameter(f"schema[{name!r}]", described, must_be=must_be)
    return LabelTarget(name, rule)


def _number_target(
    name: str, described: Any, target_range: tuple[float, float] | None
) -> NumberTarget:
    if (described is None) == (target_range is None):
        must_be = (
            "declared, since noise is in proportion to it: --target-range 0 100, or in the schema, "
            f"as in {_schema_entry(name, range=[0, 100])}"
        )
        found = "neither" if target_range is None else "both"
        raise InvalidParameter("the target's range", must_be=must_be, found=found)
    if target_range is not None:
        return NumberTarget(name, Numeric(range_of("target_range", target_range)))
    rule = rule_of(name, described)
    if type(rule) is not Numeric or rule.range is None or rule.indicator:
        must_be = f"a range, such as {_schema_entry(name, range=[0, 100])}"
        raise InvalidParameter(f"schema[{name!r}]", described, must_be=must_be)
    return NumberTarget(name, rule)


def _schema_entry(name: str, **rule: Any) -> str:
    return json.dumps({name: rule})


def shares_of(class_prior: str, kind: str, truth: Target) -> list[float]:
    """The shares of the labels, in their order; one label may be left out, and has the rest."""
    if kind != "logistic" or not isinstance(truth, LabelTarget):
        must_be = "left out: only --model logistic begins with shares of labels"
        raise InvalidParameter("class_prior", must_be=must_be, found=f"--model {kind}")
    labels = truth.classes
    must_be = (
        "label=share pairs with commas between them, each share above 0, adding up to 1, as in "
        f"{labels[0]}=0.98,{labels[1]}=0.02 (one label may be left out, and has the rest)"
    )
    pairs = [part.rpartition("=") for part in class_prior.split(",")]
    given = {label.strip(): _share_or_nan(text) for label, _, text in pairs}
    absent = [label for label in labels if label not in given]
    other = [label for label in given if label not in labels]
    if other and all(label and not math.isnan(share) for label, share in given.items()):
        found = f"{', '.join(map(repr, other))}, which is none of the labels {', '.join(labels)}"
        raise InvalidParameter("class_prior", must_be=must_be, found=found)
    if len(given) < len(pairs) or not given.keys() <= set(labels) or len(absent) > 1:
        raise InvalidParameter("class_prior", class_prior, must_be=must_be)
    given |= dict.fromkeys(absent, 1.0 - math.fsum(given.values()))
    shares = [given[label] for label in labels]
    if not (all(0.0 < share < 1.0 for share in shares) and abs(math.fsum(shares) - 1.0) <= 1e-3):
        raise InvalidParameter("class_prior", class_prior, must_be=must_be)
    return shares


def _share_or_nan(text: str) -> float:
    """The number that a text is, nan if it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def rarity_text(prior: list[float] | None, truth: Target, rate_matching: float) -> str | None:
    """Advice on labels that are known to be rare; None if there is none to give."""
    if prior is None or rate_matching > 0.0 or not isinstance(truth, LabelTarget):
        return None
    rare = [label for label, share in zip(truth.classes, prior, strict=True) if share < _RARE_SHARE]
    if not rare or len(truth.classes) > round(1.0 / _RARE_SHARE):
        return None
    return (
        f"{' and '.join(map(repr, rare))} will have probabilities that are far too small, since "
        "clipping counts rare labels for less: --rate-matching 0.1 makes them right on average, up "
        "to noise, and spends a tenth of mu on it (rankings stay as they are)"
    )


def with_features(
    table: EncodedTable, feature_map: FeatureMap | None, file: Path | None = None
) -> EncodedTable:
    """The table with features in the place of encoded rows, in a file if one is given."""
    if feature_map is None:
        return table
    if file is not None:
        return replace(table, rows=feature_map.write(table.rows, file))
    InMemory(feature_map.width, np.float32).check(len(table.rows))
    return replace(table, rows=feature_map.apply(table.rows))


def row_settings(
    encoder: Encoder, feature_map: FeatureMap | None, feature_bound: float | None
) -> dict[str, Any]:
    """The bound on rows, and the features of columns whose undeclared values are counted."""
    known = encoder.feature_bound if feature_map is None else feature_map.norm_bound
    return {
        "feature_bound": known if feature_bound is None else feature_bound,
        "text_columns": encoder.text_columns if feature_map is None else {},
    }


def check_scratch(mapped: Path | None) -> None:
    """Raise unless scratch files can be made there."""
    if mapped is None or mapped.is_dir():
        return
    if os.path.lexists(mapped):
        must_be = "a folder for scratch files, or a name that nothing has yet"
        raise InvalidParameter("mapped", must_be=must_be, found=f"{mapped}, which is a file")
    if not mapped.parent.is_dir():
        must_be = "in a folder that exists"
        raise InvalidParameter("mapped", str(mapped), must_be=must_be)


@contextmanager
def scratch_files(mapped: Path | None) -> Iterator[tuple[Path | None, Path | None]]:
    """Names for encoded rows and features, in a new folder that is removed with them.

    They are as private as the table, so that nobody else can read the folder.
    """
    check_scratch(mapped)
    if mapped is None:
        yield None, None
        return
    where, prefix = (mapped, "rows.") if mapped.is_dir() else (mapped.parent, f"{mapped.name}.")
    with TemporaryDirectory(prefix=prefix, dir=where) as folder:
        yield Path(folder, "rows"), Path(folder, "features")
