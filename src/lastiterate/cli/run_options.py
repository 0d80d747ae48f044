"""A run described by flags, or by a TOML or JSON file."""

import functools
import inspect
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from lastiterate._numerics.rounding import THOUSANDS_OF_ROUNDINGS, down
from lastiterate.cli.defaults import filled_in
from lastiterate.errors import InvalidParameter
from lastiterate.run.batches import RULES, BatchRule
from lastiterate.run.domain import Ball, Unbounded
from lastiterate.run.loss import Loss
from lastiterate.run.training_run import TrainingRun

_Value = TypeVar("_Value")
_RULES = [name for name, rule in RULES.items() if rule.from_sizes]

RunFile = Annotated[
    Path | None,
    typer.Argument(help="a .toml or .json file, as run.to_toml() writes it, instead of flags"),
]
Examples = Annotated[int | None, typer.Option(help="how many examples there are")]
BatchSize = Annotated[int | None, typer.Option(help="examples in a batch")]
Rule = Annotated[
    str | None,
    typer.Option(
        "--batches",
        help=f"one of {', '.join(_RULES)} [default: poisson with --noise-multiplier, "
        "else shuffled-once]",
    ),
]
Epochs = Annotated[
    float | None,
    typer.Option(help="passes over the examples, each of examples/batch-size steps (or --steps)"),
]
Steps = Annotated[int | None, typer.Option(help="gradient steps (or --epochs)")]
StepSize = Annotated[
    float | None,
    typer.Option(help="the learning rate of plain steps; without it every iterate is charged for"),
]
NoiseStd = Annotated[float | None, typer.Option(help="noise on the averaged gradient")]
NoiseMultiplier = Annotated[
    float | None, typer.Option(help="noise on the summed gradient, in units of the clip")
]
ClipNorm = Annotated[
    float | None, typer.Option(help="the norm to which each example's gradient is clipped")
]
Sensitivity = Annotated[
    float | None, typer.Option(help="the largest difference of two examples' gradients")
]
Smoothness = Annotated[
    float | None, typer.Option(help="of every example's loss, regulariser included")
]
StrongConvexity = Annotated[float, typer.Option(help="of every example's loss")]
Regulariser = Annotated[float, typer.Option(help="curvature of a penalty added in every step")]
Lipschitz = Annotated[
    float | None, typer.Option(help="a bound on every gradient's norm, so that no clip is active")
]
NonConvex = Annotated[bool, typer.Option("--non-convex", help="losses may be non-convex")]
Diameter = Annotated[float | None, typer.Option(help="of a ball that iterates are projected onto")]
ReleaseNoise = Annotated[
    float, typer.Option("--release-noise-std", help="noise added once, to the published model")
]
Adjacency = Annotated[
    str | None,
    typer.Option(
        help="what one example may become: replace (another) or zero-out (none) [default: "
        "zero-out for poisson with --noise-multiplier, else replace]"
    ),
]
ExamplesPerPerson = Annotated[
    int, typer.Option(help="the most examples of one person, who is protected as a whole")
]
Releases = Annotated[
    str | None,
    typer.Option(
        help="last-iterate, last-iterate-and-order or every-iterate [default: last-iterate]"
    ),
]


def read_run(path: Path) -> TrainingRun:
    """The run that a file describes."""
    if path.suffix not in (".toml", ".json"):
        raise InvalidParameter("run", str(path), must_be="a file that ends in .toml or .json")
    text = path.read_text(encoding="utf-8")
    return (TrainingRun.from_toml if path.suffix == ".toml" else TrainingRun.from_json)(text)


