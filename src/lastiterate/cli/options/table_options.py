"""Options of commands about tables: the file, its schema, where results go."""

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer

from lastiterate.errors import InvalidParameter
from lastiterate.tables.column_rules import Categorical, Numeric, range_of, rule_of
from lastiterate.tables.encoder import LabelTarget, NumberTarget, Target, schema_in

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
ClipNorm = Annotated[
    float | None, typer.Option(help="the largest norm of one row's gradient; chosen for you")
]

CLASSIFICATION, REGRESSION = "classification", "regression"
TASKS = (CLASSIFICATION, REGRESSION)


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
        return _amounts(name, described, target_range)
    if target_range is not None or (isinstance(described, dict) and "range" in described):
        must_be = (
            f"labels, {_entry(name, values=['yes', 'no'])}: to predict numbers, add "
            "--task regression"
        )
        raise InvalidParameter(f"target {name!r}", must_be=must_be, found="a range")
    return _labels(name, described, classes)


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
    given = {label.strip(): _share(text) for label, _, text in pairs}
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


_RARE = 0.2  # a share below which clipping makes probabilities far too small


def rarity_text(prior: list[float] | None, truth: Target, rate_matching: float) -> str | None:
    """Advice on labels that are known to be rare; None if there is none to give."""
    if prior is None or rate_matching > 0.0 or not isinstance(truth, LabelTarget):
        return None
    rare = [label for label, share in zip(truth.classes, prior, strict=True) if share < _RARE]
    if not rare or len(truth.classes) > round(1.0 / _RARE):
        return None
    return (
        f"{' and '.join(map(repr, rare))} will have probabilities that are far too small, since "
        "clipping counts rare labels for less: --rate-matching 0.1 makes them right on average, up "
        "to noise, and spends a tenth of mu on it (rankings stay as they are)"
    )


def _share(text: str) -> float:
    """A number, nan if it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _labels(name: str, described: Any, classes: str | None) -> LabelTarget:
    if (described is None) == (classes is None):
        must_be = (
            "declared, since the labels are published: --classes yes,no, or in the schema, as in "
            f"{_entry(name, values=['yes', 'no'])}"
        )
        found = "neither" if classes is None else "both"
        raise InvalidParameter("classes", must_be=must_be, found=found)
    if classes is not None:
        described = {"values": list(dict.fromkeys(one.strip() for one in classes.split(",")))}
    rule = rule_of(name, described)
    if not isinstance(rule, Categorical) or rule.left_out is not None:
        must_be = f"labels, such as {_entry(name, values=['yes', 'no'])}"
        raise InvalidParameter(f"schema[{name!r}]", described, must_be=must_be)
    return LabelTarget(name, rule)


def _amounts(name: str, described: Any, target_range: tuple[float, float] | None) -> NumberTarget:
    if (described is None) == (target_range is None):
        must_be = (
            "declared, since noise is in proportion to it: --target-range 0 100, or in the schema, "
            f"as in {_entry(name, range=[0, 100])}"
        )
        found = "neither" if target_range is None else "both"
        raise InvalidParameter("the target's range", must_be=must_be, found=found)
    if target_range is not None:
        return NumberTarget(name, Numeric(range_of("target_range", target_range)))
    rule = rule_of(name, described)
    if type(rule) is not Numeric or rule.range is None or rule.indicator:
        must_be = f"a range, such as {_entry(name, range=[0, 100])}"
        raise InvalidParameter(f"schema[{name!r}]", described, must_be=must_be)
    return NumberTarget(name, rule)


def _entry(name: str, **rule: Any) -> str:
    return json.dumps({name: rule})