def run_from_flags(
    run: RunFile = None,
    examples: Examples = None,
    batch_size: BatchSize = None,
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
    non_convex: NonConvex = False,
    diameter: Diameter = None,
    release_noise_std: ReleaseNoise = 0.0,
    adjacency: Adjacency = None,
    examples_per_person: ExamplesPerPerson = 1,
    releases: Releases = None,
) -> TrainingRun:
    """The run of the file, or else of the flags."""
    if run is not None:
        return read_run(run)
    rule = _rule(_given("batches", batches), examples, batch_size)
    common: dict[str, Any] = {
        "loss": Loss(
            smoothness=smoothness,
            strong_convexity=strong_convexity,
            convex=not non_convex,
            lipschitz=lipschitz,
            regulariser=regulariser,
        ),
        "batches": rule,
        "steps": _steps(steps, epochs, rule),
        "step_size": _given("step-size", step_size),
        "release_noise_std": release_noise_std,
        "domain": Unbounded() if diameter is None else Ball(diameter),
        "adjacency": adjacency,
        "examples_per_person": examples_per_person,
        "releases": releases,
    }
    if noise_multiplier is not None:
        clip = _given("clip-norm", clip_norm)
        return TrainingRun.from_dp_sgd(clip_norm=clip, noise_multiplier=noise_multiplier, **common)
    return TrainingRun(
        sensitivity=_given("sensitivity", sensitivity),
        noise_std=_given("noise-std", noise_std),
        clip_norm=clip_norm,
        **common,
    )


def takes_run(command: Callable[..., None], *, seeks_noise: bool = False) -> Callable[..., None]:
    """Gives a command that takes a run, first, the flags that describe one instead.

    Defaults that a reader must know are stated once the command has answered.
    """
    flags = inspect.signature(run_from_flags).parameters
    own = dict(list(inspect.signature(command).parameters.items())[1:])

    @functools.wraps(command)
    def with_flags(**values: Any) -> None:
        described = {name: values.pop(name) for name in flags}
        _refuse_contradictions(described)
        filled, assumed = filled_in(described, seeks_noise=seeks_noise)
        command(run_from_flags(**filled), **values)
        for line in assumed:
            print(line, file=sys.stderr)

    merged = {**flags, **own}
    with_flags.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # read by inspect
        [one.replace(kind=one.KEYWORD_ONLY) for one in merged.values()]
    )
    with_flags.__annotations__ = {name: one.annotation for name, one in merged.items()}
    del with_flags.__wrapped__
    return with_flags


def _refuse_contradictions(described: dict[str, Any]) -> None:
    """Flags that would otherwise be ignored in silence."""
    defaults = inspect.signature(run_from_flags).parameters
    said = [name for name, value in described.items() if value != defaults[name].default]
    beside_a_file = [("run", name) for name in said if name != "run"]
    pairs = [("epochs", "steps"), ("noise_multiplier", "noise_std")]
    for one, other in [*beside_a_file, *pairs, ("noise_multiplier", "sensitivity")]:
        if one in said and other in said:
            instead = "the run file" if one == "run" else _flag(one)
            must_be = f"omitted: {instead} already sets it"
            raise InvalidParameter(_flag(other), described[other], must_be=must_be)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _rule(rule: str, examples: int | None, batch_size: int | None) -> BatchRule:
    if rule not in _RULES:
        raise InvalidParameter("batches", rule, must_be=f"one of {', '.join(_RULES)}")
    kind, count = RULES[rule], _given("examples", examples)
    if kind.ordered:
        return kind.of_sizes(count, _given("batch-size", batch_size))
    if batch_size not in (None, count):
        must_be = f"left out with --batches {rule}"
        raise InvalidParameter("batch-size", batch_size, must_be=must_be)
    return kind.of_sizes(count, None)


def _steps(steps: int | None, epochs: float | None, batches: BatchRule) -> int:
    if steps is not None:
        return steps
    passes = _given("steps", epochs)
    if not 0.0 < passes < 1e12:
        raise InvalidParameter("epochs", passes, must_be="in (0, 1e12)")
    return max(1, math.ceil(down(passes * batches.steps_per_pass, THOUSANDS_OF_ROUNDINGS)))


def _given(name: str, value: _Value | None) -> _Value:
    if value is None:
        raise InvalidParameter(name, None, must_be=f"given: --{name}, or a run file instead")
    return value
